//! Field ownership: the managers of an object's fields, and the effect of writes on them. Covers
//! `metadata.managedFields` and server-side apply.
//!
//! ```text
//! update   replaces an object: the writer owns the fields that it changes; nobody owns those that
//!          it removes
//! apply    merges a configuration into the object: the writer owns its fields; fields that its
//!          last configuration had and this one lacks are removed, unless others own them; a field
//!          that another manager owns with another value is a conflict
//! ```
//! Managers may have written through other versions: their fields are compared in those versions
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

/// Conversion of objects to other versions. Versions are named as in `apiVersion`.
pub trait Versions {
    /// Returns the schema of a version; `None` if it is no longer served.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    /// Converts an object from version `from` to version `to`.
    ///
    /// # Errors
    /// Returns the reason why it cannot be converted.
    fn convert(&self, object: &Json, from: &str, to: &str) -> Result<Json, String>;
}

/// The writer of a change, with the way and time of the write.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Name of the manager.
    pub manager: &'a str,
    /// Subresource of the write; empty for the object itself.
    pub subresource: &'a str,
    /// Version of the written object.
    pub api_version: &'a str,
    /// Fields that this write cannot change and therefore does not own.
    pub ignored: &'a FieldSet,
    /// Time of the write.
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
                // A manager that applies has one entry for all versions.
                Operation::Apply => "".into(),
            },
            subresource: self.subresource.into(),
        }
    }
}

#[cfg(test)]
mod tests;
