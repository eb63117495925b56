//! The options and the result of a write.

use insula_auth::{UserInfo, audit::Record};
use insula_store::Entry;
use std::fmt;

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

/// Keys that a body has more than once, as the decoder of its format reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeated {
    /// Paths of the fields.
    Fields(Vec<String>),
    /// Messages with lines, of a body in YAML.
    Lines(Vec<String>),
}

/// Calls a function with the path of each key of a body, in the order of the body. Used only for
/// bodies whose fields strict decoding refuses.
pub type VisitKeys<'a> = dyn Fn(&dyn Fn(&str)) + Send + Sync + 'a;

/// Keys of a body, as its decoder found them.
#[derive(Clone)]
pub struct SentKeys<'a> {
    /// Keys that the body has more than once.
    pub repeated: Repeated,
    /// Visits the paths of all keys in the order of the body.
    pub in_order: Option<&'a VisitKeys<'a>>,
}

impl Default for SentKeys<'_> {
    fn default() -> Self {
        SentKeys {
            repeated: Repeated::Fields(Vec::new()),
            in_order: None,
        }
    }
}

impl fmt::Debug for SentKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.repeated.fmt(f)
    }
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
    /// Keys of the body; none for writes without one.
    pub keys: SentKeys<'a>,
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
