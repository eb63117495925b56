//! CPU time of tenants and payers, and how it compares with that of others.

use super::HALF_LIFE;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

/// Half-life of the usage by which a throttled tenant returns: long beside the second after which a
/// refused client retries.
const LONG_HALF_LIFE: Duration = Duration::from_secs(2);
/// Part of the heaviest usage from which a usage counts as one of the heaviest.
const HEAVIEST_PART: f64 = 0.75;
/// Part of both thresholds at which throttling ends: a tenant near a threshold does not change its
/// priority with every request.
const RETURN_PART: f64 = 0.5;
/// Time without a request of another tenant after which a tenant has no contention.
const CONTENTION_TIME: Duration = Duration::from_secs(1);

/// The largest usage of several: the bits of its [`level`].
#[derive(Default)]
struct Heaviest(AtomicU64);

/// Activity of all tenants or all payers, as far as each one's throttling depends on it.
#[derive(Default)]
pub(super) struct Contention {
    /// Address of the usage that the last request was charged to.
    last: AtomicUsize,
    /// Time at which `last` changed, in microseconds plus one; 0 before that.
    changed: AtomicU64,
    heaviest: Heaviest,
}

/// CPU time of one tenant.
pub struct TenantUsage {
    share: f64,
    contention: Arc<Contention>,
    used: Mutex<Used>,
    payer: Arc<PayerUsage>,
    /// One throttle slot.
    pub(super) slots: Arc<Semaphore>,
}

/// CPU time of all that one user pays for.
pub(super) struct PayerUsage {
    /// `None` for a tenant that pays for itself.
    name: Option<Arc<str>>,
    contention: Arc<Contention>,
    used: Mutex<Used>,
    /// The heaviest of its tenants.
    heaviest: Heaviest,
}

/// Decayed CPU time.
#[derive(Clone, Copy)]
struct Used {
    /// CPU seconds that decay with [`HALF_LIFE`].
    seconds: f64,
    /// CPU seconds that decay with [`LONG_HALF_LIFE`].
    long: f64,
    /// Time up to which both have decayed.
    at: Duration,
    throttled: bool,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The values are consistent between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns decayed usage as a number that stays constant while it decays, so that usages of
/// different times can be compared. Never negative, so that the order of bits is the order of
/// numbers: 2⁻⁶⁴ seconds count as none.
fn level(seconds: f64, now: Duration) -> f64 {
    (seconds.log2() + 64.0 + now.div_duration_f64(HALF_LIFE)).max(0.0)
}

impl Heaviest {
    /// Returns true for usage that is about that of the heaviest.
    fn is_about(&self, seconds: f64, now: Duration) -> bool {
        level(seconds / HEAVIEST_PART, now) > f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn note(&self, seconds: f64, now: Duration) {
        let level = level(seconds, now).to_bits();
        // Nearly always another one is heavier: the load alone leaves the cache line shared.
        if level > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(level, Ordering::Relaxed);
        }
    }
}

impl Contention {
    /// Notes a request that is charged to the usage at an address.
    fn note_request(&self, usage: usize, now: Duration) {
        let before = self.last.swap(usage, Ordering::Relaxed);
        if before != usage && before != 0 {
            self.changed.store(micros(now) + 1, Ordering::Relaxed);
        }
    }

    /// Returns true while more than one is active.
    fn is_active(&self, now: Duration) -> bool {
        let changed = self.changed.load(Ordering::Relaxed);
        changed > 0 && micros(now).saturating_sub(changed) < micros(CONTENTION_TIME)
    }

    /// Notes a usage, and returns true if it is above the share and among the heaviest while others
    /// are active.
    fn is_above(&self, used: &Used, share: f64, now: Duration) -> bool {
        self.heaviest.note(used.seconds, now);
        let seconds = used.compared();
        seconds > share && self.heaviest.is_about(seconds, now) && self.is_active(now)
    }
}

impl Used {
    fn none(now: Duration) -> Self {
        Used {
            seconds: 0.0,
            long: 0.0,
            at: now,
            throttled: false,
        }
    }

    fn decay(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.seconds *= (-passed / HALF_LIFE.as_secs_f64()).exp2();
        self.long *= (-passed / LONG_HALF_LIFE.as_secs_f64()).exp2();
        self.at = self.at.max(now);
    }

    fn charge(&mut self, took: Duration) {
        self.seconds += took.as_secs_f64();
        self.long += took.as_secs_f64();
    }

    /// Returns the usage that is compared with thresholds: more than the present one for a tenant
    /// that is throttled.
    fn compared(&self) -> f64 {
        // In proportion to the half-lives: both are equal under an even load.
        let long = self.long * HALF_LIFE.as_secs_f64() / LONG_HALF_LIFE.as_secs_f64();
        match self.throttled {
            true => self.seconds.max(long) / RETURN_PART,
            false => self.seconds,
        }
    }
}

impl TenantUsage {
    pub(super) fn new(share: f64, contention: Arc<Contention>, payer: Arc<PayerUsage>, now: Duration) -> Self {
        TenantUsage {
            share,
            contention,
            used: Mutex::new(Used::none(now)),
            payer,
            slots: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the name of the user that pays.
    pub(super) fn payer_name(&self) -> Option<&str> {
        self.payer.name.as_deref()
    }

    /// Returns the time up to which the usage has decayed.
    pub(super) fn time(&self) -> Duration {
        locked(&self.used).at
    }

    pub(super) fn is_idle(&self, now: Duration) -> bool {
        now.saturating_sub(self.time()) >= super::IDLE_TIME
    }

    pub(super) fn note_request(self: &Arc<Self>, now: Duration) {
        self.contention.note_request(Arc::as_ptr(self).addr(), now);
        let payer = Arc::as_ptr(&self.payer).addr();
        self.payer.contention.note_request(payer, now);
    }

    /// Returns the time until usage has decayed to `seconds`; zero while no other tenant is active.
    pub(super) fn delay(&self, seconds: f64, now: Duration) -> Duration {
        let mut used = locked(&self.used);
        used.decay(now);
        match self.contention.is_active(now) {
            true => HALF_LIFE.mul_f64((used.seconds / seconds).log2().max(0.0)),
            false => Duration::ZERO,
        }
    }

    /// Returns the decayed CPU seconds of all that the payer pays for.
    pub(crate) fn payer_seconds(&self, now: Duration) -> f64 {
        let mut used = *locked(&self.payer.used);
        used.decay(now);
        used.seconds
    }

    /// Returns true for the usage of a tenant of the same payer.
    pub(crate) fn has_payer_of(&self, other: &TenantUsage) -> bool {
        Arc::ptr_eq(&self.payer, &other.payer)
    }

    pub(super) fn charge(&self, took: Duration) {
        locked(&self.used).charge(took);
        locked(&self.payer.used).charge(took);
    }

    /// Decides whether the tenant is throttled.
    pub(super) fn is_throttled(&self, now: Duration) -> bool {
        let mut used = locked(&self.used);
        used.decay(now);
        let above = self.contention.is_above(&used, self.share, now);
        // Also of a tenant that is above: the usage of its payer decays by each question.
        let payer = self.payer.throttles(&used, self.share, now);
        used.throttled = above || payer;
        used.throttled
    }
}

impl PayerUsage {
    pub(super) fn new(name: Option<Arc<str>>, contention: Arc<Contention>, now: Duration) -> Self {
        PayerUsage {
            name,
            contention,
            used: Mutex::new(Used::none(now)),
            heaviest: Heaviest::default(),
        }
    }

    /// Returns true if the payer is above its share, and one of its tenants among its heaviest.
    fn throttles(&self, tenant: &Used, share: f64, now: Duration) -> bool {
        self.heaviest.note(tenant.seconds, now);
        let mut used = locked(&self.used);
        used.decay(now);
        used.throttled = self.contention.is_above(&used, share, now);
        used.throttled && self.heaviest.is_about(tenant.compared(), now)
    }
}
