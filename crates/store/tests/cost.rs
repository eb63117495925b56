//! Bounds of cost: idle cursors while others write, and the history.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
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
    sent(&mvcc.latest().for_server(ServerWork::Tool));
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
    let scope = Scope::everywhere(key("widgets", "root").resource);
    let Err(Gone::Compacted { oldest, .. }) = mvcc.watch(scope.clone(), Revision(2)) else {
        panic!("the history was cut")
    };
    assert!(oldest > Revision(800) && oldest < mvcc.applied(), "{oldest}");
    let then = mvcc.at_revision(Revision(2)).unwrap();
    assert_eq!(then.get(&key("widgets", "root")), None);
    assert!(matches!(then.check_reads(), Err(Gone::Compacted { .. })));
    let then = mvcc.at_revision(oldest).unwrap();
    assert!(then.get(&key("widgets", "root")).is_some());
    assert_eq!((then.check_reads(), then.check_scope(&scope)), (Ok(()), Ok(())));
    let mut slow = slow;
    assert!(slow.try_next().is_err());
}

/// A cluster that replaces many objects pushes out its own history. That of another stays whole,
/// and so does that of another resource everywhere.
#[test]
fn a_flood_pushes_out_its_own_history() {
    const LIMIT: usize = 1 << 20;
    let mvcc = Mvcc::with_history(Revision(1), LIMIT);
    let of_cluster = |key: &ObjectKey| Scope::cluster(key.resource.clone(), key.cluster.clone());
    let (flood, mine, other) = (key("widgets", "eve"), key("widgets", "bob"), key("gadgets", "eve"));
    let mut next = 1;
    let mut write = |key: &ObjectKey| {
        next += 1;
        mvcc.apply(vec![put(next, key.clone(), 1_000)]);
        assert!(mvcc.history_bytes() <= LIMIT + 2_000);
        Revision(next)
    };
    write(&flood);
    write(&other);
    let start = write(&mine);
    let written = [write(&mine), write(&mine)];
    for n in 0..10_000 {
        write(&flood);
        if n % 1_000 == 0 {
            // A ring that comes and goes must not forget what it lost.
            drop(mvcc.watch(of_cluster(&flood), mvcc.applied()).unwrap());
        }
    }
    let pulled = mvcc.watch(of_cluster(&mine), start).unwrap().try_next().unwrap();
    assert_eq!(pulled.iter().map(|change| change.revision).collect::<Vec<_>>(), written);
    let then = mvcc.at_revision(start).unwrap().for_server(ServerWork::Tool);
    assert_eq!(then.get(&mine).map(|entry| entry.revision), Some(start));
    assert_eq!(then.count(&of_cluster(&mine)), 1);
    assert_eq!(then.check_reads(), Ok(()));
    assert!(mvcc.watch(of_cluster(&other), start).is_ok());
    assert!(mvcc.watch(Scope::everywhere(other.resource.clone()), start).is_ok());
    for scope in [
        of_cluster(&flood),
        Scope::everywhere(flood.resource.clone()),
        Scope::everything(),
    ] {
        assert!(matches!(mvcc.watch(scope.clone(), start), Err(Gone::Compacted { .. })));
        assert!(then.check_scope(&scope).is_err());
    }
    assert_eq!(then.get(&flood), None);
    assert!(then.check_reads().is_err());
    drop(then);
    mvcc.compact(mvcc.applied()).unwrap();
    assert_eq!(mvcc.history_bytes(), 0);
    assert!(mvcc.watch(Scope::everything(), mvcc.applied()).is_ok());
}

/// A flood that comes with its deletion leaves a scope that holds nothing and has no cursor. The
/// scope still knows what it lost.
#[test]
fn a_scope_that_became_empty_knows_what_it_lost() {
    let mvcc = Mvcc::with_history(Revision(1), 100_000);
    let (gone, flood) = (key("widgets", "eve"), key("gadgets", "eve"));
    mvcc.apply(vec![put(2, gone.clone(), 1)]);
    let deleted = vec![(gone.clone(), None)];
    mvcc.apply(vec![Commit {
        revision: Revision(3),
        writes: deleted,
    }]);
    for n in 0..1_000 {
        mvcc.apply(vec![put(4 + n, flood.clone(), 1_000)]);
    }
    let scope = Scope::cluster(gone.resource.clone(), gone.cluster.clone());
    assert!(matches!(
        mvcc.watch(scope.clone(), Revision(2)),
        Err(Gone::Compacted { .. })
    ));
    assert!(matches!(
        mvcc.watch(scope.clone(), Revision(1)),
        Err(Gone::Compacted { .. })
    ));
    assert!(mvcc.watch(scope, Revision(3)).is_ok());
}

/// Readers that follow the log closely lose nothing to a burst, however many share the history.
#[test]
fn the_newest_changes_stay_whoever_wrote_them() {
    const LIMIT: usize = 1 << 20;
    let mvcc = Mvcc::with_history(Revision(1), LIMIT);
    let mut everything = mvcc.watch(Scope::everything(), Revision(1)).unwrap();
    let mut next = 1;
    for n in 0..20_000 {
        next += 1;
        let cluster = if n % 10 == 0 {
            "eve".to_owned()
        } else {
            format!("c{}", n % 1_000)
        };
        mvcc.apply(vec![put(next, key("widgets", &cluster), 100)]);
        // 40 changes cost less than a sixteenth of the cap.
        if n % 40 == 0 {
            everything.try_next().expect("the newest changes are there");
        }
    }
}

/// A batch of the committer may write many more keys than one chunk of the trimming has.
#[test]
fn history_is_bounded_with_large_batches() {
    const LIMIT: usize = 1 << 20;
    const WRITES: usize = 5_000;
    let mvcc = Mvcc::with_history(Revision(1), LIMIT);
    for n in 0..5 {
        let object = put(1, key("widgets", "root"), 10).writes[0].1.clone();
        let write = |m: usize| (key("widgets", &format!("c{m}")), object.clone());
        mvcc.apply(vec![Commit {
            revision: Revision(2 + n),
            writes: (0..WRITES).map(write).collect(),
        }]);
        let bytes = mvcc.history_bytes();
        assert!(bytes <= LIMIT, "{bytes} bytes after batch {n}");
    }
}

/// One change may cost as much as thousands of those that it displaces.
#[test]
fn history_is_bounded_when_changes_grow() {
    const LIMIT: usize = 4 << 20;
    let mvcc = Mvcc::with_history(Revision(1), LIMIT);
    let mut revision = 1;
    let mut next = || {
        revision += 1;
        revision
    };
    for _ in 0..10_000 {
        mvcc.apply(vec![put(next(), key("widgets", "small"), 1)]);
    }
    for _ in 0..10 {
        mvcc.apply(vec![put(next(), key("widgets", "large"), 1 << 20)]);
        let bytes = mvcc.history_bytes();
        assert!(bytes <= LIMIT, "{bytes} bytes at {}", mvcc.applied());
    }
}

/// A snapshot keeps its history beyond the cap. Once it is dropped the commits that follow trim
/// what it kept, a bounded part each.
#[test]
fn history_that_a_snapshot_kept_is_trimmed_by_later_commits() {
    const LIMIT: usize = 256 << 10;
    let mvcc = Mvcc::with_history(Revision(1), LIMIT);
    let pin = mvcc.latest().for_server(ServerWork::Tool);
    let mut revision = 1;
    let mut write = || {
        revision += 1;
        mvcc.apply(vec![put(revision, key("widgets", "root"), 10)]);
        mvcc.history_bytes()
    };
    let kept = (0..5_000).map(|_| write()).last().unwrap();
    assert!(kept > 4 * LIMIT, "{kept}");
    assert_eq!(pin.get(&key("widgets", "root")), None);
    drop(pin);
    assert!(write() > LIMIT, "one commit trims a part");
    let last = (0..20).map(|_| write()).last().unwrap();
    assert!(last <= LIMIT, "{last}");
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
        mvcc.latest()
            .for_server(ServerWork::Tool)
            .count(&Scope::everywhere(key("widgets", "c0").resource)),
        0
    );
}
