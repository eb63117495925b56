//! Virtual workspaces of providers, with the objects of their consumers: by requests, with kubectl,
//! and a controller of kube-rs.

mod claim_labels;
mod controller;

// One test for each script of `e2e/scripts/views`.
include!(concat!(env!("OUT_DIR"), "/views.rs"));
