//! Stored objects as clients of a version see them.
//!
//! Bytes that were written under the schema that serves them, in the version that is asked for,
//! pass through unread. Everything else is made once for each (object, revision, version) and kept
//! in a [`Cache`] of bounded size: a piece at a time, in turns between tenants, where many objects
//! are asked for ([`Workers`]).

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

/// Returns true where an object is shown in a target's version as it is stored.
pub fn is_stored(target: &Target, entry: &Entry) -> bool {
    passes_through(&target.serving(&entry.key), entry, &target.version)
}

fn encode(value: &Json) -> Result<Bytes> {
    serde_json::to_vec(value)
        // Without the room that it grew into: it may be kept for long.
        .map(|bytes| Bytes::from(bytes.into_boxed_slice()))
        .map_err(|error| Error::Internal(error.to_string()))
}
