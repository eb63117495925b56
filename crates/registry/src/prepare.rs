//! Preparation of an object between a request and the store: one order of steps for every resource
//! and every edge.
//!
//! The mutating policies of the workspace ([`insula_admission::policy`]) have run before.
//!
//! Create: server-owned metadata → prune and default (request's version) → validate metadata and
//! schema → convert to the storage version → strategy: default, prepare_for_create, validate,
//! canonicalize → object. Defaults of a kind's own version ([`Strategy::default_version`]) apply
//! with those of the schema.
//!
//! [`Strategy::default_version`]: insula_catalog::Strategy::default_version
//!
//! Update: the same steps, with the fields that the old object keeps. Schema errors of unchanged
//! fields are tolerated (ratcheting), compared with the old object as the request's version shows
//! it. The schemas of other versions do not judge a write, except for built-in kinds and under
//! `validation: Refuse`. Only the strategy may change the sent object after validation.

mod parts;
mod server_metadata;
mod storage;

pub(crate) use server_metadata::keep_old_metadata;
pub(crate) use storage::is_shown_as_written;

use crate::{
    context::{By, Context},
    draft::Draft,
    metadata, owners,
};
use insula_api::{FieldError, FieldErrorKind, Json};
use insula_catalog::{
    ApiVersion, Origin, Part, Result, ScopeKind, Served,
    object::{metadata_of, refuse},
    stored,
};
use insula_store::Entry;
use parts::{finalizers_only, metadata_and_status, remove, status_only};
use serde_json::json;
use server_metadata::{count_generation, keep_generation, own_new_metadata};
use storage::{errors_in_other_versions, mark, settle, shown, to_storage, unsettled};

/// An object in its storage version, and its residual.
type StoredForm = (Json, Option<Vec<u8>>);

/// Prunes and defaults the sent object before policies see it.
pub(crate) fn complete(context: &Context<'_>, new: &mut Json) {
    let Context { served, version, .. } = context;
    if served.api.scope == ScopeKind::Namespaced {
        metadata_of(new).insert("namespace".into(), json!(context.namespace));
    }
    insula_schema::prune(new, &version.schema);
    drop_nulls(context, new);
    insula_schema::default(new, &version.schema);
}

/// Drops nulls that carry no value. Built-in kinds get the form in which Go encodes them.
fn drop_nulls(context: &Context<'_>, new: &mut Json) {
    let schema = &context.version.schema;
    match context.served.api.strategy.traits().is_struct {
        true => insula_schema::encode_struct(new, schema, &context.served.names().kind),
        false => insula_schema::drop_nulls(new, schema),
    }
}

/// Prunes unknown fields and fills in defaults.
fn fit(context: &Context<'_>, new: &mut Json) {
    let schema = &context.version.schema;
    insula_schema::prune(new, schema);
    // A null in an applied custom resource is intended. The schema refuses it where it is not
    // nullable.
    let means_null = matches!(context.by, By::Applied(_)) && !context.served.api.strategy.traits().built_in;
    if !means_null {
        drop_nulls(context, new);
    }
    insula_schema::default(new, schema);
    // For other versions the strategy's defaults apply after conversion.
    let Context { served, version, .. } = context;
    if served.alias.is_none() {
        let strategy = served.api.strategy;
        strategy.default_version(new, &version.name);
        if version.name == served.api.storage_version().name {
            strategy.default(new);
        }
    }
}

/// Returns the errors of values that a Scale shows and that the write changes. `prefix` selects the
/// paths that a write is about.
fn scale_errors(version: &ApiVersion, new: &Json, old: Option<&Json>, prefix: &str) -> Vec<FieldError> {
    version
        .scale
        .as_ref()
        .map(|scale| scale.errors(new, old, prefix))
        .unwrap_or_default()
}

/// Prepares a new object, sent in the request's version.
///
/// # Errors
/// The object has no name, is invalid, or cannot be converted to the storage version.
pub(crate) fn create(context: &Context<'_>, mut new: Json) -> Result<Draft> {
    let Context { served, version, .. } = context;
    let now = context.clock.now();
    own_new_metadata(context, &mut new, now)?;
    let mut warnings = metadata::unite_owners(metadata_of(&mut new));
    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if version.status {
        remove(&mut new, "status");
    }
    fit(context, &mut new);
    let mut misnamed = Vec::new();
    metadata::validate(served, &new["metadata"], &mut misnamed);
    let found = insula_schema::validate(&new, &version.schema, &served.meter).into_iter();
    let mut errors: Vec<FieldError> = found.map(|error| in_words_of(served, error)).collect();
    let prefix = if version.status { ".spec" } else { "" };
    errors.extend(scale_errors(version, &new, None, prefix));
    errors.extend(served.errors_of_version(&new, &version.name));
    warnings.extend(metadata::warnings(context.served, &new["metadata"]));
    // Built-in kinds report errors of names together with errors of their strategy.
    if served.origin != Origin::System || !errors.is_empty() {
        errors.splice(0..0, misnamed.drain(..));
        refuse(served, &name, errors)?;
    }
    owners::created(context, &mut new);

    let (mut stored, residual) = to_storage(context, &new, None)?;
    let strategy = &served.api.strategy;
    let converted = unsettled(context, (&stored, residual.as_deref()));
    strategy.default(&mut stored);
    strategy.prepare_for_create(&mut stored, now);
    let mut errors = misnamed;
    errors.extend(strategy.validate(&stored));
    errors.extend(errors_in_other_versions(context, (&stored, residual.as_deref()), None)?);
    refuse(served, &name, errors)?;
    warnings.extend(strategy.warnings(&stored, None));
    strategy.canonicalize(&mut stored);
    let stored = settle(context, converted, (stored, residual))?;
    Ok(draft(context, new, stored, warnings))
}

/// Returns the draft of a valid write, from the object in the request's version and in the stored
/// one.
fn draft(context: &Context<'_>, new: Json, (stored, residual): StoredForm, warnings: Vec<String>) -> Draft {
    Draft {
        written_under: mark(context, &stored),
        value: stored,
        residual,
        shown: shown(context, new),
        warnings,
    }
}

/// Prepares a changed object, sent in the request's version, over the old one.
///
/// # Errors
/// The change is invalid, or one of the objects cannot be converted.
pub(crate) fn update(context: &Context<'_>, mut new: Json, old: &Entry) -> Result<Draft> {
    let Context {
        served, version, part, ..
    } = *context;
    let old_seen = stored::value(served, old, &version.name)?;
    let name = old.object.meta.name.to_string();
    let sent = owners::take(&mut new);
    if part.is_of_status() {
        // Pruning and defaulting end at the part: the other fields stay as they are stored.
        fit(context, &mut new);
        new = status_only(served, new, &old_seen);
    }
    if part == Part::Finalizers {
        new = finalizers_only(&new, &old_seen);
    }
    keep_old_metadata(context, &mut new, &old_seen);
    let mut warnings = metadata::unite_owners(metadata_of(&mut new));
    if version.status && !part.is_of_status() {
        match old_seen.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => remove(&mut new, "status"),
        }
    }
    if !part.is_of_status() {
        fit(context, &mut new);
    }
    count_generation(served, version, &mut new, &old_seen, part);

    let mut errors = Vec::new();
    metadata::validate(served, &new["metadata"], &mut errors);
    metadata::validate_update(&new["metadata"], &old_seen["metadata"], &mut errors);
    let outcome = insula_schema::validate_update(&new, &old_seen, &version.schema, &served.meter);
    errors.extend(outcome.errors.into_iter().map(|error| match part {
        Part::Main | Part::Scale | Part::Finalizers => in_words_of(served, error),
        Part::Status | Part::Approval => seen_from_status(error),
    }));
    let prefix = match part.is_of_status() {
        true => ".status",
        false if version.status => ".spec",
        false => "",
    };
    errors.extend(scale_errors(version, &new, Some(&old_seen), prefix));
    errors.extend(served.errors_of_version(&new, &version.name));
    warnings.extend(outcome.warnings);
    warnings.extend(metadata::warnings(context.served, &new["metadata"]));
    refuse(served, &name, errors)?;
    owners::updated(context, old, old_seen, &mut new, sent);

    let old_stored = stored::stored_value(old);
    let converted = to_storage(context, &new, Some(old))?;
    let (stored, changed) = by_strategy(context, &new, converted, (old, &old_stored))?;
    warnings.extend(changed);
    Ok(draft(context, new, stored, warnings))
}

/// Runs the strategy on a changed object in its stored form. Returns the form to store, and
/// warnings. `new` is the object in the request's version.
fn by_strategy(
    context: &Context<'_>,
    new: &Json,
    (mut stored, residual): StoredForm,
    (old, old_stored): (&Entry, &Json),
) -> Result<(StoredForm, Vec<String>)> {
    let Context { served, part, .. } = *context;
    let strategy = &served.api.strategy;
    let converted = unsettled(context, (&stored, residual.as_deref()));
    // A write to the status changes metadata and status only, whatever the strategy does.
    let rest = (served.api.is_compiled() && part.is_of_status()).then(|| stored.clone());
    strategy.default(&mut stored);
    strategy.prepare_for_update(&mut stored, old_stored, context.clock.now());
    if part == Part::Finalizers {
        // Writes to any other part leave these finalizers as they are.
        stored = finalizers_only(new, &stored);
    }
    let mut errors = strategy.validate(&stored);
    if strategy.traits().ratchets && !errors.is_empty() {
        let had = strategy.validate(old_stored);
        errors.retain(|error| !had.contains(error));
    }
    // A rule of the change may be one of the object as well, and is told once.
    let of_change = strategy.validate_update(&stored, old_stored).into_iter();
    errors.extend(of_change.filter(|error| !errors.contains(error)).collect::<Vec<_>>());
    let checked = (&stored, residual.as_deref());
    errors.extend(errors_in_other_versions(context, checked, Some(old))?);
    refuse(served, &old.object.meta.name, errors)?;
    let warnings = strategy.warnings(&stored, Some(old_stored));
    strategy.canonicalize(&mut stored);
    if let Some(rest) = rest {
        stored = metadata_and_status(stored, rest);
    }
    let (mut stored, residual) = settle(context, converted, (stored, residual))?;
    if served.api.is_compiled() && residual.as_deref() == old.object.residual() {
        keep_generation(served, &mut stored, old_stored);
    }
    Ok(((stored, residual), warnings))
}

/// Words a duplicate error as Kubernetes does: built-in kinds name the key, others name the item.
fn in_words_of(served: &Served, error: FieldError) -> FieldError {
    if error.kind != FieldErrorKind::Duplicate || !served.api.strategy.traits().built_in {
        return error;
    }
    match serde_json::from_str(&error.value) {
        Ok(Json::Object(keys)) if keys.len() == 1 => {
            let key = keys.iter().next();
            key.map_or(error.clone(), |(key, value)| {
                FieldError::duplicate(&error.field.child(key), value)
            })
        }
        _ => error,
    }
}

/// Removes the prefix `status.` from the detail of an error about a status.
fn seen_from_status(mut error: FieldError) -> FieldError {
    if let Some(rest) = error.detail.strip_prefix("status.") {
        error.detail = rest.to_owned();
    }
    error
}
