//! Connections that break, and credentials that a server refuses.

use std::fs;

use insula_e2e::{Hostile, Server, Then, base64, shared};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use serde_json::{Value, json};

use super::Shell;

/// Runs of a command against a server that hangs up. Which write or read of the client meets the
/// closed connection is a matter of chance.
const RUNS: usize = 60;

/// A connection that the server closes is an error, and not a reader of the output that is gone:
/// writes to both fail with EPIPE.
#[test]
fn a_dropped_connection_is_an_error() {
    let server = Hostile::start("127.0.0.1", |_| (Vec::new(), Then::Drop));
    let shell = Shell::with("{}");
    for _ in 0..RUNS {
        let error = shell.fails(&[
            "access",
            "grant",
            "bob",
            "-s",
            &format!("{}/clusters/root:a", server.url()),
            "--insecure-skip-tls-verify",
            "--token",
            "t",
        ]);
        assert!(error.starts_with("error: "), "{error}");
    }
    assert!(server.requests() > 0, "no request reached the server");
}

/// A certificate authority that signs clients.
struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    /// Returns the authority of a server.
    fn for_server(server: &Server) -> Self {
        let read = |name: &str| fs::read_to_string(server.data_dir().join("pki").join(name)).unwrap();
        let key = KeyPair::from_pem(&read("ca.key")).unwrap();
        Self(Issuer::from_ca_cert_pem(&read("ca.crt"), key).unwrap())
    }

    fn unknown() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "somebody");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(Issuer::new(params, KeyPair::generate().unwrap()))
    }

    /// Returns the credentials of a kubeconfig's user, with a certificate that ends at the begin of
    /// a year.
    fn credentials(&self, year: i32) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ada");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        json!({
            "client-certificate-data": base64(certificate.pem().as_bytes()),
            "client-key-data": base64(key.serialize_pem().as_bytes()),
        })
    }
}

/// Returns a shell whose user `me` has credentials at root of a server.
fn shell(server: &Server, credentials: &Value) -> Shell {
    let ca = fs::read(server.data_dir().join("pki/ca.crt")).unwrap();
    let cluster = json!({"server": format!("{}/clusters/root", server.url()),
        "certificate-authority-data": base64(&ca)});
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "mine",
        "clusters": [{"name": "far", "cluster": cluster}],
        "contexts": [{"name": "mine", "context": {"cluster": "far", "user": "me"}}],
        "users": [{"name": "me", "user": credentials}]});
    Shell::with(&config.to_string())
}

/// The error names the user, the file and the fix, whether the server's alert arrives or the end of
/// the connection. Which of them does is a matter of chance.
#[test]
fn refused_client_certificates_are_named() {
    let server = shared();
    let user = |shell: &Shell| format!("user \"me\" in {}", shell.kubeconfig().display());
    for (authority, year, fault) in [
        (
            Authority::for_server(&server),
            2001,
            "ended on 2001-01-01T00:00:00Z: get a new one",
        ),
        (Authority::unknown(), 2101, "is of a CA that the server does not know"),
    ] {
        let shell = shell(&server, &authority.credentials(year));
        let expected = format!("the client certificate of {} {fault}", user(&shell));
        for _ in 0..10 {
            for command in [&["access", "list"][..], &["ws", "tree"], &["status"]] {
                let error = shell.fails(command);
                assert!(error.contains(&expected), "{expected}: {error}");
            }
        }
    }
    let mut credentials = Authority::for_server(&server).credentials(2101);
    credentials["client-key-data"] = Authority::unknown().credentials(2101)["client-key-data"].clone();
    let shell = shell(&server, &credentials);
    let error = shell.fails(&["access", "list"]);
    let expected = format!("the client key of {} does not fit", user(&shell));
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn the_doctor_checks_the_credentials_of_a_running_server() {
    let server = shared();
    let shell = shell(&server, &Authority::for_server(&server).credentials(2001));
    let ran = shell.run(&["doctor", "-o", "json", "-W", ":root"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let findings: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let of = |check: &str| findings.iter().find(|finding| finding["check"] == check).unwrap();
    let credentials = of("credentials");
    assert_eq!(credentials["verdict"], "problem");
    assert!(credentials["detail"].as_str().unwrap().contains(" ended on 2001-01-01"));
    assert!(credentials["fix"].as_str().unwrap().starts_with("get a new one"));
    let fix = of("server")["fix"].as_str().unwrap();
    assert!(
        fix.starts_with("something listens there") && !fix.contains("insula start"),
        "{fix}"
    );
}

/// Parts that the program cannot use are said, and not left out.
#[test]
fn unsupported_parts_of_kubeconfigs_are_said() {
    let server = shared();
    let basic = shell(&server, &json!({"username": "me", "password": "secret"}));
    let error = basic.fails(&["status"]);
    assert!(
        error.contains("user \"me\" in ") && error.contains("has username, which is not supported"),
        "{error}"
    );
    let config = fs::read_to_string(Shell::admin(&server).kubeconfig()).unwrap();
    let proxied = config.replace(
        "  cluster:\n    server:",
        "  cluster:\n    proxy-url: http://127.0.0.1:1\n    server:",
    );
    assert_ne!(proxied, config);
    let ran = Shell::with(&proxied).run(&["status"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.error
            .contains("warning: proxy-url of the kubeconfig is not supported"),
        "{ran:?}"
    );
}
