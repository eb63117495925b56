//! Admission of events: the rules of the API group through which an event was sent.

use crate::kinds::review::Rules;
use insula_catalog::{builtin, object::refuse};

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| {
        let errors = builtin::review_event(new, old, review.served.alias.is_some());
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        refuse(review.served, name, errors)
    },
    ..Rules::new("", &["events"])
};
