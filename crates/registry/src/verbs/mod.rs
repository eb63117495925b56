//! The verbs, the same for every resource.

mod admit;
mod apply;
mod change;
mod check;
mod delete;
mod read;
mod watch;
mod write;

pub use apply::{Configured, IfAbsent, apply};
pub use change::{Change, Patch};
pub use delete::{
    DeleteOptions, Deleted, Deletion, FOREGROUND, ORPHAN, Preconditions, Propagation, delete, delete_collection,
    mark_deleted,
};
pub use read::{List, ListOptions, Token, get, list, list_at, show};
pub use watch::{Event, Watch, WatchOptions, gone, watch_after, watch_with_state};
pub(crate) use write::commit_error;
pub use write::{FieldValidation, WriteOptions, Written, create, update};
