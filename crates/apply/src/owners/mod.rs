//! Who owns which fields of an object, and what a write does to that: `metadata.managedFields` and
//! server-side apply.
//!
//! ```text
//! update   an object replaced by another: what it changes is the writer's from then on, what it removes is nobody's
//! apply    a configuration laid over the object: its fields are the writer's; what it had and gave up goes, unless others
//!          own it; a field that another manager owns with another value is a conflict
//! ```
//! Managers may have written through other versions: their fields are compared in those
//! ([`Versions`]).

mod apply;
mod change;
mod conflict;
mod last_applied;
mod managers;
mod retire;
mod update;

pub use apply::{Applied, ApplyError, OnConflict, apply};
pub use conflict::{Conflict, Conflicts};
pub use managers::{Entry, Manager, Managers, Operation, UPDATE_MANAGERS_MAX};
pub use retire::{Retirement, retire};
pub use update::update;

use crate::fields::FieldSet;
use crate::typed::Shape;
use insula_api::{Json, Timestamp};

/// How objects look in other versions. Versions are named as `apiVersion` names them.
pub trait Versions {
    /// The schema of a version; nothing if it is not served any more.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    /// An object of the version `from` as `to` shows it.
    ///
    /// # Errors
    /// It cannot be shown there; says why.
    fn convert(&self, object: &Json, from: &str, to: &str) -> Result<Json, String>;
}

/// Who writes, how, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The manager's name.
    pub manager: &'a str,
    /// The subresource that is written through; empty for the object itself.
    pub subresource: &'a str,
    /// The version of what is written.
    pub api_version: &'a str,
    /// Fields that this write cannot change and therefore does not own.
    pub ignored: &'a FieldSet,
    /// Now.
    pub now: Timestamp,
}

impl Writer<'_> {
    fn identity(&self, operation: Operation) -> Manager {
        Manager {
            name: match self.manager {
                "" => "unknown".into(),
                name => name.into(),
            },
            operation,
            api_version: match operation {
                Operation::Update => self.api_version.into(),
                // One who applies has one entry, whatever the version.
                Operation::Apply => "".into(),
            },
            subresource: self.subresource.into(),
        }
    }
}

#[cfg(test)]
mod tests;
