//! Admission policies: what a workspace says about its own writes.

scripts!("policies": matching, mutating, provider, validating);
