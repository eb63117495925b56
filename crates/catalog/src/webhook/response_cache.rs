//! What conversion webhooks say to watches.
//!
//! Who watches one kind in one version sees the same changes as the others who do, at the same
//! moment. The first of them asks, the others wait for its answer, and those who come a little
//! later find it kept. So a change costs one question for each version that is watched, whatever
//! the number of watchers.
//!
//! ```text
//! watcher 1: a@7 in v2?  nobody asked          asks; the question is one future that both drive
//! watcher 2: a@7 in v2?  being asked           waits for the same future, and drives it on if watcher 1 goes
//! watcher 3: a@7 in v2?  answered              takes it
//! ```
//! Failures are told to all who wait, and not kept.

use super::{Answer, Asker, Key, Question};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared, join_all},
};
use insula_api::{ClusterName, Json, Timestamp};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Bytes of answers that are kept, over all tenants.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// How long: a webhook that is mended is believed by new watches after this.
const KEPT_SECONDS: i64 = 60;

type Answers = Arc<Vec<(Key, Answer)>>;
type Asking = BoxFuture<'static, Answers>;
/// A question of a cluster's.
type CacheKey = (ClusterName, Key);

/// Answers that watches share.
#[derive(Default)]
pub struct ResponseCache(Mutex<CachedResponses>);

#[derive(Default)]
struct CachedResponses {
    slots: HashMap<CacheKey, Slot>,
    /// Places by when they were taken. Each slot is here; not each of these has its slot still.
    order: VecDeque<(Timestamp, CacheKey)>,
    bytes: usize,
}

struct Slot {
    since: Timestamp,
    state: State,
}

enum State {
    /// Held by those who wait for it alone: when all of them go, nobody is asked on.
    Asking(WeakShared<Asking>),
    Kept {
        answer: Arc<Json>,
        bytes: usize,
    },
}

impl ResponseCache {
    /// The answers to questions of a cluster's, as far as they cannot be had otherwise by asking.
    pub(super) async fn ask(
        self: &Arc<Self>,
        cluster: &ClusterName,
        open: Vec<(Key, Question)>,
        asker: Asker,
        now: Timestamp,
    ) -> Vec<(Key, Answer)> {
        let (mut known, waiting) = self.look_up(cluster, open, asker, now);
        for answers in join_all(waiting).await {
            known.extend(answers.iter().cloned());
        }
        known
    }

    /// What is kept, and what is being asked from now on at the latest.
    fn look_up(
        self: &Arc<Self>,
        cluster: &ClusterName,
        open: Vec<(Key, Question)>,
        asker: Asker,
        now: Timestamp,
    ) -> (Vec<(Key, Answer)>, Vec<Shared<Asking>>) {
        let mut shelf = self.0.lock();
        shelf.forget(now);
        let (mut known, mut mine) = (Vec::new(), Vec::new());
        let mut waiting: Vec<Shared<Asking>> = Vec::new();
        for (key, question) in open {
            match shelf.slots.get(&(cluster.clone(), key)).map(|slot| &slot.state) {
                Some(State::Kept { answer, .. }) => known.push((key, Ok(answer.clone()))),
                Some(State::Asking(asking)) => match asking.upgrade() {
                    Some(asking) if waiting.iter().any(|known| known.ptr_eq(&asking)) => {}
                    Some(asking) => waiting.push(asking),
                    None => mine.push((key, question)),
                },
                None => mine.push((key, question)),
            }
        }
        if !mine.is_empty() {
            let places: Vec<CacheKey> = mine.iter().map(|(key, _)| (cluster.clone(), *key)).collect();
            let asking = self.asking(cluster.clone(), mine, asker);
            if let Some(weak) = asking.downgrade() {
                places
                    .into_iter()
                    .for_each(|place| shelf.begin(place, weak.clone(), now));
            }
            waiting.push(asking);
        }
        (known, waiting)
    }

    fn asking(self: &Arc<Self>, cluster: ClusterName, questions: Vec<(Key, Question)>, asker: Asker) -> Shared<Asking> {
        let response_cache = self.clone();
        let asking = async move {
            let answers = asker.ask(&cluster, questions).await;
            response_cache.settle(&cluster, &answers);
            Arc::new(answers)
        };
        asking.boxed().shared()
    }

    fn settle(&self, cluster: &ClusterName, answers: &[(Key, Answer)]) {
        let mut shelf = self.0.lock();
        for (key, answer) in answers {
            shelf.settle((cluster.clone(), *key), answer);
        }
    }
}

impl CachedResponses {
    fn begin(&mut self, place: CacheKey, asking: WeakShared<Asking>, since: Timestamp) {
        self.order.push_back((since, place.clone()));
        let state = State::Asking(asking);
        self.slots.insert(place, Slot { since, state });
    }

    fn settle(&mut self, place: CacheKey, answer: &Answer) {
        match (answer, self.slots.get_mut(&place)) {
            (Ok(answer), Some(slot)) => {
                let bytes = answer.to_string().len();
                let answer = answer.clone();
                if let State::Kept { bytes: before, .. } = slot.state {
                    self.bytes -= before;
                }
                self.bytes += bytes;
                slot.state = State::Kept { answer, bytes };
            }
            (Err(_), _) => self.remove(&place),
            (Ok(_), None) => {}
        }
    }

    /// Lets go what is too old, and the oldest while there is too much.
    fn forget(&mut self, now: Timestamp) {
        while let Some((since, _)) = self.order.front()
            && (now.0 - since.0 > KEPT_SECONDS || self.bytes > KEPT_BYTES_MAX)
            && let Some((since, place)) = self.order.pop_front()
        {
            if self.slots.get(&place).is_some_and(|slot| slot.since == since) {
                self.remove(&place);
            }
        }
    }

    fn remove(&mut self, place: &CacheKey) {
        if let Some(Slot {
            state: State::Kept { bytes, .. },
            ..
        }) = self.slots.remove(place)
        {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
#[path = "response_cache_tests.rs"]
mod tests;
