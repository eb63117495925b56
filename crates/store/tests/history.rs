//! The history on disk: bounded, read only where it is that of the objects, and given up when the
//! disk is full.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_store::{
    Change, Store, Txn, Write,
    embedded::{EmbeddedStore, Options},
};
use std::{fs, path::Path, sync::Arc};

fn key(n: u64) -> ObjectKey {
    let name = format!("w{n}");
    ObjectKey::cluster_scoped(ResourceId::local("example.io", "widgets"), ClusterName::root(), &name)
}

fn put(n: u64, text: &str) -> Txn {
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": format!("w{n}")},
        "spec": {"text": text, "pad": "x".repeat(800)}});
    Txn {
        guards: vec![],
        writes: vec![Write::Put(key(n), Arc::new(Object::new(&value, None).unwrap()))],
    }
}

fn delete(n: u64) -> Txn {
    Txn {
        guards: vec![],
        writes: vec![Write::Delete(key(n))],
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

fn open(dir: &Path, history_bytes: u64) -> EmbeddedStore {
    let options = Options {
        history_bytes,
        ..Options::default()
    };
    EmbeddedStore::open(dir, options).unwrap()
}

/// Returns the changes after a revision, if their history is known.
fn changes(store: &EmbeddedStore, after: Revision) -> Option<Vec<Arc<Change>>> {
    let mut cursor = store.watch(Scope::everything(), after).ok()?;
    let mut all = Vec::new();
    while cursor.position() < store.latest().revision() {
        all.extend(cursor.try_next().unwrap());
    }
    Some(all)
}

/// Writes, overwrites and deletes; returns the changes of it all.
fn write(store: &EmbeddedStore, text: &str, count: u64) -> Vec<Arc<Change>> {
    let begin = store.latest().revision();
    for n in 0..count {
        now(store.commit(put(n % 7, &format!("{text}{n}")))).unwrap();
        if n % 5 == 4 {
            now(store.commit(delete(n % 7))).unwrap();
        }
    }
    changes(store, begin).unwrap()
}

/// Checks that each revision is gone or shows what was written, and returns the number of those
/// that are not gone.
fn known(store: &EmbeddedStore, written: &[Arc<Change>]) -> usize {
    let latest = store.latest().revision();
    let known = (1..latest.0).filter(|after| {
        let want: Vec<_> = written
            .iter()
            .filter(|change| change.revision.0 > *after)
            .cloned()
            .collect();
        changes(store, Revision(*after)).is_some_and(|found| {
            assert_eq!(found, want, "after {after}");
            true
        })
    });
    known.count()
}

#[test]
fn the_newest_history_is_kept_in_a_bounded_file() {
    const BYTES: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for round in 0..60 {
        let store = open(dir.path(), BYTES);
        let found = known(&store, &written);
        // A change costs about a kilobyte, and half of the file is kept at least.
        assert!(
            found >= written.len().min(25),
            "{found} of {} in round {round}",
            written.len()
        );
        written.extend(write(&store, &format!("{round}-"), 3 + round % 11));
        drop(store);
        assert!(fs::metadata(dir.path().join("history")).unwrap().len() <= BYTES);
    }
    // A change that is larger than the file begins another history.
    let store = open(dir.path(), BYTES);
    let long = "y".repeat(BYTES as usize);
    for text in [&*long, "short", "shorter"] {
        now(store.commit(put(1, text))).unwrap();
    }
    let begin = store.latest().revision();
    let after = write(&store, "after", 5);
    drop(store);
    let store = open(dir.path(), BYTES);
    assert_eq!(changes(&store, begin), Some(after));
    assert_eq!(changes(&store, Revision(begin.0 - 3)), None);
}

#[test]
fn a_damaged_history_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 64 << 10);
    let written = write(&store, "a", 30);
    drop(store);
    let (file, whole) = (
        dir.path().join("history"),
        fs::read(dir.path().join("history")).unwrap(),
    );
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for at in (0..=used).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&file, bytes).unwrap();
        assert_eq!(known(&open(dir.path(), 64 << 10), &written), 0, "byte {at}");
    }
    for len in [0, 1, 100, used - 1] {
        fs::write(&file, &whole[..len]).unwrap();
        assert_eq!(known(&open(dir.path(), 64 << 10), &written), 0, "{len} bytes");
    }
    fs::write(&file, &whole).unwrap();
    assert!(known(&open(dir.path(), 64 << 10), &written) > 25);
}

/// A copy of the files that is written to, and then the history of the other life beside it.
#[test]
fn the_history_of_another_life_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 64 << 10);
    let shared = write(&store, "shared", 10);
    drop(store);
    let other = tempfile::tempdir().unwrap();
    for name in ["objects.redb", "acknowledged", "history"] {
        fs::copy(dir.path().join(name), other.path().join(name)).unwrap();
    }
    let lives = [dir.path(), other.path()].map(|dir| {
        let store = open(dir, 64 << 10);
        let text = dir.file_name().unwrap().to_string_lossy().into_owned();
        [shared.clone(), write(&store, &text, 10)].concat()
    });
    assert_eq!(known(&open(other.path(), 64 << 10), &lives[1]), lives[1].len());
    fs::copy(dir.path().join("history"), other.path().join("history")).unwrap();
    let store = open(other.path(), 64 << 10);
    assert_eq!(known(&store, &lives[1]), 0, "the objects are others");
    // From here on it has a history of its own.
    let begin = store.latest().revision();
    let after = write(&store, "after", 3);
    drop(store);
    assert_eq!(changes(&open(other.path(), 64 << 10), begin), Some(after));
}
