//! Check that a request names exactly one host.
//!
//! A proxy or a load balancer in front of this server may decide by the host of a request. If a
//! request names two hosts, the one that the proxy checked need not be the one that is served. Such
//! a request is refused, as RFC 9112 (3.2) and RFC 9113 (8.3.1) require. hyper checks the framing
//! of requests: it refuses contradictory lengths and unknown encodings, and reads a request with
//! both a length and chunks by its chunks, as the last one on its connection.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{
    StatusCode, Version,
    header::{CONNECTION, HOST},
    uri::Authority,
};
use insula_auth::audit::Record;

/// Returns the refusal of a request with an ambiguous host. Called before the path is read.
pub(crate) fn refuse(request: &Request, record: &Record) -> Option<Response> {
    let why = ambiguity(request)?;
    record.refused(why);
    // The text of Go's server: a kube-apiserver does not write a Status here either.
    let text = format!("400 Bad Request: {why}");
    Some(match request.version() < Version::HTTP_2 {
        // The connection is not trusted any more.
        true => (StatusCode::BAD_REQUEST, [(CONNECTION, "close")], text).into_response(),
        false => (StatusCode::BAD_REQUEST, text).into_response(),
    })
}

/// Returns the reason why the host of a request is ambiguous.
fn ambiguity(request: &Request) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Some("too many Host headers"),
        (None, None) if request.version() == Version::HTTP_11 => Some("missing required Host header"),
        (None, None) => None,
        (Some(host), None) => {
            let differs = |named: &Authority| !named.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes());
            let other = request.uri().authority().is_some_and(differs);
            other.then_some("the Host header is not the request's authority")
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn ambiguous_hosts_are_refused() {
        let (http1, http2) = (Version::HTTP_11, Version::HTTP_2);
        let rows: [(Version, &str, &[&str], Option<&str>); 9] = [
            (http1, "/api", &["a"], None),
            (http1, "https://a:1/api", &["A:1"], None),
            (http1, "/api", &[], Some("missing required Host header")),
            (Version::HTTP_10, "/api", &[], None),
            (http1, "/api", &["a", "a"], Some("too many Host headers")),
            (
                http1,
                "https://b/api",
                &["a"],
                Some("the Host header is not the request's authority"),
            ),
            (http2, "https://a/api", &[], None),
            (http2, "https://a/api", &["a"], None),
            (
                http2,
                "https://a/api",
                &["b"],
                Some("the Host header is not the request's authority"),
            ),
        ];
        for (version, uri, hosts, want) in rows {
            let mut request = Request::get(uri).version(version);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let request = request.body(Body::empty()).unwrap();
            assert_eq!(ambiguity(&request), want, "{version:?} {uri} {hosts:?}");
        }
    }
}
