//! Disks that fail a flush, lose what was not flushed, and tear what they were writing.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{
    CommitError, Store, Txn, Write,
    embedded::{Disk, EmbeddedStore, Options},
};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

/// Small numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

enum Pending {
    Write(usize, Vec<u8>),
    Len(usize),
}

#[derive(Default)]
struct Plates {
    /// Bytes that survive a power cut for certain.
    durable: Vec<u8>,
    /// Bytes that the process reads.
    current: Vec<u8>,
    /// Writes since the last flush.
    pending: Vec<Pending>,
    flushes: usize,
    fail_flush: Option<usize>,
}

/// A disk whose plates the test keeps.
#[derive(Clone, Default)]
struct FaultDisk(Arc<Mutex<Plates>>);

/// Disks write this many bytes or none.
const SECTOR: usize = 512;

fn apply(image: &mut Vec<u8>, pending: &Pending) {
    match pending {
        Pending::Len(len) => image.resize(*len, 0),
        Pending::Write(offset, data) => {
            if image.len() < offset + data.len() {
                image.resize(offset + data.len(), 0);
            }
            image[*offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

impl FaultDisk {
    fn with(image: Vec<u8>) -> Self {
        let plates = Plates {
            durable: image.clone(),
            current: image,
            ..Plates::default()
        };
        FaultDisk(Arc::new(Mutex::new(plates)))
    }

    /// Returns a state that a power cut may leave: any part of the writes that were not flushed,
    /// each write whole, torn between sectors, or not at all.
    fn cut_power(&self, seed: u64) -> FaultDisk {
        let (plates, mut draw) = (self.0.lock().unwrap(), Draw(seed));
        let mut image = plates.durable.clone();
        for pending in &plates.pending {
            match pending {
                Pending::Len(_) => apply(&mut image, pending),
                Pending::Write(offset, data) => match draw.below(3) {
                    0 => {}
                    1 => apply(&mut image, pending),
                    _ => {
                        let sectors = (data.len() / SECTOR) as u64 + 1;
                        let cut = (draw.below(sectors) as usize * SECTOR).min(data.len());
                        let torn = if draw.below(2) == 0 { 0..cut } else { cut..data.len() };
                        apply(&mut image, &Pending::Write(offset + torn.start, data[torn].to_vec()));
                    }
                },
            }
        }
        FaultDisk::with(image)
    }
}

impl Disk for FaultDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let plates = self.0.lock().unwrap();
        let from = plates
            .current
            .get(offset as usize..)
            .and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut plates = self.0.lock().unwrap();
        let pending = Pending::Write(offset as usize, data.to_vec());
        apply(&mut plates.current, &pending);
        plates.pending.push(pending);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut plates = self.0.lock().unwrap();
        let pending = Pending::Len(len as usize);
        apply(&mut plates.current, &pending);
        plates.pending.push(pending);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut plates = self.0.lock().unwrap();
        let plates = &mut *plates;
        plates.flushes += 1;
        if plates.fail_flush == Some(plates.flushes) {
            return Err(io::Error::other("injected"));
        }
        for pending in plates.pending.drain(..) {
            apply(&mut plates.durable, &pending);
        }
        Ok(())
    }
}

const KEYS: usize = 3;

fn key(part: usize) -> ObjectKey {
    ObjectKey::cluster_scoped(
        ResourceId::local("example.io", "parts"),
        ClusterName::root(),
        &format!("p{part}"),
    )
}

/// All parts say `n`.
fn transaction(n: u64) -> Txn {
    let writes = (0..KEYS).map(|part| {
        let name = format!("p{part}");
        let value = serde_json::json!({"apiVersion": "v1", "kind": "Part", "metadata": {"name": name},
            "spec": {"n": n, "pad": "x".repeat(part * 3000)}});
        Write::Put(key(part), Arc::new(Object::new(&value, None).unwrap()))
    });
    Txn {
        guards: vec![],
        writes: writes.collect(),
    }
}

/// The disks of a store: its objects, its record of what was acknowledged, and its history.
#[derive(Clone, Default)]
struct Disks {
    objects: FaultDisk,
    record: FaultDisk,
    history: FaultDisk,
}

impl Disks {
    fn boxed(&self) -> [Box<dyn Disk>; 4] {
        let reserve = FaultDisk::default();
        [&self.objects, &self.record, &reserve, &self.history].map(|disk| Box::new(disk.clone()) as Box<dyn Disk>)
    }

    fn cut_power(&self, seed: u64) -> Disks {
        Disks {
            objects: self.objects.cut_power(seed),
            record: self.record.cut_power(seed),
            history: self.history.cut_power(seed + 1),
        }
    }
}

fn open(disks: &Disks) -> EmbeddedStore {
    EmbeddedStore::open_on(disks.boxed(), Options::default()).unwrap()
}

fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Returns the value that all parts agree on and its revision, or nothing.
fn read_back(store: &EmbeddedStore) -> Option<(u64, Revision)> {
    let entries =
        store
            .latest()
            .for_server(ServerWork::Tool)
            .range(&Scope::everywhere(key(0).resource), None, usize::MAX);
    let read: Vec<_> = entries
        .iter()
        .map(|e| (e.object.body_value()["spec"]["n"].as_u64().unwrap(), e.revision))
        .collect();
    assert!(
        read.is_empty() || read == vec![read[0]; KEYS],
        "half a transaction: {read:?}"
    );
    read.first().copied()
}

#[test]
fn a_failed_flush_stops_the_store() {
    for nth in 0..12 {
        let disk = Disks::default();
        let store = open(&disk);
        {
            let mut plates = disk.objects.0.lock().unwrap();
            plates.fail_flush = Some(plates.flushes + 1 + nth);
        }
        let mut acknowledged = None;
        let failed = loop {
            let n = acknowledged.map_or(0, |(n, _)| n + 1);
            match now(store.commit(transaction(n))) {
                Ok(revision) => acknowledged = Some((n, revision)),
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, CommitError::Unknown(_)), "{failed:?}");
        assert!(store.health().is_err());
        assert_eq!(read_back(&store), acknowledged, "what is not on disk is not shown");
        let flushes = disk.objects.0.lock().unwrap().flushes;
        let later = now(store.commit(transaction(99)));
        assert!(matches!(later, Err(CommitError::Unavailable(_))), "{later:?}");
        assert_eq!(disk.objects.0.lock().unwrap().flushes, flushes, "never a second try");
        for seed in 0..10 {
            let found = read_back(&open(&disk.cut_power(seed)));
            let unknown = acknowledged.map_or(0, |(n, _)| n + 1);
            assert!(
                found == acknowledged || found.is_some_and(|(n, _)| n == unknown),
                "flush {nth}, seed {seed}: {found:?}"
            );
        }
    }
}

/// Checks the history since any revision: it is gone, or each change in it is what was written.
/// Returns the number of revisions from which it goes on.
fn known_history(store: &EmbeddedStore, written: &BTreeMap<Revision, u64>) -> usize {
    let latest = store.latest().revision();
    let n = |object: &Object| object.body_value()["spec"]["n"].as_u64().unwrap();
    let known = (1..latest.0).filter(|after| {
        let Ok(mut cursor) = store.watch(Scope::everything(), Revision(*after)) else {
            return false;
        };
        let changes = cursor.try_next().unwrap();
        let revisions: Vec<u64> = changes.iter().map(|change| change.revision.0).collect();
        let want = (after + 1..=latest.0).flat_map(|revision| [revision; KEYS]);
        assert_eq!(revisions, want.collect::<Vec<_>>());
        for change in changes {
            assert_eq!(
                Some(n(change.new.as_deref().unwrap())),
                written.get(&change.revision).copied()
            );
            let old = change.old.as_ref().map(|old| (n(&old.object), old.revision.0));
            let before = Revision(change.revision.0 - 1);
            assert_eq!(old, written.get(&before).map(|before| (*before, change.revision.0 - 1)));
        }
        true
    });
    known.count()
}

#[test]
fn power_cuts_tear_no_transaction() {
    let mut known = 0;
    for seed in 0..150 {
        let mut draw = Draw(seed);
        let mut disk = Disks::default();
        let mut acknowledged = None;
        let (mut n, mut written) = (0, BTreeMap::new());
        for _ in 0..4 {
            let store = open(&disk);
            let found = read_back(&store);
            assert!(found >= acknowledged, "seed {seed}: {found:?} after {acknowledged:?}");
            written.extend(found.map(|(n, revision)| (revision, n)));
            known += known_history(&store, &written);
            for _ in 0..draw.below(6) {
                n += 1;
                let revision = now(store.commit(transaction(n))).unwrap();
                acknowledged = Some((n, revision));
                written.insert(revision, n);
            }
            // The last one is cut off between its writes and its flush.
            {
                let mut plates = disk.objects.0.lock().unwrap();
                plates.fail_flush = Some(plates.flushes + 1 + draw.below(2) as usize);
            }
            n += 1;
            if let Ok(revision) = now(store.commit(transaction(n))) {
                acknowledged = Some((n, revision));
                written.insert(revision, n);
            }
            disk = disk.cut_power(draw.below(u64::MAX >> 33));
        }
    }
    assert!(known > 0, "some cuts leave a history");
}

/// A disk as redb sees it.
#[derive(Debug)]
struct Backend(FaultDisk);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

impl std::fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultDisk")
    }
}

/// A store as the versions before checksums wrote it, at revision 7.
fn format_1(disk: &FaultDisk) {
    let objects: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("objects");
    let meta: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    let database = redb::Builder::new().create_with_backend(Backend(disk.clone())).unwrap();
    let txn = database.begin_write().unwrap();
    for write in transaction(7).writes {
        let Write::Put(key, object) = write else { continue };
        let mut value = [7u64.to_le_bytes(), 3u64.to_le_bytes()].concat();
        value.extend(object.to_stored());
        let mut objects = txn.open_table(objects).unwrap();
        objects.insert(&*key.encode(), value.as_slice()).unwrap();
    }
    for (name, value) in [("format", 1), ("revision", 7)] {
        txn.open_table(meta).unwrap().insert(name, value).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn format_1_is_upgraded_whenever_the_power_goes() {
    let disks = Disks::default();
    format_1(&disks.objects);
    let (old, whole) = (disks.objects.cut_power(0), Some((7, Revision(7))));
    let store = open(&disks);
    assert_eq!((read_back(&store), store.upgraded_from()), (whole, Some(1)));
    drop(store);
    let store = open(&disks);
    assert_eq!((read_back(&store), store.upgraded_from()), (whole, None));
    drop(store);
    for nth in 1..12 {
        for seed in 0..8 {
            let disks = Disks {
                objects: old.cut_power(seed),
                ..Disks::default()
            };
            disks.objects.0.lock().unwrap().fail_flush = Some(nth);
            // Where no flush fails it is open, and killed.
            let opened = EmbeddedStore::open_on(disks.boxed(), Options::default());
            let after = disks.cut_power(seed);
            drop(opened);
            assert_eq!(read_back(&open(&after)), whole, "flush {nth}, seed {seed}");
        }
    }
}
