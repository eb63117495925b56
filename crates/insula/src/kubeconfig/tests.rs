use std::os::unix::fs::PermissionsExt;

use super::*;

fn paths(folder: &Path, files: &[(&str, &str)]) -> Paths {
    let write = |(name, text): &(&str, &str)| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    Paths(files.iter().map(write).collect())
}

const FIRST: &str = "\
# Kept.
apiVersion: v1
kind: Config
extensions: [{name: other, extension: {a: 1}}]
clusters:
- name: one
  cluster: {server: 'https://a', certificate-authority: pki/ca.crt, strange: true}
contexts:
- name: both
  context: {cluster: one, user: x}
current-context: ''
";
const SECOND: &str = "\
current-context: both
contexts:
- name: both
  context: {cluster: other, user: y}
clusters:
- name: two
  cluster: {server: 'https://b'}
";

#[test]
fn the_first_file_with_an_entry_counts() {
    let folder = tempfile::tempdir().unwrap();
    let paths = paths(folder.path(), &[("a", FIRST), ("b", SECOND)]);
    let found = Kubeconfig::load(&paths).unwrap();
    assert_eq!(found.current(), "both");
    let context = found.entry(Section::Contexts, "both").unwrap();
    assert_eq!(context.text("user"), Some("x"));
    let cluster = found.entry(Section::Clusters, "one").unwrap().absolute();
    let ca = folder.path().join("pki/ca.crt");
    assert_eq!(cluster["certificate-authority"], json!(ca));
    assert_eq!(found.names(Section::Clusters), ["one", "two"]);
    assert!(found.entry(Section::Users, "x").is_none());
}

#[test]
fn an_edit_keeps_everything_else() {
    let folder = tempfile::tempdir().unwrap();
    let paths = paths(folder.path(), &[("a", FIRST), ("b", SECOND)]);
    fs::set_permissions(&paths.0[0], fs::Permissions::from_mode(0o640)).unwrap();
    let found = Kubeconfig::load(&paths).unwrap();
    let mut entry = found.entry(Section::Clusters, "one").unwrap();
    entry.content["server"] = json!("https://a/clusters/root");
    let put = |name: &str| Put {
        section: Section::Clusters,
        name: name.to_owned(),
        entry: entry.clone(),
    };
    let edit = Edit {
        puts: vec![put("new"), put("two")],
        current: Some("new".to_owned()),
    };
    edit.write(&paths).unwrap();
    let first = fs::read_to_string(&paths.0[0]).unwrap();
    assert!(first.starts_with("# Kept.\n"), "{first}");
    let first: Value = serde_saphyr::from_str(&first).unwrap();
    assert_eq!(first["extensions"][0]["extension"]["a"], 1);
    assert_eq!(first["current-context"], "new");
    assert_eq!(first["clusters"][1]["cluster"]["certificate-authority"], "pki/ca.crt");
    assert_eq!(first["clusters"][1]["cluster"]["strange"], true);
    let second: Value = serde_saphyr::from_str(&fs::read_to_string(&paths.0[1]).unwrap()).unwrap();
    assert_eq!(second["clusters"][0]["cluster"]["server"], "https://a/clusters/root");
    assert_eq!(second["current-context"], "both");
    let mode = fs::metadata(&paths.0[0]).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o640);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_missing_file_is_created_and_a_link_stays() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    fs::write(&real, SECOND).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let set = |current: &str| Edit {
        puts: Vec::new(),
        current: Some(current.to_owned()),
    };
    set("other").write(&Paths(vec![link.clone()])).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("current-context: other"));
    let missing = folder.path().join("deep/config");
    set("new").write(&Paths(vec![missing.clone()])).unwrap();
    let mode = fs::metadata(&missing).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn missing_and_malformed_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Paths(vec![folder.path().join("nowhere")]);
    let error = Kubeconfig::load(&missing).unwrap_err().to_string();
    assert!(
        error.contains("nowhere: name one with --kubeconfig or KUBECONFIG"),
        "{error}"
    );
    let wrong = paths(folder.path(), &[("list", "[1]")]);
    let error = format!("{:#}", Kubeconfig::load(&wrong).unwrap_err());
    assert!(error.ends_with("list is not a kubeconfig"), "{error}");
}
