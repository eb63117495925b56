//! Refusals of the admin API with their details, messages of `google.rpc` in
//! `grpc-status-details-bin`.

use crate::{
    admin::v1::ErrorReason,
    rpc::{
        self, BadRequest, Detail, ErrorInfo, FieldViolation, PreconditionFailure, ResourceInfo, RetryInfo, Violation,
    },
};
use prost::Message;
use tonic::{Code, Status};

/// Domain of the reasons.
const DOMAIN: &str = "insula.io";
/// Prefix of the reasons in the enumeration.
const PREFIX: &str = "ERROR_REASON_";
/// Maximum number of fields that a refusal names: its headers have a limit of their own in most
/// clients.
const FIELDS_MAX: usize = 16;
/// Maximum number of bytes of a message, and of a field's problem. Clients take 8 KiB of headers.
const MESSAGE_BYTES_MAX: usize = 2048;
const PROBLEM_BYTES_MAX: usize = 256;
/// Maximum number of bytes of all violated preconditions together.
const VIOLATIONS_BYTES_MAX: usize = 2048;
/// The metadata by which a server says when a call may be made again (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A refusal with its details.
#[derive(Debug)]
pub struct Fault {
    code: Code,
    reason: ErrorReason,
    message: String,
    fields: Vec<FieldViolation>,
    violations: Vec<Violation>,
    resource: Option<ResourceInfo>,
    retry_after: Option<u32>,
}

impl Fault {
    /// Makes a refusal. Longer messages than 2,048 bytes are cut.
    pub fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Fault {
            code,
            reason,
            message,
            fields: Vec::new(),
            violations: Vec::new(),
            resource: None,
            retry_after: None,
        }
    }

    /// Names a field that is wrong.
    #[must_use]
    pub fn field(mut self, field: &str, problem: &str, reason: &str) -> Self {
        if self.fields.len() < FIELDS_MAX {
            self.fields.push(FieldViolation {
                field: field.to_owned(),
                description: problem[..problem.floor_char_boundary(PROBLEM_BYTES_MAX)].to_owned(),
                reason: reason.to_owned(),
                ..FieldViolation::default()
            });
        }
        self
    }

    /// Names a precondition that is violated: its kind, what it is about, and the problem.
    #[must_use]
    pub fn violation(mut self, kind: &str, subject: &str, problem: &str) -> Self {
        let violation = Violation {
            r#type: kind.to_owned(),
            subject: subject.to_owned(),
            description: problem[..problem.floor_char_boundary(PROBLEM_BYTES_MAX)].to_owned(),
        };
        let all: usize = self
            .violations
            .iter()
            .chain([&violation])
            .map(Message::encoded_len)
            .sum();
        if all <= VIOLATIONS_BYTES_MAX {
            self.violations.push(violation);
        }
        self
    }

    /// Names the object that the refusal is about.
    #[must_use]
    pub fn resource(mut self, resource_type: &str, name: &str) -> Self {
        self.resource = Some(ResourceInfo {
            resource_type: resource_type.to_owned(),
            resource_name: name.to_owned(),
            ..ResourceInfo::default()
        });
        self
    }

    /// Sets the seconds after which the call may be made again.
    #[must_use]
    pub fn retry(mut self, seconds: Option<u32>) -> Self {
        self.retry_after = seconds;
        self
    }

    /// Returns the refusal as gRPC sends it.
    pub fn status(self) -> Status {
        let Fault {
            code,
            reason,
            message,
            fields,
            violations,
            resource,
            retry_after,
        } = self;
        let info = ErrorInfo {
            reason: name(reason).to_owned(),
            domain: DOMAIN.to_owned(),
            ..ErrorInfo::default()
        };
        let mut details = vec![info.packed()];
        if !fields.is_empty() {
            let bad = BadRequest {
                field_violations: fields,
            };
            details.push(bad.packed());
        }
        if !violations.is_empty() {
            details.push(PreconditionFailure { violations }.packed());
        }
        details.extend(resource.map(|resource| resource.packed()));
        details.extend(retry_after.map(|seconds| {
            let retry_delay = Some(prost_types::Duration {
                seconds: i64::from(seconds),
                nanos: 0,
            });
            RetryInfo { retry_delay }.packed()
        }));
        let encoded = rpc::Status {
            code: code.into(),
            message: message.clone(),
            details,
        };
        let mut status = Status::with_details(code, message, encoded.encode_to_vec().into());
        if let Some(seconds) = retry_after {
            let metadata = status.metadata_mut();
            metadata.insert(PUSHBACK, (u64::from(seconds) * 1_000).into());
            metadata.insert("retry-after", seconds.into());
        }
        status
    }
}

/// Returns the name of a reason in an ErrorInfo.
fn name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Returns the reason of a refusal that says no other.
pub fn reason_of(code: Code) -> ErrorReason {
    match code {
        Code::InvalidArgument => ErrorReason::InvalidField,
        Code::OutOfRange => ErrorReason::NotRepresentable,
        Code::FailedPrecondition => ErrorReason::WrongState,
        Code::Unauthenticated => ErrorReason::Unauthenticated,
        Code::PermissionDenied => ErrorReason::Forbidden,
        Code::NotFound => ErrorReason::NotFound,
        Code::AlreadyExists => ErrorReason::AlreadyExists,
        Code::Aborted => ErrorReason::StaleEtag,
        Code::ResourceExhausted => ErrorReason::LimitReached,
        Code::Unimplemented => ErrorReason::NotImplemented,
        Code::Unavailable => ErrorReason::Unavailable,
        Code::DeadlineExceeded => ErrorReason::Timeout,
        Code::Cancelled => ErrorReason::Cancelled,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => ErrorReason::Internal,
    }
}

/// Returns the refusal of bytes that are no message of the method. `problem` is the decoder's, with
/// the path of the field where it knows it:
/// `failed to decode Protobuf message: GetObjectRequest.name: invalid string value`.
pub fn undecodable(problem: &str) -> Status {
    let problem = problem.split_once("message: ").map_or(problem, |(_, problem)| problem);
    let message = format!("the request is no message of this method: {problem}");
    let fault = Fault::new(Code::InvalidArgument, ErrorReason::InvalidField, message);
    let field = problem.split_once(": ").and_then(|(path, _)| path.split_once('.'));
    match field {
        Some((_, field)) if is_field(field) => fault.field(field, "cannot be decoded", "").status(),
        _ => fault.status(),
    }
}

/// Returns true for texts that may be the path of a field of a request.
pub fn is_field(text: &str) -> bool {
    // A header of the call has dashes.
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.' | '[' | ']' | '-');
    !text.is_empty() && text.chars().all(is_part)
}
