//! Tests of the shipped binary from outside: real processes, real sockets, real clients.
//!
//! Tests are plain functions; asynchronous code runs on one runtime of this process. A test takes
//! the [`shared`] server and creates workspaces of its own there, or starts a [`Server`] when it
//! has to kill it. Most tests are scripts ([`run_script`]): requests and commands with the expected
//! answers. `tests/in_process.rs` runs the same scripts against the server's parts in its own
//! process.
//!
//! `INSULA_BIN` names the binary (default: `insula` in the folder that these tests were built in),
//! `INSULA_ETCD` one or more etcds separated by colons, `INSULA_APIEXTENSIONS_APISERVER` a
//! Kubernetes apiextensions-apiserver.
#![allow(
    clippy::unwrap_used,
    reason = "a harness fails by panicking, like the tests that it serves"
)]

mod apiextensions;
mod begun;
mod checkout;
mod clients;
mod collector;
mod etcd;
mod extension;
mod generate;
mod hook;
mod hostile;
mod http;
mod issuer;
mod kubectl;
mod mirror;
mod onboarding;
mod script;
mod server;
mod single;
mod slow;
mod stored;
mod subset;
mod transport;
mod websocket;
mod world;

pub use apiextensions::Apiextensions;
pub use begun::begun;
pub use checkout::Checkout;
pub use clients::{
    Edition, Runtime, check_console, check_docs, check_large_console, check_login, newest_kubectl, shots,
};
pub use collector::{Collector, Metric, Point, Span};
pub use etcd::{Etcd, etcd_programs};
pub use extension::Extension;
pub use generate::{Breakage, Generator};
pub use hook::{Hook, Reply, base64, from_base64};
pub use hostile::{Hostile, Then};
pub use http::{Answer, Client, Who, tls};
pub use issuer::{Issuer, Signer};
pub use kubectl::{Kubectl, Ran, run_bounded};
pub use mirror::mirror;
pub use onboarding::Onboarding;
pub use script::{ControlPlane, run_script, run_script_on, scripts_on_disk};
pub use server::{Server, Setup, Stopped, binary, insula, shared, shared_as, unused_port, write_tokens};
pub use single::{Http1, Http2};
pub use slow::Slow;
pub use stored::{copy_stored, edit_stored, stored_keys};
pub use subset::{Captures, matches};
pub use transport::{AnswerBody, InProcess};
pub use websocket::WebSocket;
pub use world::{publish_widgets, ready_workspace, unique, with_widgets, workspace, workspace_owned_by};

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// Longest wait for any condition.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the runtime for futures of tests, and for the servers that tests stand in for. It has
/// threads for handlers that keep theirs waiting.
pub fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(16)
            .enable_all()
            .build()
            .unwrap()
    });
    &RUNTIME
}

/// Polls until there is a value. Panics, naming `what`, after [`PATIENCE`].
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let mut attempts = Attempts::begin();
    loop {
        if let Some(value) = ask() {
            return value;
        }
        assert!(!attempts.are_over(), "waited {PATIENCE:?} in vain until {what}");
        attempts.pause();
    }
}

/// Attempts within [`PATIENCE`], with pauses that grow: most conditions hold soon. There are some
/// in any case: while a machine is suspended, time passes and nothing is done.
pub(crate) struct Attempts {
    begun: Instant,
    pause: Duration,
    left: usize,
}

impl Attempts {
    const LONGEST_PAUSE: Duration = Duration::from_millis(30);
    const LEAST: usize = 20;

    pub(crate) fn begin() -> Self {
        Attempts {
            begun: Instant::now(),
            pause: Duration::from_millis(1),
            left: Self::LEAST,
        }
    }

    /// Returns true once there should be no more attempts.
    pub(crate) fn are_over(&self) -> bool {
        self.left == 0 && self.begun.elapsed() > PATIENCE
    }

    /// Waits before the next attempt.
    pub(crate) fn pause(&mut self) {
        std::thread::sleep(self.pause);
        self.left = self.left.saturating_sub(1);
        self.pause = (2 * self.pause).min(Self::LONGEST_PAUSE);
    }
}
