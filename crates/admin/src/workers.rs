//! Threads for calls that take long: compiling rules, searching for what they lose, converting.
//!
//! As many calls run as there are cores, at most one of each workspace. Calls of a workspace queue
//! for each other before they queue for a core, so that a flood of one workspace does not delay the
//! others.

use insula_api::ClusterName;
use insula_registry::representation::Workers;
use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Number of queues from which unused ones are removed.
const SWEEP_MIN: usize = 256;

/// A pool of threads with a queue for each workspace.
pub struct WorkerPool {
    workers: Workers,
    cores: Arc<Semaphore>,
    queues: Mutex<HashMap<ClusterName, Weak<Semaphore>>>,
}

impl WorkerPool {
    /// Returns a pool of workers.
    pub fn new(workers: Workers) -> Self {
        WorkerPool {
            cores: Arc::new(Semaphore::new(workers.width.max(1))),
            workers,
            queues: Mutex::default(),
        }
    }

    /// Runs work that is charged to a workspace, and waits for it. Work that has begun ends even if
    /// its caller is gone, and holds its core until then. A panic continues in the caller. Returns
    /// `None` when the pool shuts down.
    pub async fn run<T: Send + 'static>(
        &self,
        cluster: &ClusterName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let queue = self.queue(cluster);
        let own = queue.clone().acquire_owned().await.ok()?;
        let core = self.cores.clone().acquire_owned().await.ok()?;
        let (sender, receiver) = oneshot::channel();
        let (payer, pay) = (cluster.clone(), self.workers.pay.clone());
        (self.workers.start)(Box::new(move || {
            let _held: [OwnedSemaphorePermit; 2] = [own, core];
            let (mut work, mut done) = (Some(work), None);
            let mut once = || done = work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
            pay(&payer, &mut once);
            // The caller may be gone.
            let _ = done.map(|done| sender.send(done));
        }));
        let done: Result<T, Box<dyn Any + Send>> = receiver.await.ok()?;
        drop(queue);
        Some(done.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn queue(&self, cluster: &ClusterName) -> Arc<Semaphore> {
        // The map is consistent between any two statements.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(cluster).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= SWEEP_MIN {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(Semaphore::new(1));
        queues.insert(cluster.clone(), Arc::downgrade(&queue));
        queue
    }
}
