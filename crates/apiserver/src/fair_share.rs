//! Who has used more than their share of the cores lately, so that others may go first.
//!
//! Every tenant has an account of the time that was computed for it, of which half is forgotten in
//! each [`HALF_LIFE`]. Who used more than a tenth of the machine, and about as much as whoever used
//! most, while others are there too is *behind*: what it sends is computed on threads of low
//! priority. So a flood gets what is left over, and nobody else waits for it, however much they do
//! themselves. Whether it may come back is asked of what it used in the last seconds, too, or a
//! flood in bursts would begin each of them among the others. A tenant that is alone is never
//! behind.
//!
//! What is left over may be limited, too: then a workspace that used so much while others are there
//! gets [turns](turns). A flood disturbs others for as long as it computes, however low its
//! priority; a limit makes that a small part of the time.
//!
//! This module keeps the accounts. Threads, and which of them work for whom, are the server's.

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

pub(crate) use throttle::ThrottleSlot;

/// What was used so long ago counts half.
const HALF_LIFE: Duration = Duration::from_millis(250);
/// The same where who is behind wants to come back: long beside the second after which a refused
/// client comes again.
const LONG_HALF_LIFE: Duration = Duration::from_secs(2);
/// Of all that the machine can compute.
const SHARE: f64 = 0.1;
/// Of what the account holds that holds most: who has so much of it is of its kind.
const ALIKE: f64 = 0.75;
/// Who is behind comes back at so much of both: who uses just as much is not moved with every
/// request.
const BACK_AT: f64 = 0.5;
/// A tenant is alone when no other one has asked for anything for this long.
const ALONE: Duration = Duration::from_secs(1);
/// Accounts of those who used nothing lately are looked for when there are so many, and again when
/// they have doubled.
const SWEEP_MIN: usize = 1_024;
/// Of an account that used nothing for so long, hardly anything is left: a thirtieth after the long
/// half-life.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Whose account it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tenant {
    /// Who asks in a workspace.
    Workspace(ClusterName),
    /// Who asks outside of any.
    User(Arc<str>),
}

/// The accounts of all tenants. Copies are of the same ones.
#[derive(Clone)]
pub struct FairShare(Arc<TenantUsages>);

struct TenantUsages {
    /// Seconds of computing that an account may hold.
    share: f64,
    limit: Option<Limit>,
    crowd: Arc<Contention>,
    open: DashMap<Tenant, Arc<TenantUsage>>,
    sweep_at: AtomicUsize,
}

/// What a workspace may use while others are there.
#[derive(Clone, Copy)]
struct Limit {
    /// Of all cores.
    percent: usize,
    /// What its account may hold.
    seconds: f64,
}

/// What an account has to know of all others.
struct Contention {
    /// The account of whoever asked last.
    last: AtomicUsize,
    /// When that was somebody else than before, in microseconds, and one more.
    changed: AtomicU64,
    /// What the account holds that holds most: the bits of its [`level`].
    most: AtomicU64,
}

/// What was computed for one tenant.
pub struct TenantUsage {
    share: f64,
    crowd: Arc<Contention>,
    used: Mutex<Used>,
    /// One, taken by whose turn it is.
    turns: Arc<Semaphore>,
}

#[derive(Clone, Copy)]
struct Used {
    seconds: f64,
    /// The same, forgotten more slowly.
    long: f64,
    at: Duration,
    behind: bool,
}

/// Measures a connection, for the account of whoever asked on it last; before anybody did, for one
/// of its own.
pub struct ConnectionMeter(Mutex<Arc<TenantUsage>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every one of them is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Seconds that an account holds, as a figure that does not change while it is forgotten: all
/// accounts forget at one pace. Never negative, so that bits are in the order of figures: 2⁻⁶⁴
/// seconds are nothing.
fn level(seconds: f64, now: Duration) -> f64 {
    (seconds.log2() + 64.0 + now.div_duration_f64(HALF_LIFE)).max(0.0)
}

impl FairShare {
    /// Accounts on a machine with so many cores, of which a workspace may use so many hundredths
    /// while others are there; 100: what is left over. Times are since a moment that is the same
    /// for all.
    pub fn new(cores: usize, percent: usize) -> Self {
        // What an account holds that uses all cores all the time.
        let all = cores.max(1) as f64 * HALF_LIFE.as_secs_f64() / std::f64::consts::LN_2;
        let limit = (percent < 100).then_some(Limit {
            percent,
            seconds: all * percent as f64 / 100.0,
        });
        let crowd = Arc::new(Contention {
            last: AtomicUsize::new(0),
            changed: AtomicU64::new(0),
            most: AtomicU64::new(0),
        });
        FairShare(Arc::new(TenantUsages {
            share: SHARE * all,
            limit,
            crowd,
            open: DashMap::new(),
            sweep_at: AtomicUsize::new(SWEEP_MIN),
        }))
    }

    /// The meter of a new connection.
    pub fn meter(&self, now: Duration) -> ConnectionMeter {
        ConnectionMeter(Mutex::new(self.0.account(now)))
    }

    /// From here on the tenant pays for the connection, out of this account.
    pub fn charge_to(&self, meter: &ConnectionMeter, tenant: &Tenant) -> Arc<TenantUsage> {
        let now = meter.now();
        let account = self.0.of(tenant, now);
        self.0.crowd.asked(&account, now);
        meter.pay_from(&account);
        account
    }

    /// Adds what was computed for a tenant elsewhere than on its connections, while it waits there.
    pub fn charge(&self, tenant: &Tenant, took: Duration) {
        if let Some(account) = self.0.open.get(tenant) {
            account.charge(took);
        }
    }
}

impl TenantUsages {
    fn account(&self, now: Duration) -> Arc<TenantUsage> {
        let used = Used {
            seconds: 0.0,
            long: 0.0,
            at: now,
            behind: false,
        };
        Arc::new(TenantUsage {
            share: self.share,
            crowd: self.crowd.clone(),
            used: Mutex::new(used),
            turns: Arc::new(Semaphore::new(1)),
        })
    }

    fn of(&self, tenant: &Tenant, now: Duration) -> Arc<TenantUsage> {
        if let Some(account) = self.open.get(tenant) {
            return account.clone();
        }
        self.sweep(now);
        let account = self.open.entry(tenant.clone()).or_insert_with(|| self.account(now));
        account.clone()
    }

    /// Forgets those who used nothing lately, now and then.
    fn sweep(&self, now: Duration) {
        if self.open.len() < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        self.open
            .retain(|_, account| now.saturating_sub(locked(&account.used).at) < FORGOTTEN);
        self.sweep_at
            .store((self.open.len() * 2).max(SWEEP_MIN), Ordering::Relaxed);
    }
}

impl Contention {
    fn asked(&self, account: &Arc<TenantUsage>, now: Duration) {
        let who = Arc::as_ptr(account).addr();
        let before = self.last.swap(who, Ordering::Relaxed);
        if before != who && before != 0 {
            self.changed.store(micros(now) + 1, Ordering::Relaxed);
        }
    }

    /// Whether these seconds are much beside what anybody else used.
    fn is_much(&self, seconds: f64, now: Duration) -> bool {
        level(seconds / ALIKE, now) > f64::from_bits(self.most.load(Ordering::Relaxed))
    }

    fn saw(&self, seconds: f64, now: Duration) {
        let level = level(seconds, now).to_bits();
        // Nearly always somebody else's: no need to take the line of memory from other cores.
        if level > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(level, Ordering::Relaxed);
        }
    }

    fn is_there(&self, now: Duration) -> bool {
        let changed = self.changed.load(Ordering::Relaxed);
        changed > 0 && micros(now).saturating_sub(changed) < micros(ALONE)
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
    /// Until it holds no more than so many seconds; nothing while nobody else is there.
    fn rest(&self, seconds: f64, now: Duration) -> Duration {
        let mut used = locked(&self.used);
        used.decay(now);
        match self.crowd.is_there(now) {
            true => HALF_LIFE.mul_f64((used.seconds / seconds).log2().max(0.0)),
            false => Duration::ZERO,
        }
    }

    fn charge(&self, took: Duration) {
        let mut used = locked(&self.used);
        used.seconds += took.as_secs_f64();
        used.long += took.as_secs_f64();
    }

    /// Whether others go first.
    fn is_behind(&self, now: Duration) -> bool {
        let mut used = locked(&self.used);
        used.decay(now);
        // As much of it as the other account would hold, had it been used evenly.
        let long = used.long * HALF_LIFE.as_secs_f64() / LONG_HALF_LIFE.as_secs_f64();
        let counts = match used.behind {
            true => used.seconds.max(long) / BACK_AT,
            false => used.seconds,
        };
        self.crowd.saw(used.seconds, now);
        used.behind = counts > self.share && self.crowd.is_much(counts, now) && self.crowd.is_there(now);
        used.behind
    }
}

impl ConnectionMeter {
    /// The time: it is told before anything runs.
    fn now(&self) -> Duration {
        locked(&locked(&self.0).used).at
    }

    fn pay_from(&self, account: &Arc<TenantUsage>) {
        *locked(&self.0) = account.clone();
    }

    /// Whether others go first.
    pub fn is_behind(&self, now: Duration) -> bool {
        locked(&self.0).is_behind(now)
    }

    /// Adds what was computed since it was asked.
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

    /// Two tenants of a machine with two cores: one computes for so many of ten milliseconds, the
    /// other one asks and is done. Gives when the first one is behind.
    fn beside(works: impl Fn(u32) -> u32, asks: impl Fn(u32) -> bool) -> Vec<bool> {
        let mut now = Duration::ZERO;
        let fair_share = FairShare::new(2, 100);
        let (loud, quiet) = (fair_share.meter(now), fair_share.meter(now));
        (0..800)
            .map(|step| {
                now += 10 * MS;
                loud.is_behind(now);
                fair_share.charge_to(&loud, &user("loud"));
                loud.charge(works(step) * MS);
                if asks(step) {
                    quiet.is_behind(now);
                    fair_share.charge_to(&quiet, &user("quiet"));
                    quiet.charge(MS / 10);
                }
                assert!(!quiet.is_behind(now), "who uses little is never behind");
                loud.is_behind(now)
            })
            .collect()
    }

    #[test]
    fn who_uses_more_than_a_share_is_behind_while_others_are_there() {
        let all = |_| true;
        let behind = beside(|_| 10, all);
        let from = behind.iter().position(|behind| *behind).expect("it is behind");
        assert!(from < 12, "known after {from} times 10 ms");
        assert!(behind[from..].iter().all(|behind| *behind));
        assert!(!beside(|_| 1, all).contains(&true), "half of a share is nobody's loss");
        assert!(!beside(|_| 20, |_| false).contains(&true), "nobody waits for it");
        let left = beside(|_| 20, |step| step < 100);
        assert!(left[90] && left[190] && !left[210], "nobody waits for it any more");
        let rested = beside(|step| if step < 100 { 20 } else { 0 }, all);
        assert!(rested[100] && rested[300] && !rested[700], "it has waited long enough");
        let bursts = beside(|step| if step % 100 < 20 { 10 } else { 0 }, all);
        assert!(
            bursts[400..].iter().all(|behind| *behind),
            "a pause of a second is not long enough"
        );
    }

    /// Three tenants of a machine with two cores, who compute for so many of ten milliseconds.
    /// Gives who is behind at the end.
    fn three(works: [u32; 3]) -> [bool; 3] {
        let fair_share = FairShare::new(2, 100);
        let tenants = ["a", "b", "c"].map(|name| (fair_share.meter(Duration::ZERO), user(name)));
        for step in 1..800 {
            for ((meter, tenant), works) in tenants.iter().zip(works) {
                meter.is_behind(step * 10 * MS);
                fair_share.charge_to(meter, tenant);
                meter.charge(works * MS);
            }
        }
        tenants.map(|(meter, _)| meter.is_behind(8000 * MS))
    }

    #[test]
    fn who_uses_a_share_waits_for_nobody_who_uses_far_more() {
        assert_eq!(
            three([10, 5, 1]),
            [true, false, false],
            "half of what the other one used"
        );
        assert_eq!(three([7, 6, 1]), [true, true, false], "they are of one kind");
        assert_eq!(three([1, 1, 1]), [false; 3]);
    }

    #[test]
    fn who_uses_just_a_share_does_not_go_back_and_forth() {
        let behind = beside(|step| 2 + step % 2, |_| true);
        let moves = behind.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(moves <= 1, "{moves}");
    }

    /// Two tenants of a machine with two cores, of which a workspace may use a quarter: of 400
    /// times that one asks in four seconds, each worth twenty milliseconds, those that need not
    /// wait.
    #[test]
    fn who_used_the_limit_rests_while_others_are_there() {
        let served = |others: bool| {
            let (mut now, fair_share) = (Duration::ZERO, FairShare::new(2, 25));
            let seconds = fair_share.0.limit.expect("a limit").seconds;
            let (loud, quiet) = (fair_share.meter(now), fair_share.meter(now));
            let asks = (0..400).filter(|_| {
                now += 10 * MS;
                if others {
                    quiet.is_behind(now);
                    fair_share.charge_to(&quiet, &user("quiet"));
                }
                loud.is_behind(now);
                let rest = fair_share.charge_to(&loud, &user("loud")).rest(seconds, now);
                if rest.is_zero() {
                    loud.charge(20 * MS);
                }
                rest.is_zero()
            });
            asks.count()
        };
        assert_eq!(served(false), 400, "nobody is there whom it could disturb");
        let some = served(true);
        assert!(
            (90..130).contains(&some),
            "a quarter of both cores and what it held at first: {some}"
        );
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut now = Duration::ZERO;
        let fair_share = FairShare::new(2, 100);
        for n in 0..10 * SWEEP_MIN {
            now += 10 * MS;
            fair_share.charge_to(&fair_share.meter(now), &user(&n.to_string()));
        }
        assert!(fair_share.0.open.len() <= 2 * SWEEP_MIN, "{}", fair_share.0.open.len());
    }
}
