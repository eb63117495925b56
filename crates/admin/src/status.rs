//! gRPC statuses of errors: refusals of the edge, of the authorizers, of the HTTP API and of
//! workspaces. Messages are those that HTTP clients read; details are messages of `google.rpc`.

mod details;

pub(crate) use details::Fault;

use insula_api::{ClusterPath, Json};
use insula_apiserver::call::{Refusal, RefusalReason, Served};
use insula_auth::Forbidden;
use insula_catalog::locate::NotLocated;
use insula_proto::admin::v1::ErrorReason;
use tonic::{Code, Status};

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
        RefusalReason::BadRequest => Code::InvalidArgument,
        RefusalReason::Unauthenticated => Code::Unauthenticated,
        RefusalReason::Forbidden => Code::PermissionDenied,
        RefusalReason::NotFound => Code::NotFound,
        RefusalReason::LimitReached => Code::ResourceExhausted,
        RefusalReason::Unavailable => Code::Unavailable,
        RefusalReason::Timeout => Code::DeadlineExceeded,
        RefusalReason::Internal => Code::Internal,
    };
    Fault::new(code, details::reason_of(code), message)
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

/// Returns the refusal of an answer of the HTTP API.
pub(crate) fn of_http(served: &Served) -> Status {
    let status: Json = serde_json::from_slice(&served.body).unwrap_or_default();
    let message = match status["message"].as_str() {
        Some(message) => message.to_owned(),
        None if served.status == http::StatusCode::NOT_FOUND => {
            "the workspace does not serve this resource: look at its API groups and their versions".to_owned()
        }
        None => String::from_utf8_lossy(&served.body).trim_end().to_owned(),
    };
    of_kubernetes(served.status.as_u16(), &status, message, served.retry_after)
}

/// Returns the refusal of an ERROR event of a watch.
pub(crate) fn of_event(status: &Json) -> Status {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let message = status["message"].as_str().unwrap_or("the watch failed").to_owned();
    of_kubernetes(code.unwrap_or(500), status, message, None)
}

/// Returns the refusal of a Kubernetes Status.
fn of_kubernetes(http_code: u16, status: &Json, message: String, retry_after: Option<u32>) -> Status {
    let details = &status["details"];
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (code, reason) = classify(http_code, status, causes);
    let mut fault = Fault::new(code, reason, message).retry(retry_after);
    for cause in causes.iter().filter(|cause| !text(&cause["field"]).is_empty()) {
        let (field, problem) = (text(&cause["field"]), text(&cause["message"]));
        // Field managers' paths begin with a dot.
        let path = format!("object.{}", field.trim_start_matches('.'));
        fault = fault.field(&path, &problem, &text(&cause["reason"]));
    }
    let (kind, group) = (text(&details["kind"]), text(&details["group"]));
    if !kind.is_empty() {
        let resource_type = match group.is_empty() {
            true => kind,
            false => format!("{kind}.{group}"),
        };
        fault = fault.resource(&resource_type, &text(&details["name"]));
    }
    fault.status()
}

/// Returns the code and the reason of a Kubernetes Status.
fn classify(http_code: u16, status: &Json, causes: &[Json]) -> (Code, ErrorReason) {
    let has_cause = |reason: &str| causes.iter().any(|cause| cause["reason"] == reason);
    let message = status["message"].as_str().unwrap_or_default();
    let names_object = !status["details"]["name"].as_str().unwrap_or_default().is_empty();
    match http_code {
        400 | 406 | 415 | 422 => (Code::InvalidArgument, ErrorReason::InvalidField),
        401 => (Code::Unauthenticated, ErrorReason::Unauthenticated),
        403 if message.contains("exceeded quota: ") => (Code::ResourceExhausted, ErrorReason::QuotaExceeded),
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
        500 if message.starts_with("failed to create typed patch object") => {
            (Code::InvalidArgument, ErrorReason::InvalidField)
        }
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
    let mut fault = Fault::new(code, details::reason_of(code), message);
    if let (Code::InvalidArgument, Some((field, problem))) = (code, message.split_once(": "))
        && is_field(field)
    {
        fault = fault.field(field, problem, "");
    }
    let mut completed = fault.status();
    *completed.metadata_mut() = status.metadata().clone();
    completed
}

/// Returns true for texts that may be the path of a field of a request.
fn is_field(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.' | '[' | ']');
    !text.is_empty() && text.chars().all(is_part)
}

/// Returns the status of a denied right.
pub(crate) fn forbidden(forbidden: Forbidden) -> Status {
    Fault::new(Code::PermissionDenied, ErrorReason::Forbidden, forbidden.message).status()
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
    Fault::new(Code::NotFound, ErrorReason::NotFound, message)
        .resource("workspaces.tenancy.kcp.io", name)
        .status()
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
mod tests {
    use super::*;
    use insula_proto::rpc;
    use serde_json::json;

    #[test]
    fn limits_say_when_to_call_again() {
        let refusal = Refusal {
            reason: RefusalReason::LimitReached,
            message: "too many".to_owned(),
            retry_after: Some(2),
        };
        let status = refused(&refusal);
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "too many"));
        assert_eq!(
            status.metadata().get("grpc-retry-pushback-ms").expect("a pushback"),
            "2000"
        );
        assert_eq!(status.metadata().get("retry-after").expect("a time"), "2");
        let details = rpc::Status::read(status.details()).expect("details");
        let retry = details.detail::<rpc::RetryInfo>().expect("a time");
        assert_eq!(retry.retry_delay.map(|delay| delay.seconds), Some(2));
    }

    fn reason(status: &Status) -> String {
        let details = rpc::Status::read(status.details()).expect("details");
        assert_eq!(
            (details.code, &*details.message),
            (i32::from(status.code()), status.message())
        );
        details.detail::<rpc::ErrorInfo>().expect("a reason").reason
    }

    /// A row: HTTP code, Status, gRPC code, reason.
    #[test]
    fn answers_of_the_http_api_become_statuses() {
        let row = |code: u16, status: Json| {
            let served = Served {
                status: http::StatusCode::from_u16(code).expect("a code"),
                body: status.to_string().into(),
                retry_after: None,
            };
            let status = of_http(&served);
            (status.code(), reason(&status))
        };
        let named = json!({"name": "a", "group": "example.io", "kind": "widgets"});
        let conflict = json!({"causes": [{"reason": "FieldManagerConflict", "field": ".spec.a", "message": "b"}]});
        let quota = "pods \"a\" is forbidden: exceeded quota: q, requested: 1";
        let mistyped = "failed to create typed patch object (a/b; v1): .spec.c: field not declared in schema";
        let too_new = json!({"causes": [{"reason": "ResourceVersionTooLarge"}]});
        for (code, status, want, why) in [
            (400, json!({}), Code::InvalidArgument, "INVALID_FIELD"),
            (403, json!({}), Code::PermissionDenied, "FORBIDDEN"),
            (
                403,
                json!({"message": quota}),
                Code::ResourceExhausted,
                "QUOTA_EXCEEDED",
            ),
            (404, json!({"details": named}), Code::NotFound, "NOT_FOUND"),
            (404, json!({"details": {}}), Code::InvalidArgument, "NOT_SERVED"),
            (
                409,
                json!({"reason": "AlreadyExists"}),
                Code::AlreadyExists,
                "ALREADY_EXISTS",
            ),
            (409, json!({"reason": "Conflict"}), Code::Aborted, "STALE_ETAG"),
            (
                409,
                json!({"details": conflict}),
                Code::FailedPrecondition,
                "FIELD_CONFLICT",
            ),
            (410, json!({}), Code::OutOfRange, "REVISION_COMPACTED"),
            (429, json!({}), Code::ResourceExhausted, "LIMIT_REACHED"),
            (504, json!({"details": too_new}), Code::Unavailable, "UNAVAILABLE"),
            (504, json!({}), Code::DeadlineExceeded, "TIMEOUT"),
            (418, json!({}), Code::FailedPrecondition, "WRONG_STATE"),
            (500, json!({}), Code::Internal, "INTERNAL"),
            (
                500,
                json!({"message": mistyped}),
                Code::InvalidArgument,
                "INVALID_FIELD",
            ),
        ] {
            assert_eq!(row(code, status), (want, why.to_owned()), "{code}");
        }
    }

    #[test]
    fn invalid_objects_name_their_fields_and_their_resource() {
        let invalid = json!({"message": "m", "details": {"name": "a", "group": "example.io", "kind": "Widget",
            "causes": [{"reason": "FieldValueInvalid", "message": "too large", "field": "spec.size"}]}});
        let status = of_event(&json!({"code": 422, "message": "m", "details": invalid["details"]}));
        let details = rpc::Status::read(status.details()).expect("details");
        let fields = details.detail::<rpc::BadRequest>().expect("fields").field_violations;
        let field = &fields[0];
        assert_eq!(
            (&*field.field, &*field.description, &*field.reason),
            ("object.spec.size", "too large", "FieldValueInvalid")
        );
        let resource = details.detail::<rpc::ResourceInfo>().expect("a resource");
        assert_eq!(
            (&*resource.resource_type, &*resource.resource_name),
            ("Widget.example.io", "a")
        );
    }

    #[test]
    fn statuses_without_details_get_those_of_their_code() {
        let bare = completed(Status::invalid_argument("page_size: must not be negative"));
        let details = rpc::Status::read(bare.details()).expect("details");
        let fields = details.detail::<rpc::BadRequest>().expect("fields").field_violations;
        assert_eq!(
            (&*fields[0].field, &*fields[0].description),
            ("page_size", "must not be negative")
        );
        let told = completed(Status::invalid_argument("The thing: is wrong"));
        let details = rpc::Status::read(told.details()).expect("details");
        assert_eq!(details.detail::<rpc::BadRequest>(), None);
        assert_eq!(reason(&completed(Status::not_found("x"))), "NOT_FOUND");
        let own = no_workspace("a");
        assert_eq!(completed(own.clone()).details(), own.details());
    }
}
