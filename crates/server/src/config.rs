//! Settings of the server in one struct, read once at start.
//!
//! `Config::default()` holds the defaults: `config/insula.yaml` documents every key with its
//! default, and a test compares the two. [`load`] merges the sources. No code below the wiring of
//! the server reads a variable or a settings file.

mod backup;
mod load;
mod login;
mod serving;
mod store;
mod telemetry;
mod workspaces;

pub use backup::BackupConfig;
pub use load::{ConfigError, Source, Sources, load, load_over};
pub use login::ConsoleLogin;
pub(crate) use serving::{ExternalUrl, is_dns_name};
pub use serving::{FrontProxyConfig, NamedCertificate, Names, Sni, TlsConfig};
pub use store::{Endpoints, StoreChoice};
pub use telemetry::TelemetryConfig;
pub use workspaces::Workspaces;

use std::{path::PathBuf, time::Duration};

use insula_apiserver::HostPattern;
use insula_edge::port::ConnectionLimits;
use serde::{Deserialize, Serialize};

use crate::addresses;
pub use crate::outbound::Targets;

/// Settings of the server. Keys are camelCase in YAML (`dataDir`), `INSULA_DATA_DIR` in the
/// environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Directory of keys, certificates and the embedded store (mode 0700). Created at the first
    /// start.
    pub data_dir: PathBuf,
    /// Address that serves the API: `ADDRESS:PORT`. Port 0 takes a free port.
    pub listen: String,
    /// URL under which clients reach the server: `https://HOST[:PORT]`. `None` for one that follows
    /// from `listen`.
    pub external_url: Option<String>,
    /// Hosts of workspaces: `{cluster}.api.example.com`. `None` for workspaces at paths alone.
    pub host_pattern: Option<String>,
    /// Choice of serving the web console.
    pub console: ConsoleChoice,
    /// Sign-in to the console by a provider of OpenID Connect.
    pub console_login: ConsoleLogin,
    /// Certificates of the port.
    pub tls: TlsConfig,
    /// Proxies that name users in headers.
    pub front_proxy: FrontProxyConfig,
    /// File for the kubeconfig of the administrator; `None` means `admin.kubeconfig` in the data
    /// directory.
    pub kubeconfig: Option<PathBuf>,
    /// Storage engine.
    pub store: StoreChoice,
    /// Connections to etcd, if it is the store.
    pub etcd: EtcdConfig,
    /// Disk space in MiB that the embedded store reserves for a full disk; 0 for none.
    pub store_reserve_megabytes: u64,
    /// Static bearer tokens, one a line: `token,user,uid,"group1,group2"`.
    pub token_file: Option<PathBuf>,
    /// File of Kubernetes' kind AuthenticationConfiguration: the issuers whose tokens are accepted.
    pub authentication_config: Option<PathBuf>,
    /// Directory with the keys that several servers share: `ca.crt`, `ca.key`,
    /// `service-accounts.key`, and `service-accounts-previous.key` if there is one.
    pub shared_keys: Option<PathBuf>,
    /// Seconds that requests in flight may take after SIGTERM.
    pub drain_seconds: u64,
    /// Seconds between "not ready" and "not accepting" at SIGTERM, in which load balancers remove
    /// the server.
    pub shutdown_delay_seconds: u64,
    /// Log on standard error.
    pub log: LogConfig,
    /// Telemetry that is sent to a collector.
    pub telemetry: TelemetryConfig,
    /// Calls to webhooks of tenants.
    pub webhooks: Webhooks,
    /// Options of workspaces.
    pub workspaces: Workspaces,
    /// Watches, and the history that they read.
    pub watches: Watches,
    /// Audit log.
    pub audit: AuditConfig,
    /// Backups that the server keeps.
    pub backup: BackupConfig,
    /// Limits of requests and connections.
    pub limits: Limits,
}

/// Connections to etcd. The files are read anew for each new connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EtcdConfig {
    /// PEM file of the CA that signed the certificates of etcd's members; required for `etcds://`.
    pub ca: Option<PathBuf>,
    /// PEM file of the client certificate, if etcd wants one.
    pub certificate: Option<PathBuf>,
    /// PEM file of its key, mode 0600.
    pub key: Option<PathBuf>,
    /// Name of the user, if etcd's authentication is on.
    pub user: Option<String>,
    /// File with the user's password, mode 0600.
    pub password_file: Option<PathBuf>,
    /// Seconds for a read from etcd or a commit, all attempts included.
    pub request_seconds: u64,
    /// Seconds for an attempt at one member, before the next one is asked.
    pub attempt_seconds: u64,
    /// Uses members whose version may lose events of watches, with a warning.
    pub accept_old_versions: bool,
    /// Takes the keys of this server as the new ones of all servers on the store.
    pub accept_new_keys: bool,
}

impl Default for EtcdConfig {
    fn default() -> Self {
        Self {
            ca: None,
            certificate: None,
            key: None,
            user: None,
            password_file: None,
            request_seconds: 10,
            // An election takes one to two seconds.
            attempt_seconds: 2,
            accept_old_versions: false,
            accept_new_keys: false,
        }
    }
}

/// Choice of serving the web console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleChoice {
    /// On an address that only this machine can reach.
    Auto,
    /// On every address.
    Always,
    /// Nowhere.
    Never,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogConfig {
    /// Lines for people, or JSON for machines.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a list of directives such as
    /// `info,insula_store=debug`.
    pub level: String,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditConfig {
    /// The file; `None` means `audit/audit.log` in the data directory.
    pub file: Option<PathBuf>,
    /// File of the `audit.k8s.io/v1` Policy. `None` for the metadata of every request except those
    /// for health.
    pub policy: Option<PathBuf>,
    /// Megabytes of the file at which it is rotated.
    pub max_megabytes: u64,
    /// Rotated files that are kept at most.
    pub max_backups: usize,
    /// Days for which rotated files are kept; 0 for no limit.
    pub max_age_days: u64,
    /// Events in the queue at most.
    pub queue: usize,
    /// Behaviour when the queue is full.
    pub when_full: WhenFull,
}

/// Behaviour of a request when the queue of audit events is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The request goes on; the event is lost and counted.
    Drop,
    /// The request waits, at most five seconds.
    Wait,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            file: None,
            policy: None,
            max_megabytes: 100,
            max_backups: 10,
            max_age_days: 0,
            // A hundredth of a second of more requests than a large machine answers.
            queue: 8_192,
            when_full: WhenFull::Drop,
        }
    }
}

/// Calls to servers that tenants configure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhooks {
    /// Allowed targets, separated by commas: `public`, addresses, networks, hosts, `*.` and a
    /// domain. Empty for none.
    pub allow: Targets,
    /// Seconds of a call at most, unless its configuration says otherwise.
    pub timeout_seconds: u32,
    /// Concurrent calls of one workspace; further calls wait.
    pub calls_per_workspace: usize,
    /// Requests of one workspace that wait for its extension servers (APIServices).
    pub proxied_requests_per_workspace: usize,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            allow: Targets::default(),
            timeout_seconds: 10,
            calls_per_workspace: 16,
            proxied_requests_per_workspace: 64,
        }
    }
}

/// Watches, and the history that they read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Watches {
    /// Seconds of history that the server keeps, as long as the store has room for it; at least 1.
    /// A watch or list from an older revision gets 410.
    pub history_seconds: u64,
    /// MiB of replaced objects that the history has at most.
    pub history_megabytes: usize,
    /// Seconds between bookmarks; at least 1. At each bookmark the server checks again that the
    /// user may watch.
    pub bookmark_seconds: u64,
}

impl Default for Watches {
    fn default() -> Self {
        Self {
            // As kube-apiserver compacts etcd every five minutes, and sends a bookmark about every
            // minute.
            history_seconds: 300,
            history_megabytes: 512,
            bookmark_seconds: 60,
        }
    }
}

/// Limits. Every one has a default, and none can be switched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Bytes of the body of a request.
    pub body_bytes: usize,
    /// Bytes of the headers of a request.
    pub header_bytes: u32,
    /// Seconds in which a client sends the headers of a request, and finishes a TLS handshake.
    pub header_seconds: u64,
    /// Seconds in which a request other than a watch is answered.
    pub request_seconds: u64,
    /// CPU seconds that the answer of one request may take.
    pub compute_seconds: u64,
    /// Requests in flight, not counting watches.
    pub requests_in_flight: usize,
    /// Requests in flight of one user, not counting watches.
    pub requests_in_flight_per_user: usize,
    /// Requests of one user per second.
    pub requests_per_second_per_user: usize,
    /// Open watches of one user.
    pub watches_per_user: usize,
    /// Requests in flight in one workspace, not counting watches.
    pub requests_in_flight_per_workspace: usize,
    /// Requests in one workspace per second.
    pub requests_per_second_per_workspace: usize,
    /// Open watches of one workspace.
    pub watches_per_workspace: usize,
    /// Percentage of the cores that one workspace may use while other workspaces are active. 100
    /// for whatever the others leave.
    pub compute_percent_per_workspace: usize,
    /// Open connections.
    pub connections: usize,
    /// Open connections of one address that have not shown a credential yet.
    pub connections_per_address: usize,
    /// Bytes of requests and answers in memory.
    pub bytes_in_flight: usize,
    /// Bytes of requests and answers of one user in memory.
    pub bytes_in_flight_per_user: usize,
    /// Bytes of requests and answers of one workspace in memory.
    pub bytes_in_flight_per_workspace: usize,
    /// Seconds for which a connection may be idle.
    pub idle_seconds: u64,
    /// Seconds in which a client has to read some of a waiting answer.
    pub stall_seconds: u64,
    /// Concurrent HTTP/2 streams of one connection.
    pub streams_per_connection: u32,
}

impl Config {
    /// Returns the hosts of workspaces. A pattern that is none was refused with the settings.
    pub(crate) fn hosts(&self) -> Option<HostPattern> {
        let pattern = self.host_pattern.as_deref().map(HostPattern::parse);
        pattern.and_then(Result::ok)
    }

    /// Returns true if the console is served.
    pub(crate) fn serves_console(&self) -> bool {
        match self.console {
            ConsoleChoice::Auto => addresses::is_loopback(&self.listen),
            ConsoleChoice::Always => true,
            ConsoleChoice::Never => false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from(".insula"),
            listen: "127.0.0.1:6443".to_owned(),
            external_url: None,
            host_pattern: None,
            console: ConsoleChoice::Auto,
            console_login: ConsoleLogin::default(),
            tls: TlsConfig::default(),
            front_proxy: FrontProxyConfig::default(),
            kubeconfig: None,
            store: StoreChoice::Embedded,
            etcd: EtcdConfig::default(),
            store_reserve_megabytes: 64,
            token_file: None,
            authentication_config: None,
            shared_keys: None,
            drain_seconds: 10,
            shutdown_delay_seconds: 0,
            log: LogConfig {
                format: LogFormat::Human,
                level: "info".to_owned(),
            },
            telemetry: TelemetryConfig::default(),
            webhooks: Webhooks::default(),
            workspaces: Workspaces::default(),
            watches: Watches::default(),
            audit: AuditConfig::default(),
            backup: BackupConfig::default(),
            limits: Limits::default(),
        }
    }
}

impl Limits {
    /// Returns the limits of connections.
    pub(crate) fn of_connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.connections,
            per_address: self.connections_per_address,
            idle: Duration::from_secs(self.idle_seconds),
            headers: Duration::from_secs(self.header_seconds),
            stall: Duration::from_secs(self.stall_seconds),
            header_bytes: self.header_bytes,
            streams: self.streams_per_connection,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The limit of Kubernetes: an object of 1.5 MiB as JSON, and room for its escapes.
            body_bytes: 3 * 1024 * 1024,
            header_bytes: 64 * 1024,
            header_seconds: 10,
            request_seconds: 60,
            compute_seconds: 20,
            requests_in_flight: 2_000,
            requests_in_flight_per_user: 400,
            // More than one machine answers. Fair sharing throttles heavy tenants already; this
            // limit is for operators who want to sell less.
            requests_per_second_per_user: 50_000,
            watches_per_user: 5_000,
            requests_in_flight_per_workspace: 400,
            requests_per_second_per_workspace: 50_000,
            watches_per_workspace: 5_000,
            compute_percent_per_workspace: 100,
            connections: 10_000,
            connections_per_address: 2_500,
            // A few lists of ten thousand objects that have to be converted, at once.
            bytes_in_flight: 512 << 20,
            bytes_in_flight_per_user: 128 << 20,
            bytes_in_flight_per_workspace: 128 << 20,
            // Longer than clients keep an idle connection (Go: 90 s), so that the client closes it.
            idle_seconds: 120,
            stall_seconds: 60,
            // Go's client opens another connection beyond 250, which spreads watches over
            // connections.
            streams_per_connection: 250,
        }
    }
}
