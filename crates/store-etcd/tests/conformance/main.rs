//! Conformance and fault tests on each real etcd that is installed: those in `INSULA_ETCD`,
//! separated by colons, or else `etcd` on the PATH or /usr/bin/etcd.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a skipped test must say so")]
#![allow(
    clippy::disallowed_methods,
    reason = "the test is the outside: it reads the environment and spawns the driver"
)]

mod etcd;
mod layouts;
mod wire;

use etcd::{Etcd, instance};
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{Guard, Store, Txn, Write, conformance};
use insula_store_etcd::{EtcdStore, Options};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use wire::{Traffic, Wire};

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(ResourceId::local("example.io", "widgets"), ClusterName::root(), name)
}

fn everything() -> Scope {
    Scope::everywhere(key("").resource)
}

fn object(name: &str, pad: usize) -> Arc<Object> {
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"pad": "x".repeat(pad)}});
    Arc::new(Object::new(&value, None).unwrap())
}

fn put(name: &str) -> Txn {
    Txn {
        guards: vec![],
        writes: vec![Write::Put(key(name), object(name, 1))],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_the_contract() {
    for etcd in Etcd::each() {
        conformance::run(async || etcd.store(&etcd.fresh_prefix()).await).await;
        // As an earlier program left it, before the slots begin.
        conformance::run(async || etcd.unmarked(&etcd.fresh_prefix()).await as Arc<dyn Store>).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_history() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        conformance::a_restart_keeps_history(async || etcd.store(&prefix).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_see_one_order() {
    for etcd in Etcd::each() {
        let (one, two) = (etcd.store("/shared").await, etcd.store("/shared/").await);
        let mut cursors = [&one, &two].map(|s| s.watch(everything(), s.latest().revision()).unwrap());
        let write = async |store: &Arc<dyn Store>, side: &str| {
            for n in 0..50 {
                store.commit(put(&format!("{side}{n}"))).await.unwrap();
            }
        };
        futures_util::future::join(write(&one, "a"), write(&two, "b")).await;
        let mut seen = Vec::new();
        for cursor in &mut cursors {
            let mut changes = Vec::new();
            while changes.len() < 100 {
                changes.extend(cursor.next().await.unwrap());
            }
            seen.push(
                changes
                    .iter()
                    .map(|change| (change.revision, change.key.clone()))
                    .collect::<Vec<_>>(),
            );
        }
        assert_eq!(seen[0], seen[1]);
        // A server sees the commits that the other one acknowledged when it reads the latest state.
        for n in 0..20 {
            let revision = one.commit(put(&format!("c{n}"))).await.unwrap();
            let view = two.snapshot(Revision(0)).await.unwrap();
            assert_eq!(
                view.get(&key(&format!("c{n}"))).map(|entry| entry.revision),
                Some(revision)
            );
        }
        // A guard on one server holds against writes of the other.
        assert!(
            two.commit(Txn::one(Guard::Absent(key("a1")), Write::Delete(key("a2"))))
                .await
                .is_err()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_prefix_keeps_up_with_a_busy_neighbour() {
    for etcd in Etcd::each() {
        let (quiet, busy) = (etcd.store("/quiet").await, etcd.store("/busy").await);
        let cursor = quiet.watch(everything(), quiet.latest().revision()).unwrap();
        for n in 0..3 {
            let foreign = busy.commit(put(&format!("w{n}"))).await.unwrap();
            assert!(quiet.snapshot(Revision(0)).await.unwrap().revision() >= foreign);
            assert!(cursor.position() >= foreign);
        }
        assert_eq!(quiet.latest().for_server(ServerWork::Tool).count(&everything()), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_etcd_is_followed_on() {
    for mut etcd in Etcd::each() {
        let store = etcd.store("/restart").await;
        let first = store.commit(put("before")).await.unwrap();
        let mut cursor = store.watch(everything(), first).unwrap();
        etcd.kill();
        let lost = store.commit(put("while-down")).await;
        assert!(lost.is_err(), "{lost:?}");
        for _ in 0..100 {
            if store.ready().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(store.ready().await.is_err(), "a lost etcd is told");
        assert_eq!(store.health(), Ok(()), "another start would not help");
        assert!(store.latest().get(&key("before")).is_some(), "reads go on");
        etcd.restart();
        let mut again = store.commit(put("after")).await;
        for _ in 0..100 {
            if again.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            again = store.commit(put("after")).await;
        }
        let revision = again.unwrap();
        assert_eq!(store.ready().await, Ok(()));
        let mut last = Revision(0);
        while last < revision {
            last = cursor.next().await.unwrap().last().unwrap().revision;
        }
    }
}

/// A store whose first member is behind a wire, and whose second is the same etcd.
async fn behind(wire: &Wire, etcd: &Etcd, prefix: &str) -> Arc<dyn Store> {
    let options = Options {
        attempt_timeout: Duration::from_secs(1),
        // Even: the first endpoint comes first.
        ..Options::new(1 << 32)
    };
    let endpoints = [wire.endpoint.clone(), etcd.endpoint.clone()];
    let (store, driver) = EtcdStore::connect(&endpoints, prefix, options).await.unwrap();
    tokio::spawn(driver);
    Arc::new(store)
}

/// An event that never arrives would be missing until the next start, while all others move the
/// copy on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_event_ends_the_store() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        let writer = etcd.store(&prefix).await;
        writer.commit(create("first")).await.unwrap();
        let wire = Wire::to(&etcd.endpoint).await;
        let options = Options {
            audit_interval: Duration::from_millis(100),
            ..Options::new(1 << 32)
        };
        let endpoint = std::slice::from_ref(&wire.endpoint);
        let (_store, driver) = EtcdStore::connect(endpoint, &prefix, options).await.unwrap();
        let mut driver = tokio::spawn(driver);
        // While every event arrives, it finds nothing.
        for n in 0..200 {
            writer.commit(create(&format!("w{n}"))).await.unwrap();
            writer.commit(put(&format!("w{}", n / 2))).await.unwrap();
            let gone = key(&format!("w{}", n / 3));
            let gone = Txn::one(Guard::Exists(gone.clone()), Write::Delete(gone));
            drop(writer.commit(gone).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!driver.is_finished());
        wire.lose(b"vanished");
        writer.commit(create("vanished")).await.unwrap();
        let written = async {
            loop {
                tokio::select! {
                    ended = &mut driver => return ended,
                    () = tokio::time::sleep(Duration::from_millis(100)) => drop(writer.commit(put("last")).await),
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), written).await;
        let reason = ended.expect("the difference is found").unwrap().unwrap_err();
        assert!(reason.contains("differs") && reason.contains("in etcd"), "{reason}");
    }
}

fn create(name: &str) -> Txn {
    Txn::one(Guard::Absent(key(name)), Write::Put(key(name), object(name, 1)))
}

/// If the commit were sent again, it would conflict with itself; if it failed, it would be an error
/// for a write that happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_acknowledged_once() {
    for etcd in Etcd::each() {
        let other = etcd.store("/mute").await;
        let wire = Wire::to(&etcd.endpoint).await;
        let store = behind(&wire, &etcd, "/mute").await;
        store.commit(create("first")).await.unwrap();
        wire.set(Traffic::Mute);
        let commits = (0..8).map(|n| {
            let store = store.clone();
            async move { store.commit(create(&format!("w{n}"))).await.unwrap() }
        });
        let revisions = futures_util::future::join_all(commits).await;
        let view = other.snapshot(Revision(0)).await.unwrap();
        for (n, revision) in revisions.iter().enumerate() {
            let found = view.get(&key(&format!("w{n}"))).unwrap();
            assert_eq!((found.revision, found.created), (*revision, *revision));
        }
    }
}

/// A transaction is held back on the wire and sent again over another connection, and its object is
/// deleted; then the first one arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_arrives_late_does_not_happen() {
    for etcd in Etcd::each() {
        let wire = Wire::to(&etcd.endpoint).await;
        let (store, commit) = loop {
            let store = behind(&wire, &etcd, "/late").await;
            store.commit(put("first")).await.unwrap();
            wire.set(Traffic::Held);
            let sender = store.clone();
            let commit = tokio::spawn(async move { sender.commit(create("twice")).await });
            while !wire.holds(b"twice") && !commit.is_finished() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if !commit.is_finished() {
                break (store, commit);
            }
            // On a busy machine the store may have left the wire for the other endpoint.
            wire.set(Traffic::Open);
            store.close().await;
            let delete = Write::Delete(key("twice"));
            etcd.store("/late")
                .await
                .commit(Txn {
                    guards: vec![],
                    writes: vec![delete],
                })
                .await
                .unwrap();
        };
        // The rest of the request arrives, but not its cancellation.
        tokio::time::sleep(Duration::from_millis(200)).await;
        wire.set(Traffic::Mute);
        commit.await.unwrap().unwrap();
        let delete = Txn::one(Guard::Exists(key("twice")), Write::Delete(key("twice")));
        let gone = store.commit(delete).await.unwrap();
        wire.set(Traffic::Open);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let view = store.snapshot(gone).await.unwrap();
        assert!(view.get(&key("twice")).is_none(), "it came back");
    }
}

/// While a server is disconnected, another one writes and compacts. The missed changes are lost,
/// and watches report that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_longer_than_history_reloads() {
    for etcd in Etcd::each() {
        let other = etcd.store("/reload").await;
        let wire = Wire::to(&etcd.endpoint).await;
        let (cut_off, driver) = EtcdStore::connect(
            std::slice::from_ref(&wire.endpoint),
            "/reload",
            Options::new(instance()),
        )
        .await
        .unwrap();
        tokio::spawn(driver);
        let first = cut_off.commit(put("kept")).await.unwrap();
        let second = cut_off.commit(put("deleted")).await.unwrap();
        let mut cursor = cut_off.watch(everything(), second).unwrap();
        let idle = Scope::everywhere(ResourceId::local("example.io", "gadgets"));
        let mut idle = cut_off.watch(idle, second).unwrap();
        let held = cut_off.at_revision(second).unwrap().for_server(ServerWork::Tool);
        wire.set(Traffic::Cut);
        other
            .commit(Txn {
                guards: vec![],
                writes: vec![Write::Delete(key("deleted"))],
            })
            .await
            .unwrap();
        let last = other.commit(put("new")).await.unwrap();
        other.compact(last).await.unwrap();
        assert!(cut_off.latest().get(&key("new")).is_none(), "it is cut off");
        wire.set(Traffic::Open);
        let mut view = cut_off.latest();
        while view.revision() < last {
            // Fails until the wire is open again.
            view = cut_off.snapshot(last).await.unwrap_or(view);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let names = |view: &insula_store::Snapshot| -> Vec<_> {
            view.range(&everything(), None, 10)
                .iter()
                .map(|e| (e.key.name.to_string(), e.revision, e.created))
                .collect()
        };
        let view = view.for_server(ServerWork::Tool);
        assert_eq!(
            names(&view),
            [("kept".into(), first, first), ("new".into(), last, last)]
        );
        assert_eq!(names(&held).len(), 2, "a held view is what it was");
        assert!(cut_off.at_revision(second).is_err());
        assert!(
            cursor.next().await.is_err() && idle.next().await.is_err(),
            "nobody can tell what they missed"
        );
        let next = cut_off.commit(put("next")).await.unwrap();
        let mut fresh = cut_off.watch(everything(), view.revision()).unwrap();
        assert_eq!(fresh.next().await.unwrap()[0].revision, next);
    }
}

/// More than a message of etcd's usual 4 MiB, and more than one page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_store_loads_in_pages() {
    for etcd in Etcd::each() {
        let store = etcd.store("/large").await;
        for chunk in 0..80 {
            let names: Vec<String> = (0..100).map(|n| format!("w{chunk:03}-{n:03}")).collect();
            let writes = names
                .iter()
                .map(|name| Write::Put(key(name), object(name, 2000)))
                .collect();
            store.commit(Txn { guards: vec![], writes }).await.unwrap();
        }
        let other = etcd.store("/large").await;
        assert_eq!(
            other
                .latest()
                .for_server(ServerWork::Tool)
                .range(&everything(), None, usize::MAX),
            store
                .latest()
                .for_server(ServerWork::Tool)
                .range(&everything(), None, usize::MAX)
        );
    }
}

/// At 64 in flight each read of etcd's revision serves many, and all of them see what was
/// acknowledged before they asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_read_of_the_revision_serves_many() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        let (writer, reader) = (etcd.store(&prefix).await, etcd.store(&prefix).await);
        let acknowledged = Arc::new(AtomicU64::new(0));
        let before = etcd.handled("Range");
        let readers = (0..64).map(|_| {
            let (reader, acknowledged) = (reader.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    let written = acknowledged.load(Ordering::SeqCst);
                    let seen = reader.snapshot(Revision(0)).await.unwrap().revision();
                    assert!(seen.0 >= written, "{seen:?} after {written}");
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        for n in 0..20 {
            let revision = writer.commit(put(&format!("o{n}"))).await.unwrap();
            acknowledged.store(revision.0, Ordering::SeqCst);
        }
        for reader in readers {
            reader.await.unwrap();
        }
        let reads = etcd.handled("Range") - before;
        assert!(reads > 0 && reads < 64 * 50 / 4, "{reads} reads for 3,200 snapshots");
        println!("{reads} reads of etcd for 3,200 snapshots");
    }
}
