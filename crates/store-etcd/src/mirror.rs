//! Copy of etcd's state in this process: the watch that follows it, and its repair.

use crate::{
    keys::Keys,
    layout,
    load::{self, load},
    members::{Member, Members, Pauses},
    origin::{Origin, Verdict},
    sessions::{Mark, Sessions, Written},
};
use etcd_client::{Error, Event, EventType, WatchOptions, WatchResponse, WatchStream};
use insula_api::{ObjectKey, Revision};
use insula_store::{Commit, Reload};
use std::{collections::HashMap, convert::Infallible, sync::Arc};

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

impl Mirror {
    /// Follows until the store is closed, which is `Ok`, or has failed, which is the reason.
    pub(crate) async fn run(self) -> Result<(), String> {
        let status = self.origin.status.clone();
        tokio::select! {
            biased;
            never = self.follow() => match never {},
            // Boxed: they are large, and mostly asleep.
            never = Box::pin(self.audit()) => match never {},
            never = Box::pin(self.relocate()) => match never {},
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
        let options = self.members.options();
        let limit = options.attempt_timeout;
        let silent = || MirrorError::Ended(self.members.silent(generation, limit));
        let (member, mut stream) = options.timeout(limit, self.open()).await.map_err(|_| silent())??;
        self.origin.status.following(&member.endpoint);
        loop {
            tokio::select! {
                biased;
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
        let (mut commits, mut marks, mut left) = (Vec::<Commit>::new(), Vec::new(), Vec::new());
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
                load::readable_format(kv)?;
            }
            if self.keys.is_slotted(kv.key()) {
                self.keys.begin_slots(revision);
            }
            let Some((in_layout, encoded)) = self.keys.encoded(kv.key()) else {
                // A tick, a session or the mark of the format: it has a revision and no object.
                continue;
            };
            let write = match event.event_type() {
                EventType::Put if layout::is_stray(&self.keys, in_layout, revision) => continue,
                EventType::Put => load::entry(&self.keys, kv).map(|entry| (entry.key, Some(entry.object)))?,
                EventType::Delete => (load::object_key(kv, encoded)?, None),
            };
            if event.event_type() == EventType::Delete && layout::is_stray(&self.keys, in_layout, revision) {
                left.push((commits.len() - 1, write.0));
            } else if let Some(last) = commits.last_mut() {
                last.writes.push(write);
            }
        }
        self.delete_left(&mut commits, left);
        Ok((commits, marks))
    }

    /// Adds the deletions of objects that have left the earlier layout, with the index of their
    /// commits: unless they are in their slots.
    fn delete_left(&self, commits: &mut [Commit], left: Vec<(usize, ObjectKey)>) {
        if left.is_empty() {
            return;
        }
        // The first commit that puts an object into its slot.
        let mut put = HashMap::new();
        for (index, commit) in commits.iter().enumerate() {
            if layout::is_slotted(&self.keys, commit.revision) {
                for (key, _) in commit.writes.iter().filter(|(_, object)| object.is_some()) {
                    put.entry(key.clone()).or_insert(index);
                }
            }
        }
        for (index, key) in left {
            let written = self.origin.mvcc.current(&key.encode()).map(|(written, _)| written);
            let in_slot = put.get(&key).is_some_and(|put| *put <= index)
                || written.is_some_and(|written| layout::is_slotted(&self.keys, written));
            if let (false, Some(commit)) = (in_slot, commits.get_mut(index)) {
                commit.writes.push((key, None));
            }
        }
    }

    /// Loads the state again when etcd has compacted revisions that the mirror missed.
    async fn reload(&self) -> Result<(), MirrorError> {
        let known = self.origin.known();
        let mut member = self.members.current().await?;
        let options = self.members.options();
        let limit = options.attempt_timeout;
        // A silent member is detected before the load, which has no time limit as a whole.
        let alive = self.sessions.verify(&mut member.kv, &self.origin);
        match options.timeout(limit, alive).await {
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
            biased;
            loaded = load(&member.kv, None, (&self.keys, &options.executor), merge) => loaded?,
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
