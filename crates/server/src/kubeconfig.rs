//! Kubeconfig of the administrator: kcp's contexts `base`, `root`, `shard-base` and `system:admin`,
//! with certificates and keys inside, so that it can be copied to another machine.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    StartError,
    files::{read, read_secret, write_private},
    identity::{Identity, KCP_ADMIN, Pair, SHARD_ADMIN},
};

/// First line of a file that the server may replace.
const MARK: &str = "# Written by insula at every start; changes are lost.";
/// Extension of a file that the server may replace: kubectl and kcp's plugins drop comments when
/// they write the file, and keep extensions.
const EXTENSION: &str = "insula.io/written-at-start";

/// Refuses a path with a kubeconfig that the server did not write. Called before anything is
/// opened. `key` is the file of the administrator's key, if there is one yet.
pub(crate) fn check(path: &Path, key: &Path) -> Result<(), StartError> {
    match read(path)? {
        Some(text) if !is_own(&text, || read_secret(key).ok().flatten()) => {
            Err(StartError::ForeignKubeconfig { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Returns true for an empty file, for one that the server wrote, and for one that a client rewrote
/// since: it has the extension or the administrator's key, and users of the server only. A file
/// into which somebody merged a user of another server is theirs.
fn is_own(text: &str, key: impl FnOnce() -> Option<String>) -> bool {
    if text.trim().is_empty() || text.starts_with(MARK) {
        return true;
    }
    let document: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let list = |name: &str| document[name].as_array().into_iter().flatten();
    let is_ours = |user: &Value| user["name"] == KCP_ADMIN.0 || user["name"] == SHARD_ADMIN.0;
    if !list("users").all(is_ours) {
        return false;
    }
    let has_key = |user: &Value, key: &str| user["user"]["client-key-data"] == STANDARD.encode(key);
    list("extensions").any(|extension| extension["name"] == EXTENSION)
        || key().is_some_and(|key| list("users").any(|user| has_key(user, &key)))
}

/// Content of the file.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// URL of the server without a path.
    pub(crate) url: String,
    /// PEM text of the CA that clients trust; `None` leaves it to their machines.
    pub(crate) trust: Option<String>,
}

/// Writes the file with mode 0600, unless it is there with the same content.
pub(crate) fn write(path: &Path, content: &Content, identity: &Identity) -> Result<(), StartError> {
    check(path, &identity.kcp_admin.key)?;
    let users = [
        User::read(KCP_ADMIN.0, &identity.kcp_admin)?,
        User::read(SHARD_ADMIN.0, &identity.shard_admin)?,
    ];
    let text = render(content, &users);
    match read(path)? {
        Some(known) if known == text => Ok(()),
        _ => write_private(path, text.as_bytes()).map_err(|cause| StartError::write(path, cause)),
    }
}

/// Returns the default path.
pub(crate) fn default_path(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.kubeconfig")
}

/// A user with a certificate and its key, PEM.
struct User {
    name: &'static str,
    certificate: String,
    key: String,
}

impl User {
    fn read(name: &'static str, Pair { certificate, key }: &Pair) -> Result<Self, StartError> {
        Ok(User {
            name,
            certificate: read(certificate)?.unwrap_or_default(),
            key: read_secret(key)?.unwrap_or_default(),
        })
    }
}

fn render(Content { url, trust }: &Content, users: &[User]) -> String {
    let contexts = [
        ("base", url.to_owned(), KCP_ADMIN.0),
        ("root", format!("{url}/clusters/root"), KCP_ADMIN.0),
        ("shard-base", url.to_owned(), SHARD_ADMIN.0),
        ("system:admin", format!("{url}/clusters/system:admin"), SHARD_ADMIN.0),
    ];
    let mut text =
        format!("{MARK}\napiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: root\nclusters:\n");
    for (name, server, _) in &contexts {
        let (name, server) = (quoted(name), quoted(server));
        text += &format!("- name: {name}\n  cluster:\n    server: {server}\n");
        if let Some(trust) = trust {
            text += &format!("    certificate-authority-data: {}\n", STANDARD.encode(trust));
        }
    }
    text += "contexts:\n";
    for (name, _, user) in &contexts {
        let (name, user) = (quoted(name), quoted(user));
        text += &format!("- name: {name}\n  context:\n    cluster: {name}\n    user: {user}\n");
    }
    text += "users:\n";
    for User { name, certificate, key } in users {
        let (certificate, key) = (STANDARD.encode(certificate), STANDARD.encode(key));
        text += &format!(
            "- name: {}\n  user:\n    client-certificate-data: {certificate}\n",
            quoted(name)
        );
        text += &format!("    client-key-data: {key}\n");
    }
    text + &format!("extensions:\n- name: {EXTENSION}\n  extension:\n    by: insula\n")
}

/// Quotes a text as a JSON string, which is a YAML string for any content.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use serde_json::json;

    use super::*;

    fn content(url: &str) -> Content {
        Content {
            url: url.to_owned(),
            trust: Some("the CA".to_owned()),
        }
    }

    fn users() -> [User; 2] {
        [KCP_ADMIN.0, SHARD_ADMIN.0].map(|name| User {
            name,
            certificate: format!("certificate of {name}"),
            key: format!("key of {name}"),
        })
    }

    #[test]
    fn it_has_kcps_contexts() {
        let got: Value = serde_saphyr::from_str(&render(&content("https://127.0.0.1:6443"), &users())).unwrap();
        let cluster = |name: &str, path: &str| {
            let server = format!("https://127.0.0.1:6443{path}");
            json!({"name": name, "cluster": {"server": server, "certificate-authority-data": "dGhlIENB"}})
        };
        let context = |name: &str, user: &str| json!({"name": name, "context": {"cluster": name, "user": user}});
        let user = |name: &str| {
            let data = |what: &str| STANDARD.encode(format!("{what} of {name}"));
            json!({"name": name, "user": {
                "client-certificate-data": data("certificate"), "client-key-data": data("key"),
            }})
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
            "extensions": [{"name": "insula.io/written-at-start", "extension": {"by": "insula"}}],
        });
        assert_eq!(got, want);
    }

    #[test]
    fn without_a_ca_the_machine_of_the_client_decides() {
        let unknown = Content {
            trust: None,
            ..content("https://a")
        };
        assert!(!render(&unknown, &users()).contains("certificate-authority"));
    }

    #[test]
    fn somebodys_own_kubeconfig_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let now = insula_api::Timestamp(1_795_254_000);
        let identity = crate::identity::ensure(dir.path(), &[], now).unwrap();
        write(&path, &content("https://a"), &identity).unwrap();
        write(&path, &content("https://b"), &identity).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("https://b/clusters/root"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
        let error = write(&path, &content("https://c"), &identity).unwrap_err();
        assert!(
            matches!(&error, StartError::ForeignKubeconfig { path: named } if *named == path),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\nkind: Config\n");
    }

    /// Returns a file without comments, as kubectl writes it.
    fn rewritten(edit: impl FnOnce(&mut Value)) -> String {
        let mut config = serde_saphyr::from_str(&render(&content("https://a"), &users())).unwrap();
        edit(&mut config);
        config.to_string()
    }

    #[test]
    fn a_file_that_a_client_rewrote_is_still_the_servers() {
        let key = || Some("key of kcp-admin".to_owned());
        let entered = |config: &mut Value| {
            config["current-context"] = "workspace.kcp.io/current".into();
            let cluster = json!({"name": "workspace.kcp.io/current", "cluster": {"server": "https://a/clusters/x"}});
            config["clusters"].as_array_mut().unwrap().push(cluster);
        };
        assert!(is_own(&rewritten(entered), || None));
        let unmarked = |config: &mut Value| drop(config.as_object_mut().unwrap().remove("extensions"));
        assert!(is_own(&rewritten(unmarked), key));
        // Another server of this kind, such as kcp, has users of the same names.
        assert!(!is_own(&rewritten(unmarked), || Some("another key".to_owned())));
        assert!(!is_own(&rewritten(unmarked), || None));
        let merged = |config: &mut Value| {
            let mine = json!({"name": "me", "user": {"token": "t"}});
            config["users"].as_array_mut().unwrap().push(mine);
        };
        assert!(!is_own(&rewritten(merged), key));
        for text in ["apiVersion: v1\nkind: Config\n", "users: 3", "[", "a note"] {
            assert!(!is_own(text, key), "{text}");
        }
    }
}
