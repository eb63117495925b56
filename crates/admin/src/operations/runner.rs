//! The task that runs the operations of a server, takes over those of servers that are gone, and
//! removes old records.

use super::{Control, Failure, LEASE_SECONDS, Operations, Outcome, Progress, Record, Running, record};
use futures_util::{
    FutureExt as _,
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt as _},
};
use insula_api::Revision;
use insula_meter::ServerWork;
use insula_store::{Cursor, Entry, Gone, Snapshot, Txn, Write};
use std::{
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::sleep};
use tonic::Code;

/// Pause between two looks at the operations, and between two writes of progress.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest pause between two writes of an operation on a store that several servers share.
const BEAT_MICROS: i64 = 5_000_000;
/// Time in which a cancelled job may end by itself.
const CANCEL_TIME: Duration = Duration::from_secs(10);
/// Maximum number of runs of one job: work that ends the server must not do so for ever.
const ATTEMPTS_MAX: u32 = 3;
/// Seconds for which the record of an operation is kept after its end.
const KEPT_SECONDS: i64 = 7 * 24 * 3600;
/// Periods between two removals of old records.
const SWEEP_PERIODS: u32 = 600;
/// Records removed in one transaction.
const SWEEP_MAX: usize = 100;

/// The last change of an operation that this server has seen.
struct Seen {
    revision: Revision,
    /// Monotonic time of the change.
    micros: i64,
}

/// State of the task.
struct Runner {
    operations: Arc<Operations>,
    /// Operations that are not done.
    unfinished: BTreeMap<Arc<str>, Seen>,
    /// Operations that run here.
    running: HashMap<Arc<str>, Arc<Control>>,
    work: FuturesUnordered<BoxFuture<'static, Arc<str>>>,
}

impl Operations {
    /// Runs the operations of this server for ever.
    pub async fn run(self: Arc<Self>) {
        let mut runner = Runner {
            operations: self,
            unfinished: BTreeMap::new(),
            running: HashMap::new(),
            work: FuturesUnordered::new(),
        };
        loop {
            if let Err(gone) = runner.follow().await {
                tracing::debug!(%gone, "the watch of operations starts over");
            }
        }
    }

    /// Works on an operation until it is done, or another server has taken it over.
    async fn drive(self: Arc<Self>, running: Running) {
        let Some(job) = self.jobs.get(&*running.record.kind) else {
            let text = format!(
                "this version does not know operations of the kind {}",
                running.record.kind
            );
            return self
                .conclude(&running.name, Err(Failure::new(Code::Unimplemented, text)))
                .await;
        };
        let control = Arc::clone(&running.control);
        let name = Arc::clone(&running.name);
        let mut cancelled = Box::pin({
            let running = running.clone();
            async move {
                running.cancelled().await;
                sleep(CANCEL_TIME).await;
            }
        });
        let mut work = AssertUnwindSafe(job.run(running)).catch_unwind();
        let mut written = self.registry.clock.monotonic_micros();
        let ended = loop {
            tokio::select! {
                ended = &mut work => break ended.unwrap_or_else(|_| Err(panicked())),
                () = &mut cancelled => break Err(Failure::cancelled()),
                () = sleep(PERIOD) => {
                    if !self.beat(&name, &control, &mut written).await {
                        tracing::warn!(operation = %name, "another server has taken the operation over");
                        return;
                    }
                }
            }
        };
        let progress = control.progress().clone();
        self.conclude_with(&name, ended, Some(progress)).await;
    }

    /// Stores progress, and shows other servers that this one works. Returns false if the operation
    /// is no longer this server's.
    async fn beat(&self, name: &str, control: &Control, written: &mut i64) -> bool {
        let Ok((entry, record)) = self.current(name) else {
            return false;
        };
        if record.holder != self.holder {
            return false;
        }
        if record.cancel_requested {
            control.cancel.send_replace(true);
        }
        let progress = control.progress().clone();
        let now = self.registry.clock.monotonic_micros();
        let is_due = !self.is_alone && now - *written >= BEAT_MICROS;
        if progress != record.progress || is_due {
            let changed = Record {
                progress,
                ..Record::clone(&record)
            };
            // Whatever fails here is tried again after the next period.
            if matches!(self.replace(&entry, changed).await, Ok(true)) {
                *written = now;
            }
        }
        true
    }

    async fn conclude(&self, name: &str, ended: Result<insula_api::Json, Failure>) {
        self.conclude_with(name, ended, None).await;
    }

    /// Stores the outcome of an operation, for as long as it takes.
    async fn conclude_with(&self, name: &str, ended: Result<insula_api::Json, Failure>, progress: Option<Progress>) {
        let outcome = Outcome::from(ended);
        loop {
            let Ok((entry, record)) = self.current(name) else {
                return;
            };
            if record.holder != self.holder || record.outcome.is_some() {
                return;
            }
            let mut changed = Record {
                outcome: Some(outcome.clone()),
                ..Record::clone(&record)
            };
            if let Some(progress) = &progress {
                changed.progress = progress.clone();
            }
            match self.replace(&entry, changed).await {
                Ok(true) => {
                    return tracing::info!(operation = name, kind = record.kind, ?outcome, "an operation is done");
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(operation = name, %error, "the outcome of an operation is not stored yet");
                    sleep(PERIOD).await;
                }
            }
        }
    }

    /// Takes over an operation of a server that is gone.
    async fn take_over(&self, entry: &Entry, record: &Record) {
        let job = self.jobs.get(&*record.kind);
        let resumes = job.is_some_and(|job| job.resumes(&record.input)) && record.attempt < ATTEMPTS_MAX;
        let idle = self.registry.clock.now().0 - record.updated;
        let is_early = job.is_some_and(|job| idle < job.patience_seconds());
        if !resumes && !self.is_alone && !record.cancel_requested && is_early {
            return;
        }
        let mut changed = Record {
            holder: self.holder.clone(),
            attempt: record.attempt + 1,
            ..record.clone()
        };
        if record.cancel_requested {
            changed.outcome = Some(Outcome::from(Err(Failure::cancelled())));
        } else if !resumes {
            changed.outcome = Some(Outcome::from(Err(interrupted(record))));
        }
        match self.replace(entry, changed).await {
            Ok(true) => tracing::info!(operation = %entry.key.name, resumes, "took an operation over"),
            Ok(false) => {}
            Err(error) => tracing::warn!(operation = %entry.key.name, %error, "an operation is not taken over yet"),
        }
    }

    /// Removes records of operations that ended long ago.
    async fn sweep(&self) {
        let now = self.registry.clock.now().0;
        let is_old = |entry: &Entry| match Record::read(&entry.object) {
            Some(record) => record.outcome.is_some() && now - record.updated > KEPT_SECONDS,
            None => false,
        };
        let old = Operations::list(&self.registry.store.latest().for_server(ServerWork::Housekeeping));
        let writes = old.into_iter().filter(is_old).take(SWEEP_MAX);
        let writes: Vec<Write> = writes.map(|entry| Write::Delete(entry.key)).collect();
        if !writes.is_empty() {
            let guards = Vec::new();
            if let Err(error) = self.registry.store.commit(Txn { guards, writes }).await {
                tracing::debug!(%error, "old operations stay for now");
            }
        }
    }
}

fn panicked() -> Failure {
    Failure {
        code: Code::Internal,
        reason: "Panicked",
        message: "the operation failed by a defect of the server: see its log".to_owned(),
    }
}

fn interrupted(record: &Record) -> Failure {
    Failure {
        code: Code::Aborted,
        reason: "Interrupted",
        message: format!(
            "the server that ran {} ended before it was done: start it again",
            record.kind
        ),
    }
}

impl Runner {
    /// Follows the operations until the watch is cut off.
    async fn follow(&mut self) -> Result<(), Gone> {
        let mut cursor = self.begin()?;
        let mut periods = 0;
        loop {
            self.step().await;
            if periods % SWEEP_PERIODS == 0 {
                self.operations.sweep().await;
            }
            tokio::select! {
                changes = cursor.next() => {
                    changes?;
                    let snapshot = self.operations.registry.store.latest().for_server(ServerWork::Housekeeping);
                    self.note(&snapshot);
                }
                Some(name) = self.work.next(), if !self.work.is_empty() => {
                    self.running.remove(&name);
                }
                () = sleep(PERIOD) => periods += 1,
            }
        }
    }

    fn begin(&mut self) -> Result<Cursor, Gone> {
        let store = &self.operations.registry.store;
        let snapshot = store.latest().for_server(ServerWork::Housekeeping);
        let cursor = store.watch(record::scope(), snapshot.revision())?;
        self.note(&snapshot);
        Ok(cursor)
    }

    /// Notes the operations that are not done.
    fn note(&mut self, snapshot: &Snapshot) {
        let now = self.operations.registry.clock.monotonic_micros();
        let mut known = std::mem::take(&mut self.unfinished);
        for entry in Operations::list(snapshot) {
            if Record::read(&entry.object).is_none_or(|record| record.outcome.is_some()) {
                continue;
            }
            let name = Arc::clone(&entry.key.name);
            let seen = known.remove(&name).filter(|seen| seen.revision == entry.revision);
            let seen = seen.unwrap_or(Seen {
                revision: entry.revision,
                micros: now,
            });
            self.unfinished.insert(name, seen);
        }
    }

    /// Starts the operations of this server, and takes over those of servers that are gone.
    async fn step(&mut self) {
        let operations = Arc::clone(&self.operations);
        let now = operations.registry.clock.monotonic_micros();
        let lease = i64::try_from(LEASE_SECONDS * 1_000_000).unwrap_or(i64::MAX);
        for (name, seen) in &self.unfinished {
            let Ok((entry, record)) = operations.current(name) else {
                continue;
            };
            if record.outcome.is_some() {
                continue;
            }
            if record.holder != operations.holder {
                if operations.is_alone || now - seen.micros >= lease {
                    operations.take_over(&entry, &record).await;
                }
                continue;
            }
            match self.running.get(name) {
                Some(control) if record.cancel_requested => {
                    control.cancel.send_replace(true);
                }
                Some(_) => {}
                None => {
                    let control = Arc::new(Control {
                        progress: Mutex::new(record.progress.clone()),
                        cancel: watch::Sender::new(record.cancel_requested),
                    });
                    self.running.insert(Arc::clone(name), Arc::clone(&control));
                    let running = Running {
                        name: Arc::clone(name),
                        record,
                        control,
                        operations: Arc::clone(&operations),
                    };
                    let (operations, name) = (Arc::clone(&operations), Arc::clone(name));
                    self.work.push(Box::pin(async move {
                        operations.drive(running).await;
                        name
                    }));
                }
            }
        }
    }
}
