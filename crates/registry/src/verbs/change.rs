//! Changes of a stored object: replacement, patch and server-side apply.

use super::admit::{self, Admission};
use super::{
    check::{check_identity, check_patched},
    strict::{UnknownFields, check_fields},
};
use crate::{
    context::{By, Context},
    deps::Deps,
    draft::Draft,
    metadata::drop_shown_labels,
    metadata_only, migrate, owners, prepare,
};
use insula_access::Target;
use insula_api::{Json, Verb};
use insula_apply::{Managers, OnConflict};
use insula_catalog::{Error, Part, Result, stored};
use insula_store::Entry;

/// A function from the present object to the patched one.
pub type Patch<'a> = dyn Fn(&Json) -> Result<Json> + Send + Sync + 'a;

/// The kind of an update. Old and new objects are in the request's version.
pub enum Change<'a> {
    /// The new object as it is (PUT).
    Replace(Json),
    /// A function of the present object (PATCH), called again after a conflict.
    Patch(&'a Patch<'a>),
    /// The manager's configuration, applied to the present object (server-side apply).
    Apply(&'a Json, OnConflict),
}

impl Change<'_> {
    /// Returns the verb of the request.
    pub(super) fn verb(&self) -> Verb {
        match self {
            Change::Replace(_) => Verb::Update,
            Change::Patch(_) | Change::Apply(..) => Verb::Patch,
        }
    }

    /// Returns true if a conflict may be retried: the caller gave no revision.
    pub(super) fn may_retry(&self) -> bool {
        match self {
            Change::Replace(new) => new["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty),
            Change::Patch(_) | Change::Apply(..) => true,
        }
    }
}

/// Returns the draft that a change makes of an object, before admission.
pub(super) fn changed(
    deps: &Deps,
    admission: &Admission<'_>,
    old: &Entry,
    change: &Change<'_>,
    warnings: &mut Vec<String>,
) -> Result<Draft> {
    let Admission {
        target,
        options,
        part,
        name,
        ..
    } = *admission;
    let version = target.api_version()?;
    let mut context = Context::new(deps, target, version, part, By::Update(&options.manager));
    let applied: Managers;
    let (mut new, patched) = match change {
        Change::Replace(new) => (new.clone(), false),
        Change::Patch(patch) => {
            let mut seen = match stored::value(&target.served, old, &version.name) {
                Ok(seen) => seen,
                Err(unreadable) if target.served.api.webhook.is_some() => return Err(unreadable),
                Err(unreadable) => return changed_metadata(deps, &context, admission, old, patch, unreadable),
            };
            target.show_label(&mut seen);
            let new = patch(&seen)?;
            check_patched(target, name, &new)?;
            warnings.extend(check_fields(target, &new, options, UnknownFields::Patch)?);
            (new, true)
        }
        Change::Apply(config, on_conflict) => {
            let new;
            (new, applied) = owners::apply(&context, &options.manager, Some(old), config, *on_conflict)?;
            context.by = By::Applied(&applied);
            check_patched(target, name, &new)?;
            (new, true)
        }
    };
    check_identity(target, name, &new, old, patched)?;
    drop_shown_labels(&mut new);
    if part == Part::Main && is_stuck(target, old) && admit::mutations(deps, admission).is_none() {
        let seen = stored::value(&target.served, old, &version.name)?;
        if metadata_only::is_one(&context, &new, &seen) {
            return metadata_only::update(&context, new, old);
        }
    }
    if let Some(mutations) = admit::mutations(deps, admission) {
        prepare::complete(&context, &mut new);
        warnings.extend(mutations.apply(&mut new)?);
    }
    prepare::update(&context, new, old)
}

/// Returns true if an object is not stored in today's storage version and cannot be migrated to
/// it.
fn is_stuck(target: &Target, old: &Entry) -> bool {
    *old.object.version() != *target.served.api.storage_version().name
        && migrate::migrated(&target.served, old).is_err()
}

/// Prepares a patch through a version whose rules cannot show the object. A change of metadata
/// alone needs no rules. A client can thus remove finalizers and owners without knowing the
/// stored version. Any other change fails with the read error, and so does any change if a
/// mutating policy applies.
fn changed_metadata(
    deps: &Deps,
    context: &Context<'_>,
    admission: &Admission<'_>,
    old: &Entry,
    patch: &Patch<'_>,
    unreadable: Error,
) -> Result<Draft> {
    let Admission { target, part, name, .. } = *admission;
    let seen = metadata_only::seen(context, old);
    let mut shown = seen.clone();
    target.show_label(&mut shown);
    let Ok(mut new) = patch(&shown) else {
        return Err(unreadable);
    };
    drop_shown_labels(&mut new);
    let fits = part == Part::Main && metadata_only::is_one(context, &new, &seen);
    if !fits || admit::mutations(deps, admission).is_some() {
        return Err(unreadable);
    }
    check_patched(target, name, &new)?;
    check_identity(target, name, &new, old, true)?;
    metadata_only::update(context, new, old)
}
