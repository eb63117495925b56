//! Admission of ThirdPartyResources: their group is not reserved, and no built-in kind has their
//! names.

use super::{
    definition::check_place,
    review::{Operation, Review, Rules},
};
use insula_api::{Json, names::groups};
use insula_catalog::{Result, registration};

const KINDS: &[&str] = &["thirdpartyresources"];

/// Rules of the first generation.
pub(super) const FIRST: Rules = rules(groups::EXTENSIONS);

/// Rules of the second generation.
pub(super) const SECOND: Rules = rules(groups::APIEXTENSION);

const fn rules(group: &'static str) -> Rules {
    Rules {
        write: |review, new, _| self::review(review, new),
        ..Rules::new(group, KINDS)
    }
}

fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    match registration::wanted(new) {
        Some(wanted) if review.operation == Operation::Create => check_place(review, new, &wanted),
        _ => Ok(()),
    }
}
