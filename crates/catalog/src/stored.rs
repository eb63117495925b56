//! Conversion of stored objects to the requested version.

use crate::{Error, Result, Served};
use insula_api::Json;
use insula_conversion::ConvertError;
use insula_store::Entry;

/// Returns the stored JSON with its resourceVersion, without conversion.
#[inline]
pub fn stored_value(entry: &Entry) -> Json {
    entry.object.value(entry.revision)
}

/// Returns true if clients of the version see the stored bytes without conversion.
#[inline]
pub fn passes_through(served: &Served, entry: &Entry, version: &str) -> bool {
    served.alias.is_none() && entry.object.version() == version && entry.object.schema() == served.api.fingerprint
}

/// Returns an object in a version, with its resourceVersion.
///
/// # Errors
/// The object cannot be converted to the version.
pub fn value(served: &Served, entry: &Entry, version: &str) -> Result<Json> {
    if passes_through(served, entry, version) {
        return Ok(stored_value(entry));
    }
    let object = &entry.object;
    let mut value = served
        .get_owned(
            object.body_value(),
            object.version(),
            object.residual(),
            version,
            object.schema(),
        )
        .map_err(|failed| failed.or(|error| read_error(served, entry, version, error)))?;
    value["metadata"]["resourceVersion"] = Json::String(entry.revision.to_string());
    if let Some(alias) = &served.alias {
        value["apiVersion"] = Json::String(served.api_version(version));
        value["kind"] = Json::String(alias.names.kind.to_string());
    }
    Ok(value)
}

/// Returns an object of an alias with the API's own group and kind; None without an alias, and for
/// an alias with other field names.
pub fn unalias(served: &Served, object: &Json) -> Option<Json> {
    let alias = served.alias.as_ref().filter(|alias| alias.respelled.is_none())?;
    let mut own = object.clone();
    own["apiVersion"] = Json::String(served.api.api_version(&alias.version));
    own["kind"] = Json::String(served.api.names.kind.to_string());
    Some(own)
}

/// Returns the error for an object that cannot be converted to a version.
pub fn read_error(served: &Served, entry: &Entry, version: &str, error: &ConvertError) -> Error {
    Error::Conversion(format!(
        "{} {:?} in workspace {} is stored as {} and cannot be shown as {version}: {error}",
        served.api.named(),
        entry.object.meta.name,
        entry.key.cluster,
        entry.object.version(),
    ))
}

/// Returns the error for an object that cannot be converted to the storage version.
pub fn write_error(served: &Served, new: &Json, error: &ConvertError) -> Error {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    // Report the field that the rule reads, if the rule's source is a path. An expression appears
    // as it is.
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
