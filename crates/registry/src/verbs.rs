//! The verbs, the same for every resource. Each is a function of the shared state
//! ([`crate::Deps`]), a target and the options of the request.
//!
//! Writes, pages and watches are boxed futures: the code of an `async fn` is compiled in each crate
//! that awaits it, that of a boxed future once, here.

mod admit;
mod apply;
mod change;
mod check;
mod commit;
mod create;
mod delete;
mod options;
mod page;
mod read;
mod select;
mod strict;
#[cfg(test)]
mod tests;
mod update;
mod watch;

pub(crate) use admit::Admission;
pub use apply::{Configured, IfAbsent, apply};
pub use change::{Change, Patch};
pub(crate) use commit::commit_error;
pub use create::create;
pub use delete::{
    DeleteOptions, Deleted, Deletion, Preconditions, Propagation, delete, delete_collection, mark_deleted,
};
pub use options::{FieldValidation, Repeated, SentKeys, VisitKeys, WriteOptions, Written};
pub use page::{List, ListOptions, Token};
pub use read::{get, list, list_at, show};
pub use update::update;
pub use watch::{Event, Watch, WatchOptions, gone, watch_after, watch_with_state};
