//! The messages of `google.rpc` with which refusals explain themselves (`google/rpc/status.proto`
//! and `google/rpc/error_details.proto`).

use prost::Message;
use prost_types::{Any, Duration};
use std::collections::BTreeMap;

/// Prefix of the URLs of message types.
const TYPE_URL: &str = "type.googleapis.com/google.rpc.";

/// `google.rpc.Status`: a refusal with its details, as `grpc-status-details-bin` carries it.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// gRPC's code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Message for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Messages of the types below.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.rpc.ErrorInfo`: the cause of a refusal, for programs.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorInfo {
    /// A value of `insula.admin.v1.ErrorReason` without its prefix.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// `insula.io`.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Further facts.
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: BTreeMap<String, String>,
}

/// `google.rpc.BadRequest`: the fields that are wrong.
#[derive(Clone, PartialEq, Message)]
pub struct BadRequest {
    /// The fields.
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<BadField>,
}

/// `google.rpc.BadRequest.FieldViolation`: a field that is wrong.
#[derive(Clone, PartialEq, Message)]
pub struct BadField {
    /// Path of the field.
    #[prost(string, tag = "1")]
    pub field: String,
    /// The problem.
    #[prost(string, tag = "2")]
    pub description: String,
    /// Kubernetes' name of the cause, if it has one.
    #[prost(string, tag = "3")]
    pub reason: String,
}

/// `google.rpc.RetryInfo`: the time after which the call may be made again.
#[derive(Clone, PartialEq, Message)]
pub struct RetryInfo {
    /// The time.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Duration>,
}

/// `google.rpc.ResourceInfo`: the object that a refusal is about.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceInfo {
    /// Resource and group: `widgets.example.io`.
    #[prost(string, tag = "1")]
    pub resource_type: String,
    /// Name of the object.
    #[prost(string, tag = "2")]
    pub resource_name: String,
    /// Unused.
    #[prost(string, tag = "3")]
    pub owner: String,
    /// The problem.
    #[prost(string, tag = "4")]
    pub description: String,
}

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
}

impl Detail for ErrorInfo {
    const NAME: &'static str = "ErrorInfo";
}

impl Detail for BadRequest {
    const NAME: &'static str = "BadRequest";
}

impl Detail for RetryInfo {
    const NAME: &'static str = "RetryInfo";
}

impl Detail for ResourceInfo {
    const NAME: &'static str = "ResourceInfo";
}

impl Status {
    /// Reads the details of a refusal; `None` if it has none, or none of this shape.
    pub fn read(details: &[u8]) -> Option<Status> {
        (!details.is_empty()).then(|| Status::decode(details).ok())?
    }

    /// Returns the first detail of a type.
    pub fn detail<T: Detail>(&self) -> Option<T> {
        let is_wanted = |any: &&Any| any.type_url.strip_prefix(TYPE_URL) == Some(T::NAME);
        T::decode(&*self.details.iter().find(is_wanted)?.value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_found_by_their_type() {
        let info = ErrorInfo {
            reason: "NOT_FOUND".to_owned(),
            domain: "insula.io".to_owned(),
            metadata: BTreeMap::new(),
        };
        let status = Status {
            code: 5,
            message: "no".to_owned(),
            details: vec![RetryInfo::default().packed(), info.packed()],
        };
        let read = Status::read(&status.encode_to_vec()).expect("a status");
        assert_eq!(read.detail::<ErrorInfo>(), Some(info));
        assert_eq!(read.detail::<RetryInfo>(), Some(RetryInfo::default()));
        assert_eq!(read.detail::<BadRequest>(), None);
        assert_eq!(Status::read(&[]), None);
    }
}
