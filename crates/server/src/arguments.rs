//! Flags of a program that serves.

use std::path::PathBuf;

use crate::config::Sources;

/// A flag wins over its variable (INSULA_LISTEN for --listen), which wins over the file.
/// config/insula.yaml shows every setting with its default.
#[derive(clap::Args, Default)]
#[command(after_help = "\
Variables:
  Every key of the settings has one, also those without a flag: dataDir is INSULA_DATA_DIR, log.level
  is INSULA_LOG_LEVEL, limits.bodyBytes is INSULA_LIMITS_BODY_BYTES. Most flags are called like their
  key: --tls-cert-file is tls.certFile, but --event-ttl is workspaces.eventTtlSeconds,
  --tls-sni-cert-key is tls.sni, --otlp-endpoint is telemetry.otlpEndpoint and --webhook-allow is
  webhooks.allow.

Exit codes:
  0  stopped by SIGTERM or SIGINT
  1  the data directory, a file or the store cannot be used, or etcd was rolled back meanwhile
  2  a flag, a variable or a key of the configuration is wrong
  3  another server works on the data directory
  4  the address is taken
  5  a key is readable by others, or does not fit its certificate; a certificate is not valid now,
     or does not name the server")]
pub struct Arguments {
    /// Settings, as YAML.
    #[arg(long, value_name = "FILE", env = "INSULA_CONFIG")]
    config: Option<PathBuf>,
    #[arg(
        help = "Directory of keys and objects [default: .insula]",
        long,
        value_name = "DIRECTORY"
    )]
    data_dir: Option<String>,
    #[arg(
        help = "Address to serve on; port 0 takes a free one [default: 127.0.0.1:6443]",
        long,
        value_name = "ADDRESS:PORT"
    )]
    listen: Option<String>,
    #[command(flatten)]
    serving: Serving,
    #[arg(
        help = "File to write the administrator's kubeconfig to [default: admin.kubeconfig in the data directory]",
        long,
        value_name = "FILE"
    )]
    kubeconfig: Option<String>,
    #[arg(
        help = "Store of the objects: embedded, memory, etcd://HOST:PORT[,HOST:PORT…], or etcds:// with TLS \
                [default: embedded]",
        long,
        value_name = "STORE"
    )]
    store: Option<String>,
    /// Static bearer tokens: token,user,uid,"group1,group2" on each line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Issuers of tokens besides the server (OpenID Connect): a file of Kubernetes' kind
    /// AuthenticationConfiguration.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<String>,
    /// Seconds to wait for requests in flight after SIGTERM [default: 10].
    #[arg(long, value_name = "SECONDS")]
    drain_seconds: Option<String>,
    /// Seconds to keep an Event after its last write; 0 keeps it for ever [default: 3600].
    #[arg(long, value_name = "SECONDS")]
    event_ttl: Option<String>,
    /// human or json [default: human].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// off, error, warn, info, debug, trace, or directives such as info,insula_store=debug
    /// [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// A collector for traces and metrics, such as http://127.0.0.1:4317 [default: none].
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Targets that tenants' webhooks may have, commas between: public (every address of the
    /// internet, on port 443 or from 1024 on), addresses, networks such as 10.0.0.0/8, hosts such
    /// as hooks.example.com, all below one as *.example.com. Loopback, link-local and private
    /// addresses are refused unless they are named here; an empty list allows none [default:
    /// public].
    #[arg(long, value_name = "LIST")]
    webhook_allow: Option<String>,
}

/// Flags for clients on other machines.
#[derive(clap::Args, Default)]
struct Serving {
    /// URL under which clients reach the server, as https://api.example.com:6443 [default: follows
    /// from --listen].
    #[arg(long, value_name = "URL")]
    external_url: Option<String>,
    /// PEM file of the server's certificate, with those up to its CA [default: the server makes
    /// one].
    #[arg(long, value_name = "FILE")]
    tls_cert_file: Option<String>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    tls_key_file: Option<String>,
    /// PEM file of the CA that signed the certificate, for kubeconfigs.
    #[arg(long, value_name = "FILE")]
    tls_ca_file: Option<String>,
    /// More names and addresses of the certificate that the server makes, commas between.
    #[arg(long, value_name = "LIST")]
    tls_names: Option<String>,
    /// PEM file of more CAs whose client certificates name users.
    #[arg(long, value_name = "FILE")]
    tls_client_ca_file: Option<String>,
    /// PEM files of a certificate and its key for clients that ask for another name, as
    /// CERTIFICATE,KEY:NAME,NAME; without names those of the certificate count. May be repeated.
    #[arg(long, value_name = "FILES:NAMES")]
    tls_sni_cert_key: Vec<String>,
    /// PEM file of the CAs of proxies that name users in headers (X-Remote-User).
    #[arg(long, value_name = "FILE")]
    front_proxy_ca_file: Option<String>,
    /// Common names of the proxies' certificates, commas between.
    #[arg(long, value_name = "LIST")]
    front_proxy_allowed_names: Option<String>,
}

impl Serving {
    fn flags(self) -> [(&'static str, Option<String>); 9] {
        let pairs = self.tls_sni_cert_key;
        [
            ("tls.sni", (!pairs.is_empty()).then(|| pairs.join(";"))),
            ("externalUrl", self.external_url),
            ("tls.certFile", self.tls_cert_file),
            ("tls.keyFile", self.tls_key_file),
            ("tls.caFile", self.tls_ca_file),
            ("tls.names", self.tls_names),
            ("tls.clientCaFile", self.tls_client_ca_file),
            ("frontProxy.caFile", self.front_proxy_ca_file),
            ("frontProxy.allowedNames", self.front_proxy_allowed_names),
        ]
    }
}

impl Arguments {
    /// Returns the sources of the settings: the flags, the environment of the process, and the file
    /// that either names.
    pub fn sources(self) -> Sources {
        let Self {
            config,
            data_dir,
            listen,
            serving,
            kubeconfig,
            store,
            token_file,
            authentication_config,
            drain_seconds,
            event_ttl,
            log_format,
            log_level,
            otlp_endpoint,
            webhook_allow,
        } = self;
        let flags = [
            ("dataDir", data_dir),
            ("listen", listen),
            ("kubeconfig", kubeconfig),
            ("store", store),
            ("tokenFile", token_file),
            ("authenticationConfig", authentication_config),
            ("drainSeconds", drain_seconds),
            ("workspaces.eventTtlSeconds", event_ttl),
            ("log.format", log_format),
            ("log.level", log_level),
            ("telemetry.otlpEndpoint", otlp_endpoint),
            ("webhooks.allow", webhook_allow),
        ];
        let flags = flags
            .into_iter()
            .chain(serving.flags())
            .filter_map(|(key, value)| value.map(|value| (key, value)))
            .collect();
        // Variables of other programs may hold any bytes; only ours have to be text.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        Sources {
            file: config,
            environment: std::env::vars_os().filter_map(text).collect(),
            flags,
        }
    }
}
