//! `Status` objects of errors and successes: the only place that knows Kubernetes' HTTP codes and
//! reasons.
//!
//! One exhaustive match turns a refusal into what a client sees, and another one the error of a
//! verb. Messages are their `Display`; what is added here is code, reason and details.

use insula_api::{FieldError, Json};
use insula_catalog::{Cause, Denial, Error, Named};
use insula_meter::Ended;
use insula_pipeline::{Clusters, Forbidden, Refusal};
use serde_json::{Map, json};

/// Seconds after which a client may send a request again.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A `Status` object with its HTTP code.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusReply {
    /// HTTP code, also in the body.
    pub code: u16,
    /// The `Status` object.
    pub body: Json,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
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
}

/// The answer to a request that is refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Refused {
    /// A `Status` object.
    Status(Box<StatusReply>),
    /// A page of text, as Go's `http.Error` answers.
    Page(Page),
}

/// A page of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// HTTP code.
    pub code: u16,
    /// The text.
    pub text: &'static str,
    /// Seconds for the `Retry-After` header.
    pub retry_after: Option<u32>,
}

/// The 404 page of Go's mux for a path without a handler.
const NOT_FOUND_PAGE: Page = Page {
    code: 404,
    text: "404 page not found\n",
    retry_after: None,
};
const HOME_IS_COMING: Page = Page {
    code: 429,
    text: "Creating the home workspace\n",
    retry_after: Some(RETRY_AFTER_SECONDS),
};

/// Returns the answer to a request that is refused.
pub fn refused(refusal: &Refusal) -> Refused {
    let message = refusal.to_string();
    let status = match refusal {
        Refusal::Unauthenticated => failure(Failure::Unauthorized, "Unauthorized", message),
        Refusal::Forbidden(forbidden) => forbidden_by(forbidden),
        Refusal::Limit(_) => too_many_requests(message),
        Refusal::NotServed => return Refused::Page(NOT_FOUND_PAGE),
        Refusal::NotSupported {
            resource,
            verb: _,
            clusters: Clusters::One | Clusters::All,
        } => failure(Failure::MethodNotAllowed, "MethodNotAllowed", message).details(named(resource, "")),
        Refusal::NotInWorkspaces => failure(Failure::NotImplemented, "NotImplemented", message),
        Refusal::NotAcceptable(_) => failure(Failure::NotAcceptable, "NotAcceptable", message),
        Refusal::UnsupportedPatch => {
            failure(Failure::UnsupportedMediaType, "UnsupportedMediaType", message).details(Map::new())
        }
        Refusal::HomeIsComing => return Refused::Page(HOME_IS_COMING),
        Refusal::NoWorkspace => failure(Failure::NotFound, "NotFound", message).details(Map::new()),
        Refusal::Timeout => failure(Failure::Timeout, "Timeout", message).details(Map::new()),
        Refusal::Panicked => status(&Error::Internal(Refusal::PANICKED.to_owned())),
        Refusal::Verb(error) => status(error),
        Refusal::Warned(refusal, _) => return refused(refusal),
    };
    Refused::Status(Box::new(status))
}

/// Returns the HTTP code of the answer to a request that is refused.
pub fn code(refusal: &Refusal) -> u16 {
    match refused(refusal) {
        Refused::Status(status) => status.code,
        Refused::Page(page) => page.code,
    }
}

/// Returns the Status of a missing right.
fn forbidden_by(forbidden: &Forbidden) -> StatusReply {
    let Forbidden { message, attributes } = forbidden;
    let (resource, name) = match attributes.is_resource_request {
        true => (
            Named {
                group: (*attributes.group).into(),
                resource: (*attributes.resource).into(),
            },
            &*attributes.name,
        ),
        false => (Named::default(), ""),
    };
    failure(Failure::Forbidden, "Forbidden", message.clone()).details(named(&resource, name))
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
        Error::WrongValue {
            resource, name, why, ..
        }
        | Error::QuotaExceeded { resource, name, why } => forbidden_with(resource, name, why, None),
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
        } => by_webhook(message, *code, reason, details),
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
        Error::TooManyRequests(_) => too_many_requests(message),
        Error::Ended(ended) => status_of_ended(*ended, message),
        Error::UnsupportedMediaType(_) => failure(Failure::UnsupportedMediaType, "UnsupportedMediaType", message),
        Error::Warned { error, warnings: _ } => status(error),
    }
}

fn too_many_requests(message: String) -> StatusReply {
    failure(Failure::TooManyRequests, "TooManyRequests", message)
        .details(Map::new())
        .retry()
}

fn status_of_ended(ended: Ended, message: String) -> StatusReply {
    match ended {
        Ended::Late | Ended::Spent => failure(Failure::Timeout, "Timeout", message).details(Map::new()),
        Ended::Crowded => too_many_requests(message),
        Ended::Closing | Ended::Left => failure(Failure::Unavailable, "ServiceUnavailable", message),
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

fn by_webhook(message: String, code: u16, reason: &str, details: &Json) -> StatusReply {
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

/// 200: the answer to a DELETE whose object is gone.
pub fn deleted(resource: &Named, name: &str, uid: &str) -> StatusReply {
    let mut details = named(resource, name);
    if !uid.is_empty() {
        details.insert("uid".into(), json!(uid));
    }
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    StatusReply {
        code: 200,
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
