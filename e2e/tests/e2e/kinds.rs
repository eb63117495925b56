//! kcp's kinds in kcp's shapes.

// One test for each script of `e2e/scripts/kinds`.
include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
