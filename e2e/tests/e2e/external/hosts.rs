//! Workspaces at hosts of their own.

use std::{fs, process::Command};

use insula_e2e::{PATIENCE, Server, Setup, ready_workspace, run_bounded};
use serde_json::{Value, json};

use super::authority::{Authority, Peer};

const NAMESPACES: &str = "/api/v1/namespaces";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> Server {
    Server::with(Setup {
        flags: ["--store", "memory"].map(str::to_owned).into(),
        environment: vec![("INSULA_HOST_PATTERN".to_owned(), "{cluster}.api.insula.test".to_owned())],
        ..Setup::default()
    })
}

/// Returns the name of a workspace's cluster, and leaves a map of the workspace's name in it.
fn workspace(server: &Server, name: &str) -> String {
    let admin = server.admin();
    let (path, cluster) = ready_workspace(&admin, "root", name, json!({}));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    admin.in_workspace(&path).post(MAPS, &map).expect(201);
    cluster
}

/// The host decides which workspace is meant, and the certificate of the server names it. Rights
/// are those of the user in that workspace.
#[test]
fn a_host_is_a_workspace_and_gives_no_right() {
    let server = server();
    let (own, other) = (workspace(&server, "one"), workspace(&server, "two"));
    let ca = Authority::read(&server.data_dir().join("pki/ca.crt"));
    let name = |cluster: &str| format!("{cluster}.api.insula.test");
    let peer = |cluster: &str| Peer::new(server.url(), &name(cluster), &ca);
    let admin = |cluster: &str| peer(cluster).with_files(&server.data_dir().join("pki/kcp-admin"));
    let maps = |body: &str| -> Vec<String> {
        let list: Value = serde_json::from_str(body).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "kube-root-ca.crt").collect()
    };

    for (cluster, want) in [(&own, "one"), (&other, "two")] {
        let host = name(cluster);
        let found = admin(cluster).get(MAPS, &[("host", &host)]);
        assert_eq!(
            (found.code, maps(&found.body)),
            (200, vec![want.to_owned()]),
            "{}",
            found.body
        );
        let groups = admin(cluster).get("/apis", &[("host", &host)]);
        assert!(
            groups.code == 200 && groups.body.contains("apis.kcp.io"),
            "{}",
            groups.body
        );
        let below = admin(cluster).get(&format!("/clusters/{cluster}{MAPS}"), &[("host", &host)]);
        assert_eq!(maps(&below.body), [want]);
    }
    // The host of the request wins over the name of the handshake.
    let host = name(&other);
    let found = admin(&own).get(MAPS, &[("host", &host)]);
    assert_eq!(maps(&found.body), ["two"]);

    // The host of one workspace leads to no other one, and to no virtual workspace.
    let host = name(&own);
    for path in [
        format!("/clusters/{other}{MAPS}"),
        format!("/clusters/root:two{MAPS}"),
        "/clusters/*/api/v1/configmaps".to_owned(),
        "/services/apiexport/root/tenancy.kcp.io/clusters/*/apis".to_owned(),
    ] {
        let refused = admin(&own).get(&path, &[("host", &host)]);
        assert!(
            refused.code == 400 && refused.body.contains("leads elsewhere"),
            "{path} {}",
            refused.body
        );
    }

    // Nobody gains a right: anonymous, a user without one, and a workspace that does not exist.
    let bearer = [("authorization", "Bearer bob-token"), ("host", &*host)];
    for (cluster, headers, code) in [(&own, &[("host", &*host)][..], 403), (&own, &bearer[..], 403)] {
        assert_eq!(peer(cluster).get(MAPS, headers).code, code, "{headers:?}");
    }
    let nowhere = name("nowhere");
    assert_eq!(peer("nowhere").get(MAPS, &[bearer[0], ("host", &nowhere)]).code, 403);
    // Another host is the server's own, without a workspace.
    let plain = [("host", "api.insula.test")];
    let refused = Peer::new(server.url(), "localhost", &ca).get(MAPS, &plain);
    assert_eq!(refused.code, 403, "{}", refused.body);
}

/// kubectl works with a server's URL without a path, by the name that it asks a certificate for,
/// and curl with the host itself.
#[test]
fn clients_need_no_path() {
    let server = server();
    let cluster = workspace(&server, "one");
    let (host, ca) = (
        format!("{cluster}.api.insula.test"),
        server.data_dir().join("pki/ca.crt"),
    );
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {
            "server": server.url(), "tls-server-name": host, "certificate-authority": ca,
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate": server.data_dir().join("pki/kcp-admin.crt"),
            "client-key": server.data_dir().join("pki/kcp-admin.key"),
        }}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "admin"}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let run = |program: &str, arguments: &[&str], stdin: &str| -> Option<String> {
        let mut command = Command::new(program);
        command.arg("--help").env("KUBECONFIG", &kubeconfig);
        if command.output().is_err() {
            eprintln!("skipped: no {program}");
            return None;
        }
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", &kubeconfig)
            .env("HOME", folder.path())
            .args(arguments);
        let output = run_bounded(&mut command, stdin, PATIENCE);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {text}");
        Some(text)
    };
    if let Some(text) = run("kubectl", &["get", "configmaps", "-o", "name"], "") {
        assert!(text.contains("configmap/one"), "{text}");
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}).to_string();
        run("kubectl", &["apply", "--server-side", "-f", "-"], &manifest);
        let explained = run("kubectl", &["explain", "configmap.data"], "").unwrap();
        assert!(explained.contains("map[string]string"), "{explained}");
    }
    let (_, port) = server.address().rsplit_once(':').unwrap();
    let (url, resolve) = (
        format!("https://{host}:{port}{NAMESPACES}"),
        format!("{host}:{port}:127.0.0.1"),
    );
    let (ca, token) = (ca.to_str().unwrap(), "Authorization: Bearer dave-token");
    let arguments = [
        "-sS",
        "--fail",
        "--cacert",
        ca,
        "--resolve",
        &resolve,
        "-H",
        token,
        &url,
    ];
    if let Some(text) = run("curl", &arguments, "") {
        assert!(text.contains("\"NamespaceList\""), "{text}");
    }
}

/// A pattern that no certificate could name, and a certificate that does not name the hosts, end
/// the start with the reason.
#[test]
fn a_pattern_that_cannot_be_served_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = ["start", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let mut command = insula_e2e::insula(&arguments);
    let ended = command
        .env("INSULA_HOST_PATTERN", "ws-{cluster}.insula.test")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{told}");
    assert!(
        told.contains("hostPattern") && told.contains("{cluster}.NAME"),
        "{told}"
    );

    let files = super::Files::new();
    files.write(&files.ca.server("127.0.0.1"));
    let mut command = insula_e2e::insula(&arguments);
    command
        .args(files.flags())
        .env("INSULA_HOST_PATTERN", "{cluster}.insula.test");
    let ended = command.output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_ne!(ended.status.code(), Some(0), "{told}");
    assert!(told.contains("does not name *.insula.test"), "{told}");
}
