//! Watches: cursors that pull from a shared log. There is no queue for each watcher: a slow one
//! falls behind and, when what it has not read is forgotten, is told that it is [`Gone`].

use crate::{Gone, Mvcc};
use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Revision, Scope};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::Notify;

/// Changes that one pull hands out, rounded up to a whole revision.
const PULL_MAX: usize = 1000;

/// Bytes of objects that one pull hands out, rounded up to a whole revision. A cursor that is far
/// behind keeps no more than this from being freed when the log forgets it.
const PULL_BYTES_MAX: usize = 1 << 20;

/// Changes that are looked at under one hold of the lock, rounded up to a whole revision: a cursor
/// on one namespace far behind in a busy cluster must not stop the writer.
const SCAN_MAX: usize = 4000;

/// One key's change at a revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The key.
    pub key: ObjectKey,
    /// When it happened.
    pub revision: Revision,
    /// What was there before; `None` is a creation.
    pub old: Option<Prior>,
    /// What is there now; `None` is a deletion.
    pub new: Option<Arc<Object>>,
}

impl Change {
    /// Bytes of the object that the change wrote, or else deleted.
    fn bytes(&self) -> usize {
        let object = self.new.as_ref().or(self.old.as_ref().map(|old| &old.object));
        object.map_or(0, |object| object.size())
    }
}

/// The object before a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Prior {
    /// The object.
    pub object: Arc<Object>,
    /// When it had been written.
    pub revision: Revision,
}

/// The changes since compaction: all, by resource and by (resource, cluster), and who waits for
/// them. A commit touches the three rings of each of its keys and wakes only their cursors, however
/// many others there are.
#[derive(Default)]
pub(crate) struct Log {
    everything: Ring,
    resources: HashMap<ResourceId, ResourceLog>,
    /// Signals of the rings that grew since the last wake.
    touched: Vec<Arc<Notify>>,
}

#[derive(Default)]
struct ResourceLog {
    all: Ring,
    clusters: HashMap<ClusterName, Ring>,
}

/// Most room that so many may keep: enough that a log of one length is not moved about.
fn room(len: usize) -> usize {
    (len * 8).max(1024)
}

/// One scope's changes, oldest first. Lives while it holds a change or a cursor looks at it.
#[derive(Default)]
struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// Changes up to here may be missing. A cursor at or behind it has seen all that there was.
    lost: Revision,
    /// Made for the first cursor: most rings have none.
    signal: Option<Arc<Notify>>,
    cursors: usize,
}

impl Ring {
    fn is_idle(&self) -> bool {
        self.changes.is_empty() && self.cursors == 0
    }

    fn shrink(&mut self) {
        self.changes.shrink_to(room(self.changes.len()));
    }

    fn after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Change>> {
        let start = self.changes.partition_point(|change| change.revision <= revision);
        self.changes.range(start..)
    }
}

/// What one look at a ring gives.
struct Pulled {
    changes: Vec<Arc<Change>>,
    /// Everything in scope up to here is in `changes`.
    reached: Revision,
    /// Whether there was more to look at.
    more: bool,
}

impl Ring {
    fn pull(&self, scope: &Scope, position: Revision, applied: Revision) -> Pulled {
        let (mut changes, mut bytes, mut looked, mut reached) = (Vec::new(), 0, 0, position);
        for change in self.after(position) {
            let is_full = changes.len() >= PULL_MAX || bytes >= PULL_BYTES_MAX || looked >= SCAN_MAX;
            if change.revision > reached && is_full {
                return Pulled {
                    changes,
                    reached,
                    more: true,
                };
            }
            looked += 1;
            reached = change.revision;
            if in_scope(scope, &change.key) {
                bytes += change.bytes();
                changes.push(change.clone());
            }
        }
        Pulled {
            changes,
            reached: applied,
            more: false,
        }
    }
}

impl ResourceLog {
    fn rings(&mut self, cluster: &ClusterName) -> [Option<&mut Ring>; 2] {
        [Some(&mut self.all), self.clusters.get_mut(cluster)]
    }
}

impl Log {
    pub(crate) fn push(&mut self, change: &Arc<Change>) {
        let ObjectKey { resource, cluster, .. } = &change.key;
        if !self.resources.contains_key(resource) {
            self.resources.insert(resource.clone(), ResourceLog::default());
        }
        let log = self.resources.get_mut(resource).expect("inserted above");
        if !log.clusters.contains_key(cluster) {
            log.clusters.insert(cluster.clone(), Ring::default());
        }
        for ring in log.rings(cluster).into_iter().flatten().chain([&mut self.everything]) {
            ring.changes.push_back(change.clone());
            if ring.cursors > 0 {
                self.touched.extend(ring.signal.clone());
            }
        }
    }

    /// The change at an index from the oldest.
    pub(crate) fn change(&self, index: usize) -> Option<&Change> {
        self.everything.changes.get(index).map(Arc::as_ref)
    }

    /// Drops the oldest change, unless it came after `upto`.
    pub(crate) fn forget_oldest(&mut self, upto: Revision) -> Option<Arc<Change>> {
        let change = self.everything.changes.pop_front_if(|oldest| oldest.revision <= upto)?;
        self.everything.lost = self.everything.lost.max(change.revision);
        let ObjectKey { resource, cluster, .. } = &change.key;
        if let Some(log) = self.resources.get_mut(resource) {
            for ring in log.rings(cluster).into_iter().flatten() {
                if let Some(oldest) = ring.changes.pop_front_if(|oldest| Arc::ptr_eq(oldest, &change)) {
                    ring.lost = ring.lost.max(oldest.revision);
                }
            }
        }
        self.tidy(resource, cluster);
        Some(change)
    }

    /// Gives back the room of what was forgotten, where that was most of it.
    pub(crate) fn shrink(&mut self) {
        self.everything.shrink();
        for log in self.resources.values_mut() {
            log.all.shrink();
            log.clusters.shrink_to(room(log.clusters.len()));
        }
    }

    /// Makes every cursor before `revision` gone.
    pub(crate) fn lose(&mut self, revision: Revision) {
        self.everything.lost = self.everything.lost.max(revision);
        for log in self.resources.values_mut() {
            for ring in log.clusters.values_mut().chain([&mut log.all]) {
                ring.lost = ring.lost.max(revision);
            }
        }
    }

    /// The signals of those who wait for what was pushed, to be rung outside the lock.
    pub(crate) fn take_touched(&mut self) -> Vec<Arc<Notify>> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn wake_all(&mut self) {
        self.touched.clear();
        let narrower = self
            .resources
            .values()
            .flat_map(|log| log.clusters.values().chain([&log.all]));
        let signals = narrower
            .chain([&self.everything])
            .filter_map(|ring| ring.signal.as_ref());
        signals.for_each(|signal| signal.notify_waiters());
    }

    pub(crate) fn subscribe(&mut self, scope: &Scope) -> Arc<Notify> {
        let ring = match &scope.resource {
            None => &mut self.everything,
            Some(resource) => {
                let log = self.resources.entry(resource.clone()).or_default();
                match &scope.cluster {
                    None => &mut log.all,
                    Some(cluster) => log.clusters.entry(cluster.clone()).or_default(),
                }
            }
        };
        ring.cursors += 1;
        ring.signal.get_or_insert_default().clone()
    }

    pub(crate) fn unsubscribe(&mut self, scope: &Scope) {
        let Some(resource) = &scope.resource else {
            self.everything.cursors = self.everything.cursors.saturating_sub(1);
            return;
        };
        let Some(log) = self.resources.get_mut(resource) else {
            return;
        };
        let ring = match &scope.cluster {
            None => Some(&mut log.all),
            Some(cluster) => log.clusters.get_mut(cluster),
        };
        if let Some(ring) = ring {
            ring.cursors = ring.cursors.saturating_sub(1);
        }
        match &scope.cluster {
            Some(cluster) => self.tidy(resource, cluster),
            None if log.all.is_idle() && log.clusters.is_empty() => drop(self.resources.remove(resource)),
            None => {}
        }
    }

    /// Removes rings that hold nothing and that nobody looks at. What they lost is below the floor,
    /// where no new cursor starts.
    fn tidy(&mut self, resource: &ResourceId, cluster: &ClusterName) {
        let Some(log) = self.resources.get_mut(resource) else {
            return;
        };
        if log.clusters.get(cluster).is_some_and(Ring::is_idle) {
            log.clusters.remove(cluster);
        }
        if log.clusters.is_empty() && log.all.is_idle() {
            self.resources.remove(resource);
        }
    }

    /// By how many objects a scope has grown since a revision that is pinned. Nothing when too much
    /// has happened to look at.
    pub(crate) fn grown(&self, scope: &Scope, since: Revision) -> Option<isize> {
        let Some(ring) = self.ring(scope) else { return Some(0) };
        let mut after = ring.after(since);
        let grown = after
            .by_ref()
            .take(SCAN_MAX)
            .filter(|change| in_scope(scope, &change.key));
        let grown = grown.map(|change| match (&change.old, &change.new) {
            (None, Some(_)) => 1,
            (Some(_), None) => -1,
            _ => 0,
        });
        let grown = grown.sum();
        after.next().is_none().then_some(grown)
    }

    fn ring(&self, scope: &Scope) -> Option<&Ring> {
        let Some(resource) = &scope.resource else {
            return Some(&self.everything);
        };
        let log = self.resources.get(resource)?;
        match &scope.cluster {
            None => Some(&log.all),
            Some(cluster) => log.clusters.get(cluster),
        }
    }
}

/// A place in the changes of a scope.
pub struct Cursor {
    mvcc: Arc<Mvcc>,
    scope: Scope,
    /// Everything up to here was delivered or is out of scope.
    position: Revision,
    signal: Arc<Notify>,
}

impl Cursor {
    pub(crate) fn new(mvcc: Arc<Mvcc>, scope: Scope, position: Revision, signal: Arc<Notify>) -> Self {
        Cursor {
            mvcc,
            scope,
            position,
            signal,
        }
    }

    /// The next changes, at least one whole revision of them, when there are any. Dropping the
    /// future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, Gone> {
        loop {
            let signal = self.signal.clone();
            // Made before the look, so that a change between the look and the wait wakes it.
            let woken = signal.notified();
            let changes = self.try_next()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            woken.await;
        }
    }

    /// The changes that are there now: none, or whole revisions.
    pub fn try_next(&mut self) -> Result<Vec<Arc<Change>>, Gone> {
        loop {
            let Cursor {
                mvcc, scope, position, ..
            } = self;
            let pulled = mvcc.read(|state| match state.log.ring(scope) {
                None => Ok(Pulled {
                    changes: Vec::new(),
                    reached: state.applied,
                    more: false,
                }),
                Some(ring) if ring.lost > *position => Err(Gone::Compacted {
                    asked: *position,
                    oldest: state.floor,
                }),
                Some(ring) => Ok(ring.pull(scope, *position, state.applied)),
            })?;
            self.position = pulled.reached;
            if !pulled.changes.is_empty() || !pulled.more {
                return Ok(pulled.changes);
            }
        }
    }

    /// Everything at or before this revision was delivered or is out of scope: a safe bookmark. It
    /// moves with the store while nothing happens in the scope.
    pub fn position(&self) -> Revision {
        self.mvcc.read(|state| match state.log.ring(&self.scope) {
            None => state.applied,
            Some(ring) if ring.lost > self.position => self.position,
            Some(ring) => {
                let mut after = ring.after(self.position);
                let pending = after
                    .by_ref()
                    .take(SCAN_MAX)
                    .any(|change| in_scope(&self.scope, &change.key));
                // With more than can be looked at the old place is still a true answer; the next
                // pull moves it.
                if pending || after.next().is_some() {
                    self.position
                } else {
                    state.applied
                }
            }
        })
    }

    /// Everything in scope at or before this revision was delivered. Unlike [`Cursor::position`] it
    /// moves with pulls alone.
    pub fn reached(&self) -> Revision {
        self.position
    }

    /// What it watches.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.mvcc.unsubscribe(&self.scope);
    }
}

/// Whether a key of the ring is in the scope: rings are as narrow as a cluster, the namespace is
/// looked at here.
fn in_scope(scope: &Scope, key: &ObjectKey) -> bool {
    scope
        .namespace
        .as_ref()
        .is_none_or(|namespace| *namespace == key.namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_ends_with_its_bytes() {
        let (mut ring, resource) = (Ring::default(), ResourceId::local("example.io", "widgets"));
        let value = serde_json::json!({"apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": "one"}, "spec": "x".repeat(300_000)});
        let object = Arc::new(Object::new(&value, None).expect("an object"));
        for n in 0..20 {
            // Two changes a revision.
            let change = Change {
                key: ObjectKey::cluster_scoped(resource.clone(), ClusterName::root(), "one"),
                revision: Revision(1 + n / 2),
                old: None,
                new: Some(object.clone()),
            };
            ring.changes.push_back(Arc::new(change));
        }
        let scope = Scope::everywhere(resource);
        let (mut position, mut counts) = (Revision(0), Vec::new());
        loop {
            let pulled = ring.pull(&scope, position, Revision(10));
            counts.push(pulled.changes.len());
            position = pulled.reached;
            if !pulled.more {
                break;
            }
        }
        assert_eq!(counts, [4, 4, 4, 4, 4], "a MiB, and the rest of its revision");
    }

    #[test]
    fn what_was_forgotten_leaves_no_room_behind() {
        const COUNT: usize = 10_000;
        let (mut log, resource) = (Log::default(), ResourceId::local("example.io", "widgets"));
        for n in 1..=COUNT {
            let cluster = ClusterName::parse(&format!("c{n}")).expect("a name");
            let change = Change {
                key: ObjectKey::cluster_scoped(resource.clone(), cluster, "one"),
                revision: Revision(n as u64),
                old: None,
                new: None,
            };
            log.push(&Arc::new(change));
        }
        let room_of = |log: &Log| {
            let of_resource = &log.resources[&resource];
            let rings = [&log.everything, &of_resource.all].map(|ring| ring.changes.capacity());
            rings.into_iter().chain([of_resource.clusters.capacity()]).max()
        };
        log.shrink();
        assert!(room_of(&log) >= Some(COUNT), "all of it is needed");
        while log.forget_oldest(Revision(COUNT as u64 - 1)).is_some() {}
        log.shrink();
        assert!(room_of(&log) <= Some(2 * room(1)), "one change is left");
    }
}
