//! OpenAPI over HTTP: tags, redirects to the right hash, and caching.

use super::{
    Cache, Extension, V2, Wanted, location,
    packed::{CHUNK_BYTES, Document},
};
use crate::{discovery, gzip, negotiate};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use insula_api::Timestamp;
use insula_catalog::{Error, Served};
use insula_edge::guard::limits::Budget;
use insula_meter::Meter;
use insula_pipeline::Refusal;
use std::{convert::Infallible, sync::Arc};

/// The user that a document is for, with the bytes in flight and the work of their request.
pub(crate) struct Payer {
    pub(crate) user: Arc<str>,
    pub(crate) budget: Budget,
    pub(crate) meter: Meter,
}

/// A document under its own hash never changes.
const FOR_EVER: &str = "public, immutable";
/// Seconds until `Expires` of a document that never changes: a year.
const FOR_EVER_SECONDS: i64 = 365 * 24 * 3600;

/// Parts of a request that an OpenAPI v3 answer depends on, beside the document.
#[derive(Clone, Copy)]
pub(crate) struct Conditions<'a> {
    /// The user that the answer is for.
    pub payer: &'a Payer,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The query's hash.
    pub hash: Option<&'a str>,
    /// Prefix of `/openapi` in the request's path (`/clusters/root`), for a redirect to lead to the
    /// same cluster.
    pub base: &'a str,
    /// True if each group has a document of its discovery, as in a virtual workspace.
    pub all_groups: bool,
    /// The time of the request.
    pub now: Timestamp,
}

/// Answers `/openapi/v3` with an index: in JSON, whatever is accepted, as in Kubernetes.
pub(crate) fn index(bytes: Bytes, headers: &HeaderMap) -> Response<Body> {
    let hash = discovery::etag(&bytes);
    let response = match is_known(headers, &hash) {
        true => empty(StatusCode::NOT_MODIFIED),
        false => Response::new(bytes.into()),
    };
    tagged(response, &hash, V2::Json.content_type())
}

/// Answers `/openapi/v3/<path>`; nothing where that is not served.
///
/// # Errors
/// The user has too many bytes in flight, or the request may compute no further.
pub(crate) async fn v3(
    cache: &Cache,
    served: &[Served],
    path: &str,
    conditions: Conditions<'_>,
) -> Result<Option<Response<Body>>, Refusal> {
    let Some(wanted) = super::v3(served, path, conditions.all_groups) else {
        return Ok(None);
    };
    let accepts = all(conditions.headers, header::ACCEPT);
    if negotiate::first_supported(accepts.as_deref(), &[("json", ())]).is_none() {
        return Ok(Some(empty(StatusCode::NOT_ACCEPTABLE)));
    }
    Ok(Some(match conditions.hash.filter(|hash| !hash.is_empty()) {
        None => document(cache, &wanted, conditions.headers, conditions.payer).await?,
        Some(hash) if hash == wanted.hash => {
            let mut response = document(cache, &wanted, conditions.headers, conditions.payer).await?;
            insert(&mut response, header::CACHE_CONTROL, FOR_EVER);
            if let Some(expires) = Timestamp(conditions.now.0 + FOR_EVER_SECONDS).http_date() {
                insert(&mut response, header::EXPIRES, &expires);
            }
            response
        }
        Some(_) => {
            let mut response = empty(StatusCode::MOVED_PERMANENTLY);
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            insert(
                &mut response,
                header::LOCATION,
                &format!("{}{}", conditions.base, location(path, &wanted.hash)),
            );
            response
        }
    }))
}

/// Answers `/openapi/v2`, in protobuf to clients that prefer it to JSON.
///
/// # Errors
/// The user has too many bytes in flight, or the request may compute no further.
pub(crate) async fn v2(
    cache: &Cache,
    served: &[Served],
    extensions: &[Arc<Extension>],
    headers: &HeaderMap,
    payer: &Payer,
) -> Result<Response<Body>, Refusal> {
    let accepts = all(headers, header::ACCEPT);
    match negotiate::first_supported(accepts.as_deref(), &V2_MEDIA_TYPES) {
        Some(form) => document(cache, &super::v2(served, extensions, form), headers, payer).await,
        None => Ok(empty(StatusCode::NOT_ACCEPTABLE)),
    }
}

/// Media types of OpenAPI v2. The first spelling of protobuf is no media type by the letter, and
/// the one that clients send.
const V2_MEDIA_TYPES: [(&str, V2); 3] = [
    ("json", V2::Json),
    ("com.github.proto-openapi.spec.v2@v1.0+protobuf", V2::Protobuf),
    ("com.github.proto-openapi.spec.v2.v1.0+protobuf", V2::Protobuf),
];

fn all(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    let values: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

async fn document(
    cache: &Cache,
    wanted: &Wanted<'_>,
    headers: &HeaderMap,
    payer: &Payer,
) -> Result<Response<Body>, Refusal> {
    let response = if is_known(headers, &wanted.hash) {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        let document = cache.document(wanted, payer).await;
        let document = document.map_err(Error::Ended)?;
        // The pieces are held until they are sent, even if the cache drops them.
        payer.budget.hold(document.gzip_bytes() + 2 * CHUNK_BYTES)?;
        sent(document, headers)
    };
    let form = wanted.form.unwrap_or(V2::Json);
    Ok(tagged(response, &wanted.hash, form.content_type()))
}

/// Sends a document while it is read from its pieces, compressed or plain.
fn sent(document: Document, headers: &HeaderMap) -> Response<Body> {
    let (length, mut response) = match gzip::accepts(headers) {
        true => {
            let length = document.gzip_bytes() as u64;
            let pieces = stream::iter(document.gzip().map(Ok::<Bytes, Infallible>));
            let mut response = Response::new(Body::from_stream(pieces));
            gzip::mark(&mut response);
            (length, response)
        }
        false => {
            let length = document.plain_bytes();
            (length, Response::new(Body::from_stream(stream::iter(document.plain()))))
        }
    };
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

/// Returns true if the client has the document of this hash.
fn is_known(headers: &HeaderMap, hash: &str) -> bool {
    discovery::etag_matches(all(headers, header::IF_NONE_MATCH).as_deref(), hash)
}

fn tagged(mut response: Response<Body>, hash: &str, content_type: &'static str) -> Response<Body> {
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.append(header::VARY, HeaderValue::from_static("Accept"));
    insert(&mut response, header::ETAG, &format!("\"{hash}\""));
    response
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// Sets a header, unless its value (a path that a client made up) is none that a header can have.
fn insert<T>(response: &mut Response<T>, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
