//! Backup and restore of the embedded store.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use insula_e2e::{Client, Etcd, Kubectl, Server, Setup, Who, insula, shared, until, workspace};
use serde_json::{Value, json};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const BUMP: u64 = 1_000_000_000;

fn config_map(name: &str, n: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": n.to_string()}})
}

fn backup(arguments: &[&str]) -> Output {
    insula(&[&["backup"], arguments].concat()).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Returns the metadata of a backup: its revision, and the line of its hash.
fn taken(output: &Output) -> (u64, String) {
    let text = text(output);
    assert!(output.status.success(), "{text}");
    let revision = text.strip_prefix("revision ").and_then(|rest| rest.split(',').next());
    let hash = text.lines().find(|line| line.starts_with("sha256 "));
    (revision.unwrap().parse().unwrap(), hash.unwrap().to_owned())
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

fn create(server: &Server, file: &str) -> Output {
    backup(&["create", file, "--kubeconfig", server.kubeconfig().to_str().unwrap()])
}

/// Objects by name, as their version and data.
fn objects(list: &Value) -> BTreeMap<String, (String, Value)> {
    let items = list["items"].as_array().unwrap().iter().map(|item| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
        (text("name"), (text("resourceVersion"), item["data"].clone()))
    });
    items.collect()
}

/// Starts a server on a restored backup, with the keys of the previous server.
fn restored(from: &Server, file: &str) -> Server {
    Server::with_data(Setup::default(), |data| {
        let output = backup(&["restore", file, "--to", data.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output));
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(from.data_dir().join("pki"))
            .arg(data)
            .status();
        assert!(copied.unwrap().success());
    })
}

/// Creates, changes and deletes objects until `stop` is set.
fn write(client: &Client, writer: usize, stop: &AtomicBool, writes: &AtomicUsize) {
    for n in 0..100_000 {
        let name = format!("w{writer}-{}", n % 7);
        let one = format!("{MAPS}/{name}");
        match n % 3 {
            0 => drop(client.delete(&one)),
            1 => drop(client.post(MAPS, &config_map(&name, n))),
            _ => drop(client.merge(&one, &json!({"data": {"n": n.to_string()}}))),
        }
        writes.fetch_add(1, Ordering::Relaxed);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
}

#[test]
fn a_backup_under_writers_restores_one_revision_exactly() {
    let (server, dir) = (Server::start(), TempDir::new().unwrap());
    let (place, _) = workspace(&server.admin(), "saved");
    let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (client, stop, writes) = (
                server.admin().in_workspace(&place),
                Arc::clone(&stop),
                Arc::clone(&writes),
            );
            std::thread::spawn(move || write(&client, writer, &stop, &writes))
        })
        .collect();
    let written = |count: usize| {
        until("writes go on", || {
            (writes.load(Ordering::Relaxed) >= count).then_some(())
        })
    };
    written(40);
    let file = path(dir.path(), "saved.backup");
    let (revision, hash) = taken(&create(&server, &file));
    written(writes.load(Ordering::Relaxed) + 40);
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // The history shows the objects at that revision.
    let client = server.admin().in_workspace(&place);
    let exact = |revision: u64| format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let wanted = objects(&client.get(&exact(revision)).expect(200));
    let latest = client.get(MAPS).expect(200);
    assert!(wanted != objects(&latest), "it went on after the backup");
    let latest: u64 = latest["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();

    let again = restored(&server, &file);
    let client = again.admin().in_workspace(&place);
    let list = client.get(MAPS).expect(200);
    assert_eq!(objects(&list), wanted);
    let found: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(found >= revision + BUMP, "{found}");
    // Earlier clients list again, from any revision.
    for seen in [revision, revision + 1, latest, latest + 1] {
        client.get(&exact(seen)).expect(410);
        let watch = format!("{MAPS}?watch=true&resourceVersion={seen}&timeoutSeconds=5");
        let code = client.watch(&watch, |event| {
            assert_eq!(event["type"], "ERROR", "{event}");
            Some(event["object"]["code"].clone())
        });
        assert_eq!(code, Some(json!(410)));
    }
    let made = client.post(MAPS, &config_map("after", 1)).expect(201);
    let version: u64 = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(version > revision + BUMP);
    // A backup of a restored store without a server in between is identical byte for byte.
    let data = path(dir.path(), "same");
    assert!(backup(&["restore", &file, "--to", &data]).status.success());
    let same = backup(&["create", &path(dir.path(), "same.backup"), "--data-dir", &data]);
    assert_eq!(taken(&same), (revision + BUMP, hash));
}

#[test]
fn restore_refuses_damaged_files_and_used_directories() {
    // A server of its own: a server makes one backup at a time.
    let (server, dir) = (Server::start(), TempDir::new().unwrap());
    let file = path(dir.path(), "a.backup");
    let (revision, hash) = taken(&create(&server, &file));
    assert_eq!(taken(&backup(&["verify", &file])), (revision, hash));
    let there = create(&server, &file);
    assert!(!there.status.success() && text(&there).contains("is there already"));
    let whole = fs::read(&file).unwrap();
    let refused = |damaged: &[u8], why: &str| {
        let (file, to) = (path(dir.path(), "damaged"), path(dir.path(), "into"));
        fs::write(&file, damaged).unwrap();
        for output in [backup(&["verify", &file]), backup(&["restore", &file, "--to", &to])] {
            assert!(
                !output.status.success() && text(&output).contains(why),
                "{}",
                text(&output)
            );
        }
        assert!(!Path::new(&to).exists(), "nothing is made of it");
    };
    refused(&whole[..whole.len() / 2], "the backup is cut off at byte ");
    refused(&whole[..whole.len() - 1], "the backup is cut off at byte ");
    refused(&[&whole[..], b"more"].concat(), "something follows its end");
    refused(b"", "not a backup of insula");
    for at in [40, whole.len() / 3, whole.len() - 10] {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        refused(&damaged, "the backup is damaged at byte ");
    }
    fs::create_dir(dir.path().join("full")).unwrap();
    fs::write(dir.path().join("full/pki"), "").unwrap();
    let output = backup(&["restore", &file, "--to", &path(dir.path(), "full")]);
    assert!(
        !output.status.success() && text(&output).contains("is not empty"),
        "{}",
        text(&output)
    );
    let used = backup(&[
        "create",
        &path(dir.path(), "b"),
        "--data-dir",
        server.data_dir().to_str().unwrap(),
    ]);
    assert!(
        !used.status.success() && text(&used).contains("is in use by pid"),
        "{}",
        text(&used)
    );
}

#[test]
fn only_administrators_of_the_platform_take_backups() {
    let server = shared();
    let get = |who: Who, path: &str| server.client(who).get(path);
    let token = |name: &str| Who::Token(format!("{name}-token"));
    for name in ["alice", "bob"] {
        let answer = get(token(name), "/backup");
        assert_eq!(
            (answer.code, answer.body["reason"].as_str()),
            (403, Some("Forbidden")),
            "{name}"
        );
    }
    assert!([401, 403].contains(&get(Who::Anonymous, "/backup").code));
    for path in ["/clusters/root/backup", "/backup/", "/backup/x", "//backup"] {
        let answer = get(token("alice"), path);
        assert!([400, 403, 404].contains(&answer.code), "{path}: {}", answer.code);
    }
    // A user with all rights in root is not the platform's administrator.
    let admin = server.admin();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "backup-bob"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    let bindings = "/clusters/root/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.post(bindings, &binding).expect(201);
    let answer = get(token("bob"), "/backup");
    admin.delete(&format!("{bindings}/backup-bob")).expect(200);
    assert_eq!(answer.code, 403);
    for who in [token("carol"), token("dave"), Who::KcpAdmin] {
        let answer = until("it is our turn", || {
            let answer = get(who.clone(), "/backup");
            // One backup at a time, for all callers together.
            (answer.code != 429).then_some(answer)
        });
        assert_eq!(answer.code, 200, "{who:?}: {}", answer.text);
        assert!(answer.bytes.starts_with(b"insula-backup 2\n"));
    }
}

#[test]
fn a_backup_of_a_server_on_etcd_becomes_an_embedded_store() {
    let Some(etcd) = Etcd::start() else { return };
    let (server, dir) = (Server::with_flags(&["--store", &etcd.store()]), TempDir::new().unwrap());
    let (place, _) = workspace(&server.admin(), "moved");
    let made = server
        .admin()
        .in_workspace(&place)
        .post(MAPS, &config_map("a", 1))
        .expect(201);
    let file = path(dir.path(), "etcd.backup");
    let (revision, _) = taken(&create(&server, &file));
    let again = restored(&server, &file);
    let found = again.admin().in_workspace(&place).get(&format!("{MAPS}/a")).expect(200);
    assert_eq!(found, made);
    let next = again
        .admin()
        .in_workspace(&place)
        .post(MAPS, &config_map("b", 1))
        .expect(201);
    let version: u64 = next["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(version > revision + BUMP);
    // kubectl reads it as it read the previous server.
    if let Some(kubectl) = Kubectl::for_server(&again) {
        let ran = kubectl.run(&place, &["get", "configmap", "a", "-o", "jsonpath={.data.n}"], "");
        assert_eq!((ran.code, ran.text.as_str()), (0, "1"));
    }
}
