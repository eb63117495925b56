//! A workspace with all workspaces below it, in the store or in a backup. The tree of `root` is the
//! installation: homes, which no Workspace stands for, belong to it.

use insula_api::{ClusterName, ClusterPath, ObjectKey, Scope};
use insula_catalog::{ResourceRoute, ids, locate::LogicalClusterView};
use insula_store::{Entry, Snapshot};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
};

/// Relations between clusters: workspaces, and the bundles that routes lead to.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The Workspaces of a cluster: name and logical cluster.
    children: BTreeMap<ClusterName, BTreeMap<Arc<str>, ClusterName>>,
    /// The Workspace of a cluster.
    owners: BTreeMap<ClusterName, ObjectKey>,
    /// The bundles that a cluster uses.
    bundles: BTreeMap<ClusterName, BTreeSet<Arc<str>>>,
    /// Clusters that have a LogicalCluster, with the paths there.
    clusters: BTreeMap<ClusterName, Option<ClusterPath>>,
}

/// A workspace with all workspaces below it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Its logical cluster.
    pub(crate) root: ClusterName,
    /// Its Workspace; `root` and homes have none.
    pub(crate) owner: Option<ObjectKey>,
    /// All logical clusters with their paths.
    pub(crate) clusters: BTreeMap<ClusterName, ClusterPath>,
    /// Keys of the bundles that they use.
    pub(crate) bundles: HashSet<ObjectKey>,
    /// The Workspace of each cluster.
    pub(crate) owners: BTreeMap<ClusterName, ObjectKey>,
    /// The cluster of each Workspace.
    children: HashMap<ObjectKey, ClusterName>,
}

impl Links {
    /// Notes what an object relates.
    pub(crate) fn note(&mut self, entry: &Entry) {
        let key = &entry.key;
        if key.resource == ids::workspaces() {
            let value = entry.object.body_value();
            let child = value["spec"]["cluster"]
                .as_str()
                .and_then(|name| ClusterName::parse(name).ok());
            if let Some(child) = child {
                let known = self.children.entry(key.cluster.clone()).or_default();
                known.insert(Arc::clone(&key.name), child.clone());
                self.owners.insert(child, key.clone());
            }
        } else if key.resource == ids::resource_routes()
            && let Some(bundle) = entry.object.parsed(ResourceRoute::read).bundle.clone()
        {
            self.bundles.entry(key.cluster.clone()).or_default().insert(bundle);
        } else if *key == ids::logical_cluster(&key.cluster) {
            let view = entry
                .object
                .parsed(|object| LogicalClusterView::read(&object.body_value()));
            self.clusters.insert(key.cluster.clone(), view.path.clone());
        }
    }

    /// Returns the relations at a state.
    pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Self {
        let mut links = Links::default();
        for resource in [ids::workspaces(), ids::resource_routes(), ids::logicalclusters()] {
            snapshot.for_each(&Scope::everywhere(resource), |entry| {
                links.note(entry);
                ControlFlow::Continue(())
            });
        }
        links
    }

    /// Returns the Workspace of a cluster.
    pub(crate) fn owner(&self, cluster: &ClusterName) -> Option<&ObjectKey> {
        self.owners.get(cluster)
    }

    /// Returns the cluster of a Workspace.
    pub(crate) fn child(&self, workspace: &ObjectKey) -> Option<&ClusterName> {
        self.children.get(&workspace.cluster)?.get(&workspace.name)
    }

    /// Returns the clusters that have a LogicalCluster.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.clusters.keys()
    }

    /// Finds the cluster of a path below a known one.
    pub(crate) fn find(&self, base: (&ClusterName, &str), path: &str) -> Option<ClusterName> {
        let rest = path.strip_prefix(base.1)?;
        let mut cluster = base.0.clone();
        if rest.is_empty() {
            return Some(cluster);
        }
        for name in rest.strip_prefix(':')?.split(':') {
            cluster = self.children.get(&cluster)?.get(name)?.clone();
        }
        Some(cluster)
    }

    /// Returns the tree below a cluster.
    pub(crate) fn tree(&self, root: &ClusterName, path: ClusterPath) -> Tree {
        let mut clusters = BTreeMap::new();
        let mut open = vec![(root.clone(), path)];
        if *root == ClusterName::root() {
            open.extend(self.homes());
        }
        while let Some((cluster, path)) = open.pop() {
            for (name, child) in self.children.get(&cluster).into_iter().flatten() {
                if !clusters.contains_key(child) && child != root {
                    open.push((child.clone(), path.join(name)));
                }
            }
            clusters.insert(cluster, path);
        }
        let used = clusters
            .keys()
            .filter_map(|cluster| self.bundles.get(cluster))
            .flatten();
        let owners = clusters.keys();
        let owners = owners.filter_map(|cluster| Some((cluster.clone(), self.owners.get(cluster)?.clone())));
        let owners: BTreeMap<ClusterName, ObjectKey> = owners.collect();
        let children = owners.iter().map(|(child, owner)| (owner.clone(), child.clone()));
        Tree {
            root: root.clone(),
            owner: self.owners.get(root).cloned(),
            bundles: used.map(|bundle| ids::bundle(bundle)).collect(),
            children: children.collect(),
            owners,
            clusters,
        }
    }

    /// Returns the workspaces beside `root` that no Workspace stands for.
    fn homes(&self) -> impl Iterator<Item = (ClusterName, ClusterPath)> {
        let homes = self.clusters.iter().filter(|(cluster, _)| {
            !self.owners.contains_key(*cluster) && **cluster != ClusterName::root() && !cluster.is_system()
        });
        homes.map(|(cluster, path)| {
            (
                cluster.clone(),
                path.clone().unwrap_or_else(|| ClusterPath::from(cluster)),
            )
        })
    }
}

/// Returns true for `root` and the clusters of the server itself, which nobody can close: requests,
/// operations and servers have their records there.
pub(crate) fn is_platform(cluster: &ClusterName) -> bool {
    *cluster == ClusterName::root() || cluster.is_system() && *cluster != ClusterName::bound_crds()
}

/// Returns true for objects that a restore writes. Records of the server are none: it writes them
/// at any time, and those of a backup are of the past.
pub(crate) fn is_content(key: &ObjectKey) -> bool {
    let resource = &key.resource;
    if *resource == ids::version_uses() {
        return false;
    }
    let records = || {
        [
            ids::operations(),
            ids::servers(),
            ids::installation_keys(),
            ids::serialization_points(),
            // It says where the server is reached now.
            ids::shards(),
        ]
    };
    !is_platform(&key.cluster) || !records().contains(resource)
}

impl Tree {
    /// Returns true for the tree of the installation.
    pub(crate) fn is_installation(&self) -> bool {
        self.root == ClusterName::root()
    }

    /// Returns the clusters with their paths, the deepest first.
    pub(crate) fn deepest_first(&self) -> Vec<(&ClusterName, &ClusterPath)> {
        let mut clusters: Vec<_> = self.clusters.iter().collect();
        clusters.sort_by_key(|(_, path)| std::cmp::Reverse(path.as_str().split(':').count()));
        clusters
    }

    /// Returns true for the objects of the tree.
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        let is_within = self.clusters.contains_key(&key.cluster) || self.is_installation() && is_platform(&key.cluster);
        match is_within {
            true => is_content(key),
            false => self.owner.as_ref() == Some(key) || self.bundles.contains(key),
        }
    }

    /// Returns the cluster of a Workspace.
    pub(crate) fn child(&self, workspace: &ObjectKey) -> Option<&ClusterName> {
        self.children.get(workspace)
    }

    /// Returns true for the objects that make a workspace of the tree reachable.
    pub(crate) fn is_gate(&self, key: &ObjectKey) -> bool {
        let is_logical = key.resource == ids::logicalclusters() && self.clusters.contains_key(&key.cluster);
        is_logical && !is_platform(&key.cluster) || self.children.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{Object, ResourceId, Revision};
    use serde_json::json;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::parse(name).expect("a name")
    }

    fn entry(resource: ResourceId, within: &str, name: &str, spec: serde_json::Value) -> Entry {
        let value = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": name}, "spec": spec});
        Entry {
            key: ObjectKey::cluster_scoped(resource, cluster(within), name),
            object: Arc::new(Object::new(&value, None).expect("an object")),
            revision: Revision(2),
            created: Revision(2),
        }
    }

    #[test]
    fn a_tree_has_its_workspaces_and_their_bundles_and_nothing_else() {
        let mut links = Links::default();
        for (within, name, child) in [("root", "a", "aa"), ("aa", "b", "bb"), ("root", "c", "cc")] {
            links.note(&entry(ids::workspaces(), within, name, json!({"cluster": child})));
        }
        links.note(&entry(ids::resource_routes(), "bb", "w.x", json!({"bundle": "one"})));
        links.note(&entry(ids::resource_routes(), "cc", "w.x", json!({"bundle": "two"})));
        let root = cluster("root");
        assert_eq!(links.find((&root, "root"), "root:a:b"), Some(cluster("bb")));
        assert_eq!(links.find((&root, "root"), "root:ab"), None);
        assert_eq!(links.find((&root, "root"), "root:a:x"), None);
        let tree = links.tree(&cluster("aa"), ClusterPath::parse("root:a").expect("a path"));
        let paths: Vec<&str> = tree.clusters.values().map(ClusterPath::as_str).collect();
        assert_eq!(paths, ["root:a", "root:a:b"]);
        assert_eq!(tree.bundles, HashSet::from([ids::bundle("one")]));
        let gate = tree.owner.clone().expect("a workspace");
        assert!(tree.is_gate(&gate) && tree.contains(&gate));
        assert!(!tree.contains(&ids::bundle("two")));
        assert!(tree.contains(&ObjectKey::cluster_scoped(ids::configmaps(), cluster("bb"), "m")));
        assert!(!tree.contains(&ObjectKey::cluster_scoped(ids::version_uses(), cluster("bb"), "m")));
    }
}
