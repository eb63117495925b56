//! OpenAPI over HTTP: tags, the redirect to the right hash, what may be kept for ever.

use super::{Cache, Document, location};
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
pub fn index(cache: &Cache, served: &[Served], headers: &HeaderMap) -> Response<Bytes> {
    let json = Bytes::from(cache.index(served).to_string());
    let hash = discovery::etag(&json);
    let gzip = None;
    document(&Document { hash, json, gzip }, headers)
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
    let found = cache.v3(served, path)?;
    Some(match hash.filter(|hash| !hash.is_empty()) {
        None => document(&found, headers),
        Some(hash) if hash == found.hash => {
            let mut response = document(&found, headers);
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
                &format!("{base}{}", location(path, &found.hash)),
            );
            response
        }
    })
}

/// Answers `/openapi/v2`: the whole document in JSON. To clients that take protobuf alone (kubectl, to look whether a kind
/// is validated by the server) it gives a document without paths and definitions: they then go by OpenAPI v3, or find that
/// a kind is unknown, where a refusal would end them with an error about content types.
pub fn v2(cache: &Cache, served: &[Served], headers: &HeaderMap) -> Response<Bytes> {
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let wishes = accepts
        .split(',')
        .map(|wish| wish.split(';').next().unwrap_or_default().trim());
    if wishes.clone().next().is_some() && wishes.clone().all(|wish| V2_PROTOBUF_ASKED.contains(&wish)) {
        let mut response = Response::new(Bytes::from_static(V2_PROTOBUF_EMPTY));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(V2_PROTOBUF_ASKED[1]));
        fields.insert(header::VARY, HeaderValue::from_static("Accept"));
        return response;
    }
    document(&cache.v2(served), headers)
}

/// How clients ask for OpenAPI v2 in protobuf; the answer is always named by the second.
const V2_PROTOBUF_ASKED: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// gnostic's `openapi.v2.Document`: swagger (1) "2.0", info (2) of title (1) and version (2), empty paths (8) and
/// definitions (9).
const V2_PROTOBUF_EMPTY: &[u8] = b"\x0a\x032.0\x12\x0f\x0a\x06Insula\x12\x05v1.36\x42\x00\x4a\x00";

fn document(document: &Document, headers: &HeaderMap) -> Response<Bytes> {
    let all = |name: header::HeaderName| {
        let values: Vec<&str> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        (!values.is_empty()).then(|| values.join(","))
    };
    // YAML is a wish that documents do not meet: clients that can have JSON too get that.
    let form = negotiate::accept(all(header::ACCEPT).as_deref(), Offer::Document);
    if form.is_err() {
        return empty(StatusCode::NOT_ACCEPTABLE);
    }
    let known = discovery::etag_matches(all(header::IF_NONE_MATCH).as_deref(), &document.hash);
    let packed = document.gzip.as_ref().filter(|_| gzip::accepts(headers));
    let mut response = match (known, packed) {
        (true, _) => empty(StatusCode::NOT_MODIFIED),
        (false, Some(packed)) => Response::new(packed.clone()),
        (false, None) => Response::new(document.json.clone()),
    };
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(header::VARY, HeaderValue::from_static("Accept"));
    insert(&mut response, header::ETAG, &format!("\"{}\"", document.hash));
    if packed.is_some() && !known {
        gzip::mark(&mut response);
    }
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
