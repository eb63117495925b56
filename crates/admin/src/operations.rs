//! Operations: work that outlives the call that starts it.
//!
//! A call stores a [`Record`] ([`AdminService::start`]) and answers it. The server that stored it
//! runs the [`Job`] of its kind as a task of its own and writes progress and outcome into the
//! record. Another server on the same store takes an operation over once its record has not changed
//! for [`LEASE_SECONDS`]; on a store of its own a server does so when it starts. An operation that
//! cannot be resumed then ends with the reason `Interrupted`.

mod record;
mod runner;

pub(crate) use record::key;
pub use record::{Outcome, Progress, Record, User};

use crate::{
    session::{AdminService, Located, Session},
    status,
};
use futures_util::future::BoxFuture;
use insula_api::{ClusterName, Json, Object, Uid};
use insula_auth::UserInfo;
use insula_catalog::ids;
use insula_proto::admin::v1 as pb;
use insula_registry::Deps;
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;
use tonic::{Code, Status};

/// Seconds without a change after which other servers take an operation over.
pub const LEASE_SECONDS: u64 = 15;
/// Operations that are not done: of the installation, of one user and of one workspace.
const UNFINISHED_MAX: usize = 256;
const UNFINISHED_OF_USER_MAX: usize = 8;
const UNFINISHED_OF_WORKSPACE_MAX: usize = 8;
/// Records of the installation. A new one replaces the oldest that is done.
const RECORDS_MAX: usize = 4_000;
/// Bytes of the input of an operation, and of its result.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// Attempts to mark the beginning of an effect while the store is not available, and their pause.
const EFFECT_ATTEMPTS_MAX: usize = 30;
const EFFECT_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
/// Bytes of a message for people.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The work of one kind of operation.
pub trait Job: Send + Sync {
    /// The kind: the name of the RPC that starts it.
    fn kind(&self) -> &'static str;

    /// Returns true if [`Job::run`] may be called again for an operation whose server ended. The
    /// work must then continue from the state in the store, or begin anew without harm.
    fn resumes(&self, _input: &Json) -> bool {
        false
    }

    /// Returns the seconds after which an operation that this server cannot continue ends: another
    /// server may be able to.
    fn patience_seconds(&self) -> i64 {
        0
    }

    /// Does the work, and returns the result of the operation. It runs in a task that all
    /// operations of a server share: work that computes for long belongs on a
    /// [`crate::WorkerPool`].
    fn run(&self, running: Running) -> BoxFuture<'static, Result<Json, Failure>>;
}

/// The reason for which an operation failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The code that the RPC would have answered.
    pub code: Code,
    /// The reason for programs; `Failed` unless it is one of the closed list in the proto file.
    pub reason: &'static str,
    /// The cause and the remedy.
    pub message: String,
}

impl Failure {
    /// Returns the failure of work.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure {
            code,
            reason: "Failed",
            message: message.into(),
        }
    }

    /// Returns the end of an operation that a caller cancelled.
    pub fn cancelled() -> Self {
        Failure {
            code: Code::Cancelled,
            reason: "Cancelled",
            message: "the operation was cancelled".to_owned(),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Failure::new(status.code(), status.message())
    }
}

/// An operation that runs on this server.
#[derive(Clone)]
pub struct Running {
    /// The name of the operation.
    pub name: Arc<str>,
    /// The record when the run began: input, user, workspace, attempt.
    pub record: Arc<Record>,
    control: Arc<Control>,
    operations: Arc<Operations>,
}

impl Running {
    /// Notes progress. It is stored within a second or two.
    pub fn progress(&self, done: u64, total: u64, text: &str) {
        *self.control.progress() = Progress {
            done,
            total,
            text: text.to_owned(),
        };
    }

    /// Returns true once a caller has asked the operation to end.
    pub fn is_cancelled(&self) -> bool {
        *self.control.cancel.borrow()
    }

    /// Returns the failure of the operation's work: its cancellation, if it was cancelled.
    pub fn failed(&self, failure: Failure) -> Failure {
        match self.is_cancelled() {
            true => Failure::cancelled(),
            false => failure,
        }
    }

    /// Marks the point from which the operation cannot be cancelled, before its first lasting
    /// effect. An operation that ends as cancelled has had none, also when its server is killed.
    ///
    /// # Errors
    /// The operation is cancelled, or another server has taken it over.
    pub async fn begin_effect(&self) -> Result<(), Failure> {
        self.operations.begin_effect(&self.name).await
    }

    /// Waits until a caller asks the operation to end.
    pub async fn cancelled(&self) {
        // The sender lives as long as `self`, so that this cannot fail.
        let _ = self.control.cancel.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}

/// Shared state of a running operation.
struct Control {
    progress: Mutex<Progress>,
    cancel: watch::Sender<bool>,
}

impl Control {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operations of an installation, as one server sees them.
pub struct Operations {
    registry: Arc<Deps>,
    jobs: BTreeMap<&'static str, Arc<dyn Job>>,
    /// The name of this run of the server.
    holder: String,
    /// True if no other server can use the store.
    is_alone: bool,
}

/// An operation to start.
pub struct Start<'a> {
    /// The kind of its [`Job`].
    pub kind: &'static str,
    /// Its workspace; `None` for an operation of the installation.
    pub located: Option<&'a Located>,
    /// The input of the job.
    pub input: Json,
    /// True if a caller may cancel it.
    pub is_cancellable: bool,
    /// The `request_id` of the call, empty if there is none. The same id starts one operation only.
    pub request_id: &'a str,
}

impl Operations {
    /// Returns the operations over a registry. `is_alone` says that no other server can use the
    /// store.
    pub fn new(registry: Arc<Deps>, jobs: Vec<Arc<dyn Job>>, is_alone: bool) -> Self {
        Operations {
            holder: format!("{:016x}", registry.rng.next_u64()),
            jobs: jobs.into_iter().map(|job| (job.kind(), job)).collect(),
            registry,
            is_alone,
        }
    }

    /// Returns the name of this run of the server.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns the records at a state.
    pub fn list(snapshot: &Snapshot) -> Vec<Entry> {
        snapshot.range(&record::scope(), None, usize::MAX)
    }

    /// Replaces the record of an entry, if it has not changed since. Returns false if it has.
    async fn replace(&self, entry: &Entry, mut record: Record) -> Result<bool, CommitError> {
        record.updated = self.registry.clock.now().0;
        let object = record.write(&entry.key.name);
        let txn = Txn::one(
            Guard::At(entry.key.clone(), entry.revision),
            Write::Put(entry.key.clone(), Arc::new(object)),
        );
        match self.registry.store.commit(txn).await {
            Ok(_) => Ok(true),
            Err(CommitError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks an operation to end.
    ///
    /// # Errors
    /// The operation is gone, or cannot be cancelled.
    pub async fn cancel(&self, name: &str, validate_only: bool) -> Result<(), Status> {
        loop {
            let (entry, record) = self.current(name)?;
            if record.outcome.is_some() || record.cancel_requested {
                return Ok(());
            }
            if !record.is_cancellable {
                let text = format!(
                    "operation {name:?} ({}) cannot be cancelled any more: wait for its end",
                    record.kind
                );
                return Err(Status::failed_precondition(text));
            }
            if validate_only {
                return Ok(());
            }
            let changed = Record {
                cancel_requested: true,
                ..Record::clone(&record)
            };
            if self.replace(&entry, changed).await.map_err(unavailable)? {
                return Ok(());
            }
        }
    }

    /// Makes an operation one that cannot be cancelled. A call that cancels it meanwhile comes
    /// before or after: both change the record as they have seen it.
    async fn begin_effect(&self, name: &str) -> Result<(), Failure> {
        let mut attempts = 0;
        loop {
            let (entry, record) = self.current(name)?;
            if record.cancel_requested {
                return Err(Failure::cancelled());
            }
            if record.holder != self.holder {
                return Err(Failure::new(
                    Code::Aborted,
                    "another server has taken the operation over",
                ));
            }
            if !record.is_cancellable {
                return Ok(());
            }
            let changed = Record {
                is_cancellable: false,
                ..Record::clone(&record)
            };
            match self.replace(&entry, changed).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // The work so far is worth more than a moment.
                Err(CommitError::Unavailable(_) | CommitError::Unknown(_)) if attempts < EFFECT_ATTEMPTS_MAX => {
                    attempts += 1;
                    tokio::time::sleep(EFFECT_PAUSE).await;
                }
                Err(error) => return Err(unavailable(error).into()),
            }
        }
    }

    /// Deletes the record of an operation that is done.
    ///
    /// # Errors
    /// The operation is gone, or is not done.
    pub async fn delete(&self, name: &str, validate_only: bool) -> Result<(), Status> {
        let (entry, record) = self.current(name)?;
        if record.outcome.is_none() {
            let text = format!("operation {name:?} is not done: cancel it, or wait for its end");
            return Err(Status::failed_precondition(text));
        }
        if validate_only {
            return Ok(());
        }
        // The record of an operation that is done does not change.
        let txn = Txn {
            guards: Vec::new(),
            writes: vec![Write::Delete(entry.key)],
        };
        self.registry.store.commit(txn).await.map_err(unavailable)?;
        Ok(())
    }

    fn current(&self, name: &str) -> Result<(Entry, Arc<Record>), Status> {
        let found = self.registry.store.latest().get(&record::key(name));
        let read = found.and_then(|entry| Some((Record::read(&entry.object)?, entry)));
        let (record, entry) = read.ok_or_else(|| Status::not_found(format!("operation {name:?} not found")))?;
        Ok((entry, record))
    }

    /// Waits until an operation is done, for at most some microseconds. Returns `None` if it is
    /// gone.
    pub async fn wait(&self, name: &str, time: std::time::Duration) -> Option<(Entry, Arc<Record>)> {
        let done = async {
            loop {
                let snapshot = self.registry.store.latest();
                let after = snapshot.revision();
                match self.current(name) {
                    Ok((_, record)) if record.outcome.is_none() => {}
                    _ => return,
                }
                let Ok(mut cursor) = self.registry.store.watch(record::scope(), after) else {
                    continue;
                };
                drop(snapshot);
                // A watch that is cut off is replaced.
                let _ = cursor.next().await;
            }
        };
        // At the timeout the answer is the present state.
        let _ = tokio::time::timeout(time, done).await;
        self.current(name).ok()
    }
}

fn unavailable(error: CommitError) -> Status {
    match error {
        CommitError::Full(text) => Status::resource_exhausted(text),
        CommitError::TooLarge { .. } => Status::invalid_argument(error.to_string()),
        other => Status::unavailable(other.to_string()),
    }
}

impl AdminService {
    /// Stores an operation, which begins at once, and returns it. The caller has checked the
    /// rights that it takes.
    ///
    /// # Errors
    /// Too many operations are under way, `request_id` is of another request, or the store is not
    /// available.
    pub async fn start(&self, session: &Session, start: Start<'_>) -> Result<pb::Operation, Status> {
        if start.input.to_string().len() > INPUT_BYTES_MAX {
            let text = format!("the request is larger than {INPUT_BYTES_MAX} bytes");
            return Err(Status::invalid_argument(text));
        }
        let user = session.caller.acting_user();
        let name = self.name(user, &start)?;
        let record = self.record(user, &start);
        let snapshot = self.registry().store.latest().charged_to(session.caller.work());
        if let Some(known) = snapshot.get(&record::key(&name)) {
            return repeated(&name, &known, &record);
        }
        let mut writes = self.room(&snapshot, &record)?;
        session.check_walks()?;
        let key = record::key(&name);
        let object: Object = record.write(&name);
        writes.push(Write::Put(key.clone(), Arc::new(object)));
        let txn = Txn {
            guards: vec![Guard::Absent(key.clone())],
            writes,
        };
        match self.registry().store.commit(txn).await {
            Ok(_) => Ok(record.describe(&name)),
            Err(CommitError::Conflict { .. }) => {
                let known = self.registry().store.latest().get(&key);
                let known = known.ok_or_else(|| Status::aborted("the operation has just been deleted"))?;
                repeated(&name, &known, &record)
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    fn record(&self, user: &UserInfo, start: &Start<'_>) -> Record {
        let now = self.registry().clock.now().0;
        let text = |text: &dyn ToString| text.to_string();
        Record {
            kind: start.kind.to_owned(),
            workspace: start.located.map_or_else(String::new, |located| text(&located.path)),
            cluster: start.located.map_or_else(String::new, |located| text(&located.cluster)),
            user: record::User::from(user),
            input: start.input.clone(),
            is_cancellable: start.is_cancellable,
            cancel_requested: false,
            created: now,
            updated: now,
            holder: self.operations.holder.clone(),
            attempt: 1,
            progress: Progress::default(),
            outcome: None,
        }
    }

    fn name(&self, user: &UserInfo, start: &Start<'_>) -> Result<String, Status> {
        let id = match start.request_id {
            "" => format!("{:016x}", self.registry().rng.next_u64()),
            given if Uid::parse(given).is_some() => record::digest(&[&user.name, &user.uid, start.kind, given]),
            _ => return Err(status::invalid("request_id", "must be a UUID, or empty")),
        };
        Ok(format!("{}-{id}", start.kind.to_lowercase()))
    }

    /// Checks the limits of a new operation. Returns the deletion of the record that it replaces,
    /// if there are too many.
    fn room(&self, snapshot: &Snapshot, new: &Record) -> Result<Vec<Write>, Status> {
        let known = Operations::list(snapshot);
        let mut unfinished = [0; 3];
        let mut oldest: Option<(i64, &Entry)> = None;
        for entry in &known {
            let Some(record) = Record::read(&entry.object) else {
                continue;
            };
            if record.outcome.is_some() {
                if oldest.is_none_or(|(time, _)| record.updated < time) {
                    oldest = Some((record.updated, entry));
                }
                continue;
            }
            unfinished[0] += 1;
            unfinished[1] += usize::from(record.user == new.user);
            unfinished[2] += usize::from(!new.cluster.is_empty() && record.cluster == new.cluster);
        }
        let limits = [
            ("the installation", UNFINISHED_MAX),
            ("this user", UNFINISHED_OF_USER_MAX),
            ("this workspace", UNFINISHED_OF_WORKSPACE_MAX),
        ];
        for ((of, max), found) in limits.into_iter().zip(unfinished) {
            if found >= max {
                let text = format!("{max} operations of {of} are under way: wait for one, or cancel one");
                return Err(Status::resource_exhausted(text));
            }
        }
        let oldest = oldest.filter(|_| known.len() >= RECORDS_MAX);
        Ok(oldest
            .map(|(_, entry)| Write::Delete(entry.key.clone()))
            .into_iter()
            .collect())
    }
}

/// Answers a repeated request with the operation that the first one started.
fn repeated(name: &str, known: &Entry, wanted: &Record) -> Result<pb::Operation, Status> {
    let record = Record::read(&known.object);
    let same = record.filter(|record| record.input == wanted.input && record.cluster == wanted.cluster);
    let record = same.ok_or_else(|| {
        Status::invalid_argument("request_id: was used for another request; send a new UUID for each request")
    })?;
    Ok(record.describe(name))
}

impl Record {
    /// Returns the logical cluster of the operation; `None` for one of the installation.
    pub fn cluster_name(&self) -> Option<ClusterName> {
        ClusterName::parse(&self.cluster).ok()
    }
}

/// Returns the identity of operations in the store.
pub(crate) fn resource() -> insula_api::ResourceId {
    ids::operations()
}

#[cfg(test)]
mod tests;
