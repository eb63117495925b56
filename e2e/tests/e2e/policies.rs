//! Admission policies: rules of a workspace for its own writes.

scripts!("policies": matching, mutating, provider, validating);
