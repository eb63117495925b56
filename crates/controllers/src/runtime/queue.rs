//! Queue of keys: waiting, in work, and scheduled for later.

use super::QueueMeasures;
use insula_api::Clock;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
};

/// Capacity, in keys, that an empty queue keeps: memory of a burst is freed.
const ROOM: usize = 1024;
/// Longest pause between two attempts at a key that fails, in seconds.
const BACKOFF_SECONDS_MAX: u64 = 300;
/// Rounds of [`ROUND_SECONDS`] after which a server takes a key of another one: the first may have
/// been nearly over.
const LATE_ROUNDS: u64 = 4;
/// Seconds of a round.
pub(super) const ROUND_SECONDS: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// Running, and changed meanwhile.
    Again,
}

/// Timer of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timer {
    id: u64,
    /// A change waits for it. It is never replaced or disarmed, so that no change is lost.
    settles: bool,
}

/// Keys in the order of their arrival, each at most once; one that arrives while it is worked on
/// comes after.
///
/// add(a) add(b) add(a) pop → a; add(a); pop → b; done(a) → a waits again.
pub(super) struct Queue<K> {
    /// Keys, each with the monotonic time in microseconds at which it came.
    order: VecDeque<(K, i64)>,
    states: HashMap<K, State>,
    failures: HashMap<K, u32>,
    /// Latest timer of a key; earlier ones are ignored.
    timers: HashMap<K, Timer>,
    last_timer: u64,
    /// Keys that are other servers', with the round in which they came.
    others: VecDeque<(K, u64)>,
    of_others: HashSet<K>,
    round: u64,
    /// Keys of other servers that this one takes.
    left_over: HashSet<K>,
    measures: Arc<QueueMeasures>,
    clock: Arc<dyn Clock>,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(super) fn new(measures: Arc<QueueMeasures>, clock: Arc<dyn Clock>) -> Self {
        Queue {
            order: VecDeque::new(),
            states: HashMap::new(),
            failures: HashMap::new(),
            timers: HashMap::new(),
            last_timer: 0,
            others: VecDeque::new(),
            of_others: HashSet::new(),
            round: 0,
            left_over: HashSet::new(),
            measures,
            clock,
        }
    }

    pub(super) fn add(&mut self, key: K) {
        match self.states.get_mut(&key) {
            Some(State::Waiting | State::Again) => {}
            Some(state) => *state = State::Again,
            None => {
                self.states.insert(key.clone(), State::Waiting);
                self.order.push_back((key, self.clock.monotonic_micros()));
                self.measures.adds.inc();
                self.measures.depth.add(1);
            }
        }
    }

    /// Takes the next key that is this server's, or that no server has been quick enough with; lets
    /// those before it wait for the server whose they are.
    pub(super) fn pop(&mut self, is_own: impl Fn(&K) -> bool) -> Option<K> {
        while let Some((key, since)) = self.order.pop_front() {
            self.measures.depth.add(-1);
            if self.left_over.remove(&key) || is_own(&key) {
                self.measures
                    .queue_seconds
                    .observe_micros(since, self.clock.monotonic_micros());
                self.states.insert(key.clone(), State::Running);
                return Some(key);
            }
            self.states.remove(&key);
            if self.of_others.insert(key.clone()) {
                self.others.push_back((key, self.round));
            }
        }
        None
    }

    /// Returns true while keys wait for other servers.
    pub(super) fn waits_for_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Ends a round of waiting for other servers: queues the keys that have waited for
    /// [`LATE_ROUNDS`].
    pub(super) fn end_round(&mut self) {
        self.round += 1;
        while let Some((key, since)) = self.others.pop_front() {
            if self.round - since < LATE_ROUNDS {
                self.others.push_front((key, since));
                break;
            }
            self.of_others.remove(&key);
            self.left_over.insert(key.clone());
            self.add(key);
        }
    }

    /// Ends the work on a key.
    pub(super) fn done(&mut self, key: &K) {
        if self.states.remove(key) == Some(State::Again) {
            self.add(key.clone());
        }
        if self.states.is_empty() && self.states.capacity() > ROOM {
            self.order.shrink_to(ROOM / 2);
            self.states.shrink_to(ROOM / 2);
            self.failures.shrink_to(ROOM / 2);
            self.timers.shrink_to(ROOM / 2);
            self.others.shrink_to(ROOM / 2);
            self.of_others.shrink_to(ROOM / 2);
            self.left_over.shrink_to(ROOM / 2);
        }
    }

    pub(super) fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Counts a failure. Returns the seconds until the next attempt at the key: 1, 2, 4, …
    pub(super) fn failed(&mut self, key: &K) -> u64 {
        self.measures.retries.inc();
        let failures = self.failures.entry(key.clone()).or_default();
        let seconds = 1u64
            .checked_shl(*failures)
            .unwrap_or(BACKOFF_SECONDS_MAX)
            .min(BACKOFF_SECONDS_MAX);
        *failures = (*failures + 1).min(16);
        seconds
    }

    /// Sets a new timer for the key, in the place of its earlier one. `settles` is for changes that
    /// settle. Returns `None` if a change of the key is settling already: its timer is the
    /// earliest.
    pub(super) fn arm(&mut self, key: &K, settles: bool) -> Option<u64> {
        if self.is_settling(key) {
            return None;
        }
        self.last_timer += 1;
        let id = self.last_timer;
        self.timers.insert(key.clone(), Timer { id, settles });
        Some(id)
    }

    fn is_settling(&self, key: &K) -> bool {
        self.timers.get(key).is_some_and(|timer| timer.settles)
    }

    /// Removes the timer of the key, unless a change is settling.
    pub(super) fn disarm(&mut self, key: &K) {
        if !self.is_settling(key) {
            self.timers.remove(key);
        }
    }

    /// Queues the key if the timer is its latest.
    pub(super) fn fire(&mut self, key: K, timer: u64) {
        if self.timers.get(&key).is_some_and(|latest| latest.id == timer) {
            self.timers.remove(&key);
            self.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue<K: Clone + Eq + Hash>() -> Queue<K> {
        Queue::new(Arc::new(QueueMeasures::new("test")), Arc::new(Still))
    }

    struct Still;

    impl Clock for Still {
        fn now(&self) -> insula_api::Timestamp {
            insula_api::Timestamp(7)
        }
    }

    #[test]
    fn a_key_is_never_worked_on_twice_at_once() {
        let mut queue = queue();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!(queue.pop(|_| true), Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!((queue.pop(|_| true), queue.pop(|_| true)), (Some("b"), None));
        queue.done(&"b");
        queue.done(&"a");
        assert_eq!((queue.pop(|_| true), queue.pop(|_| true)), (Some("a"), None));
    }

    #[test]
    fn a_key_of_another_server_is_taken_late_and_once() {
        let mut queue = queue();
        for key in ["own", "other", "own", "other"] {
            queue.add(key);
        }
        let own = |key: &&str| *key == "own";
        assert_eq!((queue.pop(own), queue.pop(own)), (Some("own"), None));
        queue.done(&"own");
        for _ in 1..LATE_ROUNDS {
            queue.end_round();
            // It changes again, and waits on since its first change.
            queue.add("other");
            assert_eq!((queue.pop(own), queue.waits_for_others()), (None, true));
        }
        queue.end_round();
        assert_eq!((queue.pop(own), queue.waits_for_others()), (Some("other"), false));
        queue.done(&"other");
        queue.add("other");
        assert_eq!(queue.pop(own), None);
    }

    #[test]
    fn a_storm_leaves_no_room_behind() {
        let mut queue = queue();
        (0..10 * ROOM).for_each(|key| queue.add(key));
        while let Some(key) = queue.pop(|_| true) {
            queue.done(&key);
        }
        assert!(queue.states.capacity() <= ROOM && queue.order.capacity() <= ROOM);
    }

    #[test]
    fn a_failing_key_waits_longer_and_longer() {
        let mut queue = queue();
        let waits: Vec<u64> = (0..10).map(|_| queue.failed(&"a")).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(queue.failed(&"b"), 1);
        queue.succeeded(&"a");
        assert_eq!(queue.failed(&"a"), 1);
    }

    #[test]
    fn only_the_latest_timer_counts() {
        let mut queue = queue();
        let [old, new] = [queue.arm(&"a", false), queue.arm(&"a", false)].map(|timer| timer.expect("a timer"));
        queue.fire("a", old);
        assert_eq!(queue.pop(|_| true), None);
        queue.fire("a", new);
        assert_eq!(queue.pop(|_| true), Some("a"));
    }

    #[test]
    fn a_change_that_settles_is_not_lost() {
        let mut queue = queue();
        queue.arm(&"a", false);
        let settling = queue.arm(&"a", true).expect("it is earlier than the other");
        assert_eq!(queue.arm(&"a", true), None, "one timer serves all changes");
        // The decision about the state before the change ends.
        assert_eq!(queue.arm(&"a", false), None);
        queue.disarm(&"a");
        queue.fire("a", settling);
        assert_eq!(queue.pop(|_| true), Some("a"));
    }
}
