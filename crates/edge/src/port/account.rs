//! The account of a request: its time, its CPU time, and its turns.
//!
//! A task of a connection computes in *pieces*: from the moment that a thread begins to run it, or
//! that it got its turn. A piece of up to a millisecond runs on the threads that answer. Before it
//! becomes longer, the thread leaves them (the runtime lets another one answer in its place) and
//! takes a [turn](crate::guard::fair_queue). On a busy machine the thread may not have run in that
//! millisecond: only after it does its CPU time count, of which the piece has half a millisecond
//! more. So a request computes for one and a half milliseconds at most before others, whatever it
//! computes, and nobody has to know beforehand how long it will take.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use insula_meter::{Bounds, Ended, Scheduler, TenantPays, UNIT_NANOSECONDS};
use rustix::time::{ClockId, clock_gettime};

use super::{handover::leave_threads, priority::PriorityRuntimes};
use crate::guard::{
    fair_queue::Waiter,
    fair_share::{ConnectionMeter, TenantUsage},
};

/// Time that a piece may take on the threads that answer.
const INLINE: Duration = Duration::from_millis(1);
/// CPU time that it may take there after that: to leave costs more than to finish most requests.
const INLINE_CPU: Duration = Duration::from_micros(500);
/// Time after which a turn is passed on, if somebody waits.
const SLICE: Duration = Duration::from_millis(2);

/// Tells that there is no bound.
const UNBOUNDED: u64 = u64::MAX;

/// A computation of the current thread.
#[derive(Clone, Copy)]
struct Piece {
    begun: Instant,
    holds: Holds,
}

/// The thing that a piece holds while it computes, with the CPU time of the thread up to which the
/// request has paid. Times that pass are no measure of a request on a busy machine.
#[derive(Clone, Copy)]
enum Holds {
    /// The threads that answer.
    Inline,
    /// The threads that answer, after its time there, with the CPU time of the thread at that
    /// moment.
    InlineLate(Duration),
    /// A turn.
    Turn(Duration),
    /// A thread or a place of its own, without a turn.
    Own(Duration, TenantPays),
}

thread_local! {
    /// The piece of the task that this thread runs; `None` outside of a task of a connection.
    static PIECE: Cell<Option<Piece>> = const { Cell::new(None) };
}

/// The account of one request, or of the requests of one call.
pub(super) struct RequestAccount {
    runtimes: Arc<PriorityRuntimes>,
    connection: Arc<ConnectionMeter>,
    /// Microseconds since the start of the runtimes at which the request is late.
    late_at: AtomicU64,
    /// Microseconds of CPU time that are left.
    left: AtomicU64,
    /// The reason why the request has ended; 0 while it has not.
    ended: AtomicU8,
}

impl RequestAccount {
    pub(super) fn new(runtimes: Arc<PriorityRuntimes>, connection: Arc<ConnectionMeter>) -> Self {
        RequestAccount {
            runtimes,
            connection,
            late_at: AtomicU64::new(UNBOUNDED),
            left: AtomicU64::new(UNBOUNDED),
            ended: AtomicU8::new(0),
        }
    }

    /// Takes CPU time from what is left.
    fn spend(&self, cpu: Duration) -> Result<(), Ended> {
        let left = self.left.load(Ordering::Relaxed);
        if left == UNBOUNDED {
            return Ok(());
        }
        let left = left.saturating_sub(micros(cpu));
        self.left.store(left, Ordering::Relaxed);
        if left == 0 { Err(Ended::Spent) } else { Ok(()) }
    }

    fn end(&self, ended: Ended) -> Ended {
        let _ = self
            .ended
            .compare_exchange(0, code(ended), Ordering::Relaxed, Ordering::Relaxed);
        ended
    }

    /// Ends a piece that has a turn, and begins the next one when it has a turn again.
    fn pass(&self, took: Duration, since: Duration) -> Result<(), Ended> {
        self.connection.charge(took);
        PIECE.set(Some(Piece::with_turn()));
        self.spend(cpu_time().saturating_sub(since))?;
        if self.connection.peer_has_left() {
            return Err(Ended::Left);
        }
        begin_piece(self.runtimes.queue.pass(self))
    }

    /// Pays for a piece without a turn, and begins the next one.
    fn go_on(&self, since: Duration, pays: TenantPays) -> Result<(), Ended> {
        let now = cpu_time();
        PIECE.set(Some(Piece::own(now, pays)));
        self.pay(now.saturating_sub(since), pays)?;
        match self.connection.peer_has_left() {
            true => Err(Ended::Left),
            false => Ok(()),
        }
    }

    /// Pays for CPU time without a turn.
    fn pay(&self, cpu: Duration, pays: TenantPays) -> Result<(), Ended> {
        if pays == TenantPays::ByMeter {
            self.connection.charge(cpu);
        }
        self.spend(cpu)
    }

    /// Leaves the threads that answer, and begins a piece when it has a turn.
    fn leave(&self, took: Duration) -> Result<(), Ended> {
        self.connection.charge(took);
        begin_piece(leave_threads(|| self.runtimes.queue.take(self)))
    }
}

impl Scheduler for RequestAccount {
    fn check(&self, coming: u64) -> Result<(), Ended> {
        if let Some(ended) = self.ended() {
            return Err(self.end(ended));
        }
        let Some(piece) = PIECE.get() else { return Ok(()) };
        let took = piece.begun.elapsed();
        let next = match piece.holds {
            Holds::Turn(_) | Holds::Own(..) if took < SLICE => Ok(()),
            Holds::Turn(since) => self.pass(took, since),
            Holds::Own(since, pays) => self.go_on(since, pays),
            Holds::Inline | Holds::InlineLate(_) => {
                let coming = Duration::from_nanos(coming.saturating_mul(UNIT_NANOSECONDS));
                match piece.may_stay(took, coming) {
                    true => Ok(()),
                    false => self.leave(piece.computed(took)),
                }
            }
        };
        next.map_err(|ended| self.end(ended))
    }

    fn ended(&self) -> Option<Ended> {
        let late_at = self.late_at.load(Ordering::Relaxed);
        reason(self.ended.load(Ordering::Relaxed))
            .or_else(|| self.runtimes.queue.is_closing().then_some(Ended::Closing))
            .or_else(|| self.connection.is_closed().then_some(Ended::Left))
            .or_else(|| (late_at != UNBOUNDED && micros(self.now()) >= late_at).then_some(Ended::Late))
    }

    fn bound(&self, bounds: Option<Bounds>) {
        let late_at = bounds.map_or(UNBOUNDED, |bounds| micros(self.now().saturating_add(bounds.time)));
        self.late_at.store(late_at, Ordering::Relaxed);
        let left = bounds.map_or(UNBOUNDED, |bounds| micros(bounds.compute));
        self.left.store(left, Ordering::Relaxed);
    }

    fn run_without_turns(&self, pays: TenantPays, work: &mut dyn FnMut()) {
        let begun = cpu_time();
        let outer = Outer(PIECE.replace(Some(Piece::own(begun, pays))), begun);
        work();
        if let Some(Piece {
            holds: Holds::Own(since, pays),
            ..
        }) = PIECE.get()
            && let Err(ended) = self.pay(cpu_time().saturating_sub(since), pays)
        {
            self.end(ended);
        }
        drop(outer);
    }
}

/// The piece of a thread around work without turns, and the thread's CPU time at the start of that
/// work. Dropping it restores the piece, also after a panic.
struct Outer(Option<Piece>, Duration);

impl Drop for Outer {
    fn drop(&mut self) {
        let Outer(outer, begun) = *self;
        PIECE.set(outer.map(|outer| match outer.holds {
            // What was paid for within is not paid for again.
            Holds::Turn(since) => Piece {
                holds: Holds::Turn(since.saturating_add(cpu_time().saturating_sub(begun))),
                ..outer
            },
            Holds::Inline | Holds::InlineLate(_) | Holds::Own(..) => outer,
        }));
    }
}

impl Waiter for RequestAccount {
    fn usage(&self) -> Arc<TenantUsage> {
        self.connection.usage()
    }

    fn now(&self) -> Duration {
        self.runtimes.now()
    }

    fn gives_up(&self) -> Option<Ended> {
        self.ended()
            .or_else(|| self.connection.peer_has_left().then_some(Ended::Left))
    }
}

impl Piece {
    fn inline() -> Self {
        Piece {
            begun: Instant::now(),
            holds: Holds::Inline,
        }
    }

    /// Returns whether a piece on the threads that answer may stay there for what is coming, after
    /// the time that it took.
    fn may_stay(self, took: Duration, coming: Duration) -> bool {
        match self.holds {
            Holds::Inline if took.saturating_add(coming) < INLINE => true,
            Holds::Inline if coming < INLINE_CPU => {
                PIECE.set(Some(Piece {
                    holds: Holds::InlineLate(cpu_time()),
                    ..self
                }));
                true
            }
            Holds::InlineLate(since) => cpu_time().saturating_sub(since).saturating_add(coming) < INLINE_CPU,
            _ => false,
        }
    }

    /// Returns the time that a piece on the threads that answer has computed, of the time that it
    /// took.
    fn computed(self, took: Duration) -> Duration {
        match self.holds {
            Holds::InlineLate(since) => took.min(INLINE.saturating_add(cpu_time().saturating_sub(since))),
            _ => took,
        }
    }

    fn own(cpu: Duration, pays: TenantPays) -> Self {
        Piece {
            begun: Instant::now(),
            holds: Holds::Own(cpu, pays),
        }
    }

    fn with_turn() -> Self {
        Piece {
            begun: Instant::now(),
            holds: Holds::Turn(cpu_time()),
        }
    }
}

/// Begins a piece, with the turn if it was granted. Returns whether it was.
fn begin_piece(turn: Result<(), Ended>) -> Result<(), Ended> {
    PIECE.set(Some(match turn {
        Ok(()) => Piece::with_turn(),
        Err(_) => Piece::inline(),
    }));
    turn
}

/// Returns the CPU time of the current thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(time.tv_sec.unsigned_abs(), nanoseconds)
}

/// Runs a task on the current thread, and gives its turn back if it took one. Returns the time of
/// the last piece, which nobody has charged yet.
pub(super) fn run<T>(runtimes: &PriorityRuntimes, task: impl FnOnce() -> T) -> (T, Duration) {
    let leaving = Leaving(runtimes);
    PIECE.set(Some(Piece::inline()));
    let done = task();
    let took = PIECE.get().map(|piece| piece.begun.elapsed()).unwrap_or_default();
    drop(leaving);
    (done, took)
}

/// The end of a task's run, also by a panic.
struct Leaving<'a>(&'a PriorityRuntimes);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if PIECE.take().is_some_and(|piece| matches!(piece.holds, Holds::Turn(_))) {
            self.0.queue.leave(self.0.now());
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(UNBOUNDED - 1)
}

fn code(ended: Ended) -> u8 {
    match ended {
        Ended::Late => 1,
        Ended::Spent => 2,
        Ended::Crowded => 3,
        Ended::Closing => 4,
        Ended::Left => 5,
    }
}

fn reason(code: u8) -> Option<Ended> {
    use Ended::{Closing, Crowded, Late, Left, Spent};
    [Late, Spent, Crowded, Closing, Left]
        .into_iter()
        .find(|ended| self::code(*ended) == code)
}

#[cfg(test)]
mod tests;
