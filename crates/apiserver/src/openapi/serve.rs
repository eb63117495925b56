//! OpenAPI over HTTP: tags, the redirect to the right hash, what may be kept for ever.

use super::{Cache, V2, Wanted, location};
use crate::{
    discovery, gzip,
    negotiate::{self, Offer},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use insula_registry::Served;

/// A document under its own hash never changes.
const FOR_EVER: &str = "public, immutable, max-age=31536000";

/// Answers `/openapi/v3`.
pub fn index(served: &[Served], headers: &HeaderMap) -> Response<Bytes> {
    let bytes = Bytes::from(super::index(served).to_string());
    let hash = discovery::etag(&bytes);
    match accepts_json(headers) {
        true => tagged(&hash, V2::Json.content_type(), headers, || Response::new(bytes)),
        false => empty(StatusCode::NOT_ACCEPTABLE),
    }
}

/// Answers `/openapi/v3/<path>`; nothing where that is not served. `hash` is the query's; `base` is what stands before
/// `/openapi` in the request's path (`/clusters/root`), for the redirect to lead to the same place.
pub fn v3(
    cache: &Cache,
    served: &[Served],
    headers: &HeaderMap,
    path: &str,
    hash: Option<&str>,
    base: &str,
) -> Option<Response<Bytes>> {
    let wanted = super::v3(served, path)?;
    Some(match hash.filter(|hash| !hash.is_empty()) {
        None => document(cache, &wanted, headers),
        Some(hash) if hash == wanted.hash => {
            let mut response = document(cache, &wanted, headers);
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, HeaderValue::from_static(FOR_EVER));
            response
        }
        Some(_) => {
            let mut response = empty(StatusCode::MOVED_PERMANENTLY);
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            insert(
                &mut response,
                header::LOCATION,
                &format!("{base}{}", location(path, &wanted.hash)),
            );
            response
        }
    })
}

/// Answers `/openapi/v2`, in protobuf to clients that would rather have it than JSON.
pub fn v2(cache: &Cache, served: &[Served], headers: &HeaderMap) -> Response<Bytes> {
    let accepts = all(headers, header::ACCEPT).unwrap_or_default();
    let first = accepts.split(',').next().unwrap_or_default();
    let first = first.split(';').next().unwrap_or_default().trim();
    let form = match V2_PROTOBUF_ASKED.contains(&first) {
        true => V2::Protobuf,
        false => V2::Json,
    };
    document(cache, &super::v2(served, form), headers)
}

/// How clients ask for OpenAPI v2 in protobuf: the first is no media type by the letter, and the one that they send.
const V2_PROTOBUF_ASKED: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

fn all(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    let values: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// YAML is a wish that documents do not meet: clients that can have JSON too get that.
fn accepts_json(headers: &HeaderMap) -> bool {
    negotiate::accept(all(headers, header::ACCEPT).as_deref(), Offer::Document).is_ok()
}

fn document(cache: &Cache, wanted: &Wanted<'_>, headers: &HeaderMap) -> Response<Bytes> {
    let form = wanted.form.unwrap_or(V2::Json);
    if form == V2::Json && !accepts_json(headers) {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    tagged(&wanted.hash, form.content_type(), headers, || {
        match gzip::accepts(headers) {
            true => {
                let mut response = Response::new(cache.gzip(wanted));
                gzip::mark(&mut response);
                response
            }
            false => Response::new(cache.plain(wanted)),
        }
    })
}

/// What `make` gives, for clients that do not have it already.
fn tagged(
    hash: &str,
    content_type: &'static str,
    headers: &HeaderMap,
    make: impl FnOnce() -> Response<Bytes>,
) -> Response<Bytes> {
    let known = discovery::etag_matches(all(headers, header::IF_NONE_MATCH).as_deref(), hash);
    let mut response = match known {
        true => empty(StatusCode::NOT_MODIFIED),
        false => make(),
    };
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.append(header::VARY, HeaderValue::from_static("Accept"));
    insert(&mut response, header::ETAG, &format!("\"{hash}\""));
    response
}

fn empty(code: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = code;
    response
}

/// Sets a header, unless its value (a path that a client made up) is none that a header can have.
fn insert(response: &mut Response<Bytes>, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
