//! The storage version of a written object: conversion to it, its schema errors, its schema mark.

use crate::context::Context;
use insula_api::{FieldError, Json};
use insula_catalog::{Origin, Result, stored};
use insula_conversion::Stored;
use insula_store::Entry;

/// The schema mark that matches no schema. Reads of such an object default and prune it.
const UNMARKED: u64 = 0;

/// Converts an object to the storage version over the stored object. Restores the API's own group
/// and kind first if the request used an alias.
pub(super) fn to_storage(context: &Context<'_>, new: &Json, old: Option<&Entry>) -> Result<(Json, Option<Vec<u8>>)> {
    let version = &*context.version.name;
    let old_value = old.map(|old| old.object.body_value());
    let stored = old.zip(old_value.as_ref()).map(|(old, value)| Stored {
        value,
        version: old.object.version(),
        residual: old.object.residual(),
    });
    let own = stored::unalias(context.served, new);
    let owned = context
        .served
        .put(own.as_ref().unwrap_or(new), version, stored)
        .map_err(|failed| failed.or(|error| stored::write_error(context.served, new, error)))?;
    Ok((owned.value, owned.residual))
}

/// Returns the object as readers of the request's version see it. By the conversion laws it is the
/// written object. Returns `None` without a conversion, for aliases, for webhook conversion, for
/// bundles that lose or drop fields, and for built-in kinds, whose strategies change the object
/// afterwards.
pub(super) fn shown(context: &Context<'_>, new: Json) -> Option<Json> {
    let Context { served, version, .. } = context;
    let custom = served.origin != Origin::System && served.alias.is_none() && served.api.webhook.is_none();
    let converted = version.name != served.api.storage_version().name;
    (custom && converted && served.api.bundle.shows_what_is_written()).then_some(new)
}

/// Returns the errors of the storage version's schema for an object that was written in another
/// version. Without this check, a rule of one version would bind only the writers of that version.
/// The object is checked with its defaults, as readers see it. Errors that the old object already
/// had are tolerated.
pub(super) fn errors_as_stored(context: &Context<'_>, stored: &Json, old: Option<&Entry>) -> Result<Vec<FieldError>> {
    let Context { served, version, .. } = context;
    let storage = served.api.storage_version();
    if version.name == storage.name {
        return Ok(Vec::new());
    }
    let mut shown = stored.clone();
    insula_schema::default(&mut shown, &storage.schema);
    Ok(match old {
        None => insula_schema::validate(&shown, &storage.schema),
        Some(old) => {
            let was = stored::value(served, old, &storage.name)?;
            insula_schema::validate_update(&shown, &was, &storage.schema).errors
        }
    })
}

/// Returns [`UNMARKED`] if the stored object lacks defaults of the storage version, so that reads
/// default it. Only a write through another version can leave out defaults.
pub(super) fn mark(context: &Context<'_>, stored: &Json) -> Option<u64> {
    let storage = context.served.api.storage_version();
    if context.version.name == storage.name || !context.served.api.bundle.storage_has_defaults() {
        return None;
    }
    let mut shown = stored.clone();
    insula_schema::default(&mut shown, &storage.schema);
    (shown != *stored).then_some(UNMARKED)
}
