//! Meaning of etcd's errors: what certainly did not happen, what etcd refuses, and what nobody
//! knows.

use etcd_client::Error;

// gRPC codes by number, so that this crate names no gRPC library.
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

/// Consequence of an error for the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The request was certainly not executed, and may be by another member or later.
    NotExecuted,
    /// etcd says no, and says it again when it is asked again.
    Refused,
    /// The request may have been executed, or may still be.
    Unknown,
}

/// Texts of errors that come before the request is proposed to etcd's members. `no leader` is the
/// answer of the interceptor that looks at the metadata `hasleader`; a proposal is dropped by a
/// member that knows no leader to forward it to.
const BEFORE_EXECUTION: [&str; 5] = [
    "tcp connect error",
    "etcdserver: no leader",
    "raft proposal dropped",
    "etcdserver: too many requests",
    "etcdserver: revision of auth store is old",
];

pub(crate) fn meaning(error: &Error) -> Meaning {
    match error {
        Error::GRpcStatus(status) => {
            let refused = [
                INVALID_ARGUMENT,
                PERMISSION_DENIED,
                RESOURCE_EXHAUSTED,
                FAILED_PRECONDITION,
                OUT_OF_RANGE,
                UNAUTHENTICATED,
            ];
            // The text first: some of these have the code of a refusal.
            if BEFORE_EXECUTION.iter().any(|text| status.message().contains(text)) {
                Meaning::NotExecuted
            } else if refused.contains(&(status.code() as i32)) {
                Meaning::Refused
            } else {
                Meaning::Unknown
            }
        }
        Error::InvalidArgs(_) => Meaning::Refused,
        _ => Meaning::Unknown,
    }
}

/// Returns true when the answer was larger than a message may be.
pub(crate) fn too_large_to_read(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if status.code() as i32 == OUT_OF_RANGE && status.message().contains("length"))
}

/// Returns true when etcd found the request too large.
pub(crate) fn request_too_large(error: &Error) -> bool {
    let texts = ["request is too large", "too many operations"];
    has_text(error, &texts)
}

/// Text of the refusal of a put while the alarm NOSPACE is on.
const FULL: &str = "database space exceeded";

/// Returns true when etcd has no space for what the request puts. It may have executed it: the one
/// that takes the last space.
pub(crate) fn is_full(error: &Error) -> bool {
    has_text(error, &[FULL])
}

/// Returns true for the text of an error for which [`is_full`] is true.
pub(crate) fn says_full(reason: &str) -> bool {
    reason.contains(FULL)
}

/// Returns true when the revision asked for was compacted.
pub(crate) fn compacted(error: &Error) -> bool {
    has_text(error, &["required revision has been compacted"])
}

/// Returns true when the revision asked for is newer than etcd's.
pub(crate) fn future(error: &Error) -> bool {
    has_text(error, &["required revision is a future revision"])
}

fn has_text(error: &Error, texts: &[&str]) -> bool {
    matches!(error, Error::GRpcStatus(status) if texts.iter().any(|text| status.message().contains(text)))
}
