//! Requests for mounts: forwarded to the server that has the workspace's content, with the name of
//! the user and without their credential.
//!
//! A tenant chooses the address of a mount, so both directions have a list of allowed headers: no
//! credential leaves this server, and the other one sets no cookies here. The other server trusts
//! the names because of the certificate that this server presents, and authorises by itself.

use crate::{
    aggregation::SANDBOX,
    reply,
    request::{Answer, Parsed},
};
use axum::body::Body;
use futures_util::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::Limited;
use insula_auth::UserInfo;
use insula_catalog::Error;
use insula_edge::guard::limits::{Limits, WatchPermit};
use insula_pipeline::{Mounted, Refusal};

/// Forwards requests to other servers.
pub trait Forward: Send + Sync {
    /// Returns the other server's answer. An error is shown to the client: it tells nothing of the
    /// network behind this server.
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, String>>;
}

/// Forwarding that is switched off: every request is refused.
pub struct Nowhere;

impl Forward for Nowhere {
    fn forward(&self, _: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async { Err("this server passes no requests on; its operator sets workspaces.mounts".to_owned()) })
    }
}

/// Headers of a request that are forwarded.
const REQUEST_HEADERS: [HeaderName; 5] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::IF_NONE_MATCH,
    header::USER_AGENT,
];
/// Headers of an answer that are forwarded.
const RESPONSE_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::ETAG,
    header::VARY,
    header::WARNING,
    header::RETRY_AFTER,
    header::CACHE_CONTROL,
];

/// Forwards a request and its answer.
pub(crate) async fn forward(limits: &Limits, servers: &dyn Forward, parsed: Parsed, mounted: Mounted) -> Answer {
    let Mounted { sender, url, path } = mounted;
    parsed.check_forwarded()?;
    // An answer may go on for long: it counts as a watch.
    let permit = limits.watch(parsed.watch_payer(), None, None).map_err(Refusal::from)?;
    let below = parsed.uri.path().splitn(4, '/').nth(3).unwrap_or_default();
    let query = parsed.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let uri: Result<Uri, _> = format!("{}/{below}{query}", url.trim_end_matches('/')).parse();
    let unavailable = |why: &str| Refusal::from(Error::Unavailable(format!("workspace {path}: {why}")));
    let Ok(uri) = uri else {
        return Err(unavailable("the address of its server cannot be understood"));
    };
    let body = Body::new(Limited::new(parsed.body, limits.settings.body_bytes));
    let mut request = Request::new(body);
    *request.method_mut() = parsed.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = allowed(&parsed.headers, &REQUEST_HEADERS);
    add_user(&sender.user, request.headers_mut())?;
    let answer = servers.forward(request).await.map_err(|why| unavailable(&why))?;
    if has_two_lengths(answer.headers()) {
        return Ok(reply::bytes(502, TWO_LENGTHS.into(), "text/plain; charset=utf-8"));
    }
    Ok(with_permit(answer, permit))
}

/// Refusal of an answer with two lengths.
pub(crate) const TWO_LENGTHS: &str = "the backend answered with both Content-Length and Transfer-Encoding";

/// Returns true for an answer that tells its length in two ways. Programs disagree which counts, so
/// that a part of its body could pass for the next answer.
pub(crate) fn has_two_lengths(headers: &HeaderMap) -> bool {
    headers.contains_key(header::CONTENT_LENGTH) && headers.contains_key(header::TRANSFER_ENCODING)
}

/// Copies the headers of a list.
fn allowed(headers: &HeaderMap, list: &[HeaderName]) -> HeaderMap {
    let mut copied = HeaderMap::new();
    for name in list {
        for value in headers.get_all(name) {
            copied.append(name, value.clone());
        }
    }
    copied
}

/// The refusal of an identity that headers cannot name: 400. Without one of its fields, a scope for
/// example, it would have other rights on the other server.
#[derive(Debug)]
pub(crate) struct Unnameable {
    header: String,
    text: String,
}

impl From<Unnameable> for Refusal {
    fn from(Unnameable { header, text }: Unnameable) -> Self {
        let why = "has characters that a header cannot hold";
        Refusal::from(Error::BadRequest(format!(
            "the user cannot be named to the other server: {header} {text:?} {why}"
        )))
    }
}

/// Adds the headers by which front proxies name the user.
///
/// # Errors
/// The first field that a header cannot hold.
pub(crate) fn add_user(user: &UserInfo, headers: &mut HeaderMap) -> Result<(), Unnameable> {
    let mut add = |header: &str, text: &str| {
        let value = HeaderValue::from_bytes(text.as_bytes());
        let (Ok(name), Ok(value)) = (HeaderName::try_from(header), value) else {
            let (header, text) = (header.to_owned(), text.to_owned());
            return Err(Unnameable { header, text });
        };
        headers.append(name, value);
        Ok(())
    };
    add("x-remote-user", &user.name)?;
    add("x-remote-uid", &user.uid)?;
    for group in &user.groups {
        add("x-remote-group", group)?;
    }
    for (key, values) in &user.extra {
        let key: String = key.bytes().map(escaped).collect();
        for value in values {
            add(&format!("x-remote-extra-{key}"), value)?;
        }
    }
    Ok(())
}

/// Percent-encodes a byte that a header's name cannot hold.
fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    }
}

/// Returns the answer with a permit that it holds until its end.
fn with_permit(answer: Response<Body>, permit: WatchPermit) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let stream = body.into_data_stream().map(move |piece| {
        let _held = &permit;
        piece
    });
    let mut response = Response::new(Body::from_stream(stream));
    *response.status_mut() = parts.status;
    *response.headers_mut() = allowed(&parts.headers, &RESPONSE_HEADERS);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the header of its scope a user had more rights on the other server.
    #[test]
    fn a_user_whom_headers_cannot_name_whole_is_not_named() {
        let named = |user: &UserInfo| {
            let mut headers = HeaderMap::new();
            add_user(user, &mut headers)
                .map(|()| headers)
                .map_err(|refused| refused.header)
        };
        let user = UserInfo::authenticated("jürgen", "", vec!["größe".to_owned()]);
        let headers = named(&user).expect("all fields can be sent");
        assert_eq!(headers["x-remote-user"].as_bytes(), "jürgen".as_bytes());
        let broken = UserInfo::authenticated("a\nb", "", Vec::new());
        assert_eq!(named(&broken).expect_err("a line break"), "x-remote-user");
        let mut scoped = user;
        scoped.extra.insert("scopes".to_owned(), vec!["a\u{7f}".to_owned()]);
        assert_eq!(
            named(&scoped).expect_err("a control character"),
            "x-remote-extra-scopes"
        );
    }
}
