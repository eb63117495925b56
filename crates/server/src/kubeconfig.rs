//! Kubeconfig of the administrator: kcp's contexts `base`, `root`, `shard-base` and `system:admin`,
//! with certificates and keys inside, so that it can be copied to another machine.

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_auth::ec_key::for_kubeconfig;
use serde_json::Value;

use crate::{
    StartError,
    files::{IDENTITY_DIR, read, read_secret, write_private},
    identity::{Identity, KCP_ADMIN, Pair, SHARD_ADMIN},
};

/// First line of a file that the server may replace.
const MARK: &str = "# Written by insula at every start; changes are lost.";
/// Extension of a file that the server may replace: kubectl and kcp's plugins drop comments when
/// they write the file, and keep extensions.
const EXTENSION: &str = "insula.io/written-at-start";

/// Refuses a path with a kubeconfig that this installation did not write. Called before anything is
/// opened: the data directory need not be there yet.
pub(crate) fn check(path: &Path, data_dir: &Path) -> Result<(), StartError> {
    let Some(text) = read(path)? else {
        return check_folder(path, data_dir);
    };
    let refused = match owner(&text) {
        Owner::Nobody => return Ok(()),
        // No other insula writes below the data directory, which the server locks.
        Owner::Server(file) if file.is_marked && path.starts_with(data_dir) => return Ok(()),
        Owner::Server(file) if file.is_of(data_dir)? => return Ok(()),
        Owner::Server(_) => StartError::OtherKubeconfig { path: path.to_owned() },
        Owner::User => StartError::ForeignKubeconfig { path: path.to_owned() },
    };
    Err(refused)
}

/// Checks that the folder of a new file exists, or is one that the start makes.
fn check_folder(path: &Path, data_dir: &Path) -> Result<(), StartError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if folder.is_dir() || folder == data_dir {
        return Ok(());
    }
    let cause = format!(
        "there is no directory {}: create it, or choose another file with --kubeconfig",
        folder.display()
    );
    Err(StartError::write(path, io::Error::new(io::ErrorKind::NotFound, cause)))
}

/// Writer of a file.
enum Owner {
    /// The file is empty.
    Nobody,
    /// A server with these users only: insula, or another one of this kind, such as kcp.
    Server(Written),
    /// Somebody else, who may have merged users of a server into the file.
    User,
}

/// Traces of its server in a file. A client that rewrites the file, as kubectl does, keeps them.
struct Written {
    /// The file has the mark or the extension of insula.
    is_marked: bool,
    /// Data directory of the server; empty where the file has none.
    data_dir: String,
    /// Certificates and keys as in the file, in base64.
    encoded: Vec<String>,
}

fn owner(text: &str) -> Owner {
    if text.trim().is_empty() {
        return Owner::Nobody;
    }
    let document: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let list = |name: &str| document[name].as_array().into_iter().flatten();
    let is_ours = |user: &Value| user["name"] == KCP_ADMIN.0 || user["name"] == SHARD_ADMIN.0;
    if list("users").next().is_none() || !list("users").all(is_ours) {
        return Owner::User;
    }
    let extension = list("extensions").find(|extension| extension["name"] == EXTENSION);
    let is_marked = extension.is_some() || text.starts_with(MARK);
    let data_dir = extension.and_then(|extension| extension["extension"]["dataDir"].as_str());
    let keys = list("users").map(|user| &user["user"]["client-key-data"]);
    let authorities = list("clusters").map(|cluster| &cluster["cluster"]["certificate-authority-data"]);
    Owner::Server(Written {
        is_marked,
        data_dir: data_dir.unwrap_or_default().to_owned(),
        encoded: keys
            .chain(authorities)
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    })
}

impl Written {
    /// Returns true if the server of a data directory wrote the file. The directory is the same
    /// after a change of the CA, and the CA or the administrator's key after a move.
    fn is_of(&self, data_dir: &Path) -> Result<bool, StartError> {
        if Path::new(&self.data_dir) == data_dir {
            return Ok(true);
        }
        let pki = data_dir.join(IDENTITY_DIR);
        let ca = read(&pki.join("ca.crt"))?;
        let keys =
            [KCP_ADMIN.0, SHARD_ADMIN.0].map(|name| read_secret(&pki.join(format!("{name}.key"))).ok().flatten());
        // Builds before 0.1.0 wrote the keys as they are on disk.
        let forms = |pem: String| [STANDARD.encode(&*for_kubeconfig(&pem)), STANDARD.encode(pem)];
        let mut own = keys.into_iter().chain([ca]).flatten().flat_map(forms);
        Ok(own.any(|own| self.encoded.contains(&own)))
    }
}

/// Content of the file.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// URL of the server without a path.
    pub(crate) url: String,
    /// PEM text of the CA that clients trust; `None` leaves it to their machines.
    pub(crate) trust: Option<String>,
    /// Absolute path of the data directory, by which a later start knows the file again.
    pub(crate) data_dir: PathBuf,
}

/// Writes the file with mode 0600, unless it is there with the same content.
pub(crate) fn write(path: &Path, content: &Content, identity: &Identity) -> Result<(), StartError> {
    check(path, &content.data_dir)?;
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
            key: for_kubeconfig(&read_secret(key)?.unwrap_or_default()).into_owned(),
        })
    }
}

fn render(content: &Content, users: &[User]) -> String {
    let Content { url, trust, data_dir } = content;
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
    let data_dir = quoted(&data_dir.to_string_lossy());
    text + &format!("extensions:\n- name: {EXTENSION}\n  extension:\n    by: insula\n    dataDir: {data_dir}\n")
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
            data_dir: "/data".into(),
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
            "extensions": [{"name": "insula.io/written-at-start", "extension": {"by": "insula", "dataDir": "/data"}}],
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

    /// Returns the users of a file as a client rewrites it, without comments.
    fn rewritten(edit: impl FnOnce(&mut Value)) -> Owner {
        let mut config = serde_saphyr::from_str(&render(&content("https://a"), &users())).unwrap();
        edit(&mut config);
        owner(&config.to_string())
    }

    /// Returns true for a file that the server of a data directory may replace.
    fn is_of(owner: Owner, data_dir: &Path) -> bool {
        match owner {
            Owner::Nobody => true,
            Owner::Server(written) => written.is_of(data_dir).unwrap(),
            Owner::User => false,
        }
    }

    #[test]
    fn a_file_that_a_client_rewrote_is_still_the_servers() {
        let entered = |config: &mut Value| {
            config["current-context"] = "workspace.kcp.io/current".into();
            let cluster = json!({"name": "workspace.kcp.io/current", "cluster": {"server": "https://a/clusters/x"}});
            config["clusters"].as_array_mut().unwrap().push(cluster);
        };
        let (here, elsewhere) = (Path::new("/data"), tempfile::tempdir().unwrap());
        assert!(is_of(rewritten(entered), here));
        assert!(!is_of(rewritten(entered), elsewhere.path()));
        let merged = |config: &mut Value| {
            let mine = json!({"name": "me", "user": {"token": "t"}});
            config["users"].as_array_mut().unwrap().push(mine);
        };
        assert!(!is_of(rewritten(merged), here));
        for text in ["apiVersion: v1\nkind: Config\n", "users: 3", "[", "a note"] {
            assert!(matches!(owner(text), Owner::User), "{text}");
        }
    }

    /// A server of an earlier release wrote no data directory, and kcp has users of the same names.
    #[test]
    fn a_file_without_a_directory_is_known_by_its_ca_or_key() {
        let unmarked = |config: &mut Value| drop(config.as_object_mut().unwrap().remove("extensions"));
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_of(rewritten(unmarked), dir.path()));
        let pki = dir.path().join(IDENTITY_DIR);
        fs::create_dir(&pki).unwrap();
        for (file, own, other) in [
            ("ca.crt", "the CA", "another CA"),
            ("kcp-admin.key", "key of kcp-admin", "another key"),
        ] {
            write_private(&pki.join(file), other.as_bytes()).unwrap();
            assert!(!is_of(rewritten(unmarked), dir.path()), "{file}");
            write_private(&pki.join(file), own.as_bytes()).unwrap();
            assert!(is_of(rewritten(unmarked), dir.path()), "{file}");
            fs::remove_file(pki.join(file)).unwrap();
        }
    }
}
