//! Requests for workspaces that are mounts: passed on to where their content is, with the name of
//! who asks and nothing of what they showed for it.
//!
//! A tenant says where a mount leads, so that headers go by a list in both directions: no
//! credential leaves this server, and the other one sets no cookies here. It believes the names
//! because of the certificate that this server shows, and decides by itself.

use crate::{ApiServer, handle::Answer, limits::WatchPermit, reply::Reply, stage::Mounted};
use axum::body::Body;
use futures_util::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::Limited;
use insula_auth::UserInfo;
use insula_registry::Error;

/// Passes requests on to other servers.
pub trait Forward: Send + Sync {
    /// The other server's answer. An error is for the client to read: it tells nothing of the
    /// network behind this server.
    fn forward(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, String>>;
}

/// Where nothing is passed on.
pub struct Nowhere;

impl Forward for Nowhere {
    fn forward(&self, _: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async { Err("this server passes no requests on; its operator sets workspaces.mounts".to_owned()) })
    }
}

/// What a request may say of itself.
const ASKED: [HeaderName; 5] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::IF_NONE_MATCH,
    header::USER_AGENT,
];
/// What an answer may.
const ANSWERED: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::ETAG,
    header::VARY,
    header::WARNING,
    header::RETRY_AFTER,
    header::CACHE_CONTROL,
];

/// Asks the other server.
pub(crate) async fn forward(server: &ApiServer, mounted: Mounted) -> Answer {
    let Mounted {
        parsed,
        user,
        url,
        path,
    } = mounted;
    // An answer may go on for long: it takes a watch's place.
    let permit = server.limits.watch(&parsed.payer, None).map_err(Reply::from)?;
    let below = parsed.uri.path().splitn(4, '/').nth(3).unwrap_or_default();
    let query = parsed.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let uri: Result<Uri, _> = format!("{}/{below}{query}", url.trim_end_matches('/')).parse();
    let unavailable = |why: &str| Reply::error(&Error::Unavailable(format!("workspace {path}: {why}")));
    let Ok(uri) = uri else {
        return Err(unavailable("the address of its server cannot be understood"));
    };
    let body = Body::new(Limited::new(parsed.body, server.limits.settings.body_bytes));
    let mut request = Request::new(body);
    *request.method_mut() = parsed.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = only(&parsed.headers, &ASKED);
    introduce(&user, request.headers_mut());
    let answer = server.mounts.forward(request).await.map_err(|why| unavailable(&why))?;
    Ok(kept(answer, permit))
}

fn only(headers: &HeaderMap, list: &[HeaderName]) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in list {
        for value in headers.get_all(name) {
            kept.append(name, value.clone());
        }
    }
    kept
}

/// Who asks, as front proxies say it.
fn introduce(user: &UserInfo, headers: &mut HeaderMap) {
    let mut add = |name: &str, text: &str| {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(text)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    add("x-remote-uid", &user.uid);
    for group in &user.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        let key: String = key.bytes().map(escaped).collect();
        for value in values {
            add(&format!("x-remote-extra-{key}"), value);
        }
    }
}

/// A byte of a name as part of a header's: what cannot stand there is percent-encoded.
fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    }
}

/// The answer, with a place among the user's watches for as long as it goes on.
fn kept(answer: Response<Body>, permit: WatchPermit) -> Response<Body> {
    let (parts, body) = answer.into_parts();
    let stream = body.into_data_stream().map(move |piece| {
        let _held = &permit;
        piece
    });
    let mut response = Response::new(Body::from_stream(stream));
    *response.status_mut() = parts.status;
    *response.headers_mut() = only(&parts.headers, &ANSWERED);
    response
}
