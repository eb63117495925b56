//! The verbs, the same for every resource.

mod admit;
mod apply;
mod change;
mod check;
mod delete;
mod read;
mod watch;
mod write;

pub use apply::{Configured, IfAbsent};
pub use change::{Change, Patch};
pub use delete::{DeleteOptions, Deleted, Deletion, FOREGROUND, ORPHAN, Preconditions, Propagation, mark_deleted};
pub use read::{List, ListOptions, Token};
pub use watch::{Event, Watch, WatchOptions, gone};
pub(crate) use write::commit_error;
pub use write::{FieldValidation, WriteOptions, Written};
