//! Futures that are polled one at a time, in an order that the seed chooses.

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

/// Ids of futures that were woken.
type Woken = Arc<Mutex<BTreeSet<u64>>>;

struct Task {
    owner: usize,
    name: &'static str,
    future: BoxFuture<'static, ()>,
    waker: Waker,
}

struct WakeTask {
    id: u64,
    woken: Woken,
}

impl Wake for WakeTask {
    fn wake(self: Arc<Self>) {
        self.woken.lock().insert(self.id);
    }
}

/// All futures of a world, each with its owner: the server that runs it.
#[derive(Default)]
pub struct Tasks {
    last: u64,
    all: BTreeMap<u64, Task>,
    woken: Woken,
}

impl Tasks {
    /// Adds a future. It is polled when it is chosen.
    pub fn spawn(&mut self, owner: usize, name: &'static str, future: BoxFuture<'static, ()>) {
        self.last += 1;
        let (id, woken) = (self.last, self.woken.clone());
        self.woken.lock().insert(id);
        let waker = Waker::from(Arc::new(WakeTask { id, woken }));
        let task = Task {
            owner,
            name,
            future,
            waker,
        };
        self.all.insert(id, task);
    }

    /// Returns the futures that can go on.
    pub fn ready(&self) -> Vec<u64> {
        let mut woken = self.woken.lock();
        woken.retain(|id| self.all.contains_key(id));
        woken.iter().copied().collect()
    }

    /// Polls a future once. Returns its name.
    ///
    /// # Errors
    /// It panicked.
    pub fn poll(&mut self, id: u64) -> Result<&'static str, String> {
        self.woken.lock().remove(&id);
        let Some(task) = self.all.get_mut(&id) else {
            return Ok("");
        };
        let name = task.name;
        let mut context = Context::from_waker(&task.waker);
        match catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut context))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) => drop(self.all.remove(&id)),
            Err(_) => return Err(format!("{name} panicked")),
        }
        Ok(name)
    }

    /// Drops all futures of an owner, wherever they are.
    pub fn end(&mut self, owner: usize) {
        self.all.retain(|_, task| task.owner != owner);
    }
}
