//! Turns of long computations: payers share the machine by the time that they have used.
//!
//! A request that has computed for a millisecond goes on when it has a turn. There are as many
//! turns as cores. Whoever waits gets the next one in the order of what its payer has used lately,
//! so that three burning requests of one payer do not keep another waiting that is merely busy. A
//! turn is given back every few milliseconds, if somebody waits.

use super::fair_share::TenantUsage;
use insula_meter::Ended;
use std::{
    cmp::Ordering::{Equal, Less},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

/// Requests of a payer that may wait at a time. Each keeps a thread, which costs some memory.
const WAITING_PER_PAYER: usize = 256;
/// Requests of all payers that may wait at a time.
pub const WAITING: usize = 1_024;
/// Longest time between two looks at whether a waiting request has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The turns of all requests.
pub struct FairQueue {
    most: usize,
    state: Mutex<State>,
    closing: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Turns that are taken.
    taken: usize,
    /// Requests that wait, in the order of their arrival.
    waiting: Vec<Waiting>,
}

struct Waiting {
    usage: Arc<TenantUsage>,
    given: Arc<Given>,
}

/// A turn that a thread waits for.
struct Given {
    thread: Thread,
    is_given: AtomicBool,
}

/// A request that waits for a turn.
pub trait Waiter {
    /// The usage that it is charged to.
    fn usage(&self) -> Arc<TenantUsage>;

    /// The time, since one common moment.
    fn now(&self) -> Duration;

    /// The reason for which it need not wait any more, if there is one.
    fn gives_up(&self) -> Option<Ended>;
}

impl FairQueue {
    /// Returns as many turns as there are cores.
    pub fn new(cores: usize) -> Self {
        FairQueue {
            most: cores.max(1),
            state: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// Ends all requests that compute or wait, because the server ends.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Returns true once the server ends.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Takes a turn. Blocks the thread until there is one.
    ///
    /// # Errors
    /// Too many requests wait already, or the request has ended while it waited.
    pub fn take(&self, request: &impl Waiter) -> Result<(), Ended> {
        let given = {
            let mut state = self.state();
            if state.taken < self.most {
                state.taken += 1;
                return Ok(());
            }
            state.wait(request.usage())?
        };
        self.wait(&given, request)
    }

    /// Gives the turn to whoever waits and has used less, and takes it again.
    ///
    /// # Errors
    /// As [`FairQueue::take`]. The request has no turn then.
    pub fn pass(&self, request: &impl Waiter) -> Result<(), Ended> {
        let given = {
            let mut state = self.state();
            if state.waiting.is_empty() {
                return Ok(());
            }
            let given = state.wait(request.usage());
            state.give(request.now());
            given?
        };
        self.wait(&given, request)
    }

    /// Gives the turn back.
    pub fn leave(&self, now: Duration) {
        self.state().give(now);
    }

    fn wait(&self, given: &Arc<Given>, request: &impl Waiter) -> Result<(), Ended> {
        loop {
            if given.is_given.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(ended) = request.gives_up() {
                let mut state = self.state();
                match state.waiting.iter().position(|other| Arc::ptr_eq(&other.given, given)) {
                    Some(at) => drop(state.waiting.remove(at)),
                    // It was given meanwhile.
                    None => state.give(request.now()),
                }
                return Err(ended);
            }
            thread::park_timeout(LOOK);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The values are consistent between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds the current thread to those that wait.
    fn wait(&mut self, usage: Arc<TenantUsage>) -> Result<Arc<Given>, Ended> {
        let own = self.waiting.iter().filter(|other| usage.has_payer_of(&other.usage));
        if self.waiting.len() >= WAITING || own.count() >= WAITING_PER_PAYER {
            return Err(Ended::Crowded);
        }
        let given = Arc::new(Given {
            thread: thread::current(),
            is_given: AtomicBool::new(false),
        });
        self.waiting.push(Waiting {
            usage,
            given: given.clone(),
        });
        Ok(given)
    }

    /// Gives a turn that is free to the request whose payer has used least, and that has waited
    /// longest among those.
    fn give(&mut self, now: Duration) {
        let used = self
            .waiting
            .iter()
            .map(|other| other.usage.payer_seconds(now))
            .enumerate();
        let least = used.reduce(|best, other| match other.1.partial_cmp(&best.1).unwrap_or(Equal) {
            Less => other,
            _ => best,
        });
        let Some((at, _)) = least else {
            self.taken -= 1;
            return;
        };
        let Waiting { given, .. } = self.waiting.remove(at);
        given.is_given.store(true, Ordering::Release);
        given.thread.unpark();
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the queue holds threads back")]
mod tests {
    use super::*;
    use crate::guard::fair_share::{Charged, FairShare};
    use std::sync::mpsc;

    /// A request of a user, which gives up when `over` says so.
    struct Request {
        usage: Arc<TenantUsage>,
        over: Arc<AtomicBool>,
    }

    impl Waiter for Request {
        fn usage(&self) -> Arc<TenantUsage> {
            self.usage.clone()
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn gives_up(&self) -> Option<Ended> {
            self.over.load(Ordering::Relaxed).then_some(Ended::Late)
        }
    }

    fn request(shares: &FairShare, user: &str, used: Duration) -> Request {
        let meter = shares.meter(Duration::ZERO);
        shares.charge_to(&meter, &Charged::user(user.into()));
        meter.charge(used);
        Request {
            usage: meter.usage(),
            over: Arc::default(),
        }
    }

    /// Waits until some requests wait.
    fn until(turns: &FairQueue, waiting: usize) {
        while turns.state().waiting.len() != waiting {
            thread::yield_now();
        }
    }

    #[test]
    fn a_turn_goes_to_the_payer_that_used_least() {
        let (turns, shares) = (Arc::new(FairQueue::new(1)), FairShare::new(1, 100));
        let first = request(&shares, "first", Duration::ZERO);
        assert_eq!(turns.take(&first), Ok(()));
        let (told, order) = mpsc::channel();
        let users = [("loud", 900), ("busy", 30), ("loud", 0), ("quiet", 1)];
        let threads = users.iter().enumerate().map(|(at, (user, used))| {
            let (own, told) = (turns.clone(), told.clone());
            let request = request(&shares, user, Duration::from_millis(*used));
            let thread = thread::spawn(move || {
                own.take(&request).expect("nobody gives up");
                told.send(at).expect("the test listens");
                own.leave(Duration::ZERO);
            });
            until(&turns, at + 1);
            thread
        });
        let threads: Vec<_> = threads.collect();
        turns.leave(Duration::ZERO);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        // The two of one payer in the order of their arrival.
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [3, 1, 0, 2]);
        assert_eq!(turns.state().taken, 0);
    }

    #[test]
    fn a_request_that_has_ended_waits_no_more() {
        let (turns, shares) = (Arc::new(FairQueue::new(1)), FairShare::new(1, 100));
        let first = request(&shares, "first", Duration::ZERO);
        assert_eq!(turns.take(&first), Ok(()));
        let second = request(&shares, "second", Duration::ZERO);
        let over = second.over.clone();
        let waits = {
            let turns = turns.clone();
            thread::spawn(move || turns.take(&second))
        };
        until(&turns, 1);
        over.store(true, Ordering::Relaxed);
        assert_eq!(waits.join().expect("no panic"), Err(Ended::Late));
        turns.leave(Duration::ZERO);
        assert_eq!(turns.state().taken, 0);
        assert!(turns.state().waiting.is_empty());
    }
}
