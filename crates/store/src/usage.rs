//! Storage by cluster and by payer: the objects of each and their bytes, counted with every write;
//! and the number of objects of each resource.
//!
//! By example: ann pays for clusters a and b. put(a, 10) put(b, 5) put(c, 7) → a: 10, b: 5, c: 7,
//! ann: 15. delete(b) → ann: 10. c has no payer and counts for itself alone.

use insula_api::{ClusterName, Object, ObjectKey, ResourceId};
use std::{collections::BTreeMap, sync::Arc};

/// Bytes of an object in memory besides its text: its key, twice, and its entry in the index.
const OBJECT_BYTES: usize = 256;

/// Rule that names the payer of a cluster.
#[derive(Debug, Clone)]
pub struct Payers {
    /// The resource of which each cluster has one object.
    pub resource: ResourceId,
    /// Reads the payer from that object; `None` for a cluster that counts for itself.
    pub read: fn(&Object) -> Option<Arc<str>>,
}

/// How clusters share the memory of the store.
#[derive(Debug, Clone)]
pub struct Sharing {
    /// Names those that are counted together: what they store, and their history.
    pub payers: Payers,
    /// Bytes that the history of all clusters may have.
    pub history_bytes_max: usize,
}

/// Storage of a cluster or a payer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Number of objects.
    pub objects: usize,
    /// Bytes of these objects in memory, with their keys.
    pub bytes: usize,
}

/// Storage of a cluster, and of all clusters of its payer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterUsage {
    /// The cluster.
    pub cluster: Usage,
    /// Payer and storage of all clusters that it pays for; `None` for a cluster without a payer.
    pub payer: Option<(Arc<str>, Usage)>,
}

/// Storage of all clusters and payers. The maps are ordered, so that a reader can go on after a
/// key.
#[derive(Default)]
pub(crate) struct Usages {
    rule: Option<Payers>,
    pub(crate) all: Usage,
    pub(crate) clusters: BTreeMap<ClusterName, Paid>,
    pub(crate) payers: BTreeMap<Arc<str>, Usage>,
    /// Numbers of objects.
    pub(crate) resources: BTreeMap<ResourceId, usize>,
}

/// Storage of a cluster with its payer.
#[derive(Default)]
pub(crate) struct Paid {
    pub(crate) usage: Usage,
    payer: Option<Arc<str>>,
}

/// Returns the bytes of an object that count.
pub fn bytes(object: &Object) -> usize {
    OBJECT_BYTES + object.size()
}

impl Usage {
    fn of_object(object: Option<&Object>) -> Usage {
        object.map_or(Usage::default(), |object| Usage {
            objects: 1,
            bytes: bytes(object),
        })
    }

    fn replace(&mut self, old: Usage, new: Usage) {
        self.objects = (self.objects + new.objects).saturating_sub(old.objects);
        self.bytes = (self.bytes + new.bytes).saturating_sub(old.bytes);
    }
}

impl Usages {
    /// Takes on the rule of payers, and reads those of the objects that are there.
    pub(crate) fn follow<'a>(&mut self, rule: Payers, objects: impl Iterator<Item = (&'a ObjectKey, &'a Object)>) {
        for (key, object) in objects.filter(|(key, _)| key.resource == rule.resource) {
            self.set_payer(&key.cluster, (rule.read)(object));
        }
        self.rule = Some(rule);
    }

    /// Counts the replacement of an object by another one.
    pub(crate) fn replaced(&mut self, key: &ObjectKey, old: Option<&Object>, new: Option<&Object>) {
        self.count_resource(&key.resource, old.is_some(), new.is_some());
        let cluster = &key.cluster;
        if !self.clusters.contains_key(cluster) {
            self.clusters.insert(cluster.clone(), Paid::default());
        }
        let paid = self.clusters.get_mut(cluster).expect("inserted above");
        let (old, now) = (Usage::of_object(old), Usage::of_object(new));
        self.all.replace(old, now);
        paid.usage.replace(old, now);
        if let Some(usage) = paid.payer.as_ref().and_then(|payer| self.payers.get_mut(payer)) {
            usage.replace(old, now);
        }
        let empty = paid.usage == Usage::default();
        if let Some(rule) = self.rule.as_ref().filter(|rule| rule.resource == key.resource) {
            let payer = new.and_then(rule.read);
            self.set_payer(cluster, payer);
        }
        if empty {
            self.set_payer(cluster, None);
            self.clusters.remove(cluster);
        }
    }

    fn count_resource(&mut self, resource: &ResourceId, was_there: bool, is_there: bool) {
        match (was_there, is_there) {
            (false, true) => match self.resources.get_mut(resource) {
                Some(count) => *count += 1,
                None => drop(self.resources.insert(resource.clone(), 1)),
            },
            (true, false) => {
                if let Some(count) = self.resources.get_mut(resource) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.resources.remove(resource);
                    }
                }
            }
            (true, true) | (false, false) => {}
        }
    }

    fn set_payer(&mut self, cluster: &ClusterName, payer: Option<Arc<str>>) {
        let Some(paid) = self.clusters.get_mut(cluster) else {
            return;
        };
        if paid.payer == payer {
            return;
        }
        let before = std::mem::replace(&mut paid.payer, payer.clone());
        if let Some(before) = before
            && let Some(usage) = self.payers.get_mut(&before)
        {
            usage.replace(paid.usage, Usage::default());
            if *usage == Usage::default() {
                self.payers.remove(&before);
            }
        }
        if let Some(payer) = payer {
            self.payers
                .entry(payer)
                .or_default()
                .replace(Usage::default(), paid.usage);
        }
    }

    /// Returns the payer of a cluster.
    pub(crate) fn payer(&self, cluster: &ClusterName) -> Option<Arc<str>> {
        self.clusters.get(cluster)?.payer.clone()
    }

    /// Returns the storage of a payer.
    pub(crate) fn payer_usage(&self, payer: &str) -> Usage {
        self.payers.get(payer).copied().unwrap_or_default()
    }

    pub(crate) fn cluster_usage(&self, cluster: &ClusterName) -> ClusterUsage {
        let Some(paid) = self.clusters.get(cluster) else {
            return ClusterUsage::default();
        };
        let payer = paid.payer.clone();
        ClusterUsage {
            cluster: paid.usage,
            payer: payer.map(|payer| (payer.clone(), self.payer_usage(&payer))),
        }
    }
}
