//! Limits and shares of CPU time of users and workspaces.

pub mod fair_queue;
pub mod fair_share;
pub mod limits;

pub use limits::Limit;
