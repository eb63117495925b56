//! Starts that are refused make nothing: no data directory, no key, no store.

use std::{collections::BTreeSet, fs, net::TcpListener, path::Path, time::Duration};

use insula_e2e::{Server, insula, run_bounded, shared};
use tempfile::TempDir;

/// A folder with files that settings may name.
struct Scene {
    folder: TempDir,
    /// A server that runs, whose certificates and keys the settings name.
    server: std::sync::Arc<Server>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("words", "no more than words\n");
        write("wrong.yaml", "lisen: 127.0.0.1:0\n");
        write(
            "policy.yaml",
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metdata\n",
        );
        fs::create_dir(folder.path().join("folder")).unwrap();
        Scene {
            folder,
            server: shared(),
        }
    }

    /// Replaces the names of files: `DIR/` is the folder, `PKI/` the keys of the server.
    fn filled(&self, text: &str) -> String {
        let path = |path: &Path| format!("{}/", path.display());
        text.replace("DIR/", &path(self.folder.path()))
            .replace("PKI/", &path(&self.server.data_dir().join("pki")))
    }

    /// Starts with flags and variables (`INSULA_…=…`). Returns the exit code and standard error.
    /// Nothing may be made.
    fn refusal(&self, settings: &str) -> (Option<i32>, String) {
        let data = self.folder.path().join("data");
        let settings = self.filled(settings);
        let (variables, flags): (Vec<&str>, Vec<&str>) =
            settings.split(' ').partition(|word| word.starts_with("INSULA_"));
        let mut command = insula(&["start"]);
        for given in [["--data-dir", data.to_str().unwrap()], ["--listen", "127.0.0.1:0"]] {
            if !flags.contains(&given[0]) {
                command.args(given);
            }
        }
        command.args(flags);
        command.envs(variables.iter().filter_map(|variable| variable.split_once('=')));
        let before = self.entries();
        let output = run_bounded(&mut command, "", Duration::from_secs(20));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            self.entries(),
            before,
            "{settings}: a refused start makes nothing: {stderr}"
        );
        (output.status.code(), stderr)
    }

    fn entries(&self) -> BTreeSet<std::ffi::OsString> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }
}

/// Settings that are refused, with the exit code and a part of the message.
const REFUSED: &[(&str, i32, &str)] = &[
    ("--no-such-flag", 2, "--no-such-flag"),
    ("--config DIR/none.yaml", 2, "check the path given by --config"),
    ("--config DIR/wrong.yaml", 2, "did you mean `listen`?"),
    ("--data-dir DIR/words", 1, "cannot use the data directory"),
    ("--listen nowhere", 2, "--listen takes ADDRESS:PORT"),
    ("--listen 192.0.2.1:0", 4, "choose another with --listen"),
    ("--external-url http://a.test", 2, "externalUrl"),
    ("--tls-cert-file PKI/server.crt", 2, "tls.keyFile"),
    ("--tls-key-file PKI/server.key", 2, "tls.certFile"),
    ("--tls-ca-file PKI/ca.crt", 2, "tls.caFile"),
    ("--tls-names a_b", 2, "tls.names"),
    ("--tls-client-ca-file DIR/none.crt", 1, "cannot read"),
    ("--tls-client-ca-file DIR/words", 5, "holds no certificate in PEM"),
    (
        "--tls-cert-file DIR/none.crt --tls-key-file PKI/server.key",
        1,
        "cannot read",
    ),
    (
        "--tls-cert-file PKI/server.crt --tls-key-file PKI/ca.key",
        5,
        "is not the key of",
    ),
    (
        "--tls-cert-file PKI/server.crt --tls-key-file PKI/server.key --external-url https://other.test",
        5,
        "does not name other.test",
    ),
    (
        "--tls-cert-file PKI/server.crt --tls-key-file PKI/server.key --tls-ca-file PKI/front-proxy-ca.crt",
        5,
        "did not sign",
    ),
    ("--tls-sni-cert-key PKI/server.crt", 2, "must be CERTIFICATE,KEY"),
    (
        "--tls-sni-cert-key PKI/server.crt,PKI/ca.key:a.test",
        5,
        "is not the key of",
    ),
    (
        "--tls-sni-cert-key PKI/server.crt,PKI/server.key:other.test",
        5,
        "does not name other.test, which `tls.sni` lists",
    ),
    ("--front-proxy-ca-file PKI/ca.crt", 2, "frontProxy.allowedNames"),
    ("--front-proxy-allowed-names proxy", 2, "frontProxy.caFile"),
    (
        "--front-proxy-ca-file DIR/words --front-proxy-allowed-names proxy",
        5,
        "holds no certificate in PEM",
    ),
    ("--kubeconfig DIR/none/kubeconfig", 1, "there is no directory"),
    ("--kubeconfig DIR/folder", 1, "Is a directory"),
    ("--store redis", 2, "expected `embedded`, `memory`"),
    ("--store etcds://127.0.0.1:1", 2, "etcd.ca"),
    (
        "--store etcd://127.0.0.1:1 INSULA_ETCD_USER=a INSULA_ETCD_PASSWORD_FILE=DIR/none",
        1,
        "cannot read",
    ),
    ("--token-file DIR/none.csv", 1, "correct --token-file"),
    (
        "--authentication-config DIR/words",
        2,
        "is not of kind AuthenticationConfiguration",
    ),
    ("--drain-seconds never", 2, "drainSeconds"),
    ("--event-ttl never", 2, "workspaces.eventTtlSeconds"),
    ("--log-format xml", 2, "log.format"),
    ("--log-level loud", 2, "log.level"),
    ("--otlp-endpoint https://a.test:4317", 2, "telemetry.otlpEndpoint"),
    ("--webhook-allow a_b/c", 2, "webhooks.allow"),
    (
        "INSULA_SHARED_KEYS=DIR/folder",
        5,
        "is missing; the directory of sharedKeys must have",
    ),
    ("INSULA_AUDIT_POLICY=DIR/policy.yaml", 2, "rules[0].level"),
    ("INSULA_AUDIT_POLICY=DIR/none.yaml", 1, "cannot read"),
    ("INSULA_AUDIT_FILE=DIR/folder", 1, "audit.file names a file in it"),
    (
        "INSULA_AUDIT_FILE=DIR/words/audit.log",
        1,
        "its path leads through a file",
    ),
    ("INSULA_LIMITS_CONNECTIONS=0", 2, "a limit must be at least 1"),
];

#[test]
fn a_refused_start_makes_nothing() {
    let scene = Scene::new();
    for (settings, code, part) in REFUSED {
        let (got, stderr) = scene.refusal(settings);
        assert_eq!(got, Some(*code), "{settings}: {stderr}");
        assert!(stderr.contains(part), "{settings}: {part:?} is missing in {stderr}");
    }
    // Two files of a mounted Secret that are keys of nothing.
    for name in ["ca.crt", "ca.key", "service-accounts.key"] {
        let from = scene.server.data_dir().join("pki").join(name);
        fs::copy(from, scene.folder.path().join("folder").join(name)).unwrap();
    }
    fs::write(scene.folder.path().join("folder/service-accounts.key"), "words").unwrap();
    let (code, stderr) = scene.refusal("INSULA_SHARED_KEYS=DIR/folder");
    assert_eq!(code, Some(5), "{stderr}");
    assert!(
        stderr.contains("service-accounts.key: is not a private key"),
        "{stderr}"
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, stderr) = scene.refusal(&format!("--listen {}", taken.local_addr().unwrap()));
    assert_eq!(code, Some(4), "{stderr}");
}

/// A new flag comes with a row above.
#[test]
fn every_flag_of_a_start_has_a_value_that_is_refused() {
    let output = run_bounded(&mut insula(&["start", "--help"]), "", Duration::from_secs(20));
    let help = String::from_utf8(output.stdout).unwrap();
    let flags = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let flag = line.strip_prefix("-h, ").or(line.strip_prefix("-V, ")).unwrap_or(line);
        flag.starts_with("--")
            .then(|| flag.split_whitespace().next().unwrap_or_default())
    });
    let flags: BTreeSet<&str> = flags.filter(|flag| !["--help", "--version"].contains(flag)).collect();
    assert!(flags.len() > 20, "{flags:?}");
    for flag in flags {
        let is_refused = |(settings, _, _): &&(&str, i32, &str)| settings.split(' ').any(|word| word == flag);
        assert!(REFUSED.iter().any(|row| is_refused(&row)), "{flag} has no row");
    }
}

/// The configuration that packages install, as it is, and as an operator reads it.
#[test]
fn the_sample_configuration_starts_a_server_with_a_grace_period() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/insula.yaml");
    let server = Server::with_flags(&["--config", sample.to_str().unwrap()]);
    let admin = server.admin();
    let (path, _) = insula_e2e::workspace(&admin, "graced");
    let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    let (parent, name) = path.rsplit_once(':').unwrap();
    let parent = admin.in_workspace(parent);
    parent.delete(&format!("{workspaces}/{name}")).expect(200);
    let found = parent.get(&format!("{workspaces}/{name}")).expect(200);
    assert_eq!(found["metadata"]["deletionGracePeriodSeconds"], 86_400, "{found}");
}
