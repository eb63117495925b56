//! Members of the etcd cluster, of which one is used at a time.
//!
//! All requests and the watch go to the current member. When it refuses or breaks a connection, or
//! does not answer within the time of an attempt, the next endpoint becomes current, over a new
//! connection with credentials that are read again. The watch moves with it. A balancer over all
//! endpoints would go on sending a failed member its share of the requests.

use crate::{
    Credentials, Options, Tls,
    errors::{Meaning, meaning},
    version::{self, Trust},
};
use etcd_client::{
    Certificate, Client, ClusterClient, ConnectOptions, Error, Identity, KvClient, TlsOptions, WatchClient,
};
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of bytes of an answer. A larger page is requested in halves; a single object is
/// far smaller.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Interval of HTTP/2 pings while a request or the watch is open. etcd ends connections of clients
/// that ping more often than every 5 s (`--grpc-keepalive-min-time`).
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Pauses after all members have failed: the first one, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Endpoints with the connection to the current one.
pub(crate) struct Members {
    endpoints: Vec<String>,
    options: Options,
    /// Number of failures so far, which selects the current endpoint modulo the number of
    /// endpoints.
    generation: watch::Sender<usize>,
    connected: tokio::sync::Mutex<Option<Member>>,
    /// The reason why a member is not used, if one was met whose version is refused.
    refused: Mutex<Option<String>>,
}

/// A connection to one member.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) generation: usize,
    pub(crate) endpoint: String,
    pub(crate) kv: KvClient,
    pub(crate) watch: WatchClient,
    pub(crate) cluster: ClusterClient,
}

/// Pauses between rounds over all members, each twice as long as the one before.
pub(crate) struct Pauses {
    failures: usize,
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses {
            failures: 0,
            next: PAUSE_FIRST,
        }
    }
}

impl Members {
    pub(crate) fn new(endpoints: &[String], options: Options) -> Self {
        // Servers start at different members, so that not all of them use the same one.
        let first = usize::try_from(options.instance % endpoints.len().max(1) as u64).unwrap_or_default();
        Members {
            endpoints: endpoints.to_vec(),
            options,
            generation: watch::Sender::new(first),
            connected: tokio::sync::Mutex::default(),
            refused: Mutex::default(),
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Connects to the current member, or returns the connection that there is.
    pub(crate) async fn current(&self) -> Result<Member, Error> {
        let mut connected = self.connected.lock().await;
        let generation = *self.generation.borrow();
        if let Some(member) = connected.as_ref().filter(|member| member.generation == generation) {
            return Ok(member.clone());
        }
        *connected = None;
        let endpoint = self.endpoint(generation);
        let credentials = (self.options.credentials)().map_err(Error::Internal)?;
        let options = Some(connect_options(&self.options, credentials));
        // Boxed: connecting is rare, and its future is larger than that of a whole request.
        let client = match &self.options.connect {
            Some(connect) => Box::pin(Client::from_channel(connect(&endpoint), options)).await?,
            None => Box::pin(Client::connect([&endpoint], options)).await?,
        };
        self.check_version(&endpoint, &client).await?;
        let member = Member {
            generation,
            endpoint,
            // Answers hold our own objects, in pages.
            kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
            cluster: client.cluster_client(),
            watch: client.watch_client().max_decoding_message_size(usize::MAX),
        };
        *connected = Some(member.clone());
        Ok(member)
    }

    /// Connects to the first member. Returns the reason if its version is refused; whether it can
    /// be used otherwise is found by what follows.
    pub(crate) async fn refused_version(&self) -> Option<String> {
        let _ = self.options.timeout(self.options.attempt_timeout, self.current()).await;
        self.refused.lock().clone()
    }

    /// Refuses a member whose version may lose events of watches, or warns of it.
    async fn check_version(&self, endpoint: &str, client: &Client) -> Result<(), Error> {
        let status = client.maintenance_client().status().await?;
        let found = status.version();
        let needed = version::sound_versions();
        match version::trust(found, self.options.accept_old_versions) {
            Trust::Sound => Ok(()),
            Trust::Refused => {
                let reason = format!(
                    "{endpoint} has version {found:?}, whose watches may lose events: upgrade it to {needed}, or \
                     accept that by etcd.acceptOldVersions"
                );
                *self.refused.lock() = Some(reason.clone());
                // As one that cannot be reached: another member may be a later one.
                Err(Error::Internal(reason))
            }
            Trust::Doubtful => {
                tracing::warn!(
                    endpoint,
                    version = found,
                    "watches of this version of etcd may lose events, which would be missing until the next start: \
                     upgrade it to {needed}"
                );
                Ok(())
            }
        }
    }

    fn endpoint(&self, generation: usize) -> String {
        generation
            .checked_rem(self.endpoints.len())
            .and_then(|index| self.endpoints.get(index))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the generation whose member [`Members::current`] would use.
    pub(crate) fn generation(&self) -> usize {
        *self.generation.borrow()
    }

    /// Makes the next member current, unless another request has done so since `generation`.
    pub(crate) fn failed(&self, generation: usize, reason: &str) {
        let moved = self.generation.send_if_modified(|now| {
            let is_current = *now == generation;
            if is_current {
                *now = now.wrapping_add(1);
            }
            is_current
        });
        if moved {
            tracing::debug!(endpoint = self.endpoint(generation), reason, "an etcd member failed");
        }
    }

    /// Waits until a member of another generation is current.
    pub(crate) async fn moved(&self, generation: usize) {
        // The sender lives as long as `self`, so that this cannot fail.
        let _ = self.generation.subscribe().wait_for(|now| *now != generation).await;
    }

    /// Waits after a failure if all members have failed since the last wait.
    pub(crate) async fn pause(&self, pauses: &mut Pauses) {
        pauses.failures += 1;
        if pauses.failures >= self.endpoints.len() {
            pauses.failures = 0;
            (self.options.sleep)(pauses.next).await;
            pauses.next = (pauses.next * 2).min(PAUSE_MAX);
        }
    }

    /// Sends a request that may be executed more than once to one member after another, until one
    /// answers or `limit` has passed. An attempt takes at most `attempt`.
    pub(crate) async fn repeat<T, F>(
        &self,
        limit: Duration,
        attempt: Duration,
        request: impl Fn(KvClient) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let last = Mutex::new("etcd does not answer".to_owned());
        let attempts = async {
            let mut pauses = Pauses::default();
            loop {
                let generation = self.generation();
                let once = async { request(self.current().await?.kv).await };
                let reason = match self.options.timeout(attempt, once).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) if meaning(&error) == Meaning::Refused => return Err(error.to_string()),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => self.silent(generation, attempt),
                };
                self.failed(generation, &reason);
                *last.lock() = reason;
                self.pause(&mut pauses).await;
            }
        };
        match self.options.timeout(limit, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => Err(last.into_inner()),
        }
    }

    /// Returns the reason for an attempt that timed out.
    pub(crate) fn silent(&self, generation: usize, attempt: Duration) -> String {
        format!("{} did not answer within {attempt:?}", self.endpoint(generation))
    }
}

pub(crate) fn connect_options(options: &Options, credentials: Credentials) -> ConnectOptions {
    let mut connect = ConnectOptions::new()
        .with_connect_timeout(options.attempt_timeout)
        .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
        // etcd counts pings of a connection without a request as a misuse.
        .with_keep_alive_while_idle(false)
        // A member that knows no leader answers so at once, and ends its watches.
        .with_require_leader(true);
    let Credentials { tls, user } = credentials;
    if let Some(Tls { ca, identity }) = tls {
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if let Some((certificate, key)) = identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        connect = connect.with_tls(tls);
    }
    if let Some((name, password)) = user {
        connect = connect.with_user(name, password).with_auto_token_refresh(true);
    }
    connect
}
