//! gRPC statuses of errors: refusals of the pipeline ([`refused`]), of the authorizers and of
//! workspaces. Messages are those that HTTP clients read; details are messages of `google.rpc`.

mod elsewhere;
mod refusal;

pub(crate) use elsewhere::of_event;
pub use refusal::refused;
pub(crate) use refusal::{FieldNames, of_unserved};

use insula_api::ClusterPath;
use insula_auth::Forbidden;
use insula_catalog::locate::NotLocated;
pub(crate) use insula_proto::fault::Fault;
use insula_proto::{
    admin::v1::ErrorReason,
    fault::{self, is_field},
    rpc::{self, Detail},
};
use tonic::{Code, Status};

/// Problem of a field with a value that its enumeration does not have.
pub(crate) const UNKNOWN_VALUE: &str = "is none that this server knows";

/// Seconds after which a call to a server that closes may be made again.
const CLOSING_RETRY_SECONDS: u32 = 1;

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
