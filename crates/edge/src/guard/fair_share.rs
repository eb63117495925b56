//! Fair sharing of CPU time between tenants and their owners.
//!
//! The server charges each tenant for the CPU time of its requests. Usage decays with a half-life
//! of `HALF_LIFE`. A tenant is *throttled* while other tenants are active and it has used more
//! than a tenth of the machine and about as much as the heaviest tenant: its requests run on
//! threads of low priority. So a flood gets the CPU time that others leave, and delays nobody,
//! however much they do themselves. A throttled tenant returns to normal priority when its usage of
//! the last seconds has decayed, too, or each burst of a flood would begin at normal priority. A
//! tenant without others is never throttled.
//!
//! The same holds for *payers*: the owner of workspaces is charged for all of them and for its own
//! requests outside. While a payer is above its share and among the heaviest, those of its
//! workspaces are throttled that used about as much as its heaviest one. So a flood gains nothing
//! by coming through many workspaces, and the quiet workspaces of its owner keep their priority.
//!
//! A limit may cap the CPU share of one workspace while other tenants are active. Requests above
//! the cap queue for a throttle slot, one at a time: a flood slows others down for as
//! long as it runs, whatever its priority, and the cap makes that a small part of the time.
//!
//! This module keeps the usage. The threads, and the tasks that run on them, are the server's.

mod throttle;
mod usage;

use dashmap::DashMap;
use insula_api::ClusterName;
use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use usage::{Contention, PayerUsage, locked};

pub use throttle::ThrottleSlot;
pub use usage::TenantUsage;

/// Half-life of usage.
const HALF_LIFE: Duration = Duration::from_millis(250);
/// Share of the machine's CPU time above which a tenant or a payer may be throttled.
const SHARE: f64 = 0.1;
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

/// A tenant, and who pays for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charged {
    tenant: Tenant,
    /// The user that pays; `None` for a tenant that pays for itself alone.
    payer: Option<Arc<str>>,
}

/// The usage of all tenants. Clones share it.
#[derive(Clone)]
pub struct FairShare(Arc<TenantUsages>);

struct TenantUsages {
    /// Decayed usage above which a tenant may be throttled, in CPU seconds.
    share: f64,
    limit: Option<Limit>,
    /// Activity of all tenants, and of all payers.
    contention: [Arc<Contention>; 2],
    tenants: DashMap<Tenant, Arc<TenantUsage>>,
    payers: DashMap<Arc<str>, Arc<PayerUsage>>,
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

/// Meter of a connection. It charges the tenant of the connection's last request; before any
/// request, a usage of its own.
pub struct ConnectionMeter {
    usage: Mutex<Arc<TenantUsage>>,
    is_closed: AtomicBool,
    /// Tells whether the peer has left; see [`ConnectionMeter::watch_peer`].
    has_left: OnceLock<HasLeft>,
}

/// Tells whether the peer of a connection has left it.
type HasLeft = Box<dyn Fn() -> bool + Send + Sync>;

impl Charged {
    /// Returns a workspace with the owner that pays for it, if there is one.
    pub fn workspace(cluster: ClusterName, owner: Option<Arc<str>>) -> Self {
        Charged {
            tenant: Tenant::Workspace(cluster),
            payer: owner,
        }
    }

    /// Returns a user outside of workspaces.
    pub fn user(name: Arc<str>) -> Self {
        Charged {
            tenant: Tenant::User(name.clone()),
            payer: Some(name),
        }
    }
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
        FairShare(Arc::new(TenantUsages {
            share: SHARE * all,
            limit,
            contention: Default::default(),
            tenants: DashMap::new(),
            payers: DashMap::new(),
            sweep_at: AtomicUsize::new(SWEEP_MIN),
        }))
    }

    /// Returns the meter of a new connection.
    pub fn meter(&self, now: Duration) -> ConnectionMeter {
        ConnectionMeter {
            usage: Mutex::new(self.0.new_usage(None, now)),
            is_closed: AtomicBool::new(false),
            has_left: OnceLock::new(),
        }
    }

    /// Charges the connection to a tenant from here on, and returns the tenant's usage.
    pub fn charge_to(&self, meter: &ConnectionMeter, charged: &Charged) -> Arc<TenantUsage> {
        let now = meter.now();
        let usage = self.0.for_tenant(charged, now);
        usage.note_request(now);
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
    fn new_usage(&self, payer: Option<&Arc<str>>, now: Duration) -> Arc<TenantUsage> {
        let [tenants, payers] = &self.contention;
        let own = || Arc::new(PayerUsage::new(payer.cloned(), payers.clone(), now));
        let payer = match payer {
            Some(name) => self.payers.entry(name.clone()).or_insert_with(own).clone(),
            None => own(),
        };
        Arc::new(TenantUsage::new(self.share, tenants.clone(), payer, now))
    }

    fn for_tenant(&self, charged: &Charged, now: Duration) -> Arc<TenantUsage> {
        let Charged { tenant, payer } = charged;
        let found = self.tenants.get(tenant).map(|usage| usage.clone());
        // A workspace may get another owner.
        if let Some(usage) = found.filter(|usage| usage.payer_name() == payer.as_deref()) {
            return usage;
        }
        self.sweep(now);
        let usage = self.new_usage(payer.as_ref(), now);
        self.tenants.insert(tenant.clone(), usage.clone());
        usage
    }

    /// Removes idle tenants once their number has doubled.
    fn sweep(&self, now: Duration) {
        if self.tenants.len() < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        self.tenants.retain(|_, usage| !usage.is_idle(now));
        // Connections hold the usage of their tenants, and these that of their payers.
        self.payers.retain(|_, usage| Arc::strong_count(usage) > 1);
        self.sweep_at
            .store((self.tenants.len() * 2).max(SWEEP_MIN), Ordering::Relaxed);
    }
}

impl ConnectionMeter {
    /// Returns the time of the last [`ConnectionMeter::is_throttled`], which precedes every run of
    /// the connection's tasks.
    fn now(&self) -> Duration {
        locked(&self.usage).time()
    }

    /// Returns the usage of the tenant that the connection is charged to.
    pub(crate) fn usage(&self) -> Arc<TenantUsage> {
        locked(&self.usage).clone()
    }

    fn charge_usage(&self, usage: &Arc<TenantUsage>) {
        *locked(&self.usage) = usage.clone();
    }

    /// Notes that nobody waits for answers on the connection any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns true once nobody waits for answers on the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Notes that requests compute in the task that reads the connection (HTTP/1.1): it learns
    /// from `has_left`, and not from that task, that its peer has left.
    pub(crate) fn watch_peer(&self, has_left: impl Fn() -> bool + Send + Sync + 'static) {
        // A connection has one protocol.
        let _ = self.has_left.set(Box::new(has_left));
    }

    /// Returns true once nobody waits for answers on the connection, as [`Self::is_closed`] does;
    /// over HTTP/1.1 it takes a system call.
    pub(crate) fn peer_has_left(&self) -> bool {
        self.is_closed() || self.has_left.get().is_some_and(|has_left| has_left())
    }

    /// Decides whether the tenant of the connection is throttled.
    pub fn is_throttled(&self, now: Duration) -> bool {
        locked(&self.usage).is_throttled(now)
    }

    /// Charges the tenant of the connection for CPU time.
    pub fn charge(&self, took: Duration) {
        locked(&self.usage).charge(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn user(name: &str) -> Charged {
        Charged::user(name.into())
    }

    fn workspace(name: &str, owner: &str) -> Charged {
        Charged::workspace(ClusterName::parse(name).expect("a name"), Some(owner.into()))
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

    /// Runs workspaces on two cores for some seconds, each with its owner and the microseconds of
    /// CPU time that it uses in each ten milliseconds. Returns which are throttled at the end.
    fn of_owners(works: &[(&str, u64)]) -> Vec<bool> {
        let fair_share = FairShare::new(2, 100);
        let names = (0..works.len()).map(|n| format!("w{n}"));
        let all: Vec<_> = names
            .zip(works)
            .map(|(name, (owner, works))| (fair_share.meter(Duration::ZERO), workspace(&name, owner), *works))
            .collect();
        for step in 1..400 {
            for (meter, charged, works) in &all {
                meter.is_throttled(step * 10 * MS);
                fair_share.charge_to(meter, charged);
                meter.charge(Duration::from_micros(*works));
            }
        }
        all.iter().map(|(meter, ..)| meter.is_throttled(4000 * MS)).collect()
    }

    #[test]
    fn a_flood_through_many_workspaces_is_that_of_their_owner() {
        // A share is 2,000 µs.
        let mut works = vec![("eve", 1_000); 16];
        works.extend([("eve", 100), ("bob", 500)]);
        let throttled = of_owners(&works);
        assert_eq!(throttled[..16], [true; 16], "together they are above the share");
        assert_eq!(throttled[16..], [false; 2], "her quiet workspace, and bob's");
        assert_eq!(of_owners(&works[..17]), [false; 17], "nobody else is active");
        let mut works = vec![("eve", 1_000); 2];
        works.extend([("bob", 1_500), ("bob", 1_500), ("ann", 2_500)]);
        let throttled = of_owners(&works);
        assert_eq!(
            throttled,
            [false, false, true, true, true],
            "bob and ann; eve is at her share"
        );
    }

    #[test]
    fn a_workspace_is_charged_to_the_owner_that_it_has() {
        let fair_share = FairShare::new(2, 100);
        let meter = fair_share.meter(Duration::ZERO);
        let usage = |owner: &str| fair_share.charge_to(&meter, &workspace("w", owner));
        let before = usage("eve");
        assert!(Arc::ptr_eq(&before, &usage("eve")));
        assert_eq!(usage("bob").payer_name(), Some("bob"));
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
        assert!(fair_share.0.payers.len() <= fair_share.0.tenants.len() + 1);
    }
}
