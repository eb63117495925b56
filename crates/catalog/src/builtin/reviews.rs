//! Reviews of access and identity: requests that are answered at once and never stored.

use crate::{Builtin, Strategy, Traits, kind::crd};

pub(super) const KINDS: &[Builtin] = &[
    review(crd!("authorization.k8s.io_subjectaccessreviews")).claimable(),
    review(crd!("authorization.k8s.io_localsubjectaccessreviews")).claimable(),
    review(crd!("authorization.k8s.io_selfsubjectaccessreviews")),
    review(crd!("authorization.k8s.io_selfsubjectrulesreviews")),
    review(crd!("authentication.k8s.io_selfsubjectreviews")),
    review(crd!("authentication.k8s.io_tokenreviews")).claimable(),
];

const fn review(definition: &'static str) -> Builtin {
    Builtin {
        strategy: &Reviews,
        ..Builtin::new(definition)
    }
}

/// Reviews of access and identity.
struct Reviews;

impl Strategy for Reviews {
    fn traits(&self) -> Traits {
        Traits {
            review: true,
            ..Traits::BUILT_IN
        }
    }
}
