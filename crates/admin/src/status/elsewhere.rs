//! Refusals that another server tells in Kubernetes' terms: an extension server, the server of a
//! mount, or a webhook.

use super::refusal::{FieldNames, MISTYPED, NOT_SERVED, field_of, with_fields_in};
use insula_api::Json;
use insula_proto::{admin::v1::ErrorReason, fault::Fault};
use tonic::{Code, Status};

/// Returns the refusal of an answer of another server: HTTP status, body, and seconds after which
/// to ask again.
pub(crate) fn of_answer(code: u16, body: &[u8], retry_after: Option<u32>, names: FieldNames) -> Status {
    let status: Json = serde_json::from_slice(body).unwrap_or_default();
    let message = match status["message"].as_str() {
        Some(message) => message.to_owned(),
        None if code == 404 => NOT_SERVED.to_owned(),
        None => String::from_utf8_lossy(body).trim_end().to_owned(),
    };
    of_kubernetes(code, &status, message, names).retry(retry_after).status()
}

/// Returns the refusal of an ERROR event of a watch.
pub(crate) fn of_event(status: &Json) -> Status {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let message = status["message"].as_str().unwrap_or("the watch failed").to_owned();
    of_kubernetes(code.unwrap_or(500), status, message, &[]).status()
}

/// Returns the refusal of a Kubernetes Status with its HTTP code.
pub(super) fn of_kubernetes(http_code: u16, status: &Json, message: String, names: FieldNames) -> Fault {
    let details = &status["details"];
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (code, reason) = classify(http_code, status, causes);
    let mut fault = Fault::new(code, reason, &*message);
    let with_field: Vec<&Json> = causes
        .iter()
        .filter(|cause| !text(&cause["field"]).is_empty())
        .collect();
    for cause in &with_field {
        let (field, problem) = (text(&cause["field"]), text(&cause["message"]));
        fault = fault.field(&field_of(names, &field), &problem, &text(&cause["reason"]));
    }
    if with_field.is_empty() && reason == ErrorReason::InvalidField {
        fault = with_fields_in(fault, &message, names);
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
