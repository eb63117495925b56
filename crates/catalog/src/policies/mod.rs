//! The language of admission policies: what policies, bindings and webhook configurations say, and
//! what is wrong with them.
//!
//! [`spec`] reads the objects, [`compile`] makes programs of their expressions in the
//! [`environment`] that Kubernetes gives them, [`validate`] lists errors. Running the programs at a
//! write is admission's.

pub mod compile;
pub mod environment;
pub mod spec;
pub mod validate;
