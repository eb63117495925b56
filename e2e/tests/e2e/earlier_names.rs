//! Stores and backups of the last program that stored routes and serialization points as `claims`
//! and `registers`: they are upgraded at start, whatever interrupts it, and restored.
//!
//! `e2e/fixtures/format-2` has the backup that this program took of an installation with an export,
//! a binding to it, a definition, a quota and a limit on objects, and the files of the embedded
//! store that it restored from the backup. On etcd it stores the same keys and values.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use insula_api::{Object, ObjectKey, ResourceId};
use insula_e2e::{Client, Etcd, PATIENCE, Server, Setup, insula, ready_workspace, runtime, stored_keys, until};
use insula_meter::ServerWork;
use insula_proto::admin::v1::RestoreBackupRequest;
use insula_store::{
    Entry, Guard, Store, Txn, Write,
    backup::{self, BackupError},
    embedded::{EmbeddedStore, Options},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::grpc::backup::{delete_workspace, restored};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.io/v1/namespaces/default/widgets";
const WIDGETS_V2: &str = "/apis/example.io/v2/namespaces/default/widgets";
const GADGETS: &str = "/apis/example.org/v1/namespaces/default/gadgets";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const OBJECTS: &str = "/insula/objects/";
const MARK: &str = "/insula/objects/!a-later-version-of-insula-uses-this-store";
/// Objects under earlier names in the fixture.
const EARLIER: usize = 5;
/// The limit that the installation had.
const OBJECTS_PER_WORKSPACE: usize = 20;

/// Returns a file of `e2e/fixtures`.
pub(crate) fn fixture(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{path}.gz"));
    let mut bytes = Vec::new();
    let mut file = flate2::read::GzDecoder::new(fs::File::open(path).unwrap());
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn setup(flags: &[&str]) -> Setup {
    Setup {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        environment: vec![("INSULA_WORKSPACES_OBJECTS".into(), OBJECTS_PER_WORKSPACE.to_string())],
        ..Setup::default()
    }
}

/// Restores a backup into a new data directory.
pub(crate) fn restore(backup: &[u8], data: &Path) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("before.backup");
    fs::write(&file, backup).unwrap();
    let mut restore = insula(&["backup", "restore"]);
    let output = restore.arg(&file).arg("--to").arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Writes the files of the embedded store.
fn write_store(data: &Path) {
    fs::create_dir_all(data.join("store")).unwrap();
    for name in ["objects.redb", "acknowledged"] {
        fs::write(data.join("store").join(name), fixture(&format!("format-2/{name}"))).unwrap();
    }
}

fn entries() -> Vec<Entry> {
    entries_of(&fixture("format-2/before.backup"))
}

fn entries_of(backup: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let read = backup::read(backup, |_, entry| {
        entries.push(entry);
        Ok::<_, BackupError>(())
    });
    read.unwrap();
    entries
}

fn is_earlier(key: &ObjectKey) -> bool {
    *key.resource.group == *"internal.insula.io" && ["claims", "registers"].contains(&&*key.resource.resource)
}

fn etcd_pair(key: &ObjectKey, object: &Object) -> (Vec<u8>, Vec<u8>) {
    ([OBJECTS.as_bytes(), &key.encode()].concat(), object.to_stored())
}

fn filled_etcd() -> Option<Etcd> {
    etcd_with(&fixture("format-2/before.backup"))
}

/// Starts an etcd with the keys and values that an earlier program had there.
pub(crate) fn etcd_with(backup: &[u8]) -> Option<Etcd> {
    let etcd = Etcd::start()?;
    let pairs = entries_of(backup);
    let pairs = pairs.iter().map(|entry| etcd_pair(&entry.key, &entry.object));
    etcd.put_all(&pairs.collect::<Vec<_>>());
    Some(etcd)
}

/// Returns the numbers of keys under earlier and present names in etcd.
fn names_in_etcd(etcd: &Etcd) -> (usize, usize) {
    let of = |plural: &str| etcd.objects(&format!("internal.insula.io/{plural}/")).len();
    (
        of("claims") + of("registers"),
        of("resourceroutes") + of("serializationpoints"),
    )
}

/// Checks that no stored object of a stopped server has an earlier name.
fn check_stored(data_dir: &Path) {
    let keys = stored_keys(data_dir);
    let of = |plural: &str| {
        keys.iter()
            .filter(|key| key.starts_with(&format!("internal.insula.io/{plural} ")))
            .count()
    };
    assert_eq!((of("claims"), of("registers")), (0, 0), "{keys:#?}");
    assert!(of("resourceroutes") >= 2 && of("serializationpoints") >= 3, "{keys:#?}");
}

fn names(client: &Client, path: &str) -> Vec<String> {
    let list = client.get(path).expect(200);
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

fn object(api_version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Checks that all is there and served.
fn check_served(server: &Server) {
    let tenant = server.admin().in_workspace("root:tenant");
    assert_eq!(names(&tenant, WIDGETS), ["one", "two"]);
    assert_eq!(
        tenant.get(&format!("{WIDGETS_V2}/one")).expect(200)["spec"]["length"],
        "small"
    );
    assert_eq!(
        tenant.get(&format!("{WIDGETS}/two")).expect(200)["spec"]["size"],
        "large"
    );
    assert_eq!(
        tenant.get(&format!("{GADGETS}/first")).expect(200)["spec"]["color"],
        "red"
    );
    assert_eq!(
        tenant.get(&format!("{BINDINGS}/widgets")).expect(200)["status"]["phase"],
        "Bound"
    );
}

/// Checks that writes are served, and that quotas and limits hold.
fn check_writes(server: &Server) {
    let tenant = server.admin().in_workspace("root:tenant");
    let widget = |name: &str| object("example.io/v2", "Widget", name, &json!({"length": "new"}));
    tenant.post(WIDGETS_V2, &widget("three")).expect(201);
    let refused = tenant.post(WIDGETS_V2, &widget("four")).expect(403);
    assert!(
        refused["message"].as_str().unwrap().contains("exceeded quota: few"),
        "{refused}"
    );
    let gadget = object("example.org/v1", "Gadget", "second", &json!({"color": "blue"}));
    tenant.post(GADGETS, &gadget).expect(201);
    let map = |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")}});
    let answers: Vec<_> = (0..=OBJECTS_PER_WORKSPACE)
        .map(|n| tenant.post(MAPS, &map(n)))
        .collect();
    assert_eq!(answers[0].code, 201);
    let refused = answers.last().unwrap();
    assert_eq!(
        (refused.code, &refused.body["reason"]),
        (403, &json!("Forbidden")),
        "{}",
        refused.body
    );

    // Another tenant binds, and its route has the present name.
    let (path, _) = ready_workspace(&server.admin(), "root", "newcomer", json!({}));
    let newcomer = server.admin().in_workspace(&path);
    let reference = json!({"reference": {"export": {"path": "root:provider", "name": "widgets"}}});
    let binding = object("apis.kcp.io/v1alpha2", "APIBinding", "widgets", &reference);
    newcomer.post(BINDINGS, &binding).expect(201);
    until("widgets are served", || {
        (newcomer.get(WIDGETS).code == 200).then_some(())
    });
}

#[test]
fn an_embedded_store_is_upgraded_and_served() {
    let server = Server::with_data(setup(&[]), write_store);
    check_served(&server);
    check_writes(&server);
    let stopped = server.stopped();
    check_stored(&stopped.data_dir());
    // The next start finds nothing to do.
    let again = stopped.start().unwrap_or_else(|end| panic!("{end}"));
    assert!(!again.log().contains("present names"), "{}", again.log());
}

#[test]
fn an_upgrade_of_the_embedded_store_that_was_killed_continues() {
    let server = Server::with_data(setup(&[]), |data| {
        write_store(data);
        // As after the first of several transactions: one route has moved.
        let store = EmbeddedStore::open(&data.join("store"), Options::default()).unwrap();
        let routes = ResourceId::local("internal.insula.io", "claims");
        let snapshot = store.latest().for_server(ServerWork::Tool);
        let route = snapshot
            .range(&insula_api::Scope::everywhere(routes), None, 1)
            .remove(0);
        let mut value = route.object.body_value();
        value["kind"] = json!("ResourceRoute");
        let key = ObjectKey {
            resource: ResourceId::local("internal.insula.io", "resourceroutes"),
            ..route.key.clone()
        };
        let txn = Txn {
            guards: vec![Guard::At(route.key.clone(), route.revision)],
            writes: vec![
                Write::Delete(route.key),
                Write::Put(key, Arc::new(Object::new(&value, None).unwrap())),
            ],
        };
        runtime().block_on(async {
            store.commit(txn).await.unwrap();
            store.close().await;
        });
    });
    check_served(&server);
    check_writes(&server);
    check_stored(&server.stopped().data_dir());
}

#[test]
fn two_servers_upgrade_one_etcd() {
    let Some(etcd) = filled_etcd() else { return };
    assert_eq!(names_in_etcd(&etcd), (EARLIER, 0));
    let store = etcd.store();
    let start = || Server::with(setup(&["--store", &store]));
    Server::start().share_keys(&store);
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(start);
        (start(), other.join().unwrap())
    });
    for server in [&one, &other] {
        check_served(server);
    }
    assert_eq!((names_in_etcd(&etcd), etcd.count(MARK)), ((0, EARLIER), 1));
    check_writes(&one);
    // The object limit counts what the other server sees, too.
    let tenant = other.admin().in_workspace("root:tenant");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}});
    tenant.post(MAPS, &map).expect(403);
    assert_eq!(names_in_etcd(&etcd).0, 0);
}

#[test]
fn a_server_killed_in_an_upgrade_of_etcd_is_followed_by_one_that_ends_it() {
    const COPIES: usize = 3_000;
    let Some(etcd) = filled_etcd() else { return };
    let entries = entries();
    let route = entries.iter().find(|entry| is_earlier(&entry.key)).unwrap();
    let copies = (0..COPIES).map(|n| {
        let name = format!("r{n}.example.io");
        etcd_pair(
            &ObjectKey {
                name: name.into(),
                ..route.key.clone()
            },
            &route.object,
        )
    });
    etcd.put_all(&copies.collect::<Vec<_>>());
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut first: Command = insula(&["start", "--store", &etcd.store(), "--listen", "127.0.0.1:0"]);
    first.args(["--data-dir", &path("data"), "--kubeconfig", &path("kubeconfig")]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while names_in_etcd(&etcd).1 == 0 {
        let runs = first.try_wait().unwrap().is_none();
        assert!(runs && begun.elapsed() < PATIENCE, "nothing is moved");
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let (earlier, present) = names_in_etcd(&etcd);
    assert!(
        earlier > 0 && present > 0,
        "not in the middle: {earlier} earlier, {present} present"
    );
    assert_eq!(earlier + present, EARLIER + COPIES);
    let server = Server::with(setup(&["--store", &etcd.store()]));
    check_served(&server);
    assert_eq!(names_in_etcd(&etcd).0, 0);
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs().try_into().unwrap()
}

#[test]
fn a_start_beside_an_earlier_server_is_refused() {
    let Some(etcd) = filled_etcd() else { return };
    let spec = json!({"name": "old", "url": "https://10.0.0.1:6443", "version": "0.1.0", "started": 1});
    let key = ObjectKey::cluster_scoped(
        ResourceId::local("internal.insula.io", "servers"),
        insula_api::ClusterName::root(),
        "old",
    );
    // As an earlier server writes it every twenty seconds.
    let renew = |seen: i64| {
        let value = json!({"apiVersion": "internal.insula.io/v1", "kind": "Server",
            "metadata": {"name": "old"}, "spec": spec, "seen": seen});
        etcd.put_all(&[etcd_pair(&key, &Object::new(&value, None).unwrap())]);
    };
    renew(now());
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    let kubeconfig = dir.path().join("kubeconfig");
    let mut start = insula(&["start", "--store", &etcd.store(), "--listen", "127.0.0.1:0"]);
    start.arg("--data-dir").arg(&data).arg("--kubeconfig").arg(&kubeconfig);
    let mut start = start.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ahead = 0;
    let code = until("the start ends", || {
        ahead += 1;
        renew(now() + ahead);
        start.try_wait().unwrap()
    });
    let mut text = String::new();
    start.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(code.code(), Some(1), "{text}");
    let wanted = "the server https://10.0.0.1:6443 (version 0.1.0) uses this store";
    assert!(
        text.contains(wanted) && text.contains("end all servers of earlier versions"),
        "{text}"
    );
    assert_eq!(
        (names_in_etcd(&etcd), etcd.count(MARK)),
        ((EARLIER, 0), 0),
        "nothing was changed"
    );
}

#[test]
fn a_later_format_ends_a_server_and_refuses_a_start() {
    let Some(etcd) = Etcd::start() else { return };
    let setup = || setup(&["--store", &etcd.store()]);
    let server = Server::with(setup());
    assert_eq!(etcd.count(MARK), 1, "a new store is marked");
    etcd.put_all(&[(MARK.into(), b"9".to_vec())]);
    let text = "the store has format 9, this version reads 4";
    let stopped = server.ended();
    let refused = stopped.start().map(drop).expect_err("a store of a later format");
    assert!(refused.contains(text), "{refused}");
}

#[test]
fn an_earlier_backup_is_restored_into_a_new_directory() {
    let server = Server::with_data(setup(&[]), |data| {
        restore(&fixture("format-2/before.backup"), data);
        check_stored(data);
    });
    check_served(&server);
    check_writes(&server);
    check_stored(&server.stopped().data_dir());
}

#[test]
fn an_earlier_backup_is_restored_into_a_running_server() {
    let server = Server::with_data(setup(&[]), |data| {
        write_store(data);
        fs::create_dir_all(data.join("backups")).unwrap();
        let file: PathBuf = data.join("backups/before.backup");
        fs::write(file, fixture("format-2/before.backup")).unwrap();
    });
    delete_workspace(&server, "root:tenant");
    let request = RestoreBackupRequest {
        name: "before".to_owned(),
        workspace: "root:tenant".to_owned(),
        ..RestoreBackupRequest::default()
    };
    restored(&server, request);
    check_served(&server);
    check_writes(&server);
    check_stored(&server.stopped().data_dir());
}
