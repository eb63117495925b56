//! The stored form of a written object: conversion to it, errors of other versions' schemas, its
//! schema mark.

use crate::context::Context;
use insula_api::{FieldError, FieldPath, Json};
use insula_catalog::{Origin, Result, Served, stored};
use insula_conversion::{LossPolicy, Stored, Validation};
use insula_schema::Structural;
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

/// Returns a copy of a converted object for [`settle`], before its strategy changes it; `None` if
/// there is no residual, or no strategy that reckons with one.
pub(super) fn unsettled(context: &Context<'_>, (stored, residual): (&Json, Option<&[u8]>)) -> Option<Json> {
    (residual.is_some() && context.served.api.is_compiled()).then(|| stored.clone())
}

/// Returns the stored form after a change of the strategy, which is to residuals as a write in the
/// storage version. `converted` is the object before that change, by [`unsettled`].
pub(super) fn settle(
    context: &Context<'_>,
    converted: Option<Json>,
    (stored, residual): (Json, Option<Vec<u8>>),
) -> Result<(Json, Option<Vec<u8>>)> {
    let served = context.served;
    let Some(before) = converted.filter(|before| *before != stored) else {
        return Ok((stored, residual));
    };
    let storage = &*served.api.storage_version().name;
    let before = Stored {
        value: &before,
        version: storage,
        residual: residual.as_deref(),
    };
    let settled = served
        .put(&stored, storage, Some(before))
        .map_err(|failed| failed.or(|error| stored::write_error(served, &stored, error)))?;
    Ok((settled.value, settled.residual))
}

/// Returns the object as readers of the request's version see it, if it is the written object
/// ([`is_shown_as_written`]).
pub(super) fn shown(context: &Context<'_>, new: Json) -> Option<Json> {
    is_shown_as_written(context.served, &context.version.name).then_some(new)
}

/// Returns true if a version shows what is written through it, by the conversion laws, and the
/// stored form is another. Returns `false` without a conversion, for aliases, for webhook
/// conversion, for bundles that lose or drop fields, and for built-in kinds, whose strategies
/// change the object afterwards.
pub(crate) fn is_shown_as_written(served: &Served, version: &str) -> bool {
    let custom = served.origin != Origin::System && served.alias.is_none() && served.api.webhook.is_none();
    let converted = version != &*served.api.storage_version().name;
    custom && converted && served.api.bundle.shows_what_is_written()
}

/// Returns the errors that other versions' schemas find in a written object. The object is valid in
/// the version that it was written in; as in Kubernetes, that is enough.
///
/// Two APIs want more. The built-in kinds are validated in their storage version. An APIConversion
/// with `validation: Refuse` refuses what any served version would refuse. Either is checked with
/// its defaults, as readers see it, and errors that the old object already had are tolerated.
pub(super) fn errors_in_other_versions(
    context: &Context<'_>,
    (stored, residual): (&Json, Option<&[u8]>),
    old: Option<&Entry>,
) -> Result<Vec<FieldError>> {
    let Context { served, version, .. } = context;
    if served.origin == Origin::System && !served.api.is_compiled() {
        let storage = served.api.storage_version();
        if version.name == storage.name {
            return Ok(Vec::new());
        }
        let mut shown = stored.clone();
        insula_schema::default(&mut shown, &storage.schema);
        return errors_over_old(context, &storage.name, &shown, &storage.schema, old);
    }
    let bundle = &served.api.bundle;
    let mut errors = Vec::new();
    if bundle.validation() == Validation::Show {
        return Ok(errors);
    }
    for other in bundle.served().filter(|other| *other != &*version.name) {
        let Some(schema) = bundle.schema(other) else { continue };
        let stored = Stored {
            value: stored,
            version: bundle.storage(),
            residual,
        };
        let shown = bundle
            .get(stored, other, &mut insula_conversion::object_budget(&served.meter))
            .map_err(|error| stored::write_error(served, stored.value, &error))?;
        for error in errors_over_old(context, other, &shown, schema, old)? {
            let field = bundle.origin(&version.name, other, error.field.as_str());
            let why = format!("{other} would refuse it: {error} (spec.validation of the APIConversion is Refuse)");
            errors.push(FieldError::invalid_text(&FieldPath::new(&field), "", why));
        }
    }
    Ok(errors)
}

/// Validates the view of a version, with ratcheting against its view of the old object.
fn errors_over_old(
    context: &Context<'_>,
    version: &str,
    shown: &Json,
    schema: &Structural,
    old: Option<&Entry>,
) -> Result<Vec<FieldError>> {
    Ok(match old {
        None => insula_schema::validate(shown, schema, &context.served.meter),
        Some(old) => {
            let before = stored::value(context.served, old, version)?;
            insula_schema::validate_update(shown, &before, schema, &context.served.meter).errors
        }
    })
}

/// Returns [`UNMARKED`] if the stored object lacks defaults of the storage version, so that reads
/// default it. A write through another version can leave out defaults, and so can one that leaves
/// what was stored before they came as it is.
pub(super) fn mark(context: &Context<'_>, stored: &Json) -> Option<u64> {
    let (storage, bundle) = (context.served.api.storage_version(), &context.served.api.bundle);
    let is_stored_as_written = context.version.name == storage.name && bundle.loss_policy() == LossPolicy::None;
    if is_stored_as_written || !bundle.storage_has_defaults() {
        return None;
    }
    insula_schema::lacks_defaults(stored, &storage.schema).then_some(UNMARKED)
}
