//! Throughput of the embedded store in durable creates per second:
//! `cargo run --release -p insula-store --example load [dir]`.
#![allow(clippy::print_stdout, reason = "it prints figures")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use insula_api::{ClusterName, Object, ObjectKey, ResourceId};
use insula_store::{
    Guard, Store, Txn, Write,
    embedded::{EmbeddedStore, Options},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const CREATES: u64 = 50_000;

fn create(n: u64) -> Txn {
    let name = format!("widget-{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let cluster = ClusterName::parse(&format!("c{}", n % 100)).expect("a name");
    let key = ObjectKey::cluster_scoped(ResourceId::local("example.io", "widgets"), cluster, &name);
    let value = serde_json::json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"pad": "x".repeat(1900)}});
    let object = Arc::new(Object::new(&value, None).expect("an object"));
    Txn::one(Guard::Absent(key.clone()), Write::Put(key, object))
}

async fn client(store: &EmbeddedStore, client: u64, clients: u64, base: u64) -> Vec<Duration> {
    let mut times = Vec::new();
    for n in (client..CREATES / 2).step_by(clients as usize) {
        let txn = create(base + n);
        let start = Instant::now();
        store.commit(txn).await.expect("commits");
        times.push(start.elapsed());
    }
    times
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let given = std::env::args().nth(1);
    let fresh = std::env::temp_dir().join(format!("insula-load-{}", std::process::id()));
    let dir = given.clone().map_or(fresh, Into::into);
    let store = Arc::new(EmbeddedStore::open(&dir, Options::default()).expect("opens"));
    let mut base = store.latest().revision().0 * CREATES;
    for clients in [64, 256] {
        let start = Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move { client(&store, n, clients, base).await })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await.expect("a client"));
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{clients} clients: {rate:.0} durable 2 kB creates/s, p50 {p50:?}, p99 {p99:?}");
        base += CREATES;
    }
    store.close().await;
    drop(store);
    let start = Instant::now();
    let store = EmbeddedStore::open(&dir, Options::default()).expect("opens again");
    println!(
        "reopened at revision {} in {:?}",
        store.latest().revision(),
        start.elapsed()
    );
    if given.is_none() {
        std::fs::remove_dir_all(&dir).expect("removes its own directory");
    }
}
