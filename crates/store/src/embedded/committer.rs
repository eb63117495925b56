//! The committing thread. It takes all queued transactions, decides them, writes them with one
//! flush, applies them and answers.

use super::file::{ObjectFile, WriteError};
use crate::{
    CommitError, Mvcc, Txn,
    plan::{Decision, Overlay, decide},
};
use insula_api::Revision;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of transactions in one flush. Larger batches would raise the latency of the first
/// transaction more than the throughput.
const BATCH_MAX: usize = 1024;

type Answer = oneshot::Sender<Result<Revision, CommitError>>;

pub(super) enum Job {
    Commit { txn: Txn, answer: Answer },
    Compact { upto: Revision, noted: oneshot::Sender<()> },
    Close { closed: oneshot::Sender<()> },
}

/// Reason why the store takes no more commits, once there is one.
#[derive(Default)]
pub(super) struct Status(Mutex<Option<String>>);

impl Status {
    pub(super) fn check(&self) -> Result<(), String> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }

    pub(super) fn reason(&self) -> String {
        self.0.lock().clone().unwrap_or_else(|| "the store stopped".into())
    }

    fn stop(&self, reason: String) {
        self.0.lock().get_or_insert(reason);
    }
}

/// Sets the status when the thread ends, even by a panic.
struct StopOnDrop<'a>(&'a Status);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() {
            "the committing thread failed"
        } else {
            "the store is closed"
        };
        self.0.stop(reason.into());
    }
}

pub(super) fn run(mvcc: &Mvcc, status: &Status, mut file: ObjectFile, mut queue: mpsc::Receiver<Job>) {
    let stopping = StopOnDrop(status);
    let mut closed = None;
    let mut batch = Vec::new();
    while closed.is_none() && queue.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
        let mut txns = Vec::with_capacity(batch.len());
        for job in batch.drain(..) {
            match job {
                Job::Commit { txn, answer } if closed.is_none() => txns.push((txn, answer)),
                Job::Commit { answer, .. } => refuse(answer, "the store is closed"),
                Job::Compact { upto, noted } => {
                    file.compact_history(upto);
                    // The caller may have stopped waiting.
                    let _ = noted.send(());
                }
                Job::Close { closed: tell } => closed = Some(tell),
            }
        }
        while !txns.is_empty() {
            let rest = txns.split_off(fitting(&txns, file.reserve().batch_bytes()));
            let part = std::mem::replace(&mut txns, rest);
            match status.check() {
                Ok(()) => write(mvcc, status, &mut file, part),
                Err(reason) => part.into_iter().for_each(|(_, answer)| refuse(answer, &reason)),
            }
        }
    }
    drop(stopping);
    queue.close();
    while let Ok(job) = queue.try_recv() {
        match job {
            Job::Commit { answer, .. } => refuse(answer, "the store is closed"),
            Job::Compact { .. } | Job::Close { .. } => {}
        }
    }
    drop(file);
    if let Some(closed) = closed {
        // The caller of `close` may have stopped waiting.
        let _ = closed.send(());
    }
}

/// Returns the number of leading transactions that fit into the bytes of one flush; at least one.
fn fitting(txns: &[(Txn, Answer)], bytes_max: u64) -> usize {
    let mut bytes = 0;
    let fits = |(txn, _): &&(Txn, Answer)| {
        bytes += txn.bytes() as u64;
        bytes <= bytes_max
    };
    txns.iter().take_while(fits).count().max(1)
}

fn refuse(answer: Answer, reason: &str) {
    // The caller may have stopped waiting.
    let _ = answer.send(Err(CommitError::Unavailable(reason.to_owned())));
}

fn broken(error: &WriteError) -> String {
    format!("a write to disk failed, restart to go on from what it holds: {error}")
}

fn write(mvcc: &Mvcc, status: &Status, file: &mut ObjectFile, txns: Vec<(Txn, Answer)>) {
    file.leave_space();
    let mut last = mvcc.applied();
    let (mut overlay, mut commits, mut steps) = (Overlay::new(), Vec::new(), Vec::new());
    let mut answers = Vec::with_capacity(txns.len());
    for (txn, answer) in txns {
        let taken = file.reserve().check(&txn);
        let decided = taken.and_then(|()| decide(mvcc, &mut overlay, txn, Revision(last.0 + 1)));
        let result = match decided {
            Ok(Decision::Commit(commit, step)) => {
                last = commit.revision;
                commits.push(commit);
                steps.push(step);
                Ok(last)
            }
            Ok(Decision::Nothing) => Ok(last),
            Err(error) => Err(error),
        };
        answers.push((answer, result));
    }
    let written = if commits.is_empty() {
        Ok(())
    } else {
        file.write(&overlay, &steps, last)
    };
    match written {
        Ok(()) => {
            mvcc.apply(commits);
            for (answer, result) in answers {
                // The caller may have stopped waiting.
                let _ = answer.send(result);
            }
            if let Err(error) = file.settle().and_then(|()| file.reclaim()) {
                status.stop(broken(&error));
            }
        }
        Err(error) => {
            // Never retried: after a failed fsync the kernel may mark the same pages clean, and
            // lose them.
            let reason = broken(&error);
            status.stop(reason.clone());
            for (answer, _) in answers {
                // Conflicts, too: they may result from a write of this batch that is not on disk
                // after all.
                let _ = answer.send(Err(CommitError::Unknown(reason.clone())));
            }
        }
    }
}
