//! Measures of a reconciler's queue, for metrics.

use insula_api::measure::{Counter, Gauge, Histogram, SECONDS};

/// Measures of a reconciler's queue, as in client-go's `workqueue_` metrics.
#[derive(Debug)]
pub struct QueueMeasures {
    /// Name of the reconciler.
    pub name: &'static str,
    /// Keys that wait.
    pub depth: Gauge,
    /// Keys that were added.
    pub adds: Counter,
    /// Keys that failed and are attempted again later.
    pub retries: Counter,
    /// Time that keys waited.
    pub queue_seconds: Histogram,
    /// Time of the work on a key.
    pub work_seconds: Histogram,
}

impl QueueMeasures {
    /// Creates the measures of an empty queue.
    pub(crate) fn new(name: &'static str) -> Self {
        QueueMeasures {
            name,
            depth: Gauge::default(),
            adds: Counter::default(),
            retries: Counter::default(),
            queue_seconds: Histogram::new(SECONDS),
            work_seconds: Histogram::new(SECONDS),
        }
    }
}
