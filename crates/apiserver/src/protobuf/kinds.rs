//! Tables of the messages that are read and written. Field numbers are those of Kubernetes'
//! `generated.proto` files.

use super::{
    field::{Field, META, Type},
    policies,
};

const LIST_META: &[Field] = &[
    (2, "resourceVersion", Type::Text, false),
    (3, "continue", Type::Text, false),
    (4, "remainingItemCount", Type::Integer, false),
];
const NAMESPACE: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "spec", Type::Message(&[(1, "finalizers", Type::Text, true)]), false),
    (3, "status", Type::Message(&[(1, "phase", Type::Text, false)]), false),
];
const CONFIG_MAP: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "data", Type::TextMap, false),
    (3, "binaryData", Type::BytesMap, false),
    (4, "immutable", Type::Bool, false),
];
const SECRET: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "data", Type::BytesMap, false),
    (3, "type", Type::Text, false),
    (4, "stringData", Type::TextMap, false),
    (5, "immutable", Type::Bool, false),
];
const SERVICE_ACCOUNT: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "secrets", Type::Message(REFERENCE), true),
    (
        3,
        "imagePullSecrets",
        Type::Message(&[(1, "name", Type::Text, false)]),
        true,
    ),
    (4, "automountServiceAccountToken", Type::Bool, false),
];
const LEASE_SPEC: &[Field] = &[
    (1, "holderIdentity", Type::Text, false),
    (2, "leaseDurationSeconds", Type::Integer, false),
    (3, "acquireTime", Type::MicroTime, false),
    (4, "renewTime", Type::MicroTime, false),
    (5, "leaseTransitions", Type::Integer, false),
    (6, "strategy", Type::Text, false),
    (7, "preferredHolder", Type::Text, false),
];
const LEASE: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "spec", Type::Message(LEASE_SPEC), false),
];
const REFERENCE: &[Field] = &[
    (1, "kind", Type::Text, false),
    (2, "namespace", Type::Text, false),
    (3, "name", Type::Text, false),
    (4, "uid", Type::Text, false),
    (5, "apiVersion", Type::Text, false),
    (6, "resourceVersion", Type::Text, false),
    (7, "fieldPath", Type::Text, false),
];
const EVENT_SOURCE: &[Field] = &[(1, "component", Type::Text, false), (2, "host", Type::Text, false)];
const EVENT_SERIES: &[Field] = &[
    (1, "count", Type::Integer, false),
    (2, "lastObservedTime", Type::MicroTime, false),
];
const EVENT: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "involvedObject", Type::Message(REFERENCE), false),
    (3, "reason", Type::Text, false),
    (4, "message", Type::Text, false),
    (5, "source", Type::Message(EVENT_SOURCE), false),
    (6, "firstTimestamp", Type::Time, false),
    (7, "lastTimestamp", Type::Time, false),
    (8, "count", Type::Integer, false),
    (9, "type", Type::Text, false),
    (10, "eventTime", Type::MicroTime, false),
    (11, "series", Type::Message(EVENT_SERIES), false),
    (12, "action", Type::Text, false),
    (13, "related", Type::Message(REFERENCE), false),
    (14, "reportingComponent", Type::Text, false),
    (15, "reportingInstance", Type::Text, false),
];
/// An event in `events.k8s.io`, whose fields have other names and numbers.
const NEW_EVENT: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "eventTime", Type::MicroTime, false),
    (3, "series", Type::Message(EVENT_SERIES), false),
    (4, "reportingController", Type::Text, false),
    (5, "reportingInstance", Type::Text, false),
    (6, "action", Type::Text, false),
    (7, "reason", Type::Text, false),
    (8, "regarding", Type::Message(REFERENCE), false),
    (9, "related", Type::Message(REFERENCE), false),
    (10, "note", Type::Text, false),
    (11, "type", Type::Text, false),
    (12, "deprecatedSource", Type::Message(EVENT_SOURCE), false),
    (13, "deprecatedFirstTimestamp", Type::Time, false),
    (14, "deprecatedLastTimestamp", Type::Time, false),
    (15, "deprecatedCount", Type::Integer, false),
];
const REQUEST_SPEC: &[Field] = &[
    (1, "request", Type::Bytes, false),
    (2, "username", Type::Text, false),
    (3, "uid", Type::Text, false),
    (4, "groups", Type::Text, true),
    (5, "usages", Type::Text, true),
    (6, "extra", Type::TextsMap, false),
    (7, "signerName", Type::Text, false),
    (8, "expirationSeconds", Type::Integer, false),
];
const REQUEST_CONDITION: &[Field] = &[
    (1, "type", Type::Text, false),
    (2, "reason", Type::Text, false),
    (3, "message", Type::Text, false),
    (4, "lastUpdateTime", Type::Time, false),
    (5, "lastTransitionTime", Type::Time, false),
    (6, "status", Type::Text, false),
];
const REQUEST_STATUS: &[Field] = &[
    (1, "conditions", Type::Message(REQUEST_CONDITION), true),
    (2, "certificate", Type::Bytes, false),
];
const REQUEST: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "spec", Type::Message(REQUEST_SPEC), false),
    (3, "status", Type::Message(REQUEST_STATUS), false),
];
const SCOPE_TERM: &[Field] = &[
    (1, "scopeName", Type::Text, false),
    (2, "operator", Type::Text, false),
    (3, "values", Type::Text, true),
];
const QUOTA_SPEC: &[Field] = &[
    (1, "hard", Type::Quantities, false),
    (2, "scopes", Type::Text, true),
    (
        3,
        "scopeSelector",
        Type::Message(&[(1, "matchExpressions", Type::Message(SCOPE_TERM), true)]),
        false,
    ),
];
const QUOTA_STATUS: &[Field] = &[
    (1, "hard", Type::Quantities, false),
    (2, "used", Type::Quantities, false),
];
const QUOTA: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "spec", Type::Message(QUOTA_SPEC), false),
    (3, "status", Type::Message(QUOTA_STATUS), false),
];
const GROUP_RESOURCE: &[Field] = &[(1, "group", Type::Text, false), (2, "resource", Type::Text, false)];
const MIGRATION: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (
        2,
        "spec",
        Type::Message(&[(1, "resource", Type::Message(GROUP_RESOURCE), false)]),
        false,
    ),
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
    Some(match (api_version, kind) {
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "Event") => EVENT,
        ("v1", "ResourceQuota") => QUOTA,
        ("events.k8s.io/v1", "Event") => NEW_EVENT,
        ("coordination.k8s.io/v1", "Lease") => LEASE,
        ("certificates.k8s.io/v1", "CertificateSigningRequest") => REQUEST,
        ("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") => MIGRATION,
        (_, "DeleteOptions") => DELETE_OPTIONS,
        (
            "rbac.authorization.k8s.io/v1"
            | "admissionregistration.k8s.io/v1"
            | "authorization.k8s.io/v1"
            | "authentication.k8s.io/v1",
            _,
        ) => return policies::read(kind),
        _ => return None,
    })
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
