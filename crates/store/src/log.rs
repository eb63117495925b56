//! The log of changes since the last compaction, with the cursors that wait for more.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Resources, Revision, Scope};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};
use tokio::sync::Notify;

/// Maximum number of changes that one pull returns, rounded up to a whole revision.
const PULL_MAX: usize = 1000;

/// Maximum number of bytes of objects that one pull returns, rounded up to a whole revision. A
/// cursor far behind keeps no more than this in memory after the log has trimmed it.
const PULL_BYTES_MAX: usize = 1 << 20;

/// Changes that are scanned while the lock is held once, rounded up to a whole revision: a cursor
/// on one namespace that is far behind in a busy cluster must not stop the writer.
pub(crate) const SCAN_MAX: usize = 4000;

/// A change of one key at a revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The key.
    pub key: ObjectKey,
    /// Revision of the change.
    pub revision: Revision,
    /// The object before the change; `None` is a creation.
    pub old: Option<Prior>,
    /// The object after the change; `None` is a deletion.
    pub new: Option<Arc<Object>>,
}

impl Change {
    /// Returns the size in bytes of the object that the change wrote or deleted.
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
    /// Revision at which it was written.
    pub revision: Revision,
}

/// The changes since the last compaction, in one ring for all, one for each resource and one for
/// each (resource, cluster), with the cursors that wait for them. A commit touches the three rings
/// of each of its keys and wakes the cursors of these rings alone.
#[derive(Default)]
pub(crate) struct Log {
    everything: Ring,
    resources: HashMap<ResourceId, ResourceLog>,
    /// Rings of clusters without changes and cursors that lost changes after the floor: they are
    /// kept until the floor is there, because cursors can start before it.
    cut: HashSet<(ResourceId, ClusterName)>,
    /// Signals of the rings that received changes since the last wake-up.
    touched: Vec<Arc<Notify>>,
}

#[derive(Default)]
struct ResourceLog {
    all: Ring,
    clusters: HashMap<ClusterName, Ring>,
}

/// Returns the largest capacity that a collection of `len` items may keep. It is generous, so that
/// a log of stable length is not reallocated.
fn capacity_max(len: usize) -> usize {
    (len * 8).max(1024)
}

/// The changes of one scope, oldest first. Exists while it holds a change or has a cursor.
#[derive(Default)]
pub(crate) struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// Changes up to this revision may be missing. A cursor at or after it has seen all of them.
    pub(crate) lost: Revision,
    /// Created with the first cursor: most rings have no cursor.
    signal: Option<Arc<Notify>>,
    cursors: usize,
}

impl Ring {
    fn is_idle(&self) -> bool {
        self.changes.is_empty() && self.cursors == 0
    }

    /// Drops the changes up to a revision, which the cursors that need them have lost.
    fn lose(&mut self, upto: Revision) {
        while self.changes.pop_front_if(|oldest| oldest.revision <= upto).is_some() {}
        self.lost = self.lost.max(upto);
    }

    fn shrink(&mut self) {
        self.changes.shrink_to(capacity_max(self.changes.len()));
    }

    pub(crate) fn after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Change>> {
        let start = self.changes.partition_point(|change| change.revision <= revision);
        self.changes.range(start..)
    }
}

/// Result of one scan of a ring.
pub(crate) struct Pulled {
    pub(crate) changes: Vec<Arc<Change>>,
    /// Every change in scope up to this revision is in `changes`.
    pub(crate) reached: Revision,
    /// True if the scan stopped before the end of the ring.
    pub(crate) more: bool,
}

impl Ring {
    pub(crate) fn pull(&self, scope: &Scope, position: Revision, applied: Revision) -> Pulled {
        let (mut changes, mut bytes, mut looked, mut reached) = (Vec::new(), 0, 0, position);
        // A reload writes ahead of the revision that is read.
        for change in self.after(position).take_while(|change| change.revision <= applied) {
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

impl Log {
    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.everything.changes.len()
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

    /// Returns the change at a position, counted from the newest, which has position 1.
    pub(crate) fn newest(&self, position: usize) -> Option<&Change> {
        let index = self.everything.changes.len().checked_sub(position)?;
        self.everything.changes.get(index).map(Arc::as_ref)
    }

    /// Drops the oldest change of all, unless its revision is after `upto`.
    pub(crate) fn pop(&mut self, upto: Revision) -> Option<Arc<Change>> {
        self.everything.changes.pop_front_if(|oldest| oldest.revision <= upto)
    }

    /// Forgets a change, the oldest of its cluster. A cursor that is wider than the cluster cannot
    /// go on from before it, so that the changes of other clusters before it are dropped from the
    /// wider rings, too; those of all clusters are popped by the caller.
    pub(crate) fn forget(&mut self, change: &Arc<Change>, floor: Revision) {
        let ObjectKey { resource, cluster, .. } = &change.key;
        self.everything.lost = self.everything.lost.max(change.revision);
        if let Some(log) = self.resources.get_mut(resource) {
            log.all.lose(change.revision);
            if let Some(ring) = log.clusters.get_mut(cluster)
                && let Some(oldest) = ring.changes.pop_front_if(|oldest| Arc::ptr_eq(oldest, change))
            {
                ring.lost = ring.lost.max(oldest.revision);
            }
        }
        self.tidy(resource, cluster, floor);
    }

    /// Returns the revision up to which changes of a scope are lost.
    pub(crate) fn lost(&self, resource: Option<&ResourceId>, cluster: Option<&ClusterName>) -> Revision {
        let ring = match (resource, cluster) {
            (None, _) => Some(&self.everything),
            (Some(resource), None) => self.resources.get(resource).map(|log| &log.all),
            (Some(resource), Some(cluster)) => self.resources.get(resource).and_then(|log| log.clusters.get(cluster)),
        };
        // A ring without an entry lost nothing after the floor.
        ring.map_or(Revision(0), |ring| ring.lost)
    }

    /// Frees rings and capacity that trimmed changes left behind.
    pub(crate) fn shrink(&mut self, floor: Revision) {
        for (resource, cluster) in std::mem::take(&mut self.cut) {
            self.tidy(&resource, &cluster, floor);
        }
        self.everything.shrink();
        for log in self.resources.values_mut() {
            log.all.shrink();
            log.clusters.shrink_to(capacity_max(log.clusters.len()));
        }
    }

    /// Marks the changes up to `revision` as lost, which makes every cursor before it gone.
    pub(crate) fn mark_lost(&mut self, revision: Revision) {
        self.everything.lost = self.everything.lost.max(revision);
        for log in self.resources.values_mut() {
            for ring in log.clusters.values_mut().chain([&mut log.all]) {
                ring.lost = ring.lost.max(revision);
            }
        }
    }

    /// Takes the signals of the cursors that wait for pushed changes, to be notified outside the
    /// lock.
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
        let ring = match scope.resources.one() {
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

    pub(crate) fn unsubscribe(&mut self, scope: &Scope, floor: Revision) {
        let Some(resource) = scope.resources.one() else {
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
            Some(cluster) => self.tidy(resource, cluster, floor),
            None if log.all.is_idle() && log.clusters.is_empty() => drop(self.resources.remove(resource)),
            None => {}
        }
    }

    /// Removes rings without changes and cursors. What they lost is below the floor, where no new
    /// cursor starts.
    fn tidy(&mut self, resource: &ResourceId, cluster: &ClusterName, floor: Revision) {
        let Some(log) = self.resources.get_mut(resource) else {
            return;
        };
        if let Some(ring) = log.clusters.get(cluster)
            && ring.is_idle()
        {
            if ring.lost <= floor {
                log.clusters.remove(cluster);
            } else {
                self.cut.insert((resource.clone(), cluster.clone()));
            }
        }
        if log.clusters.is_empty() && log.all.is_idle() {
            self.resources.remove(resource);
        }
    }

    /// Returns the growth of a scope in objects since a pinned revision, or `None` when changes are
    /// lost or more than [`SCAN_MAX`] to scan.
    pub(crate) fn growth(&self, scope: &Scope, since: Revision) -> Option<isize> {
        let Some(ring) = self.ring(scope) else { return Some(0) };
        if ring.lost > since {
            return None;
        }
        let mut after = ring.after(since);
        let growth = after
            .by_ref()
            .take(SCAN_MAX)
            .filter(|change| in_scope(scope, &change.key));
        let growth = growth.map(|change| match (&change.old, &change.new) {
            (None, Some(_)) => 1,
            (Some(_), None) => -1,
            _ => 0,
        });
        let growth = growth.sum();
        after.next().is_none().then_some(growth)
    }

    pub(crate) fn ring(&self, scope: &Scope) -> Option<&Ring> {
        let Some(resource) = scope.resources.one() else {
            return Some(&self.everything);
        };
        let log = self.resources.get(resource)?;
        match &scope.cluster {
            None => Some(&log.all),
            Some(cluster) => log.clusters.get(cluster),
        }
    }
}

/// Returns true if a key of the ring is in the scope. A ring is at most as narrow as a cluster, so
/// that the namespace is checked here; and as wide as the resources of all exporters or wider.
pub(crate) fn in_scope(scope: &Scope, key: &ObjectKey) -> bool {
    let is_named = match &scope.resources {
        Resources::All | Resources::One(_) => true,
        Resources::Named { .. } => scope.resources.contains(&key.resource),
    };
    let namespace = scope
        .namespace
        .as_ref()
        .is_none_or(|namespace| *namespace == key.namespace);
    is_named && namespace
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
        let mut changes = Vec::new();
        for n in 1..=COUNT {
            let cluster = ClusterName::parse(&format!("c{n}")).expect("a name");
            let change = Change {
                key: ObjectKey::cluster_scoped(resource.clone(), cluster, "one"),
                revision: Revision(n as u64),
                old: None,
                new: None,
            };
            let change = Arc::new(change);
            log.push(&change);
            changes.push(change);
        }
        let room_of = |log: &Log| {
            let of_resource = &log.resources[&resource];
            let rings = [&log.everything, &of_resource.all].map(|ring| ring.changes.capacity());
            rings.into_iter().chain([of_resource.clusters.capacity()]).max()
        };
        log.shrink(Revision(0));
        assert!(room_of(&log) >= Some(COUNT), "all of it is needed");
        let floor = Revision(COUNT as u64 - 1);
        for change in &changes[..COUNT - 1] {
            log.forget(change, floor);
            while log.pop(change.revision).is_some() {}
        }
        log.shrink(floor);
        assert!(room_of(&log) <= Some(2 * capacity_max(1)), "one change is left");
    }
}
