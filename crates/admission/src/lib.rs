//! Admission of writes: the rules of our own kinds, admission policies and webhooks of workspaces,
//! quotas, and the limits of what a workspace stores; and plans of publications, which are checked
//! as their writes will be.
//!
//! Admission runs on the storage version, after the strategy of the kind and before the commit, and
//! reads the same snapshot as the rest of the request.

pub mod kinds;
pub mod object_limit;
pub mod policy;
pub mod publication;
pub mod quota;
pub mod storage_limit;

pub use kinds::{Operation, Review};
pub use policy::{ExpressionWarning, type_check};
