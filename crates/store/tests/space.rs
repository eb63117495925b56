//! A disk that gets full: deletions are taken from the reserve, other writes are refused, nothing
//! is lost, and all is well when there is space again.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Scope, Timestamp};
use insula_meter::ServerWork;
use insula_store::{
    CommitError, Store, Txn, Write,
    embedded::{Disk, EmbeddedStore, Options},
};
use serde_json::json;
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex},
};

const PAGE: usize = 4096;
const RESERVE: u64 = 4 << 20;

/// State that all files of a disk share.
#[derive(Default)]
struct Space {
    capacity: usize,
    used: usize,
}

#[derive(Default)]
struct Bytes {
    bytes: Vec<u8>,
    /// Pages with space of their own; the others are holes.
    pages: BTreeSet<usize>,
}

/// A file on a disk of limited space.
#[derive(Clone)]
struct File {
    bytes: Arc<Mutex<Bytes>>,
    space: Arc<Mutex<Space>>,
    /// True when growing takes space and leaves no hole.
    allocates: bool,
}

impl File {
    fn take(&self, file: &mut Bytes, pages: std::ops::Range<usize>) -> io::Result<()> {
        let mut space = self.space.lock().unwrap();
        for page in pages {
            if file.pages.contains(&page) {
                continue;
            }
            if space.used + PAGE > space.capacity {
                return Err(io::ErrorKind::StorageFull.into());
            }
            space.used += PAGE;
            file.pages.insert(page);
        }
        Ok(())
    }
}

impl Disk for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let file = self.bytes.lock().unwrap();
        let from = file.bytes.get(offset as usize..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut file = self.bytes.lock().unwrap();
        let offset = offset as usize;
        self.take(&mut file, offset / PAGE..(offset + data.len()).div_ceil(PAGE))?;
        file.bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut file = self.bytes.lock().unwrap();
        let pages = (len as usize).div_ceil(PAGE);
        if self.allocates {
            let from = file.bytes.len().div_ceil(PAGE);
            self.take(&mut file, from..pages)?;
        }
        let cut = file.pages.split_off(&pages);
        self.space.lock().unwrap().used -= cut.len() * PAGE;
        file.bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Machine {
    files: [File; 4],
}

impl Machine {
    fn with(capacity: usize) -> Self {
        let space = Arc::new(Mutex::new(Space { capacity, used: 0 }));
        let files = [false, false, true, false].map(|allocates| File {
            bytes: Arc::default(),
            space: space.clone(),
            allocates,
        });
        Machine { files }
    }

    fn open(&self) -> EmbeddedStore {
        let options = Options {
            reserve_bytes: RESERVE,
            ..Options::default()
        };
        let disks = self
            .files
            .each_ref()
            .map(|file| Box::new(file.clone()) as Box<dyn Disk>);
        EmbeddedStore::open_on(disks, options).unwrap()
    }

    fn grow(&self, bytes: usize) {
        self.files[0].space.lock().unwrap().capacity += bytes;
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

fn key(n: usize) -> ObjectKey {
    let resource = ResourceId::local("example.io", "widgets");
    ObjectKey::cluster_scoped(resource, ClusterName::root(), &format!("w{n}"))
}

fn put(n: usize, deleted: Option<Timestamp>) -> Txn {
    let mut value = json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": format!("w{n}")},
        "spec": {"pad": "x".repeat(60_000)}});
    if let Some(at) = deleted {
        value["metadata"]["deletionTimestamp"] = json!(at.to_string());
    }
    Txn {
        guards: vec![],
        writes: vec![Write::Put(key(n), Arc::new(Object::new(&value, None).unwrap()))],
    }
}

fn delete(n: usize) -> Txn {
    Txn {
        guards: vec![],
        writes: vec![Write::Delete(key(n))],
    }
}

fn names(store: &EmbeddedStore) -> BTreeSet<String> {
    let entries =
        store
            .latest()
            .for_server(ServerWork::Tool)
            .range(&Scope::everywhere(key(0).resource), None, usize::MAX);
    entries.iter().map(|entry| entry.key.name.to_string()).collect()
}

#[test]
fn a_full_disk_takes_deletions_and_loses_nothing() {
    // A step that is no multiple of what is written at once, so that space ends at other writes
    // each time.
    for capacity in (0..8).map(|n| (10 << 20) + n * 137 * PAGE + n % 2) {
        let machine = Machine::with(capacity);
        let store = machine.open();
        let mut count = 0;
        let refused = loop {
            match now(store.commit(put(count, None))) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, CommitError::Full(_)), "{capacity}: {refused:?}");
        assert!(store.alarm().is_some_and(|alarm| alarm.starts_with("the disk is full")));
        assert_eq!((store.health(), names(&store).len()), (Ok(()), count));
        assert!(
            now(store.commit(put(0, Some(Timestamp(0))))).is_ok(),
            "what is being deleted is written"
        );
        for n in 0..3 {
            assert!(now(store.commit(delete(n))).is_ok(), "{capacity}: deletion {n}");
        }
        let left = names(&store);
        assert_eq!(left.len(), count - 3);
        drop(store);
        let store = machine.open();
        assert_eq!(names(&store), left, "{capacity}");
        assert!(store.alarm().is_some());
        if capacity % 2 == 0 {
            machine.grow(2 * RESERVE as usize);
            assert_eq!(store.alarm(), None, "it is over by itself");
        } else {
            (3..count).for_each(|n| assert!(now(store.commit(delete(n))).is_ok()));
        }
        for n in 0..3 {
            let taken = now(store.commit(put(n, None)));
            assert!(taken.is_ok(), "{capacity}: {taken:?}");
        }
        assert_eq!(store.alarm(), None);
    }
}

#[test]
fn without_any_space_the_store_ends_and_keeps_what_was_acknowledged() {
    let machine = Machine::with(14 << 20);
    let store = machine.open();
    let mut count = 0;
    while now(store.commit(put(count, None))).is_ok() {
        count += 1;
    }
    // Somebody else takes what the reserve gives up, and what was there.
    machine.files[0].space.lock().unwrap().capacity = 0;
    let mut deleted = 0;
    let failed = loop {
        match now(store.commit(delete(deleted))) {
            Ok(_) if deleted < count => deleted += 1,
            Ok(_) => break None,
            Err(error) => break Some(error),
        }
    };
    let left = names(&store);
    assert_eq!(left.len(), count - deleted.min(count));
    if let Some(failed) = failed {
        assert!(matches!(failed, CommitError::Unknown(_)), "{failed:?}");
        assert!(store.health().is_err());
    }
    drop(store);
    machine.grow(30 << 20);
    let found = names(&machine.open());
    // The deletion that failed may have happened.
    assert!(found == left || found.len() + 1 == left.len());
}
