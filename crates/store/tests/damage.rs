//! Damage to the files of a store: flipped bits, zeroed, misdirected and lost pages, files that are
//! cut or gone. Whatever is damaged, the store serves exactly what was acknowledged, or it is
//! refused with a reason.
#![allow(clippy::print_stdout, reason = "a failed run names its seed")]

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{
    Entry, Store, Txn, Write,
    embedded::{Disk, EmbeddedStore, OpenError, Options},
};
use std::{
    io,
    sync::{Arc, Mutex},
    time::UNIX_EPOCH,
};

const PAGE: usize = 4096;

/// Small numbers from a seed.
struct Draw(u64);

impl Draw {
    fn from_clock() -> Self {
        #[allow(clippy::disallowed_methods, reason = "each run draws other bits")]
        let seed = UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        println!("seed {seed}");
        Draw(seed)
    }

    fn below(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// A disk in memory that the test holds too.
#[derive(Clone, Default)]
struct MemoryDisk(Arc<Mutex<Vec<u8>>>);

impl Disk for MemoryDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        let to = bytes
            .get_mut(offset as usize..)
            .and_then(|rest| rest.get_mut(..data.len()));
        to.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The disks of a store without a reserve, and without a history from before.
fn boxed(objects: &MemoryDisk, record: &MemoryDisk) -> [Box<dyn Disk>; 4] {
    let [reserve, history] = [(); 2].map(|()| MemoryDisk::default());
    [objects.clone(), record.clone(), reserve, history].map(|disk| Box::new(disk) as Box<dyn Disk>)
}

/// The bytes of both files.
#[derive(Clone)]
struct Image {
    objects: Vec<u8>,
    record: Vec<u8>,
}

impl Image {
    fn copy(objects: &MemoryDisk, record: &MemoryDisk) -> Self {
        Image {
            objects: objects.0.lock().unwrap().clone(),
            record: record.0.lock().unwrap().clone(),
        }
    }

    fn open(self) -> Result<EmbeddedStore, OpenError> {
        let disk = |bytes| MemoryDisk(Arc::new(Mutex::new(bytes)));
        EmbeddedStore::open_on(boxed(&disk(self.objects), &disk(self.record)), Options::default())
    }

    /// The pages of the objects that are not all zero.
    fn pages(&self) -> Vec<usize> {
        let used = |page: &usize| self.objects[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0);
        (0..self.objects.len() / PAGE).filter(used).collect()
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

fn resource() -> ResourceId {
    ResourceId::local("example.io", "widgets")
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::cluster_scoped(resource(), ClusterName::root(), &format!("w{n}"))
}

/// A transaction that writes or deletes a few of fifty objects.
fn transaction(draw: &mut Draw, n: usize) -> Txn {
    let writes = (0..=draw.below(3)).map(|_| {
        let key = key(draw.below(50));
        if draw.below(5) == 0 {
            return Write::Delete(key);
        }
        let size = [20, 300, 3000, 20_000][draw.below(4)];
        let value = serde_json::json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": key.name},
            "spec": {"n": n, "pad": "x".repeat(size)}});
        Write::Put(key, Arc::new(Object::new(&value, None).unwrap()))
    });
    Txn {
        guards: vec![],
        writes: writes.collect(),
    }
}

/// Objects that a store serves.
fn state(store: &EmbeddedStore) -> (Revision, Vec<Entry>) {
    let view = store.latest().for_server(ServerWork::Tool);
    (
        view.revision(),
        view.range(&Scope::everywhere(resource()), None, usize::MAX),
    )
}

/// A store's files at three moments, and what was acknowledged by then.
struct History {
    /// Killed, some commits before the end.
    before: Image,
    killed: Image,
    stopped: Image,
    acknowledged: (Revision, Vec<Entry>),
}

fn history(draw: &mut Draw) -> History {
    let (objects, record) = (MemoryDisk::default(), MemoryDisk::default());
    let open = || EmbeddedStore::open_on(boxed(&objects, &record), Options::default()).unwrap();
    let mut store = open();
    let mut before = None;
    for n in 0..60 {
        match n {
            30 => {
                drop(store);
                store = open();
            }
            55 => before = Some(Image::copy(&objects, &record)),
            _ => {}
        }
        now(store.commit(transaction(draw, n))).unwrap();
    }
    let killed = Image::copy(&objects, &record);
    let acknowledged = state(&store);
    drop(store);
    History {
        before: before.unwrap(),
        killed,
        stopped: Image::copy(&objects, &record),
        acknowledged,
    }
}

/// Counts of damaged stores that served the acknowledged state, and of those that were refused.
#[derive(Default, Debug)]
struct Outcomes {
    served: usize,
    refused: usize,
    /// Of the refused: redb panicked.
    panicked: usize,
}

impl Outcomes {
    fn note(&mut self, history: &History, damaged: Image, what: &str) {
        match damaged.open() {
            Ok(store) => {
                assert!(state(&store) == history.acknowledged, "{what}: other data is served");
                self.served += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("objects.redb") || text.contains("acknowledged") || text.contains("stored object"),
                    "{what}: {text}"
                );
                assert!(text.contains("backup"), "{what}: {text}");
                self.refused += 1;
                self.panicked += usize::from(text.contains("its engine failed"));
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_never_served() {
    let mut draw = Draw::from_clock();
    for _ in 0..4 {
        let history = history(&mut draw);
        for (state, image) in [("stopped", &history.stopped), ("killed", &history.killed)] {
            let (pages, mut outcomes) = (image.pages(), Outcomes::default());
            for _ in 0..150 {
                let (mut damaged, bit) = (image.clone(), draw.below(8));
                let at = pages[draw.below(pages.len())] * PAGE + draw.below(PAGE);
                damaged.objects[at] ^= 1 << bit;
                outcomes.note(&history, damaged, &format!("{state}, objects, bit {bit} of byte {at}"));
            }
            // Where redb says which commit is the newest, and which bytes of the record count.
            for _ in 0..50 {
                let (mut damaged, bit, at) = (image.clone(), draw.below(8), draw.below(320));
                damaged.objects[at] ^= 1 << bit;
                outcomes.note(&history, damaged, &format!("{state}, header, bit {bit} of byte {at}"));
                let (mut damaged, at) = (image.clone(), draw.below(2) * PAGE + draw.below(60));
                damaged.record[at] ^= 1 << bit;
                outcomes.note(&history, damaged, &format!("{state}, record, bit {bit} of byte {at}"));
            }
            println!("{state}: {outcomes:?}");
            assert!(outcomes.refused > 20 && outcomes.served > 20, "{outcomes:?}");
        }
    }
}

#[test]
fn a_page_that_is_zeroed_misdirected_or_lost_is_never_served() {
    let mut draw = Draw::from_clock();
    let history = history(&mut draw);
    for (state, image) in [("stopped", &history.stopped), ("killed", &history.killed)] {
        let (pages, mut outcomes) = (image.pages(), Outcomes::default());
        let replaced = |page: usize, with: &[u8]| {
            let mut damaged = image.clone();
            damaged.objects[page * PAGE..][..PAGE].copy_from_slice(with);
            damaged
        };
        for page in &pages {
            outcomes.note(
                &history,
                replaced(*page, &[0; PAGE]),
                &format!("{state}, page {page} zeroed"),
            );
            let other = pages[draw.below(pages.len())];
            let misdirected = replaced(*page, &image.objects[other * PAGE..][..PAGE]);
            outcomes.note(&history, misdirected, &format!("{state}, page {other} on {page}"));
            if let Some(old) = history.before.objects.get(page * PAGE..(page + 1) * PAGE) {
                outcomes.note(
                    &history,
                    replaced(*page, old),
                    &format!("{state}, page {page} was not written"),
                );
            }
        }
        for slot in [0, PAGE] {
            let mut damaged = image.clone();
            damaged.record[slot..][..PAGE].fill(0);
            outcomes.note(&history, damaged, &format!("{state}, slot {slot} of the record zeroed"));
        }
        println!("{state}: {outcomes:?}");
        assert!(outcomes.refused > 20 && outcomes.served > 2, "{outcomes:?}");
    }
}

#[test]
fn a_file_that_is_cut_gone_or_an_older_copy_is_refused() {
    let mut draw = Draw::from_clock();
    let history = history(&mut draw);
    for image in [&history.stopped, &history.killed] {
        let refused = |objects: &[u8], record: &[u8]| {
            let damaged = Image {
                objects: objects.to_vec(),
                record: record.to_vec(),
            };
            damaged.open().map(|_| ()).unwrap_err().to_string()
        };
        let last = history.acknowledged.0;
        let lost = format!("objects.redb is missing or empty, but revision {last} was acknowledged");
        assert!(refused(&[], &image.record).starts_with(&lost));
        let older = refused(&history.before.objects, &image.record);
        assert!(older.starts_with("objects.redb ends at revision ") && older.contains("was acknowledged"));
        assert!(refused(&image.objects, &[]).contains("acknowledged is missing or empty"));
        for _ in 0..20 {
            let cut = draw.below(image.objects.len());
            refused(&image.objects[..cut], &image.record);
        }
    }
}

#[test]
fn a_first_start_that_was_interrupted_starts() {
    let (objects, record) = (MemoryDisk::default(), MemoryDisk::default());
    drop(EmbeddedStore::open_on(boxed(&objects, &record), Options::default()).unwrap());
    let whole = Image::copy(&objects, &record);
    // The record is written first; redb writes its magic number last.
    let torn_record = vec![0; whole.record.len()];
    let mut torn_objects = whole.objects.clone();
    torn_objects[..16].fill(0);
    for (objects, record) in [
        (vec![], vec![]),
        (vec![], torn_record),
        (vec![], whole.record.clone()),
        (vec![0; 100], whole.record.clone()),
        (torn_objects, whole.record.clone()),
        (whole.objects, whole.record),
    ] {
        let store = Image { objects, record }.open().unwrap();
        assert_eq!(state(&store), (Revision(1), vec![]));
        assert_eq!(now(store.commit(transaction(&mut Draw(1), 1))), Ok(Revision(2)));
    }
}

/// A page on disk changes while the server runs: memory is right, and what is written next to it
/// must not hide that.
#[test]
fn damage_under_a_running_store_is_found() {
    let (mut draw, mut found) = (Draw::from_clock(), 0);
    for _ in 0..12 {
        let (objects, record) = (MemoryDisk::default(), MemoryDisk::default());
        let options = Options {
            cache_bytes: 0,
            ..Options::default()
        };
        let store = EmbeddedStore::open_on(boxed(&objects, &record), options).unwrap();
        let mut acknowledged = state(&store);
        for n in 0..40 {
            if n == 20 {
                let mut bytes = objects.0.lock().unwrap();
                let used: Vec<_> = (PAGE..bytes.len()).filter(|at| bytes[*at] == b'x').collect();
                let at = used[draw.below(used.len())];
                bytes[at] ^= 1;
            }
            // Refused once the damage is seen.
            if now(store.commit(transaction(&mut draw, n))).is_ok() {
                acknowledged = state(&store);
            }
        }
        drop(store);
        match Image::copy(&objects, &record).open() {
            Ok(store) => assert!(state(&store) == acknowledged),
            Err(_) => found += 1,
        }
    }
    assert!(found > 0);
}
