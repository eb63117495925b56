//! The packed files of the console, and the headers under which browsers run them.
//!
//! `cargo xtask console` builds them from the sources in `web`; a test compares the two.

use std::{io::Write, sync::LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
        IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};

use crate::refusal::Refusal;

const FOLDER: &str = "/console/assets/";
/// Everything from this origin, no script or style in a page, no page in a frame; a text cannot
/// become markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// A file, as it is sent.
struct Asset {
    content_type: &'static str,
    plain: Bytes,
    packed: Bytes,
    etag: HeaderValue,
}

impl Asset {
    fn new(content_type: &'static str, plain: &'static [u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let packed = encoder.write_all(plain).and_then(|()| encoder.finish());
        let hash = HEXLOWER.encode(&digest(&SHA256, plain).as_ref()[..8]);
        Asset {
            content_type,
            plain: Bytes::from_static(plain),
            packed: packed.expect("memory takes every byte").into(),
            etag: HeaderValue::from_str(&format!("\"{hash}\"")).expect("digits are a value"),
        }
    }
}

/// The page, for every path that is no file: a script shows what the path names.
static PAGE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("text/html; charset=utf-8", include_bytes!("../packed/index.html")));
static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("text/javascript; charset=utf-8", include_bytes!("../packed/console.js")));
/// The editor of YAML, which pages load when they need it.
static EDITOR: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("text/javascript; charset=utf-8", include_bytes!("../packed/editor.js")));
static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("text/css; charset=utf-8", include_bytes!("../packed/console.css")));
static ICON: LazyLock<Asset> = LazyLock::new(|| Asset::new("image/svg+xml", include_bytes!("../packed/icon.svg")));
/// The licences of the libraries in the scripts.
static LICENSES: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("text/plain; charset=utf-8", include_bytes!("../packed/licenses.txt")));

/// Answers a request for a page or a file. No credential is read: they are the same for everybody.
pub(crate) fn answer(method: &Method, path: &str, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
    let asset = match path.strip_prefix(FOLDER) {
        None => &*PAGE,
        Some("console.js") => &*SCRIPT,
        Some("editor.js") => &*EDITOR,
        Some("console.css") => &*STYLE,
        Some("icon.svg") => &*ICON,
        Some("licenses.txt") => &*LICENSES,
        Some(_) => return Err(Refusal::NotFound),
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(Refusal::Method);
    }
    let mut response = Response::new(Body::empty());
    let known = headers.get(IF_NONE_MATCH).is_some_and(|etag| *etag == asset.etag);
    let takes_gzip = accepts_gzip(headers);
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        let bytes = if takes_gzip { &asset.packed } else { &asset.plain };
        response.headers_mut().insert(CONTENT_LENGTH, bytes.len().into());
        *response.body_mut() = Body::from(bytes.clone());
    }
    let fixed = HeaderValue::from_static;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, fixed(asset.content_type));
    headers.insert(ETAG, asset.etag.clone());
    headers.insert(VARY, fixed("Accept-Encoding"));
    if takes_gzip && !known {
        headers.insert(CONTENT_ENCODING, fixed("gzip"));
    }
    guard_page(headers);
    Ok(response)
}

/// Returns the headers under which a browser takes what the console answers: nothing from
/// elsewhere, in no frame, for no other origin, and never as another type.
fn guards() -> [(HeaderName, HeaderValue); 6] {
    let fixed = HeaderValue::from_static;
    [
        (CONTENT_SECURITY_POLICY, fixed(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, fixed("nosniff")),
        (X_FRAME_OPTIONS, fixed("DENY")),
        (REFERRER_POLICY, fixed("no-referrer")),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            fixed("same-origin"),
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            fixed("same-origin"),
        ),
    ]
}

/// Adds the headers under which a browser runs a packed page, or takes a file of it: nothing from
/// elsewhere, and nothing kept without asking.
pub fn guard_page(headers: &mut HeaderMap) {
    // Small files: asking whether one changed is one round trip, and no update leaves an old one.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    for (name, value) in guards() {
        headers.insert(name, value);
    }
}

/// Adds the headers of a page to any other answer below `/console`, a refusal or one of the API. A
/// policy that the answer has already is one for a document of somebody else, and stays.
pub fn guard_answer(headers: &mut HeaderMap) {
    for (name, value) in guards() {
        headers.entry(name).or_insert(value);
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim() == "gzip")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all files at most, compressed.
    const BYTES_MAX: usize = 500 << 10;

    #[test]
    fn the_files_are_small() {
        let all: usize = [&PAGE, &SCRIPT, &EDITOR, &STYLE, &ICON, &LICENSES]
            .iter()
            .map(|asset| asset.packed.len())
            .sum();
        assert!(all <= BYTES_MAX, "{all} bytes");
    }

    #[test]
    fn the_page_has_no_script_or_style_of_its_own() {
        let page = std::str::from_utf8(&PAGE.plain).expect("text");
        assert!(page.contains("/console/assets/console.js"));
        for inline in ["<style", " style=", " onload=", "javascript:", "//"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn every_path_that_is_no_file_is_the_page() {
        let get = |path: &str| answer(&Method::GET, path, &HeaderMap::new());
        for path in ["/console", "/console/", "/console/workspaces/root:a", "/console/assets"] {
            let response = get(path).expect(path);
            assert_eq!(response.headers()[CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
            assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], POLICY);
        }
        for path in [
            "/console/assets/",
            "/console/assets/../index.html",
            "/console/assets/none.js",
        ] {
            assert_eq!(get(path).err(), Some(Refusal::NotFound), "{path}");
        }
        assert_eq!(
            answer(&Method::POST, "/console", &HeaderMap::new()).err(),
            Some(Refusal::Method)
        );
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let headers = HeaderMap::from_iter([(IF_NONE_MATCH, SCRIPT.etag.clone())]);
        let response = answer(&Method::GET, "/console/assets/console.js", &headers).expect("a file");
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn browsers_get_compressed_files() {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate, br"))]);
        let response = answer(&Method::GET, "/console/assets/console.js", &headers).expect("a file");
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(response.headers()[CONTENT_LENGTH], SCRIPT.packed.len().to_string());
    }
}
