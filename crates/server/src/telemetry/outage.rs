//! Log lines about a collector that does not take telemetry: one when exports begin to fail, and
//! one when they work again.

use std::sync::atomic::{AtomicBool, Ordering};

/// State of the exports of one signal.
#[derive(Debug)]
pub(super) struct Outage {
    signal: &'static str,
    lasts: AtomicBool,
}

impl Outage {
    /// Creates the state of a signal, such as `metrics`.
    pub(super) fn new(signal: &'static str) -> Self {
        Self {
            signal,
            lasts: AtomicBool::new(false),
        }
    }

    /// Records the outcome of an export.
    pub(super) fn record(&self, outcome: Result<(), &dyn std::fmt::Display>) {
        let signal = self.signal;
        let lasted = self.lasts.swap(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Err(cause) if !lasted => {
                tracing::warn!(signal, %cause, "exports do not reach the collector; the next ones are tried silently");
            }
            Err(cause) => tracing::debug!(signal, %cause, "an export did not reach the collector"),
            Ok(()) if lasted => tracing::info!(signal, "exports reach the collector again"),
            Ok(()) => {}
        }
    }
}
