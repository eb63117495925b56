//! Conformance tests of the store contract. The tests of an engine call [`run`], or [`run_case`]
//! for each name.
//!
//! Each case gets an empty store to itself. Other programs may write elsewhere meanwhile (on etcd
//! they do), so that no case expects revisions without gaps.

mod commits;
mod restarts;
mod views;
mod watches;

use crate::{BoxFuture, Change, Cursor, Guard, Store, Txn, Write};
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A test case, named after the property that it checks.
pub type Case = (&'static str, fn(Arc<dyn Store>) -> BoxFuture<'static, ()>);

/// Longest time that a case waits for an expected event.
const CASE_TIME_MAX: Duration = Duration::from_secs(60);

macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        /// All cases.
        pub const CASES: &[Case] = &[$((stringify!($name), |store| Box::pin($module::$name(store)))),*];
    };
}

cases![
    commits::guards_hold_or_conflict,
    commits::a_failed_guard_writes_nothing,
    commits::revisions_grow,
    commits::a_transaction_has_one_revision,
    commits::doing_nothing_takes_no_revision,
    commits::the_last_write_to_a_key_counts,
    commits::delete_and_create_again,
    commits::too_large_is_refused,
    commits::many_writers_lose_no_update,
    commits::a_closed_store_reads_and_does_not_write,
    views::what_was_acknowledged_is_seen,
    views::snapshots_are_isolated,
    views::a_snapshot_waits_for_its_revision,
    views::views_at_exact_revisions,
    views::lists_are_ordered_and_paged,
    views::counts_are_those_of_the_view,
    views::scopes_do_not_leak,
    views::compacted_views_are_gone,
    views::held_snapshots_survive_compaction,
    watches::watch_is_ordered,
    watches::watch_is_unique,
    watches::watch_is_reliable,
    watches::watch_is_atomic,
    watches::watch_is_resumable,
    watches::watch_is_bookmarkable,
    watches::watch_tells_old_and_new,
    watches::watch_waits_and_can_be_cancelled,
    watches::watch_keeps_to_its_scope,
    watches::a_name_is_that_of_all_exporters,
    watches::compacted_watch_is_gone,
    watches::slow_watch_is_gone,
    watches::idle_watch_survives_compaction,
    watches::watch_from_the_future_is_refused,
];

/// Runs all cases one after the other, each on a store that `make` makes, in a tokio runtime with
/// time.
pub async fn run(make: impl AsyncFn() -> Arc<dyn Store>) {
    for (name, _) in CASES {
        run_case(name, make().await).await;
    }
}

/// Runs the case of a name. Panics, as tests do, when it fails.
pub async fn run_case(name: &str, store: Arc<dyn Store>) {
    let (_, case) = CASES.iter().find(|(known, _)| *known == name).expect("a known case");
    assert!(
        tokio::time::timeout(CASE_TIME_MAX, case(store)).await.is_ok(),
        "{name}: hangs"
    );
}

pub use restarts::a_restart_keeps_history;

fn widgets() -> ResourceId {
    ResourceId::local("example.io", "widgets")
}

fn cluster(name: &str) -> ClusterName {
    ClusterName::parse(name).expect("a cluster name")
}

/// `cluster/namespace/name` of widgets.
fn key(text: &str) -> ObjectKey {
    let mut parts = text.split('/');
    let mut next = || parts.next().expect("three parts");
    ObjectKey {
        resource: widgets(),
        cluster: cluster(next()),
        namespace: next().into(),
        name: next().into(),
    }
}

fn object(key: &ObjectKey, size: i64) -> Arc<Object> {
    let value = serde_json::json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": *key.name, "namespace": *key.namespace}, "spec": {"size": size}});
    Arc::new(Object::new(&value, None).expect("an object"))
}

fn size(object: &Object) -> i64 {
    object.body_value()["spec"]["size"].as_i64().expect("a size")
}

fn put(text: &str, size: i64) -> Write {
    let key = key(text);
    let object = object(&key, size);
    Write::Put(key, object)
}

fn delete(text: &str) -> Write {
    Write::Delete(key(text))
}

async fn commit(store: &Arc<dyn Store>, writes: Vec<Write>) -> Revision {
    store
        .commit(Txn {
            guards: Vec::new(),
            writes,
        })
        .await
        .expect("no guard can fail")
}

async fn create(store: &Arc<dyn Store>, text: &str) -> Revision {
    store
        .commit(Txn::one(Guard::Absent(key(text)), put(text, 0)))
        .await
        .expect("it is absent")
}

/// The sizes of all objects in a scope, as a view shows them.
fn listed(store: &Arc<dyn Store>, scope: &Scope, at: Revision) -> BTreeMap<ObjectKey, (i64, Revision)> {
    let entries = store
        .at_revision(at)
        .expect("a known revision")
        .for_server(ServerWork::Tool)
        .range(scope, None, usize::MAX);
    entries
        .into_iter()
        .map(|entry| (entry.key, (size(&entry.object), entry.revision)))
        .collect()
}

/// Pulls until everything up to `upto` was delivered.
async fn drain(cursor: &mut Cursor, upto: Revision) -> Vec<Arc<Change>> {
    let mut changes = Vec::new();
    while cursor.position() < upto {
        changes.extend(cursor.next().await.expect("nothing is compacted"));
    }
    changes
}

/// Random transactions over few keys, the same each time: put, overwrite, delete, one to four keys
/// in two clusters. Returns the revision before them and after each.
async fn busy(store: &Arc<dyn Store>, txns: u64) -> Vec<Revision> {
    let mut revisions = vec![commit(store, vec![put("root/default/first", 0)]).await];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for n in 0..txns {
        let mut writes = Vec::new();
        for _ in 0..=draw(4) {
            let text = format!("{}/ns{}/w{}", ["root", "other"][draw(2) as usize], draw(2), draw(6));
            writes.push(if draw(4) == 0 {
                delete(&text)
            } else {
                put(&text, n as i64)
            });
        }
        revisions.push(commit(store, writes).await);
    }
    revisions
}
