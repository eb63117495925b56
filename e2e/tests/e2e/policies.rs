//! Admission policies: what a workspace says about its own writes.

stories!("policies": matching, mutating, provider, validating);
