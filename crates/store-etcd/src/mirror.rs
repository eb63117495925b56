//! Copy of etcd's state in this process: the first load, the watch that follows it, and its repair.

use crate::{
    BlockingExecutor,
    errors::too_large_to_read,
    keys::Keys,
    members::{Member, Members, Pauses},
    origin::{Origin, Verdict},
    sessions::{Mark, Sessions, Written, newest_mark},
};
use etcd_client::{Error, Event, EventType, GetOptions, KeyValue, KvClient, WatchOptions, WatchResponse, WatchStream};
use insula_api::{Object, ObjectKey, Revision};
use insula_store::{Commit, Entry, FORMAT, Reload};
use std::{collections::VecDeque, convert::Infallible, sync::Arc};
use tokio::sync::oneshot;

/// Objects in a page of the load.
const PAGE_MAX: i64 = 2000;

/// Pages that are decoded at the same time, while the next one is read.
const DECODED_MAX: usize = 4;

/// Knowledge about a load beside the objects.
pub(crate) struct Loaded {
    pub(crate) revision: Revision,
    pub(crate) cluster: u64,
    /// The latest transaction.
    pub(crate) last: Option<Mark>,
    /// The mark of the format.
    pub(crate) format: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorError {
    #[error("{0}")]
    Etcd(#[from] Error),
    #[error("the key {key} holds no object: {reason}")]
    Damaged { key: String, reason: String },
    #[error("{}", crate::describe_format(*.0))]
    Format(u64),
    #[error("the watch ended: {0}")]
    Ended(String),
    #[error("compacted")]
    Compacted,
    #[error("{0}")]
    Other(String),
}

/// The driver's part of a store: follows etcd.
pub(crate) struct Mirror {
    pub(crate) origin: Arc<Origin>,
    pub(crate) members: Arc<Members>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) keys: Keys,
}

/// Reads everything, page by page in the order of keys, all at the revision of the first page.
/// Passes that revision with the objects of each page. Pages are decoded beside one another, and
/// while the next one is read.
pub(crate) async fn load(
    kv: &mut KvClient,
    (keys, executor): (&Keys, &BlockingExecutor),
    mut take: impl FnMut(Revision, u64, Vec<Entry>) -> Result<(), MirrorError>,
) -> Result<Loaded, MirrorError> {
    let (mut start, end) = keys.objects();
    let (mut at, mut limit, mut format) = (None, PAGE_MAX, None);
    let mut decoding: VecDeque<oneshot::Receiver<Result<Decoded, MirrorError>>> = VecDeque::new();
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
        let kvs = page.take_kvs();
        if let Some(last) = kvs.last() {
            // The next page begins with the first key after the last one.
            start = [last.key(), &[0]].concat();
        }
        let keys_of_page = keys.clone();
        let (done, decoded) = oneshot::channel();
        executor(Box::new(move || {
            // The load may have ended.
            let _ = done.send(decode(&keys_of_page, &kvs));
        }));
        decoding.push_back(decoded);
        let reached = Revision(revision.unsigned_abs());
        while decoding.len() > if more { DECODED_MAX } else { 0 }
            && let Some(decoded) = decoding.pop_front()
        {
            let decoded = decoded
                .await
                .map_err(|_| MirrorError::Other("a page was not decoded".into()))??;
            format = format.or(decoded.format);
            take(reached, cluster, decoded.entries)?;
        }
        if !more {
            return Ok(Loaded {
                revision: reached,
                cluster,
                last: newest_mark(kv, keys, revision).await?,
                format,
            });
        }
    }
}

/// A page of a load.
struct Decoded {
    entries: Vec<Entry>,
    format: Option<u64>,
}

fn decode(keys: &Keys, kvs: &[KeyValue]) -> Result<Decoded, MirrorError> {
    let (objects, marks): (Vec<_>, Vec<_>) = kvs.iter().partition(|kv| !keys.is_format(kv.key()));
    let entries = objects.into_iter().map(|kv| entry(keys, kv));
    Ok(Decoded {
        entries: entries.collect::<Result<_, _>>()?,
        format: marks.first().map(|mark| readable_format(mark)).transpose()?,
    })
}

/// Reads the mark of the format, and refuses a later format.
fn readable_format(kv: &KeyValue) -> Result<u64, MirrorError> {
    let text = String::from_utf8_lossy(kv.value());
    let format = text.parse().map_err(|_| MirrorError::Damaged {
        key: String::from_utf8_lossy(kv.key()).into(),
        reason: format!("{text:?} is no format"),
    })?;
    match format > FORMAT {
        true => Err(MirrorError::Format(format)),
        false => Ok(format),
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
    /// Follows until the store is closed, which is `Ok`, or has failed, which is the reason.
    pub(crate) async fn run(self) -> Result<(), String> {
        let status = self.origin.status.clone();
        tokio::select! {
            never = self.follow() => match never {},
            never = self.audit() => match never {},
            _ = status.ended() => status.failure().map_or(Ok(()), Err),
        }
    }

    async fn follow(&self) -> Infallible {
        let mut pauses = Pauses::default();
        // A reload that was begun has to end: see [`insula_store::Reload`].
        let mut is_torn = false;
        loop {
            let before = self.origin.known();
            let generation = self.members.generation();
            let followed = match is_torn {
                true => Err(MirrorError::Compacted),
                false => self.follow_until_error(generation).await,
            };
            let error = match followed {
                Err(MirrorError::Compacted) => {
                    is_torn = true;
                    match self.reload().await {
                        Ok(()) => {
                            is_torn = false;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
                Ok(never) => match never {},
            };
            let reason = error.to_string();
            if let MirrorError::Format(_) = error {
                // What the later program writes cannot be read, now or later.
                self.origin.status.fail(reason.clone());
            }
            // An object that cannot be read is the same on other members, but trying one costs
            // nothing.
            self.members.failed(generation, &reason);
            self.origin.status.lost(reason);
            if self.origin.known() > before {
                pauses = Pauses::default();
            }
            self.members.pause(&mut pauses).await;
        }
    }

    /// Opens a watch at the member of `generation` and follows it until it breaks or another member
    /// is current.
    async fn follow_until_error(&self, generation: usize) -> Result<Infallible, MirrorError> {
        let limit = self.members.options().attempt_timeout;
        let silent = || MirrorError::Ended(self.members.silent(generation, limit));
        let (member, mut stream) = tokio::time::timeout(limit, self.open()).await.map_err(|_| silent())??;
        self.origin.status.following(&member.endpoint);
        loop {
            tokio::select! {
                message = stream.message() => self.take(&next(message)?)?,
                () = self.members.moved(member.generation) => {
                    return Err(MirrorError::Ended(format!("{} has failed other requests", member.endpoint)));
                }
            }
        }
    }

    /// Opens the watch at the revision of the mirror, and verifies that etcd's state continues the
    /// applied state.
    async fn open(&self) -> Result<(Member, WatchStream), MirrorError> {
        let mut member = self.members.current().await?;
        // Not from the next revision: etcd 3.4 does not report a compaction at exactly that
        // revision, and leaves out deletions. Repeated events are dropped.
        let from = i64::try_from(self.origin.known().0).unwrap_or(i64::MAX).max(1);
        // With progress notices etcd reports its revision periodically to a quiet watch. Previous
        // values are in the mirror already.
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(from)
            .with_progress_notify();
        let mut stream = member.watch.watch(self.keys.root(), Some(options)).await?;
        self.check(&next(stream.message().await)?)?;
        // Verified after the watch is open: the watch belongs to a process of etcd, which does not
        // survive a rollback. The revision in its header does not count: it is that of the member,
        // which may lag.
        match self.sessions.verify(&mut member.kv, &self.origin).await? {
            Verdict::Continues => Ok((member, stream)),
            Verdict::Compacted => Err(MirrorError::Compacted),
            Verdict::Other(reason) => Err(MirrorError::Other(reason)),
        }
    }

    fn check(&self, message: &WatchResponse) -> Result<(), MirrorError> {
        if message.compact_revision() > 0 {
            return Err(MirrorError::Compacted);
        }
        if message.canceled() {
            return Err(MirrorError::Ended(message.cancel_reason().to_owned()));
        }
        let cluster = message.header().map(etcd_client::ResponseHeader::cluster_id);
        if cluster != Some(self.origin.cluster) {
            // Never applied; the next watch verifies the cluster.
            return Err(MirrorError::Ended("it came from another cluster".into()));
        }
        Ok(())
    }

    fn take(&self, message: &WatchResponse) -> Result<(), MirrorError> {
        self.check(message)?;
        if message.events().is_empty() {
            // A progress notice is in order with the events of its watch, so that all earlier
            // events are applied.
            let revision = message.header().map_or(0, etcd_client::ResponseHeader::revision);
            self.origin.mvcc.advance(Revision(revision.unsigned_abs()));
        } else {
            let (commits, marks) = self.commits(message.events())?;
            self.sessions
                .apply_and_record(|| self.origin.mvcc.apply(commits), marks);
        }
        Ok(())
    }

    /// Returns the commits of a message. Each is whole and in order: etcd never splits a revision.
    fn commits(&self, events: &[Event]) -> Result<(Vec<Commit>, Vec<Written>), MirrorError> {
        let applied = self.origin.known();
        let (mut commits, mut marks) = (Vec::<Commit>::new(), Vec::new());
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
            if self.keys.is_session(kv.key()) {
                marks.push(match event.event_type() {
                    EventType::Put => Written::Mark(Mark::from_key_value(kv)),
                    EventType::Delete => Written::Deleted(kv.key().to_vec()),
                });
            }
            if self.keys.is_format(kv.key()) && event.event_type() == EventType::Put {
                readable_format(kv)?;
            }
            if self.keys.encoded(kv.key()).is_none() {
                // A tick, a session or the mark of the format: it has a revision and no object.
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
        Ok((commits, marks))
    }

    /// Loads the state again when etcd has compacted revisions that the mirror missed.
    async fn reload(&self) -> Result<(), MirrorError> {
        let known = self.origin.known();
        let mut member = self.members.current().await?;
        let limit = self.members.options().attempt_timeout;
        // A silent member is detected before the load, which has no time limit as a whole.
        let alive = self.sessions.verify(&mut member.kv, &self.origin);
        match tokio::time::timeout(limit, alive).await {
            Ok(Ok(Verdict::Other(reason))) => return Err(MirrorError::Other(reason)),
            Ok(verdict) => drop(verdict?),
            Err(_) => return Err(MirrorError::Ended(self.members.silent(member.generation, limit))),
        }
        let moved = self.members.moved(member.generation);
        let mut reload = None;
        let merge = |revision, cluster, page| {
            if cluster != self.origin.cluster || revision < known {
                return Err(MirrorError::Ended("it is another cluster".into()));
            }
            if reload.is_none() {
                reload = self.origin.mvcc.begin_reload(revision);
            }
            if let Some(reload) = &mut reload {
                reload.page(page);
            }
            Ok(())
        };
        let loaded = tokio::select! {
            loaded = load(&mut member.kv, (&self.keys, &self.members.options().executor), merge) => loaded?,
            () = moved => return Err(MirrorError::Ended("another member is current".into())),
        };
        self.sessions
            .apply_load(|| reload.into_iter().for_each(Reload::finish), loaded.last);
        Ok(())
    }
}

fn next(message: Result<Option<WatchResponse>, Error>) -> Result<WatchResponse, MirrorError> {
    message?.ok_or_else(|| MirrorError::Ended("etcd closed it".into()))
}
