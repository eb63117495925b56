//! Limits of each user, of each workspace and of the server: requests in flight, open watches,
//! requests in a second, and bytes in flight.
//!
//! A request above a limit is refused with the limit's name; other users and
//! workspaces are not affected.

mod bytes;
mod rejections;
mod share;
mod watches;

#[cfg(test)]
mod tests;

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

pub use bytes::{Budget, SMALL_BYTES};
pub use rejections::{Rejection, Rejections};
pub use share::{Share, UsedNow};
pub use watches::{MeasuredWatch, WatchEnd, WatchMeasures};

/// Burst of the rate limit: a second's requests at once.
const BURST_MICROS: i64 = 1_000_000;
/// Number of entries from which idle ones are removed; doubled by what is left after a sweep.
const SWEEP_MIN: usize = 1_024;

/// A limit that is reached. Displays what has to become less.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Too many requests, please try again later: {0}")]
pub struct Limit(pub String);

/// Limits of the server and of each user and workspace.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a request's body (kube-apiserver: 3 MiB).
    pub body_bytes: usize,
    /// Time to answer a request that is no watch.
    pub request_time: Duration,
    /// CPU time that the answer of one request may take.
    pub compute_time: Duration,
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
    /// The rate of that time, in requests a second.
    rate: usize,
}

impl Usage {
    fn count(&mut self, kind: PermitKind) -> &mut usize {
        match kind {
            PermitKind::Requests => &mut self.requests,
            PermitKind::Watches => &mut self.watches,
        }
    }

    /// Takes on the present rate. Earlier requests count at its pace, and for no longer than those
    /// of a burst at it.
    fn follow_rate(&mut self, rate: usize, now: i64) {
        let before = std::mem::replace(&mut self.rate, rate);
        if before != rate && before > 0 {
            let requests = i128::from((self.busy_until - now).max(0)) * before as i128;
            let busy = requests / rate.max(1) as i128;
            self.busy_until = now + i64::try_from(busy).unwrap_or(BURST_MICROS).min(BURST_MICROS);
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

/// Permits that a request holds until the last byte of its answer is sent.
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
    /// The limit of the user or of the server is reached.
    pub fn request(&self, user: &str) -> Result<InFlightPermit, Limit> {
        let own = UsageTable::acquire(&self.users, user.into(), PermitKind::Requests, self.users.share)?;
        let all = self.all.clone().try_acquire_owned().map_err(|_| {
            self.rejections.count(Rejection::Requests);
            let most = self.settings.requests;
            Limit(format!("the server answers {most} requests at once, and no more"))
        })?;
        Ok(InFlightPermit { _user: own, _all: all })
    }

    /// Takes a permit for an authorised request in a workspace. Others do not count: they could use
    /// up the limit of a workspace that they have no access to. `own` are the limits of the
    /// workspace in the place of the server's.
    ///
    /// # Errors
    /// The limit of the workspace is reached.
    pub fn in_workspace(&self, cluster: &ClusterName, own: Option<&WorkspaceLimits>) -> Result<CountedPermit, Limit> {
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
    pub fn budget(&self, user: &Arc<str>, in_workspace: Option<&CountedPermit>) -> Budget {
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
    /// The limit of the user or of the workspace is reached.
    pub fn watch(
        &self,
        user: Option<&str>,
        cluster: Option<&ClusterName>,
        own: Option<&WorkspaceLimits>,
    ) -> Result<WatchPermit, Limit> {
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
    ) -> Result<CountedPermit, Limit> {
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
            return Err(Limit(why));
        }
        if kind == PermitKind::Requests {
            let now = table.clock.monotonic_micros();
            usage.follow_rate(rate, now);
            let busy_until = usage.busy_until.max(now);
            if busy_until - now > BURST_MICROS {
                table.rejections.count(Rejection::Rate);
                let why = format!("{subject} sent {rate} requests in a second, and may send no more");
                return Err(Limit(why));
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
