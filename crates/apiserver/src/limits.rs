//! What one user, and all users of one workspace, may have open and send. Who is over a limit is
//! told which, and when to come again; nobody else notices.

mod bytes;

use crate::status::{self, StatusReply};
use dashmap::DashMap;
use insula_api::{Clock, ClusterName};
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

/// Whoever sent nothing for a second may send so much at once: a second's requests.
const BURST_MICROS: i64 = 1_000_000;
/// Entries of those who have nothing open are looked for when there are so many, and again when
/// they have doubled.
const SWEEP_MIN: usize = 1_024;

/// What may be open, and how long and large a request may be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a request's body (kube-apiserver: 3 MiB); more than [`crate::body::BODY_BYTES_MAX`]
    /// is never read.
    pub body_bytes: usize,
    /// Time to answer a request that is not a watch.
    pub request_time: Duration,
    /// Requests that are being answered, of all users.
    pub requests: usize,
    /// Bytes in flight of all requests and answers.
    pub bytes: usize,
    /// What one user may.
    pub user: Share,
    /// What all users of a workspace may.
    pub workspace: Share,
}

/// What one of many may have.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Requests that are being answered; the next one gets 429.
    pub requests: usize,
    /// Open watches.
    pub watches: usize,
    /// Requests begun in a second.
    pub rate: usize,
    /// Bytes in flight of their requests and answers.
    pub bytes: usize,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Requests,
    Watches,
}

/// What somebody has open.
#[derive(Debug, Default)]
struct Open {
    requests: usize,
    watches: usize,
    bytes: usize,
    /// Until when the requests so far would have kept them busy at their rate, in microseconds of
    /// monotonic time.
    busy_until: i64,
}

impl Open {
    fn count(&mut self, what: What) -> &mut usize {
        match what {
            What::Requests => &mut self.requests,
            What::Watches => &mut self.watches,
        }
    }

    fn is_idle(&self, now: i64) -> bool {
        self.requests == 0 && self.watches == 0 && self.bytes == 0 && self.busy_until <= now
    }
}

/// Everybody of a kind who has something open or had a moment ago: others have no entry.
struct Book {
    whose: &'static str,
    share: Share,
    open: DashMap<Arc<str>, Open>,
    sweep_at: AtomicUsize,
    clock: Arc<dyn Clock>,
}

/// Counts by user and by workspace.
pub struct Limits {
    /// How much.
    pub settings: Settings,
    users: Arc<Book>,
    workspaces: Arc<Book>,
    all: Arc<Semaphore>,
    bytes: Arc<bytes::Total>,
}

/// A place that is given back when it is dropped.
pub struct CountedPermit {
    book: Arc<Book>,
    name: Arc<str>,
    what: What,
}

/// A place among the requests that are being answered.
pub struct InFlightPermit {
    _user: CountedPermit,
    _all: OwnedSemaphorePermit,
}

/// Whatever a request holds until the last byte of its answer is sent. A response extension.
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

/// A place for a watch: its user's, and its workspace's where it is in one.
pub struct WatchPermit {
    _user: CountedPermit,
    _workspace: Option<CountedPermit>,
}

impl Limits {
    /// Nothing is open yet.
    pub fn new(settings: Settings, clock: &Arc<dyn Clock>) -> Self {
        let all = Arc::new(Semaphore::new(settings.requests));
        let bytes = bytes::Total::new(settings.bytes);
        let book = |whose, share| {
            Arc::new(Book {
                whose,
                share,
                open: DashMap::new(),
                sweep_at: AtomicUsize::new(SWEEP_MIN),
                clock: clock.clone(),
            })
        };
        Limits {
            users: book("the user", settings.user),
            workspaces: book("the workspace", settings.workspace),
            settings,
            all,
            bytes,
        }
    }

    /// A place for a request of a user.
    pub fn request(&self, user: &str) -> Result<InFlightPermit, StatusReply> {
        let own = Book::take(&self.users, user.into(), What::Requests)?;
        let all = self.all.clone().try_acquire_owned();
        let all = all.map_err(|_| {
            let most = self.settings.requests;
            status::too_many_requests(&format!("the server answers {most} requests at once, and no more"))
        })?;
        Ok(InFlightPermit { _user: own, _all: all })
    }

    /// A place for a request in a workspace, of somebody who may send it: others have no share in
    /// it.
    pub fn in_workspace(&self, cluster: &ClusterName) -> Result<CountedPermit, StatusReply> {
        Book::take(&self.workspaces, cluster.as_str().into(), What::Requests)
    }

    /// The bytes that a request of a user holds; none yet.
    pub(crate) fn budget(&self, user: &Arc<str>, in_workspace: Option<&CountedPermit>) -> Budget {
        let user = (self.users.clone(), user.clone());
        let workspace = in_workspace.map(|place| (place.book.clone(), place.name.clone()));
        Budget::new(&self.bytes, [Some(user), workspace])
    }

    /// Counts the open watches of all users. Walks the users that have something open.
    pub fn open_watches(&self) -> usize {
        self.users.open.iter().map(|open| open.watches).sum()
    }

    /// A place for a watch.
    pub fn watch(&self, user: &str, cluster: Option<&ClusterName>) -> Result<WatchPermit, StatusReply> {
        let user = Book::take(&self.users, user.into(), What::Watches)?;
        let workspace = cluster.map(|cluster| Book::take(&self.workspaces, cluster.as_str().into(), What::Watches));
        Ok(WatchPermit {
            _user: user,
            _workspace: workspace.transpose()?,
        })
    }
}

impl Book {
    fn take(book: &Arc<Book>, name: Arc<str>, what: What) -> Result<CountedPermit, StatusReply> {
        book.sweep();
        let Share {
            requests,
            watches,
            rate,
            ..
        } = book.share;
        let whose = book.whose;
        // The entry's lock orders this with the end of others.
        let mut open = book.open.entry(name.clone()).or_default();
        let (most, things) = match what {
            What::Requests => (requests, "requests being answered"),
            What::Watches => (watches, "open watches"),
        };
        if *open.count(what) >= most {
            let why = format!("{whose} has {most} {things}, and may have no more");
            return Err(status::too_many_requests(&why));
        }
        if what == What::Requests {
            let now = book.clock.monotonic_micros();
            let busy_until = open.busy_until.max(now);
            if busy_until - now > BURST_MICROS {
                let why = format!("{whose} sent {rate} requests in a second, and may send no more");
                return Err(status::too_many_requests(&why));
            }
            open.busy_until = busy_until + BURST_MICROS / i64::try_from(rate.max(1)).unwrap_or(i64::MAX);
        }
        *open.count(what) += 1;
        drop(open);
        Ok(CountedPermit {
            book: book.clone(),
            name,
            what,
        })
    }

    /// Forgets those who have nothing open, now and then.
    fn sweep(&self) {
        let length = self.open.len();
        if length < self.sweep_at.load(Ordering::Relaxed) {
            return;
        }
        let now = self.clock.monotonic_micros();
        self.open.retain(|_, open| !open.is_idle(now));
        self.sweep_at
            .store((self.open.len() * 2).max(SWEEP_MIN), Ordering::Relaxed);
    }
}

impl Drop for CountedPermit {
    fn drop(&mut self) {
        if let Some(mut open) = self.book.open.get_mut(&self.name) {
            *open.count(self.what) -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::Timestamp;
    use std::sync::atomic::AtomicI64;

    /// Monotonic time, and what the wall clock shows beside it.
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

    /// Why there is no place.
    fn why<T>(refused: Result<T, StatusReply>) -> String {
        let Err(refused) = refused else { return String::new() };
        assert_eq!((refused.code, refused.retry_after), (429, Some(1)));
        refused.body["message"].as_str().expect("a text").to_owned()
    }

    #[test]
    fn places_come_back() {
        let (limits, _) = limits(1_000);
        let (a, b) = (cluster("a"), cluster("b"));
        let held: Vec<WatchPermit> = (0..2).map(|_| limits.watch("u", Some(&a)).expect("a place")).collect();
        let full = why(limits.watch("u", None));
        assert!(
            full.ends_with("the user has 2 open watches, and may have no more"),
            "{full}"
        );
        let full = why(limits.watch("v", Some(&a)));
        assert!(
            full.ends_with("the workspace has 2 open watches, and may have no more"),
            "{full}"
        );
        assert!(limits.watch("v", Some(&b)).is_ok(), "others are not touched");
        drop(held);
        assert!(limits.watch("u", Some(&a)).is_ok());
    }

    #[test]
    fn requests_are_counted_by_user_by_workspace_and_together() {
        let (limits, _) = limits(1_000);
        let held: Vec<InFlightPermit> = (0..2).map(|_| limits.request("u").expect("a place")).collect();
        let full = why(limits.request("u"));
        assert!(
            full.ends_with("the user has 2 requests being answered, and may have no more"),
            "{full}"
        );
        let _other = limits.request("v").expect("a place");
        assert!(why(limits.request("w")).ends_with("the server answers 3 requests at once, and no more"));
        drop(held);
        assert!(limits.request("w").is_ok());
        let a = cluster("a");
        let _held: Vec<CountedPermit> = (0..2).map(|_| limits.in_workspace(&a).expect("a place")).collect();
        assert!(why(limits.in_workspace(&a)).contains("the workspace has 2 requests"));
        assert!(limits.in_workspace(&cluster("b")).is_ok());
    }

    #[test]
    fn a_rate_is_a_seconds_requests_at_once_and_then_its_pace() {
        let (limits, clock) = limits(10);
        let sent = |count: usize| (0..count).filter(|_| limits.request("u").is_ok()).count();
        assert_eq!(sent(100), 11);
        assert!(why(limits.request("u")).ends_with("the user sent 10 requests in a second, and may send no more"));
        assert!(limits.request("v").is_ok());
        clock.0.store(300_000, Ordering::Relaxed);
        assert_eq!(sent(100), 3);
    }

    #[test]
    fn bytes_are_counted_by_user_by_workspace_and_together() {
        let (limits, _) = limits(10);
        let (a, b) = (limits.in_workspace(&cluster("a")), limits.in_workspace(&cluster("b")));
        let (a, b) = (a.expect("a place"), b.expect("a place"));
        let of = |user: &str, place| limits.budget(&user.into(), place);
        let large = of("u", Some(&a));
        assert!(
            large.hold(1_500_000).is_ok(),
            "who holds nothing else may hold more than the limit"
        );
        assert!(large.hold(100_000).is_ok(), "and go on");
        let text = "requests and answers of the user hold 1000000 bytes, and may hold no more at once";
        assert!(why(of("u", Some(&b)).hold(100_000)).ends_with(text));
        assert!(of("u", Some(&b)).hold(10_000).is_ok(), "what is small is not counted");
        assert!(why(of("v", Some(&a)).hold(100_000)).contains("of the workspace"));
        let other = of("v", None);
        assert!(other.hold(800_000).is_ok());
        assert!(why(of("w", None).hold(800_000)).contains("of the server"));
        drop(large);
        assert!(of("u", Some(&a)).hold(1_000_000).is_ok(), "all of it is given back");
        drop(other);
        assert_eq!(limits.users.open.iter().map(|open| open.bytes).sum::<usize>(), 0);
    }

    /// A wall clock that was set back by 15 s had everybody refused for 14.
    #[test]
    fn a_wall_clock_that_is_set_back_refuses_nobody() {
        let (limits, clock) = limits(10);
        assert!((0..5).all(|_| limits.request("u").is_ok()));
        clock.0.store(500_000, Ordering::Relaxed);
        clock.1.store(-15_000_000, Ordering::Relaxed);
        assert!((0..5).all(|_| limits.request("u").is_ok()));
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let (limits, clock) = limits(10);
        for n in 0..10 * SWEEP_MIN {
            clock.0.fetch_add(1_000, Ordering::Relaxed);
            assert!(limits.request(&format!("user-{n}")).is_ok());
        }
        assert!(limits.users.open.len() <= SWEEP_MIN, "{}", limits.users.open.len());
    }
}
