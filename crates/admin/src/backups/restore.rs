//! Restore of a workspace with all workspaces below it, or of the installation, into a running
//! server.
//!
//! ```text
//! read      the backup is read and compared; until here the operation can be cancelled
//! close     LogicalClusters and Workspaces of what differs are deleted: from here on nobody
//!           reaches these workspaces, and controllers leave their objects alone
//! write     objects are created, replaced and deleted until nothing differs, owners first. Those
//!           of `root`, which stays open, are written once
//! note      a record for each cluster to open, then one that says that all is written
//! open      LogicalClusters with their Workspaces, the deepest first, each with its record
//! touch     bindings and exports are written again unchanged: bindings follow their exports
//! ```
//! An operation that stops before everything is noted begins anew: each step compares the store
//! with the backup. One that stops later opens what still has a record and writes nothing else,
//! because tenants have written meanwhile. Records of restores that are done are removed by the
//! next one: until the outcome of an operation is stored, it may be run again.

use super::{Links, RESTORE, Shared, Wanted, find, open, precondition, wanted::Part};
use crate::operations::{Failure, Job, Operations, Record, Running};
use futures_util::future::BoxFuture;
use insula_api::{ClusterName, Json, Object, ObjectKey, Scope};
use insula_catalog::ids;
use insula_store::{CommitError, Guard, Snapshot, Txn, Write};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashSet},
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
/// Beginning of the names of records.
const RECORDS: &str = "restored/";

/// Job of `RestoreBackup`.
pub(super) struct Restore(pub(super) Shared);

impl Job for Restore {
    fn kind(&self) -> &'static str {
        RESTORE
    }

    fn resumes(&self, input: &Json) -> bool {
        let name = input["name"].as_str().unwrap_or_default();
        find(&*self.0.host, name).is_ok()
    }

    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let input = &running.record.input;
            let text = |field: &str| input[field].as_str().unwrap_or_default().to_owned();
            let (name, path, overwrite) = (text("name"), text("workspace"), input["overwrite"] == true);
            let snapshot = shared.registry.store.latest();
            precondition::is_alone(&snapshot, &running)?;
            running.progress(0, 0, "reading the backup");
            let host = Arc::clone(&shared.host);
            let wanted = shared.run(&running, move |running| {
                let wanted = Wanted::read(|| open(&*host, &name, running), &path, &snapshot);
                wanted.map_err(|failure| running.failed(failure))
            });
            let restoring = Restoring {
                wanted: Arc::new(wanted.await?),
                shared,
                running,
            };
            restoring.run(overwrite).await
        })
    }
}

/// A restore that runs.
struct Restoring {
    shared: Shared,
    wanted: Arc<Wanted>,
    running: Running,
}

/// Numbers of objects that a restore has written.
#[derive(Default)]
struct Counts {
    created: u64,
    updated: u64,
    deleted: u64,
    unchanged: u64,
}

impl Restoring {
    async fn run(mut self, overwrite: bool) -> Result<Json, Failure> {
        let (mut counts, mut touched) = (Counts::default(), None);
        if self.latest().get(&self.noted()).is_none() {
            precondition::check(&self.latest(), &self.wanted.tree, overwrite)?;
            let changes = self.compare(|_| true).await?;
            counts = Counts {
                created: changes.created,
                updated: changes.updated,
                deleted: changes.deleted,
                unchanged: changes.unchanged,
            };
            let workspaces = Arc::new(changes.workspaces());
            if let Some(wanted) = Arc::get_mut(&mut self.wanted) {
                wanted.keep(&workspaces);
            }
            self.running.begin_effect().await?;
            self.sweep().await?;
            touched = Some(self.write(changes.total(), &workspaces).await.map_err(unreachable)?);
        }
        self.open().await?;
        // An operation that was interrupted does not know what it had written.
        let clusters = touched.unwrap_or_else(|| self.wanted.tree.clusters.keys().cloned().collect());
        self.touch(&clusters).await;
        let all = counts.created + counts.updated + counts.deleted;
        self.running.progress(all, all, "done");
        Ok(json!({
            "created": counts.created, "updated": counts.updated, "deleted": counts.deleted,
            "unchanged": counts.unchanged, "contentSha256": self.wanted.hash.to_string(),
        }))
    }

    fn latest(&self) -> Snapshot {
        self.shared.registry.store.latest()
    }

    /// Returns the key of the record that says that all is written.
    fn noted(&self) -> ObjectKey {
        ids::serialization_point(&ClusterName::root(), &format!("{RECORDS}{}", self.running.name))
    }

    /// Returns the key of the record of a cluster to open.
    fn to_open(&self, cluster: &ClusterName) -> ObjectKey {
        let name = format!("{RECORDS}{}/{cluster}", self.running.name);
        ids::serialization_point(&ClusterName::root(), &name)
    }

    /// Compares some parts with the present state, on a thread of low priority.
    async fn compare(
        &self,
        is_wanted: impl Fn(&Part) -> bool + Send + 'static,
    ) -> Result<super::wanted::Changes, Failure> {
        let (wanted, snapshot) = (Arc::clone(&self.wanted), self.latest());
        let compared = self.shared.run(&self.running, move |_| {
            let now = Links::of_snapshot(&snapshot);
            Ok(wanted.compare(&snapshot, &now, is_wanted))
        });
        compared.await
    }

    /// Closes the workspaces in which something differs, writes all objects but the gates, and
    /// notes what is to be opened. Returns the clusters that were written.
    async fn write(
        &self,
        total: u64,
        workspaces: &Arc<BTreeSet<ClusterName>>,
    ) -> Result<BTreeSet<ClusterName>, Failure> {
        let snapshot = self.latest();
        let gates = self
            .wanted
            .open_gates(&snapshot, &Links::of_snapshot(&snapshot), workspaces);
        for part in gates.chunks(WRITES_MAX) {
            let writes = part.iter().cloned().map(Write::Delete).collect();
            self.commit(Vec::new(), writes).await?;
        }
        let is_installation = self.wanted.tree.is_installation();
        let mut done = 0;
        if is_installation {
            let changes = self.compare(|part| *part == Part::Platform).await?;
            self.write_all(changes, (&mut done, total)).await?;
            let made = self.shared.host.bootstrap().await;
            made.map_err(|cause| Failure::new(Code::Unavailable, cause))?;
        }
        for round in 0.. {
            let closed = Arc::clone(workspaces);
            let changes = self.compare(move |part| match part {
                Part::Bundles => true,
                Part::Platform => false,
                Part::Workspace(top) => closed.contains(top),
            });
            if self.write_all(changes.await?, (&mut done, total)).await? == 0 {
                break;
            }
            if round == ROUNDS_MAX {
                let text = "objects of the workspaces are changed by others all the time: try again";
                return Err(Failure::new(Code::Aborted, text));
            }
        }
        let clusters = self.wanted.clusters(workspaces);
        for part in clusters.chunks(WRITES_MAX) {
            let records = part.iter().map(|cluster| record(self.to_open(cluster)));
            self.commit(Vec::new(), records.collect()).await?;
        }
        self.commit(Vec::new(), vec![record(self.noted())]).await?;
        let platform = is_installation.then(ClusterName::root);
        Ok(clusters.into_iter().cloned().chain(platform).collect())
    }

    /// Writes differences, but no gates. Returns their number.
    async fn write_all(
        &self,
        changes: super::wanted::Changes,
        (done, total): (&mut u64, u64),
    ) -> Result<usize, Failure> {
        let differences = changes.writes(&self.wanted.tree);
        let number = differences.len();
        let mut differences = differences.into_iter().peekable();
        while differences.peek().is_some() {
            let (mut closed, mut writes, mut bytes) = (HashSet::new(), Vec::new(), 0);
            while let Some(next) = differences.peek()
                && (writes.is_empty() || writes.len() < WRITES_MAX && bytes + size(&next.write) <= BYTES_MAX)
            {
                bytes += size(&next.write);
                let Some(next) = differences.next() else { break };
                if let Part::Workspace(top) = next.part {
                    closed.insert(top);
                }
                writes.push(next.write);
            }
            *done += writes.len() as u64;
            self.running.progress((*done).min(total), total, "writing objects");
            let guards = closed.iter().map(|top| Guard::Absent(ids::logical_cluster(top)));
            self.commit(guards.collect(), writes).await?;
        }
        Ok(number)
    }

    /// Writes LogicalClusters with their Workspaces, the deepest first. A workspace that cannot be
    /// opened, because others have taken its name, does not keep the others closed.
    async fn open(&self) -> Result<(), Failure> {
        let snapshot = self.latest();
        let tree = &self.wanted.tree;
        let mut clusters: Vec<_> = tree.clusters.iter().collect();
        clusters.retain(|(cluster, _)| snapshot.get(&self.to_open(cluster)).is_some());
        clusters.sort_by_key(|(_, path)| std::cmp::Reverse(path.as_str().split(':').count()));
        let (total, mut failed) = (clusters.len() as u64, None);
        for (done, (cluster, path)) in clusters.iter().enumerate() {
            self.running.progress(done as u64, total, "opening workspaces");
            if let Err(failure) = self.open_cluster(cluster).await {
                let message = format!("workspace {path}: {}", failure.message);
                failed = Some(unreachable(Failure { message, ..failure }));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn open_cluster(&self, cluster: &ClusterName) -> Result<(), Failure> {
        let tree = &self.wanted.tree;
        let (logical, to_open) = (ids::logical_cluster(cluster), self.to_open(cluster));
        let mut guards = vec![Guard::Exists(to_open.clone()), Guard::Absent(logical.clone())];
        let owner = tree.owners.get(cluster);
        if let Some(owner) = owner
            && (*cluster == tree.root || owner.cluster == ClusterName::root())
        {
            guards.push(Guard::Exists(ids::logical_cluster(&owner.cluster)));
            guards.push(Guard::Absent(owner.clone()));
        }
        let keys = owner.cloned().into_iter().chain([logical]);
        let puts = keys.filter_map(|key| Some(Write::Put(key.clone(), Arc::clone(self.wanted.get(&key)?))));
        let mut writes: Vec<Write> = puts.collect();
        writes.push(Write::Delete(to_open.clone()));
        match self.commit(guards, writes).await {
            // The answer to an earlier attempt was lost.
            Err(_) if self.latest().get(&to_open).is_none() => Ok(()),
            opened => opened,
        }
    }

    /// Writes bindings and exports again as they are, so that they and what binds them follow what
    /// became of the others. Whoever changes one meanwhile does the same.
    async fn touch(&self, clusters: &BTreeSet<ClusterName>) {
        let (snapshot, store) = (self.latest(), &self.shared.registry.store);
        for cluster in clusters {
            let in_cluster = |resource| snapshot.range(&Scope::cluster(resource, cluster.clone()), None, usize::MAX);
            for entry in [ids::apibindings(), ids::apiexports()].into_iter().flat_map(in_cluster) {
                let guard = Guard::At(entry.key.clone(), entry.revision);
                let txn = Txn::one(guard, Write::Put(entry.key, entry.object));
                if let Err(error) = store.commit(txn).await {
                    tracing::debug!(%error, "a binding or export was changed meanwhile");
                }
            }
        }
    }

    /// Removes the records of restores that are done.
    async fn sweep(&self) -> Result<(), Failure> {
        let snapshot = self.latest();
        let scope = Scope::cluster(ids::serialization_points(), ClusterName::root());
        let unfinished = Operations::list(&snapshot).into_iter().filter_map(|entry| {
            let record = Record::read(&entry.object)?;
            record.outcome.is_none().then_some(entry.key.name)
        });
        let unfinished: HashSet<Arc<str>> = unfinished.collect();
        let mut old = Vec::new();
        snapshot.for_each(&scope, |entry| {
            let operation = entry.key.name.strip_prefix(RECORDS);
            let operation = operation.map(|name| name.split('/').next().unwrap_or_default());
            if operation.is_some_and(|name| !unfinished.contains(name)) {
                old.push(Write::Delete(entry.key.clone()));
            }
            ControlFlow::Continue(())
        });
        for part in old.chunks(WRITES_MAX) {
            self.commit(Vec::new(), part.to_vec()).await?;
        }
        Ok(())
    }

    /// Commits a transaction, and waits for a store that is not available.
    async fn commit(&self, guards: Vec<Guard>, writes: Vec<Write>) -> Result<(), Failure> {
        let txn = Txn { guards, writes };
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            match self.shared.registry.store.commit(txn.clone()).await {
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

/// Returns the write of a record.
fn record(key: ObjectKey) -> Write {
    let value = json!({"apiVersion": format!("{}/v1", ids::INTERNAL), "kind": "Register",
        "metadata": {"name": &*key.name}});
    let object = Object::new(&value, None).expect("it has apiVersion, kind and metadata");
    Write::Put(key, Arc::new(object))
}

fn size(write: &Write) -> usize {
    match write {
        Write::Put(_, object) => object.size(),
        Write::Delete(_) => 0,
    }
}

/// Says what a failure after the first effect leaves.
fn unreachable(failure: Failure) -> Failure {
    let text = "; nobody can reach workspaces that differ from the backup until a restore of them succeeds";
    Failure {
        message: failure.message + text,
        ..failure
    }
}
