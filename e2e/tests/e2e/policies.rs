//! Admission policies: rules of a workspace for its own writes.

// One test for each script of `e2e/scripts/policies`.
include!(concat!(env!("OUT_DIR"), "/policies.rs"));
