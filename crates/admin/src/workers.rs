//! Threads for calls that take long: compiling rules, searching for what they lose, converting.
//!
//! As many calls are at work as there are cores, one of each workspace. Those of a workspace wait
//! for each other before they wait for a core, so that a flood of one workspace leaves the others
//! the turns that they had.

use insula_api::ClusterName;
use insula_registry::representation::Workers;
use std::{
    any::Any,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Queues of workspaces that are gone are forgotten when there are so many.
const SWEEP_MIN: usize = 256;

/// Threads, and the queues before them.
pub struct WorkerPool {
    workers: Workers,
    cores: Arc<Semaphore>,
    queues: Mutex<HashMap<ClusterName, Weak<Semaphore>>>,
}

impl WorkerPool {
    /// A pool of these workers.
    pub fn new(workers: Workers) -> Self {
        WorkerPool {
            cores: Arc::new(Semaphore::new(workers.width.max(1))),
            workers,
            queues: Mutex::default(),
        }
    }

    /// Does work at a workspace's cost, and waits for it. What was begun ends, even if nobody waits
    /// any more; until then it keeps its place. A panic goes on in the caller.
    pub async fn run<T: Send + 'static>(
        &self,
        cluster: &ClusterName,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let queue = self.queue(cluster);
        let own = queue.clone().acquire_owned().await.ok()?;
        let core = self.cores.clone().acquire_owned().await.ok()?;
        let (tell, told) = oneshot::channel();
        let (payer, pay) = (cluster.clone(), self.workers.pay.clone());
        (self.workers.start)(Box::new(move || {
            let _held: [OwnedSemaphorePermit; 2] = [own, core];
            let (mut work, mut done) = (Some(work), None);
            let mut once = || done = work.take().map(|work| catch_unwind(AssertUnwindSafe(work)));
            pay(&payer, &mut once);
            // Nobody may be there any more.
            let _ = done.map(|done| tell.send(done));
        }));
        let done: Result<T, Box<dyn Any + Send>> = told.await.ok()?;
        drop(queue);
        Some(done.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn queue(&self, cluster: &ClusterName) -> Arc<Semaphore> {
        // It is whole between any two statements.
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
