//! The admin API's messages, clients and service traits, generated from `/proto`.
//!
//! `cargo xtask proto` writes the generated code into the repository, so that a build runs no
//! generator; a test compares it with its sources. Besides it there are [`json`] of messages,
//! [`value`], the conversion
//! between the JSON of an object and a `google.protobuf.Struct`, and refusals ([`fault`]) with
//! their details ([`rpc`]).

pub mod codec;
pub mod fault;
pub mod json;
pub mod methods;
mod nesting;
pub mod rpc;
pub mod value;

/// Encoding and decoding of messages, and their names.
pub use prost::{Message, Name};
/// Types of Google that the messages contain.
pub use prost_types::{Duration, FieldMask, Timestamp};

/// The admin API, by version.
pub mod admin {
    /// Package `insula.admin.v1`.
    pub mod v1 {
        // Comments in the generated code come from the .proto files, and are laid out for those.
        #![allow(rustdoc::invalid_html_tags, rustdoc::broken_intra_doc_links)]
        include!("../generated/insula.admin.v1.rs");
    }
}

/// Every file of `/proto` with its imports, and its comments, as an encoded
/// `FileDescriptorSet` for reflection. [`rpc::FILE_DESCRIPTOR_SET`] has the details of refusals.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../generated/insula.binpb");

/// Appends an encoded `ResponseHeader` to an encoded response. Readers merge it over the one that
/// the response has: a field that comes again overrides the earlier one.
pub fn encode_header(header: &[u8], response: &mut Vec<u8>) {
    prost::encoding::bytes::encode(1, &header.to_vec(), response);
}
