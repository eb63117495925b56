//! Kubeconfigs for clients in every language: keys on curves in SEC 1's form, and each datum on the
//! line of its field.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use insula_e2e::{Kubectl, Server, Who, insula, run_bounded, shared, until};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const SEC1: &str = "-----BEGIN EC PRIVATE KEY-----\n";
const PKCS8: &str = "-----BEGIN PRIVATE KEY-----\n";
const TIME: Duration = Duration::from_secs(60);

/// Returns the PEM text of base64.
fn pem(encoded: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(encoded.clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

fn base64(text: &str) -> String {
    let encoded = serde_json::to_value(ByteString(text.into())).unwrap();
    encoded.as_str().unwrap().to_owned()
}

/// Returns the client keys of a kubeconfig by their users.
fn keys(kubeconfig: &str) -> BTreeMap<String, String> {
    let document: Value = serde_saphyr::from_str(kubeconfig).unwrap();
    let users = document["users"].as_array().unwrap().iter();
    let keyed = users.filter(|user| !user["user"]["client-key-data"].is_null());
    keyed
        .map(|user| {
            let name = user["name"].as_str().unwrap().to_owned();
            (name, pem(&user["user"]["client-key-data"]))
        })
        .collect()
}

/// Returns openssl with arguments and a PEM text as its input; `None` where it is not installed.
fn openssl(arguments: &[&str], pem: &str) -> Option<String> {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: no openssl");
        return None;
    }
    let output = run_bounded(Command::new("openssl").args(arguments), pem, TIME);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Checks a kubeconfig as readers without a YAML parser and Java's clients read it.
pub(crate) fn assert_readable(kubeconfig: &str) {
    let data = kubeconfig.lines().filter(|line| line.contains("-data:"));
    let values: Vec<&str> = data.map(|line| line.split_once(": ").unwrap_or_default().1).collect();
    assert!(values.len() > 2, "{kubeconfig}");
    for value in values {
        let value = value.trim_matches('"');
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        assert!(
            value.len() > 200 && value.chars().all(is_base64),
            "{value:?} in {kubeconfig}"
        );
    }
    let keys = keys(kubeconfig);
    assert!(!keys.is_empty(), "{kubeconfig}");
    for (user, key) in keys {
        assert!(key.starts_with(SEC1), "{user}: {key}");
        if let Some(text) = openssl(&["ec", "-noout", "-text", "-check"], &key) {
            assert!(text.contains("prime256v1"), "{user}: {text}");
        }
    }
}

#[test]
fn the_administrators_kubeconfig_is_read_by_every_client() {
    let server = shared();
    let text = fs::read_to_string(server.kubeconfig()).unwrap();
    assert_readable(&text);
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let mut command = kubectl.command("root", &["config", "view", "--raw"]);
    let shown = String::from_utf8(run_bounded(&mut command, "", TIME).stdout).unwrap();
    assert_eq!(keys(&shown), keys(&text));
    assert_readable(&shown);
    assert_eq!(kubectl.run("root", &["get", "namespaces"], "").code, 0);
}

/// Runs a command with a kubeconfig, and returns its output.
fn ran(kubeconfig: &Path, arguments: &[&str]) -> String {
    let mut command = insula(arguments);
    let output = run_bounded(command.env("KUBECONFIG", kubeconfig), "", TIME);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn kubeconfigs_of_the_command_line_are_read_by_every_client() {
    let server = shared();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { dir.path().join(name) };
    let admin = file("admin");
    fs::copy(server.kubeconfig(), &admin).unwrap();
    ran(&admin, &["ws", "create-context", "mine", "-W", "root"]);
    assert_readable(&fs::read_to_string(&admin).unwrap());
    assert_readable(&ran(&admin, &["kubeconfig", "-W", "root"]));
    // A user whose key is a file in the other form.
    let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(&admin).unwrap()).unwrap();
    for user in config["users"].as_array_mut().unwrap() {
        let key = server
            .data_dir()
            .join(format!("pki/{}.key", user["name"].as_str().unwrap()));
        assert!(fs::read_to_string(&key).unwrap().starts_with(PKCS8));
        user["user"].as_object_mut().unwrap().remove("client-key-data");
        user["user"]["client-key"] = json!(key);
    }
    fs::write(file("by-file"), config.to_string()).unwrap();
    ran(
        &file("by-file"),
        &["kubeconfig", "-W", "root", "--output", file("copy").to_str().unwrap()],
    );
    assert_readable(&fs::read_to_string(file("copy")).unwrap());
    ran(&file("copy"), &["status"]);
}

/// A kubeconfig of an earlier build, known by its key only, is replaced by one in today's form.
#[test]
fn the_kubeconfig_of_an_earlier_build_is_replaced() {
    let server = Server::start();
    let path = server.kubeconfig();
    let written = fs::read_to_string(&path).unwrap();
    let (from, _) = written.split_once("extensions:").unwrap();
    let mut earlier = from.split_once('\n').unwrap().1.to_owned();
    let server = server.restart_after(|data| {
        for (user, key) in keys(&written) {
            let on_disk = fs::read_to_string(data.join(format!("pki/{user}.key"))).unwrap();
            assert!(on_disk.starts_with(PKCS8), "{on_disk}");
            earlier = earlier.replace(&base64(&key), &base64(&on_disk));
        }
        // Another CA, so that the key alone tells whose file it is.
        let ca = base64(&fs::read_to_string(data.join("pki/ca.crt")).unwrap());
        earlier = earlier.replace(&ca, &base64("another"));
        fs::write(&path, &earlier).unwrap();
    });
    let replaced = fs::read_to_string(server.kubeconfig()).unwrap();
    assert_eq!(keys(&replaced), keys(&written));
    assert_readable(&replaced);
}

/// Keys on disk may be in either form: the server keeps its CA, its certificates and the tokens of
/// service accounts.
#[test]
fn keys_on_disk_are_read_in_both_forms() {
    let server = Server::start();
    let read = |server: &Server, name: &str| fs::read_to_string(server.data_dir().join("pki").join(name)).unwrap();
    let before = ["ca.crt", "server.crt", "kcp-admin.crt"].map(|name| read(&server, name));
    let token = |server: &Server| -> String {
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}});
        let client = server.admin().in_workspace("root");
        // A controller makes the account after the start.
        let answer = until("the account has a token", || {
            let answer = client.post(path, &request);
            (answer.code != 404).then_some(answer)
        });
        answer.expect(201)["status"]["token"].as_str().unwrap().to_owned()
    };
    let old = token(&server);
    let mut converted = 0;
    let server = server.restart_after(|data| {
        for entry in fs::read_dir(data.join("pki")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "key")
                && let Some(sec1) = openssl(&["ec"], &fs::read_to_string(&path).unwrap())
            {
                assert!(sec1.starts_with(SEC1), "{sec1}");
                fs::write(&path, sec1).unwrap();
                converted += 1;
            }
        }
    });
    if converted == 0 {
        return;
    }
    assert_eq!(
        ["ca.crt", "server.crt", "kcp-admin.crt"].map(|name| read(&server, name)),
        before
    );
    for token in [old, token(&server)] {
        let client = server.client(Who::Token(token)).in_workspace("root");
        assert_eq!(client.get("/api/v1/namespaces/default/configmaps").code, 403);
    }
    assert_readable(&fs::read_to_string(server.kubeconfig()).unwrap());
}
