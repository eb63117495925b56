//! Admission policies, bindings and webhook configurations: their specs, programs and validation.
//!
//! [`spec`] reads the objects. [`compile`] compiles their expressions in the [`environment`] that
//! Kubernetes declares. [`validate`] reports errors. Admission evaluates the programs at a write.

pub mod compile;
pub mod environment;
pub mod spec;
pub mod validate;
