//! The store on an etcd cluster: any number of servers share one order of revisions.
//!
//! A transaction is one etcd transaction, so that etcd's revision is the store's. One watch feeds
//! the same [`insula_store::Mvcc`] as in the other engines: reads, lists and watches never send a
//! request to etcd. A commit returns when this process has applied it (read your writes).
//! [`Store::snapshot`] at revision 0 first reads etcd's current revision, so that it includes
//! commits that other servers acknowledged; one read serves all that wait (see `shared_reads.rs`).
//!
//! Keys: `<prefix>/slots/<slot of the cluster>/<encoded key>` → the object's stored form (see
//! `layout.rs`); `<prefix>/sessions/<server>-<number>` → the number of the server's latest
//! transaction (see `sessions.rs`); `<prefix>/tick` is written to move a quiet prefix on. An etcd
//! with other users has gaps in our revisions. Compaction applies to all users of the etcd.
//!
//! A key among those of earlier objects, which is none, marks the format
//! ([`insula_store::FORMAT`]). A program ends when it finds the mark of a later format, or one
//! appears. Programs before format 3 know no mark: they take the key for a damaged object, do not
//! start, and do not follow etcd beyond it.
//!
//! One member of etcd is used at a time (see `members.rs`). When it fails, reads go to the next
//! one, and transactions are sent again once it is certain that they did not happen. An etcd whose
//! state does not continue the state that was read ends the store (see `origin.rs`): its driver
//! returns the reason.
//!
//! Limits are etcd's defaults, see [`insula_store::TXN_OPS_MAX`] and
//! [`insula_store::TXN_BYTES_MAX`]. A server that has just started knows the history that etcd
//! still has, up to a limit (see `resume.rs`).

mod audit;
pub mod baseline;
mod commit;
mod errors;
mod keys;
mod layout;
mod load;
mod members;
mod mirror;
mod options;
mod origin;
mod relocation;
mod resume;
mod sessions;
mod shared_reads;
mod status;
mod survey;
mod txn;
pub mod version;

pub use etcd_client::Channel;
pub use options::{BlockingExecutor, Connect, Credentials, Options, Sleep, Tls};
pub use survey::{MemberStatus, survey};

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KvClient, TxnOp};
use insula_api::{Revision, Scope};
use insula_store::{
    BoxFuture, CommitError, Cursor, FORMAT, Gone, Measures, Pinned, Sharing, SnapshotError, Store, Txn,
};
use keys::Keys;
use members::Members;
use mirror::MirrorError;
use origin::Origin;
use sessions::Sessions;
use shared_reads::SharedReads;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Reads of etcd's revision that are in flight at a time. A second one halves the wait for the
/// next that is sent; more would serve fewer callers each.
const REVISION_READS: usize = 2;
/// Time to wait for a revision before a tick is written. A revision of another user of the etcd
/// causes no event of our own; our revisions arrive sooner.
const QUIET: Duration = Duration::from_millis(50);

/// Time for a readiness probe, and for each of its attempts: enough for several members.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const PROBE_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for etcd to take note that a server has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// etcd cannot be reached or refuses.
    #[error("cannot use etcd at {endpoints}: {reason}")]
    Etcd {
        /// The endpoints.
        endpoints: String,
        /// Cause.
        reason: String,
    },
    /// A key under the prefix holds no object of ours.
    #[error("the key {key} in etcd holds no object: {reason}")]
    Damaged {
        /// The key.
        key: String,
        /// Description of the damage.
        reason: String,
    },
    /// The version of a member is one that is not used.
    #[error("{reason}")]
    Version {
        /// The member, its version and the ways on.
        reason: String,
    },
    /// A program of a later format uses the store.
    #[error("{}", describe_format(*.found))]
    Format {
        /// Format of the store.
        found: u64,
    },
}

/// Says that the store has a later format.
fn describe_format(found: u64) -> String {
    format!("the store has format {found}, this version reads {FORMAT}; start the version that upgraded it")
}

/// The future that follows etcd, see [`EtcdStore::connect`].
pub type Driver = BoxFuture<'static, Result<(), String>>;

/// A store on etcd.
pub struct EtcdStore {
    members: Arc<Members>,
    origin: Arc<Origin>,
    sessions: Arc<Sessions>,
    keys: Keys,
    /// The mark of the format, when the store was opened.
    format: Option<u64>,
    /// Reads of etcd's revision.
    current: SharedReads<Result<Revision, String>>,
    /// Held while a tick is written: one tick serves all waiting requests.
    tick: tokio::sync::Mutex<()>,
}

impl EtcdStore {
    /// Reads everything under `prefix` (e.g. `/insula`), with the history that etcd still has.
    /// Returns the store and its driver, the future that follows etcd. The caller spawns the
    /// driver; without it commits and snapshots wait for ever. The driver ends when the store is
    /// closed, or with the reason why the store can never be used again.
    ///
    /// # Errors
    /// [`ConnectError`] when etcd is unreachable, or a key under the prefix holds no object.
    pub async fn connect(
        endpoints: &[String],
        prefix: &str,
        options: Options,
    ) -> Result<(EtcdStore, Driver), ConnectError> {
        let members = Arc::new(Members::new(endpoints, options));
        if let Some(reason) = members.refused_version().await {
            return Err(ConnectError::Version { reason });
        }
        match Box::pin(Self::resume(&members, prefix)).await {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            // Whatever it is: if it is no matter of the past, the present meets it as well.
            Err(reason) => tracing::info!(reason, "etcd's history is not read; watches from before list again"),
        }
        let opened = Self::open(&members, prefix, None).await.map_err(|error| match error {
            MirrorError::Damaged { key, reason } => ConnectError::Damaged { key, reason },
            MirrorError::Format(found) => ConnectError::Format { found },
            other => ConnectError::Etcd {
                endpoints: endpoints.join(", "),
                reason: other.to_string(),
            },
        })?;
        let (store, mirror, _) = opened;
        Ok((store, Box::pin(mirror.run())))
    }

    /// Returns the format that the store was marked with when it was opened; `None` for a store
    /// that is new or of a program before format 3.
    pub fn format(&self) -> Option<u64> {
        self.format
    }

    /// Marks the store with the present format, unless it has the mark, and begins the slots.
    /// Earlier programs cannot use it from then on.
    ///
    /// # Errors
    /// The reason why etcd does not take the mark.
    pub async fn mark_format(&self) -> Result<(), String> {
        let (options, known) = (self.members.options(), self.origin.known());
        let mark = |mut kv: KvClient| {
            let absent = Compare::create_revision(self.keys.slotted(), CompareOp::Equal, 0);
            let (sessions, behind) = self.keys.sessions();
            let operations = [
                TxnOp::put(self.keys.format(), FORMAT.to_string(), None),
                TxnOp::put(self.keys.slotted(), "", None),
                // A transaction that was made before must not happen after.
                TxnOp::delete(sessions, Some(DeleteOptions::new().with_range(behind))),
            ];
            let txn = etcd_client::Txn::new().when([absent]).and_then(operations);
            async move { kv.txn(txn).await }
        };
        let marked = self
            .members
            .repeat(options.request_timeout, options.attempt_timeout, mark)
            .await?;
        let marked = self.origin.check(marked.header(), known)?;
        self.reach(marked).await
    }

    /// Reads etcd's current revision, from its majority.
    fn current(
        &self,
        limit: Duration,
        attempt: Duration,
    ) -> impl Future<Output = Result<Revision, String>> + Send + 'static {
        let (origin, members, tick) = (self.origin.clone(), self.members.clone(), self.keys.tick());
        async move {
            let known = origin.known();
            let read = |kv: KvClient| read_header(kv, tick.clone());
            let got = members.repeat(limit, attempt, read).await?;
            origin.check(got.header(), known)
        }
    }

    /// Waits until the mirror is at `revision`, which etcd has reached. If the revision belongs to
    /// another user of the etcd, no event arrives; then a tick is written, whose event does.
    async fn reach(&self, revision: Revision) -> Result<(), String> {
        let mvcc = &self.origin.mvcc;
        let options = self.members.options();
        loop {
            if options.timeout(QUIET, mvcc.reached(revision)).await.is_ok() {
                return Ok(());
            }
            let _one = self.tick.lock().await;
            if mvcc.applied() >= revision {
                return Ok(());
            }
            if !self.origin.status.is_following() {
                continue;
            }
            let put = |mut kv: KvClient| {
                let key = self.keys.tick();
                async move { kv.put(key, "", None).await }
            };
            self.members
                .repeat(options.request_timeout, options.attempt_timeout, put)
                .await?;
            // The watch may have broken meanwhile, and missed the tick.
            let arrived = options.timeout(options.attempt_timeout, mvcc.reached(revision));
            if arrived.await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Waits until everything that was acknowledged before the call is applied here.
    async fn catch_up(&self) -> Result<(), SnapshotError> {
        let options = self.members.options();
        let is_read = AtomicBool::new(false);
        let caught_up = async {
            let read = self.current(options.request_timeout, options.attempt_timeout);
            let current = self.current.join(|| read).await?;
            is_read.store(true, Ordering::Relaxed);
            self.reach(current).await
        };
        let outcome = tokio::select! {
            biased;
            outcome = options.timeout(options.request_timeout, caught_up) => outcome,
            reason = self.origin.status.ended() => Ok(Err(reason)),
        };
        let late = match is_read.load(Ordering::Relaxed) {
            true => "the watch of etcd is behind",
            false => "etcd does not answer",
        };
        let outcome = outcome.unwrap_or_else(|_| Err(late.to_owned()));
        outcome.map_err(SnapshotError::Unavailable)
    }
}

async fn read_header(mut kv: KvClient, key: Vec<u8>) -> Result<etcd_client::GetResponse, etcd_client::Error> {
    kv.get(key, Some(GetOptions::new().with_count_only())).await
}

impl Store for EtcdStore {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move {
            txn.check_size()?;
            if let Some(reason) = self.origin.status.end_reason() {
                return Err(CommitError::Unavailable(reason));
            }
            self.commit_in_time(&txn.without_overridden()).await
        })
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>> {
        Box::pin(async move {
            let mvcc = &self.origin.mvcc;
            if at_least == Revision(0) || mvcc.applied() < at_least {
                self.catch_up().await?;
                // Still ahead of etcd itself: it is reached when somebody writes, or never.
                mvcc.reached(at_least).await;
            }
            Ok(mvcc.latest())
        })
    }

    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone> {
        self.origin.mvcc.at_revision(exactly)
    }

    fn latest(&self) -> Pinned {
        self.origin.mvcc.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.origin.mvcc.watch(scope, after)
    }

    /// Also compacts etcd. If etcd is unreachable, only this process compacts, and the next
    /// compaction makes up for it.
    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        Box::pin(async move {
            self.origin.mvcc.compact(upto)?;
            if let (None, Ok(upto)) = (self.origin.status.end_reason(), i64::try_from(upto.0)) {
                let options = self.members.options();
                let compact = |mut kv: KvClient| async move {
                    match kv.compact(upto, None).await {
                        // Another server was faster, which is as good.
                        Err(error) if errors::compacted(&error) => Ok(()),
                        done => done.map(drop),
                    }
                };
                let compacted = self
                    .members
                    .repeat(options.request_timeout, options.request_timeout, compact);
                if let Err(reason) = compacted.await {
                    tracing::warn!(%upto, reason, "etcd was not compacted; the next compaction tries again");
                }
            }
            Ok(())
        })
    }

    fn members(&self) -> BoxFuture<'_, Result<Vec<insula_store::Member>, String>> {
        Box::pin(async move {
            let listed = async {
                let mut member = self.members.current().await?;
                member.cluster.member_list().await
            };
            let options = self.members.options();
            let listed = options.timeout(options.request_timeout, listed).await;
            let listed = listed.map_err(|_| "etcd does not answer".to_owned())?;
            let listed = listed.map_err(|error| error.to_string())?;
            let describe = |member: &etcd_client::Member| insula_store::Member {
                id: member.id(),
                name: member.name().to_owned(),
                client_urls: member.client_urls().to_vec(),
                learner: member.is_learner(),
            };
            Ok(listed.members().iter().map(describe).collect())
        })
    }

    /// Fails only when the store has ended, since then a restart helps: it reads etcd again. A
    /// restart does not help while etcd is unreachable.
    fn health(&self) -> Result<(), String> {
        self.origin.status.end_reason().map_or(Ok(()), Err)
    }

    /// Reads from etcd's majority, and waits for the watch if it is being opened.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            self.health()?;
            self.current(PROBE_TIMEOUT, PROBE_ATTEMPT_TIMEOUT).await?;
            let options = self.members.options();
            let follows = options.timeout(PROBE_ATTEMPT_TIMEOUT, self.origin.status.follows());
            follows.await.map_err(|_| "the watch of etcd is broken".to_owned())
        })
    }

    fn share(&self, sharing: Sharing) {
        self.origin.mvcc.share(sharing);
    }

    fn measures(&self) -> Measures {
        self.origin.mvcc.measures()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let end = async {
                let member = self.members.current().await?;
                self.sessions.close(member.kv).await
            };
            if self.origin.status.end_reason().is_none() {
                // Servers that start later delete a session that stays.
                let _ = self.members.options().timeout(CLOSE_TIMEOUT, end).await;
            }
            self.origin.status.close();
        })
    }
}
