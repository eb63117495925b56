//! The store's contract on an etcd cluster: any number of servers, one order.
//!
//! A transaction goes out as one etcd transaction, so that etcd's revision is the store's. One watch comes in and feeds the
//! same [`insula_store::Mvcc`] as the other engines have: reads, lists and watches never ask etcd. A commit answers when
//! this process has applied it (read your writes); [`Store::snapshot`] at revision 0 asks etcd for its current revision
//! first, so that it also sees what other servers acknowledged.
//!
//! Keys: `<prefix>/objects/<encoded key>` → the object's stored form; `<prefix>/tick` is written to move a quiet prefix on.
//! Revisions of an etcd that others use too have gaps. Compaction is etcd's, for all of its users.
//!
//! Limits are etcd's defaults, see [`insula_store::TXN_OPS_MAX`] and [`insula_store::TXN_BYTES_MAX`]. A server that has just
//! started knows no history from before its start.

mod commit;
mod keys;
mod mirror;
mod status;

use etcd_client::{Certificate, Client, ConnectOptions, Error, GetOptions, Identity, KvClient, TlsOptions};
use insula_api::{Revision, Scope};
use insula_store::{BoxFuture, CommitError, Cursor, Gone, Mvcc, Snapshot, SnapshotError, Store, Txn};
use keys::Keys;
use mirror::Mirror;
use status::Status;
use std::{sync::Arc, time::Duration};

/// How long a revision of somebody else on the same etcd may stay unseen before a tick is written. Revisions of our own
/// prefix arrive by themselves, and sooner.
const QUIET: Duration = Duration::from_millis(50);

/// Connections are checked this often while nothing is said, and given up after as long again.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What can be chosen.
#[derive(Clone)]
pub struct Options {
    /// Bounds each request to etcd. A commit without an answer by then is [`CommitError::Unknown`].
    pub request_timeout: Duration,
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

impl Default for Options {
    fn default() -> Self {
        Options {
            request_timeout: Duration::from_secs(10),
            tls: None,
            user: None,
        }
    }
}

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// etcd cannot be reached or refuses.
    #[error("cannot use etcd at {endpoints}: {reason}")]
    Etcd {
        /// The endpoints.
        endpoints: String,
        /// Why.
        reason: String,
    },
    /// Something under the prefix is not an object of ours.
    #[error("the key {key} in etcd holds no object: {reason}")]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

/// The contract on etcd.
pub struct EtcdStore {
    mvcc: Arc<Mvcc>,
    kv: KvClient,
    keys: Keys,
    status: Arc<Status>,
    /// One tick at a time serves all who wait.
    tick: tokio::sync::Mutex<()>,
}

impl EtcdStore {
    /// Reads everything under `prefix` (e.g. `/insula`) and returns the store and its driver, the future that follows etcd.
    /// The caller spawns the driver; without it commits and snapshots wait for ever. It ends when the store is closed.
    pub async fn connect(
        endpoints: &[String],
        prefix: &str,
        options: Options,
    ) -> Result<(EtcdStore, impl Future<Output = ()> + Send + 'static), ConnectError> {
        let unreachable = |error: Error| ConnectError::Etcd {
            endpoints: endpoints.join(", "),
            reason: error.to_string(),
        };
        let client = Client::connect(endpoints, Some(connect_options(options)))
            .await
            .map_err(unreachable)?;
        // The answers are our own objects: as large as somebody let them become, and in pages.
        let kv = client.kv_client().max_decoding_message_size(mirror::MESSAGE_BYTES_MAX);
        let watch = client.watch_client().max_decoding_message_size(usize::MAX);
        let keys = Keys::new(prefix);
        let loaded = mirror::load(&mut kv.clone(), &keys)
            .await
            .map_err(|error| match error {
                mirror::MirrorError::Etcd(error) => unreachable(error),
                mirror::MirrorError::Damaged { key, reason } => ConnectError::Damaged { key, reason },
                lost => ConnectError::Etcd {
                    endpoints: endpoints.join(", "),
                    reason: lost.to_string(),
                },
            })?;
        let mvcc = Mvcc::load(loaded.revision, loaded.entries);
        let status = Arc::new(Status::default());
        let mirror = Mirror {
            mvcc: mvcc.clone(),
            kv: kv.clone(),
            watch,
            keys: keys.clone(),
            status: status.clone(),
            cluster: loaded.cluster,
        };
        let store = EtcdStore {
            mvcc,
            kv,
            keys,
            status,
            tick: tokio::sync::Mutex::default(),
        };
        Ok((store, mirror.run()))
    }

    /// etcd's current revision, from its majority.
    async fn current(&self) -> Result<Revision, Error> {
        let options = GetOptions::new().with_count_only();
        let got = self.kv.clone().get(self.keys.tick(), Some(options)).await?;
        Ok(revision_of(got.header()))
    }

    /// Waits until the mirror is at `revision`, which etcd has reached. Where it belongs to somebody else no event of ours
    /// will say so; then one is made.
    async fn reach(&self, revision: Revision) -> Result<(), SnapshotError> {
        if tokio::time::timeout(QUIET, self.mvcc.reached(revision)).await.is_ok() {
            return Ok(());
        }
        {
            let _one = self.tick.lock().await;
            if self.mvcc.applied() < revision && self.status.is_following() {
                self.kv
                    .clone()
                    .put(self.keys.tick(), "", None)
                    .await
                    .map_err(unavailable)?;
            }
        }
        tokio::select! {
            () = self.mvcc.reached(revision) => Ok(()),
            reason = self.status.closed() => Err(SnapshotError::Unavailable(reason)),
        }
    }
}

fn unavailable(error: Error) -> SnapshotError {
    SnapshotError::Unavailable(error.to_string())
}

fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> Revision {
    Revision(header.map_or(0, |header| header.revision().unsigned_abs()))
}

fn connect_options(options: Options) -> ConnectOptions {
    let Options {
        request_timeout,
        tls,
        user,
    } = options;
    let mut connect = ConnectOptions::new()
        .with_timeout(request_timeout)
        .with_connect_timeout(request_timeout)
        .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE)
        .with_keep_alive_while_idle(true);
    if let Some(Tls { ca, identity }) = tls {
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if let Some((certificate, key)) = identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        connect = connect.with_tls(tls);
    }
    if let Some((name, password)) = user {
        connect = connect.with_user(name, password);
    }
    connect
}

impl Store for EtcdStore {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move {
            txn.check_size()?;
            if let Some(reason) = self.status.closed_reason() {
                return Err(CommitError::Unavailable(reason));
            }
            let done = commit::send(&mut self.kv.clone(), &self.keys, txn.without_overridden()).await?;
            let applied = if done.changed {
                // Its own event will come.
                tokio::select! {
                    () = self.mvcc.reached(done.revision) => Ok(()),
                    reason = self.status.closed() => Err(reason),
                }
            } else {
                self.reach(done.revision).await.map_err(|error| error.to_string())
            };
            match applied {
                Ok(()) => Ok(done.revision),
                Err(reason) => Err(CommitError::Unknown(format!(
                    "committed at {}, not seen here: {reason}",
                    done.revision
                ))),
            }
        })
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Snapshot, SnapshotError>> {
        Box::pin(async move {
            if at_least == Revision(0) || self.mvcc.applied() < at_least {
                let current = self.current().await.map_err(unavailable)?;
                self.reach(current).await?;
                // Still ahead of etcd itself: it is reached when somebody writes, or never.
                self.mvcc.reached(at_least).await;
            }
            Ok(self.mvcc.latest())
        })
    }

    fn at(&self, exactly: Revision) -> Result<Snapshot, Gone> {
        self.mvcc.at(exactly)
    }

    fn latest(&self) -> Snapshot {
        self.mvcc.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.mvcc.watch(scope, after)
    }

    /// Also compacts etcd. If it cannot be reached only this process forgets, and the next compaction makes up for it.
    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        Box::pin(async move {
            self.mvcc.compact(upto)?;
            if let (None, Ok(upto)) = (self.status.closed_reason(), i64::try_from(upto.0)) {
                // It fails when another server was faster, which is as good, or when etcd is lost, see above.
                let _ = self.kv.clone().compact(upto, None).await;
            }
            Ok(())
        })
    }

    fn health(&self) -> Result<(), String> {
        self.status.check()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.status.close() })
    }
}
