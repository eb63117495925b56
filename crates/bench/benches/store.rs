//! Cost of the store: MVCC in memory, and durable commits of one writer and of many.

use divan::Bencher;
use futures_util::future::join_all;
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Scope};
use insula_bench::fixtures::widget;
use insula_meter::ServerWork;
use insula_store::{
    Guard, MemoryStore, Store, Txn, Write,
    embedded::{EmbeddedStore, Options},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::runtime::{Builder, Runtime};

const CLUSTERS: u64 = 100;
const OBJECTS: u64 = 10_000;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn widgets() -> ResourceId {
    ResourceId::local("bench.example.io", "widgets")
}

fn cluster(n: u64) -> ClusterName {
    ClusterName::parse(&format!("c{n}")).expect("a cluster name")
}

fn key(n: u64) -> ObjectKey {
    let name = format!("widget-{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    ObjectKey::cluster_scoped(widgets(), cluster(n % CLUSTERS), &name)
}

fn object() -> Arc<Object> {
    Arc::new(Object::new(&widget("a", "v1", 0), None).expect("an object"))
}

fn create(n: u64, object: &Arc<Object>) -> Txn {
    let key = key(n);
    Txn::one(Guard::Absent(key.clone()), Write::Put(key, object.clone()))
}

fn filled(runtime: &Runtime, count: u64) -> MemoryStore {
    let (store, object) = (MemoryStore::new(), object());
    runtime.block_on(async {
        for n in 0..count {
            store.commit(create(n, &object)).await.expect("commits");
        }
    });
    store
}

/// One writer: every commit waits for the disk by itself.
#[divan::bench(sample_count = 300, sample_size = 1)]
fn durable_create_at_1(bencher: Bencher<'_, '_>) {
    let (runtime, next, object) = (runtime(), AtomicU64::new(0), object());
    let dir = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(dir.path(), Options::default()).expect("opens");
    bencher.bench_local(|| {
        let txn = create(next.fetch_add(1, Ordering::Relaxed), &object);
        runtime.block_on(store.commit(txn)).expect("commits")
    });
    runtime.block_on(store.close());
}

/// 64 writers at once, one commit each: the effect of group commit on the same disk.
#[divan::bench(sample_count = 200, sample_size = 1)]
fn durable_create_64_at_once(bencher: Bencher<'_, '_>) {
    let (runtime, next, object) = (runtime(), AtomicU64::new(0), object());
    let dir = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(dir.path(), Options::default()).expect("opens");
    bencher
        .counter(divan::counter::ItemsCount::new(64_usize))
        .bench_local(|| {
            let commits = (0..64).map(|_| store.commit(create(next.fetch_add(1, Ordering::Relaxed), &object)));
            for done in runtime.block_on(join_all(commits)) {
                done.expect("commits");
            }
        });
    runtime.block_on(store.close());
}

#[divan::bench]
fn create_in_memory(bencher: Bencher<'_, '_>) {
    let (runtime, next, object) = (runtime(), AtomicU64::new(0), object());
    let store = MemoryStore::new();
    bencher.bench_local(|| {
        let txn = create(next.fetch_add(1, Ordering::Relaxed), &object);
        runtime.block_on(store.commit(txn)).expect("commits")
    });
}

#[divan::bench(args = [100, 10_000, 100_000])]
fn get(bencher: Bencher<'_, '_>, objects: u64) {
    let store = filled(&runtime(), objects);
    let key = key(objects / 2);
    bencher.bench_local(|| store.latest().get(&key).expect("is there"));
}

/// A list of one of a hundred clusters.
#[divan::bench]
fn range_of_100_in_10_000(bencher: Bencher<'_, '_>) {
    let store = filled(&runtime(), OBJECTS);
    let scope = Scope::cluster(widgets(), cluster(7));
    bencher.bench_local(|| {
        store
            .latest()
            .for_server(ServerWork::Tool)
            .range(&scope, None, usize::MAX)
    });
}

#[divan::bench]
fn range_of_10_000(bencher: Bencher<'_, '_>) {
    let store = filled(&runtime(), OBJECTS);
    let scope = Scope::everywhere(widgets());
    bencher.bench_local(|| {
        store
            .latest()
            .for_server(ServerWork::Tool)
            .range(&scope, None, usize::MAX)
    });
}

/// One commit that every watcher receives.
#[divan::bench(args = [1, 100, 1_000])]
fn commit_seen_by_watchers(bencher: Bencher<'_, '_>, watchers: usize) {
    let (runtime, next, object) = (runtime(), AtomicU64::new(0), object());
    let store = MemoryStore::new();
    let scope = Scope::everywhere(widgets());
    let from = store.latest().revision();
    let mut cursors: Vec<_> = (0..watchers)
        .map(|_| store.watch(scope.clone(), from).expect("watches"))
        .collect();
    bencher.bench_local(|| {
        let txn = create(next.fetch_add(1, Ordering::Relaxed), &object);
        runtime.block_on(async {
            store.commit(txn).await.expect("commits");
            for cursor in &mut cursors {
                cursor.next().await.expect("has it");
            }
        });
    });
}

/// A commit outside of the scope of all watchers: the time must not depend on their number.
#[divan::bench(args = [1, 100, 1_000])]
fn commit_past_watchers_of_other_clusters(bencher: Bencher<'_, '_>, watchers: u64) {
    let (runtime, next, object) = (runtime(), AtomicU64::new(0), object());
    let store = MemoryStore::new();
    let from = store.latest().revision();
    let watch = |n| {
        store
            .watch(Scope::cluster(widgets(), cluster(CLUSTERS + n)), from)
            .expect("watches")
    };
    let cursors: Vec<_> = (0..watchers).map(watch).collect();
    bencher.bench_local(|| {
        let txn = create(next.fetch_add(1, Ordering::Relaxed), &object);
        runtime.block_on(store.commit(txn)).expect("commits")
    });
    drop(cursors);
}
