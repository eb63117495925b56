//! gRPC statuses of refusals: one exhaustive match, and another one for the errors of verbs. The
//! codes of HTTP have no part in it.

use super::elsewhere;
use insula_api::FieldError;
use insula_apiserver::call::Unserved;
use insula_catalog::{Cause, Denial, Error, Named};
use insula_meter::Ended;
use insula_pipeline::Refusal;
use insula_proto::{admin::v1::ErrorReason, fault::Fault};
use serde_json::json;
use tonic::{Code, Status};

/// Kubernetes' answer to an applied object that does not fit its schema.
pub(super) const MISTYPED: &str = "failed to create typed patch object";

/// The refusal of a path that nothing is served at.
pub(super) const NOT_SERVED: &str =
    "the workspace does not serve this resource: look at its API groups and their versions";

/// Seconds after which a call that is refused for the moment may be made again.
const RETRY_SECONDS: u32 = 1;

/// Names of a request's fields for paths in refusals of the HTTP API: pairs of the beginning of a
/// path and the field that stands for it. An empty beginning fits all paths. Paths without a pair
/// are below `object`.
pub(crate) type FieldNames = &'static [(&'static str, &'static str)];

/// Returns the path in a request of a path in a refusal of the HTTP API.
pub(super) fn field_of(names: FieldNames, path: &str) -> String {
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

/// Adds the fields that a message names; if it names none, the one that stands for all.
pub(super) fn with_fields_in(fault: Fault, message: &str, names: FieldNames) -> Fault {
    let fields = fields_in(message);
    match (fields.is_empty(), names.iter().find(|(from, _)| from.is_empty())) {
        (true, Some((_, field))) => fault.field(field, message, ""),
        _ => fields
            .into_iter()
            .fold(fault, |fault, field| fault.field(&field_of(names, field), message, "")),
    }
}

/// Returns the status of a refusal of the edge.
pub fn refused(refusal: &Refusal) -> Status {
    of_refusal(refusal, &[])
}

/// Returns the status of a request that a call made in vain. `names` are those of the call's
/// fields.
pub(crate) fn of_unserved(unserved: &Unserved, names: FieldNames) -> Status {
    match unserved {
        Unserved::Refused(refusal) => of_refusal(refusal, names),
        Unserved::Elsewhere {
            status,
            body,
            retry_after,
        } => elsewhere::of_answer(status.as_u16(), body, *retry_after, names),
    }
}

/// Returns the status of a refusal. `names` are those of the call's fields.
pub(crate) fn of_refusal(refusal: &Refusal, names: FieldNames) -> Status {
    use ErrorReason as Reason;
    let message = refusal.to_string();
    let fault = match refusal {
        Refusal::Unauthenticated => Fault::new(Code::Unauthenticated, Reason::Unauthenticated, message),
        Refusal::Forbidden(forbidden) => {
            let fault = Fault::new(Code::PermissionDenied, Reason::Forbidden, message);
            let right = &forbidden.attributes;
            let resource = Named {
                group: (*right.group).into(),
                resource: (*right.resource).into(),
            };
            match right.is_resource_request {
                true => about(fault, &resource, &right.name),
                false => fault,
            }
        }
        Refusal::Limit(_) | Refusal::HomeIsComing => {
            Fault::new(Code::ResourceExhausted, Reason::LimitReached, message).retry(Some(RETRY_SECONDS))
        }
        Refusal::NotServed => Fault::new(Code::InvalidArgument, Reason::NotServed, NOT_SERVED),
        Refusal::NotSupported { resource, .. } => {
            let fault = Fault::new(Code::FailedPrecondition, Reason::VerbNotSupported, message);
            about(fault, resource, "")
        }
        Refusal::NotInWorkspaces => Fault::new(Code::Unimplemented, Reason::NotImplemented, message),
        Refusal::NotAcceptable(_) | Refusal::UnsupportedPatch => malformed(&message, names),
        Refusal::NoWorkspace => Fault::new(Code::InvalidArgument, Reason::NotServed, message),
        Refusal::Timeout => Fault::new(Code::DeadlineExceeded, Reason::Timeout, message),
        Refusal::Panicked => Fault::new(Code::Internal, Reason::Internal, message),
        Refusal::Verb(error) => of_error(error, names),
        Refusal::Warned(refusal, _) => return of_refusal(refusal, names),
    };
    fault.status()
}

/// Returns the refusal of a verb.
fn of_error(error: &Error, names: FieldNames) -> Fault {
    let message = error.to_string();
    let (code, reason) = code_of(error);
    let plain = |message: &str| Fault::new(code, reason, message).retry(retry_of(error));
    match error {
        Error::NotFound { resource, name }
        | Error::AlreadyExists { resource, name, .. }
        | Error::NoFreeName { resource, name }
        | Error::Conflict { resource, name, .. }
        | Error::QuotaExceeded { resource, name, .. } => about(plain(&message), resource, name),
        Error::Invalid { subject, name, errors } => about(with_errors(errors, &message, names), subject, name),
        Error::ApplyConflict(conflicts) => conflicts.0.iter().fold(plain(&message), |fault, conflict| {
            let field = field_of(names, &conflict.field.to_string());
            fault.field(&field, &conflict.message(), "FieldManagerConflict")
        }),
        Error::Forbidden {
            resource,
            name,
            why,
            cause,
        } => {
            let message = match name.is_empty() {
                true => format!("{resource} is forbidden: {why}"),
                false => message,
            };
            caused(about(plain(&message), resource, name), cause.as_deref(), names)
        }
        Error::WrongValue {
            resource, name, field, ..
        } => {
            let fault = plain(&message).field(&field_of(names, field), &message, "");
            about(fault, resource, name)
        }
        Error::Denied {
            resource, name, denial, ..
        } => match denial {
            Denial::Invalid => about(malformed(&message, names), resource, name),
            Denial::Forbidden | Denial::Mutation | Denial::TooLarge => about(plain(&message), resource, name),
        },
        Error::Refused {
            message,
            code,
            reason,
            details,
        } => {
            let status = json!({"message": message, "reason": reason, "details": details});
            elsewhere::of_kubernetes(*code, &status, message.clone(), names)
        }
        Error::Mistyped(_) | Error::BadRequest(_) | Error::BadPatch | Error::UnsupportedMediaType(_) => match reason {
            ErrorReason::InvalidField => malformed(&message, names),
            _ => plain(&message),
        },
        Error::UnknownResource
        | Error::MethodNotAllowed
        | Error::Expired { .. }
        | Error::RevisionTooLarge { .. }
        | Error::TooLarge(_)
        | Error::Conversion(_)
        | Error::Webhook(_)
        | Error::Internal(_)
        | Error::Unavailable(_)
        | Error::InsufficientStorage(_)
        | Error::TooManyRequests(_)
        | Error::Ended(_) => plain(&message),
        Error::Warned { error, warnings: _ } => of_error(error, names),
    }
}

/// Names the field that is the cause of a refusal.
fn caused(fault: Fault, cause: Option<&Cause>, names: FieldNames) -> Fault {
    match cause.filter(|cause| !cause.field.is_empty()) {
        Some(cause) => fault.field(&field_of(names, &cause.field), &cause.message, &cause.reason),
        None => fault,
    }
}

/// Returns the code and the reason of an error.
fn code_of(error: &Error) -> (Code, ErrorReason) {
    use ErrorReason as Reason;
    match error {
        Error::NotFound { name, .. } if !name.is_empty() => (Code::NotFound, Reason::NotFound),
        Error::NotFound { .. } | Error::UnknownResource => (Code::InvalidArgument, Reason::NotServed),
        Error::AlreadyExists { .. } | Error::NoFreeName { .. } => (Code::AlreadyExists, Reason::AlreadyExists),
        Error::Conflict { .. } => (Code::Aborted, Reason::StaleEtag),
        Error::ApplyConflict(_) => (Code::FailedPrecondition, Reason::FieldConflict),
        Error::Mistyped(why) if !why.starts_with(MISTYPED) => (Code::Internal, Reason::Internal),
        Error::Mistyped(_)
        | Error::Invalid { .. }
        | Error::BadRequest(_)
        | Error::BadPatch
        | Error::UnsupportedMediaType(_)
        | Error::WrongValue { .. } => (Code::InvalidArgument, Reason::InvalidField),
        Error::Forbidden { .. } => (Code::PermissionDenied, Reason::Forbidden),
        Error::QuotaExceeded { .. } => (Code::ResourceExhausted, Reason::QuotaExceeded),
        Error::Denied { denial, .. } => match denial {
            Denial::Invalid => (Code::InvalidArgument, Reason::InvalidField),
            Denial::Forbidden | Denial::Mutation => (Code::PermissionDenied, Reason::Forbidden),
            Denial::TooLarge => (Code::ResourceExhausted, Reason::LimitReached),
        },
        // The webhook's code decides.
        Error::Refused { .. } => (Code::FailedPrecondition, Reason::WrongState),
        Error::MethodNotAllowed => (Code::FailedPrecondition, Reason::VerbNotSupported),
        Error::Expired { .. } => (Code::OutOfRange, Reason::RevisionCompacted),
        Error::RevisionTooLarge { .. } | Error::Unavailable(_) | Error::Ended(Ended::Closing | Ended::Left) => {
            (Code::Unavailable, Reason::Unavailable)
        }
        Error::Ended(Ended::Late | Ended::Spent) => (Code::DeadlineExceeded, Reason::Timeout),
        Error::TooLarge(_)
        | Error::InsufficientStorage(_)
        | Error::TooManyRequests(_)
        | Error::Ended(Ended::Crowded) => (Code::ResourceExhausted, Reason::LimitReached),
        Error::Conversion(_) | Error::Webhook(_) | Error::Internal(_) => (Code::Internal, Reason::Internal),
        Error::Warned { error, warnings: _ } => code_of(error),
    }
}

/// Returns the seconds after which a call may be made again, for errors of the moment.
fn retry_of(error: &Error) -> Option<u32> {
    let is_of_the_moment = matches!(
        error,
        Error::NoFreeName { .. }
            | Error::RevisionTooLarge { .. }
            | Error::TooManyRequests(_)
            | Error::Ended(Ended::Crowded)
    );
    is_of_the_moment.then_some(RETRY_SECONDS)
}

/// Names the object that a refusal is about.
fn about(fault: Fault, resource: &Named, name: &str) -> Fault {
    match resource.resource.is_empty() {
        true => fault,
        false => fault.resource(&resource.to_string(), name),
    }
}

/// Returns the refusal of a request with fields that are wrong, as far as the message names them.
fn malformed(message: &str, names: FieldNames) -> Fault {
    let fault = Fault::new(Code::InvalidArgument, ErrorReason::InvalidField, message);
    with_fields_in(fault, message, names)
}

fn with_errors(errors: &[FieldError], message: &str, names: FieldNames) -> Fault {
    if errors.is_empty() {
        return malformed(message, names);
    }
    let fault = Fault::new(Code::InvalidArgument, ErrorReason::InvalidField, message);
    errors.iter().fold(fault, |fault, error| {
        let field = field_of(names, &error.field.to_string());
        fault.field(&field, &error.body(), error.kind.reason())
    })
}
