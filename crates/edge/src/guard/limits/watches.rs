//! Counts of ended watches by reason, and their distance from the latest revision, for metrics.

use insula_api::measure::{Counter, Histogram, REVISIONS};
use std::sync::Arc;

/// Reason why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// The client closed it, or the connection broke.
    Client,
    /// Its time was over.
    Timeout,
    /// The server drained.
    Shutdown,
    /// The definition of its resource or its workspace changed.
    Redefined,
    /// The history that it had to read was compacted.
    Expired,
    /// The user lost the right to it.
    Forbidden,
    /// An event could not be shown.
    Error,
}

/// Measures of all watches.
#[derive(Debug)]
pub struct WatchMeasures {
    ends: [Counter; 7],
    /// Revisions between a watch and the store, at each bookmark.
    pub lag: Histogram,
}

impl Default for WatchMeasures {
    fn default() -> Self {
        WatchMeasures {
            ends: Default::default(),
            lag: Histogram::new(REVISIONS),
        }
    }
}

impl WatchMeasures {
    /// The reasons with their names in metrics.
    const NAMES: [(WatchEnd, &str); 7] = [
        (WatchEnd::Client, "Client"),
        (WatchEnd::Timeout, "Timeout"),
        (WatchEnd::Shutdown, "Shutdown"),
        (WatchEnd::Redefined, "Redefined"),
        (WatchEnd::Expired, "Expired"),
        (WatchEnd::Forbidden, "Forbidden"),
        (WatchEnd::Error, "Error"),
    ];

    /// Returns the counts of ended watches with their reasons.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        Self::NAMES.iter().map(|(end, name)| (*name, &self.ends[*end as usize]))
    }
}

/// The end of one watch, counted when this is dropped.
pub struct MeasuredWatch {
    /// Measures of all watches.
    pub measures: Arc<WatchMeasures>,
    /// The reason, as long as no other is known: the client.
    pub end: WatchEnd,
}

impl Drop for MeasuredWatch {
    fn drop(&mut self) {
        self.measures.ends[self.end as usize].inc();
    }
}
