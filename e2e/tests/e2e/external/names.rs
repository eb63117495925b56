//! Certificates for several names, and a new CA, on a running server.

use std::{fs, os::unix::fs::PermissionsExt};

use insula_e2e::{Server, until};
use serde_json::{Value, json};

use super::{
    Files, NAME,
    authority::{Authority, Pair, Peer},
    named,
};

/// Writes a pair into a folder: `b.crt` and `b.key`.
fn write(files: &Files, name: &str, pair: &Pair) {
    fs::write(files.path(&format!("{name}.crt")), &pair.certificate).unwrap();
    pair.write_key(&files.path(&format!("{name}.key")));
}

/// Returns the CA in the administrator's kubeconfig, in base64.
fn embedded(server: &Server) -> Value {
    let text = fs::read_to_string(server.kubeconfig()).unwrap();
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["certificate-authority-data"].clone()
}

#[test]
fn clients_get_the_certificate_for_the_name_that_they_ask_for() {
    let files = Files::new();
    let second = Authority::new();
    write(&files, "b", &files.ca.server("b.insula.test"));
    write(&files, "wide", &second.server("*.insula.test"));
    let pair = |name: &str, names: &str| {
        format!(
            "{},{}{names}",
            files.text(&format!("{name}.crt")),
            files.text(&format!("{name}.key"))
        )
    };
    let server = Server::with_flags(&[
        "--store",
        "memory",
        "--tls-sni-cert-key",
        &pair("b", ""),
        "--tls-sni-cert-key",
        &pair("wide", ":*.insula.test"),
    ]);
    let own = Authority::read(&server.data_dir().join("pki/ca.crt"));
    let peer = |name: &str, ca: &Authority| Peer::new(server.url(), name, ca);
    // The server's own certificate stays for all other names, and for those who ask for none.
    for (name, ca) in [
        ("b.insula.test", &files.ca),
        ("any.insula.test", &second),
        ("localhost", &own),
        ("127.0.0.1", &own),
    ] {
        assert_eq!(peer(name, ca).get("/readyz", &[]).code, 200, "{name}");
    }
    assert!(peer("b.insula.test", &second).try_get("/readyz", &[]).is_err());
    assert!(peer("a.b.insula.test", &second).try_get("/readyz", &[]).is_err());

    // A change of one pair is a reload; one that cannot be used changes none of them.
    let at_b = peer("b.insula.test", &files.ca).with_files(&server.data_dir().join("pki/kcp-admin"));
    let first = at_b.shown();
    write(&files, "b", &files.ca.server("b.insula.test"));
    until("clients of the name get its new certificate", || {
        (at_b.shown() != first).then_some(())
    });
    let used = at_b.shown();
    write(&files, "wide", &second.server("insula.test"));
    until("the wrong certificate is refused", || {
        let report = at_b.get("/readyz?verbose", &[]).body;
        report
            .contains("does not name *.insula.test, which `tls.sni` lists")
            .then_some(())
    });
    assert_eq!(at_b.shown(), used);
    assert_eq!(peer("any.insula.test", &second).get("/readyz", &[]).code, 200);
}

#[test]
fn a_new_ca_reaches_the_kubeconfig_and_new_namespaces_of_a_running_server() {
    let files = Files::new();
    files.write(&files.ca.server(NAME));
    let port = insula_e2e::unused_port();
    let server = named(&files, port);
    let base64 = |ca: &Authority| json!(insula_e2e::base64(ca.pem().as_bytes()));
    assert_eq!(embedded(&server), base64(&files.ca));

    let next = Authority::new();
    files.write(&next.server(NAME));
    fs::write(files.path("ca.crt"), next.pem()).unwrap();
    until("the kubeconfig has the new CA", || {
        (embedded(&server) == base64(&next)).then_some(())
    });
    let mode = fs::metadata(server.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let local = format!("https://127.0.0.1:{port}");
    let peer = Peer::new(&local, NAME, &next).with_files(&server.data_dir().join("pki/kcp-admin"));
    let namespaces = "/clusters/root/api/v1/namespaces";
    let namespace = json!({"metadata": {"name": "later"}}).to_string();
    let json = ("content-type", "application/json");
    assert_eq!(peer.post(namespaces, &[json], &namespace).code, 201);
    let trusted = until("the namespace has its CA", || {
        let map = peer.get(&format!("{namespaces}/later/configmaps/kube-root-ca.crt"), &[]);
        (map.code == 200).then_some(map.body)
    });
    let trusted: Value = serde_json::from_str(&trusted).unwrap();
    assert_eq!(trusted["data"]["ca.crt"], json!(next.pem()));
}

#[test]
fn a_kubeconfig_that_kubectl_wrote_is_replaced_and_one_with_other_users_is_not() {
    let server = Server::with_flags(&["--store", "memory"]);
    let path = server.kubeconfig();
    let kubectl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("kubectl");
        command.env("KUBECONFIG", &path).args(arguments);
        insula_e2e::run_bounded(&mut command, "", insula_e2e::PATIENCE)
    };
    if std::process::Command::new("kubectl").arg("--help").output().is_err() {
        return eprintln!("skipped: no kubectl");
    }
    assert!(kubectl(&["config", "use-context", "base"]).status.success());
    let written = fs::read_to_string(&path).unwrap();
    assert!(!written.contains("# Written"), "kubectl keeps comments");
    // The next server has another port, and tells it.
    let server = server.stopped().start().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains(server.url()) && text.contains("current-context: root"),
        "{text}"
    );

    assert!(
        kubectl(&["config", "set-credentials", "mine", "--token=t"])
            .status
            .success()
    );
    let merged = fs::read_to_string(&path).unwrap();
    let stopped = server.stopped();
    let end = stopped.start().err().unwrap_or_default();
    assert!(end.contains("was not written by insula"), "{end}");
    assert_eq!(fs::read_to_string(&path).unwrap(), merged);
}
