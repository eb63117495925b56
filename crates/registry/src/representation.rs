//! Stored objects as clients of a version see them.
//!
//! Bytes that were written under the schema that serves them, in the version that is asked for, pass through unread.
//! Everything else is made once for each (object, revision, version) and kept in a cache of bounded size.

use crate::{Error, Result, Served};
use bytes::Bytes;
use insula_api::{Json, Object, ObjectKey, Revision};
use insula_conversion::ConvertError;
use insula_store::Entry;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

/// Bytes of converted objects that are kept, over all tenants.
pub const CACHE_BYTES_MAX: usize = 256 << 20;
const SHARDS: usize = 16;

/// The stored JSON, as it lies.
pub fn stored_value(entry: &Entry) -> Json {
    entry.object.value(entry.revision)
}

/// Whether the stored bytes are what clients of the version see.
fn passes_through(served: &Served, entry: &Entry, version: &str) -> bool {
    served.alias.is_none() && entry.object.version() == version && entry.object.schema() == served.api.fingerprint
}

/// An object in a version, as a value with its resourceVersion.
pub fn value(served: &Served, entry: &Entry, version: &str) -> Result<Json> {
    if passes_through(served, entry, version) {
        return Ok(stored_value(entry));
    }
    let residual = entry.object.residual().map(|r| &**r);
    let mut budget = insula_conversion::object_budget();
    let mut value = served
        .api
        .bundle
        .get_owned(
            entry.object.body_value(),
            entry.object.version(),
            residual,
            version,
            &mut budget,
        )
        .map_err(|error| read_error(served, entry, version, &error))?;
    value["metadata"]["resourceVersion"] = Json::String(entry.revision.to_string());
    if let Some(alias) = &served.alias {
        value["apiVersion"] = Json::String(served.api_version(version));
        value["kind"] = Json::String(alias.names.kind.to_string());
    }
    Ok(value)
}

/// An alias' object under the API's own group and kind; nothing where there is no alias.
pub(crate) fn unalias(served: &Served, object: &Json) -> Option<Json> {
    let alias = served.alias.as_ref()?;
    let mut own = object.clone();
    own["apiVersion"] = Json::String(served.api.api_version(&alias.version));
    own["kind"] = Json::String(served.api.names.kind.to_string());
    Some(own)
}

pub(crate) fn read_error(served: &Served, entry: &Entry, version: &str, error: &ConvertError) -> Error {
    Error::Conversion(format!(
        "{} {:?} in workspace {} is stored as {} and cannot be shown as {version}: {error}",
        served.api.named(),
        entry.object.meta.name,
        entry.key.cluster,
        entry.object.version(),
    ))
}

pub(crate) fn write_error(served: &Served, new: &Json, error: &ConvertError) -> Error {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    // What the writer sent is what the rule reads, where that is a path; an expression is named as it is.
    let source = error
        .rule
        .as_ref()
        .map(|rule| rule.source.trim_start_matches('.'))
        .unwrap_or_default();
    let field = insula_api::FieldPath::new(source);
    let detail = error.to_string();
    served
        .api
        .invalid(name, vec![insula_api::FieldError::invalid_text(&field, "", detail)])
}

type CacheKey = (Arc<[u8]>, Revision, Arc<str>, u64);

/// Bytes, and the object that they were made of: a dry run and a last finalizer's end answer with other content under a
/// revision that is taken, and neither may be shown the stored object nor be kept in its place.
struct Kept {
    of: Weak<Object>,
    bytes: Bytes,
}

#[derive(Default)]
struct Shard {
    map: HashMap<CacheKey, Kept>,
    order: VecDeque<CacheKey>,
    bytes: usize,
}

/// Converted objects, oldest out first.
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for Cache {
    fn default() -> Self {
        Cache {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Cache {
    /// Appends an object in a version, as clients see it.
    pub fn write(&self, served: &Served, entry: &Entry, version: &Arc<str>, out: &mut Vec<u8>) -> Result<()> {
        if passes_through(served, entry, version) {
            entry.object.write_to(entry.revision, out);
            return Ok(());
        }
        out.extend_from_slice(&self.converted(served, entry, version)?);
        Ok(())
    }

    /// The bytes of an object in a version that is not its stored one.
    fn converted(&self, served: &Served, entry: &Entry, version: &Arc<str>) -> Result<Bytes> {
        if served.alias.is_some() {
            return encode(&value(served, entry, version)?);
        }
        let key: CacheKey = (
            entry_key(&entry.key),
            entry.revision,
            version.clone(),
            served.api.fingerprint,
        );
        let shard = &self.shards[shard_of(&key)];
        let of = Arc::downgrade(&entry.object);
        if let Some(kept) = shard.lock().map.get(&key).filter(|kept| kept.of.ptr_eq(&of)) {
            return Ok(kept.bytes.clone());
        }
        let bytes = encode(&value(served, entry, version)?)?;
        let mut shard = shard.lock();
        shard.bytes += bytes.len();
        match shard.map.insert(
            key.clone(),
            Kept {
                of,
                bytes: bytes.clone(),
            },
        ) {
            None => shard.order.push_back(key),
            Some(before) => shard.bytes -= before.bytes.len(),
        }
        while shard.bytes > CACHE_BYTES_MAX / SHARDS {
            let Some(oldest) = shard.order.pop_front() else { break };
            if let Some(gone) = shard.map.remove(&oldest) {
                shard.bytes -= gone.bytes.len();
            }
        }
        Ok(bytes)
    }
}

fn encode(value: &Json) -> Result<Bytes> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| Error::Internal(error.to_string()))
}

fn entry_key(key: &ObjectKey) -> Arc<[u8]> {
    key.encode()
}

fn shard_of(key: &CacheKey) -> usize {
    // Which shard is no secret and no order that anybody sees: the revision alone spreads objects well enough.
    key.1.0 as usize % SHARDS
}
