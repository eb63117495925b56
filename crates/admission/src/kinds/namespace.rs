//! Admission of namespaces: those that every workspace has cannot be deleted.

use crate::kinds::review::Rules;

pub(super) const RULES: Rules = Rules {
    deletion: |review, old| match old["metadata"]["name"].as_str() {
        Some("default" | "kube-system" | "kube-public") => Err(review.forbid(old, "this namespace may not be deleted")),
        _ => Ok(()),
    },
    ..Rules::new("", &["namespaces"])
};
