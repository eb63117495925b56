//! Opening: one process at a time, what a restart keeps, and what is refused.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{
    Store, Txn, Write,
    embedded::{EmbeddedStore, OpenError, Options},
};
use std::{path::Path, sync::Arc};

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(ResourceId::local("example.io", "widgets"), ClusterName::root(), name)
}

fn put(name: &str) -> Txn {
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": name}});
    let object = Arc::new(Object::new(&value, Some(b"{\"v2\":[1]}"[..].into())).unwrap());
    Txn {
        guards: vec![],
        writes: vec![Write::Put(key(name), object)],
    }
}

fn open(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(
        dir,
        Options {
            holder: "insula start, 127.0.0.1:6443".into(),
            ..Options::default()
        },
    )
}

fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn a_second_open_names_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let message = open(dir.path()).map(|_| ()).unwrap_err().to_string();
    let want = format!(
        "{} is in use by pid {} (insula start, 127.0.0.1:6443); stop it or choose another directory",
        dir.path().display(),
        std::process::id()
    );
    assert_eq!(message, want);
    drop(first);
    let closed = open(dir.path()).unwrap();
    now(closed.close());
    assert!(
        open(dir.path()).is_ok(),
        "a closed store is free although somebody holds it"
    );
}

#[test]
fn a_restart_keeps_everything_and_the_place_in_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let (store, scope) = (
        open(&dir.path().join("deep/er")).unwrap(),
        Scope::everywhere(key("").resource),
    );
    let mut revisions: Vec<Revision> = ["a", "b", "a"].map(|name| now(store.commit(put(name))).unwrap()).into();
    revisions.push(
        now(store.commit(Txn {
            guards: vec![],
            writes: vec![Write::Delete(key("b"))],
        }))
        .unwrap(),
    );
    let before = store.latest().for_server(ServerWork::Tool).range(&scope, None, 10);
    assert_eq!((before[0].created, before[0].revision), (revisions[0], revisions[2]));
    drop(store);
    let store = open(&dir.path().join("deep/er")).unwrap();
    assert_eq!(
        store.latest().for_server(ServerWork::Tool).range(&scope, None, 10),
        before
    );
    assert_eq!(
        store.latest().revision(),
        revisions[3],
        "a deletion has its revision too"
    );
    let mut cursor = store.watch(scope, revisions[2]).unwrap();
    assert_eq!(now(cursor.next()).unwrap()[0].revision, revisions[3]);
    let next = now(store.commit(put("c"))).unwrap();
    assert!(next > revisions[3]);
    assert_eq!(now(cursor.next()).unwrap()[0].revision, next);
}

#[cfg(unix)]
#[test]
fn others_cannot_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let _store = open(&data).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        ["", "objects.redb", "acknowledged", "history", "lock"].map(|name| mode(&data.join(name))),
        [0o700, 0o600, 0o600, 0o600, 0o600]
    );
}

#[test]
fn damage_and_other_formats_are_refused() {
    use redb::{Database, TableDefinition};
    let objects: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
    let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let spoil = |change: &dyn Fn(&redb::WriteTransaction)| {
        let dir = tempfile::tempdir().unwrap();
        now(open(dir.path()).unwrap().commit(put("a"))).unwrap();
        let database = Database::open(dir.path().join("objects.redb")).unwrap();
        let txn = database.begin_write().unwrap();
        change(&txn);
        txn.commit().unwrap();
        drop(database);
        open(dir.path()).map(|_| ()).unwrap_err().to_string()
    };
    let a = key("a").encode();
    type Spoil<'a> = &'a dyn Fn(&redb::WriteTransaction);
    let cases: [(Spoil<'_>, &str); 5] = [
        (
            &|txn| drop(txn.open_table(meta).unwrap().insert("format", 9)),
            "the store has format 9, this version reads 3",
        ),
        (
            &|txn| drop(txn.open_table(objects).unwrap().insert(&*a, &b"short"[..])),
            "the stored object example.io/widgets//root//a is damaged: too short",
        ),
        (
            &|txn| drop(txn.open_table(objects).unwrap().insert(&*a, &[0; 33][..])),
            "the stored object example.io/widgets//root//a is damaged: its checksum does not match",
        ),
        (
            &|txn| drop(txn.open_table(objects).unwrap().remove(&*a)),
            "the store is damaged: objects.redb: the checksums of the objects do not add up to that of revision 2",
        ),
        (
            &|txn| drop(txn.open_table(meta).unwrap().insert("revision", 1)),
            "the stored object example.io/widgets//root//a is damaged: revision 2 of 1",
        ),
    ];
    for (change, want) in cases {
        let got = spoil(change);
        assert!(got.starts_with(want), "{got}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("objects.redb"),
        b"not a database, but long enough to be read as one".repeat(200),
    )
    .unwrap();
    assert!(matches!(open(dir.path()), Err(OpenError::File(_))));
}

#[test]
fn an_emptied_or_missing_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    now(open(dir.path()).unwrap().commit(put("a"))).unwrap();
    let refused = || open(dir.path()).map(|_| ()).unwrap_err().to_string();
    let (objects, record) = (dir.path().join("objects.redb"), dir.path().join("acknowledged"));
    let kept = std::fs::read(&objects).unwrap();
    let lost =
        "objects.redb is missing or empty, but revision 2 was acknowledged. Nothing of it is served; restore a backup";
    std::fs::write(&objects, "").unwrap();
    assert!(refused().starts_with(lost));
    std::fs::remove_file(&objects).unwrap();
    assert!(refused().starts_with(lost));
    std::fs::remove_file(&record).unwrap();
    std::fs::write(&objects, "").unwrap();
    assert!(refused().starts_with("the store is damaged: objects.redb is empty, and no record says"));
    std::fs::write(&objects, kept).unwrap();
    assert!(refused().starts_with("the store is damaged: acknowledged is missing or empty beside objects.redb"));
}

#[test]
fn the_first_write_upgrades_format_2() {
    use redb::{Database, ReadableDatabase, TableDefinition};
    let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let dir = tempfile::tempdir().unwrap();
    now(open(dir.path()).unwrap().commit(put("a"))).unwrap();
    let file = || Database::open(dir.path().join("objects.redb")).unwrap();
    let format = || {
        let database = file();
        let txn = database.begin_read().unwrap();
        txn.open_table(meta).unwrap().get("format").unwrap().unwrap().value()
    };
    assert_eq!(format(), 3);
    let database = file();
    let txn = database.begin_write().unwrap();
    txn.open_table(meta).unwrap().insert("format", 2).unwrap();
    txn.commit().unwrap();
    drop(database);
    drop(open(dir.path()).unwrap());
    assert_eq!(format(), 2, "it was only read");
    now(open(dir.path()).unwrap().commit(put("b"))).unwrap();
    assert_eq!(format(), 3);
    assert!(open(dir.path()).unwrap().latest().get(&key("a")).is_some());
}
