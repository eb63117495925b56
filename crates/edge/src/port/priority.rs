//! Priority runtimes: threads of normal and of low priority for connections, and threads for
//! controllers.
//!
//! A connection, and each of its requests, is a task whose CPU time is measured. While its tenant
//! is throttled by [fair sharing](crate::guard::fair_share), the task runs at low priority,
//! and its [socket](super::socket) moves with it. A task that it spawns (a request of a connection)
//! begins with the priority of its tenant.
//!
//! So the requests of a flooding tenant are decrypted, parsed, answered and encrypted on threads
//! that the kernel preempts as soon as other threads need a core. A scheduler of our own could only
//! choose the next task, and others would wait for the running one.

use std::{
    cell::Cell,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use hyper::rt::Executor;
use insula_api::ClusterName;
use insula_meter::Meter;
use rustix::process::{getpriority_process, nice};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{
    account::{self, RequestAccount},
    exchange::Exchange,
};
use crate::guard::{
    fair_queue::{FairQueue, WAITING},
    fair_share::{ConnectionMeter, FairShare, Tenant},
};

/// Niceness of low-priority threads. Such a thread gets a quarter of a contended core. With less, a
/// thread that waits for a lock that it holds would wait too long on a busy machine: at niceness 19
/// for over a second.
const NICENESS: i32 = 5;

/// Threads that may block beside those of requests that wait for a turn: for files, the store, and
/// the places of threads that have left. As many as the runtime has by default.
const BLOCKING: usize = 512;

/// Name of the low-priority threads, which `ps -L` and `/proc` show.
const LOW_PRIORITY: &str = "low-priority";

/// The runtimes of all priorities, and the assignment of tasks to them.
pub struct PriorityRuntimes {
    /// Start of the time that meters count.
    begun: Instant,
    /// Shares of CPU time between tenants.
    pub fair_share: FairShare,
    /// FairQueue of long computations.
    pub queue: FairQueue,
    normal: Handle,
    low: ThreadPool,
    controllers: ThreadPool,
}

/// A runtime beside the normal one.
struct ThreadPool {
    name: &'static str,
    /// Niceness of its threads: that of the thread that made the pool, and more.
    niceness: i32,
    count: usize,
    /// Created on first use. `None` when the system has no threads left.
    runtime: OnceLock<Option<Runtime>>,
}

/// Priority of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Normal,
    Low,
}

thread_local! {
    /// Priority of this thread. Threads of controllers serve no connection, so that nobody reads it
    /// there.
    static CURRENT: Cell<Priority> = const { Cell::new(Priority::Normal) };
}

impl Priority {
    /// Returns the priority of the current thread.
    pub(crate) fn current() -> Self {
        CURRENT.get()
    }
}

impl PriorityRuntimes {
    /// Creates the runtimes. The current runtime is the normal one; the others start on first use,
    /// each with one thread fewer than there are cores. Whatever its priority, a running thread may
    /// delay others until the end of its time slice or system call.
    pub fn new(cores: usize, fair_share: FairShare) -> Arc<Self> {
        Arc::new(PriorityRuntimes {
            begun: Instant::now(),
            fair_share,
            queue: FairQueue::new(cores),
            normal: Handle::current(),
            low: ThreadPool::new(LOW_PRIORITY, NICENESS, cores),
            controllers: ThreadPool::new("controllers", 0, cores),
        })
    }

    /// Returns the time since the start.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the meter of a request on a connection.
    pub fn request_meter(self: &Arc<Self>, connection: &Arc<ConnectionMeter>) -> Meter {
        Meter::new(RequestAccount::new(Arc::clone(self), Arc::clone(connection)))
    }

    /// Returns the meter of a new connection.
    pub fn meter(&self) -> Arc<ConnectionMeter> {
        Arc::new(self.fair_share.meter(self.begun.elapsed()))
    }

    /// Runs long work that never waits, on a low-priority thread.
    pub fn run_low_priority(&self, work: impl FnOnce() + Send + 'static) {
        drop(self.low().spawn_blocking(work));
    }

    /// Runs work of a workspace outside of its connections, and charges the workspace for its time.
    pub fn run_charged(&self, workspace: &ClusterName, work: &mut dyn FnMut()) {
        let begun = Instant::now();
        work();
        self.fair_share
            .charge(&Tenant::Workspace(workspace.clone()), begun.elapsed());
    }

    /// Runs a task that the meter charges, with the priority of the charged tenant.
    pub fn spawn(self: &Arc<Self>, meter: &Arc<ConnectionMeter>, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_exchange(meter, None, task);
    }

    /// Runs the task that answers in an exchange.
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

    /// Returns the runtime of controllers: their work for a tenant delays no request of others. It
    /// has normal priority, since the creator of a workspace waits for them.
    pub fn controllers(&self) -> &Handle {
        self.controllers.handle().unwrap_or(&self.normal)
    }
}

/// Stack of each thread. What recurses, such as the parser of CEL, is bounded so that it fits into
/// the smaller one; code that is not optimised takes several times as much.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 16 << 20 } else { 2 << 20 };

/// Returns a builder of threads that answer, which others replace while they compute for long.
pub fn threads() -> Builder {
    let mut threads = Builder::new_multi_thread();
    threads.max_blocking_threads(WAITING + BLOCKING);
    threads.thread_stack_size(STACK_BYTES);
    threads
}

impl ThreadPool {
    fn new(name: &'static str, niceness: i32, cores: usize) -> Self {
        ThreadPool {
            name,
            niceness: own_niceness() + niceness,
            count: cores.saturating_sub(1).max(1),
            runtime: OnceLock::new(),
        }
    }

    fn handle(&self) -> Option<&Handle> {
        let runtime = self.runtime.get_or_init(|| {
            let niceness = self.niceness;
            let threads = threads()
                .worker_threads(self.count)
                .thread_name(self.name)
                .on_thread_start(move || {
                    CURRENT.set(Priority::Low);
                    // A thread that another one of the pool started has its niceness already.
                    if let Err(error) = nice(niceness - own_niceness()) {
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

/// Returns the niceness of the current thread.
fn own_niceness() -> i32 {
    getpriority_process(None).unwrap_or_default()
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // A task cannot wait for the threads, and they have nothing left to do.
        if let Some(Some(runtime)) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A measured task that moves between priorities.
struct Metered<F> {
    /// `None` after the task has moved.
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
        if priority == Priority::Low {
            // The kernel lets a running thread finish its time slice, whatever its priority, unless
            // the thread yields.
            std::thread::yield_now();
        }
        let (runtimes, meter) = (Arc::clone(&self.runtimes), Arc::clone(&self.meter));
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        let (done, took) = account::run(&runtimes, || task.as_mut().poll(context));
        meter.charge(took);
        ready!(done);
        Poll::Ready(())
    }
}

/// Executor of the tasks of a connection, which its meter charges.
#[derive(Clone)]
pub(crate) struct Spawner {
    pub(crate) runtimes: Arc<PriorityRuntimes>,
    pub(crate) meter: Arc<ConnectionMeter>,
    /// The exchange of the request whose task HTTP/2 spawns next.
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
    use crate::guard::fair_share::Charged;

    /// A task moves to the low-priority threads when its tenant is throttled, and back, without
    /// restarting.
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
                    fair_share.charge_to(meter, &Charged::user(name.into()));
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
