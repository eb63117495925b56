//! Admission policies and webhooks: selection of those that match a write, and their evaluation.
//!
//! `hooks` finds the bound policies, `matching` matches them against the `request`,
//! `params` collects the parameters of bindings, and `evaluate` runs the programs that
//! [`insula_catalog::policies`] compiled.

mod authorizer;
mod budget;
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

pub use budget::WriteBudget;
pub use hooks::Policies;
pub use mutating::Mutations;
pub use request::{New, Request};
pub use type_check::{ExpressionWarning, type_check};
pub use validating::review;
pub use webhooks::validate as ask_webhooks;
