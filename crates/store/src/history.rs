//! The history by cluster: the changes that each cluster has in it, and whose go first when all of
//! them together exceed the cap.
//!
//! Above the cap, whoever has most gives first, down to a level that all have in common. By
//! example, with 12 at most: payers with 2, 3 and 20 keep 2, 3 and 7. So one cluster that replaces
//! many objects pushes out its own history, and the others keep theirs until it is compacted.
//! Clusters of one payer share what the payer keeps in the same way.

use crate::log::Change;
use insula_api::{ClusterName, Revision};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

/// Bytes of a change besides the object that it replaced: the key twice, links in the log.
const CHANGE_BYTES: usize = 256;

/// Part of the cap that is freed at once when it is exceeded, so that levels are computed once for
/// many commits.
const FREED_PART: usize = 8;

/// Part of the cap that the newest changes of all clusters may have whoever wrote them: readers
/// that follow the log closely lose nothing to a burst.
const RECENT_PART: usize = 16;

/// The changes that are kept, by cluster.
#[derive(Default)]
pub(crate) struct History {
    clusters: HashMap<ClusterName, ClusterHistory>,
    /// Clusters by their oldest change that can be requested.
    live: BTreeSet<(Revision, ClusterName)>,
    /// Clusters by their oldest change that is to be trimmed.
    due: BTreeSet<(Revision, ClusterName)>,
    len: usize,
    /// Cost of all changes in bytes.
    bytes: usize,
    /// Cost of the changes that are to be trimmed.
    due_bytes: usize,
}

#[derive(Default)]
struct ClusterHistory {
    /// Oldest first.
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    /// Number and cost of the oldest changes that are to be trimmed, as soon as no snapshot reads
    /// them.
    due: (usize, usize),
}

impl ClusterHistory {
    fn live_bytes(&self) -> usize {
        self.bytes - self.due.1
    }

    fn oldest(&self) -> Option<Revision> {
        self.changes.front().map(|change| change.revision)
    }

    fn oldest_live(&self) -> Option<Revision> {
        self.changes.get(self.due.0).map(|change| change.revision)
    }
}

impl History {
    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the cost of all changes in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, change: &Arc<Change>) {
        let cluster = &change.key.cluster;
        if !self.clusters.contains_key(cluster) {
            self.clusters.insert(cluster.clone(), ClusterHistory::default());
        }
        let history = self.clusters.get_mut(cluster).expect("inserted above");
        if history.oldest_live().is_none() {
            self.live.insert((change.revision, cluster.clone()));
        }
        history.bytes += cost(change);
        history.changes.push_back(change.clone());
        self.bytes += cost(change);
        self.len += 1;
    }

    /// Marks the changes up to a revision as to be trimmed.
    pub(crate) fn release_upto(&mut self, revision: Revision) {
        while let Some((oldest, cluster)) = self.live.first().cloned()
            && oldest <= revision
        {
            self.release(&cluster, |_, change| change.revision <= revision);
        }
    }

    /// Marks changes as to be trimmed until the others cost at most `bytes_max`, those of whom has
    /// most first. Changes after `recent` stay.
    pub(crate) fn cap(&mut self, bytes_max: usize, recent: Revision, payer: impl Fn(&ClusterName) -> Option<Arc<str>>) {
        if self.bytes - self.due_bytes <= bytes_max {
            return;
        }
        let kept_max = bytes_max - bytes_max / FREED_PART;
        let mut payers: HashMap<Arc<str>, Vec<(ClusterName, usize)>> = HashMap::new();
        for (cluster, history) in &self.clusters {
            // No user has the name of a cluster with this mark.
            let payer = payer(cluster).unwrap_or_else(|| format!("\0{cluster}").into());
            payers
                .entry(payer)
                .or_default()
                .push((cluster.clone(), history.live_bytes()));
        }
        let sum = |clusters: &[(ClusterName, usize)]| clusters.iter().map(|(_, bytes)| bytes).sum::<usize>();
        let payer_max = level(payers.values().map(|clusters| sum(clusters)), kept_max);
        for clusters in payers.into_values().filter(|clusters| sum(clusters) > payer_max) {
            let cluster_max = level(clusters.iter().map(|(_, bytes)| *bytes), payer_max);
            for (cluster, _) in clusters.iter().filter(|(_, bytes)| *bytes > cluster_max) {
                self.release(cluster, |live, change| live > cluster_max && change.revision <= recent);
            }
        }
    }

    /// Marks changes of a cluster while `while_` holds for the bytes that are left and the oldest
    /// change.
    fn release(&mut self, cluster: &ClusterName, while_: impl Fn(usize, &Change) -> bool) {
        let Some(history) = self.clusters.get_mut(cluster) else {
            return;
        };
        let (was_live, was_due) = (history.oldest_live(), history.due);
        while let Some(change) = history.changes.get(history.due.0)
            && while_(history.bytes - history.due.1, change)
        {
            history.due.0 += 1;
            history.due.1 += cost(change);
        }
        if history.due == was_due {
            return;
        }
        self.due_bytes += history.due.1 - was_due.1;
        let at_revision = |revision: Revision| (revision, cluster.clone());
        if was_due.0 == 0 {
            self.due.extend(history.oldest().map(at_revision));
        }
        if let Some(was) = was_live {
            self.live.remove(&at_revision(was));
        }
        self.live.extend(history.oldest_live().map(at_revision));
    }

    /// Removes up to `count` changes that are to be trimmed, none after `upto`. They are of one
    /// cluster, oldest first.
    pub(crate) fn trim(&mut self, upto: Revision, count: usize) -> Vec<Arc<Change>> {
        let Some((oldest, cluster)) = self.due.first().filter(|(oldest, _)| *oldest <= upto).cloned() else {
            return Vec::new();
        };
        let Some(history) = self.clusters.get_mut(&cluster) else {
            return Vec::new();
        };
        let mut trimmed = Vec::new();
        while history.due.0 > 0
            && trimmed.len() < count
            && let Some(change) = history.changes.pop_front_if(|change| change.revision <= upto)
        {
            let cost = cost(&change);
            history.bytes -= cost;
            history.due.0 -= 1;
            history.due.1 -= cost;
            self.bytes -= cost;
            self.due_bytes -= cost;
            trimmed.push(change);
        }
        self.len -= trimmed.len();
        self.due.remove(&(oldest, cluster.clone()));
        if history.due.0 > 0 {
            self.due
                .extend(history.oldest().map(|revision| (revision, cluster.clone())));
        }
        if history.changes.is_empty() {
            self.clusters.remove(&cluster);
        } else if history.changes.capacity() > 8 * history.changes.len().max(8) {
            history.changes.shrink_to(2 * history.changes.len());
        }
        trimmed
    }

    /// Returns the part of a cap that the newest changes may have.
    pub(crate) fn recent_bytes_max(bytes_max: usize) -> usize {
        bytes_max / RECENT_PART
    }
}

/// Returns the level to which shares are cut so that they sum up to `total` at most; the largest
/// number if they do.
fn level(shares: impl Iterator<Item = usize>, total: usize) -> usize {
    let mut shares: Vec<usize> = shares.collect();
    shares.sort_unstable();
    let (mut rest, mut left) = (total, shares.len());
    for share in shares {
        if share > rest / left {
            return rest / left;
        }
        rest -= share;
        left -= 1;
    }
    usize::MAX
}

/// Returns what a change costs while it is kept, in bytes.
pub(crate) fn cost(change: &Change) -> usize {
    CHANGE_BYTES + change.old.as_ref().map_or(0, |old| old.object.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_most_give_first() {
        let cut = |shares: &[usize], total| level(shares.iter().copied(), total);
        assert_eq!(cut(&[2, 3, 20], 12), 7);
        assert_eq!(cut(&[20, 20, 20], 12), 4);
        assert_eq!(cut(&[2, 3], 12), usize::MAX);
        assert_eq!(cut(&[], 12), usize::MAX);
        assert_eq!(cut(&[100], 12), 12);
    }
}
