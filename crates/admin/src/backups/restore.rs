//! Restore of a workspace with all workspaces below it, or of the installation, into a running
//! server.
//!
//! ```text
//! read      the backup is read and compared; until here the operation can be cancelled
//! close     LogicalClusters and Workspaces of what differs are deleted: from here on nobody
//!           reaches these workspaces, and no home of them is created anew
//! write     objects are created, replaced and deleted until nothing differs, owners first. Those
//!           of `root`, which stays open, are written once
//! note      a record for each cluster to open, then one that says that all is written
//! open      LogicalClusters with their Workspaces, the deepest first, each with its record
//! touch     objects whose controllers rested meanwhile are written again unchanged: namespaces,
//!           definitions, Workspaces without a cluster, exports, and the bindings to them
//! ```
//! Controllers of namespaces, definitions and garbage work in closed workspaces as well, and delete
//! what they would delete in open ones: what differs after some rounds is theirs.
//!
//! An operation that stops before everything is noted begins anew: each step compares the store
//! with the backup. One that stops later opens what still has a record and writes nothing else,
//! because tenants have written meanwhile. Records of restores that are done are removed by the
//! next one: until the outcome of an operation is stored, it may be run again. Every run replaces a
//! record that guards all its transactions, so that a server which has lost the operation to
//! another one writes nothing more.

use super::{
    Links, RESTORE, Shared, Wanted, find, open, precondition,
    waiting::waiting,
    wanted::{Changes, Counts, Difference, Part},
};
use crate::operations::{Failure, Job, Operations, Record, Running};
use futures_util::future::BoxFuture;
use insula_api::{ClusterName, Json, ObjectKey, Revision, Scope};
use insula_catalog::{SerializationPoint, ids};
use insula_meter::ServerWork;
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
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
/// Seconds after which a restore ends whose backup is not on this server.
const PATIENCE_SECONDS: i64 = 3600;
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

    /// The backup is on the server that took it.
    fn patience_seconds(&self) -> i64 {
        PATIENCE_SECONDS
    }

    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let input = &running.record.input;
            let text = |field: &str| input[field].as_str().unwrap_or_default().to_owned();
            let (name, path, overwrite) = (text("name"), text("workspace"), input["overwrite"] == true);
            let snapshot = shared.registry.store.latest().for_server(ServerWork::Operation);
            precondition::is_alone(&snapshot, &running)?;
            running.progress(0, 0, "reading the backup");
            let host = Arc::clone(&shared.host);
            let wanted = shared.run(&running, move |running| {
                let wanted = Wanted::read(|| open(&*host, &name, running), &path, &snapshot);
                wanted.map_err(|failure| running.failed(failure))
            });
            let restoring = Restoring {
                wanted: Arc::new(wanted.await?),
                run: Revision(0),
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
    /// Revision of the record of this run; 0 before its first write.
    run: Revision,
}

impl Restoring {
    async fn run(mut self, overwrite: bool) -> Result<Json, Failure> {
        let (mut counts, mut touched) = (Counts::default(), None);
        if self.latest().get(&self.noted()).is_some() {
            self.begin_run().await?;
        } else {
            precondition::check(&self.latest(), &self.wanted.tree, overwrite)?;
            let changes = self.compare(|_| true).await?;
            counts = changes.counts;
            let workspaces = Arc::new(changes.workspaces());
            if let Some(wanted) = Arc::get_mut(&mut self.wanted) {
                wanted.keep(&workspaces);
            }
            self.running.begin_effect().await?;
            self.begin_run().await?;
            self.sweep().await?;
            touched = Some(self.write(counts.total(), &workspaces).await.map_err(unreachable)?);
        }
        let opened = self.open().await;
        // An operation that was interrupted does not know what it had written.
        let clusters = touched.unwrap_or_else(|| self.wanted.tree.clusters.keys().cloned().collect());
        self.touch(clusters).await?;
        opened?;
        self.running.progress(counts.total(), counts.total(), "done");
        Ok(json!({
            "created": counts.created, "updated": counts.updated, "deleted": counts.deleted,
            "unchanged": counts.unchanged, "contentSha256": self.wanted.hash.to_string(),
        }))
    }

    fn latest(&self) -> Snapshot {
        self.shared.registry.store.latest().for_server(ServerWork::Operation)
    }

    /// Returns the key of a record of this operation.
    fn key(&self, end: &str) -> ObjectKey {
        let own = label(&self.running.name, &self.running.record);
        ids::serialization_point(&ClusterName::root(), &format!("{RECORDS}{own}{end}"))
    }

    /// Returns the key of the record that says that all is written.
    fn noted(&self) -> ObjectKey {
        self.key("")
    }

    /// Returns the key of the record of a cluster to open.
    fn to_open(&self, cluster: &ClusterName) -> ObjectKey {
        self.key(&format!("/{cluster}"))
    }

    /// Returns the key of the record of the present run.
    fn present(&self) -> ObjectKey {
        self.key("/#run")
    }

    /// Replaces the record of the run before.
    async fn begin_run(&mut self) -> Result<(), Failure> {
        self.run = self.commit(Vec::new(), vec![record(self.present())]).await?;
        Ok(())
    }

    /// Compares some parts with the present state, on a thread of low priority.
    async fn compare(&self, is_wanted: impl Fn(&Part) -> bool + Send + 'static) -> Result<Changes, Failure> {
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
        self.close(workspaces).await?;
        let is_installation = self.wanted.tree.is_installation();
        let mut done = 0;
        if is_installation {
            // Routes lead to bundles.
            let changes = self.compare(|part| matches!(part, Part::Platform | Part::Bundles));
            let changes = changes.await?;
            self.write_all(changes, (&mut done, total)).await?;
            let made = self.shared.host.bootstrap().await;
            made.map_err(|cause| Failure::new(Code::Unavailable, cause))?;
        }
        for _ in 0..ROUNDS_MAX {
            let closed = Arc::clone(workspaces);
            let changes = self.compare(move |part| match part {
                Part::Bundles => true,
                Part::Platform => false,
                Part::Workspace(top) => closed.contains(top),
            });
            if self.write_all(changes.await?, (&mut done, total)).await? == 0 {
                break;
            }
        }
        let clusters = self.wanted.clusters(workspaces);
        self.release_homes(&clusters).await?;
        let records = clusters.iter().map(|cluster| record(self.to_open(cluster)));
        self.commit_all(records.collect()).await?;
        self.commit(Vec::new(), vec![record(self.noted())]).await?;
        let platform = is_installation.then(ClusterName::root);
        Ok(clusters.into_iter().cloned().chain(platform).collect())
    }

    /// Deletes what makes workspaces reachable, and keeps homes from being created anew.
    async fn close(&self, workspaces: &Arc<BTreeSet<ClusterName>>) -> Result<(), Failure> {
        let (wanted, snapshot, closed) = (Arc::clone(&self.wanted), self.latest(), Arc::clone(workspaces));
        let gates = self.shared.run(&self.running, move |_| {
            let now = Links::of_snapshot(&snapshot);
            Ok(wanted.open_gates(&snapshot, &now, &closed))
        });
        let homes = workspaces
            .iter()
            .filter(|top| !self.wanted.tree.owners.contains_key(*top));
        let homes = homes.map(|top| record(ids::closed_home(top)));
        let writes = homes.chain(gates.await?.into_iter().map(Write::Delete));
        self.commit_all(writes.collect()).await
    }

    /// Lets homes be created anew that the backup lacks.
    async fn release_homes(&self, to_open: &[&ClusterName]) -> Result<(), Failure> {
        if !self.wanted.tree.is_installation() {
            return Ok(());
        }
        let kept: HashSet<ObjectKey> = to_open.iter().map(|cluster| ids::closed_home(cluster)).collect();
        let mut released = self.records("closed/");
        released.retain(|key| !kept.contains(key));
        self.commit_all(released.into_iter().map(Write::Delete).collect()).await
    }

    /// Returns the keys of records whose names begin with a text.
    fn records(&self, beginning: &str) -> Vec<ObjectKey> {
        let scope = Scope::cluster(ids::serialization_points(), ClusterName::root());
        let mut found = Vec::new();
        self.latest().for_each(&scope, |entry| {
            if entry.key.name.starts_with(beginning) {
                found.push(entry.key.clone());
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Commits small writes that need no guards.
    async fn commit_all(&self, writes: Vec<Write>) -> Result<(), Failure> {
        for part in parts(writes, size) {
            self.commit(Vec::new(), part).await?;
        }
        Ok(())
    }

    /// Writes differences, but no gates. Returns their number.
    async fn write_all(&self, changes: Changes, (done, total): (&mut u64, u64)) -> Result<usize, Failure> {
        let differences = changes.writes(&self.wanted.tree);
        let number = differences.len();
        for part in parts(differences, |difference: &Difference| size(&difference.write)) {
            let mut closed = HashSet::new();
            let mut writes = Vec::new();
            for Difference { part, write } in part {
                if let Part::Workspace(top) = part {
                    closed.insert(top);
                }
                writes.push(write);
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
        let mut clusters = tree.deepest_first();
        clusters.retain(|(cluster, _)| snapshot.get(&self.to_open(cluster)).is_some());
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
        writes.push(Write::Delete(ids::closed_home(cluster)));
        match self.commit(guards, writes).await {
            // The answer to an earlier attempt was lost.
            Err(_) if self.latest().get(&to_open).is_none() => Ok(()),
            opened => opened.map(drop),
        }
    }

    /// Writes objects again as they are, so that their controllers follow what became of the
    /// others. Whoever changes one meanwhile does the same.
    async fn touch(&self, clusters: BTreeSet<ClusterName>) -> Result<(), Failure> {
        let snapshot = self.latest();
        let found = self
            .shared
            .run(&self.running, move |_| Ok(waiting(&snapshot, &clusters)));
        for part in parts(found.await?, |entry: &Entry| entry.object.size()) {
            let guard = |entry: &Entry| Guard::At(entry.key.clone(), entry.revision);
            let write = |entry: &Entry| Write::Put(entry.key.clone(), Arc::clone(&entry.object));
            let guards = part.iter().map(guard).collect();
            if self.commit(guards, part.iter().map(write).collect()).await.is_ok() {
                continue;
            }
            for entry in &part {
                if let Err(failure) = self.commit(vec![guard(entry)], vec![write(entry)]).await {
                    tracing::debug!(?failure, "an object was changed meanwhile");
                }
            }
        }
        Ok(())
    }

    /// Removes the records of restores that are done.
    async fn sweep(&self) -> Result<(), Failure> {
        let known = Operations::list(&self.latest()).into_iter();
        let unfinished = known.filter_map(|entry| {
            let record = Record::read(&entry.object)?;
            record.outcome.is_none().then(|| label(&entry.key.name, &record))
        });
        let unfinished: HashSet<String> = unfinished.collect();
        let mut old = self.records(RECORDS);
        old.retain(|key| {
            let operation = key.name.strip_prefix(RECORDS).and_then(|name| name.split('/').next());
            operation.is_none_or(|operation| !unfinished.contains(operation))
        });
        self.commit_all(old.into_iter().map(Write::Delete).collect()).await
    }

    /// Commits a transaction of this run, and waits for a store that is not available. Returns its
    /// revision.
    async fn commit(&self, mut guards: Vec<Guard>, writes: Vec<Write>) -> Result<Revision, Failure> {
        if self.run != Revision(0) {
            guards.push(Guard::At(self.present(), self.run));
        }
        let txn = Txn { guards, writes };
        loop {
            match self.shared.registry.store.commit(txn.clone()).await {
                Ok(revision) => return Ok(revision),
                Err(CommitError::Conflict { key, .. }) => {
                    let (resource, cluster, name) = (&key.resource.resource, &key.cluster, &key.name);
                    let text = format!("{resource} {name} of {cluster} was changed by others: try again");
                    return Err(Failure::new(Code::Aborted, text));
                }
                Err(error @ CommitError::TooLarge { .. }) => {
                    return Err(Failure::new(Code::Internal, error.to_string()));
                }
                Err(CommitError::Full(text)) => return Err(Failure::new(Code::ResourceExhausted, text)),
                Err(error) => self.running.progress(0, 0, &format!("waiting for the store: {error}")),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Returns the part of the names of records that stands for an operation. A repeated `request_id`
/// gives a later operation the name of one that is gone.
fn label(name: &str, record: &Record) -> String {
    format!("{name}@{}", record.created)
}

/// Divides what has sizes in bytes into transactions.
fn parts<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut parts, mut bytes) = (Vec::<Vec<T>>::new(), 0);
    for item in items {
        let size = size(&item);
        match parts.last_mut() {
            Some(part) if part.len() < WRITES_MAX && bytes + size <= BYTES_MAX => {
                bytes += size;
                part.push(item);
            }
            _ => {
                bytes = size;
                parts.push(vec![item]);
            }
        }
    }
    parts
}

/// Returns the write of a record.
fn record(key: ObjectKey) -> Write {
    SerializationPoint::put(key).expect("it has apiVersion, kind and metadata")
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
