//! Whom a request is for is said once.
//!
//! Whoever stands in front of this server (a proxy, a load balancer) may decide by the name that a
//! request is for. Where a request says two, the one that was decided on need not be the one that
//! is served; so it is refused, as RFC 9112 (3.2) and RFC 9113 (8.3.1) have it. What frames a
//! request (lengths, chunks) hyper sees to: it refuses lengths that differ and encodings that it
//! does not know, and a request with both a length and chunks is read by its chunks, and the last
//! one on its connection.

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

/// The refusal of a request that is for two, before anything reads its path.
pub(crate) fn refuse(request: &Request) -> Option<Response> {
    let why = ambiguity(request)?;
    if let Some(record) = request.extensions().get::<Record>() {
        record.refused(why);
    }
    // Go's words: a kube-apiserver does not come to the point of writing a Status either.
    let text = format!("400 Bad Request: {why}");
    Some(match request.version() < Version::HTTP_2 {
        // Nothing is believed of a connection on which this came.
        true => (StatusCode::BAD_REQUEST, [(CONNECTION, "close")], text).into_response(),
        false => (StatusCode::BAD_REQUEST, text).into_response(),
    })
}

/// Why nobody can tell whom a request is for.
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
    fn two_hosts_are_none() {
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
