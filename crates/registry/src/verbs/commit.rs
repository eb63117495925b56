//! The commit of a verb: attempts and errors.

use crate::deps::Deps;
use insula_access::Target;
use insula_api::ObjectKey;
use insula_catalog::{Error, Named};
use insula_store::CommitError;
use std::borrow::Cow;

/// Maximum attempts of a write without a revision of the caller's. Each failed attempt is another
/// writer's success, so this many patches of one object may arrive at once.
pub(super) const ATTEMPTS_MAX: usize = 128;

/// Converts the error of a commit to the error of a verb.
pub(crate) fn commit_error(error: CommitError) -> Error {
    match error {
        CommitError::Conflict { key, .. } => Error::Conflict {
            resource: Named {
                group: key.resource.group.clone(),
                resource: key.resource.resource.clone(),
            },
            name: key.name.to_string(),
            detail: "the object has been modified; please apply your changes to the latest version and try again"
                .into(),
        },
        CommitError::TooLarge { .. } => Error::TooLarge(error.to_string()),
        CommitError::Full(why) => Error::InsufficientStorage(why),
        CommitError::Unknown(_) | CommitError::Unavailable(_) => Error::Unavailable(error.to_string()),
    }
}

/// Returns the target of the next attempt of a write that conflicted on a key: the same one, or one
/// by the new route if the conflict is on the route. `None` if the resource is another one now.
pub(super) fn next_target<'t>(deps: &Deps, target: Cow<'t, Target>, key: &ObjectKey) -> Option<Cow<'t, Target>> {
    if !target.is_routed_by(key) {
        return Some(target);
    }
    let rerouted = target.rerouted(&deps.catalog, &deps.store.latest());
    rerouted.map(Cow::Owned)
}
