//! Kubernetes' protobuf for the kinds that Kubernetes has: client-go's typed clients send and
//! request it by default. A body is decoded into the JSON that the same client would send as JSON,
//! and an object is encoded into the bytes that Kubernetes would send.
//!
//! A message is `k8s\0` and a `runtime.Unknown`: type (apiVersion, kind) and the object's own
//! bytes. Both directions read one table of fields (`messages`), so neither can know a field that
//! the other does not know. Nothing is dropped: a field without a name, and a value without a
//! number, are errors.

mod messages;
mod read;
#[cfg(test)]
mod tests;
mod wire;
pub(crate) mod write;

pub use read::decode;
pub use write::{encode, event, is_written};

const MAGIC: &[u8] = b"k8s\0";
/// Depth of nested messages. Schemas of definitions nest; JSON is read as deep.
const DEPTH_MAX: usize = 128;

/// The error of a body that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is not `k8s\0` and an envelope, or is truncated.
    #[error("the body is not Kubernetes' protobuf: {0}")]
    Malformed(&'static str),
    /// A field of a later Kubernetes, or of another program. It would be lost.
    #[error("the body has field {number} of {message}, which this server does not know; send application/json")]
    UnknownField {
        /// Name of the message in Go, with the end of its package's path.
        message: &'static str,
        /// The field's number.
        number: u32,
    },
    /// A kind that is read as JSON or YAML only.
    #[error("{api_version} {kind} is not read as protobuf; send application/json")]
    UnknownKind {
        /// Text of the body.
        api_version: String,
        /// Text of the body.
        kind: String,
    },
}
