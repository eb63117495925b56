//! Lifecycle of the server, in one direction: starting → ready → draining → closing → gone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

/// State of the server. Clones share it.
#[derive(Clone, Default)]
pub struct Lifecycle(Arc<Stages>);

#[derive(Default)]
struct Stages {
    ready: AtomicBool,
    draining: CancellationToken,
    closing: CancellationToken,
    gone: CancellationToken,
}

impl Lifecycle {
    /// Returns true while the server accepts requests and is not asked to stop.
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Acquire) && !self.0.draining.is_cancelled()
    }

    /// Completes when the server is asked to stop, and is not ready any more.
    pub async fn draining(&self) {
        self.0.draining.cancelled().await;
    }

    /// Returns true once no connection is accepted any more.
    pub fn is_closing(&self) -> bool {
        self.0.closing.is_cancelled()
    }

    /// Completes when no connection is accepted any more: streams without an end, such as watches,
    /// should end now.
    pub async fn closing(&self) {
        self.0.closing.cancelled().await;
    }

    /// Completes when remaining connections are dropped.
    pub async fn gone(&self) {
        self.0.gone.cancelled().await;
    }

    /// The server accepts requests from here on.
    pub fn set_ready(&self) {
        self.0.ready.store(true, Ordering::Release);
    }

    /// The server is asked to stop.
    pub fn set_draining(&self) {
        self.0.draining.cancel();
    }

    /// The server accepts no connection any more.
    pub fn set_closing(&self) {
        self.0.closing.cancel();
    }

    /// The server drops the connections that remain.
    pub fn set_gone(&self) {
        self.0.gone.cancel();
    }
}
