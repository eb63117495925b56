//! The account of a request: its time, its CPU time, and its turns.
//!
//! A task of a connection computes in *pieces*: from the moment that a thread begins to run it, or
//! that it got its turn. A piece of up to a millisecond runs on the threads that answer. Before it
//! becomes longer, the thread leaves them (the runtime lets another one answer in its place) and
//! takes a [turn](crate::guard::fair_queue). So a request delays others by a millisecond, whatever
//! it computes, and nobody has to know beforehand how long it will take. On a busy machine the
//! thread may not have run in that millisecond: only after it does its CPU time count, of which the
//! piece has half a millisecond more.

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
                    false => self.leave(took),
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

    /// Returns whether a piece on the threads that answer may stay there for what is coming, after a
    /// time that it took.
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
mod tests {
    use super::*;
    use crate::guard::fair_share::FairShare;
    use insula_meter::Meter;
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize},
        thread,
    };
    use tokio::sync::{mpsc, oneshot};

    const BOUNDS: Bounds = Bounds {
        time: Duration::from_secs(60),
        compute: Duration::from_secs(20),
    };

    fn runtimes() -> Arc<PriorityRuntimes> {
        PriorityRuntimes::new(1, FairShare::new(1, 100))
    }

    /// Computes on the only thread that answers until another task of that thread has run.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_long_computation_leaves_the_threads_that_answer() {
        let runtimes = runtimes();
        let connection = runtimes.meter();
        let meter = runtimes.request_meter(&connection);
        meter.bound(Some(BOUNDS));
        let (answered, done) = (Arc::new(AtomicBool::new(false)), oneshot::channel());
        let seen = answered.clone();
        runtimes.spawn(&connection, async move {
            let mut spent = Ok(());
            while spent.is_ok() && !seen.load(Ordering::Relaxed) {
                spent = meter.spend(100);
            }
            let _ = done.0.send(spent);
        });
        tokio::spawn(async move { answered.store(true, Ordering::Relaxed) });
        assert_eq!(done.1.await, Ok(Ok(())));
        // The turn was given back at the end.
        let first = RequestAccount::new(runtimes.clone(), connection);
        assert_eq!(runtimes.queue.take(&first), Ok(()));
    }

    /// A thread that does not run takes no time from those that answer.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_had_to_wait_does_not_leave() {
        let runtimes = runtimes();
        let connection = runtimes.meter();
        let meter = runtimes.request_meter(&connection);
        meter.bound(Some(BOUNDS));
        let (done, ended) = oneshot::channel();
        runtimes.spawn(&connection, async move {
            let stays = || matches!(PIECE.get().map(|piece| piece.holds), Some(Holds::InlineLate(_)));
            let mut stayed = Vec::new();
            for _ in 0..3 {
                thread::sleep(2 * INLINE);
                stayed.push((meter.check(), stays()));
            }
            let since = cpu_time();
            while cpu_time().saturating_sub(since) < 2 * INLINE_CPU && meter.spend(100).is_ok() {}
            let _ = done.send((stayed, stays()));
        });
        let waited = vec![(Ok(()), true); 3];
        assert_eq!(ended.await, Ok((waited, false)));
    }

    /// Threads that leave and threads that come back pass one slot of the runtime: whatever their
    /// order, somebody answers.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn computations_that_come_and_go_leave_somebody_to_answer() {
        let runtimes = PriorityRuntimes::new(2, FairShare::new(2, 100));
        let (answers, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (told, mut ends) = mpsc::unbounded_channel();
        let (count, ended) = (answers.clone(), over.clone());
        tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let spawner = thread::spawn(move || {
            for n in 0..400 {
                let connection = runtimes.meter();
                let meter = runtimes.request_meter(&connection);
                meter.bound(Some(BOUNDS));
                let (seen, told) = (answers.clone(), told.clone());
                runtimes.spawn(&connection, async move {
                    let until = seen.load(Ordering::Relaxed) + 5;
                    let mut spent = Ok(());
                    while spent.is_ok() && seen.load(Ordering::Relaxed) < until {
                        spent = meter.spend(100);
                    }
                    let _ = told.send(spent);
                });
                if n % 8 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
            }
        });
        for _ in 0..400 {
            assert_eq!(ends.recv().await, Some(Ok(())));
        }
        over.store(true, Ordering::Relaxed);
        spawner.join().expect("no panic");
    }

    /// Computes until the meter ends it, at most for a second.
    fn burn(meter: &Meter) -> Result<(), Ended> {
        let begun = Instant::now();
        let mut spent = Ok(());
        while spent.is_ok() && begun.elapsed() < Duration::from_secs(1) {
            spent = meter.spend(100);
        }
        spent
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_without_turns_is_paid_for_and_ends() {
        let runtimes = runtimes();
        for (pays, is_charged) in [(TenantPays::ByMeter, true), (TenantPays::ByRunner, false)] {
            let connection = runtimes.meter();
            let meter = runtimes.request_meter(&connection);
            let compute = Duration::from_millis(5);
            meter.bound(Some(Bounds { compute, ..BOUNDS }));
            let own = meter.clone();
            let burnt = thread::spawn(move || own.without_turns(pays, || burn(&own)));
            assert_eq!(burnt.join().expect("no panic"), Err(Ended::Spent), "{pays:?}");
            assert_eq!(meter.check(), Err(Ended::Spent));
            let used = connection.usage().payer_seconds(runtimes.now());
            assert_eq!(used > 0.002, is_charged, "{pays:?}: {used} s");
        }
    }

    /// CPU time without a turn, within a piece with one, is not taken twice.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_without_turns_is_paid_for_once() {
        let runtimes = runtimes();
        let connection = runtimes.meter();
        let meter = runtimes.request_meter(&connection);
        let compute = Duration::from_millis(60);
        meter.bound(Some(Bounds { compute, ..BOUNDS }));
        let (done, ended) = oneshot::channel();
        runtimes.spawn(&connection, async move {
            let busy = |time: Duration| {
                let since = cpu_time();
                while cpu_time().saturating_sub(since) < time && meter.spend(100).is_ok() {}
            };
            busy(Duration::from_millis(5));
            meter.without_turns(TenantPays::ByRunner, || busy(Duration::from_millis(35)));
            busy(Duration::from_millis(5));
            let _ = done.send(meter.check());
        });
        assert_eq!(ended.await, Ok(Ok(())));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_computation_ends_with_its_time() {
        for (time, compute, want) in [
            (Duration::from_millis(5), BOUNDS.compute, Ended::Late),
            (BOUNDS.time, Duration::from_millis(5), Ended::Spent),
        ] {
            let runtimes = runtimes();
            let connection = runtimes.meter();
            let meter = runtimes.request_meter(&connection);
            meter.bound(Some(Bounds { time, compute }));
            let (done, ended) = oneshot::channel();
            runtimes.spawn(&connection, async move {
                let ended = loop {
                    if let Err(ended) = meter.spend(100) {
                        break ended;
                    }
                };
                // It has no result any more, whatever the clock says later.
                let _ = done.send((ended, meter.check()));
            });
            assert_eq!(ended.await, Ok((want, Err(want))));
        }
    }
}
