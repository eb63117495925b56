//! The store as one server has it: a copy of all objects, which is fed late.

use crate::center::{Center, Request, commit_of};
use crate::plant::Plant;
use insula_api::{Object, ObjectKey, Revision, Scope};
use insula_store::{
    BoxFuture, Commit, CommitError, Cursor, Gone, Measures, Mvcc, Pinned, Sharing, SnapshotError, Store, Txn,
};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    task::{Poll, Waker},
};

/// Commits before the start of a server that are in its history.
const HISTORY_COMMITS: usize = 40;

/// Writes of a commit.
type Writes = Vec<(ObjectKey, Option<Arc<Object>>)>;

/// The copy of one server.
pub struct Mirror {
    center: Arc<Center>,
    mvcc: Arc<Mvcc>,
    /// Commits that it has applied.
    fed: Mutex<usize>,
    /// Writes that a planted fault holds back.
    torn: Mutex<Writes>,
    /// Those that wait for a revision, in the order of their arrival.
    waiting: Mutex<Vec<(Revision, Waker)>>,
}

impl Mirror {
    /// Loads all objects as they were some commits ago, and follows what came since, as a server
    /// does when it starts. Returns the number of commits that are not in its history as well.
    pub fn load(center: &Arc<Center>) -> (Arc<Mirror>, usize) {
        let now = center.commits();
        let begin = now.saturating_sub(HISTORY_COMMITS);
        let before = center.after(begin);
        let entries = before.range(&Scope::everything(), None, usize::MAX);
        let mirror = Mirror {
            center: center.clone(),
            mvcc: Mvcc::load(before.revision(), entries),
            fed: Mutex::new(begin),
            torn: Mutex::default(),
            waiting: Mutex::default(),
        };
        mirror.feed(now - begin);
        (Arc::new(mirror), begin)
    }

    /// Returns the oldest revision of its history.
    pub fn floor(&self) -> Revision {
        self.mvcc.floor()
    }

    /// Returns the number of commits that it lacks.
    pub fn behind(&self) -> usize {
        self.center.commits() - *self.fed.lock()
    }

    /// Applies the next commits, all at once.
    pub fn feed(&self, count: usize) {
        let mut fed = self.fed.lock();
        let upto = self.center.commits().min(*fed + count);
        let mut commits: Vec<_> = self
            .center
            .changes(*fed, upto)
            .iter()
            .filter_map(|c| commit_of(c))
            .collect();
        *fed = upto;
        self.spoil(&mut commits, upto);
        self.mvcc.apply(commits);
        self.wake();
    }

    /// Does to the next commits what a planted fault of copies does.
    fn spoil(&self, commits: &mut [Commit], upto: usize) {
        match self.center.plant() {
            Some(Plant::TearsCommits) => {
                let mut torn = self.torn.lock();
                if let Some(first) = commits.first_mut() {
                    first.writes.splice(0..0, std::mem::take(&mut *torn));
                }
                if let Some(last) = commits.last_mut().filter(|last| last.writes.len() > 1) {
                    *torn = last.writes.split_off(1);
                }
            }
            Some(Plant::SkipsDeletions) if upto.is_multiple_of(7) => {
                for commit in commits {
                    commit.writes.retain(|(_, object)| object.is_some());
                }
            }
            Some(Plant::SkipsCommits) if upto.is_multiple_of(37) => {
                if let Some(last) = commits.last_mut() {
                    last.writes.clear();
                }
            }
            Some(Plant::SwapsCommits) => {
                if let [first, second, ..] = commits {
                    std::mem::swap(&mut first.writes, &mut second.writes);
                }
            }
            _ => {}
        }
    }

    fn wake(&self) {
        let applied = self.mvcc.applied();
        let mut waiting = self.waiting.lock();
        let (over, left) = std::mem::take(&mut *waiting)
            .into_iter()
            .partition(|(at, _)| *at <= applied);
        *waiting = left;
        let over: Vec<(Revision, Waker)> = over;
        drop(waiting);
        over.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Waits until a revision is applied. [`Mvcc::reached`] does the same, and wakes in an order
    /// that no seed tells.
    async fn reached(&self, revision: Revision) {
        std::future::poll_fn(|context| {
            if self.mvcc.applied() >= revision {
                return Poll::Ready(());
            }
            self.waiting.lock().push((revision, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Reads all objects anew, as after a connection that was away for long.
    pub fn reload(&self) {
        let mut fed = self.fed.lock();
        let now = self.center.now();
        let mut entries = now.range(&Scope::everything(), None, usize::MAX);
        if self.center.plant() == Some(&Plant::ReloadsLess) {
            entries.pop();
        }
        *fed = self.center.commits();
        self.mvcc.reload(now.revision(), entries);
        self.wake();
    }

    /// Forgets history up to what is applied.
    pub fn forget(&self) {
        // What is applied can be compacted.
        let _ = self.mvcc.compact(self.mvcc.applied());
    }
}

impl Store for Mirror {
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        Box::pin(async move {
            txn.check_size()?;
            if self.center.plant() == Some(&Plant::AcksEarly) && self.center.commits() % 41 == 40 {
                return Ok(self.mvcc.applied());
            }
            let revision = self.center.call(Request::Commit(txn)).await?;
            self.reached(revision).await;
            Ok(revision)
        })
    }

    fn snapshot(&self, at_least: Revision) -> BoxFuture<'_, Result<Pinned, SnapshotError>> {
        Box::pin(async move {
            let is_open = at_least == Revision(0) && self.center.plant() != Some(&Plant::ReadsStale);
            let at_least = match is_open {
                true => self.center.call(Request::Revision).await,
                false => Ok(at_least),
            };
            let at_least = at_least.map_err(|error| SnapshotError::Unavailable(error.to_string()))?;
            self.reached(at_least).await;
            Ok(self.mvcc.latest())
        })
    }

    fn at_revision(&self, exactly: Revision) -> Result<Pinned, Gone> {
        self.mvcc.at_revision(exactly)
    }

    fn latest(&self) -> Pinned {
        self.mvcc.latest()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        self.mvcc.watch(scope, after)
    }

    fn compact(&self, upto: Revision) -> BoxFuture<'_, Result<(), Gone>> {
        Box::pin(async move { self.mvcc.compact(upto) })
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    fn share(&self, sharing: Sharing) {
        self.mvcc.share(sharing);
    }

    fn measures(&self) -> Measures {
        self.mvcc.measures()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
