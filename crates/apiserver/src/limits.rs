//! Limits of each user, of each workspace and of the server: requests in flight, open watches,
//! requests in a second, and bytes in flight.
//!
//! A request above a limit gets 429 with the limit's name and `Retry-After`; other users and
//! workspaces are not affected.

mod bytes;
mod rejections;
mod share;
mod watches;

use crate::status::{self, StatusReply};
use dashmap::DashMap;
use insula_api::{Clock, ClusterName};
use insula_catalog::limits::WorkspaceLimits;
use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use bytes::Budget;
pub use rejections::{Rejection, Rejections};
pub use share::{Share, UsedNow};
pub use watches::WatchMeasures;
pub(crate) use watches::{MeasuredWatch, WatchEnd};

/// Burst of the rate limit: a second's requests at once.
const BURST_MICROS: i64 = 1_000_000;
/// Number of entries from which idle ones are removed; doubled by what is left after a sweep.
const SWEEP_MIN: usize = 1_024;

/// Limits of the server and of each user and workspace.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a request's body (kube-apiserver: 3 MiB); more than [`crate::body::BODY_BYTES_MAX`]
    /// is never read.
    pub body_bytes: usize,
    /// Time to answer a request that is no watch.
    pub request_time: Duration,
    /// Requests in flight, of all users.
    pub requests: usize,
    /// Bytes in flight, of all requests and answers.
    pub bytes: usize,
    /// Limits of one user.
    pub user: Share,
    /// Limits of one workspace, for all of its users together.
    pub workspace: Share,
}

/// A kind of permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermitKind {
    Requests,
    Watches,
}

/// Usage of one user or one workspace.
#[derive(Debug, Default)]
struct Usage {
    requests: usize,
    watches: usize,
    bytes: usize,
    /// Monotonic time in microseconds at which the requests so far would end, sent one after
    /// another at the rate's pace.
    busy_until: i64,
}

impl Usage {
    fn count(&mut self, kind: PermitKind) -> &mut usize {
        match kind {
            PermitKind::Requests => &mut self.requests,
            PermitKind::Watches => &mut self.watches,
        }
    }

    fn is_idle(&self, now: i64) -> bool {
        self.requests == 0 && self.watches == 0 && self.bytes == 0 && self.busy_until <= now
    }
}

/// Usage of all users, or of all workspaces. Idle ones have no entry.
struct UsageTable {
    /// Noun of refusals: `the user`.
    subject: &'static str,
    share: Share,
    rejections: Arc<Rejections>,
    entries: DashMap<Arc<str>, Usage>,
    sweep_at: AtomicUsize,
    clock: Arc<dyn Clock>,
}

/// The limits, with the usage of users and workspaces.
pub struct Limits {
    /// The configured limits.
    pub settings: Settings,
    users: Arc<UsageTable>,
    workspaces: Arc<UsageTable>,
    all: Arc<Semaphore>,
    bytes: Arc<bytes::Total>,
    /// Requests that a limit refused.
    pub rejections: Arc<Rejections>,
    /// Measures of watches.
    pub watches: Arc<WatchMeasures>,
}

/// A permit of one user or one workspace, released when it is dropped.
pub struct CountedPermit {
    table: Arc<UsageTable>,
    name: Arc<str>,
    kind: PermitKind,
    /// Bytes in flight that the user or the workspace may have.
    bytes: usize,
}

/// A permit for a request in flight.
pub struct InFlightPermit {
    _user: CountedPermit,
    _all: OwnedSemaphorePermit,
}

/// Permits that a request holds until the last byte of its answer is sent. A response extension.
#[derive(Clone)]
pub struct Held {
    _held: Arc<dyn Any + Send + Sync>,
}

impl Held {
    /// Holds until this is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Held { _held: Arc::new(held) }
    }
}

/// A permit for an open watch: of its user, and of its workspace where it is in one.
pub struct WatchPermit {
    /// `None` where the stream that the watch belongs to counts already.
    _user: Option<CountedPermit>,
    _workspace: Option<CountedPermit>,
}

impl Limits {
    /// Returns limits without usage.
    pub fn new(settings: Settings, clock: &Arc<dyn Clock>) -> Self {
        let all = Arc::new(Semaphore::new(settings.requests));
        let rejections = Arc::new(Rejections::default());
        let bytes = bytes::Total::new(settings.bytes, rejections.clone());
        let table = |subject, share| {
            Arc::new(UsageTable {
                subject,
                share,
                rejections: rejections.clone(),
                entries: DashMap::new(),
                sweep_at: AtomicUsize::new(SWEEP_MIN),
                clock: clock.clone(),
            })
        };
        Limits {
            users: table("the user", settings.user),
            workspaces: table("the workspace", settings.workspace),
            settings,
            all,
            bytes,
            rejections,
            watches: Arc::default(),
        }
    }

    /// Takes a permit for a request of a user.
    ///
    /// # Errors
    /// 429: the limit of the user or of the server is reached.
    pub fn request(&self, user: &str) -> Result<InFlightPermit, StatusReply> {
        let own = UsageTable::acquire(&self.users, user.into(), PermitKind::Requests, self.users.share)?;
        let all = self.all.clone().try_acquire_owned().map_err(|_| {
            self.rejections.count(Rejection::Requests);
            let most = self.settings.requests;
            status::too_many_requests(&format!("the server answers {most} requests at once, and no more"))
        })?;
        Ok(InFlightPermit { _user: own, _all: all })
    }

    /// Takes a permit for an authorised request in a workspace. Others do not count: they could use
    /// up the limit of a workspace that they have no access to. `own` are the limits of the
    /// workspace in the place of the server's.
    ///
    /// # Errors
    /// 429: the limit of the workspace is reached.
    pub fn in_workspace(
        &self,
        cluster: &ClusterName,
        own: Option<&WorkspaceLimits>,
    ) -> Result<CountedPermit, StatusReply> {
        let share = self.workspaces.share.with(own);
        UsageTable::acquire(&self.workspaces, cluster.as_str().into(), PermitKind::Requests, share)
    }

    /// Returns what a workspace uses now.
    pub fn usage_of(&self, cluster: &ClusterName) -> UsedNow {
        let usage = self.workspaces.entries.get(cluster.as_str());
        usage.map_or_else(UsedNow::default, |usage| UsedNow {
            requests: usage.requests,
            watches: usage.watches,
            bytes: usage.bytes,
        })
    }

    /// Returns the budget of bytes in flight of a request.
    pub(crate) fn budget(&self, user: &Arc<str>, in_workspace: Option<&CountedPermit>) -> Budget {
        let user = (self.users.clone(), user.clone(), self.users.share.bytes);
        let workspace = in_workspace.map(|permit| (permit.table.clone(), permit.name.clone(), permit.bytes));
        Budget::new(&self.bytes, [Some(user), workspace])
    }

    /// Counts the open watches of all users, in time proportional to the number of users.
    pub fn open_watches(&self) -> usize {
        self.users.entries.iter().map(|usage| usage.watches).sum()
    }

    /// Takes a permit for a watch. `None` for the user is for a watch within a stream that has a
    /// permit of its own.
    ///
    /// # Errors
    /// 429: the limit of the user or of the workspace is reached.
    pub fn watch(
        &self,
        user: Option<&str>,
        cluster: Option<&ClusterName>,
        own: Option<&WorkspaceLimits>,
    ) -> Result<WatchPermit, StatusReply> {
        let user =
            user.map(|user| UsageTable::acquire(&self.users, user.into(), PermitKind::Watches, self.users.share));
        let share = self.workspaces.share.with(own);
        let workspace = cluster
            .map(|cluster| UsageTable::acquire(&self.workspaces, cluster.as_str().into(), PermitKind::Watches, share));
        Ok(WatchPermit {
            _user: user.transpose()?,
            _workspace: workspace.transpose()?,
        })
    }
}

impl UsageTable {
    fn acquire(
        table: &Arc<UsageTable>,
        name: Arc<str>,
        kind: PermitKind,
        share: Share,
    ) -> Result<CountedPermit, StatusReply> {
        table.sweep();
        let Share {
            requests,
            watches,
            rate,
            bytes,
        } = share;
        let subject = table.subject;
        // The entry's lock serialises this with the release of other permits.
        let mut usage = table.entries.entry(name.clone()).or_default();
        let (most, things) = match kind {
            PermitKind::Requests => (requests, "requests being answered"),
            PermitKind::Watches => (watches, "open watches"),
        };
        if *usage.count(kind) >= most {
            table.rejections.count(match kind {
                PermitKind::Requests => Rejection::Requests,
                PermitKind::Watches => Rejection::Watches,
            });
            let why = format!("{subject} has {most} {things}, and may have no more");
            return Err(status::too_many_requests(&why));
        }
        if kind == PermitKind::Requests {
            let now = table.clock.monotonic_micros();
            let busy_until = usage.busy_until.max(now);
            if busy_until - now > BURST_MICROS {
                table.rejections.count(Rejection::Rate);
                let why = format!("{subject} sent {rate} requests in a second, and may send no more");
                return Err(status::too_many_requests(&why));
            }
            usage.busy_until = busy_until + BURST_MICROS / i64::try_from(rate.max(1)).unwrap_or(i64::MAX);
        }
        *usage.count(kind) += 1;
        drop(usage);
        Ok(CountedPermit {
            table: table.clone(),
            name,
            kind,
            bytes,
        })
    }

    /// Removes idle entries once their number has doubled.
    fn sweep(&self) {
        let length = self.entries.len();
        if length < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        let now = self.clock.monotonic_micros();
        self.entries.retain(|_, usage| !usage.is_idle(now));
        self.sweep_at
            .store((self.entries.len() * 2).max(SWEEP_MIN), Ordering::Relaxed);
    }
}

impl Drop for CountedPermit {
    fn drop(&mut self) {
        if let Some(mut usage) = self.table.entries.get_mut(&self.name) {
            *usage.count(self.kind) -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::Timestamp;
    use std::sync::atomic::AtomicI64;

    /// Monotonic time, and the wall clock's difference from it.
    struct Still(AtomicI64, AtomicI64);

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp(self.now_micros() / 1_000_000)
        }

        fn now_micros(&self) -> i64 {
            self.monotonic_micros() + self.1.load(Ordering::Relaxed)
        }

        fn monotonic_micros(&self) -> i64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn limits(rate: usize) -> (Limits, Arc<Still>) {
        let clock = Arc::new(Still(AtomicI64::new(0), AtomicI64::new(0)));
        let share = Share {
            requests: 2,
            watches: 2,
            rate,
            bytes: 1_000_000,
        };
        let settings = Settings {
            body_bytes: 1,
            request_time: Duration::from_secs(60),
            requests: 3,
            bytes: 2_500_000,
            user: share,
            workspace: share,
        };
        let shared: Arc<dyn Clock> = clock.clone();
        (Limits::new(settings, &shared), clock)
    }

    fn cluster(name: &str) -> ClusterName {
        ClusterName::parse(name).expect("a name")
    }

    /// Returns the message of a refusal; empty for a permit.
    fn message<T>(refused: Result<T, StatusReply>) -> String {
        let Err(refused) = refused else { return String::new() };
        assert_eq!((refused.code, refused.retry_after), (429, Some(1)));
        refused.body["message"].as_str().expect("a text").to_owned()
    }

    #[test]
    fn permits_are_released() {
        let (limits, _) = limits(1_000);
        let (a, b) = (cluster("a"), cluster("b"));
        let held: Vec<WatchPermit> = (0..2)
            .map(|_| limits.watch(Some("u"), Some(&a), None).expect("a permit"))
            .collect();
        let full = message(limits.watch(Some("u"), None, None));
        assert!(
            full.ends_with("the user has 2 open watches, and may have no more"),
            "{full}"
        );
        let full = message(limits.watch(Some("v"), Some(&a), None));
        assert!(
            full.ends_with("the workspace has 2 open watches, and may have no more"),
            "{full}"
        );
        assert!(
            limits.watch(Some("v"), Some(&b), None).is_ok(),
            "other workspaces are not affected"
        );
        drop(held);
        assert!(limits.watch(Some("u"), Some(&a), None).is_ok());
    }

    #[test]
    fn requests_are_counted_by_user_by_workspace_and_together() {
        let (limits, _) = limits(1_000);
        let held: Vec<InFlightPermit> = (0..2).map(|_| limits.request("u").expect("a permit")).collect();
        let full = message(limits.request("u"));
        assert!(
            full.ends_with("the user has 2 requests being answered, and may have no more"),
            "{full}"
        );
        let _other = limits.request("v").expect("a permit");
        assert!(message(limits.request("w")).ends_with("the server answers 3 requests at once, and no more"));
        drop(held);
        assert!(limits.request("w").is_ok());
        let a = cluster("a");
        let _held: Vec<CountedPermit> = (0..2)
            .map(|_| limits.in_workspace(&a, None).expect("a permit"))
            .collect();
        assert!(message(limits.in_workspace(&a, None)).contains("the workspace has 2 requests"));
        assert!(limits.in_workspace(&cluster("b"), None).is_ok());
    }

    #[test]
    fn a_workspace_may_have_limits_of_its_own() {
        let (limits, _) = limits(1_000);
        let a = cluster("a");
        let own = WorkspaceLimits {
            requests: Some(1),
            watches: Some(3),
            bytes: Some(100_000),
            ..WorkspaceLimits::default()
        };
        let held = limits.in_workspace(&a, Some(&own)).expect("a permit");
        assert!(message(limits.in_workspace(&a, Some(&own))).contains("the workspace has 1 requests"));
        let _watches: Vec<WatchPermit> = ["u", "v", "w"]
            .map(|user| limits.watch(Some(user), Some(&a), Some(&own)).expect("a permit"))
            .into();
        assert!(message(limits.watch(Some("x"), Some(&a), Some(&own))).contains("3 open watches"));
        let budget = |user: &str| limits.budget(&user.into(), Some(&held));
        let first = budget("u");
        assert!(first.hold(90_000).is_ok());
        assert!(message(budget("v").hold(90_000)).contains("hold 100000 bytes"));
        let now = limits.usage_of(&a);
        assert_eq!((now.requests, now.watches, now.bytes), (1, 3, 90_000));
    }

    #[test]
    fn the_rate_allows_a_burst_of_one_second() {
        let (limits, clock) = limits(10);
        let sent = |count: usize| (0..count).filter(|_| limits.request("u").is_ok()).count();
        assert_eq!(sent(100), 11);
        assert!(message(limits.request("u")).ends_with("the user sent 10 requests in a second, and may send no more"));
        assert!(limits.request("v").is_ok());
        clock.0.store(300_000, Ordering::Relaxed);
        assert_eq!(sent(100), 3);
    }

    #[test]
    fn bytes_are_counted_by_user_by_workspace_and_together() {
        let (limits, _) = limits(10);
        let (a, b) = (
            limits.in_workspace(&cluster("a"), None),
            limits.in_workspace(&cluster("b"), None),
        );
        let (a, b) = (a.expect("a permit"), b.expect("a permit"));
        let budget = |user: &str, workspace| limits.budget(&user.into(), workspace);
        let large = budget("u", Some(&a));
        assert!(large.hold(1_500_000).is_ok(), "one request alone may exceed the limit");
        assert!(large.hold(100_000).is_ok(), "and go on reading");
        let text = "requests and answers of the user hold 1000000 bytes, and may hold no more at once";
        assert!(message(budget("u", Some(&b)).hold(100_000)).ends_with(text));
        assert!(
            budget("u", Some(&b)).hold(10_000).is_ok(),
            "small requests are not counted"
        );
        assert!(message(budget("v", Some(&a)).hold(100_000)).contains("of the workspace"));
        let other = budget("v", None);
        assert!(other.hold(800_000).is_ok());
        assert!(message(budget("w", None).hold(800_000)).contains("of the server"));
        drop(large);
        assert!(budget("u", Some(&a)).hold(1_000_000).is_ok(), "all bytes are released");
        drop(other);
        assert_eq!(limits.users.entries.iter().map(|usage| usage.bytes).sum::<usize>(), 0);
    }

    /// A wall clock that was set back by 15 s refused all requests for 14 s.
    #[test]
    fn a_wall_clock_that_is_set_back_refuses_no_request() {
        let (limits, clock) = limits(10);
        assert!((0..5).all(|_| limits.request("u").is_ok()));
        clock.0.store(500_000, Ordering::Relaxed);
        clock.1.store(-15_000_000, Ordering::Relaxed);
        assert!((0..5).all(|_| limits.request("u").is_ok()));
    }

    #[test]
    fn idle_entries_are_removed() {
        let (limits, clock) = limits(10);
        for n in 0..10 * SWEEP_MIN {
            clock.0.fetch_add(1_000, Ordering::Relaxed);
            assert!(limits.request(&format!("user-{n}")).is_ok());
        }
        assert!(
            limits.users.entries.len() <= SWEEP_MIN,
            "{}",
            limits.users.entries.len()
        );
    }
}
