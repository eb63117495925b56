//! Watches: cursors that pull from a shared log. There is no queue for each watcher. A slow cursor
//! falls behind, and fails with [`Gone`] once changes that it has not read are trimmed.

use crate::{
    Gone, Mvcc,
    log::{Change, Pulled, SCAN_MAX, in_scope},
};
use insula_api::{Revision, Scope};
use std::sync::Arc;
use tokio::sync::Notify;

/// A position in the changes of a scope.
pub struct Cursor {
    mvcc: Arc<Mvcc>,
    scope: Scope,
    /// Every change up to this revision was delivered or is out of scope.
    position: Revision,
    signal: Arc<Notify>,
}

impl Mvcc {
    /// Returns a cursor over the changes in a scope after a revision.
    ///
    /// # Errors
    /// [`Gone`] when changes of the scope after the revision are lost, or it is not applied yet.
    pub fn watch(self: &Arc<Self>, scope: Scope, after: Revision) -> Result<Cursor, Gone> {
        let signal = self.subscribe(&scope, after)?;
        Ok(Cursor::new(self.clone(), scope, after, signal))
    }
}

impl Cursor {
    pub(crate) fn new(mvcc: Arc<Mvcc>, scope: Scope, position: Revision, signal: Arc<Notify>) -> Self {
        Cursor {
            mvcc,
            scope,
            position,
            signal,
        }
    }

    /// Waits for changes and returns them, at least one whole revision. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// [`Gone`] when changes that the cursor has not read were trimmed.
    pub async fn next(&mut self) -> Result<Vec<Arc<Change>>, Gone> {
        loop {
            let signal = self.signal.clone();
            // Created before the pull, so that a change between the pull and the wait wakes the
            // cursor.
            let woken = signal.notified();
            let changes = self.try_next()?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            woken.await;
        }
    }

    /// Returns the changes that are there now: none, or whole revisions.
    ///
    /// # Errors
    /// [`Gone`] when changes that the cursor has not read were trimmed.
    pub fn try_next(&mut self) -> Result<Vec<Arc<Change>>, Gone> {
        loop {
            let Cursor {
                mvcc, scope, position, ..
            } = self;
            let pulled = mvcc.read(|state| match state.log.ring(scope) {
                None => Ok(Pulled {
                    changes: Vec::new(),
                    reached: state.applied,
                    more: false,
                }),
                Some(ring) if ring.lost > *position => Err(Gone::Compacted {
                    asked: *position,
                    oldest: ring.lost.max(state.floor),
                }),
                Some(ring) => Ok(ring.pull(scope, *position, state.applied)),
            })?;
            self.position = pulled.reached;
            if !pulled.changes.is_empty() || !pulled.more {
                return Ok(pulled.changes);
            }
        }
    }

    /// Returns a revision that is safe as a bookmark: every change up to it was delivered or is out
    /// of scope. It advances with the store while nothing changes in the scope.
    pub fn position(&self) -> Revision {
        self.mvcc.read(|state| match state.log.ring(&self.scope) {
            None => state.applied,
            Some(ring) if ring.lost > self.position => self.position,
            Some(ring) => {
                let mut after = ring.after(self.position);
                let pending = after
                    .by_ref()
                    .take(SCAN_MAX)
                    .any(|change| in_scope(&self.scope, &change.key));
                // With more changes than one scan reads the old position is still a correct answer;
                // the next pull advances it.
                if pending || after.next().is_some() {
                    self.position
                } else {
                    state.applied
                }
            }
        })
    }

    /// Returns the revision up to which every change in scope was delivered. Unlike
    /// [`Cursor::position`] it advances with pulls alone.
    pub fn reached(&self) -> Revision {
        self.position
    }

    /// Returns the scope of the cursor.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.mvcc.unsubscribe(&self.scope);
    }
}
