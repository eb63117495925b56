//! Stored objects as clients of a version see them.
//!
//! Bytes that were written under the schema that serves them, in the version that is asked for,
//! pass through unread. Everything else is made once for each (object, revision, version) and kept
//! in a [`Cache`] of bounded size: a piece at a time, in turns between tenants, where many objects
//! are asked for ([`Workers`]).

use crate::{Error, Result, Served, Target};
use bytes::Bytes;
use insula_api::Json;
use insula_conversion::ConvertError;
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

/// The stored JSON, as it lies.
pub fn stored_value(entry: &Entry) -> Json {
    entry.object.value(entry.revision)
}

/// Whether the stored bytes are what clients of the version see.
fn passes_through(served: &Served, entry: &Entry, version: &str) -> bool {
    served.alias.is_none() && entry.object.version() == version && entry.object.schema() == served.api.fingerprint
}

/// Returns true where an object is shown in a target's version as it is stored.
pub fn is_stored(target: &Target, entry: &Entry) -> bool {
    passes_through(&target.serving(&entry.key), entry, &target.version)
}

/// An object in a version, as a value with its resourceVersion.
pub fn value(served: &Served, entry: &Entry, version: &str) -> Result<Json> {
    if passes_through(served, entry, version) {
        return Ok(stored_value(entry));
    }
    let residual = entry.object.residual();
    let mut value = served
        .get_owned(entry.object.body_value(), entry.object.version(), residual, version)
        .map_err(|failed| failed.or(|error| read_error(served, entry, version, error)))?;
    value["metadata"]["resourceVersion"] = Json::String(entry.revision.to_string());
    if let Some(alias) = &served.alias {
        value["apiVersion"] = Json::String(served.api_version(version));
        value["kind"] = Json::String(alias.names.kind.to_string());
    }
    Ok(value)
}

/// An alias' object under the API's own group and kind; nothing where there is no alias.
pub(crate) fn unalias(served: &Served, object: &Json) -> Option<Json> {
    let alias = served.alias.as_ref().filter(|alias| alias.respelled.is_none())?;
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
    // What the writer sent is what the rule reads, where that is a path; an expression is named as
    // it is.
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

fn encode(value: &Json) -> Result<Bytes> {
    serde_json::to_vec(value)
        // Without the room that it grew into: it may be kept for long.
        .map(|bytes| Bytes::from(bytes.into_boxed_slice()))
        .map_err(|error| Error::Internal(error.to_string()))
}
