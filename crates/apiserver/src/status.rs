//! `Status` objects of errors and successes: the only place that knows Kubernetes' HTTP codes and
//! reasons.
//!
//! One exhaustive match turns a registry error into what a client sees; constructors make the
//! answers that never reach the registry. `Failure` has the HTTP code and, for other protocols, the
//! kind of refusal of each. Messages of registry errors are their `Display`; what is
//! added here is code, reason and details.

use insula_api::{FieldError, Json, Verb};
use insula_catalog::{Cause, Denial, Error, Named};
use serde_json::{Map, json};

/// Media types that bodies and answers may have, as 406 and 415 list them.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Seconds after which a client may send a request again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A `Status` object with its HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusReply {
    /// HTTP code, also in the body.
    pub code: u16,
    /// Kind of refusal, for other protocols.
    refusal: RefusalReason,
    /// The `Status` object.
    pub body: Json,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
}

/// Kinds of refusals, for protocols that have other codes than HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The request is malformed.
    BadRequest,
    /// The caller shows no valid credential.
    Unauthenticated,
    /// The caller lacks a right.
    Forbidden,
    /// The target does not exist.
    NotFound,
    /// A limit of the caller, the workspace or the server is reached.
    LimitReached,
    /// A quota or the object limit of the workspace is reached.
    QuotaExceeded,
    /// The value of this field of the object does not exist or does not fit.
    WrongValue(&'static str),
    /// The server cannot answer now.
    Unavailable,
    /// The request was not answered in its time.
    Timeout,
    /// The server failed.
    Internal,
}

/// Failures by HTTP code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Conflict,
    Gone,
    TooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    Internal,
    NotImplemented,
    Unavailable,
    Timeout,
    InsufficientStorage,
    /// The code that an admission webhook chose.
    Webhook(u16),
}

impl Failure {
    fn http_code(self) -> u16 {
        match self {
            Failure::BadRequest => 400,
            Failure::Unauthorized => 401,
            Failure::Forbidden => 403,
            Failure::NotFound => 404,
            Failure::MethodNotAllowed => 405,
            Failure::NotAcceptable => 406,
            Failure::Conflict => 409,
            Failure::Gone => 410,
            Failure::TooLarge => 413,
            Failure::UnsupportedMediaType => 415,
            Failure::Invalid => 422,
            Failure::TooManyRequests => 429,
            Failure::Internal => 500,
            Failure::NotImplemented => 501,
            Failure::Unavailable => 503,
            Failure::Timeout => 504,
            Failure::InsufficientStorage => 507,
            Failure::Webhook(code) => code,
        }
    }

    /// Returns the kind of refusal for other protocols. `insula_admin::status` has the gRPC code of
    /// each.
    fn refusal_reason(self) -> RefusalReason {
        match self {
            Failure::BadRequest | Failure::UnsupportedMediaType => RefusalReason::BadRequest,
            Failure::Unauthorized => RefusalReason::Unauthenticated,
            Failure::Forbidden => RefusalReason::Forbidden,
            Failure::NotFound => RefusalReason::NotFound,
            Failure::TooLarge | Failure::TooManyRequests => RefusalReason::LimitReached,
            Failure::Unavailable => RefusalReason::Unavailable,
            Failure::Timeout => RefusalReason::Timeout,
            // The edge refuses no call for these reasons.
            Failure::MethodNotAllowed
            | Failure::NotAcceptable
            | Failure::Conflict
            | Failure::Gone
            | Failure::Invalid
            | Failure::Internal
            | Failure::NotImplemented
            | Failure::InsufficientStorage
            | Failure::Webhook(_) => RefusalReason::Internal,
        }
    }
}

/// Returns the Status of a registry error.
pub fn status(error: &Error) -> StatusReply {
    let message = error.to_string();
    match error {
        Error::NotFound { resource, name } => {
            failure(Failure::NotFound, "NotFound", message).details(named(resource, name))
        }
        Error::UnknownResource => failure(Failure::NotFound, "NotFound", message).details(Map::new()),
        Error::AlreadyExists {
            resource,
            name,
            deleting: _,
        } => failure(Failure::Conflict, "AlreadyExists", message).details(named(resource, name)),
        Error::NoFreeName { resource, name } => failure(Failure::Conflict, "AlreadyExists", message)
            .details(named(resource, name))
            .retry(),
        Error::Conflict {
            resource,
            name,
            detail: _,
        } => failure(Failure::Conflict, "Conflict", message).details(named(resource, name)),
        Error::Invalid { subject, name, errors } => invalid(message, named(subject, name), errors),
        Error::ApplyConflict(conflicts) => apply_conflict(message, conflicts),
        Error::Mistyped(_) | Error::Webhook(_) => failure(Failure::Internal, "", message),
        Error::BadRequest(_) => failure(Failure::BadRequest, "BadRequest", message),
        Error::Forbidden {
            resource,
            name,
            why,
            cause,
        } => forbidden_with(resource, name, why, cause.as_deref()),
        Error::WrongValue { field, .. } => of_other_kind(RefusalReason::WrongValue(field), error),
        Error::QuotaExceeded { .. } => of_other_kind(RefusalReason::QuotaExceeded, error),
        Error::Denied {
            resource,
            name,
            denial,
            message: _,
            causes,
        } => denied(message, named(resource, name), *denial, causes),
        Error::Refused {
            message: _,
            code,
            reason,
            details,
        } => refused(message, *code, reason, details),
        Error::MethodNotAllowed => failure(Failure::MethodNotAllowed, "MethodNotAllowed", message).details(Map::new()),
        Error::Expired { message: _, next } => expired(message, next.as_deref()),
        Error::RevisionTooLarge { wanted: _, current: _ } => revision_too_large(message),
        Error::TooLarge(_) => failure(Failure::TooLarge, "RequestEntityTooLarge", message),
        Error::BadPatch => failure(Failure::Invalid, "Invalid", message).details(Map::new()),
        Error::Conversion(_) => failure(Failure::Internal, "InternalError", message),
        Error::Internal(why) => {
            let cause = json!([{"message": why}]);
            failure(Failure::Internal, "InternalError", message).details(Map::from_iter([("causes".to_owned(), cause)]))
        }
        // No Retry-After: clients would repeat a write whose outcome is unknown.
        Error::Unavailable(_) => failure(Failure::Unavailable, "ServiceUnavailable", message),
        // No Retry-After: a retry fails until an administrator has freed space.
        Error::InsufficientStorage(_) => failure(Failure::InsufficientStorage, "InsufficientStorage", message),
        Error::TooManyRequests(_) => failure(Failure::TooManyRequests, "TooManyRequests", message)
            .details(Map::new())
            .retry(),
        Error::UnsupportedMediaType(_) => failure(Failure::UnsupportedMediaType, "UnsupportedMediaType", message),
        Error::Warned { error, warnings: _ } => status(error),
    }
}

fn invalid(message: String, mut details: Map<String, Json>, errors: &[FieldError]) -> StatusReply {
    if !errors.is_empty() {
        details.insert("causes".into(), errors.iter().map(field_cause).collect());
    }
    failure(Failure::Invalid, "Invalid", message).details(details)
}

fn apply_conflict(message: String, conflicts: &insula_apply::Conflicts) -> StatusReply {
    let causes = conflicts.0.iter().map(|conflict| {
        json!({
            "reason": "FieldManagerConflict",
            "message": conflict.message(),
            "field": conflict.field.to_string(),
        })
    });
    failure(Failure::Conflict, "Conflict", message).details(Map::from_iter([("causes".to_owned(), causes.collect())]))
}

fn denied(message: String, mut details: Map<String, Json>, denial: Denial, causes: &[String]) -> StatusReply {
    let (kind, reason) = match denial {
        Denial::Invalid => (Failure::Invalid, "Invalid"),
        Denial::Forbidden => (Failure::Forbidden, "Forbidden"),
        Denial::TooLarge => (Failure::TooLarge, "RequestEntityTooLarge"),
        // Kubernetes keeps the code of the default reason.
        Denial::Mutation => (Failure::Forbidden, "Invalid"),
    };
    let causes = causes.iter().map(|cause| json!({"message": cause}));
    details.insert("causes".into(), causes.collect());
    failure(kind, reason, message).details(details)
}

fn refused(message: String, code: u16, reason: &str, details: &Json) -> StatusReply {
    let reply = failure(Failure::Webhook(code), reason, message);
    match details.as_object() {
        Some(details) => reply.details(details.clone()),
        None => reply,
    }
}

fn expired(message: String, next: Option<&str>) -> StatusReply {
    let mut reply = failure(Failure::Gone, "Expired", message);
    if let Some(next) = next {
        reply.body["metadata"]["continue"] = json!(next);
    }
    reply
}

fn revision_too_large(message: String) -> StatusReply {
    let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    failure(Failure::Timeout, "Timeout", message)
        .details(Map::from_iter([("causes".to_owned(), cause)]))
        .retry()
}

/// 405: the verb is not one of the resource's.
pub fn not_supported(resource: &Named, verb: Option<Verb>) -> StatusReply {
    let verb = verb.map_or("", Verb::name);
    let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
    failure(Failure::MethodNotAllowed, "MethodNotAllowed", message).details(named(resource, ""))
}

/// 405: the verb is not one of the wildcard cluster's.
pub fn across_not_supported(resource: &Named, verb: Option<Verb>) -> StatusReply {
    let verb = verb.map_or("", Verb::name);
    let message = format!("{verb} is not supported on resources of kind \"{resource}\" in the `*` logical cluster");
    failure(Failure::MethodNotAllowed, "MethodNotAllowed", message).details(named(resource, ""))
}

/// 401: the request has no credentials, or wrong ones.
pub fn unauthorized() -> StatusReply {
    failure(Failure::Unauthorized, "Unauthorized", "Unauthorized".into())
}

/// 403: the caller lacks a right. `why` names the user, the right and the scope; `name` is empty
/// for collections; an empty resource stands for a plain path.
pub fn forbidden(resource: &Named, name: &str, why: &str) -> StatusReply {
    forbidden_with(resource, name, why, None)
}

/// 403: the caller may not request this path.
pub fn forbidden_path(why: &str) -> StatusReply {
    forbidden_with(&Named::default(), "", why, None)
}

/// Returns HTTP's 403 for an error that is of another kind in other protocols.
fn of_other_kind(refusal: RefusalReason, error: &Error) -> StatusReply {
    let (Error::WrongValue {
        resource, name, why, ..
    }
    | Error::QuotaExceeded { resource, name, why }) = error
    else {
        return failure(Failure::Forbidden, "Forbidden", error.to_string());
    };
    StatusReply {
        refusal,
        ..forbidden_with(resource, name, why, None)
    }
}

fn forbidden_with(resource: &Named, name: &str, why: &str, cause: Option<&Cause>) -> StatusReply {
    let message = match (resource.resource.is_empty(), name.is_empty()) {
        (true, _) => format!("forbidden: {why}"),
        (false, true) => format!("{resource} is forbidden: {why}"),
        (false, false) => format!("{resource} {name:?} is forbidden: {why}"),
    };
    let mut details = named(resource, name);
    if let Some(Cause { reason, message, field }) = cause {
        let parts = [("reason", reason), ("message", message), ("field", field)];
        let cause: Map<String, Json> = parts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(key, text)| (key.into(), json!(text)))
            .collect();
        details.insert("causes".into(), json!([cause]));
    }
    failure(Failure::Forbidden, "Forbidden", message).details(details)
}

/// 406: the client accepts no form of the answer.
pub fn not_acceptable() -> StatusReply {
    not_acceptable_because(format!("only the following media types are accepted: {MEDIA_TYPES}"))
}

/// 406 with a message of its own.
pub fn not_acceptable_because(message: String) -> StatusReply {
    failure(Failure::NotAcceptable, "NotAcceptable", message)
}

/// 415: the body has a `Content-Type` that is not read.
pub fn unsupported_media_type() -> StatusReply {
    unsupported_among(MEDIA_TYPES)
}

/// 415 that lists the media types that are read (patch types).
pub fn unsupported_among(accepted: &str) -> StatusReply {
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    failure(Failure::UnsupportedMediaType, "UnsupportedMediaType", message)
}

/// 415: a built-in resource's route does not take the patch type.
pub fn unsupported_route() -> StatusReply {
    failure(
        Failure::UnsupportedMediaType,
        "UnsupportedMediaType",
        "415: Unsupported Media Type".into(),
    )
    .details(Map::new())
}

/// 501: a path of the whole server is requested in a workspace (kcp
/// `pkg/server/filters/shardlevelpaths.go`).
pub fn not_in_workspaces() -> StatusReply {
    failure(
        Failure::NotImplemented,
        "NotImplemented",
        "shard-level endpoint not available at workspace scope".into(),
    )
}

/// 504: the answer took longer than the limit.
pub fn timeout() -> StatusReply {
    let message = "Timeout: request did not complete within the allotted timeout".into();
    failure(Failure::Timeout, "Timeout", message).details(Map::new())
}

/// 429: a user, a workspace or the server is at a limit.
pub fn too_many_requests(why: &str) -> StatusReply {
    let message = format!("Too many requests, please try again later: {why}");
    status(&Error::TooManyRequests(message))
}

/// 500: the handler panicked. The panic is in the log, under the request's id.
pub fn panicked() -> StatusReply {
    status(&Error::Internal(
        "the server failed on this request; its log has the story under the request's id".into(),
    ))
}

/// 400: a malformed request.
pub fn bad_request(message: impl Into<String>) -> StatusReply {
    failure(Failure::BadRequest, "BadRequest", message.into())
}

/// 200: the answer to a DELETE whose object is gone.
pub fn deleted(resource: &Named, name: &str, uid: &str) -> StatusReply {
    let mut details = named(resource, name);
    if !uid.is_empty() {
        details.insert("uid".into(), json!(uid));
    }
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    StatusReply {
        code: 200,
        refusal: RefusalReason::Internal,
        body,
        retry_after: None,
    }
}

/// Returns a failure; as in Kubernetes, an empty reason is left out.
fn failure(failure: Failure, reason: &str, message: String) -> StatusReply {
    let code = failure.http_code();
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    if reason.is_empty()
        && let Some(body) = body.as_object_mut()
    {
        body.remove("reason");
    }
    StatusReply {
        code,
        refusal: failure.refusal_reason(),
        body,
        retry_after: None,
    }
}

impl StatusReply {
    fn details(mut self, details: Map<String, Json>) -> Self {
        self.body["details"] = Json::Object(details);
        self
    }

    fn retry(mut self) -> Self {
        self.body["details"]["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
        self.retry_after = Some(RETRY_AFTER_SECONDS);
        self
    }

    /// Returns the kind of a refusal.
    pub(crate) fn refusal_reason(&self) -> RefusalReason {
        self.refusal
    }

    /// Returns true for refusals that concern the user's access to their target: the credential,
    /// the right, the workspace or its server.
    pub(crate) fn denies_access(&self) -> bool {
        matches!(self.code, 401 | 403 | 404 | 410)
    }

    /// Returns the message, for logs.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// `details` without what is empty. `kind` holds the resource, or the kind where fields are
/// refused.
fn named(resource: &Named, name: &str) -> Map<String, Json> {
    let parts = [
        ("name", name),
        ("group", &*resource.group),
        ("kind", &*resource.resource),
    ];
    parts
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| (key.into(), json!(text)))
        .collect()
}

fn field_cause(error: &FieldError) -> Json {
    json!({"reason": error.kind.reason(), "message": error.body(), "field": error.field.to_string()})
}

#[cfg(test)]
mod tests;
