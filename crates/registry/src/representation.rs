//! The representation of stored objects in the version of a client.
//!
//! Objects that are stored in the requested version, under the schema that serves it, pass through
//! as bytes. All others are converted once for each (object, revision, version) and kept in a
//! [`Cache`] of bounded size. Large requests are converted in pieces that alternate between tenants
//! ([`Workers`]).

use bytes::Bytes;
use insula_access::Target;
use insula_api::Json;
pub use insula_catalog::stored::{stored_value, value};
use insula_catalog::{Error, Result, stored::passes_through};
use insula_store::Entry;

mod cache;
mod job;
mod scheduler;
mod show;
#[cfg(test)]
pub(crate) mod tests;

pub use cache::{CACHE_BYTES_MAX, Cache};
pub use scheduler::{Pay, Work, Workers};
pub use show::Show;

/// Returns true if a target shows an object as it is stored.
pub fn is_stored(target: &Target, entry: &Entry) -> bool {
    passes_through(&target.serving(&entry.key), entry, &target.version)
}

fn encode(value: &Json) -> Result<Bytes> {
    serde_json::to_vec(value)
        // Drops spare capacity, because the cache may keep the bytes for long.
        .map(|bytes| Bytes::from(bytes.into_boxed_slice()))
        .map_err(|error| Error::Internal(error.to_string()))
}
