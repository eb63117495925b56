//! Files of the embedded store: a redb database with two tables, the record of acknowledged
//! commits, and the newest history.
//!
//! `objects`: encoded key → checksum (16 bytes, little endian), revision (8 bytes), created (8
//! bytes), the object's stored form. The checksum covers the key and all that follows it.
//!
//! `meta`: `format` → 3, `revision` → the newest revision, `sum.low` and `sum.high` → the seal of
//! all objects at it.
//!
//! Format 1 had no checksums and no seal; it is upgraded when it is opened. Format 2 differs only
//! in the names of some resources; the first write upgrades it, so that a store which was only
//! read stays with the program that wrote it.

use super::{
    Disk, OpenError,
    backend::{Backend, Shared},
    checksum::{Digest, Seal, checksum},
    record::{FIRST, Record},
    reserve::Reserve,
    tail::Tail,
};
use crate::{
    Entry,
    plan::{Overlay, Pending, Step},
};
use insula_api::{Object, ObjectKey, Revision};
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};
use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// The format without checksums.
const UNSEALED: u64 = 1;
/// The format with other names of resources.
const EARLIER_NAMES: u64 = 2;
/// The present format of the files.
const FORMAT: u64 = 3;
/// redb writes its magic number last when it creates a file.
const MAGIC: &[u8; 4] = b"redb";

pub(super) struct ObjectFile {
    database: Database,
    shared: Arc<Shared>,
    /// The format in `meta`.
    format: u64,
    digest: Digest,
    record: Record,
    tail: Tail,
    /// Bytes that deletions left unused in the file since it was last compacted.
    unused: u64,
}

/// The disks of a store.
pub(super) struct Disks {
    pub(super) objects: Box<dyn Disk>,
    pub(super) record: Box<dyn Disk>,
    pub(super) reserve: Arc<Reserve>,
    /// The newest history.
    pub(super) history: Tail,
}

/// Objects that were loaded, and the file that they came from.
pub(super) struct Loaded {
    pub(super) file: ObjectFile,
    pub(super) revision: Revision,
    pub(super) entries: Vec<Entry>,
    /// The commits before, whose history is on disk, oldest first.
    pub(super) steps: Vec<Step>,
    /// The format that the file had before it was upgraded.
    pub(super) upgraded_from: Option<u64>,
}

fn unusable(error: impl Display) -> OpenError {
    OpenError::File(error.to_string())
}

impl ObjectFile {
    /// Opens the file, verifies it and reads all objects. A store that never acknowledged a commit
    /// may start anew; any other store is refused unless it verifies.
    pub(super) fn open(disks: Disks, cache_bytes: usize) -> Result<Loaded, OpenError> {
        let Disks {
            objects,
            record,
            reserve,
            history,
        } = disks;
        let mut record = Record::read(record)?;
        let failed = |source| OpenError::Io {
            path: "objects.redb".into(),
            source,
        };
        let made = is_made(&*objects).map_err(failed)?;
        match record.newest() {
            None if !made && objects.is_empty().map_err(failed)? => {
                record.reset(Digest::default().seal(FIRST)).map_err(failed)?;
            }
            // A first start that was interrupted.
            Some(seal) if !made && seal.revision == FIRST => objects.set_len(0).map_err(failed)?,
            Some(seal) if !made => return Err(OpenError::lost(None, seal.revision)),
            None | Some(_) => {}
        }
        let shared = Shared::new(objects, reserve);
        let database = open_verified(&shared, cache_bytes)?;
        let mut file = ObjectFile {
            database,
            shared,
            format: FORMAT,
            digest: Digest::default(),
            record,
            tail: history,
            // Not known yet: the first full disk looks for unused space once.
            unused: u64::MAX,
        };
        let (found, revision) = file.prepare()?;
        let entries = file.load(found, revision)?;
        let seal = file.digest.seal(revision);
        file.format = found.max(EARLIER_NAMES);
        let upgraded_from = match found {
            UNSEALED => {
                file.record.reset(seal).map_err(failed)?;
                file.upgrade(&entries, seal).map_err(unusable)?;
                Some(found)
            }
            _ => {
                file.check_seal(seal)?;
                file.record.reset(seal).map_err(failed)?;
                None
            }
        };
        let steps = file.tail.recover(seal);
        Ok(Loaded {
            file,
            revision,
            entries,
            steps,
            upgraded_from,
        })
    }

    /// Makes the tables of a new file. Returns the format and the revision; refuses an unknown
    /// format.
    fn prepare(&self) -> Result<(u64, Revision), OpenError> {
        let txn = self.database.begin_write().map_err(unusable)?;
        let (found, revision) = {
            txn.open_table(OBJECTS).map_err(unusable)?;
            let mut meta = txn.open_table(META).map_err(unusable)?;
            let found = number(&meta, "format")?;
            if found.is_none() {
                meta.insert("format", FORMAT).map_err(unusable)?;
                put_seal(&mut meta, Digest::default().seal(FIRST)).map_err(unusable)?;
            }
            (found, number(&meta, "revision")?)
        };
        match found {
            None => {
                if let Some(seal) = self.record.newest().filter(|seal| seal.revision > FIRST) {
                    return Err(OpenError::lost(None, seal.revision));
                }
                txn.commit().map_err(unusable)?;
                Ok((FORMAT, FIRST))
            }
            Some(found @ (UNSEALED | EARLIER_NAMES | FORMAT)) => {
                txn.abort().map_err(unusable)?;
                let revision = revision.ok_or_else(|| unusable("no revision"))?;
                Ok((found, Revision(revision)))
            }
            Some(found) => Err(OpenError::Format {
                found,
                supported: FORMAT,
            }),
        }
    }

    /// Reads all objects at a revision and adds up their checksums.
    fn load(&mut self, format: u64, revision: Revision) -> Result<Vec<Entry>, OpenError> {
        let txn = self.database.begin_read().map_err(unusable)?;
        let mut entries = Vec::new();
        for item in txn.open_table(OBJECTS).map_err(unusable)?.iter().map_err(unusable)? {
            let (key, value) = item.map_err(unusable)?;
            let (key, value) = (key.value(), value.value());
            let value = if format == UNSEALED {
                value
            } else {
                verified(key, value)?
            };
            let mut entry = read_entry(key, value)?;
            if entry.revision > revision {
                let reason = format_args!("revision {} of {}", entry.revision, revision.0);
                return Err(damaged(key, reason));
            }
            self.digest.add(checksum(key, value));
            share_names(entries.last(), &mut entry);
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Compares the objects that were read with the seal in the file, and with the record of
    /// acknowledged commits.
    fn check_seal(&self, read: Seal) -> Result<(), OpenError> {
        let txn = self.database.begin_read().map_err(unusable)?;
        let meta = txn.open_table(META).map_err(unusable)?;
        let halves = (number(&meta, "sum.low")?, number(&meta, "sum.high")?);
        let stored = match halves {
            (Some(low), Some(high)) => Some(u128::from(high) << 64 | u128::from(low)),
            _ => None,
        };
        let at = read.revision;
        if stored != Some(read.sum) {
            return Err(OpenError::Inconsistent(format!(
                "objects.redb: the checksums of the objects do not add up to that of revision {at}: \
                 an object is missing, superfluous or an older one"
            )));
        }
        match self.record.newest() {
            None => Err(OpenError::Inconsistent(format!(
                "acknowledged is missing or empty beside objects.redb at revision {at}, \
                 so that nothing tells whether its newest writes are there"
            ))),
            Some(noted) if noted.revision > at => Err(OpenError::lost(Some(at), noted.revision)),
            Some(noted) if noted.revision == at && noted.sum != read.sum => Err(OpenError::Inconsistent(format!(
                "objects.redb: the objects at revision {at} are not those that were acknowledged"
            ))),
            Some(_) => Ok(()),
        }
    }

    /// Writes format 2, in one transaction: a crash leaves all of format 1 or all of format 2.
    /// The names of resources stay, so the format is not 3 yet.
    fn upgrade(&self, entries: &[Entry], seal: Seal) -> Result<(), redb::Error> {
        let txn = self.database.begin_write()?;
        {
            let mut objects = txn.open_table(OBJECTS)?;
            let mut value = Vec::new();
            for entry in entries {
                let key = entry.key.encode();
                encode_value(&mut value, &key, entry.revision, entry.created, &entry.object);
                objects.insert(&*key, value.as_slice())?;
            }
            let mut meta = txn.open_table(META)?;
            meta.insert("format", EARLIER_NAMES)?;
            put_seal(&mut meta, seal)?;
        }
        Ok(txn.commit()?)
    }

    /// Writes a batch and its history, and returns when it is durable and noted in the record.
    pub(super) fn write(&mut self, overlay: &Overlay, steps: &[Step], revision: Revision) -> Result<(), WriteError> {
        let mut txn = self.database.begin_write().map_err(redb::Error::from)?;
        txn.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
        let (mut digest, mut unused) = (self.digest, self.unused);
        let seal = {
            let mut objects = txn.open_table(OBJECTS).map_err(redb::Error::from)?;
            write_objects(&mut objects, overlay, &mut digest, &mut unused)?;
            let mut meta = txn.open_table(META).map_err(redb::Error::from)?;
            let seal = digest.seal(revision);
            put_seal(&mut meta, seal).map_err(redb::Error::from)?;
            if self.format != FORMAT {
                meta.insert("format", FORMAT).map_err(redb::Error::from)?;
            }
            seal
        };
        self.leave_space();
        if self.reserve().is_untouched() && !steps.is_empty() {
            self.tail.append(steps, seal);
        }
        txn.commit().map_err(redb::Error::from)?;
        (self.digest, self.unused, self.format) = (digest, unused, FORMAT);
        Ok(self.record.note(seal)?)
    }

    /// Adds objects with revisions of their own to a store that is not served yet.
    pub(super) fn fill(&mut self, entries: &[Entry], revision: Revision) -> Result<(), WriteError> {
        let overlay = entries.iter().map(|entry| {
            let pending = Pending {
                revision: entry.revision,
                created: entry.created,
                object: entry.object.clone(),
            };
            (entry.key.encode(), Some(pending))
        });
        self.write(&overlay.collect(), &[], revision)
    }

    /// Takes note that history before a revision is not to be shown any more.
    pub(super) fn compact_history(&mut self, upto: Revision) {
        self.tail.raise_floor(upto);
    }

    /// Leaves the space of the history to a full disk.
    pub(super) fn leave_space(&mut self) {
        if !self.reserve().is_untouched() {
            self.tail.discard();
        }
    }

    /// Shrinks the file when the disk is full and the space of deleted objects would fill the
    /// reserve again. Called when the answers are sent.
    pub(super) fn reclaim(&mut self) -> Result<(), WriteError> {
        let reserve = self.shared.reserve();
        if self.unused < reserve.wanting() || reserve.is_whole() {
            return Ok(());
        }
        self.database.compact().map_err(redb::Error::from)?;
        self.unused = 0;
        reserve.take();
        Ok(())
    }

    /// Returns the disk of the file.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the space that is reserved for a full disk.
    pub(super) fn reserve(&self) -> &Arc<Reserve> {
        self.shared.reserve()
    }

    /// Flushes the record now and then. Called when the answers are sent.
    pub(super) fn settle(&mut self) -> Result<(), WriteError> {
        Ok(self.record.settle()?)
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        self.shared.seal();
        // Every commit is durable by itself; this flush is for the record alone.
        let _ = self.record.flush();
    }
}

/// Reason why a batch is not on disk, or not for certain.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    File(#[from] redb::Error),
    #[error("acknowledged: {0}")]
    Record(#[from] std::io::Error),
    /// An object on disk changed under this process. The objects in memory are right.
    #[error("{0}; what is in memory is right: take a backup of this server before it ends")]
    Damaged(OpenError),
}

fn write_objects(
    objects: &mut Table<'_, &'static [u8], &'static [u8]>,
    overlay: &Overlay,
    digest: &mut Digest,
    unused: &mut u64,
) -> Result<(), WriteError> {
    let mut value = Vec::new();
    for (key, pending) in overlay {
        let replaced = match pending {
            None => objects.remove(&**key).map_err(redb::Error::from)?,
            Some(Pending {
                revision,
                created,
                object,
            }) => {
                let checksum = encode_value(&mut value, key, *revision, *created, object);
                digest.add(checksum);
                *unused = unused.saturating_sub(value.len() as u64);
                objects.insert(&**key, value.as_slice()).map_err(redb::Error::from)?
            }
        };
        if let Some(old) = replaced {
            *unused = unused.saturating_add(old.value().len() as u64);
            let old = verified(key, old.value()).map_err(WriteError::Damaged)?;
            digest.remove(checksum(key, old));
        }
    }
    Ok(())
}

/// Returns true if redb has created a database here.
fn is_made(objects: &dyn Disk) -> std::io::Result<bool> {
    let mut magic = [0; MAGIC.len()];
    if objects.len()? < magic.len() as u64 {
        return Ok(false);
    }
    objects.read(0, &mut magic)?;
    Ok(magic != [0; MAGIC.len()])
}

/// Opens the database after redb has verified the checksum of every page in use. redb does so by
/// itself for a file that was not closed; a file that was closed (by a version before format 2) is
/// checked explicitly.
fn open_verified(shared: &Arc<Shared>, cache_bytes: usize) -> Result<Database, OpenError> {
    let fresh = shared.is_empty().map_err(unusable)?;
    let (repaired, failed_at) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_repair_callback({
        let (shared, repaired, failed_at) = (shared.clone(), repaired.clone(), failed_at.clone());
        move |session| {
            repaired.store(true, Ordering::Relaxed);
            // Called at 0.0, then at 0.3 when the newest commit does not verify.
            if session.progress() > 0.0 && session.progress() < 0.5 {
                failed_at.store(shared.last_read(), Ordering::Relaxed);
            }
        }
    });
    let opened = builder.create_with_backend(Backend(shared.clone()));
    let checked = opened.and_then(|mut database| {
        if !fresh && !repaired.load(Ordering::Relaxed) {
            database.check_integrity()?;
        }
        Ok(database)
    });
    checked.map_err(|error| {
        let noted = failed_at.load(Ordering::Relaxed);
        let offset = if noted == u64::MAX { shared.last_read() } else { noted };
        unusable(format_args!("objects.redb, at or near byte {offset}: {error}"))
    })
}

fn number(meta: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<Option<u64>, OpenError> {
    Ok(meta.get(name).map_err(unusable)?.map(|found| found.value()))
}

fn put_seal(meta: &mut Table<'_, &'static str, u64>, seal: Seal) -> Result<(), redb::StorageError> {
    meta.insert("revision", seal.revision.0)?;
    meta.insert("sum.low", seal.sum as u64)?;
    meta.insert("sum.high", (seal.sum >> 64) as u64)?;
    Ok(())
}

fn damaged(key: &[u8], reason: impl Display) -> OpenError {
    OpenError::Damaged {
        key: String::from_utf8_lossy(key).into_owned(),
        reason: reason.to_string(),
    }
}

/// Encodes a value, in the form since format 2, into a buffer. Returns its checksum.
fn encode_value(out: &mut Vec<u8>, key: &[u8], revision: Revision, created: Revision, object: &Object) -> u128 {
    out.clear();
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&revision.0.to_le_bytes());
    out.extend_from_slice(&created.0.to_le_bytes());
    out.extend_from_slice(&object.to_stored());
    let checksum = checksum(key, &out[16..]);
    out[..16].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Verifies a value, in the form since format 2, and returns the part behind its checksum.
fn verified<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], OpenError> {
    let (stored, rest) = value.split_first_chunk().ok_or_else(|| damaged(key, "too short"))?;
    if u128::from_le_bytes(*stored) != checksum(key, rest) {
        return Err(damaged(key, "its checksum does not match"));
    }
    Ok(rest)
}

fn read_entry(key: &[u8], value: &[u8]) -> Result<Entry, OpenError> {
    let decoded = ObjectKey::decode(key).map_err(|error| damaged(key, error))?;
    let (revision, rest) = value.split_first_chunk().ok_or_else(|| damaged(key, "too short"))?;
    let (created, stored) = rest.split_first_chunk().ok_or_else(|| damaged(key, "too short"))?;
    let object = Object::from_stored(stored).map_err(|error| damaged(key, error))?;
    let [revision, created] = [revision, created].map(|bytes| Revision(u64::from_le_bytes(*bytes)));
    Ok(Entry {
        key: decoded,
        object: Arc::new(object),
        revision,
        created,
    })
}

/// Shares the strings of the key before where they are equal: resource and cluster repeat in long
/// runs of keys.
fn share_names(before: Option<&Entry>, entry: &mut Entry) {
    let Some(before) = before.map(|before| &before.key) else {
        return;
    };
    let key = &mut entry.key;
    if key.resource == before.resource {
        key.resource = before.resource.clone();
    }
    if key.cluster == before.cluster {
        key.cluster = before.cluster.clone();
    }
    if key.namespace == before.namespace {
        key.namespace = before.namespace.clone();
    }
    if key.name == entry.object.meta.name {
        key.name = entry.object.meta.name.clone();
    }
}
