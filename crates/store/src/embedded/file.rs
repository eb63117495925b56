//! What is on disk: a redb file with two tables.
//!
//! `objects`: encoded key → revision (8 bytes, little endian), created (8 bytes), the object's stored form.
//! `meta`: `format` → 1, `revision` → the newest revision.

use super::{Disk, OpenError, disk::Backend, lock::private_file};
use crate::{
    Entry,
    plan::{Overlay, Pending},
};
use insula_api::{Object, ObjectKey, Revision};
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::{fmt::Display, path::Path, sync::Arc};

const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// An empty store's revision. Not 0, which means "any" wherever clients write a revision.
const FIRST: u64 = 1;

pub(super) struct ObjectFile {
    database: Database,
}

fn unusable(error: impl Display) -> OpenError {
    OpenError::File(error.to_string())
}

impl ObjectFile {
    pub(super) fn open(dir: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        let path = dir.join("objects.redb");
        let failed = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        let file = private_file(&path).map_err(failed)?;
        // A file that is not in its directory after a power cut is a lost store, however well its bytes were synced.
        #[cfg(unix)]
        std::fs::File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(failed)?;
        let database = Builder::new()
            .set_cache_size(cache_bytes)
            .create_file(file)
            .map_err(unusable)?;
        Self::prepare(database)
    }

    pub(super) fn on<D: Disk>(backend: Backend<D>, cache_bytes: usize) -> Result<Self, OpenError> {
        let database = Builder::new()
            .set_cache_size(cache_bytes)
            .create_with_backend(backend)
            .map_err(unusable)?;
        Self::prepare(database)
    }

    /// Makes the tables of a new file; refuses one of another format.
    fn prepare(database: Database) -> Result<Self, OpenError> {
        let txn = database.begin_write().map_err(unusable)?;
        let (found, fresh) = {
            txn.open_table(OBJECTS).map_err(unusable)?;
            let mut meta = txn.open_table(META).map_err(unusable)?;
            let found = meta.get("format").map_err(unusable)?.map(|found| found.value());
            if found.is_none() {
                meta.insert("format", FORMAT).map_err(unusable)?;
                meta.insert("revision", FIRST).map_err(unusable)?;
            }
            (found.unwrap_or(FORMAT), found.is_none())
        };
        if found != FORMAT {
            return Err(OpenError::Format {
                found,
                supported: FORMAT,
            });
        }
        if fresh {
            txn.commit().map_err(unusable)?;
        } else {
            txn.abort().map_err(unusable)?;
        }
        Ok(ObjectFile { database })
    }

    /// Everything that is there, and the revision at which it is.
    pub(super) fn load(&self) -> Result<(Revision, Vec<Entry>), OpenError> {
        let txn = self.database.begin_read().map_err(unusable)?;
        let meta = txn.open_table(META).map_err(unusable)?;
        let revision = meta
            .get("revision")
            .map_err(unusable)?
            .ok_or_else(|| unusable("no revision"))?
            .value();
        let mut entries = Vec::new();
        for item in txn.open_table(OBJECTS).map_err(unusable)?.iter().map_err(unusable)? {
            let (key, value) = item.map_err(unusable)?;
            let mut entry = read_entry(key.value(), value.value())?;
            if entry.revision.0 > revision {
                return Err(damaged(
                    key.value(),
                    format_args!("revision {} of {revision}", entry.revision),
                ));
            }
            share_names(entries.last(), &mut entry);
            entries.push(entry);
        }
        Ok((Revision(revision), entries))
    }

    /// Writes a batch and returns when it is durable.
    pub(super) fn write(&self, overlay: &Overlay, revision: Revision) -> Result<(), redb::Error> {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        {
            let mut objects = txn.open_table(OBJECTS)?;
            let mut value = Vec::new();
            for (key, pending) in overlay {
                match pending {
                    None => drop(objects.remove(&**key)?),
                    Some(Pending {
                        revision,
                        created,
                        object,
                    }) => {
                        value.clear();
                        value.extend_from_slice(&revision.0.to_le_bytes());
                        value.extend_from_slice(&created.0.to_le_bytes());
                        value.extend_from_slice(&object.to_stored());
                        objects.insert(&**key, value.as_slice())?;
                    }
                }
            }
            txn.open_table(META)?.insert("revision", revision.0)?;
        }
        txn.commit()?;
        Ok(())
    }
}

fn damaged(key: &[u8], reason: impl Display) -> OpenError {
    OpenError::Damaged {
        key: String::from_utf8_lossy(key).into_owned(),
        reason: reason.to_string(),
    }
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

/// Uses the neighbour's strings where they are equal: resource and cluster repeat in long runs of keys.
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
