//! The slots begin on a store that is in use, and its objects are moved.

use crate::{
    create,
    etcd::Etcd,
    everything, key, object, put,
    wire::{Traffic, Wire},
};
use etcd_client::{Client, GetOptions};
use insula_api::{ClusterName, ObjectKey, Revision};
use insula_meter::ServerWork;
use insula_store::{CommitError, Cursor, Entry, Guard, Store, TXN_OPS_MAX, Txn, Write};
use insula_store_etcd::{EtcdStore, Options};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Objects of each writer.
const OWN: usize = 60;
const WRITERS: usize = 8;

/// Key of an object in one of many clusters.
fn spread(name: &str) -> ObjectKey {
    let digits = name.bytes().map(usize::from).sum::<usize>();
    ObjectKey {
        cluster: ClusterName::parse(&format!("{:03}tenant", digits % 97)).unwrap(),
        ..key(name)
    }
}

fn state(store: &dyn Store) -> Vec<Entry> {
    store
        .latest()
        .for_server(ServerWork::Tool)
        .range(&everything(), None, usize::MAX)
}

/// Returns the keys of objects in each layout in etcd.
async fn layouts(etcd: &Etcd, prefix: &str) -> [Vec<String>; 2] {
    let mut kv = Client::connect([&etcd.endpoint], None).await.unwrap().kv_client();
    let mut found = Vec::new();
    for layout in ["objects", "slots"] {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let got = kv.get(format!("{prefix}/{layout}/"), Some(options)).await.unwrap();
        let keys = got
            .kvs()
            .iter()
            .map(|kv| String::from_utf8_lossy(kv.key()).into_owned());
        found.push(keys.filter(|key| !key.contains("/!")).collect::<Vec<_>>());
    }
    found.try_into().unwrap()
}

async fn moved(etcd: &Etcd, prefix: &str) {
    for _ in 0..400 {
        if layouts(etcd, prefix).await[0].is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("objects stay where they were");
}

/// Writes its own objects until `stop`, each decided on what it reads, and returns the size that
/// each is to have; 0 for a deleted one.
async fn write(store: Arc<EtcdStore>, writer: usize, stop: Arc<AtomicBool>) -> BTreeMap<ObjectKey, usize> {
    let mut sizes = BTreeMap::new();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            return sizes;
        }
        let key = spread(&format!("w{writer}-{}", n * 7 % OWN));
        loop {
            let there = store.snapshot(Revision(0)).await.unwrap().get(&key);
            let txn = match &there {
                None => Txn::one(
                    Guard::Absent(key.clone()),
                    Write::Put(key.clone(), object(&key.name, n)),
                ),
                Some(entry) => {
                    let write = match n % 5 {
                        0 => Write::Delete(key.clone()),
                        _ => Write::Put(key.clone(), object(&key.name, n)),
                    };
                    Txn::one(Guard::At(key.clone(), entry.revision), write)
                }
            };
            let is_deletion = matches!(txn.writes[..], [Write::Delete(_)]);
            match store.commit(txn).await {
                Ok(_) => {
                    sizes.insert(key, if is_deletion { 0 } else { n + 1 });
                    break;
                }
                // It was moved meanwhile, which is its only other change.
                Err(CommitError::Conflict { found, .. }) => assert!(found.is_some() == there.is_some(), "{key:?}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    sizes
}

/// Marks a store again and again: the answers are older than what the watch has shown by then.
async fn mark(store: &EtcdStore) {
    for _ in 0..300 {
        store.mark_format().await.unwrap();
    }
}

/// Follows a store, and returns what its objects are by the events alone.
async fn follow(
    mut cursor: Cursor,
    upto: Revision,
    mut known: BTreeMap<ObjectKey, Revision>,
) -> BTreeMap<ObjectKey, Revision> {
    let mut last = Revision(0);
    while cursor.position() < upto {
        let Ok(changes) = tokio::time::timeout(Duration::from_secs(10), cursor.next()).await else {
            break;
        };
        for change in changes.unwrap() {
            assert!(change.revision >= last, "{:?} after {last}", change.revision);
            last = change.revision;
            match &change.new {
                Some(_) => drop(known.insert(change.key.clone(), change.revision)),
                None => assert!(known.remove(&change.key).is_some(), "{:?} was not there", change.key),
            }
        }
    }
    known
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_moved_to_slots() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        let (one, two) = (etcd.unmarked(&prefix).await, etcd.unmarked(&prefix).await);
        for chunk in 0..20 {
            let names = (0..100).map(|n| spread(&format!("still-{chunk}-{n}")));
            let writes = names
                .map(|key| Write::Put(key.clone(), object(&key.name, 500)))
                .collect();
            one.commit(Txn { guards: vec![], writes }).await.unwrap();
        }
        let begin = two.snapshot(Revision(0)).await.unwrap().for_server(ServerWork::Tool);
        let entries = begin.range(&everything(), None, usize::MAX);
        let known: BTreeMap<_, _> = entries
            .iter()
            .map(|entry| (entry.key.clone(), entry.revision))
            .collect();
        let cursor = two.watch(everything(), begin.revision()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..WRITERS).map(|writer| {
            let store = if writer % 2 == 0 { &one } else { &two };
            tokio::spawn(write(store.clone(), writer, stop.clone()))
        });
        let writers: Vec<_> = writers.collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(layouts(&etcd, &prefix).await[1], Vec::<String>::new());
        mark(&one).await;
        moved(&etcd, &prefix).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.store(true, Ordering::SeqCst);
        let mut wanted: BTreeMap<ObjectKey, usize> = entries.iter().map(|entry| (entry.key.clone(), 501)).collect();
        for writer in writers {
            wanted.extend(writer.await.unwrap());
        }
        wanted.retain(|_, size| *size > 0);

        let late = etcd.store(&prefix).await;
        let last = late.latest().revision();
        two.snapshot(last).await.unwrap();
        let expected = |size: usize| object("", size - 1).size();
        let found = state(&*late);
        for entry in &found {
            let size = entry.object.size() - entry.key.name.len();
            assert_eq!(
                Some(size),
                wanted.get(&entry.key).map(|size| expected(*size)),
                "{:?}",
                entry.key
            );
        }
        assert_eq!(found.len(), wanted.len());
        let before: BTreeMap<_, _> = entries.iter().map(|entry| (&entry.key, entry.created)).collect();
        for entry in found.iter().filter(|entry| entry.key.name.starts_with("still")) {
            assert_eq!(
                Some(&entry.created),
                before.get(&entry.key),
                "a moved object is as old as it was"
            );
        }
        for other in [&one, &two] {
            other.snapshot(last).await.unwrap();
            assert_eq!(state(&**other), found, "all stores read the same");
        }
        let [earlier, slots] = layouts(&etcd, &prefix).await;
        assert_eq!((earlier.len(), slots.len()), (0, found.len()));
        let shown = follow(cursor, last, known).await;
        let read = found.iter().map(|entry| (entry.key.clone(), entry.revision)).collect();
        assert_eq!(shown, read, "and a watch showed it");
    }
}

/// Leaving the earlier layout takes two operations of etcd, which has a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_transaction_fits_while_objects_are_moved() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        let store = etcd.unmarked(&prefix).await;
        let names: Vec<String> = (0..TXN_OPS_MAX).map(|n| format!("w{n}")).collect();
        let puts = |pad| {
            names
                .iter()
                .map(|name| Write::Put(key(name), object(name, pad)))
                .collect::<Vec<_>>()
        };
        store
            .commit(Txn {
                guards: vec![],
                writes: puts(1),
            })
            .await
            .unwrap();
        store.mark_format().await.unwrap();
        let guards = names.iter().map(|name| Guard::Exists(key(name))).collect();
        store
            .commit(Txn {
                guards,
                writes: puts(2),
            })
            .await
            .unwrap();
        let found = state(&*store);
        assert!(found.iter().all(|entry| entry.created < entry.revision) && found.len() == TXN_OPS_MAX);
        let writes = names.iter().map(|name| Write::Delete(key(name))).collect();
        let guards = found
            .iter()
            .map(|entry| Guard::At(entry.key.clone(), entry.revision))
            .collect();
        store.commit(Txn { guards, writes }).await.unwrap();
        assert_eq!(state(&*store), []);
        assert_eq!(layouts(&etcd, &prefix).await, [const { Vec::<String>::new() }; 2]);
    }
}

/// A transaction of the earlier layout is held back on the wire, its server ends, and the slots
/// begin: then it arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_the_earlier_layout_does_not_happen_later() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        let other = etcd.unmarked(&prefix).await;
        let wire = Wire::to(&etcd.endpoint).await;
        let options = Options::new(1 << 32);
        let endpoint = std::slice::from_ref(&wire.endpoint);
        let (store, driver) = EtcdStore::connect(endpoint, &prefix, options).await.unwrap();
        let driver = tokio::spawn(driver);
        let store = Arc::new(store);
        store.commit(create("first")).await.unwrap();
        wire.set(Traffic::Held);
        let commit = tokio::spawn(async move { store.commit(create("late")).await });
        while !wire.holds(b"late") {
            assert!(!commit.is_finished(), "it is on its way");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for task in [driver.abort_handle(), commit.abort_handle()] {
            task.abort();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        other.mark_format().await.unwrap();
        wire.set(Traffic::Open);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!wire.holds(b"late"), "it has arrived");
        moved(&etcd, &prefix).await;
        let view = other.snapshot(Revision(0)).await.unwrap();
        assert!(view.get(&key("late")).is_none() && view.get(&key("first")).is_some());
        assert_eq!(layouts(&etcd, &prefix).await[1].len(), 1);
    }
}

/// A server of an earlier program that has not seen the begin of the slots writes once more: a new
/// object is moved, and one beside an object of the present programs is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_program_writes_late_is_moved() {
    for etcd in Etcd::each() {
        let prefix = etcd.fresh_prefix();
        let store = etcd.store(&prefix).await;
        store.commit(create("decided")).await.unwrap();
        let mut kv = Client::connect([&etcd.endpoint], None).await.unwrap().kv_client();
        for name in ["decided", "new"] {
            let earlier = [format!("{prefix}/objects/").as_bytes(), &key(name).encode()].concat();
            kv.put(earlier, object(name, 77).to_stored(), None).await.unwrap();
        }
        moved(&etcd, &prefix).await;
        let view = store.snapshot(Revision(0)).await.unwrap();
        let size = |name: &str| view.get(&key(name)).map(|entry| entry.object.size());
        assert_eq!(size("decided"), Some(object("decided", 1).size()));
        assert_eq!(size("new"), Some(object("new", 77).size()));
        store.commit(put("new")).await.unwrap();
        assert_eq!(state(&*etcd.store(&prefix).await), state(&*store));
    }
}

/// Copied keys have new revisions, in the order of the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_etcd_is_used_on() {
    for etcd in Etcd::each() {
        let (prefix, copy) = (etcd.fresh_prefix(), etcd.fresh_prefix());
        let original = etcd.store(&prefix).await;
        for n in 0..20 {
            original.commit(create(&format!("w{n}"))).await.unwrap();
        }
        original.commit(put("w7")).await.unwrap();
        let mut kv = Client::connect([&etcd.endpoint], None).await.unwrap().kv_client();
        let all = kv.get(&*prefix, Some(GetOptions::new().with_prefix())).await.unwrap();
        for pair in all
            .kvs()
            .iter()
            .filter(|pair| !pair.key().windows(9).any(|part| part == b"/sessions"))
        {
            let key = String::from_utf8_lossy(pair.key()).replacen(&prefix, &copy, 1);
            kv.put(key, pair.value(), None).await.unwrap();
        }
        let stores = [etcd.store(&copy).await, etcd.store(&copy).await];
        for (n, store) in (0..20).zip(stores.iter().cycle()) {
            let key = key(&format!("w{n}"));
            let entry = store.snapshot(Revision(0)).await.unwrap().get(&key).unwrap();
            let guard = Guard::At(key.clone(), entry.revision);
            store
                .commit(Txn::one(guard, Write::Put(key.clone(), object(&key.name, 3))))
                .await
                .unwrap();
            let written = store.snapshot(Revision(0)).await.unwrap().get(&key).unwrap();
            assert_eq!(written.created, entry.created);
        }
        let late = etcd.store(&copy).await;
        assert_eq!(state(&*late), state(&*stores[0]));
    }
}
