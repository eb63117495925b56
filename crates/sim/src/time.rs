//! Time of a world: it passes when the world says so.

use futures_util::future::BoxFuture;
use insula_api::{Clock, Timestamp};
use insula_controllers::Sleep;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The first moment of each world.
const BEGIN_SECONDS: i64 = 1_795_255_200;
const MICROS: i64 = 1_000_000;

/// Sleepers by the moment at which they wake, and their order.
type Sleepers = BTreeMap<(i64, u64), (Arc<AtomicBool>, Waker)>;

/// A future that waits.
struct Sleeper {
    time: Arc<Time>,
    at: i64,
    /// Number among those that wait, once it does.
    place: Option<u64>,
    is_over: Arc<AtomicBool>,
}

impl Sleeper {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut sleepers = self.time.sleepers.lock();
        let place = *self.place.get_or_insert_with(|| {
            sleepers.0 += 1;
            sleepers.0
        });
        let sleeper = (self.is_over.clone(), context.waker().clone());
        sleepers.1.insert((self.at, place), sleeper);
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.time.sleepers.lock().1.remove(&(self.at, place));
        }
    }
}

/// The clock of all servers, and who waits for it.
pub struct Time {
    micros: AtomicI64,
    sleepers: Mutex<(u64, Sleepers)>,
}

impl Time {
    /// Returns the first moment.
    pub fn begin() -> Arc<Time> {
        Arc::new(Time {
            micros: AtomicI64::new(BEGIN_SECONDS * MICROS),
            sleepers: Mutex::default(),
        })
    }

    /// Returns the seconds since the beginning.
    pub fn seconds(&self) -> i64 {
        self.micros.load(Ordering::Relaxed) / MICROS - BEGIN_SECONDS
    }

    /// Returns the timer of a server's reconcilers.
    pub fn sleep(self: &Arc<Self>) -> Sleep {
        let time = self.clone();
        Arc::new(move |seconds| time.clone().slept(seconds))
    }

    fn slept(self: Arc<Self>, seconds: u64) -> BoxFuture<'static, ()> {
        self.pause(Duration::from_secs(seconds))
    }

    /// Returns a future that is ready after a time.
    pub fn pause(self: &Arc<Self>, time: Duration) -> BoxFuture<'static, ()> {
        let pause = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let at = self.micros.load(Ordering::Relaxed).saturating_add(pause);
        let mut sleeper = Sleeper {
            time: self.clone(),
            at,
            place: None,
            is_over: Arc::default(),
        };
        Box::pin(std::future::poll_fn(move |context| sleeper.poll(context)))
    }

    /// Lets time pass until the next sleepers wake, at most so many seconds. Returns the seconds.
    pub fn pass(&self, seconds_max: i64) -> i64 {
        let mut sleepers = self.sleepers.lock();
        let now = self.micros.load(Ordering::Relaxed);
        let limit = now + seconds_max * MICROS;
        let next = sleepers
            .1
            .keys()
            .next()
            .map_or(limit, |(at, _)| (*at).clamp(now, limit));
        self.micros.store(next, Ordering::Relaxed);
        let later = sleepers.1.split_off(&(next + 1, 0));
        for (is_over, waker) in std::mem::replace(&mut sleepers.1, later).into_values() {
            is_over.store(true, Ordering::Relaxed);
            waker.wake();
        }
        (next - now) / MICROS
    }
}

impl Clock for Time {
    fn now(&self) -> Timestamp {
        Timestamp(self.micros.load(Ordering::Relaxed).div_euclid(MICROS))
    }

    fn now_micros(&self) -> i64 {
        self.micros.load(Ordering::Relaxed)
    }
}
