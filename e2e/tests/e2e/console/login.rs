//! Sign-in to the console by a provider of OpenID Connect.

use std::os::unix::fs::PermissionsExt;

use insula_e2e::{Server, Setup, check_login, insula, shared, shots, unused_port};
use serde_json::{Value, json};

use crate::issuers::mappings;

const CLIENT: &str = "insula-console";
const SECRET: &str = "correct horse battery staple";

/// Files of the settings: the issuers, and the secret of the console.
fn files(issuer: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [issuer],
    });
    std::fs::write(folder.path().join("issuers.json"), config.to_string()).unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    folder
}

#[test]
fn a_viewer_signs_in_at_a_provider() {
    let other = shared();
    let pki = other.data_dir().join("pki");
    let issuer = format!("https://127.0.0.1:{}", unused_port());
    let authority = std::fs::read_to_string(pki.join("ca.crt")).unwrap();
    let folder = files(&json!({
        "issuer": {"url": issuer, "audiences": [CLIENT], "certificateAuthority": authority},
        "claimMappings": {"username": mappings("corp:")["username"]},
    }));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let variable = |name: &str, value: &str| (format!("INSULA_{name}"), value.to_owned());
    let server = Server::with(Setup {
        environment: vec![
            variable("STORE", "memory"),
            variable("AUTHENTICATION_CONFIG", &path("issuers.json")),
            variable("CONSOLE_LOGIN_ISSUER", &issuer),
            variable("CONSOLE_LOGIN_CLIENT_ID", CLIENT),
            variable("CONSOLE_LOGIN_CLIENT_SECRET_FILE", &path("secret")),
        ],
        ..Setup::default()
    });
    match check_login(&server, &shots(), (&issuer, &pki), (CLIENT, SECRET)) {
        Ok(output) => eprintln!("{output}"),
        Err(missing) => return eprintln!("\n*** skipped: sign-in at a provider: {missing}\n"),
    }
    // The sign-in itself is in the audit log, and nothing by which somebody could repeat it.
    let audit = std::fs::read_to_string(server.data_dir().join("audit/audit.log")).unwrap();
    assert!(
        audit.contains("corp:ada") && audit.contains("/console/session/code"),
        "{audit}"
    );
    for secret in ["code=", "state=", "eyJ", SECRET] {
        assert!(!audit.contains(secret) && !server.log().contains(secret), "{secret}");
    }
}

#[test]
fn a_provider_that_nobody_trusts_fails_the_start() {
    let folder = files(&json!({
        "issuer": {"url": "https://login.example.com", "audiences": ["insula"]},
        "claimMappings": mappings(""),
    }));
    let (good, id) = ("https://login.example.com", Some("insula"));
    for (issuer, client, mode, code, want) in [
        (
            "https://other.example.com",
            id,
            0o600,
            2,
            "has no issuer https://other.example.com",
        ),
        (good, Some("console"), 0o600, 2, "console is none of the audiences"),
        (
            good,
            None,
            0o600,
            2,
            "`consoleLogin.issuer` and `consoleLogin.clientId` go together",
        ),
        (good, id, 0o644, 5, "is readable by others"),
    ] {
        let secret = folder.path().join("secret");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let data = tempfile::tempdir().unwrap();
        let mut command = insula(&["start", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(data.path()).env("INSULA_CONSOLE_LOGIN_ISSUER", issuer);
        command.env("INSULA_AUTHENTICATION_CONFIG", folder.path().join("issuers.json"));
        command.env("INSULA_CONSOLE_LOGIN_CLIENT_SECRET_FILE", &secret);
        command.envs(client.map(|client| ("INSULA_CONSOLE_LOGIN_CLIENT_ID", client)));
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(want), "{want}: {stderr}");
        assert_eq!(output.status.code(), Some(code), "{stderr}");
    }
}
