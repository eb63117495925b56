//! What must cost nothing: cursors that wait while others write, history that nobody asks for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_store::{Commit, Gone, Mvcc};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

fn key(resource: &str, cluster: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(
        ResourceId::local("example.io", resource),
        ClusterName::parse(cluster).unwrap(),
        "x",
    )
}

fn put(revision: u64, key: ObjectKey, pad: usize) -> Commit {
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "x"},
        "spec": {"pad": "x".repeat(pad)}});
    Commit {
        revision: Revision(revision),
        writes: vec![(key, Some(Arc::new(Object::new(&value, None).unwrap())))],
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn only_the_touched_scopes_wake() {
    let mvcc = Mvcc::new(Revision(1));
    let scope = Scope::cluster(key("widgets", "quiet").resource, ClusterName::parse("quiet").unwrap());
    let mut cursor = mvcc.watch(scope, Revision(1)).unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut next = pin!(cursor.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for n in 0..100 {
        let foreign = if n % 2 == 0 {
            key("widgets", "busy")
        } else {
            key("gadgets", "quiet")
        };
        mvcc.apply(vec![put(2 + n, foreign, 1)]);
    }
    assert_eq!(
        wakes.0.load(Ordering::Relaxed),
        0,
        "a foreign event costs a quiet cursor nothing"
    );
    mvcc.apply(vec![put(200, key("widgets", "quiet"), 1)]);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Ok(changes)) = next.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("it is ready")
    };
    assert_eq!(
        changes.iter().map(|change| change.revision).collect::<Vec<_>>(),
        [Revision(200)]
    );
}

/// A cursor far behind on one namespace passes over what others did in pieces, and misses nothing.
#[test]
fn a_narrow_cursor_passes_over_many_foreign_changes() {
    const CHANGES: u64 = 10_000;
    let mvcc = Mvcc::new(Revision(1));
    let busy = key("widgets", "root");
    let mine = ObjectKey {
        namespace: "mine".into(),
        ..busy.clone()
    };
    let scope = Scope::namespace(busy.resource.clone(), busy.cluster.clone(), "mine");
    let mut cursor = mvcc.watch(scope, Revision(1)).unwrap();
    let write = |n: u64| put(n, if n == CHANGES { mine.clone() } else { busy.clone() }, 1);
    mvcc.apply((2..=CHANGES + 5).map(write).collect());
    assert!(cursor.position() < Revision(CHANGES));
    let got: Vec<_> = cursor
        .try_next()
        .unwrap()
        .iter()
        .map(|change| change.revision)
        .collect();
    assert_eq!(got, [Revision(CHANGES)]);
    assert_eq!(cursor.position(), Revision(CHANGES + 5));
    assert_eq!(cursor.try_next().unwrap(), []);
}

/// Servers hold these across threads.
#[test]
fn everything_can_be_sent() {
    fn sent<T: Send>(_: &T) {}
    let mvcc = Mvcc::new(Revision(1));
    let mut cursor = mvcc
        .watch(Scope::everywhere(key("widgets", "root").resource), Revision(1))
        .unwrap();
    sent(&mvcc.latest());
    sent(&cursor.next());
    sent(&cursor);
}

/// A burst of writes must not eat the memory while nobody compacts: the oldest history goes, the
/// newest stays.
#[test]
fn history_is_bounded() {
    const LIMIT: usize = 1 << 20;
    let mvcc = Mvcc::with_history(Revision(1), LIMIT);
    let slow = mvcc
        .watch(Scope::everywhere(key("widgets", "root").resource), Revision(1))
        .unwrap();
    for n in 0..1000 {
        mvcc.apply(vec![put(2 + n, key("widgets", "root"), 10_000)]);
        assert!(mvcc.history_bytes() <= LIMIT + 20_000);
    }
    let floor = mvcc.floor();
    assert!(floor > Revision(800) && floor < mvcc.applied(), "{floor}");
    assert!(matches!(mvcc.at(Revision(2)), Err(Gone::Compacted { .. })));
    assert!(mvcc.at(floor).unwrap().get(&key("widgets", "root")).is_some());
    let mut slow = slow;
    assert!(slow.try_next().is_err());
}

/// Tenants that come and go leave nothing behind once their history is compacted.
#[test]
fn compaction_forgets_tenants_that_left() {
    let mvcc = Mvcc::new(Revision(1));
    let mut revision = 1;
    for n in 0..50 {
        let key = key("widgets", &format!("c{n}"));
        revision += 2;
        mvcc.apply(vec![
            put(revision - 1, key.clone(), 10),
            Commit {
                revision: Revision(revision),
                writes: vec![(key, None)],
            },
        ]);
    }
    assert!(mvcc.history_bytes() > 0);
    mvcc.compact(Revision(revision)).unwrap();
    assert_eq!(mvcc.history_bytes(), 0);
    assert_eq!(
        mvcc.latest().count(&Scope::everywhere(key("widgets", "c0").resource)),
        0
    );
}
