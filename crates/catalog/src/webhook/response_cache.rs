//! A cache of conversion webhook responses that watches share.
//!
//! Watchers of one kind in one version see the same changes at the same moment. The first watcher
//! calls the webhook, concurrent watchers wait for that call, and later watchers find the response
//! in the cache. So each change costs one call for each watched version, whatever the number of
//! watchers.
//!
//! ```text
//! watcher 1: a@7 in v2?  unknown     calls the webhook; both watchers drive one shared future
//! watcher 2: a@7 in v2?  in flight   waits for that future, also after watcher 1 is dropped
//! watcher 3: a@7 in v2?  cached      takes the response
//! ```
//! All waiting watchers receive a failure; the cache does not keep it.

use super::{Answer, Caller, Key, PendingCall};
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

/// Maximum bytes of cached responses, over all tenants.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Seconds that a response is cached. New watches see a repaired webhook after this time.
const KEPT_SECONDS: i64 = 60;

type Answers = Arc<Vec<(Key, Answer)>>;
type InFlight = BoxFuture<'static, Answers>;
/// A call of one logical cluster.
type CacheKey = (ClusterName, Key);

/// Webhook responses shared by watches.
#[derive(Default)]
pub struct ResponseCache(Mutex<CachedResponses>);

#[derive(Default)]
struct CachedResponses {
    slots: HashMap<CacheKey, Slot>,
    /// Keys by the time of their insertion. Every slot has an entry; an entry may outlive its slot.
    order: VecDeque<(Timestamp, CacheKey)>,
    bytes: usize,
}

struct Slot {
    since: Timestamp,
    state: State,
}

enum State {
    /// A call in flight. Only its waiters hold the future, so the call ends when all of them drop
    /// it.
    InFlight(WeakShared<InFlight>),
    Kept {
        answer: Arc<Json>,
        bytes: usize,
    },
}

impl ResponseCache {
    /// Returns the responses to calls of a cluster: from the cache, from calls in flight, or from
    /// new calls.
    pub(super) async fn request(
        self: &Arc<Self>,
        cluster: &ClusterName,
        open: Vec<(Key, PendingCall)>,
        caller: Caller,
        now: Timestamp,
    ) -> Vec<(Key, Answer)> {
        let (mut known, waiting) = self.look_up(cluster, open, caller, now);
        for answers in join_all(waiting).await {
            known.extend(answers.iter().cloned());
        }
        known
    }

    /// Returns the cached responses and the futures of the calls in flight; starts the missing
    /// calls.
    fn look_up(
        self: &Arc<Self>,
        cluster: &ClusterName,
        open: Vec<(Key, PendingCall)>,
        caller: Caller,
        now: Timestamp,
    ) -> (Vec<(Key, Answer)>, Vec<Shared<InFlight>>) {
        let mut shelf = self.0.lock();
        shelf.forget(now);
        let (mut known, mut mine) = (Vec::new(), Vec::new());
        let mut waiting: Vec<Shared<InFlight>> = Vec::new();
        for (key, pending_call) in open {
            match shelf.slots.get(&(cluster.clone(), key)).map(|slot| &slot.state) {
                Some(State::Kept { answer, .. }) => known.push((key, Ok(answer.clone()))),
                Some(State::InFlight(in_flight)) => match in_flight.upgrade() {
                    Some(in_flight) if waiting.iter().any(|known| known.ptr_eq(&in_flight)) => {}
                    Some(in_flight) => waiting.push(in_flight),
                    None => mine.push((key, pending_call)),
                },
                None => mine.push((key, pending_call)),
            }
        }
        if !mine.is_empty() {
            let places: Vec<CacheKey> = mine.iter().map(|(key, _)| (cluster.clone(), *key)).collect();
            let in_flight = self.in_flight(cluster.clone(), mine, caller);
            if let Some(weak) = in_flight.downgrade() {
                places
                    .into_iter()
                    .for_each(|place| shelf.begin(place, weak.clone(), now));
            }
            waiting.push(in_flight);
        }
        (known, waiting)
    }

    fn in_flight(
        self: &Arc<Self>,
        cluster: ClusterName,
        pending_calls: Vec<(Key, PendingCall)>,
        caller: Caller,
    ) -> Shared<InFlight> {
        let response_cache = self.clone();
        let in_flight = async move {
            let answers = caller.request(&cluster, pending_calls).await;
            response_cache.settle(&cluster, &answers);
            Arc::new(answers)
        };
        in_flight.boxed().shared()
    }

    fn settle(&self, cluster: &ClusterName, answers: &[(Key, Answer)]) {
        let mut shelf = self.0.lock();
        for (key, answer) in answers {
            shelf.settle((cluster.clone(), *key), answer);
        }
    }
}

impl CachedResponses {
    fn begin(&mut self, place: CacheKey, in_flight: WeakShared<InFlight>, since: Timestamp) {
        self.order.push_back((since, place.clone()));
        let state = State::InFlight(in_flight);
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

    /// Evicts expired responses, and the oldest ones while the cache is over its size limit.
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
mod tests;
