//! Text formats that Kubernetes takes from Go's standard library, read by Go's rules.
//!
//! Values of these formats are part of Kubernetes' API, so that a text is accepted here exactly if
//! Go accepts it, and refused in Go's words. Pure: no clock, no randomness, no IO. Not here: JSON
//! and YAML, and formats of Kubernetes itself (quantities, names).
#![warn(missing_docs)]

pub mod duration;
pub mod regexp;
