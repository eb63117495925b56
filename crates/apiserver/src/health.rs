//! Health checks within a workspace. They are those of the server: a workspace has no process of
//! its own.

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::Response;

/// Reports of the server's health.
pub trait HealthReports: Send + Sync {
    /// Answers a path for which [`serves`] is true, without the reasons of failures: those are for
    /// operators.
    fn report<'a>(&'a self, path: &'a str, query: Option<&'a str>) -> BoxFuture<'a, Response<Body>>;
}

/// Returns true for the path of a report, or of one of its checks.
pub fn serves(path: &str) -> bool {
    let report = match path.rsplit_once('/') {
        Some(("", _)) | None => path,
        Some((report, _)) => report,
    };
    matches!(report, "/livez" | "/healthz" | "/readyz")
}
