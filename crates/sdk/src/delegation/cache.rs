//! The last answers of a delegate: each counts for a while, and their number is limited.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time for which an answer counts, as in `k8s.io/apiserver`: tokens, grants and refusals alike.
const COUNTS: Duration = Duration::from_secs(10);
/// Answers of one sort. The oldest goes first.
const ANSWERS_MAX: usize = 4096;
/// Bytes of the longest question whose answer is kept (`k8s.io/apiserver`: 10,000).
const KEY_BYTES_MAX: usize = 10_000;

/// Answers by question.
pub(super) struct Cache<V>(Mutex<Kept<V>>);

struct Kept<V> {
    answers: HashMap<String, (Instant, V)>,
    /// Ends of the answers with their questions, in order.
    order: VecDeque<(Instant, String)>,
}

impl<V: Clone> Cache<V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Kept {
            answers: HashMap::new(),
            order: VecDeque::new(),
        }))
    }

    /// Returns an answer that counts.
    pub(super) fn get(&self, key: &str) -> Option<V> {
        self.get_at(key, Instant::now())
    }

    fn get_at(&self, key: &str, now: Instant) -> Option<V> {
        // A poisoned lock leaves at worst an answer that is not in the order, and ends in time.
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (end, answer) = kept.answers.get(key)?;
        (*end > now).then(|| answer.clone())
    }

    /// Keeps an answer.
    pub(super) fn put(&self, key: String, answer: V) {
        self.put_at(key, answer, Instant::now());
    }

    fn put_at(&self, key: String, answer: V, now: Instant) {
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = now + COUNTS;
        kept.order.push_back((end, key.clone()));
        kept.answers.insert(key, (end, answer));
        while kept.order.len() > ANSWERS_MAX || kept.order.front().is_some_and(|(end, _)| *end <= now) {
            let Some((end, key)) = kept.order.pop_front() else {
                break;
            };
            if kept.answers.get(&key).is_some_and(|(known, _)| *known == end) {
                kept.answers.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_for_ten_seconds() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put_at("a".into(), 1, now);
        assert_eq!(cache.get_at("a", now + Duration::from_millis(9_999)), Some(1));
        assert_eq!(cache.get_at("a", now + Duration::from_secs(10)), None);
        // A newer answer counts from its own time, and the older one's end does not remove it.
        cache.put_at("a".into(), 2, now + Duration::from_secs(5));
        cache.put_at("b".into(), 3, now + Duration::from_secs(11));
        assert_eq!(cache.get_at("a", now + Duration::from_secs(12)), Some(2));
    }

    #[test]
    fn the_number_of_answers_is_limited() {
        let (cache, now) = (Cache::new(), Instant::now());
        for number in 0..=ANSWERS_MAX {
            cache.put_at(number.to_string(), number, now);
        }
        assert_eq!((cache.get_at("0", now), cache.get_at("1", now)), (None, Some(1)));
        let long = "x".repeat(KEY_BYTES_MAX + 1);
        cache.put_at(long.clone(), 1, now);
        assert_eq!(cache.get_at(&long, now), None);
    }
}
