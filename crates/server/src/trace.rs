//! Every request gets an id and a span: log lines below name the request and its workspace.
//!
//! The id travels in the header `Audit-Id`, on the request for whoever answers it and on the answer
//! for whoever asked.

use std::time::Instant;

use axum::{extract::Request, response::Response};
use http::{HeaderName, HeaderValue};
use insula_api::Rng;
use tracing::Span;

/// Kubernetes' name for a request's id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("audit-id");

/// Longer paths are cut in logs.
const WORKSPACE_CHARS_MAX: usize = 128;

/// A request that is being answered.
pub(crate) struct Trace {
    header: HeaderValue,
    /// What log lines meanwhile are part of.
    pub(crate) span: Span,
    path: String,
    started: Instant,
}

impl Trace {
    /// Gives a request its id.
    pub(crate) fn begin(rng: &dyn Rng, request: &mut Request) -> Self {
        // Always our own: an id that a client chose could point an investigation at somebody else's
        // request.
        let id = request_id(rng);
        let header = HeaderValue::from_str(&id).expect("hexadecimal digits are a header's value");
        request.headers_mut().insert(REQUEST_ID, header.clone());
        let span = tracing::info_span!(
            "request",
            id = %id,
            workspace = workspace(request.uri().path()),
            method = %request.method(),
        );
        Trace {
            header,
            span,
            path: request.uri().path().to_owned(),
            started: Instant::now(),
        }
    }

    /// Tells how it ended, and whom to ask about it.
    pub(crate) fn end(self, response: &mut Response) {
        let (code, milliseconds) = (response.status().as_u16(), self.started.elapsed().as_secs_f64() * 1e3);
        let path = self.path;
        self.span.in_scope(|| match code {
            500.. => tracing::warn!(code, milliseconds, path, "answered"),
            _ => tracing::debug!(code, milliseconds, path, "answered"),
        });
        response.headers_mut().insert(REQUEST_ID, self.header);
    }
}

/// A random UUID (version 4), as Kubernetes' ids are.
fn request_id(rng: &dyn Rng) -> String {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    let whole = u128::from_be_bytes(bytes);
    let whole = (whole & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{whole:032x}");
    [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ]
    .join("-")
}

/// The workspace as the client wrote it; whether it exists is found out later.
fn workspace(path: &str) -> Option<&str> {
    let rest = path.split("/clusters/").nth(1)?;
    let name = rest.split('/').next()?;
    (!name.is_empty() && name.len() <= WORKSPACE_CHARS_MAX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_read_from_the_path() {
        for (path, want) in [
            ("/clusters/root:a/api/v1", Some("root:a")),
            ("/clusters/root", Some("root")),
            ("/services/apiexport/x/y/clusters/*/api", Some("*")),
            ("/clusters/", None),
            ("/readyz", None),
        ] {
            assert_eq!(workspace(path), want, "{path}");
        }
    }

    #[test]
    fn ids_are_random_uuids() {
        struct Ones;
        impl Rng for Ones {
            fn fill(&self, buffer: &mut [u8]) {
                buffer.fill(0xff);
            }
        }
        assert_eq!(request_id(&Ones), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
