//! Whether etcd is followed, and what its errors mean.

use etcd_client::Error;
use tokio::sync::watch;

/// How it stands with the watch that feeds the mirror.
#[derive(Clone, Debug, PartialEq)]
enum Stand {
    Following,
    Lost(String),
    Closed,
}

/// Shared by the store and its driver.
pub(crate) struct Status(watch::Sender<Stand>);

const CLOSED: &str = "the store is closed";

impl Default for Status {
    fn default() -> Self {
        Status(watch::Sender::new(Stand::Following))
    }
}

impl Status {
    fn set(&self, stand: Stand) {
        self.0.send_if_modified(|now| {
            let changes = *now != Stand::Closed && *now != stand;
            if changes {
                *now = stand;
            }
            changes
        });
    }

    pub(crate) fn following(&self) {
        self.set(Stand::Following);
    }

    pub(crate) fn lost(&self, reason: String) {
        self.set(Stand::Lost(reason));
    }

    pub(crate) fn close(&self) {
        self.set(Stand::Closed);
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match &*self.0.borrow() {
            Stand::Following => Ok(()),
            Stand::Lost(reason) => Err(format!("etcd is lost: {reason}")),
            Stand::Closed => Err(CLOSED.into()),
        }
    }

    pub(crate) fn is_following(&self) -> bool {
        *self.0.borrow() == Stand::Following
    }

    pub(crate) fn closed_reason(&self) -> Option<String> {
        (*self.0.borrow() == Stand::Closed).then(|| CLOSED.into())
    }

    /// Waits until the store is closed.
    pub(crate) async fn closed(&self) -> String {
        // The sender lives as long as `self`, so that this cannot fail.
        let _ = self.0.subscribe().wait_for(|stand| *stand == Stand::Closed).await;
        CLOSED.into()
    }
}

// gRPC codes by number, so that this crate names no gRPC library.
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

/// Whether etcd said no before it did anything. Everything else (timeouts, broken connections, a changed leader) may have
/// happened.
pub(crate) fn failed_for_good(error: &Error) -> bool {
    match error {
        Error::GRpcStatus(status) => {
            let refused = [
                INVALID_ARGUMENT,
                PERMISSION_DENIED,
                RESOURCE_EXHAUSTED,
                FAILED_PRECONDITION,
                OUT_OF_RANGE,
                UNAUTHENTICATED,
            ];
            refused.contains(&(status.code() as i32)) || never_sent(status.message())
        }
        Error::InvalidArgs(_) => true,
        _ => false,
    }
}

fn never_sent(message: &str) -> bool {
    message.contains("tcp connect error") || message.contains("etcdserver: no leader")
}

/// Whether the answer was larger than a message may be.
pub(crate) fn too_large_to_read(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.code() as i32 == OUT_OF_RANGE && status.message().contains("length"))
}

/// Whether etcd found the request too large.
pub(crate) fn request_too_large(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status)
        if status.message().contains("request is too large") || status.message().contains("too many operations"))
}
