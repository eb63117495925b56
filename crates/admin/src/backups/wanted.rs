//! The objects that a restore writes, and their differences from those in the store.

use super::{Links, Tree, counts, io_failure, read_failure, tree::is_platform};
use crate::operations::Failure;
use insula_api::{ClusterName, ClusterPath, Object, ObjectKey, Scope};
use insula_catalog::{
    earlier_names::{present_key, present_object},
    ids,
};
use insula_registry::grace;
use insula_store::{
    Entry, Snapshot, Write,
    backup::{self, BackupError, ContentHash, Hash},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{BufReader, Read},
    ops::ControlFlow,
    sync::Arc,
};
use tonic::Code;

/// Owners above an object that are written before it.
const DEPTH_MAX: usize = 16;
/// Workspaces above a cluster that are looked at: more than a path has.
const LEVELS_MAX: usize = 64;

/// The objects of a tree, from a backup.
pub(crate) struct Wanted {
    pub(crate) tree: Tree,
    /// The hash of the objects.
    pub(crate) hash: Hash,
    /// The objects, in the order of their encoded keys.
    objects: BTreeMap<Arc<[u8]>, (ObjectKey, Arc<Object>)>,
}

/// The part of a tree that an object belongs to. Each part is restored at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// A bundle, which workspaces share.
    Bundles,
    /// `root` and the clusters of the server itself.
    Platform,
    /// A workspace with those below it: the tree's own, or one directly below `root`.
    Workspace(ClusterName),
}

/// A write of a restore.
pub(crate) struct Difference {
    pub(crate) part: Part,
    pub(crate) write: Write,
}

/// Differences between the store and a backup.
#[derive(Default)]
pub(crate) struct Changes {
    differences: Vec<Difference>,
    pub(crate) counts: Counts,
}

/// Numbers of objects in which the store differs from a backup.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    /// Objects that do not exist.
    pub(crate) created: u64,
    /// Objects that differ.
    pub(crate) updated: u64,
    /// Objects that the backup lacks.
    pub(crate) deleted: u64,
    /// Objects that are the same.
    pub(crate) unchanged: u64,
}

impl Counts {
    /// Returns the number of writes.
    pub(crate) fn total(&self) -> u64 {
        self.created + self.updated + self.deleted
    }
}

impl Changes {
    /// Returns the workspaces in which something differs.
    pub(crate) fn workspaces(&self) -> BTreeSet<ClusterName> {
        let parts = self.differences.iter().filter_map(|difference| match &difference.part {
            Part::Workspace(cluster) => Some(cluster.clone()),
            Part::Bundles | Part::Platform => None,
        });
        parts.collect()
    }
}

/// Finds the part of an object at a state of the store.
struct Parts<'a> {
    tree: &'a Tree,
    now: &'a Links,
    known: RefCell<HashMap<ClusterName, Option<Part>>>,
}

impl Parts<'_> {
    /// Returns the part of an object; `None` for one outside of the tree.
    fn for_key(&self, key: &ObjectKey) -> Option<Part> {
        if key.cluster == ClusterName::bound_crds() {
            return self.tree.bundles.contains(key).then_some(Part::Bundles);
        }
        // A Workspace goes with its content.
        if key.resource == ids::workspaces()
            && let Some(cluster) = self.tree.child(key).or_else(|| self.now.child(key))
            && let Some(part) = self.for_cluster(cluster)
        {
            return Some(part);
        }
        self.for_cluster(&key.cluster)
    }

    fn for_cluster(&self, cluster: &ClusterName) -> Option<Part> {
        let mut known = self.known.borrow_mut();
        if let Some(part) = known.get(cluster) {
            return part.clone();
        }
        let part = self.climb(cluster);
        known.insert(cluster.clone(), part.clone());
        part
    }

    /// Climbs from a cluster to the one directly below `root`, or to that of the tree.
    fn climb(&self, cluster: &ClusterName) -> Option<Part> {
        let is_installation = self.tree.is_installation();
        if is_platform(cluster) {
            return is_installation.then_some(Part::Platform);
        }
        let mut top = cluster;
        for _ in 0..LEVELS_MAX {
            if *top == self.tree.root {
                return Some(Part::Workspace(top.clone()));
            }
            match self.tree.owners.get(top).or_else(|| self.now.owner(top)) {
                Some(owner) if !is_platform(&owner.cluster) => top = &owner.cluster,
                _ => return is_installation.then(|| Part::Workspace(top.clone())),
            }
        }
        None
    }
}

impl Wanted {
    /// Reads the tree of a path from a backup, twice: for its shape, and for its objects. Objects
    /// that are as at a state share its memory.
    pub(crate) fn read(
        open: impl Fn() -> std::io::Result<Box<dyn Read + Send>>,
        path: &str,
        snapshot: &Snapshot,
    ) -> Result<Wanted, Failure> {
        let visit = |visit: &mut dyn FnMut(Entry)| -> Result<backup::Summary, Failure> {
            let file = open().map_err(|error| io_failure(&error))?;
            let file = BufReader::with_capacity(1 << 20, file);
            let read = backup::read(file, |_, entry| {
                visit(entry);
                Ok::<_, BackupError>(())
            });
            read.map_err(read_failure)
        };
        let mut links = Links::default();
        let header = visit(&mut |entry| links.note(&present(entry)))?.header;
        super::precondition::of_this_installation(&header, snapshot)?;
        let root = ClusterName::root();
        let base = match ClusterName::parse(&header.cluster) {
            Ok(cluster) => (cluster, header.workspace.clone()),
            Err(_) => (root.clone(), root.to_string()),
        };
        let path = if path.is_empty() { base.1.as_str() } else { path };
        let cluster = links.find((&base.0, &base.1), path).ok_or_else(|| {
            let text = format!(
                "the backup has no workspace {path:?}; it has {} and workspaces below",
                base.1
            );
            Failure::new(Code::NotFound, text)
        })?;
        let path = ClusterPath::parse(path)
            .map_err(|error| Failure::new(Code::FailedPrecondition, format!("workspace: {error}")))?;
        let tree = links.tree(&cluster, path);
        let (mut objects, mut hash) = (BTreeMap::new(), ContentHash::default());
        visit(&mut |entry| {
            let key = present_key(&entry.key);
            if tree.contains(&key) {
                if counts(&key) {
                    // As it was written: the hash tells whether this is what was backed up.
                    hash.add(&entry.key, &entry.object);
                }
                let object = kept(present_object(&entry.key, entry.object));
                let now = snapshot.get(&key).filter(|now| is_same(&now.object, &object));
                objects.insert(key.encode(), (key, now.map_or(object, |now| now.object)));
            }
        })?;
        if !objects.contains_key(&*ids::logical_cluster(&cluster).encode()) {
            return Err(Failure::new(
                Code::DataLoss,
                "the backup has no LogicalCluster of the workspace",
            ));
        }
        let hash = hash.finish();
        Ok(Wanted { tree, hash, objects })
    }

    /// Returns an object of the backup.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(&*key.encode()).map(|(_, object)| object)
    }

    /// Forgets the objects of all workspaces but some.
    pub(crate) fn keep(&mut self, workspaces: &BTreeSet<ClusterName>) {
        let Wanted { tree, objects, .. } = self;
        let now = Links::default();
        let parts = parts(tree, &now);
        objects.retain(|_, (key, _)| match parts.for_key(key) {
            Some(Part::Workspace(cluster)) => workspaces.contains(&cluster),
            _ => true,
        });
    }

    /// Compares the parts that are wanted with a state. The writes are in the order in which they
    /// do no harm: objects of workspaces that the backup lacks go before their Workspaces, so that
    /// an interrupted restore finds them again; owners come before dependents.
    pub(crate) fn compare(&self, snapshot: &Snapshot, now: &Links, is_wanted: impl Fn(&Part) -> bool) -> Changes {
        let mut changes = Changes::default();
        let parts = parts(&self.tree, now);
        let wanted = |key: &ObjectKey| parts.for_key(key).filter(|part| is_wanted(part));
        let mut puts = Vec::new();
        for (key, object) in self.objects.values() {
            let Some(part) = wanted(key) else {
                continue;
            };
            match snapshot.get(key) {
                None => changes.counts.created += 1,
                // A bundle is shared, and may be newer.
                Some(now) if part == Part::Bundles || is_same(&now.object, object) => {
                    changes.counts.unchanged += 1;
                    continue;
                }
                Some(_) => changes.counts.updated += 1,
            }
            puts.push((part, key, object));
        }
        let is_extra = |key: &ObjectKey| {
            key.cluster != ClusterName::bound_crds()
                && super::tree::is_content(key)
                && !self.objects.contains_key(&*key.encode())
                && wanted(key).is_some()
        };
        let mut extra = Vec::new();
        snapshot.for_each_wanted(&Scope::everything(), is_extra, |entry| {
            extra.push(entry.key.clone());
            ControlFlow::Continue(())
        });
        changes.counts.deleted = extra.len() as u64;
        // The deepest Workspaces first: those above lead to them.
        let levels = |key: &ObjectKey| {
            let above = std::iter::successors(Some(&key.cluster), |at| now.owner(at).map(|owner| &owner.cluster));
            above.take(LEVELS_MAX).count()
        };
        extra.sort_by_cached_key(|key| {
            let workspace = (key.resource == ids::workspaces()).then(|| std::cmp::Reverse(levels(key)));
            workspace.map_or((false, None), |depth| (true, Some(depth)))
        });
        order(&mut puts);
        let deletes = extra
            .into_iter()
            .filter_map(|key| Some((wanted(&key)?, Write::Delete(key))));
        let puts = puts.into_iter();
        let puts = puts.map(|(part, key, object)| (part, Write::Put(key.clone(), Arc::clone(object))));
        let writes = deletes.chain(puts);
        changes.differences = writes.map(|(part, write)| Difference { part, write }).collect();
        changes
    }

    /// Returns what makes some workspaces reachable at a state, and all below them: the objects of
    /// those at the top first.
    pub(crate) fn open_gates(
        &self,
        snapshot: &Snapshot,
        now: &Links,
        workspaces: &BTreeSet<ClusterName>,
    ) -> Vec<ObjectKey> {
        let parts = parts(&self.tree, now);
        let tops = workspaces
            .iter()
            .flat_map(|top| now.owner(top).cloned().into_iter().chain([ids::logical_cluster(top)]));
        let below = now.clusters().filter(|cluster| {
            let top = parts.for_cluster(cluster);
            matches!(top, Some(Part::Workspace(top)) if top != **cluster && workspaces.contains(&top))
        });
        let gates = tops.chain(below.map(ids::logical_cluster));
        gates.filter(|gate| snapshot.get(gate).is_some()).collect()
    }

    /// Returns the clusters of some workspaces and of those below, in the backup: the deepest
    /// first.
    pub(crate) fn clusters<'a>(&'a self, workspaces: &BTreeSet<ClusterName>) -> Vec<&'a ClusterName> {
        let now = Links::default();
        let parts = parts(&self.tree, &now);
        let is_within = |cluster: &ClusterName| match parts.for_cluster(cluster) {
            Some(Part::Workspace(top)) => workspaces.contains(&top),
            _ => false,
        };
        let clusters = self.tree.deepest_first().into_iter().map(|(cluster, _)| cluster);
        clusters.filter(|cluster| is_within(cluster)).collect()
    }

    /// Returns the clusters at a state that the restore deletes: those of the tree that the backup
    /// lacks.
    pub(crate) fn superfluous<'a>(&'a self, now: &'a Links) -> Vec<&'a ClusterName> {
        let parts = parts(&self.tree, now);
        let is_superfluous = |cluster: &&ClusterName| {
            let is_known = self.tree.clusters.contains_key(*cluster);
            !is_known && matches!(parts.for_cluster(cluster), Some(Part::Workspace(_)))
        };
        now.clusters().filter(is_superfluous).collect()
    }
}

impl Changes {
    /// Returns the writes of everything but gates.
    pub(crate) fn writes(self, tree: &Tree) -> Vec<Difference> {
        let mut differences = self.differences;
        differences.retain(|difference| match &difference.write {
            Write::Put(key, _) => !tree.is_gate(key),
            Write::Delete(_) => true,
        });
        differences
    }
}

/// Returns an object of a backup under its present names.
fn present(entry: Entry) -> Entry {
    Entry {
        key: present_key(&entry.key),
        object: present_object(&entry.key, entry.object),
        ..entry
    }
}

fn parts<'a>(tree: &'a Tree, now: &'a Links) -> Parts<'a> {
    Parts {
        tree,
        now,
        known: RefCell::default(),
    }
}

/// Takes the deletion of a workspace or an APIBinding back that was in its grace period: the end of
/// that may be past, and the object would go as soon as it is there.
fn kept(object: Arc<Object>) -> Arc<Object> {
    if !object.meta.awaits_deletion() {
        return object;
    }
    let mut value = object.body_value();
    grace::take_back(&mut value);
    match Object::new(&value, object.residual().map(Into::into)) {
        Ok(kept) => Arc::new(kept.written_under(object.schema())),
        Err(_) => object,
    }
}

fn is_same(one: &Arc<Object>, other: &Arc<Object>) -> bool {
    Arc::ptr_eq(one, other) || one.to_stored() == other.to_stored()
}

/// Orders writes: bundles, routes to them, namespaces, service accounts, objects without owners,
/// then dependents after their owners. A bundle without a route, a token without its account and a
/// dependent without its owner would be collected.
fn order(puts: &mut [(Part, &ObjectKey, &Arc<Object>)]) {
    let depths = depths(puts);
    puts.sort_by_cached_key(|(part, key, object)| {
        let kind = match () {
            () if *part == Part::Bundles => 0,
            () if key.resource == ids::resource_routes() => 1,
            () if key.resource == ids::namespaces() => 2,
            () if key.resource == ids::serviceaccounts() => 3,
            () => 4,
        };
        (kind, depths.get(&object.meta.uid.to_string()).copied())
    });
}

/// Returns the number of owners above each object, by UID. Owners may own each other.
fn depths(puts: &[(Part, &ObjectKey, &Arc<Object>)]) -> HashMap<String, usize> {
    let uids = puts.iter().map(|(_, _, object)| (object.meta.uid.to_string(), 0));
    let mut depths: HashMap<String, usize> = uids.collect();
    let owned = puts
        .iter()
        .filter(|(_, _, object)| !object.meta.owner_references.is_empty());
    let owned: Vec<_> = owned
        .map(|(_, _, object)| (object.meta.uid.to_string(), *object))
        .collect();
    for _ in 0..DEPTH_MAX {
        let mut is_done = true;
        for (uid, object) in &owned {
            let owners = object.meta.owner_references.iter();
            let above = owners.filter_map(|owner| depths.get(&owner.uid)).max();
            let depth = above.map_or(0, |above| above + 1).min(DEPTH_MAX);
            if let Some(known) = depths.get_mut(uid).filter(|known| **known < depth) {
                (*known, is_done) = (depth, false);
            }
        }
        if is_done {
            break;
        }
    }
    depths
}
