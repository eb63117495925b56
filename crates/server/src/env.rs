//! The world, as the server hands it to everything below: time and randomness.
//!
//! Simulations and tests pass their own. Nothing else in the server reads a clock to decide
//! something.

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use insula_api::{Clock, Rng, Timestamp};

/// What the server takes from its surroundings.
#[derive(Clone)]
pub struct Env {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness: names, uids.
    pub rng: Arc<dyn Rng>,
}

impl Env {
    /// The machine's clock and the kernel's randomness.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(SystemClock { begun: Instant::now() }),
            rng: Arc::new(KernelRng),
        }
    }
}

struct SystemClock {
    /// The moment from which monotonic time counts.
    begun: Instant,
}

impl SystemClock {
    /// A clock before 1970 reads as 1970: certificates then fail with a message about their dates.
    fn since_1970() -> std::time::Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(Self::since_1970().as_secs()).unwrap_or(i64::MAX))
    }

    fn now_micros(&self) -> i64 {
        i64::try_from(Self::since_1970().as_micros()).unwrap_or(i64::MAX)
    }

    fn monotonic_micros(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

struct KernelRng;

impl Rng for KernelRng {
    fn fill(&self, buffer: &mut [u8]) {
        // There is nothing sensible to do without randomness: predictable names and uids would be
        // worse than an end.
        getrandom::fill(buffer).expect("the kernel gives random bytes");
    }
}
