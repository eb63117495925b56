//! Id and span of each request: log lines of a request name the request and its workspace.
//!
//! The header `Audit-Id` carries the id, on the request for its handlers and on the answer for the
//! client.

use std::time::Instant;

use axum::{extract::Request, response::Response};
use http::{HeaderName, HeaderValue};
use insula_api::Rng;
use tracing::Span;

/// Kubernetes' header for the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("audit-id");

/// Characters of a workspace path in logs at most.
const WORKSPACE_CHARS_MAX: usize = 128;

/// Id and span of a request that is being answered.
pub(crate) struct Trace {
    header: HeaderValue,
    /// Span of the log lines of the request.
    pub(crate) span: Span,
    path: String,
    started: Instant,
}

impl Trace {
    /// Assigns the id of a request.
    pub(crate) fn begin(rng: &dyn Rng, request: &mut Request) -> Self {
        // Never that of the client: a chosen id could point an investigation at a request of
        // somebody else.
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

    /// Records the status of the response, and sets its id header.
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

/// Returns a random UUID (version 4), as Kubernetes' ids are.
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

/// Returns the workspace as the client wrote it. It need not exist.
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
