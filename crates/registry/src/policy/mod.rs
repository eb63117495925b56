//! Admission policies: what a workspace says about its own writes, in CEL.
//!
//! [`spec`] reads what policies and bindings say, [`compile`] makes programs of it in the
//! [`environment`] that Kubernetes gives them, [`validate`] tells what is wrong. At a write,
//! [`hooks`] finds the policies that are bound, [`matching`] says whether they concern the
//! [`request`], [`params`] are what bindings give, and [`evaluate`] runs the programs.

mod authorizer;
mod compile;
mod environment;
mod evaluate;
mod hooks;
mod matching;
mod mutating;
mod params;
mod patch;
mod request;
mod spec;
#[cfg(test)]
mod tests;
mod type_check;
pub(crate) mod validate;
mod validating;
mod webhooks;

pub(crate) use hooks::Policies;
pub(crate) use mutating::Mutations;
pub(crate) use request::{New, Request};
pub use type_check::{ExpressionWarning, type_check};
pub(crate) use validating::review;
pub(crate) use webhooks::validate as ask_webhooks;
