//! Restore of a workspace with all workspaces below it into a running server.
//!
//! ```text
//! read     the backup is read; until here the operation can be cancelled
//! hide     one transaction deletes Workspace and LogicalCluster of the tree, if there are any:
//!          from here on nobody reaches it, and controllers leave its objects alone
//! write    objects are created, replaced and deleted until nothing differs, owners first
//! reveal   LogicalClusters with their Workspaces, the deepest first; the last transaction makes
//!          the tree reachable and marks the operation as revealed
//! touch    bindings and exports are written again unchanged: bindings follow their exports
//! ```
//! Each step compares the store with the backup, so that an operation that stops at any point
//! begins anew. After the mark nothing is written any more: tenants have written meanwhile.

use super::{Links, RESTORE, Shared, Tree, find, installation, io_failure, open, read_failure};
use crate::operations::{Failure, Job, Running};
use futures_util::future::BoxFuture;
use insula_api::{ClusterName, ClusterPath, Json, Object, ObjectKey, Revision, Scope};
use insula_catalog::ids;
use insula_registry::Deps;
use insula_store::{
    CommitError, Entry, Guard, Snapshot, Txn, Write,
    backup::{self, BackupError, ContentHash, Hash},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{BufReader, Read},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};
use tonic::Code;

/// Writes of one transaction, and their bytes.
const WRITES_MAX: usize = 100;
const BYTES_MAX: usize = 1 << 20;
/// Comparisons of the store with the backup before a restore gives up: others write all the time.
const ROUNDS_MAX: usize = 8;
/// Attempts of one transaction while the store is not available, a second apart.
const ATTEMPTS_MAX: usize = 30;
/// Owners above an object that are written before it.
const DEPTH_MAX: usize = 16;

/// Job of `RestoreBackup`.
pub(super) struct Restore(pub(super) Shared);

/// The objects of a tree, from a backup.
pub(crate) struct Wanted {
    pub(crate) tree: Tree,
    /// The objects, in the order of their encoded keys.
    objects: BTreeMap<Arc<[u8]>, (ObjectKey, Arc<Object>)>,
}

/// Differences between the store and a backup.
#[derive(Default)]
pub(crate) struct Changes {
    puts: Vec<(ObjectKey, Arc<Object>)>,
    deletes: Vec<ObjectKey>,
    /// Number of objects that do not exist.
    pub(crate) created: u64,
    /// Number of objects that differ.
    pub(crate) updated: u64,
    /// Number of objects that are the same.
    pub(crate) unchanged: u64,
}

impl Changes {
    /// Number of objects that the backup lacks.
    pub(crate) fn deleted(&self) -> u64 {
        self.deletes.len() as u64
    }
}

fn refused(text: impl Into<String>) -> Failure {
    Failure::new(Code::FailedPrecondition, text)
}

impl Wanted {
    /// Reads the tree of a path from a backup, twice: for its shape, and for its objects.
    pub(crate) fn read(
        open: impl Fn() -> std::io::Result<Box<dyn Read + Send>>,
        path: &str,
        here: &str,
    ) -> Result<Wanted, Failure> {
        let mut links = Links::default();
        let visit = |visit: &mut dyn FnMut(Entry)| -> Result<backup::Summary, Failure> {
            let file = open().map_err(|error| io_failure(&error))?;
            let file = BufReader::with_capacity(1 << 20, file);
            let read = backup::read(file, |_, entry| {
                visit(entry);
                Ok::<_, BackupError>(())
            });
            read.map_err(read_failure)
        };
        let header = visit(&mut |entry| links.note(&entry))?.header;
        if header.installation != here {
            let text = "the backup is of another installation: only the whole can be restored elsewhere, by \
                        `insula backup restore`";
            return Err(refused(text));
        }
        let root = ClusterName::root();
        let base = match ClusterName::parse(&header.cluster) {
            Ok(cluster) => (cluster, header.workspace.clone()),
            Err(_) => (root.clone(), root.to_string()),
        };
        let path = if path.is_empty() { base.1.as_str() } else { path };
        let cluster = links.find((&base.0, &base.1), path).filter(|cluster| *cluster != root);
        let cluster = cluster.ok_or_else(|| {
            let text = format!(
                "the backup has no workspace {path:?}; it has {} and workspaces below",
                base.1
            );
            Failure::new(Code::NotFound, text)
        })?;
        let path = ClusterPath::parse(path).map_err(|error| refused(format!("workspace: {error}")))?;
        let tree = links.tree(&cluster, path);
        let mut objects = BTreeMap::new();
        visit(&mut |entry| {
            if tree.contains(&entry.key) {
                objects.insert(entry.key.encode(), (entry.key, entry.object));
            }
        })?;
        if !objects.contains_key(&*ids::logical_cluster(&cluster).encode()) {
            return Err(Failure::new(
                Code::DataLoss,
                "the backup has no LogicalCluster of the workspace",
            ));
        }
        Ok(Wanted { tree, objects })
    }

    fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(&*key.encode()).map(|(_, object)| object)
    }

    /// Compares a state with the backup.
    pub(crate) fn compare(&self, snapshot: &Snapshot) -> Changes {
        let mut changes = Changes::default();
        for (key, object) in self.objects.values() {
            match snapshot.get(key) {
                None => changes.created += 1,
                // A bundle is shared, and may be newer.
                Some(_) if key.cluster == ClusterName::bound_crds() => {
                    changes.unchanged += 1;
                    continue;
                }
                Some(found) if found.object.to_stored() == object.to_stored() => {
                    changes.unchanged += 1;
                    continue;
                }
                Some(_) => changes.updated += 1,
            }
            changes.puts.push((key.clone(), Arc::clone(object)));
        }
        let clusters = self.clusters(snapshot);
        let is_extra = |key: &ObjectKey| {
            clusters.contains(&key.cluster)
                && key.resource != ids::version_uses()
                && !self.objects.contains_key(&*key.encode())
        };
        snapshot.for_each_wanted(&Scope::everything(), is_extra, |entry| {
            changes.deletes.push(entry.key.clone());
            ControlFlow::Continue(())
        });
        changes
    }

    /// Returns the clusters of the tree in the backup and at a state.
    fn clusters(&self, snapshot: &Snapshot) -> BTreeSet<ClusterName> {
        let path = self.tree.clusters[&self.tree.root].clone();
        let now = Links::of_snapshot(snapshot).tree(&self.tree.root, path);
        let clusters = self.tree.clusters.keys().cloned();
        clusters.chain(now.clusters.into_keys()).collect()
    }

    /// Returns the hash of the objects, which `Restoring::write` has compared with those in the
    /// store. Why not of a later state: controllers may write some as soon as they are reachable.
    fn hash(&self) -> Hash {
        let mut hash = ContentHash::default();
        for (key, object) in self.objects.values() {
            if key.cluster != ClusterName::bound_crds() {
                hash.add(key, object);
            }
        }
        hash.finish()
    }

    /// Orders writes: bundles, routes to them, namespaces, objects without owners, then dependents
    /// after their owners. A bundle without a route and a dependent without its owner would be
    /// collected.
    fn order(&self, puts: &mut [(ObjectKey, Arc<Object>)]) {
        let uids: HashMap<String, &Arc<Object>> = self
            .objects
            .values()
            .map(|(_, object)| (object.meta.uid.to_string(), object))
            .collect();
        let depth = |object: &Arc<Object>| {
            let (mut level, mut at) = (0, vec![object]);
            while level < DEPTH_MAX {
                let owners = at.iter().flat_map(|object| &object.meta.owner_references);
                at = owners.filter_map(|owner| uids.get(&owner.uid).copied()).collect();
                if at.is_empty() {
                    break;
                }
                level += 1;
            }
            level
        };
        puts.sort_by_cached_key(|(key, object)| {
            let kind = match () {
                () if key.cluster == ClusterName::bound_crds() => 0,
                () if key.resource == ids::resource_routes() => 1,
                () if key.resource == ids::namespaces() => 2,
                () => 3,
            };
            (kind, depth(object))
        });
    }
}

/// Checks that a tree can be restored at a state.
pub(crate) fn precondition(snapshot: &Snapshot, tree: &Tree, overwrite: bool) -> Result<(), Failure> {
    let path = tree.clusters[&tree.root].as_str();
    if let Some(owner) = &tree.owner {
        let parent = snapshot.get(&ids::logical_cluster(&owner.cluster));
        if parent.is_none_or(|parent| parent.object.meta.is_deleting()) {
            let text = format!("workspace {path}: its parent does not exist: restore the parent, which includes it");
            return Err(refused(text));
        }
        if let Some(known) = snapshot.get(owner)
            && known.object.body_value()["spec"]["cluster"] != tree.root.as_str()
        {
            let text = format!("workspace {path} has been created anew since the backup: delete it first");
            return Err(refused(text));
        }
    }
    if snapshot.get(&ids::logical_cluster(&tree.root)).is_some() && !overwrite {
        let text = format!("workspace {path} exists: set overwrite to replace it and all workspaces below it");
        return Err(refused(text));
    }
    Ok(())
}

impl Job for Restore {
    fn kind(&self) -> &'static str {
        RESTORE
    }

    /// Each step compares the store with the backup.
    fn resumes(&self, input: &Json) -> bool {
        let name = input["name"].as_str().unwrap_or_default();
        find(&*self.0.host, name).is_ok()
    }

    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let input = &running.record.input;
            let text = |field: &str| input[field].as_str().unwrap_or_default().to_owned();
            let (name, path) = (text("name"), text("workspace"));
            running.progress(0, 0, "reading the backup");
            let here = installation(&shared.registry.store.latest());
            let host = Arc::clone(&shared.host);
            let wanted = shared.run(&running, move |running| {
                let wanted = Wanted::read(|| open(&*host, &name, running), &path, &here);
                wanted.map_err(|failure| running.failed(failure))
            });
            let wanted = wanted.await?;
            let restoring = Restoring {
                mark: ids::serialization_point(&ClusterName::root(), &format!("revealed-{}", running.name)),
                overwrite: input["overwrite"] == true,
                registry: Arc::clone(&shared.registry),
                wanted,
                running,
            };
            restoring.run().await
        })
    }
}

/// A restore that runs.
struct Restoring {
    registry: Arc<Deps>,
    wanted: Wanted,
    overwrite: bool,
    running: Running,
    /// Exists from the moment at which the tree is reachable until the operation is done.
    mark: ObjectKey,
}

impl Restoring {
    async fn run(self) -> Result<Json, Failure> {
        let store = &self.registry.store;
        let mut counts = Changes::default();
        if store.latest().get(&self.mark).is_none() {
            let snapshot = store.latest();
            precondition(&snapshot, &self.wanted.tree, self.overwrite)?;
            counts = self.wanted.compare(&snapshot);
            self.running.begin_effect().await?;
            self.hide(&snapshot).await?;
            let total = counts.created + counts.updated + counts.deleted();
            let written = async {
                self.write(total).await?;
                self.reveal().await
            };
            if let Err(failure) = written.await {
                // The answer to the last transaction may have been lost.
                if store
                    .snapshot(Revision(0))
                    .await
                    .is_ok_and(|now| now.get(&self.mark).is_none())
                {
                    let text = "; nobody can reach the workspace until a restore of it succeeds";
                    return Err(Failure {
                        message: failure.message + text,
                        ..failure
                    });
                }
            }
        }
        let hash = self.wanted.hash();
        self.touch().await;
        let unmarked = vec![Write::Delete(self.mark.clone())];
        self.commit(Vec::new(), unmarked).await?;
        Ok(json!({
            "created": counts.created, "updated": counts.updated, "deleted": counts.deleted(),
            "unchanged": counts.unchanged, "contentSha256": hash.to_string(),
        }))
    }

    fn root(&self) -> ObjectKey {
        ids::logical_cluster(&self.wanted.tree.root)
    }

    /// Deletes what makes the tree reachable: its own gate first.
    async fn hide(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let path = self.wanted.tree.clusters[&self.wanted.tree.root].clone();
        let now = Links::of_snapshot(snapshot).tree(&self.wanted.tree.root, path);
        let root = &self.wanted.tree.root;
        let below = self.wanted.clusters(snapshot).into_iter().filter(|name| name != root);
        let clusters: Vec<ClusterName> = std::iter::once(root.clone()).chain(below).collect();
        for cluster in clusters {
            let logical = ids::logical_cluster(&cluster);
            let owners = [now.owners.get(&cluster), self.wanted.tree.owners.get(&cluster)];
            let keys = owners.into_iter().flatten().cloned().chain([logical]);
            let present: Vec<Entry> = keys.filter_map(|key| snapshot.get(&key)).collect();
            if present.is_empty() {
                continue;
            }
            let writes = present.into_iter().map(|entry| Write::Delete(entry.key)).collect();
            self.commit(Vec::new(), writes).await?;
        }
        Ok(())
    }

    /// Writes all objects but the gates, until nothing differs.
    async fn write(&self, total: u64) -> Result<(), Failure> {
        let mut done = 0;
        for _ in 0..ROUNDS_MAX {
            let Changes { mut puts, deletes, .. } = self.wanted.compare(&self.registry.store.latest());
            puts.retain(|(key, _)| !self.wanted.tree.is_gate(key));
            self.wanted.order(&mut puts);
            let puts = puts.into_iter().map(|(key, object)| Write::Put(key, object));
            let mut writes: Vec<Write> = deletes.into_iter().map(Write::Delete).collect();
            writes.extend(puts);
            if writes.is_empty() {
                return Ok(());
            }
            for part in parts(writes) {
                done += part.len() as u64;
                self.running.progress(done.min(total), total, "writing objects");
                self.commit(vec![Guard::Absent(self.root())], part).await?;
            }
        }
        let text = "objects of the workspace are changed by others all the time: try again";
        Err(Failure::new(Code::Aborted, text))
    }

    /// Writes LogicalClusters with their Workspaces, the deepest first and the tree's own last.
    async fn reveal(&self) -> Result<(), Failure> {
        let tree = &self.wanted.tree;
        let mut clusters: Vec<(&ClusterName, &ClusterPath)> = tree.clusters.iter().collect();
        clusters.sort_by_key(|(name, path)| (**name == tree.root, std::cmp::Reverse(path.as_str().len())));
        for (cluster, _) in clusters {
            let owner = tree.owners.get(cluster);
            let keys = owner.cloned().into_iter().chain([ids::logical_cluster(cluster)]);
            let put = |key: ObjectKey| Some(Write::Put(key.clone(), Arc::clone(self.wanted.get(&key)?)));
            let mut writes: Vec<Write> = keys.filter_map(put).collect();
            let mut guards = vec![Guard::Absent(self.root())];
            if *cluster == tree.root {
                if let Some(owner) = owner {
                    guards.push(Guard::Exists(ids::logical_cluster(&owner.cluster)));
                    guards.push(Guard::Absent(owner.clone()));
                }
                let mark = json!({"apiVersion": format!("{}/v1", ids::INTERNAL), "kind": "Register",
                    "metadata": {"name": &*self.mark.name}});
                let mark = Object::new(&mark, None).expect("it has apiVersion, kind and metadata");
                writes.push(Write::Put(self.mark.clone(), Arc::new(mark)));
            }
            self.commit(guards, writes).await?;
        }
        Ok(())
    }

    /// Writes bindings and exports again as they are, so that they and what binds them follow what
    /// became of the others. Whoever changes one meanwhile does the same.
    async fn touch(&self) {
        let snapshot = self.registry.store.latest();
        for cluster in self.wanted.tree.clusters.keys() {
            let in_cluster = |resource| snapshot.range(&Scope::cluster(resource, cluster.clone()), None, usize::MAX);
            for entry in [ids::apibindings(), ids::apiexports()].into_iter().flat_map(in_cluster) {
                let guard = Guard::At(entry.key.clone(), entry.revision);
                let txn = Txn::one(guard, Write::Put(entry.key, entry.object));
                if let Err(error) = self.registry.store.commit(txn).await {
                    tracing::debug!(%error, "a binding or export was changed meanwhile");
                }
            }
        }
    }

    /// Commits a transaction, and waits for a store that is not available.
    async fn commit(&self, guards: Vec<Guard>, writes: Vec<Write>) -> Result<(), Failure> {
        let txn = Txn { guards, writes };
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match self.registry.store.commit(txn.clone()).await {
                Ok(_) => return Ok(()),
                Err(CommitError::Conflict { key, .. }) => {
                    let text = format!("{} was changed by others during the restore: try again", key.name);
                    return Err(Failure::new(Code::Aborted, text));
                }
                Err(error @ CommitError::TooLarge { .. }) => {
                    return Err(Failure::new(Code::Internal, error.to_string()));
                }
                Err(CommitError::Full(text)) => return Err(Failure::new(Code::ResourceExhausted, text)),
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Err(Failure::new(Code::Unavailable, last))
    }
}

/// Divides writes into transactions.
fn parts(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut parts: Vec<Vec<Write>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        let size = match &write {
            Write::Put(_, object) => object.size(),
            Write::Delete(_) => 0,
        };
        match parts.last_mut() {
            Some(part) if part.len() < WRITES_MAX && bytes + size <= BYTES_MAX => {
                bytes += size;
                part.push(write);
            }
            _ => {
                bytes = size;
                parts.push(vec![write]);
            }
        }
    }
    parts
}
