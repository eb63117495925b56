//! Admission policies at a write: which policies of a workspace concern it, and what they decide.
//!
//! [`hooks`] finds the policies that are bound, [`matching`] says whether they concern the
//! [`request`], [`params`] are what bindings give, and [`evaluate`] runs the programs that
//! [`insula_catalog::policies`] compiled.

mod authorizer;
mod evaluate;
mod hooks;
mod matching;
mod mutating;
mod params;
mod patch;
mod request;
#[cfg(test)]
mod tests;
mod type_check;
mod validating;
mod webhooks;

pub use hooks::Policies;
pub use mutating::Mutations;
pub use request::{New, Request};
pub use type_check::{ExpressionWarning, type_check};
pub use validating::review;
pub use webhooks::validate as ask_webhooks;
