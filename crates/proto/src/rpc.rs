//! The messages of `google.rpc` with which refusals explain themselves, those of `tonic-types`, and
//! their way into and out of `grpc-status-details-bin`.
//!
//! tonic-types' own reading and writing is not used: it leaves out the reason of a wrong field.

use prost::Message;
use prost_types::Any;
pub use tonic_types::pb::{
    BadRequest, ErrorInfo, FILE_DESCRIPTOR_SET, PreconditionFailure, ResourceInfo, RetryInfo, Status,
    bad_request::FieldViolation, precondition_failure::Violation,
};

/// Prefix of the URLs of message types.
const TYPE_URL: &str = "type.googleapis.com/google.rpc.";

/// A message that is a detail of a refusal.
pub trait Detail: Message + Default {
    /// Name of the type in `google.rpc`.
    const NAME: &'static str;

    /// Returns the detail with its type.
    fn packed(&self) -> Any {
        Any {
            type_url: format!("{TYPE_URL}{}", Self::NAME),
            value: self.encode_to_vec(),
        }
    }

    /// Returns the first detail of this type in a status.
    fn find(status: &Status) -> Option<Self> {
        let is_wanted = |any: &&Any| any.type_url.strip_prefix(TYPE_URL) == Some(Self::NAME);
        Self::decode(&*status.details.iter().find(is_wanted)?.value).ok()
    }
}

impl Detail for ErrorInfo {
    const NAME: &'static str = "ErrorInfo";
}

impl Detail for BadRequest {
    const NAME: &'static str = "BadRequest";
}

impl Detail for PreconditionFailure {
    const NAME: &'static str = "PreconditionFailure";
}

impl Detail for RetryInfo {
    const NAME: &'static str = "RetryInfo";
}

impl Detail for ResourceInfo {
    const NAME: &'static str = "ResourceInfo";
}

/// Reads the details of a refusal; `None` if it has none, or none of this shape.
pub fn read(details: &[u8]) -> Option<Status> {
    (!details.is_empty()).then(|| Status::decode(details).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_found_by_their_type() {
        let info = ErrorInfo {
            reason: "NOT_FOUND".to_owned(),
            domain: "insula.io".to_owned(),
            ..ErrorInfo::default()
        };
        let status = Status {
            code: 5,
            message: "no".to_owned(),
            details: vec![RetryInfo::default().packed(), info.packed()],
        };
        let status = read(&status.encode_to_vec()).expect("a status");
        assert_eq!(ErrorInfo::find(&status), Some(info));
        assert_eq!(RetryInfo::find(&status), Some(RetryInfo::default()));
        assert_eq!(BadRequest::find(&status), None);
        assert_eq!(read(&[]), None);
    }
}
