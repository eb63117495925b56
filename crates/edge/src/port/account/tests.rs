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
            stayed.push((meter.spend(5_000), stays()));
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
