//! State of the watch that feeds the mirror, and the reason when the store can never be used again.

use tokio::sync::watch;

/// State of the connection between the mirror and etcd.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// The watch is open.
    Following,
    /// The watch is broken; another one is being opened.
    Lost(String),
    /// The state of etcd does not continue the state that this process has applied. Only a restart
    /// helps.
    Failed(String),
    /// The caller closed the store.
    Closed,
}

/// Shared by the store and its driver.
pub(crate) struct Status(watch::Sender<State>);

const CLOSED: &str = "the store is closed";

impl Default for Status {
    fn default() -> Self {
        Status(watch::Sender::new(State::Following))
    }
}

impl Status {
    /// Sets a state, unless the present one is final. Returns true when that changed it.
    fn set(&self, state: State) -> bool {
        self.0.send_if_modified(|now| {
            let is_final = matches!(now, State::Closed | State::Failed(_));
            let changes = !is_final && *now != state;
            if changes {
                *now = state;
            }
            changes
        })
    }

    pub(crate) fn following(&self, endpoint: &str) {
        if self.set(State::Following) {
            tracing::info!(endpoint, "etcd is followed again");
        }
    }

    pub(crate) fn lost(&self, reason: String) {
        let was_following = self.is_following();
        if self.set(State::Lost(reason.clone())) && was_following {
            tracing::warn!(reason, "the watch of etcd is broken; opening another one");
        }
    }

    /// Ends the store for good.
    pub(crate) fn fail(&self, reason: String) {
        if self.set(State::Failed(reason.clone())) {
            tracing::error!(reason, "etcd cannot be followed any more");
        }
    }

    pub(crate) fn close(&self) {
        self.set(State::Closed);
    }

    pub(crate) fn is_following(&self) -> bool {
        *self.0.borrow() == State::Following
    }

    /// Returns the reason why the store can never be used again.
    pub(crate) fn end_reason(&self) -> Option<String> {
        match &*self.0.borrow() {
            State::Following | State::Lost(_) => None,
            State::Failed(reason) => Some(reason.clone()),
            State::Closed => Some(CLOSED.into()),
        }
    }

    /// Returns the reason of a failure that is not a close.
    pub(crate) fn failure(&self) -> Option<String> {
        match &*self.0.borrow() {
            State::Failed(reason) => Some(reason.clone()),
            State::Following | State::Lost(_) | State::Closed => None,
        }
    }

    /// Waits until the store is closed or has failed.
    pub(crate) async fn ended(&self) -> String {
        // The sender lives as long as `self`, so that this cannot fail.
        let ended = |state: &State| matches!(state, State::Closed | State::Failed(_));
        let _ = self.0.subscribe().wait_for(ended).await;
        self.end_reason().unwrap_or_else(|| CLOSED.into())
    }

    /// Waits until the watch is open.
    pub(crate) async fn follows(&self) {
        let _ = self.0.subscribe().wait_for(|state| *state == State::Following).await;
    }
}
