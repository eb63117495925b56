//! The work queue: each key once, no key twice at a time, and pauses after failures.

use super::back_off;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::Hash,
    time::{Duration, Instant},
};

/// Keys that are due now or later.
///
/// ```text
/// add(a) add(a) → pop: a      one run for two changes
/// add(a) while a runs         → a again, after it is done
/// failed(a) failed(a)         → a after 100 ms, then after 200 ms
/// ```
pub(super) struct Queue<K> {
    due: BTreeSet<(Instant, K)>,
    times: HashMap<K, Instant>,
    running: HashSet<K>,
    /// Keys that changed while they ran.
    again: HashSet<K>,
    failures: HashMap<K, u32>,
}

impl<K: Clone + Ord + Hash> Queue<K> {
    pub(super) fn new() -> Self {
        Self {
            due: BTreeSet::new(),
            times: HashMap::new(),
            running: HashSet::new(),
            again: HashSet::new(),
            failures: HashMap::new(),
        }
    }

    /// Adds a key that has changed.
    pub(super) fn add(&mut self, key: K, now: Instant) {
        match self.running.contains(&key) {
            true => drop(self.again.insert(key)),
            false => self.schedule(key, now),
        }
    }

    /// Sets the time of a key; an earlier one stays.
    fn schedule(&mut self, key: K, time: Instant) {
        match self.times.get(&key) {
            Some(present) if *present <= time => return,
            Some(present) => drop(self.due.remove(&(*present, key.clone()))),
            None => {}
        }
        self.times.insert(key.clone(), time);
        self.due.insert((time, key));
    }

    /// Takes the first key that is due. It counts as running until it is done.
    pub(super) fn pop(&mut self, now: Instant) -> Option<K> {
        let (time, _) = self.due.first()?;
        if *time > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.times.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Returns the time of the first key.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(time, _)| *time)
    }

    /// Ends the run of a key, which is due again after a time if one is given.
    pub(super) fn done(&mut self, key: K, after: Option<Duration>, now: Instant) {
        self.failures.remove(&key);
        self.end(key, after, now);
    }

    /// Ends the failed run of a key, and returns the pause before the next one.
    pub(super) fn failed(&mut self, key: K, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let pause = back_off(*failures);
        // A change does not shorten the pause of a failing key.
        self.again.remove(&key);
        self.end(key, Some(pause), now);
        pause
    }

    fn end(&mut self, key: K, after: Option<Duration>, now: Instant) {
        self.running.remove(&key);
        if self.again.remove(&key) {
            self.schedule(key, now);
        } else if let Some(after) = after {
            self.schedule(key, now + after);
        }
    }

    /// Forgets the failures of a key that is gone.
    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_key_runs_once_for_several_changes() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.add("a", now);
        queue.add("a", now + MS);
        assert_eq!(queue.pop(now), Some("a"));
        assert_eq!(queue.pop(now + MS), None);
    }

    #[test]
    fn a_change_during_a_run_leads_to_another_one() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.add("a", now);
        queue.pop(now);
        queue.add("a", now);
        assert_eq!((queue.pop(now), queue.running()), (None, 1));
        queue.done("a", None, now);
        assert_eq!(queue.pop(now), Some("a"));
        queue.done("a", None, now);
        assert_eq!((queue.pop(now), queue.next()), (None, None));
    }

    #[test]
    fn pauses_double_and_end_with_success() {
        let (mut queue, mut now) = (Queue::new(), Instant::now());
        queue.add("a", now);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            assert_eq!(queue.pop(now), Some("a"));
            pauses.push(queue.failed("a", now).as_millis());
            assert_eq!(queue.pop(now), None);
            now = queue.next().unwrap();
        }
        assert_eq!(pauses, [100, 200, 400]);
        assert_eq!(queue.pop(now), Some("a"));
        queue.done("a", None, now);
        queue.add("a", now);
        queue.pop(now);
        assert_eq!(queue.failed("a", now).as_millis(), 100);
        assert_eq!(back_off(100), Duration::from_secs(300));
    }

    #[test]
    fn a_change_comes_before_a_planned_run() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.add("a", now);
        queue.pop(now);
        queue.done("a", Some(1000 * MS), now);
        assert_eq!(queue.pop(now), None);
        queue.add("a", now + MS);
        assert_eq!(queue.pop(now + MS), Some("a"));
        assert_eq!(queue.next(), None);
    }
}
