//! Loop of one reconciler.

use super::{
    QueueMeasures, Reconciler, Sleep,
    queue::{Queue, ROUND_SECONDS},
};
use crate::plan_yaml::PlanYaml;
use futures_util::{
    FutureExt,
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use insula_api::{ClusterName, ObjectKey, Scope};
use insula_catalog::Error;
use insula_meter::ServerWork;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Cursor, Gone, Snapshot};
use std::{
    fmt::Debug,
    future::poll_fn,
    hash::Hash,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll},
};

/// Keys in work at once: enough for the store to group commits.
const IN_FLIGHT_MAX: usize = 64;
/// Attempts on fresh snapshots after conflicts before they count as a failure.
const CONFLICTS_MAX: usize = 16;

enum Outcome {
    Done { again_after: Option<u64> },
    Failed(String),
}

type Work<K> = BoxFuture<'static, (K, Outcome)>;
type Timer<K> = BoxFuture<'static, (K, u64)>;
type Watched = BoxFuture<'static, (Cursor, Result<Vec<Arc<Change>>, Gone>)>;

/// An event that a loop waits for.
enum Next<K> {
    Changes(Cursor, Result<Vec<Arc<Change>>, Gone>),
    Ended(K, Outcome),
    Fired(K, u64),
    Round,
}

/// Kinds of events that a loop waits for.
const KINDS: u8 = 4;

/// A reconciler without the type of its world, so that the loop is compiled once for each type of
/// key and not for each reconciler.
trait Decisions<K>: Send + Sync {
    fn name(&self) -> &'static str;
    fn scopes(&self) -> Vec<Scope>;
    fn restart(&self);
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<K>;
    fn settle(&self) -> u64;
    /// Returns what to write for a key, as of a snapshot.
    fn plan(&self, key: &K, snapshot: &Snapshot) -> Plan;
}

impl<R: Reconciler> Decisions<R::Key> for R {
    fn name(&self) -> &'static str {
        Reconciler::name(self)
    }

    fn scopes(&self) -> Vec<Scope> {
        Reconciler::scopes(self)
    }

    fn restart(&self) {
        Reconciler::restart(self);
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<R::Key> {
        Reconciler::keys(self, change, snapshot)
    }

    fn settle(&self) -> u64 {
        Reconciler::settle(self)
    }

    fn plan(&self, key: &R::Key, snapshot: &Snapshot) -> Plan {
        self.decide(&self.observe(key, snapshot))
    }
}

/// Bounds of a key.
pub(crate) trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Returns the cluster whose server reconciles the key; `None` for the installation.
    fn cluster(&self) -> Option<&ClusterName>;
}

impl Key for ObjectKey {
    fn cluster(&self) -> Option<&ClusterName> {
        Some(&self.cluster)
    }
}

impl Key for ClusterName {
    fn cluster(&self) -> Option<&ClusterName> {
        Some(self)
    }
}

impl Key for () {
    fn cluster(&self) -> Option<&ClusterName> {
        None
    }
}

/// Runs a reconciler for ever.
pub(crate) fn run<R: Reconciler>(
    registry: Arc<Deps>,
    reconciler: Arc<R>,
    measures: Arc<QueueMeasures>,
    sleep: Sleep,
) -> BoxFuture<'static, ()> {
    Box::pin(repeat::<R::Key>(registry, reconciler, measures, sleep))
}

async fn repeat<K: Key>(
    registry: Arc<Deps>,
    reconciler: Arc<dyn Decisions<K>>,
    measures: Arc<QueueMeasures>,
    sleep: Sleep,
) {
    let queue = Queue::new(measures.clone(), registry.clock.clone());
    let mut runner = Runner {
        registry,
        reconciler,
        sleep,
        measures,
        queue,
        work: FuturesUnordered::new(),
        timers: FuturesUnordered::new(),
        round: None,
        first: 0,
    };
    loop {
        match runner.begin() {
            Ok(cursors) => runner.drive(cursors).await,
            // The store was compacted between the snapshot and the watch.
            Err(gone) => tracing::debug!(reconciler = runner.reconciler.name(), %gone, "starting over"),
        }
        (runner.sleep)(1).await;
    }
}

struct Runner<K> {
    registry: Arc<Deps>,
    reconciler: Arc<dyn Decisions<K>>,
    sleep: Sleep,
    measures: Arc<QueueMeasures>,
    queue: Queue<K>,
    work: FuturesUnordered<Work<K>>,
    timers: FuturesUnordered<Timer<K>>,
    /// End of the round, while keys wait for other servers.
    round: Option<BoxFuture<'static, ()>>,
    /// Kind of events that is looked at first.
    first: u8,
}

impl<K: Key> Runner<K> {
    /// Queues everything that exists, and watches from there on.
    fn begin(&mut self) -> Result<Vec<Cursor>, Gone> {
        let snapshot = self.registry.store.latest().for_server(ServerWork::Reconciler);
        let scopes = self.reconciler.scopes();
        self.reconciler.restart();
        for scope in &scopes {
            self.queue_existing(&snapshot, scope);
        }
        let after = snapshot.revision();
        scopes
            .into_iter()
            .map(|scope| self.registry.store.watch(scope, after))
            .collect()
    }

    fn queue_existing(&mut self, snapshot: &Snapshot, scope: &Scope) {
        snapshot.for_each(scope, |entry| {
            let change = Change {
                key: entry.key.clone(),
                revision: entry.revision,
                old: None,
                new: Some(entry.object.clone()),
            };
            self.notice(&change, snapshot);
            ControlFlow::Continue(())
        });
    }

    fn notice(&mut self, change: &Change, snapshot: &Snapshot) {
        let reconciler = &self.reconciler;
        let keys = catch_unwind(AssertUnwindSafe(|| reconciler.keys(change, snapshot))).unwrap_or_else(|_| {
            tracing::error!(reconciler = reconciler.name(), key = ?change.key, "panicked while mapping a change");
            Vec::new()
        });
        let settle = reconciler.settle();
        for key in keys {
            match settle {
                0 => self.queue.add(key),
                seconds => self.wait(key, seconds, true),
            }
        }
    }

    /// Queues a key after some seconds. `settles` is for a change, which no later decision about
    /// the key may cancel.
    fn wait(&mut self, key: K, seconds: u64, settles: bool) {
        let Some(timer) = self.queue.arm(&key, settles) else {
            return;
        };
        let slept = (self.sleep)(seconds);
        self.timers.push(Box::pin(async move {
            slept.await;
            (key, timer)
        }));
    }

    /// Works until a cursor is gone.
    async fn drive(&mut self, cursors: Vec<Cursor>) {
        let mut watched: FuturesUnordered<Watched> = cursors.into_iter().map(next).collect();
        loop {
            let team = self.registry.clone();
            while self.work.len() < IN_FLIGHT_MAX
                && let Some(key) = self.queue.pop(|key| team.reconciles(key.cluster()))
            {
                let (registry, measures) = (self.registry.clone(), self.measures.clone());
                let attempt = attempt(registry.clone(), self.reconciler.clone(), key);
                self.work.push(Box::pin(async move {
                    let begun = registry.clock.monotonic_micros();
                    let outcome = attempt.await;
                    let ended = registry.clock.monotonic_micros();
                    measures.work_seconds.observe_micros(begun, ended);
                    outcome
                }));
            }
            if self.round.is_none() && self.queue.waits_for_others() {
                self.round = Some((self.sleep)(ROUND_SECONDS));
            }
            match self.next(&mut watched).await {
                Next::Changes(cursor, Ok(changes)) => {
                    let snapshot = self.registry.store.latest().for_server(ServerWork::Reconciler);
                    changes.iter().for_each(|change| self.notice(change, &snapshot));
                    watched.push(next(cursor));
                }
                Next::Changes(_, Err(gone)) => {
                    tracing::debug!(reconciler = self.reconciler.name(), %gone, "starting over");
                    return;
                }
                Next::Ended(key, outcome) => self.finish(key, outcome),
                Next::Fired(key, timer) => self.queue.fire(key, timer),
                Next::Round => {
                    self.round = None;
                    self.queue.end_round();
                }
            }
        }
    }

    /// Waits for the next event. Each kind is looked at first in turn, so that none waits for the
    /// others for ever, and the order is the same in every run.
    async fn next(&mut self, watched: &mut FuturesUnordered<Watched>) -> Next<K> {
        self.first = (self.first + 1) % KINDS;
        let first = self.first;
        poll_fn(|context| {
            // All of them, or a wake-up of the one left out is lost.
            for turn in 0..KINDS {
                let found = match (first + turn) % KINDS {
                    0 => ready(watched, context).map(|(cursor, changes)| Next::Changes(cursor, changes)),
                    1 => ready(&mut self.work, context).map(|(key, outcome)| Next::Ended(key, outcome)),
                    2 => ready(&mut self.timers, context).map(|(key, timer)| Next::Fired(key, timer)),
                    _ => self.round.as_mut().and_then(|round| round_ended(round, context)),
                };
                if let Some(found) = found {
                    return Poll::Ready(found);
                }
            }
            Poll::Pending
        })
        .await
    }

    fn finish(&mut self, key: K, outcome: Outcome) {
        self.queue.done(&key);
        match outcome {
            Outcome::Done { again_after } => {
                self.queue.succeeded(&key);
                match again_after {
                    None => self.queue.disarm(&key),
                    Some(0) => self.queue.add(key),
                    Some(seconds) => self.wait(key, seconds, false),
                }
            }
            Outcome::Failed(why) => {
                let seconds = self.queue.failed(&key);
                tracing::warn!(
                    reconciler = self.reconciler.name(),
                    ?key,
                    why,
                    seconds,
                    "will try again"
                );
                self.wait(key, seconds, false);
            }
        }
    }
}

fn next(mut cursor: Cursor) -> Watched {
    Box::pin(async move {
        let changes = cursor.next().await;
        (cursor, changes)
    })
}

/// Returns the result of a future that has ended; `None` if none has.
fn ready<F: Future>(futures: &mut FuturesUnordered<F>, context: &mut Context<'_>) -> Option<F::Output> {
    match futures.poll_next_unpin(context) {
        Poll::Ready(output) => output,
        Poll::Pending => None,
    }
}

fn round_ended<K>(round: &mut BoxFuture<'static, ()>, context: &mut Context<'_>) -> Option<Next<K>> {
    round.poll_unpin(context).is_ready().then_some(Next::Round)
}

async fn attempt<K: Key>(registry: Arc<Deps>, reconciler: Arc<dyn Decisions<K>>, key: K) -> (K, Outcome) {
    for _ in 0..CONFLICTS_MAX {
        let decided = catch_unwind(AssertUnwindSafe(|| {
            let snapshot = registry.store.latest().for_server(ServerWork::Reconciler);
            reconciler.plan(&key, &snapshot)
        }));
        let Ok(plan) = decided else {
            return (key, Outcome::Failed("the reconciler panicked".to_owned()));
        };
        if !plan.is_rest() {
            tracing::debug!(reconciler = reconciler.name(), ?key, plan = %PlanYaml(&plan), "decided");
        }
        let Plan { again_after, .. } = plan;
        match insula_registry::commit(&registry, &plan).await {
            Ok(_) => return (key, Outcome::Done { again_after }),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return (key, Outcome::Failed(error.to_string())),
        }
    }
    (
        key,
        Outcome::Failed(format!("{CONFLICTS_MAX} conflicts with other writes in a row")),
    )
}
