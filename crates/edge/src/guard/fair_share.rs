//! Fair sharing of CPU time between tenants.
//!
//! The server charges each tenant for the CPU time of its requests. Usage decays with a half-life
//! of `HALF_LIFE`. A tenant is *throttled* while other tenants are active and it has used more
//! than a tenth of the machine and about as much as the heaviest tenant: its requests run on
//! threads of low priority. So a flood gets the CPU time that others leave, and delays nobody,
//! however much they do themselves. A throttled tenant returns to normal priority when its usage of
//! the last seconds has decayed, too, or each burst of a flood would begin at normal priority. A
//! tenant without others is never throttled.
//!
//! A limit may cap the CPU share of one workspace while other tenants are active. Requests above
//! the cap queue for a throttle slot, one at a time: a flood slows others down for as
//! long as it runs, whatever its priority, and the cap makes that a small part of the time.
//!
//! This module keeps the usage. The threads, and the tasks that run on them, are the server's.

mod throttle;

use dashmap::DashMap;
use insula_api::ClusterName;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

pub use throttle::ThrottleSlot;

/// Half-life of usage.
const HALF_LIFE: Duration = Duration::from_millis(250);
/// Half-life of the usage by which a throttled tenant returns: long beside the second after which a
/// refused client retries.
const LONG_HALF_LIFE: Duration = Duration::from_secs(2);
/// Share of the machine's CPU time above which a tenant may be throttled.
const SHARE: f64 = 0.1;
/// Part of the heaviest tenant's usage from which a tenant counts as one of the heaviest.
const HEAVIEST_PART: f64 = 0.75;
/// Part of both thresholds at which a throttled tenant returns: a tenant near a threshold does not
/// change its priority with every request.
const RETURN_PART: f64 = 0.5;
/// Time without a request of another tenant after which a tenant has no contention.
const CONTENTION_TIME: Duration = Duration::from_secs(1);
/// Number of tenants from which idle ones are removed; doubled by what is left after a sweep.
const SWEEP_MIN: usize = 1_024;
/// Age of an idle tenant's usage at which it is removed: by then a thirtieth is left with the long
/// half-life.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A tenant that is charged for CPU time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tenant {
    /// All users of a workspace.
    Workspace(ClusterName),
    /// A user, for requests outside of workspaces.
    User(Arc<str>),
}

/// The usage of all tenants. Clones share it.
#[derive(Clone)]
pub struct FairShare(Arc<TenantUsages>);

struct TenantUsages {
    /// Decayed usage above which a tenant may be throttled, in CPU seconds.
    share: f64,
    limit: Option<Limit>,
    contention: Arc<Contention>,
    tenants: DashMap<Tenant, Arc<TenantUsage>>,
    sweep_at: AtomicUsize,
}

/// Cap on the CPU share of a workspace while other tenants are active.
#[derive(Clone, Copy)]
struct Limit {
    /// Hundredths of all cores.
    percent: usize,
    /// Decayed usage at the cap, in CPU seconds.
    seconds: f64,
}

/// Activity of all tenants, as far as each one's throttling depends on it.
struct Contention {
    /// Address of the usage of the tenant that sent the last request.
    last: AtomicUsize,
    /// Time at which `last` changed, in microseconds plus one; 0 before that.
    changed: AtomicU64,
    /// Usage of the heaviest tenant: the bits of its [`level`].
    heaviest: AtomicU64,
}

/// CPU time of one tenant.
pub struct TenantUsage {
    share: f64,
    contention: Arc<Contention>,
    used: Mutex<Used>,
    /// One throttle slot.
    slots: Arc<Semaphore>,
}

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

/// Meter of a connection. It charges the tenant of the connection's last request; before any
/// request, a usage of its own.
pub struct ConnectionMeter(Mutex<Arc<TenantUsage>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

impl FairShare {
    /// Returns the usage of no tenants yet, on a machine with `cores` cores, of which a workspace
    /// may use `percent` hundredths while other tenants are active; 100 is no cap. Times of all
    /// methods are since one common moment.
    pub fn new(cores: usize, percent: usize) -> Self {
        // Decayed usage of a tenant that uses all cores all the time.
        let all = cores.max(1) as f64 * HALF_LIFE.as_secs_f64() / std::f64::consts::LN_2;
        let limit = (percent < 100).then_some(Limit {
            percent,
            seconds: all * percent as f64 / 100.0,
        });
        let contention = Arc::new(Contention {
            last: AtomicUsize::new(0),
            changed: AtomicU64::new(0),
            heaviest: AtomicU64::new(0),
        });
        FairShare(Arc::new(TenantUsages {
            share: SHARE * all,
            limit,
            contention,
            tenants: DashMap::new(),
            sweep_at: AtomicUsize::new(SWEEP_MIN),
        }))
    }

    /// Returns the meter of a new connection.
    pub fn meter(&self, now: Duration) -> ConnectionMeter {
        ConnectionMeter(Mutex::new(self.0.new_usage(now)))
    }

    /// Charges the connection to a tenant from here on, and returns the tenant's usage.
    pub fn charge_to(&self, meter: &ConnectionMeter, tenant: &Tenant) -> Arc<TenantUsage> {
        let now = meter.now();
        let usage = self.0.for_tenant(tenant, now);
        self.0.contention.note_request(&usage, now);
        meter.charge_usage(&usage);
        usage
    }

    /// Charges a tenant for CPU time beside its connections, which wait for it.
    pub fn charge(&self, tenant: &Tenant, took: Duration) {
        if let Some(usage) = self.0.tenants.get(tenant) {
            usage.charge(took);
        }
    }
}

impl TenantUsages {
    fn new_usage(&self, now: Duration) -> Arc<TenantUsage> {
        let used = Used {
            seconds: 0.0,
            long: 0.0,
            at: now,
            throttled: false,
        };
        Arc::new(TenantUsage {
            share: self.share,
            contention: self.contention.clone(),
            used: Mutex::new(used),
            slots: Arc::new(Semaphore::new(1)),
        })
    }

    fn for_tenant(&self, tenant: &Tenant, now: Duration) -> Arc<TenantUsage> {
        if let Some(usage) = self.tenants.get(tenant) {
            return usage.clone();
        }
        self.sweep(now);
        let usage = self
            .tenants
            .entry(tenant.clone())
            .or_insert_with(|| self.new_usage(now));
        usage.clone()
    }

    /// Removes idle tenants once their number has doubled.
    fn sweep(&self, now: Duration) {
        if self.tenants.len() < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        self.tenants
            .retain(|_, usage| now.saturating_sub(locked(&usage.used).at) < IDLE_TIME);
        self.sweep_at
            .store((self.tenants.len() * 2).max(SWEEP_MIN), Ordering::Relaxed);
    }
}

impl Contention {
    fn note_request(&self, usage: &Arc<TenantUsage>, now: Duration) {
        let tenant = Arc::as_ptr(usage).addr();
        let before = self.last.swap(tenant, Ordering::Relaxed);
        if before != tenant && before != 0 {
            self.changed.store(micros(now) + 1, Ordering::Relaxed);
        }
    }

    /// Returns true for usage that is about that of the heaviest tenant.
    fn is_among_heaviest(&self, seconds: f64, now: Duration) -> bool {
        level(seconds / HEAVIEST_PART, now) > f64::from_bits(self.heaviest.load(Ordering::Relaxed))
    }

    fn note_usage(&self, seconds: f64, now: Duration) {
        let level = level(seconds, now).to_bits();
        // Nearly always another tenant is heavier: the load alone leaves the cache line shared.
        if level > self.heaviest.load(Ordering::Relaxed) {
            self.heaviest.fetch_max(level, Ordering::Relaxed);
        }
    }

    /// Returns true while more than one tenant is active.
    fn is_active(&self, now: Duration) -> bool {
        let changed = self.changed.load(Ordering::Relaxed);
        changed > 0 && micros(now).saturating_sub(changed) < micros(CONTENTION_TIME)
    }
}

impl Used {
    fn decay(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.seconds *= (-passed / HALF_LIFE.as_secs_f64()).exp2();
        self.long *= (-passed / LONG_HALF_LIFE.as_secs_f64()).exp2();
        self.at = self.at.max(now);
    }
}

impl TenantUsage {
    /// Returns the time until usage has decayed to `seconds`; zero while no other tenant is active.
    fn delay(&self, seconds: f64, now: Duration) -> Duration {
        let mut used = locked(&self.used);
        used.decay(now);
        match self.contention.is_active(now) {
            true => HALF_LIFE.mul_f64((used.seconds / seconds).log2().max(0.0)),
            false => Duration::ZERO,
        }
    }

    fn charge(&self, took: Duration) {
        let mut used = locked(&self.used);
        used.seconds += took.as_secs_f64();
        used.long += took.as_secs_f64();
    }

    /// Decides whether the tenant is throttled.
    fn is_throttled(&self, now: Duration) -> bool {
        let mut used = locked(&self.used);
        used.decay(now);
        // In proportion to the half-lives: both are equal under an even load.
        let long = used.long * HALF_LIFE.as_secs_f64() / LONG_HALF_LIFE.as_secs_f64();
        let seconds = match used.throttled {
            true => used.seconds.max(long) / RETURN_PART,
            false => used.seconds,
        };
        self.contention.note_usage(used.seconds, now);
        used.throttled =
            seconds > self.share && self.contention.is_among_heaviest(seconds, now) && self.contention.is_active(now);
        used.throttled
    }
}

impl ConnectionMeter {
    /// Returns the time of the last [`ConnectionMeter::is_throttled`], which precedes every run of
    /// the connection's tasks.
    fn now(&self) -> Duration {
        locked(&locked(&self.0).used).at
    }

    fn charge_usage(&self, usage: &Arc<TenantUsage>) {
        *locked(&self.0) = usage.clone();
    }

    /// Decides whether the tenant of the connection is throttled.
    pub fn is_throttled(&self, now: Duration) -> bool {
        locked(&self.0).is_throttled(now)
    }

    /// Charges the tenant of the connection for CPU time.
    pub fn charge(&self, took: Duration) {
        locked(&self.0).charge(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn user(name: &str) -> Tenant {
        Tenant::User(name.into())
    }

    /// Runs two tenants on two cores in steps of ten milliseconds: one uses `works` milliseconds of
    /// CPU time, the other one sends a small request if `asks`. Returns the steps in which the
    /// first one is throttled.
    fn beside(works: impl Fn(u32) -> u32, asks: impl Fn(u32) -> bool) -> Vec<bool> {
        let mut now = Duration::ZERO;
        let fair_share = FairShare::new(2, 100);
        let (loud, quiet) = (fair_share.meter(now), fair_share.meter(now));
        (0..800)
            .map(|step| {
                now += 10 * MS;
                loud.is_throttled(now);
                fair_share.charge_to(&loud, &user("loud"));
                loud.charge(works(step) * MS);
                if asks(step) {
                    quiet.is_throttled(now);
                    fair_share.charge_to(&quiet, &user("quiet"));
                    quiet.charge(MS / 10);
                }
                assert!(!quiet.is_throttled(now), "a small tenant is never throttled");
                loud.is_throttled(now)
            })
            .collect()
    }

    #[test]
    fn a_heavy_tenant_is_throttled_while_others_are_active() {
        let all = |_| true;
        let throttled = beside(|_| 10, all);
        let from = throttled
            .iter()
            .position(|throttled| *throttled)
            .expect("it is throttled");
        assert!(from < 12, "throttled after {from} times 10 ms");
        assert!(throttled[from..].iter().all(|throttled| *throttled));
        assert!(!beside(|_| 1, all).contains(&true), "half of a share is not throttled");
        assert!(!beside(|_| 20, |_| false).contains(&true), "no other tenant is active");
        let left = beside(|_| 20, |step| step < 100);
        assert!(
            left[90] && left[190] && !left[210],
            "no other tenant is active any more"
        );
        let rested = beside(|step| if step < 100 { 20 } else { 0 }, all);
        assert!(rested[100] && rested[300] && !rested[700], "its usage has decayed");
        let bursts = beside(|step| if step % 100 < 20 { 10 } else { 0 }, all);
        assert!(
            bursts[400..].iter().all(|throttled| *throttled),
            "a pause of a second is not long enough"
        );
    }

    /// Runs three tenants on two cores, each with some milliseconds of CPU time in each ten.
    /// Returns which are throttled at the end.
    fn three(works: [u32; 3]) -> [bool; 3] {
        let fair_share = FairShare::new(2, 100);
        let tenants = ["a", "b", "c"].map(|name| (fair_share.meter(Duration::ZERO), user(name)));
        for step in 1..800 {
            for ((meter, tenant), works) in tenants.iter().zip(works) {
                meter.is_throttled(step * 10 * MS);
                fair_share.charge_to(meter, tenant);
                meter.charge(works * MS);
            }
        }
        tenants.map(|(meter, _)| meter.is_throttled(8000 * MS))
    }

    #[test]
    fn a_tenant_far_below_the_heaviest_is_not_throttled() {
        assert_eq!(three([10, 5, 1]), [true, false, false], "half of the heaviest usage");
        assert_eq!(three([7, 6, 1]), [true, true, false], "both are among the heaviest");
        assert_eq!(three([1, 1, 1]), [false; 3]);
    }

    #[test]
    fn a_tenant_at_its_share_keeps_its_priority() {
        let throttled = beside(|step| 2 + step % 2, |_| true);
        let moves = throttled.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(moves <= 1, "{moves}");
    }

    /// Counts the requests without delay of a tenant that is capped at a quarter of two cores, and
    /// sends 400 in four seconds, each of twenty milliseconds of CPU time.
    #[test]
    fn requests_above_the_cap_are_delayed_while_others_are_active() {
        let served = |others: bool| {
            let (mut now, fair_share) = (Duration::ZERO, FairShare::new(2, 25));
            let seconds = fair_share.0.limit.expect("a limit").seconds;
            let (loud, quiet) = (fair_share.meter(now), fair_share.meter(now));
            let asks = (0..400).filter(|_| {
                now += 10 * MS;
                if others {
                    quiet.is_throttled(now);
                    fair_share.charge_to(&quiet, &user("quiet"));
                }
                loud.is_throttled(now);
                let delay = fair_share.charge_to(&loud, &user("loud")).delay(seconds, now);
                if delay.is_zero() {
                    loud.charge(20 * MS);
                }
                delay.is_zero()
            });
            asks.count()
        };
        assert_eq!(served(false), 400, "no other tenant is active");
        let some = served(true);
        assert!(
            (90..130).contains(&some),
            "a quarter of both cores and the initial allowance: {some}"
        );
    }

    #[test]
    fn idle_tenants_are_removed() {
        let mut now = Duration::ZERO;
        let fair_share = FairShare::new(2, 100);
        for n in 0..10 * SWEEP_MIN {
            now += 10 * MS;
            fair_share.charge_to(&fair_share.meter(now), &user(&n.to_string()));
        }
        assert!(
            fair_share.0.tenants.len() <= 2 * SWEEP_MIN,
            "{}",
            fair_share.0.tenants.len()
        );
    }
}
