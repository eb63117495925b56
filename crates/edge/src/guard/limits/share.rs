//! Limits of one user or one workspace, and their present usage.

use insula_catalog::limits::WorkspaceLimits;

/// Limits of one user or one workspace.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Requests in flight.
    pub requests: usize,
    /// Open watches.
    pub watches: usize,
    /// Requests in a second.
    pub rate: usize,
    /// Bytes in flight of requests and answers.
    pub bytes: usize,
}

impl Share {
    /// Returns the limits with those of one workspace in their place.
    pub(super) fn with(self, own: Option<&WorkspaceLimits>) -> Self {
        let own = own.copied().unwrap_or_default();
        Share {
            requests: own.requests.unwrap_or(self.requests),
            watches: own.watches.unwrap_or(self.watches),
            rate: own.rate.unwrap_or(self.rate),
            bytes: own.bytes.unwrap_or(self.bytes),
        }
    }
}

/// Present usage of a workspace.
#[derive(Debug, Clone, Copy, Default)]
pub struct UsedNow {
    /// Requests in flight.
    pub requests: usize,
    /// Open watches.
    pub watches: usize,
    /// Bytes in flight.
    pub bytes: usize,
}
