//! Credentials of servers at etcd: TLS, client certificates, passwords.

use std::{path::Path, time::Instant};

use insula_e2e::{Etcd, PATIENCE, Server, Setup, etcd_programs, insula, run_bounded, until, workspace};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::{MAPS, code, config_map};

/// Writes a CA, with certificates for etcd and for its clients, to files.
fn certificates(dir: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(dir.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    let ca = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    std::fs::write(dir.join("leaf.crt"), params.signed_by(&key, &ca).unwrap().pem()).unwrap();
    secret(&dir.join("leaf.key"), &key.serialize_pem(), 0o600);
}

fn secret(path: &Path, text: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Asserts that the doctor has the same credentials as the server, and says so when they are wrong.
fn check_doctor(files: &Path, store: &str, environment: &[(String, String)]) {
    let doctor = || {
        let mut command = insula(&["doctor", "-o", "json", "--data-dir", files.to_str().unwrap()]);
        command.envs(environment.iter().cloned()).env("INSULA_STORE", store);
        let output = run_bounded(&mut command, "", PATIENCE);
        let found: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        let found = found.into_iter().find(|finding| finding["check"] == "etcd");
        found.unwrap().to_string()
    };
    let well = doctor();
    assert!(
        !well.contains(r#""verdict":"problem""#) && well.contains(" s apart"),
        "{well}"
    );
    secret(&files.join("password"), "another\n", 0o600);
    let wrong = doctor();
    assert!(
        wrong.contains("authentication failed") && wrong.contains("etcd.passwordFile"),
        "{wrong}"
    );
    secret(&files.join("password"), "the-password\n", 0o600);
}

/// The server connects to an etcd that requires TLS, a client certificate and a password. It
/// reloads replaced files, and refuses files that other users can read.
#[test]
fn tls_certificates_and_passwords_reach_etcd() {
    for program in etcd_programs() {
        let mut etcd = Etcd::cluster(&program, 1);
        etcd.require_user("insula", "the-password", "/insula/");
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str| files.path().join(name);
        certificates(files.path());
        secret(&file("password"), "the-password\n", 0o600);
        etcd.secure(&file("ca.crt"), &file("leaf.crt"), &file("leaf.key"));
        etcd.restart_all_after(|_| ());
        let settings = [
            ("INSULA_ETCD_CA", file("ca.crt")),
            ("INSULA_ETCD_CERTIFICATE", file("leaf.crt")),
            ("INSULA_ETCD_KEY", file("leaf.key")),
            ("INSULA_ETCD_USER", "insula".into()),
            ("INSULA_ETCD_PASSWORD_FILE", file("password")),
        ];
        let environment = settings.map(|(name, value)| (name.to_owned(), value.to_str().unwrap().to_owned()));
        let store = etcd.store();
        let server = Server::with(Setup {
            flags: vec!["--store".into(), store.clone()],
            environment: environment.to_vec(),
            ..Setup::default()
        });
        check_doctor(files.path(), &store, &environment);
        let (path, _) = workspace(&server.admin(), "secure");
        let client = server.admin().in_workspace(&path);
        client.post(MAPS, &config_map("before", 0)).expect(201);

        // Another CA, with files at the same paths.
        certificates(files.path());
        etcd.restart_all_after(|_| ());
        let begun = Instant::now();
        until("the new files are taken up", || {
            let name = format!("after-{}", begun.elapsed().as_nanos());
            (code(&client, "POST", MAPS, Some(&config_map(&name, 0))) == 201).then_some(())
        });
        assert!(!server.log().contains("the-password"), "{}", server.log());

        secret(&file("password"), "the-password\n", 0o644);
        let data = file("refused");
        let arguments = [
            "start",
            "--data-dir",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--store",
            &store,
        ];
        let refused = insula_e2e::insula(&arguments).envs(environment).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(5), "{text}");
        assert!(text.contains("chmod 600") && !text.contains("the-password"), "{text}");
    }
}
