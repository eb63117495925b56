//! Counts of the requests that a limit refused, for metrics.

use super::{Limit, Limits};
use insula_api::measure::Counter;

/// Limit that refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// Requests in flight.
    Requests,
    /// Requests in a second.
    Rate,
    /// Open watches.
    Watches,
    /// Bytes in flight.
    Bytes,
    /// CPU time of a workspace.
    Compute,
}

/// Counts by limit.
#[derive(Debug, Default)]
pub struct Rejections([Counter; 5]);

impl Rejections {
    /// The limits with their names in metrics.
    const NAMES: [(Rejection, &str); 5] = [
        (Rejection::Requests, "Requests"),
        (Rejection::Rate, "Rate"),
        (Rejection::Watches, "Watches"),
        (Rejection::Bytes, "Bytes"),
        (Rejection::Compute, "Compute"),
    ];

    /// Counts a refused request.
    pub fn count(&self, limit: Rejection) {
        self.0[limit as usize].inc();
    }

    /// Returns the counts with the names of their limits.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        Self::NAMES
            .iter()
            .map(|(limit, name)| (*name, &self.0[*limit as usize]))
    }
}

impl Limits {
    /// Returns the refusal of a tenant that is above its CPU share, and counts it.
    pub fn over_compute(&self, why: &str) -> Limit {
        self.rejections.count(Rejection::Compute);
        Limit(why.to_owned())
    }
}
