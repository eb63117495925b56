//! Kubeconfig of the administrator: kcp's contexts `base`, `root`, `shard-base` and `system:admin`,
//! with credentials by absolute path.

use std::path::{Path, PathBuf};

use crate::{
    StartError,
    files::{read, write_private},
    identity::{Identity, KCP_ADMIN, Pair, SHARD_ADMIN},
};

/// First line of a file that the server may replace. A kubeconfig without it is never replaced.
const MARK: &str = "# Written by insula at every start; changes are lost.";

/// Refuses a path with a kubeconfig that the server did not write. Called before anything is
/// opened.
pub(crate) fn check(path: &Path) -> Result<(), StartError> {
    match read(path)? {
        Some(text) if !text.trim().is_empty() && !text.starts_with(MARK) => {
            Err(StartError::ForeignKubeconfig { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Writes the file with mode 0600. `url` is the URL of the server without a path.
pub(crate) fn write(path: &Path, url: &str, identity: &Identity) -> Result<(), StartError> {
    check(path)?;
    write_private(path, render(url, identity).as_bytes()).map_err(|cause| StartError::write(path, cause))
}

/// Returns the default path.
pub(crate) fn default_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.kubeconfig")
}

fn render(url: &str, identity: &Identity) -> String {
    let contexts = [
        ("base", url.to_owned(), KCP_ADMIN.0),
        ("root", format!("{url}/clusters/root"), KCP_ADMIN.0),
        ("shard-base", url.to_owned(), SHARD_ADMIN.0),
        ("system:admin", format!("{url}/clusters/system:admin"), SHARD_ADMIN.0),
    ];
    let ca = quoted(&identity.ca.to_string_lossy());
    let mut text =
        format!("{MARK}\napiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: root\nclusters:\n");
    for (name, server, _) in &contexts {
        let (name, server) = (quoted(name), quoted(server));
        text += &format!("- name: {name}\n  cluster:\n    server: {server}\n    certificate-authority: {ca}\n");
    }
    text += "contexts:\n";
    for (name, _, user) in &contexts {
        let (name, user) = (quoted(name), quoted(user));
        text += &format!("- name: {name}\n  context:\n    cluster: {name}\n    user: {user}\n");
    }
    text += "users:\n";
    for (name, Pair { certificate, key }) in [
        (KCP_ADMIN.0, &identity.kcp_admin),
        (SHARD_ADMIN.0, &identity.shard_admin),
    ] {
        let (name, certificate) = (quoted(name), quoted(&certificate.to_string_lossy()));
        let key = quoted(&key.to_string_lossy());
        text += &format!("- name: {name}\n  user:\n    client-certificate: {certificate}\n    client-key: {key}\n");
    }
    text
}

/// Quotes a text as a JSON string, which is a YAML string for any content.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use serde_json::{Value, json};

    use super::*;

    fn identity() -> Identity {
        let pair = |name: &str| Pair {
            certificate: format!("/data \"x\"/pki/{name}.crt").into(),
            key: format!("/data \"x\"/pki/{name}.key").into(),
        };
        Identity {
            ca: "/data \"x\"/pki/ca.crt".into(),
            server: pair("server"),
            kcp_admin: pair("kcp-admin"),
            shard_admin: pair("shard-admin"),
            front: pair("front"),
        }
    }

    #[test]
    fn it_has_kcps_contexts() {
        let got: Value = serde_saphyr::from_str(&render("https://127.0.0.1:6443", &identity())).unwrap();
        let cluster = |name: &str, path: &str| {
            let server = format!("https://127.0.0.1:6443{path}");
            json!({"name": name, "cluster": {"server": server, "certificate-authority": "/data \"x\"/pki/ca.crt"}})
        };
        let context = |name: &str, user: &str| json!({"name": name, "context": {"cluster": name, "user": user}});
        let user = |name: &str| {
            let file = |end: &str| format!("/data \"x\"/pki/{name}.{end}");
            json!({"name": name, "user": {"client-certificate": file("crt"), "client-key": file("key")}})
        };
        let want = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "root",
            "clusters": [
                cluster("base", ""), cluster("root", "/clusters/root"), cluster("shard-base", ""),
                cluster("system:admin", "/clusters/system:admin"),
            ],
            "contexts": [
                context("base", "kcp-admin"), context("root", "kcp-admin"), context("shard-base", "shard-admin"),
                context("system:admin", "shard-admin"),
            ],
            "users": [user("kcp-admin"), user("shard-admin")],
        });
        assert_eq!(got, want);
    }

    #[test]
    fn somebodys_own_kubeconfig_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        write(&path, "https://a", &identity()).unwrap();
        write(&path, "https://b", &identity()).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("https://b/clusters/root"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
        let error = write(&path, "https://c", &identity()).unwrap_err();
        assert!(
            matches!(&error, StartError::ForeignKubeconfig { path: named } if *named == path),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\nkind: Config\n");
    }
}
