//! Recognition of gRPC by the content type of a request. All protocols share one port.

use http::{HeaderMap, header::CONTENT_TYPE};

/// Returns true for gRPC requests, whatever the encoding of their messages.
pub fn is_call(headers: &HeaderMap) -> bool {
    // Not a prefix alone: gRPC-Web (`application/grpc-web`) is another protocol.
    format(headers).is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Returns true for gRPC requests whose messages are in protobuf.
pub fn is_protobuf(headers: &HeaderMap) -> bool {
    format(headers).is_some_and(|rest| match rest.strip_prefix(b"+proto") {
        Some(rest) => matches!(rest.first(), None | Some(b';')),
        None => rest.first() != Some(&b'+'),
    })
}

/// Returns the part of the content type after `application/grpc`.
fn format(headers: &HeaderMap) -> Option<&[u8]> {
    let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    kind.and_then(|kind| kind.strip_prefix(b"application/grpc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_says_so_in_its_content_type() {
        for (content_type, call, protobuf) in [
            ("application/grpc", true, true),
            ("application/grpc+proto", true, true),
            ("application/grpc+proto;v=1", true, true),
            ("application/grpc;charset=utf-8", true, true),
            ("application/grpc+json", true, false),
            ("application/grpc+protojson", true, false),
            ("application/grpc-web", false, true),
            ("application/json", false, false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().expect("a value"))]);
            assert_eq!(is_call(&headers), call, "{content_type}");
            assert_eq!(is_protobuf(&headers), protobuf, "{content_type}");
        }
    }
}
