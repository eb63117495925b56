//! Messages that are read and written. Those of built-in kinds stand in the kinds' own files
//! ([`insula_catalog::builtin`]); here are the messages that belong to no kind.

use insula_catalog::{
    builtin,
    kind::message::{Field, META, Type},
};

const LIST_META: &[Field] = &[
    (2, "resourceVersion", Type::Text, false),
    (3, "continue", Type::Text, false),
    (4, "remainingItemCount", Type::Integer, false),
];
const PRECONDITIONS: &[Field] = &[(1, "uid", Type::Text, false), (2, "resourceVersion", Type::Text, false)];
const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Type::Integer, false),
    (2, "preconditions", Type::Message(PRECONDITIONS), false),
    (3, "orphanDependents", Type::Bool, false),
    (4, "propagationPolicy", Type::Text, false),
    (5, "dryRun", Type::Text, true),
];
const CAUSE: &[Field] = &[
    (1, "reason", Type::Text, false),
    (2, "message", Type::Text, false),
    (3, "field", Type::Text, false),
];
const STATUS_DETAILS: &[Field] = &[
    (1, "name", Type::Text, false),
    (2, "group", Type::Text, false),
    (3, "kind", Type::Text, false),
    (4, "causes", Type::Message(CAUSE), true),
    (5, "retryAfterSeconds", Type::Integer, false),
    (6, "uid", Type::Text, false),
];
const STATUS: &[Field] = &[
    (1, "metadata", Type::Message(LIST_META), false),
    (2, "status", Type::Text, false),
    (3, "message", Type::Text, false),
    (4, "reason", Type::Text, false),
    (5, "details", Type::Message(STATUS_DETAILS), false),
    (6, "code", Type::Integer, false),
];
const PARTIAL: &[Field] = &[(1, "metadata", Type::Message(META), false)];
const PARTIAL_LIST: &[Field] = &[
    (1, "metadata", Type::Message(LIST_META), false),
    (2, "items", Type::Message(PARTIAL), true),
];

/// Returns the fields of a kind that clients send: built-in kinds that Go's clients have types for,
/// and the options of DELETE.
pub(super) fn read(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    match kind {
        "DeleteOptions" => Some(DELETE_OPTIONS),
        _ => builtin::message(api_version, kind),
    }
}

/// Returns the fields of a kind that the server sends: metadata of any object, and `Status`.
pub(super) fn written(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "Status") => STATUS,
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => PARTIAL,
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadataList") => PARTIAL_LIST,
        _ => return None,
    })
}
