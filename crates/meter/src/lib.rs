//! The account of the work that one request makes the server do.
//!
//! Whoever computes what a tenant has chosen takes a [`Meter`] and spends units of it, *before* the
//! work where its size is known, and every few microseconds where it is not: expressions, patterns,
//! paths, patches, conversions, decoding. So no evaluator can be called without saying who pays.
//!
//! The meter adds units up, and every tenth of a millisecond has its [`Scheduler`] look at the
//! clock. That is the server's part: it moves long work away from the threads that answer, lets
//! payers take turns, and ends work that nobody waits for. This crate knows neither threads nor
//! time.

mod fuel;

pub use fuel::{Empty, Fuel};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds that a unit of work takes, about, on one core in an optimised build: the order of
/// magnitude of a field access in an expression.
pub const UNIT_NANOSECONDS: u64 = 20;

/// Bytes that are read or written for a unit.
const BYTES_PER_UNIT: u64 = 2;

/// Units between two looks at the clock: about a tenth of a millisecond.
const UNITS_BETWEEN_CHECKS: u64 = 100_000 / UNIT_NANOSECONDS;

/// The server's side of a [`Meter`]: who pays for a request, and until when it may compute.
pub trait Scheduler: Send + Sync {
    /// Notes that the request has computed for a while, and is about to do `coming` units of work.
    /// May block, when others have their turn.
    ///
    /// # Errors
    /// The request may compute no further. Every later call returns the same reason.
    fn check(&self, coming: u64) -> Result<(), Ended>;

    /// Returns the reason for which the request may compute no further, if there is one.
    fn ended(&self) -> Option<Ended>;

    /// Bounds the work from now on until the next call; `None` lifts the bounds.
    fn bound(&self, bounds: Option<Bounds>);

    /// Runs work once that takes no turns on the current thread, and counts its CPU time.
    fn run_without_turns(&self, pays: TenantPays, work: &mut dyn FnMut());
}

/// The account of the tenant that work without turns is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantPays {
    /// The meter charges the tenant.
    ByMeter,
    /// Whoever runs the work charges the tenant.
    ByRunner,
}

/// The bounds of a request's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Time until the answer.
    pub time: Duration,
    /// CPU time.
    pub compute: Duration,
}

/// The reason for which a request may compute no further. The request has no result then: what an
/// evaluator returned is no verdict about the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// Its time is over.
    #[error("Timeout: request did not complete within the allotted timeout")]
    Late,
    /// It has used the CPU time that one request may use.
    #[error("Timeout: the request needs more CPU time than one request may use (limits.computeSeconds)")]
    Spent,
    /// Too many requests of the same payer wait for their turn to compute.
    #[error("too many requests of the same owner wait for their turn to compute")]
    Crowded,
    /// The server ends.
    #[error("the server is shutting down")]
    Closing,
    /// Its client has closed the connection.
    #[error("the client has closed the connection")]
    Left,
}

/// Work that the server does for itself, by its kind: nobody pays for it and nothing ends it. Code
/// that answers a request has a [`Meter`] instead; `cargo xtask tidy` looks that it has no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerWork {
    /// Reading a store when the server starts, or anew.
    Load,
    /// Bringing objects to the state that their specification wants.
    Reconciler,
    /// Moving stored objects to another form.
    Migration,
    /// An operation that goes on after the answer to its request.
    Operation,
    /// Records and measures of the server itself.
    Housekeeping,
    /// A program that is no server, and tests.
    Tool,
}

/// The account that work is charged to. Clones charge the same one.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<Charged>>);

struct Charged {
    /// Units since the last check.
    unchecked: AtomicU64,
    account: Box<dyn Scheduler>,
}

impl Meter {
    /// Returns the meter of a request.
    pub fn new(account: impl Scheduler + 'static) -> Self {
        Meter(Some(Arc::new(Charged {
            unchecked: AtomicU64::new(0),
            account: Box::new(account),
        })))
    }

    /// Returns the meter of work that no tenant makes the server do and that nothing ends: that of
    /// tools, of tests, and of the server for itself.
    pub const fn unbounded() -> Self {
        Meter(None)
    }

    /// Returns true for work that no tenant makes the server do.
    pub const fn is_unbounded(&self) -> bool {
        self.0.is_none()
    }

    /// Spends units on work that comes next.
    ///
    /// # Errors
    /// The request may compute no further.
    #[inline]
    pub fn spend(&self, units: u64) -> Result<(), Ended> {
        match &self.0 {
            Some(charged) => charged.spend(units),
            None => Ok(()),
        }
    }

    /// Spends the units of reading or writing some bytes once.
    ///
    /// # Errors
    /// The request may compute no further.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), Ended> {
        self.spend(bytes as u64 / BYTES_PER_UNIT + 1)
    }

    /// Runs work that takes no turns: others wait for a place that it holds, or it has a thread of
    /// its own. Its CPU time counts for the request all the same, and ends it.
    pub fn without_turns<T>(&self, pays: TenantPays, work: impl FnOnce() -> T) -> T {
        let Some(charged) = &self.0 else { return work() };
        let (mut work, mut done) = (Some(work), None);
        charged
            .account
            .run_without_turns(pays, &mut || done = work.take().map(|work| work()));
        done.expect("a scheduler runs the work once")
    }

    /// Bounds the work from now on until the next call; `None` lifts the bounds, for an answer that
    /// streams.
    pub fn bound(&self, bounds: Option<Bounds>) {
        if let Some(charged) = &self.0 {
            charged.account.bound(bounds);
        }
    }

    /// Checks that the request may still have a result.
    ///
    /// # Errors
    /// It may compute no further.
    pub fn check(&self) -> Result<(), Ended> {
        match self.0.as_ref().and_then(|charged| charged.account.ended()) {
            Some(ended) => Err(ended),
            None => Ok(()),
        }
    }
}

impl Charged {
    fn spend(&self, units: u64) -> Result<(), Ended> {
        let unchecked = self.unchecked.fetch_add(units, Ordering::Relaxed);
        if unchecked.saturating_add(units) < UNITS_BETWEEN_CHECKS {
            return Ok(());
        }
        self.unchecked.store(0, Ordering::Relaxed);
        self.account.check(units)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Some(_) => "Meter",
            None => "Meter(unbounded)",
        })
    }
}
