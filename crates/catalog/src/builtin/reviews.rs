//! Reviews of access and identity: requests that are answered at once and never stored.

use crate::{
    Builtin, Strategy, Traits,
    kind::{
        crd,
        message::{Field, META, Message, REQUIREMENT, Type, list, one, optional, text, texts},
    },
};

pub(super) const KINDS: &[Builtin] = &[
    review(
        crd!("authorization.k8s.io_subjectaccessreviews"),
        &[Message::new(
            "authorization.k8s.io/v1",
            "SubjectAccessReview",
            ACCESS_REVIEW,
        )],
    )
    .claimable(),
    review(
        crd!("authorization.k8s.io_localsubjectaccessreviews"),
        &[Message::new(
            "authorization.k8s.io/v1",
            "LocalSubjectAccessReview",
            ACCESS_REVIEW,
        )],
    )
    .claimable(),
    review(
        crd!("authorization.k8s.io_selfsubjectaccessreviews"),
        &[Message::new(
            "authorization.k8s.io/v1",
            "SelfSubjectAccessReview",
            ACCESS_REVIEW,
        )],
    ),
    review(
        crd!("authorization.k8s.io_selfsubjectrulesreviews"),
        &[Message::new(
            "authorization.k8s.io/v1",
            "SelfSubjectRulesReview",
            RULES_REVIEW,
        )],
    ),
    review(
        crd!("authentication.k8s.io_selfsubjectreviews"),
        &[Message::new(
            "authentication.k8s.io/v1",
            "SelfSubjectReview",
            SELF_REVIEW,
        )],
    ),
    review(
        crd!("authentication.k8s.io_tokenreviews"),
        &[Message::new("authentication.k8s.io/v1", "TokenReview", TOKEN_REVIEW)],
    )
    .claimable(),
];

const fn review(definition: &'static str, messages: &'static [Message]) -> Builtin {
    Builtin {
        strategy: &Reviews,
        messages,
        ..Builtin::new(definition)
    }
}

const SELECTED: &[Field] = &[text(1, "rawSelector"), list(2, "requirements", REQUIREMENT)];
const RESOURCE_ASKED: &[Field] = &[
    text(1, "namespace"),
    text(2, "verb"),
    text(3, "group"),
    text(4, "version"),
    text(5, "resource"),
    text(6, "subresource"),
    text(7, "name"),
    one(8, "fieldSelector", SELECTED),
    one(9, "labelSelector", SELECTED),
];
const PATH_ASKED: &[Field] = &[text(1, "path"), text(2, "verb")];
/// The question of an access review; one about the sender names no user.
const ACCESS_ASKED: &[Field] = &[
    optional(1, "resourceAttributes", RESOURCE_ASKED),
    optional(2, "nonResourceAttributes", PATH_ASKED),
    text(3, "user"),
    texts(4, "groups"),
    (5, "extra", Type::TextsMap, false),
    text(6, "uid"),
];
const ACCESS_REVIEW: &[Field] = &[one(1, "metadata", META), one(2, "spec", ACCESS_ASKED)];
const RULES_REVIEW: &[Field] = &[one(1, "metadata", META), one(2, "spec", &[text(1, "namespace")])];
const SELF_REVIEW: &[Field] = &[one(1, "metadata", META)];
const TOKEN_ASKED: &[Field] = &[text(1, "token"), texts(2, "audiences")];
const TOKEN_REVIEW: &[Field] = &[one(1, "metadata", META), one(2, "spec", TOKEN_ASKED)];

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
