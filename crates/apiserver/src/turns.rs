//! Who computes next: workspaces take turns, so that one that sends thousands of requests waits for itself.
//!
//! ```text
//! flood: r1 r2 r3 r4 …          places: [r1] [r2]
//! quiet: q1                     then:   [q1] [r3]      not: r3 r4 r5 … q1
//! ```
//! There are a few more places than cores. A request holds one while it computes, and none while it waits: for the disk, a
//! webhook, the rest of its body. When it can go on, it takes a free place, or goes into the line of its workspace; a place that
//! becomes free is given to the first of the workspace whose turn it is. Without this, the executor would serve requests in the
//! order in which they can go on, and who sends most would be served most.
//!
//! A workspace that has been alone for a while has nobody to take turns with, and its requests run as they come.

use insula_api::ClusterName;
use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

/// Requests that may compute at once for each core. One is enough to keep it busy; the other one is ready when that one
/// waits.
const PLACES_PER_CORE: usize = 2;

/// A tenant is alone when no other one has asked for anything for this long.
const ALONE_MICROS: i64 = 100_000;

/// Whose turn it is among tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tenant {
    /// Who asks in a workspace.
    Workspace(ClusterName),
    /// Who asks outside of any.
    User(Arc<str>),
}

/// The places, and those who wait for one. Copies are of the same places.
#[derive(Clone)]
pub struct Turns(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    free: usize,
    /// Tenants in the order of their turns; each of them has a line that is not empty.
    order: VecDeque<Tenant>,
    lines: HashMap<Tenant, VecDeque<Arc<Ticket>>>,
    /// Who asked last, and when that was somebody else than before.
    last: Option<Tenant>,
    changed: i64,
}

/// A request's right to compute.
struct Ticket {
    turns: Turns,
    tenant: Tenant,
    /// Read and changed only while the lines are locked, which orders all of it.
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    /// Who wants to hear that a place was given.
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is new.
    Ready,
    /// It is in its line.
    Queued,
    /// It has a place, and is about to compute.
    Granted,
    /// It computes.
    Running,
    /// It computes, and has been told meanwhile that there will be more to do.
    RunningOn,
    /// It waits for something else.
    Waiting,
    /// It has ended.
    Gone,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both are whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    /// Places for a machine with so many cores.
    pub fn new(cores: usize) -> Self {
        let free = cores.max(1) * PLACES_PER_CORE;
        Turns(Arc::new(Mutex::new(Lines {
            free,
            ..Lines::default()
        })))
    }

    /// Runs what a request computes in its turns. It came at `now`, in microseconds.
    pub async fn take<T>(&self, tenant: Tenant, now: i64, work: impl Future<Output = T>) -> T {
        if locked(&self.0).is_alone(&tenant, now) {
            return work.await;
        }
        let ticket = Arc::new(Ticket {
            turns: self.clone(),
            tenant,
            state: Mutex::new(State {
                stage: Stage::Ready,
                waker: None,
            }),
        });
        let _leaves = Leaves(&ticket);
        let waker = Waker::from(ticket.clone());
        let mut work = pin!(work);
        poll_fn(|context| ticket.poll(context, &waker, work.as_mut())).await
    }
}

impl Lines {
    /// Gives free places away. Who got one is to be woken after the lock.
    fn give(&mut self, woken: &mut Vec<Waker>) {
        while self.free > 0 {
            let Some(tenant) = self.order.pop_front() else { return };
            let Some(line) = self.lines.get_mut(&tenant) else {
                continue;
            };
            let first = line.pop_front();
            match line.is_empty() {
                true => drop(self.lines.remove(&tenant)),
                false => self.order.push_back(tenant),
            }
            let Some(ticket) = first else { continue };
            let mut state = locked(&ticket.state);
            // Who has gone away left their ticket in the line.
            if state.stage == Stage::Queued {
                state.stage = Stage::Granted;
                self.free -= 1;
                woken.extend(state.waker.clone());
            }
        }
    }

    /// Whether only this tenant has asked for anything lately.
    fn is_alone(&mut self, tenant: &Tenant, now: i64) -> bool {
        if self.last.as_ref() != Some(tenant) {
            self.last = Some(tenant.clone());
            self.changed = now;
        }
        now - self.changed > ALONE_MICROS
    }

    /// A place, if one is free.
    fn seize(&mut self) -> bool {
        let free = self.free > 0;
        self.free -= usize::from(free);
        free
    }

    fn queue(&mut self, ticket: &Arc<Ticket>) {
        let line = self.lines.entry(ticket.tenant.clone()).or_insert_with(|| {
            self.order.push_back(ticket.tenant.clone());
            VecDeque::new()
        });
        line.push_back(ticket.clone());
    }
}

impl Ticket {
    fn poll<T>(
        self: &Arc<Self>,
        context: &mut Context<'_>,
        waker: &Waker,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> Poll<T> {
        let (begins, woken) = self.begins(context);
        woken.into_iter().for_each(Waker::wake);
        if !begins {
            return Poll::Pending;
        }
        let done = work.poll(&mut Context::from_waker(waker));
        let mut woken = Vec::new();
        {
            let mut lines = locked(&self.turns.0);
            let mut state = locked(&self.state);
            lines.free += 1;
            state.stage = match (done.is_ready(), state.stage) {
                (true, _) => Stage::Gone,
                (false, Stage::RunningOn) => {
                    lines.queue(self);
                    Stage::Queued
                }
                (false, _) => Stage::Waiting,
            };
            drop(state);
            lines.give(&mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
        done
    }

    /// Whether it has a place; who got one meanwhile. A new request gets into its line even if a place is free, behind the
    /// others that the executor has in its own line: else that one would be the only one.
    fn begins(self: &Arc<Self>, context: &Context<'_>) -> (bool, Vec<Waker>) {
        let mut woken = Vec::new();
        let mut lines = locked(&self.turns.0);
        let mut state = locked(&self.state);
        let known = state
            .waker
            .as_ref()
            .is_some_and(|known| known.will_wake(context.waker()));
        if !known {
            state.waker = Some(context.waker().clone());
        }
        match state.stage {
            Stage::Granted => {
                state.stage = Stage::Running;
                return (true, woken);
            }
            Stage::Ready => {
                state.stage = Stage::Queued;
                drop(state);
                lines.queue(self);
                lines.give(&mut woken);
            }
            Stage::Queued | Stage::Waiting | Stage::Running | Stage::RunningOn | Stage::Gone => {}
        }
        (false, woken)
    }
}

impl Wake for Ticket {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = {
            let mut lines = locked(&self.turns.0);
            let mut state = locked(&self.state);
            match state.stage {
                Stage::Waiting if lines.seize() => {
                    state.stage = Stage::Granted;
                    state.waker.clone()
                }
                Stage::Waiting => {
                    state.stage = Stage::Queued;
                    drop(state);
                    lines.queue(self);
                    None
                }
                Stage::Running => {
                    state.stage = Stage::RunningOn;
                    None
                }
                Stage::Ready | Stage::Queued | Stage::Granted | Stage::RunningOn | Stage::Gone => None,
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request that ends before its work does gives its place back.
struct Leaves<'a>(&'a Arc<Ticket>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut woken = Vec::new();
        {
            let mut lines = locked(&self.0.turns.0);
            let mut state = locked(&self.0.state);
            let held = matches!(state.stage, Stage::Granted | Stage::Running | Stage::RunningOn);
            state.stage = Stage::Gone;
            drop(state);
            lines.free += usize::from(held);
            lines.give(&mut woken);
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
