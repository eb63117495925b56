//! kill -9 in the middle of writes: a child process (this test binary again) commits numbered
//! transactions of several keys and says which were acknowledged; the parent kills it at a random
//! moment, opens what is left and counts.
#![allow(clippy::print_stdout, reason = "the child's way to say what was acknowledged")]
#![allow(
    clippy::disallowed_methods,
    reason = "parent and child talk through the environment; the seed comes from the clock"
)]

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{
    Guard, Store, Txn, Write,
    embedded::{EmbeddedStore, Options},
};
use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

const ROUNDS: u64 = 12;
const KEYS: u64 = 4;
const CLIENTS: u64 = 8;
/// Numbers of one round; rounds never share one.
const ROUND: u64 = 1_000_000;

fn key(txn: u64, part: u64) -> ObjectKey {
    let resource = ResourceId::local("example.io", ["bundles", "resourceroutes"][part as usize % 2]);
    ObjectKey::cluster_scoped(resource, ClusterName::root(), &format!("{txn}.{part}"))
}

fn transaction(txn: u64) -> Txn {
    let writes = (0..KEYS).map(|part| {
        let name = format!("{txn}.{part}");
        let value = serde_json::json!({"apiVersion": "v1", "kind": "Part", "metadata": {"name": name},
            "spec": {"txn": txn, "pad": "x".repeat(300)}});
        Write::Put(key(txn, part), Arc::new(Object::new(&value, None).unwrap()))
    });
    Txn {
        guards: vec![Guard::Absent(key(txn, 0))],
        writes: writes.collect(),
    }
}

/// The child. Runs until it is killed.
#[test]
#[ignore = "it is run by killed_writers_lose_nothing"]
fn writer() {
    let Ok(dir) = std::env::var("INSULA_CRASH_DIR") else {
        return;
    };
    let start: u64 = std::env::var("INSULA_CRASH_START").unwrap().parse().unwrap();
    let store = EmbeddedStore::open(Path::new(&dir), Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let client = async |client: u64| {
        for n in 0.. {
            let txn = start + n * CLIENTS + client;
            let revision = store.commit(transaction(txn)).await.unwrap();
            println!("ack {txn} {revision}");
        }
    };
    runtime.block_on(futures_util::future::join_all((0..CLIENTS).map(client)));
}

fn write_until_killed(dir: &Path, round: u64, after: Duration) -> HashMap<u64, Revision> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writer", "--ignored", "--nocapture"])
        .env("INSULA_CRASH_DIR", dir)
        .env("INSULA_CRASH_START", (round * ROUND).to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let mut lines = lines.lines().map_while(Result::ok).filter(|line| line.contains("ack "));
    let first = lines.next().expect("the child writes");
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let mut acknowledged = HashMap::new();
    for line in std::iter::once(first).chain(lines) {
        // The harness writes before the first one on its line; the last may be cut off.
        let words: Vec<&str> = line.split("ack ").last().unwrap_or_default().split(' ').collect();
        if let [txn, revision] = words[..]
            && let (Ok(txn), Ok(revision)) = (txn.parse(), revision.parse())
        {
            acknowledged.insert(txn, Revision(revision));
        }
    }
    killer.join().unwrap();
    acknowledged
}

/// Every transaction that is there, whole, and its revision.
fn read_back(dir: &Path) -> (Revision, BTreeMap<u64, Revision>) {
    let store = EmbeddedStore::open(dir, Options::default()).unwrap();
    let view = store.latest().for_server(ServerWork::Tool);
    let mut parts: BTreeMap<u64, Vec<Revision>> = BTreeMap::new();
    for resource in ["bundles", "resourceroutes"] {
        for entry in view.range(
            &Scope::everywhere(ResourceId::local("example.io", resource)),
            None,
            usize::MAX,
        ) {
            let txn = entry.object.body_value()["spec"]["txn"].as_u64().unwrap();
            assert!(entry.revision <= view.revision());
            parts.entry(txn).or_default().push(entry.revision);
        }
    }
    let whole = parts.into_iter().map(|(txn, revisions)| {
        assert_eq!(
            revisions,
            vec![revisions[0]; KEYS as usize],
            "transaction {txn} is half there"
        );
        (txn, revisions[0])
    });
    (view.revision(), whole.collect())
}

/// Every transaction that a watch from the begin of the store shows, and its revision.
fn watched(dir: &Path) -> BTreeMap<u64, Revision> {
    let store = EmbeddedStore::open(dir, Options::default()).unwrap();
    let mut cursor = store.watch(Scope::everything(), Revision(1)).unwrap();
    let mut seen = BTreeMap::new();
    while cursor.position() < store.latest().revision() {
        for change in cursor.try_next().unwrap() {
            let object = change.new.as_ref().expect("nothing is deleted");
            let txn = object.body_value()["spec"]["txn"].as_u64().unwrap();
            assert_eq!(*seen.entry(txn).or_insert(change.revision), change.revision);
        }
    }
    seen
}

#[test]
fn killed_writers_lose_nothing() {
    let mut seed = UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    for round in 0..ROUNDS {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_micros(1 + (seed >> 33) % 60_000);
        let fresh = write_until_killed(dir.path(), round, after);
        assert!(!fresh.is_empty());
        acknowledged.extend(fresh);
        let (latest, found) = read_back(dir.path());
        assert_eq!(watched(dir.path()), found, "the history is whole in round {round}");
        for (txn, revision) in &acknowledged {
            assert_eq!(
                found.get(txn),
                Some(revision),
                "acknowledged transaction {txn} is lost in round {round}"
            );
            assert!(*revision <= latest);
        }
        println!(
            "round {round}: killed after {after:?}, {} acknowledged, {} found",
            acknowledged.len(),
            found.len()
        );
    }
}
