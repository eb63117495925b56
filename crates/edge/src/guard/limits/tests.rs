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
        compute_time: Duration::from_secs(20),
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
fn message<T>(refused: Result<T, Limit>) -> String {
    refused.err().map(|limit| limit.to_string()).unwrap_or_default()
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

/// Requests of before a change of the rate count at the new pace, and for a second at most.
#[test]
fn another_rate_takes_earlier_requests_along() {
    let (limits, clock) = limits(1_000);
    let a = cluster("a");
    let own = |rate| WorkspaceLimits {
        rate: Some(rate),
        ..WorkspaceLimits::default()
    };
    let send = |rate: usize| message(limits.in_workspace(&a, Some(&own(rate))).map(drop));
    assert_eq!([send(1), send(1)], ["", ""]);
    assert!(send(1).contains("sent 1 requests in a second"), "{}", send(1));
    assert_eq!(send(50_000), "", "two requests are few at this rate");
    for _ in 0..40_000 {
        assert_eq!(send(50_000), "");
    }
    // Of these, one counts at the slow pace.
    assert_eq!(send(1), "");
    assert!(!send(1).is_empty());
    clock.0.fetch_add(1_000_000, Ordering::Relaxed);
    assert_eq!(send(1), "");
}
