//! The store that all servers of a world share: one order of commits, and the calls on their way.

use crate::plant::Plant;
use futures_util::FutureExt;
use insula_api::{Revision, Scope};
use insula_meter::ServerWork;
use insula_store::{Change, Commit, CommitError, Cursor, MemoryStore, Snapshot, Store, Txn, Write};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::oneshot::{self, Sender};

/// A call of a server.
#[derive(Clone)]
pub enum Request {
    /// A transaction.
    Commit(Txn),
    /// The latest revision.
    Revision,
}

/// The result of a call.
pub type Answer = Result<Revision, CommitError>;

/// Calls and answers on their way.
#[derive(Default)]
struct Wire {
    last: u64,
    calls: BTreeMap<u64, (Request, Sender<Answer>)>,
    answers: BTreeMap<u64, (Answer, Sender<Answer>)>,
}

/// The commits of a world in their order.
pub struct Center {
    store: MemoryStore,
    log: Mutex<(Cursor, Vec<Vec<Arc<Change>>>)>,
    wire: Mutex<Wire>,
    plant: Option<Plant>,
}

impl Center {
    /// Creates an empty store. `plant`: the fault that it has.
    ///
    /// # Panics
    /// Never: a new store can be watched.
    pub fn new(plant: Option<Plant>) -> Arc<Center> {
        let store = MemoryStore::new();
        let everything = store.watch(Scope::everything(), Revision(1));
        let cursor = everything.expect("revision 1 is the latest");
        Arc::new(Center {
            store,
            log: Mutex::new((cursor, Vec::new())),
            wire: Mutex::default(),
            plant,
        })
    }

    /// Returns the planted fault.
    pub fn plant(&self) -> Option<&Plant> {
        self.plant.as_ref()
    }

    /// Returns all objects as they are now.
    pub fn now(&self) -> Snapshot {
        self.store.latest().for_server(ServerWork::Tool)
    }

    /// Returns all objects as they were after some commits.
    pub fn after(&self, commits: usize) -> Snapshot {
        let last = commits.checked_sub(1).map(|last| self.log.lock().1[last][0].revision);
        let snapshot = self.store.at_revision(last.unwrap_or(Revision(1)));
        let snapshot = snapshot.expect("its history is never compacted");
        snapshot.for_server(ServerWork::Tool)
    }

    /// Returns the number of commits.
    pub fn commits(&self) -> usize {
        self.log.lock().1.len()
    }

    /// Returns the changes of some commits, oldest first: each commit is one revision.
    pub fn changes(&self, from: usize, to: usize) -> Vec<Vec<Arc<Change>>> {
        self.log.lock().1[from..to].to_vec()
    }

    /// Writes at once, with no call on its way. Returns the number of commits.
    pub fn write(&self, write: Write) -> usize {
        let txn = Txn {
            guards: Vec::new(),
            writes: vec![write],
        };
        self.run(Request::Commit(txn)).1
    }

    /// Sends a call, and waits for its answer. Both go on when the world says so.
    pub async fn call(&self, request: Request) -> Answer {
        let (caller, answer) = oneshot::channel();
        {
            let mut wire = self.wire.lock();
            wire.last += 1;
            let id = wire.last;
            wire.calls.insert(id, (request, caller));
        }
        let gone = |_| CommitError::Unknown("the world is over".into());
        answer.await.map_err(gone)?
    }

    /// Returns the numbers of calls and of answers on their way.
    pub fn on_the_way(&self) -> (usize, usize) {
        let wire = self.wire.lock();
        (wire.calls.len(), wire.answers.len())
    }

    /// Executes one of the calls; its answer is on its way then. Returns the number of commits.
    pub fn execute(&self, place: usize) -> usize {
        let Some((id, (request, caller))) = take(&mut self.wire.lock().calls, place) else {
            return 0;
        };
        let (answer, changed) = self.run(request);
        self.wire.lock().answers.insert(id, (answer, caller));
        changed
    }

    /// Refuses one of the calls: nothing of it happens.
    pub fn refuse(&self, place: usize, error: CommitError) {
        let taken = take(&mut self.wire.lock().calls, place);
        if let Some((id, (_, caller))) = taken {
            self.wire.lock().answers.insert(id, (Err(error), caller));
        }
    }

    /// Returns true if a call writes objects.
    pub fn puts(&self, place: usize) -> bool {
        let wire = self.wire.lock();
        let call = wire.calls.values().nth(place).map(|(request, _)| request);
        matches!(call, Some(Request::Commit(txn)) if txn.writes.iter().any(|write| matches!(write, Write::Put(..))))
    }

    /// Delivers one of the answers; `lost` tells the caller that there is none.
    pub fn deliver(&self, place: usize, lost: bool) {
        let taken = take(&mut self.wire.lock().answers, place);
        let Some((_, (answer, caller))) = taken else { return };
        let unknown = || match self.plant {
            Some(Plant::LostIsRefused) => CommitError::Full("the answer is lost".into()),
            _ => CommitError::Unknown("the answer is lost".into()),
        };
        // The server that called may have crashed.
        let _ = caller.send(if lost { Err(unknown()) } else { answer });
    }

    fn run(&self, request: Request) -> (Answer, usize) {
        let Request::Commit(txn) = request else {
            return (Ok(self.store.latest().revision()), 0);
        };
        let before = self.commits();
        let parts = match &self.plant {
            Some(plant) => plant.changed(txn),
            None => vec![txn],
        };
        let mut answer = Ok(self.store.latest().revision());
        for txn in parts {
            let done = self.store.commit(txn).now_or_never();
            answer = done.unwrap_or_else(|| Err(CommitError::Unavailable("the store waits".into())));
            let mut log = self.log.lock();
            let (cursor, commits) = &mut *log;
            let changes = cursor.try_next().unwrap_or_default();
            if !changes.is_empty() {
                commits.push(changes);
            }
            if answer.is_err() {
                break;
            }
        }
        (answer, self.commits() - before)
    }
}

fn take<T>(all: &mut BTreeMap<u64, T>, place: usize) -> Option<(u64, T)> {
    let id = *all.keys().nth(place)?;
    all.remove_entry(&id)
}

/// Returns a commit as mirrors apply it.
pub fn commit_of(changes: &[Arc<Change>]) -> Option<Commit> {
    let revision = changes.first()?.revision;
    let writes = changes.iter().map(|change| (change.key.clone(), change.new.clone()));
    Some(Commit {
        revision,
        writes: writes.collect(),
    })
}
