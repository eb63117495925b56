//! What comes in: the first load, the watch that follows it, and what to do when it breaks.

use crate::{
    keys::Keys,
    revision_of,
    status::{Status, too_large_to_read},
};
use etcd_client::{Error, Event, EventType, GetOptions, KeyValue, KvClient, WatchClient, WatchOptions, WatchResponse};
use insula_api::{Object, ObjectKey, Revision};
use insula_store::{Commit, Entry, Mvcc};
use std::{sync::Arc, time::Duration};

/// The largest answer that is read. A page that is larger is asked for in halves; one transaction's object is far smaller.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Objects in a page of the load.
const PAGE_MAX: i64 = 2000;

/// Waits between two tries to reach etcd: the first, and at most.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Everything at one revision.
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Entry>,
    pub(crate) cluster: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorError {
    #[error("{0}")]
    Etcd(#[from] Error),
    #[error("the key {key} holds no object: {reason}")]
    Damaged { key: String, reason: String },
    #[error("the watch ended: {0}")]
    Ended(String),
    #[error("compacted")]
    Compacted,
    #[error("this is another etcd, or an older state of it: restart to read it anew")]
    Other,
}

/// Follows etcd.
pub(crate) struct Mirror {
    pub(crate) mvcc: Arc<Mvcc>,
    pub(crate) kv: KvClient,
    pub(crate) watch: WatchClient,
    pub(crate) keys: Keys,
    pub(crate) status: Arc<Status>,
    pub(crate) cluster: u64,
}

/// Reads everything, page by page, all at the revision of the first page.
pub(crate) async fn load(kv: &mut KvClient, keys: &Keys) -> Result<Loaded, MirrorError> {
    let (mut start, end) = keys.objects();
    let (mut entries, mut at, mut limit) = (Vec::new(), None, PAGE_MAX);
    loop {
        let mut options = GetOptions::new().with_range(end.clone()).with_limit(limit);
        if let Some((revision, _)) = at {
            options = options.with_revision(revision);
        }
        let mut page = match kv.get(start.clone(), Some(options)).await {
            Ok(page) => page,
            Err(error) if too_large_to_read(&error) && limit > 1 => {
                limit /= 2;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let header = page.header().map(|header| (header.revision(), header.cluster_id()));
        let (revision, cluster) = *at.get_or_insert(header.unwrap_or_default());
        let more = page.more();
        for kv in page.take_kvs() {
            start.clear();
            start.extend_from_slice(kv.key());
            entries.push(entry(keys, &kv)?);
        }
        // The first key behind the last one.
        start.push(0);
        if !more {
            return Ok(Loaded {
                revision: Revision(revision.unsigned_abs()),
                entries,
                cluster,
            });
        }
    }
}

fn entry(keys: &Keys, kv: &KeyValue) -> Result<Entry, MirrorError> {
    let damaged = |reason: String| MirrorError::Damaged {
        key: String::from_utf8_lossy(kv.key()).into(),
        reason,
    };
    let object = Object::from_stored(kv.value()).map_err(|error| damaged(error.to_string()))?;
    let [revision, created] = [kv.mod_revision(), kv.create_revision()].map(|r| Revision(r.unsigned_abs()));
    Ok(Entry {
        key: object_key(keys, kv)?,
        object: Arc::new(object),
        revision,
        created,
    })
}

fn object_key(keys: &Keys, kv: &KeyValue) -> Result<ObjectKey, MirrorError> {
    let damaged = |reason: String| MirrorError::Damaged {
        key: String::from_utf8_lossy(kv.key()).into(),
        reason,
    };
    let encoded = keys
        .encoded(kv.key())
        .ok_or_else(|| damaged("it is outside of the prefix".into()))?;
    ObjectKey::decode(encoded).map_err(|error| damaged(error.to_string()))
}

impl Mirror {
    /// Follows until the store is closed.
    pub(crate) async fn run(mut self) {
        let status = self.status.clone();
        let follow = async {
            let mut wait = RETRY_FIRST;
            loop {
                let before = self.mvcc.applied();
                let error = match self.follow().await {
                    MirrorError::Compacted => match self.reload().await {
                        Ok(()) => continue,
                        Err(error) => error,
                    },
                    error => error,
                };
                self.status.lost(error.to_string());
                if self.mvcc.applied() > before {
                    wait = RETRY_FIRST;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_MAX);
            }
        };
        tokio::select! {
            () = follow => {}
            _ = status.closed() => {}
        }
    }

    /// Watches from where the mirror is, for as long as it goes. Returns why it stopped.
    async fn follow(&mut self) -> MirrorError {
        match self.follow_until_error().await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn follow_until_error(&mut self) -> Result<std::convert::Infallible, MirrorError> {
        let from = i64::try_from(self.mvcc.applied().0 + 1).map_err(|_| MirrorError::Other)?;
        // Progress: etcd tells a quiet prefix its revision now and then. Previous values are in the mirror already.
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(from)
            .with_progress_notify();
        let mut stream = self.watch.watch(self.keys.root(), Some(options)).await?;
        loop {
            let Some(message) = stream.message().await? else {
                return Err(MirrorError::Ended("etcd closed it".into()));
            };
            self.take(&message)?;
        }
    }

    fn take(&self, message: &WatchResponse) -> Result<(), MirrorError> {
        if message.compact_revision() > 0 {
            return Err(MirrorError::Compacted);
        }
        if message.canceled() {
            return Err(MirrorError::Ended(message.cancel_reason().to_owned()));
        }
        if message.created() {
            let header = message.header();
            let known = header.is_some_and(|header| header.cluster_id() == self.cluster);
            if !known || revision_of(header) < self.mvcc.applied() {
                return Err(MirrorError::Other);
            }
            self.status.following();
        } else if message.events().is_empty() {
            // A progress notice comes in line with the events of its watch, so that all before it were taken.
            self.mvcc.advance(revision_of(message.header()));
        } else {
            self.mvcc.apply(self.commits(message.events())?);
        }
        Ok(())
    }

    /// The revisions of a message, each whole: etcd never splits one, and they come in order.
    fn commits(&self, events: &[Event]) -> Result<Vec<Commit>, MirrorError> {
        let applied = self.mvcc.applied();
        let mut commits: Vec<Commit> = Vec::new();
        for event in events {
            let Some(kv) = event.kv() else { continue };
            let revision = Revision(kv.mod_revision().unsigned_abs());
            if revision <= applied {
                continue;
            }
            if commits.last().is_none_or(|last| last.revision != revision) {
                commits.push(Commit {
                    revision,
                    writes: Vec::new(),
                });
            }
            if self.keys.encoded(kv.key()).is_none() {
                // A tick: it has a revision and says nothing.
                continue;
            }
            let write = match event.event_type() {
                EventType::Put => entry(&self.keys, kv).map(|entry| (entry.key, Some(entry.object)))?,
                EventType::Delete => (object_key(&self.keys, kv)?, None),
            };
            if let Some(last) = commits.last_mut() {
                last.writes.push(write);
            }
        }
        Ok(commits)
    }

    /// Starts over after a loss longer than etcd's history.
    async fn reload(&mut self) -> Result<(), MirrorError> {
        let Loaded {
            revision,
            entries,
            cluster,
        } = load(&mut self.kv, &self.keys).await?;
        if cluster != self.cluster || revision < self.mvcc.applied() {
            return Err(MirrorError::Other);
        }
        self.mvcc.reload(revision, entries);
        Ok(())
    }
}
