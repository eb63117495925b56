//! Two lanes for connections: the threads of the runtime, and threads of low priority. Controllers
//! have threads of their own.
//!
//! A connection, and each of its requests, is a task that is measured whenever it runs. When the
//! tenant who pays for it falls [throttled](insula_apiserver::fair_share), the task goes on in the other
//! lane, and comes back later; its [socket](crate::socket) is watched there, too. What is spawned
//! on the way (a request of a connection) begins where that runs.
//!
//! So a tenant's flood is decrypted, parsed, answered and encrypted on threads that the kernel
//! takes a core from when others' want it, in the middle of whatever runs. An order of our own
//! could only choose what runs next, and whoever comes would wait for what runs already.

use std::{
    cell::Cell,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, ready},
    time::Instant,
};

use hyper::rt::Executor;
use insula_api::ClusterName;
use insula_apiserver::fair_share::{ConnectionMeter, FairShare, Tenant};
use rustix::process::nice;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::exchange::Exchange;

/// Such a thread gets a quarter of a core that others want. With less, whoever waits for a lock
/// that it holds would wait too long where the machine is busy with other things: at the scale's
/// end, 19, for over a second.
const NICENESS: i32 = 5;

/// Name of the low-priority threads, which `ps -L` and `/proc` show.
const LOW_PRIORITY: &str = "low-priority";

/// The threads of both lanes, and who is served by which.
pub struct PriorityRuntimes {
    /// Since when meters count.
    begun: Instant,
    pub(crate) fair_share: FairShare,
    normal: Handle,
    low: ThreadPool,
    controllers: ThreadPool,
}

/// Threads beside those of the front.
struct ThreadPool {
    name: &'static str,
    niceness: i32,
    count: usize,
    /// Made when they are needed for the first time. Nothing when the system gives none.
    runtime: OnceLock<Option<Runtime>>,
}

/// Where a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Normal,
    Low,
}

thread_local! {
    /// What this thread serves. Threads of controllers serve no connection, so nobody asks it of
    /// them.
    static CURRENT: Cell<Priority> = const { Cell::new(Priority::Normal) };
}

impl Priority {
    /// That of the thread that asks.
    pub(crate) fn current() -> Self {
        CURRENT.get()
    }
}

impl PriorityRuntimes {
    /// The threads of this runtime, and others once they are needed: of each kind one fewer than
    /// there are cores. Whatever their priority, whoever wakes up beside them may wait until they
    /// have had a slice of time, or are through with a system call.
    pub(crate) fn new(cores: usize, fair_share: FairShare) -> Arc<Self> {
        Arc::new(PriorityRuntimes {
            begun: Instant::now(),
            fair_share,
            normal: Handle::current(),
            low: ThreadPool::new(LOW_PRIORITY, NICENESS, cores),
            controllers: ThreadPool::new("controllers", 0, cores),
        })
    }

    /// What a new connection is measured with.
    pub(crate) fn meter(&self) -> Arc<ConnectionMeter> {
        Arc::new(self.fair_share.meter(self.begun.elapsed()))
    }

    /// Runs what takes long and waits for nothing, behind whoever it is for.
    pub(crate) fn run_low_priority(&self, work: impl FnOnce() + Send + 'static) {
        drop(self.low().spawn_blocking(work));
    }

    /// Runs what is done for a workspace elsewhere than on its connections, at its cost.
    pub(crate) fn run_charged(&self, workspace: &ClusterName, work: &mut dyn FnMut()) {
        let begun = Instant::now();
        work();
        self.fair_share
            .charge(&Tenant::Workspace(workspace.clone()), begun.elapsed());
    }

    /// Runs a task at the meter's cost, in the lane of whoever pays.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        meter: &Arc<ConnectionMeter>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn_exchange(meter, None, task);
    }

    /// The same for the task that answers in an exchange.
    fn spawn_exchange(
        self: &Arc<Self>,
        meter: &Arc<ConnectionMeter>,
        exchange: Option<Arc<Exchange>>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = Metered {
            task: Some(Box::pin(task)),
            exchange,
            priority: self.priority(meter),
            runtimes: Arc::clone(self),
            meter: Arc::clone(meter),
        };
        task.start();
    }

    fn priority(&self, meter: &ConnectionMeter) -> Priority {
        match meter.is_throttled(self.begun.elapsed()) {
            true => Priority::Low,
            false => Priority::Normal,
        }
    }

    fn low(&self) -> &Handle {
        self.low.handle().unwrap_or(&self.normal)
    }

    /// Where controllers work: what a tenant gives them to do holds up no request of others. They
    /// have the priority of those who answer, since whoever made a workspace waits for it.
    pub(crate) fn controllers(&self) -> &Handle {
        self.controllers.handle().unwrap_or(&self.normal)
    }
}

impl ThreadPool {
    fn new(name: &'static str, niceness: i32, cores: usize) -> Self {
        ThreadPool {
            name,
            niceness,
            count: cores.saturating_sub(1).max(1),
            runtime: OnceLock::new(),
        }
    }

    fn handle(&self) -> Option<&Handle> {
        let runtime = self.runtime.get_or_init(|| {
            let niceness = self.niceness;
            let threads = Builder::new_multi_thread()
                .worker_threads(self.count)
                .thread_name(self.name)
                .on_thread_start(move || {
                    CURRENT.set(Priority::Low);
                    if let Err(error) = nice(niceness) {
                        tracing::warn!(%error, niceness, "threads keep their priority");
                    }
                })
                .enable_all()
                .build();
            threads
                .inspect_err(|error| tracing::warn!(%error, name = self.name, "no threads beside those that answer"))
                .ok()
        });
        runtime.as_ref().map(Runtime::handle)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // They cannot be waited for in a task, and have nothing left to do.
        if let Some(Some(runtime)) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A task that is measured, and moves.
struct Metered<F> {
    /// Nothing when it goes on elsewhere.
    task: Option<Pin<Box<F>>>,
    exchange: Option<Arc<Exchange>>,
    priority: Priority,
    runtimes: Arc<PriorityRuntimes>,
    meter: Arc<ConnectionMeter>,
}

impl<F: Future<Output = ()> + Send + 'static> Metered<F> {
    fn start(self) {
        let runtimes = Arc::clone(&self.runtimes);
        let threads = match self.priority {
            Priority::Normal => &runtimes.normal,
            Priority::Low => runtimes.low(),
        };
        drop(threads.spawn(self));
    }
}

impl<F: Future<Output = ()> + Send + 'static> Future for Metered<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let priority = self.runtimes.priority(&self.meter);
        if priority != self.priority {
            let moved = Metered {
                task: self.task.take(),
                exchange: self.exchange.take(),
                priority,
                runtimes: Arc::clone(&self.runtimes),
                meter: Arc::clone(&self.meter),
            };
            moved.start();
            return Poll::Ready(());
        }
        if self.exchange.as_ref().is_some_and(|exchange| exchange.is_cut(context)) {
            return Poll::Ready(());
        }
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        if priority == Priority::Low {
            // The kernel lets whoever runs go on for a while, whatever their priority, unless they
            // say that others may.
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let done = task.as_mut().poll(context);
        self.meter.charge(begun.elapsed());
        ready!(done);
        Poll::Ready(())
    }
}

/// Begins what a connection begins, at the connection's cost.
#[derive(Clone)]
pub(crate) struct Spawner {
    pub(crate) runtimes: Arc<PriorityRuntimes>,
    pub(crate) meter: Arc<ConnectionMeter>,
    /// The exchange of the request that HTTP/2 hands over next.
    pub(crate) next: Arc<Mutex<Option<Arc<Exchange>>>>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, task: F) {
        let exchange = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.runtimes.spawn_exchange(&self.meter, exchange, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Goes to the threads of those who are behind when its tenant is, and back, without beginning
    /// anew.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_task_moves_with_its_tenant() {
        let runtimes = PriorityRuntimes::new(2, FairShare::new(2, 100));
        let (meter, other, fair_share) = (runtimes.meter(), runtimes.meter(), runtimes.fair_share.clone());
        let (told, mut threads) = tokio::sync::mpsc::unbounded_channel();
        runtimes.spawn(&meter, async move {
            loop {
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                if told.send(name).is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let mut seen = Vec::new();
        let mut go_on_until = async |is_low: bool| {
            loop {
                let name = threads.recv().await.expect("it goes on");
                other.is_throttled(runtimes.begun.elapsed());
                for (meter, name) in [(&other, "quiet"), (&meter, "loud")] {
                    fair_share.charge_to(meter, &Tenant::User(name.into()));
                }
                if seen.last() != Some(&name) {
                    seen.push(name);
                }
                if seen.last().is_some_and(|name| (name == LOW_PRIORITY) == is_low) {
                    return;
                }
            }
        };
        go_on_until(false).await;
        meter.charge(Duration::from_millis(300));
        go_on_until(true).await;
        go_on_until(false).await;
        assert_eq!(seen.len(), 3, "{seen:?}");
    }
}
