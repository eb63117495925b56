//! The options and the result of a write.

use insula_auth::{UserInfo, audit::Record};
use insula_store::Entry;

/// The treatment of fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drops them silently.
    Ignore,
    /// Drops them with a warning.
    #[default]
    Warn,
    /// Refuses the request.
    Strict,
}

/// The caller of a write, and its options.
#[derive(Debug, Clone)]
pub struct WriteOptions<'a> {
    /// The caller.
    pub user: &'a UserInfo,
    /// True to do everything except the commit.
    pub dry_run: bool,
    /// The treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Length of the request's body in bytes; 0 for writes without one.
    pub body_bytes: usize,
    /// Duplicate fields that the decoder found in the body.
    pub duplicates: Vec<String>,
    /// The field manager that owns the changed fields (`metadata.managedFields`); `unknown` if
    /// empty.
    pub manager: String,
    /// The audit record for annotations of policies and webhooks.
    pub record: Record,
}

/// The result of a write.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now. A dry run's creation has revision 0.
    pub entry: Entry,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}
