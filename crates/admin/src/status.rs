//! gRPC statuses of errors: refusals of the edge, of the authorizers, of the HTTP API and of
//! workspaces. Messages are those that HTTP clients read; details are messages of `google.rpc`.

use insula_api::{ClusterPath, Json};
use insula_apiserver::call::{Refusal, RefusalReason, Served};
use insula_auth::Forbidden;
use insula_catalog::locate::NotLocated;
pub(crate) use insula_proto::fault::Fault;
use insula_proto::{
    admin::v1::ErrorReason,
    fault::{self, is_field},
    rpc::{self, Detail},
};
use tonic::{Code, Status};

/// Kubernetes' answer to an applied object that does not fit its schema.
const MISTYPED: &str = "failed to create typed patch object";

/// Problem of a field with a value that its enumeration does not have.
pub(crate) const UNKNOWN_VALUE: &str = "is none that this server knows";

/// Seconds after which a call to a server that closes may be made again.
const CLOSING_RETRY_SECONDS: u32 = 1;

/// Returns the status of a refusal.
pub fn refused(refusal: &Refusal) -> Status {
    let Refusal {
        reason,
        message,
        retry_after,
    } = refusal;
    let code = match reason {
        RefusalReason::BadRequest | RefusalReason::WrongValue(_) => Code::InvalidArgument,
        RefusalReason::Unauthenticated => Code::Unauthenticated,
        RefusalReason::Forbidden => Code::PermissionDenied,
        RefusalReason::NotFound => Code::NotFound,
        RefusalReason::LimitReached | RefusalReason::QuotaExceeded => Code::ResourceExhausted,
        RefusalReason::Unavailable => Code::Unavailable,
        RefusalReason::Timeout => Code::DeadlineExceeded,
        RefusalReason::Internal => Code::Internal,
    };
    Fault::new(code, fault::reason_of(code), message)
        .retry(*retry_after)
        .status()
}

/// Returns the refusal of a call to a server that closes.
pub fn closing() -> Status {
    let text = "the server is ending: call another one, or this one again once it is back";
    Fault::new(Code::Unavailable, ErrorReason::Unavailable, text)
        .retry(Some(CLOSING_RETRY_SECONDS))
        .status()
}

/// Returns the refusal of a field of the request: INVALID_ARGUMENT with its path.
pub(crate) fn invalid(field: &str, problem: impl std::fmt::Display) -> Status {
    let problem = problem.to_string();
    Fault::new(
        Code::InvalidArgument,
        ErrorReason::InvalidField,
        format!("{field}: {problem}"),
    )
    .field(field, &problem, "")
    .status()
}

/// Returns the reason in the details of a refusal.
pub(crate) fn reason_in(refusal: &Status) -> Option<String> {
    let details = rpc::read(refusal.details())?;
    rpc::ErrorInfo::find(&details).map(|info| info.reason)
}

/// Returns the refusal of a number of a request that is outside of its range: OUT_OF_RANGE with the
/// path of the field.
pub(crate) fn out_of_range(field: &str, problem: impl std::fmt::Display) -> Status {
    let problem = problem.to_string();
    Fault::new(
        Code::OutOfRange,
        ErrorReason::InvalidField,
        format!("{field}: {problem}"),
    )
    .field(field, &problem, "")
    .status()
}

/// Returns the refusal of an etag: the object has another state, or is gone.
pub(crate) fn stale(resource_type: &str, name: &str) -> Status {
    let message = format!("etag: {resource_type} {name:?} is not in this state: read it again");
    Fault::new(Code::Aborted, ErrorReason::StaleEtag, message)
        .resource(resource_type, name)
        .status()
}

/// Returns the refusal of an object that does not exist.
pub(crate) fn not_found(resource_type: &str, name: &str, message: impl Into<String>) -> Status {
    Fault::new(Code::NotFound, ErrorReason::NotFound, message)
        .resource(resource_type, name)
        .status()
}

/// Names of a request's fields for paths in refusals of the HTTP API: pairs of the beginning of a
/// path and the field that stands for it. An empty beginning fits all paths. Paths without a pair
/// are below `object`.
pub(crate) type FieldNames = &'static [(&'static str, &'static str)];

/// Returns the path in a request of a path in a refusal of the HTTP API.
fn field_of(names: FieldNames, path: &str) -> String {
    // Field managers' paths begin with a dot; Kubernetes calls the whole object `<nil>`.
    let path = path.trim_start_matches('.');
    let path = if path == "<nil>" { "" } else { path };
    let joined = |field: &str, rest: &str| match rest.is_empty() || rest.starts_with(['.', '[']) {
        true => format!("{field}{rest}"),
        false => format!("{field}.{rest}"),
    };
    let named = names.iter().find_map(|(from, to)| {
        let rest = path.strip_prefix(from)?;
        let is_whole = from.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']);
        is_whole.then(|| joined(to, rest))
    });
    named.unwrap_or_else(|| joined("object", path))
}

/// Returns the fields that a message of strict validation, or of a typed apply, names.
fn fields_in(message: &str) -> Vec<&str> {
    let strict = message.split("unknown field \"").skip(1);
    let strict = strict.filter_map(|rest| rest.split_once('"')).map(|(field, _)| field);
    let typed = message.starts_with(MISTYPED).then(|| message.split_once("): "));
    let typed = typed
        .flatten()
        .map(|(_, problems)| problems.lines())
        .into_iter()
        .flatten();
    let typed = typed.filter_map(|line| line.trim_start().split_once(": "));
    let typed = typed.map(|(field, _)| field).filter(|field| field.starts_with('.'));
    strict.chain(typed).collect()
}

/// Returns the refusal of an answer of the HTTP API. `names` are those of the request's fields.
pub(crate) fn of_http(served: &Served, names: FieldNames) -> Status {
    let status: Json = serde_json::from_slice(&served.body).unwrap_or_default();
    let message = match status["message"].as_str() {
        Some(message) => message.to_owned(),
        None if served.status == http::StatusCode::NOT_FOUND => {
            "the workspace does not serve this resource: look at its API groups and their versions".to_owned()
        }
        None => String::from_utf8_lossy(&served.body).trim_end().to_owned(),
    };
    let kind = (served.status.as_u16(), served.refusal);
    of_kubernetes(kind, &status, message, names)
        .retry(served.retry_after)
        .status()
}

/// Returns the refusal of an ERROR event of a watch.
pub(crate) fn of_event(status: &Json) -> Status {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let message = status["message"].as_str().unwrap_or("the watch failed").to_owned();
    of_kubernetes((code.unwrap_or(500), None), status, message, &[]).status()
}

/// Returns the refusal of a Kubernetes Status with its HTTP code and the kind of refusal.
fn of_kubernetes(
    (http_code, refusal): (u16, Option<RefusalReason>),
    status: &Json,
    message: String,
    names: FieldNames,
) -> Fault {
    let details = &status["details"];
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (code, reason) = match refusal {
        Some(RefusalReason::QuotaExceeded) => (Code::ResourceExhausted, ErrorReason::QuotaExceeded),
        Some(RefusalReason::WrongValue(_)) => (Code::InvalidArgument, ErrorReason::InvalidField),
        _ => classify(http_code, status, causes),
    };
    let mut fault = Fault::new(code, reason, &*message);
    let with_field: Vec<&Json> = causes
        .iter()
        .filter(|cause| !text(&cause["field"]).is_empty())
        .collect();
    for cause in &with_field {
        let (field, problem) = (text(&cause["field"]), text(&cause["message"]));
        fault = fault.field(&field_of(names, &field), &problem, &text(&cause["reason"]));
    }
    if let Some(RefusalReason::WrongValue(field)) = refusal {
        // The status has no causes, as kcp's has none.
        fault = fault.field(&field_of(names, field), &message, "");
    } else if with_field.is_empty() && reason == ErrorReason::InvalidField {
        let fields = fields_in(&message);
        for field in &fields {
            fault = fault.field(&field_of(names, field), &message, "");
        }
        // The request has a field for all that is wrong.
        if let (true, Some((_, field))) = (fields.is_empty(), names.iter().find(|(from, _)| from.is_empty())) {
            fault = fault.field(field, &message, "");
        }
    }
    let (kind, group) = (text(&details["kind"]), text(&details["group"]));
    if !kind.is_empty() {
        let resource_type = match group.is_empty() {
            true => kind,
            false => format!("{kind}.{group}"),
        };
        fault = fault.resource(&resource_type, &text(&details["name"]));
    }
    fault
}

/// Returns the code and the reason of a Kubernetes Status.
fn classify(http_code: u16, status: &Json, causes: &[Json]) -> (Code, ErrorReason) {
    let has_cause = |reason: &str| causes.iter().any(|cause| cause["reason"] == reason);
    let message = status["message"].as_str().unwrap_or_default();
    let names_object = !status["details"]["name"].as_str().unwrap_or_default().is_empty();
    match http_code {
        400 | 406 | 415 | 422 => (Code::InvalidArgument, ErrorReason::InvalidField),
        401 => (Code::Unauthenticated, ErrorReason::Unauthenticated),
        403 => (Code::PermissionDenied, ErrorReason::Forbidden),
        404 if names_object => (Code::NotFound, ErrorReason::NotFound),
        // A path that nothing is served at.
        404 => (Code::InvalidArgument, ErrorReason::NotServed),
        405 => (Code::FailedPrecondition, ErrorReason::VerbNotSupported),
        409 if status["reason"] == "AlreadyExists" => (Code::AlreadyExists, ErrorReason::AlreadyExists),
        409 if has_cause("FieldManagerConflict") => (Code::FailedPrecondition, ErrorReason::FieldConflict),
        409 => (Code::Aborted, ErrorReason::StaleEtag),
        410 => (Code::OutOfRange, ErrorReason::RevisionCompacted),
        413 | 429 | 507 => (Code::ResourceExhausted, ErrorReason::LimitReached),
        501 => (Code::Unimplemented, ErrorReason::NotImplemented),
        502 | 503 => (Code::Unavailable, ErrorReason::Unavailable),
        504 if has_cause("ResourceVersionTooLarge") => (Code::Unavailable, ErrorReason::Unavailable),
        504 => (Code::DeadlineExceeded, ErrorReason::Timeout),
        // Codes that admission webhooks choose.
        402..500 => (Code::FailedPrecondition, ErrorReason::WrongState),
        // Kubernetes' answer to an applied object with a field that its schema does not have.
        500 if message.starts_with(MISTYPED) => (Code::InvalidArgument, ErrorReason::InvalidField),
        _ => (Code::Internal, ErrorReason::Internal),
    }
}

/// Returns a status with details: those that it has, or an ErrorInfo with the reason of its code. A
/// message of the form `field: problem` names a field of the request.
pub fn completed(status: Status) -> Status {
    if !status.details().is_empty() || status.code() == Code::Ok {
        return status;
    }
    let (code, message) = (status.code(), status.message());
    let message = match (code, message) {
        (Code::DeadlineExceeded, "") => "the deadline of the call has passed",
        (Code::Internal, "") => "the server failed on this call; its log has more under the request's id",
        _ => message,
    };
    let mut fault = Fault::new(code, fault::reason_of(code), message);
    if let (Code::NotFound, Some((kind, name))) = (code, missing(message)) {
        fault = fault.resource(kind, name);
    }
    if let (Code::InvalidArgument, Some((field, problem))) = (code, message.split_once(": "))
        && is_field(field)
    {
        fault = fault.field(field, problem, "");
    }
    let mut completed = fault.status();
    *completed.metadata_mut() = status.metadata().clone();
    completed
}

/// Returns the kind and the name in a message of the form `kind "name" not found`.
fn missing(message: &str) -> Option<(&str, &str)> {
    let (kind, rest) = message.split_once(" \"")?;
    let (name, _) = rest.split_once("\" not found")?;
    let is_word = !kind.is_empty() && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    is_word.then_some((kind, name))
}

/// Returns the status of a denied right.
pub(crate) fn forbidden(forbidden: Forbidden) -> Status {
    forbidden_because(forbidden.message)
}

/// Returns the refusal of a right, in these words.
pub(crate) fn forbidden_because(message: String) -> Status {
    Fault::new(Code::PermissionDenied, ErrorReason::Forbidden, message).status()
}

/// Returns the status of a workspace that cannot be entered, for callers who may read it in its
/// parent. Returns `None` where no parent is known: such a cluster is forbidden to everybody.
pub(crate) fn not_located(path: &ClusterPath, why: &NotLocated) -> Option<Status> {
    match why {
        NotLocated::UnknownCluster(_) => None,
        NotLocated::UnknownWorkspace { parent: _, name } => Some(no_workspace(name)),
        NotLocated::Unavailable { parent: _, name, phase } => Some(Status::unavailable(format!(
            "workspace {name:?} is not available: its phase is {phase}"
        ))),
        NotLocated::Mounted { .. } => Some(Status::failed_precondition(format!(
            "workspace {path} is a mount: its content is on another server, ask there"
        ))),
    }
}

/// Returns the refusal of a workspace that does not exist, for callers who may know.
pub(crate) fn no_workspace(name: &str) -> Status {
    let message = format!("workspaces.tenancy.kcp.io {name:?} not found");
    not_found("workspaces.tenancy.kcp.io", name, message)
}

/// Returns the HTTP code that corresponds to a gRPC code, for metrics and the audit log.
pub fn http_code(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => 500,
    }
}

#[cfg(test)]
mod tests;
