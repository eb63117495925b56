//! Upgrades that stop after any transaction, that meet others, and that find earlier servers.

use super::*;
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Timestamp};
use insula_catalog::ids;
use insula_meter::ServerWork;
use insula_store::{BoxFuture, Cursor, FORMAT, Gone, Measures, MemoryStore, Pinned, SnapshotError};
use serde_json::{Value, json};
use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicI64, Ordering},
};

/// Objects under earlier names: three transactions.
const OBJECTS: usize = 150;

/// A store that takes a number of transactions, then none.
struct Ending {
    inner: Arc<MemoryStore>,
    left: AtomicI64,
}

impl Ending {
    fn after(transactions: i64, inner: &Arc<MemoryStore>) -> Self {
        Ending {
            inner: Arc::clone(inner),
            left: AtomicI64::new(transactions),
        }
    }
}

impl Store for Ending {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        match self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            true => self.inner.commit(txn),
            false => Box::pin(std::future::ready(Err(CommitError::Unavailable("killed".into())))),
        }
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>> {
        self.inner.snapshot(at_least)
    }

    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone> {
        self.inner.at_revision(exactly)
    }

    fn latest(&self) -> Pinned {
        self.inner.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.inner.watch(scope, after)
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        self.inner.compact(upto)
    }

    fn health(&self) -> Result<(), String> {
        self.inner.health()
    }

    fn share(&self, sharing: insula_store::Sharing) {
        self.inner.share(sharing);
    }

    fn measures(&self) -> Measures {
        self.inner.measures()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp(1_000)
    }
}

fn key(resource: &str, name: &str) -> ObjectKey {
    let resource = ResourceId::local(ids::INTERNAL, resource);
    ObjectKey::cluster_scoped(resource, ClusterName::root(), name)
}

fn put(key: ObjectKey, value: Value) -> Write {
    Write::Put(key, Arc::new(Object::new(&value, None).expect("an object")))
}

fn object(resource: &str, kind: &str, name: &str, of: &str) -> Write {
    let value = json!({"apiVersion": ids::INTERNAL_V1, "kind": kind, "metadata": {"name": name, "uid": name},
        "spec": {"binding": of}});
    put(key(resource, name), value)
}

async fn commit(store: &dyn Store, writes: Vec<Write>) {
    let guards = Vec::new();
    store.commit(Txn { guards, writes }).await.expect("a commit");
}

/// A store as a program of format 2 leaves it.
async fn earlier() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("n{n}.example.io")).collect();
    for part in names.chunks(50) {
        let routes = part.iter().map(|name| object("claims", "Claim", name, name));
        commit(&*store, routes.collect()).await;
    }
    commit(&*store, vec![object("registers", "Register", "objects", "all")]).await;
    store
}

/// Returns all objects without their revisions.
fn state(store: &dyn Store) -> Vec<(ObjectKey, Value)> {
    let mut found = Vec::new();
    store
        .latest()
        .for_server(ServerWork::Tool)
        .for_each(&Scope::everything(), |entry| {
            found.push((entry.key.clone(), entry.object.body_value()));
            ControlFlow::Continue(())
        });
    found
}

async fn run(store: &dyn Store) -> Result<(), StartError> {
    upgrade(store, None, &Fixed, "in memory").await
}

#[tokio::test]
async fn an_upgrade_continues_after_any_transaction() {
    let whole = earlier().await;
    run(&*whole).await.expect("an upgrade");
    let wanted = state(&*whole);
    assert_eq!(wanted.len(), OBJECTS + 1);
    for (key, value) in &wanted {
        let kinds = [
            ("resourceroutes", "ResourceRoute"),
            ("serializationpoints", "SerializationPoint"),
        ];
        assert!(kinds.contains(&(&*key.resource.resource, value["kind"].as_str().unwrap_or_default())));
        assert_eq!(value["metadata"]["uid"], *key.name);
    }
    let revision = whole.latest().revision();
    run(&*whole).await.expect("nothing is left");
    assert_eq!(whole.latest().revision(), revision, "and nothing is written");
    for transactions in 0..3 {
        let store = earlier().await;
        let stopped = run(&Ending::after(transactions, &store)).await;
        assert!(
            stopped.is_err_and(|error| error.to_string().contains("killed")),
            "{transactions}"
        );
        assert_ne!(state(&*store), wanted, "{transactions}");
        run(&*store).await.expect("an upgrade");
        assert_eq!(state(&*store), wanted, "{transactions}");
    }
}

#[tokio::test]
async fn two_upgrades_move_each_object_once() {
    let alone = earlier().await;
    run(&*alone).await.expect("an upgrade");
    let store = earlier().await;
    // The transaction of one is decided before that of the other is committed.
    let snapshot = store.latest().for_server(ServerWork::Tool);
    let decided = transaction(&snapshot, &next_batch(&snapshot));
    run(&*store).await.expect("an upgrade");
    let late = store.commit(decided).await;
    assert!(matches!(late, Err(CommitError::Conflict { .. })), "{late:?}");
    assert_eq!(state(&*store), state(&*alone));
    let both = earlier().await;
    let (one, other) = tokio::join!(run(&*both), run(&*both));
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(state(&*both), state(&*alone));
}

#[tokio::test]
async fn an_object_under_its_present_name_stays() {
    let store = earlier().await;
    let present = object("resourceroutes", "ResourceRoute", "n7.example.io", "decided later");
    commit(&*store, vec![present]).await;
    run(&*store).await.expect("an upgrade");
    let found = store
        .latest()
        .get(&key("resourceroutes", "n7.example.io"))
        .expect("a route");
    assert_eq!(found.object.body_value()["spec"]["binding"], "decided later");
    assert_eq!(state(&*store).len(), OBJECTS + 1);
}

fn record(name: &str, seen: i64, format: Option<u64>) -> Write {
    let mut spec = json!({"name": name, "url": format!("https://{name}"), "version": "0.1.0", "started": 1});
    if let Some(format) = format {
        spec["format"] = json!(format);
    }
    let value = json!({"apiVersion": ids::INTERNAL_V1, "kind": "Server", "metadata": {"name": name},
        "spec": spec, "seen": seen});
    put(key("servers", name), value)
}

#[tokio::test]
async fn an_earlier_server_that_runs_is_refused_and_one_that_is_gone_is_not() {
    let store = Arc::new(MemoryStore::new());
    let wait = |gone| Wait {
        look: Duration::from_millis(5),
        gone: Duration::from_millis(gone),
    };
    let short = || wait(50);
    let records = vec![record("long-gone", 900, None), record("present", 1_000, Some(FORMAT))];
    commit(&*store, records).await;
    assert_eq!(wait_for_earlier_servers(&*store, &Fixed, short()).await, Ok(()));
    // It was seen just now, or its clock is ahead, and it is silent from now on.
    for seen in [990, 5_000] {
        commit(&*store, vec![record("silent", seen, None)]).await;
        assert_eq!(wait_for_earlier_servers(&*store, &Fixed, short()).await, Ok(()));
    }
    let renewed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        commit(&*store, vec![record("silent", 1_000, None)]).await;
    };
    let (waited, ()) = tokio::join!(wait_for_earlier_servers(&*store, &Fixed, wait(60_000)), renewed);
    let refused = waited.expect_err("it runs");
    assert!(
        refused.starts_with("the server https://silent (version 0.1.0) uses this store"),
        "{refused}"
    );
}
