//! Server-side apply.

use super::change::{effect, under_schemas, without_own};
use super::conflict::Conflicts;
use super::last_applied;
use super::managers::{Entry, Manager, Managers, Operation};
use super::update::update;
use super::{Versions, Writer};
use crate::fields::FieldSet;
use crate::typed::{Shape, fields_of, merge, remove, set_nulls, validate, with_named};
use insula_api::Json;
use serde_json::json;
use std::collections::BTreeMap;

/// Manager of the fields that an object had before its first apply.
const BEFORE: &str = "before-first-apply";

/// Treatment of fields that others own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Refuse the apply.
    Refuse,
    /// Take ownership of the fields.
    Force,
}

/// Result of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object in the writer's version; `None` if it is unchanged.
    pub object: Option<Json>,
    /// The managers after the apply.
    pub managers: Managers,
}

/// Failure of an apply; nothing was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own applied fields with other values: 409.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// The configuration does not fit the schema: 500, as Kubernetes answers.
    #[error("{0}")]
    Mistyped(String),
    /// The object cannot be converted to a version in which somebody owns fields.
    #[error("{0}")]
    Version(String),
}

/// Applies a configuration. `live` is the object, or an empty one if it is created; both are in the
/// writer's version and without `managedFields`.
///
/// # Errors
/// Returns [`ApplyError`] for conflicts, a configuration that does not fit the schema, or a failed
/// conversion.
pub fn apply(
    live: &Json,
    config: &Json,
    managers: &Managers,
    writer: &Writer<'_>,
    on_conflict: OnConflict,
    versions: &dyn Versions,
) -> Result<Applied, ApplyError> {
    let shape = versions
        .shape(writer.api_version)
        .ok_or_else(|| ApplyError::Version("the version is not served".into()))?;
    validate(shape, config).map_err(ApplyError::Mistyped)?;
    let exists = live.as_object().is_some_and(|fields| !fields.is_empty());
    let tracked = if exists && managers.is_empty() {
        let before = Writer {
            manager: BEFORE,
            ..*writer
        };
        update(&json!({}), live, Managers::default(), &before, versions).map_err(ApplyError::Version)?
    } else {
        managers.clone()
    };
    let mut applied = attempt(shape, (live, config), &tracked, writer, on_conflict, versions);
    if let Err(ApplyError::Conflicts(conflicts)) = &applied
        && writer.manager == last_applied::MANAGER
        && let Some(owned) = last_applied::fields(live, writer.api_version, shape)
    {
        let left = conflicts.0.iter().filter(|conflict| !owned.contains(&conflict.field.0));
        let left: Vec<_> = left.cloned().collect();
        applied = match left.is_empty() {
            true => attempt(shape, (live, config), &tracked, writer, OnConflict::Force, versions),
            false => Err(ApplyError::Conflicts(Conflicts(left))),
        };
    }
    let mut applied = applied?;
    if writer.manager == last_applied::MANAGER {
        last_applied::renew(live, &mut applied.object, config);
    }
    Ok(applied)
}

fn attempt(
    shape: Shape<'_>,
    (live, config): (&Json, &Json),
    managers: &Managers,
    writer: &Writer<'_>,
    on_conflict: OnConflict,
    versions: &dyn Versions,
) -> Result<Applied, ApplyError> {
    let mut managers = managers.clone();
    under_schemas(&mut managers, versions);
    let own = writer.identity(Operation::Apply);
    let merged = merge(shape, live, config);
    let mut fields = fields_of(shape, config);
    fields.cut(writer.ignored);
    let entry = Entry {
        api_version: writer.api_version.into(),
        fields,
        time: None,
    };
    let last = managers.0.insert(own.clone(), entry);
    let mut object = match &last {
        Some(last) => prune(merged, last, &managers, writer, versions).map_err(ApplyError::Version)?,
        None => merged,
    };
    set_nulls(shape, &mut object, config);
    let effect = effect(live, &object, &managers, Some(&own), writer, versions).map_err(ApplyError::Version)?;
    if on_conflict == OnConflict::Refuse
        && let Some(conflicts) = Conflicts::from_sets(effect.taken.clone())
    {
        return Err(ApplyError::Conflicts(conflicts));
    }
    effect.settle(&mut managers);
    let changed = object != *live;
    stamp(
        &mut managers,
        &own,
        changed.then_some(writer.now).or(last.and_then(|last| last.time)),
    );
    Ok(Applied {
        object: changed.then_some(object),
        managers,
    })
}

fn stamp(managers: &mut Managers, own: &Manager, time: Option<insula_api::Timestamp>) {
    if let Some(entry) = managers.0.get_mut(own) {
        without_own(&mut entry.fields);
        entry.time = time;
        if entry.fields.is_empty() {
            managers.0.remove(own);
        }
    }
}

/// Removes from the merged object the fields that the writer's last configuration had and the new
/// one lacks, unless others own them.
fn prune(
    merged: Json,
    last: &Entry,
    managers: &Managers,
    writer: &Writer<'_>,
    versions: &dyn Versions,
) -> Result<Json, String> {
    let version = &*last.api_version;
    let Some(shape) = versions.shape(version) else {
        return Ok(merged);
    };
    let merged = versions.convert(&merged, writer.api_version, version)?;
    let given = with_named(shape, last.fields.clone());
    let without = remove(shape, &merged, &given);
    let without = add_back_owned(&merged, without, version, managers, versions)?;
    // Only fields that were given up are removed, not those beside them.
    let mut gone = with_named(shape, fields_of(shape, &merged));
    gone.subtract(&with_named(shape, fields_of(shape, &without)));
    let pruned = remove(shape, &merged, &gone.intersection(&given));
    versions.convert(&pruned, version, writer.api_version)
}

/// Restores fields that somebody owns, version by version; the current version first, since
/// conversions start from it.
fn add_back_owned(
    merged: &Json,
    mut without: Json,
    version: &str,
    managers: &Managers,
    versions: &dyn Versions,
) -> Result<Json, String> {
    let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for entry in managers.0.values() {
        owned.entry(&entry.api_version).or_default().unite(entry.fields.clone());
    }
    let first = owned.remove(version).map(|fields| (version, fields));
    for (at, fields) in first.into_iter().chain(owned) {
        let Some(shape) = versions.shape(at) else { continue };
        let whole = versions.convert(merged, version, at)?;
        let part = versions.convert(&without, version, at)?;
        let mut gone = with_named(shape, fields_of(shape, &whole));
        let mut kept = with_named(shape, fields_of(shape, &part));
        kept.unite(with_named(shape, fields));
        gone.subtract(&kept);
        let restored = remove(shape, &whole, &gone);
        if at == version {
            without = restored;
            continue;
        }
        // Fields that a version cannot show return with every conversion: only those restored here
        // count.
        let Some(own) = versions.shape(version) else { continue };
        let mut added = with_named(own, fields_of(own, &versions.convert(&restored, at, version)?));
        added.subtract(&with_named(own, fields_of(own, &versions.convert(&part, at, version)?)));
        // An object around hidden fields is in both, and may not be in what is left without it.
        let mut added = added.with_parents();
        added.unite(with_named(own, fields_of(own, &without)));
        let mut gone = with_named(own, fields_of(own, merged));
        gone.subtract(&added);
        without = remove(own, merged, &gone);
    }
    Ok(without)
}
