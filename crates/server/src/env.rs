//! Environment of the server: time and randomness, passed to all code below.
//!
//! Simulations and tests pass their own. No other code of the server bases a decision on a clock.

use std::{
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use insula_api::{Clock, Rng, Timestamp};

/// Time and randomness.
#[derive(Clone)]
pub struct Env {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for names and UIDs.
    pub rng: Arc<dyn Rng>,
}

impl Env {
    /// Returns the clock of the machine and the randomness of the kernel.
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
    /// Returns the time since 1970. A clock before 1970 reads as 1970: certificates then fail with
    /// a message about their dates.
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
        // Without randomness the process has to end: predictable names and UIDs would be worse.
        getrandom::fill(buffer).expect("the kernel gives random bytes");
    }
}
