//! Settings of a store.

use etcd_client::Channel;
use futures_util::{FutureExt as _, future};
use insula_store::BoxFuture;
use std::{convert::Infallible, sync::Arc, time::Duration};

/// Settings of a store.
#[derive(Clone)]
pub struct Options {
    /// Bounds each commit and each read from etcd, attempts at all members included. A commit whose
    /// outcome is not known by then is [`insula_store::CommitError::Unknown`].
    pub request_timeout: Duration,
    /// Bounds each attempt at one member. A member that is silent for longer is left for the next
    /// one.
    pub attempt_timeout: Duration,
    /// Reads the credentials. Called for each new connection, so that files may be replaced.
    pub credentials: Arc<dyn Fn() -> Result<Credentials, String> + Send + Sync>,
    /// A random number that tells this process from all others on the same etcd.
    pub instance: u64,
    /// Uses members of any version, with a warning; see
    /// [`crate::version`].
    pub accept_old_versions: bool,
    /// Time between two comparisons of the copy in this process with etcd.
    pub audit_interval: Duration,
    /// Runs the decoding of pages, which threads of the caller may do beside one another.
    pub executor: BlockingExecutor,
    /// Lets time pass.
    pub sleep: Sleep,
    /// Connects to endpoints in another way than over a network, as a simulation does.
    pub connect: Option<Connect>,
}

/// A function that returns a future which is ready after a time.
pub type Sleep = Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// A function that returns a channel to an endpoint.
pub type Connect = Arc<dyn Fn(&str) -> Channel + Send + Sync>;

/// A function that runs some work, now or on another thread.
pub type BlockingExecutor = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// Credentials of a connection.
#[derive(Clone, Default)]
pub struct Credentials {
    /// TLS, for `https://` endpoints.
    pub tls: Option<Tls>,
    /// Name and password, if etcd's authentication is on.
    pub user: Option<(String, String)>,
}

/// PEM texts for a connection to etcd.
#[derive(Clone, Default)]
pub struct Tls {
    /// The CA that signed etcd's certificate.
    pub ca: Vec<u8>,
    /// A client certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Options {
    /// Options without credentials.
    pub fn new(instance: u64) -> Self {
        Options {
            request_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(2),
            credentials: Arc::new(|| Ok(Credentials::default())),
            instance,
            accept_old_versions: false,
            audit_interval: Duration::from_secs(300),
            executor: Arc::new(|work| work()),
            sleep: Arc::new(|time| Box::pin(tokio::time::sleep(time))),
            connect: None,
        }
    }

    /// Waits for some work, for a limited time.
    pub(crate) fn timeout<T, F: Future<Output = T>>(
        &self,
        limit: Duration,
        work: F,
    ) -> impl Future<Output = Result<T, TimedOut>> + use<T, F> {
        // The first that fails ends both. An asynchronous function would hold the work twice.
        let done = work.map(|done| Err::<Infallible, _>(Ok(done)));
        let late = (self.sleep)(limit).map(|()| Err::<Infallible, _>(Err(TimedOut)));
        future::try_join(done, late).map(|first| match first {
            Err(outcome) => outcome,
            Ok((never, _)) => match never {},
        })
    }
}

/// Some work took longer than it may.
#[derive(Debug)]
pub(crate) struct TimedOut;
