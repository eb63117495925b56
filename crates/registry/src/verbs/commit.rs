//! The commit of a verb: attempts and errors.

use insula_catalog::{Error, Named};
use insula_store::CommitError;

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
