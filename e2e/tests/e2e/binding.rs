//! The binding reconciler, seen by tenants.

// One test for each script of `e2e/scripts/binding`.
include!(concat!(env!("OUT_DIR"), "/binding.rs"));
