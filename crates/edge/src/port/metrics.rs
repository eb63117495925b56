//! Measures of connections, which the owner of the port counts.

use std::sync::Arc;

/// Counts what happens to connections.
pub trait PortMetrics: Send + Sync {
    /// Counts a connection that was opened.
    fn opened(&self);
    /// Counts the end of a connection that was opened.
    fn ended(&self);
    /// Counts a connection that the server closed.
    fn closed(&self, reason: ClosedFor);
    /// Counts a reset stream whose client did not read its answer.
    fn stream_reset(&self);
    /// Counts a failed TLS handshake.
    fn handshake_failed(&self);
}

/// Reason why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClosedFor {
    /// No request for too long.
    Idle,
    /// The headers of a request took too long.
    Headers,
    /// The client did not take its answer.
    Stalled,
    /// Its address had too many connections without a credential.
    Address,
    /// Another connection needed the slot.
    Full,
}

impl ClosedFor {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Headers, Self::Stalled, Self::Address, Self::Full];
}

/// An open connection in the measures. It counts until it is dropped.
pub(super) struct OpenCount(Arc<dyn PortMetrics>);

impl OpenCount {
    pub(super) fn begin(metrics: &Arc<dyn PortMetrics>) -> Self {
        metrics.opened();
        OpenCount(Arc::clone(metrics))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Counts nothing.
#[cfg(test)]
pub(super) struct Unmeasured;

#[cfg(test)]
impl PortMetrics for Unmeasured {
    fn opened(&self) {}
    fn ended(&self) {}
    fn closed(&self, _: ClosedFor) {}
    fn stream_reset(&self) {}
    fn handshake_failed(&self) {}
}
