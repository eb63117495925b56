//! Metering of workspaces: requests by verb, bytes of answers and conversions, by the hour.
//!
//! Requests add to counters in memory. Once a minute the counters of each active workspace become
//! part of a record, one for a day:
//!
//! ```text
//! meterings.internal.insula.io "<cluster>/2026-11-24":
//!   hours: {"08": {"get": 12, "bytesOut": 3400}}
//! ```
//! Records stand in `system:bound-crds`, so that they outlive their workspace, and are deleted
//! after [`KEPT_DAYS`]. Numbers in them never decrease. A server that is killed loses at most the
//! last minute.

use crate::ids;
use dashmap::DashMap;
use insula_api::{ClusterName, Json, ObjectKey, Scope, Timestamp, Verb};
use insula_store::{Entry, Snapshot};
use serde_json::{Map, json};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Days for which records are kept.
pub const KEPT_DAYS: i64 = 35;
const DAY_SECONDS: i64 = 86_400;
const HOUR_SECONDS: i64 = 3_600;

/// Names of the counters in records: requests by verb first.
pub const METERS: [&str; 11] = [
    Verb::Get.name(),
    Verb::List.name(),
    Verb::Watch.name(),
    Verb::Create.name(),
    Verb::Update.name(),
    Verb::Patch.name(),
    Verb::Delete.name(),
    Verb::DeleteCollection.name(),
    "other",
    "bytesOut",
    "conversions",
];
/// Counters of requests, at the beginning of [`METERS`].
pub const VERBS: usize = Verb::ALL.len() + 1;
const OTHER: usize = VERBS - 1;
const BYTES_OUT: usize = VERBS;
const CONVERSIONS: usize = VERBS + 1;

/// Amounts in the order of [`METERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts(pub [u64; METERS.len()]);

impl Amounts {
    /// Adds other amounts.
    pub fn add(&mut self, other: &Amounts) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(other);
        }
    }

    /// Returns true if all amounts are 0.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|amount| *amount == 0)
    }

    fn read(value: &Json) -> Self {
        Amounts(METERS.map(|name| value[name].as_u64().unwrap_or_default()))
    }

    fn write(&self) -> Json {
        let some = METERS.iter().zip(self.0).filter(|(_, amount)| *amount > 0);
        some.map(|(name, amount)| ((*name).to_owned(), json!(amount)))
            .collect::<Map<String, Json>>()
            .into()
    }
}

/// Counters of one workspace that are not stored yet.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; METERS.len()]);

impl Counters {
    /// Adds bytes of an answer.
    pub fn sent(&self, bytes: u64) {
        self.0[BYTES_OUT].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds converted objects.
    pub fn converted(&self, objects: u64) {
        self.0[CONVERSIONS].fetch_add(objects, Ordering::Relaxed);
    }

    fn add(&self, amounts: &Amounts) {
        for (counter, amount) in self.0.iter().zip(amounts.0) {
            counter.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Amounts {
        let mut taken = Amounts::default();
        for (amount, counter) in taken.0.iter_mut().zip(&self.0) {
            *amount = counter.swap(0, Ordering::Relaxed);
        }
        taken
    }

    fn get(&self) -> Amounts {
        let mut seen = Amounts::default();
        for (amount, counter) in seen.0.iter_mut().zip(&self.0) {
            *amount = counter.load(Ordering::Relaxed);
        }
        seen
    }
}

/// Counters of all workspaces that are not stored yet. A workspace without requests has none.
#[derive(Debug, Default)]
pub struct Metering {
    active: DashMap<ClusterName, Arc<Counters>>,
    is_disabled: bool,
}

impl Metering {
    /// Returns an instance that counts nothing.
    pub fn disabled() -> Self {
        Metering {
            is_disabled: true,
            ..Metering::default()
        }
    }

    /// Counts a request, and returns the counters of its workspace; `None` if nothing is counted.
    pub fn request(&self, cluster: &ClusterName, verb: Option<Verb>) -> Option<Arc<Counters>> {
        let counters = self.counters(cluster)?;
        let meter = METERS[..OTHER]
            .iter()
            .position(|known| verb.is_some_and(|verb| verb.name() == *known));
        let meter = meter.unwrap_or(OTHER);
        counters.0[meter].fetch_add(1, Ordering::Relaxed);
        Some(counters)
    }

    /// Returns the counters of a workspace; `None` if nothing is counted.
    pub fn counters(&self, cluster: &ClusterName) -> Option<Arc<Counters>> {
        if self.is_disabled {
            return None;
        }
        // The common case takes the lock of its shard for reading only.
        if let Some(known) = self.active.get(cluster) {
            return Some(known.clone());
        }
        Some(self.active.entry(cluster.clone()).or_default().clone())
    }

    /// Returns the amounts of a workspace that are not stored yet.
    pub fn pending(&self, cluster: &ClusterName) -> Amounts {
        self.active
            .get(cluster)
            .map(|counters| counters.get())
            .unwrap_or_default()
    }

    /// Takes the amounts of all workspaces. Forgets workspaces that nobody uses.
    pub fn take(&self) -> Vec<(ClusterName, Amounts)> {
        let mut taken = Vec::new();
        self.active.retain(|cluster, counters| {
            let amounts = counters.take();
            let is_used = !amounts.is_empty();
            if is_used {
                taken.push((cluster.clone(), amounts));
            }
            // An open watch or a request that is being answered holds the counters.
            is_used || Arc::strong_count(counters) > 1
        });
        taken
    }

    /// Puts amounts back that could not be stored.
    pub fn put_back(&self, cluster: &ClusterName, amounts: &Amounts) {
        if let Some(counters) = self.counters(cluster) {
            counters.add(amounts);
        }
    }
}

/// Returns the key of the record of a workspace's day.
pub fn record_of(cluster: &ClusterName, at: Timestamp) -> ObjectKey {
    let day = at.to_string();
    let day = day.get(..10).unwrap_or_default();
    ObjectKey::cluster_scoped(ids::meterings(), ClusterName::bound_crds(), &format!("{cluster}/{day}"))
}

/// Returns a record with more amounts in the hour of a time.
pub fn added(known: Option<&Json>, key: &ObjectKey, at: Timestamp, amounts: &Amounts) -> Json {
    let fresh = || {
        json!({
            "apiVersion": ids::INTERNAL_V1, "kind": "Metering", "metadata": {"name": &*key.name},
            "spec": {"hours": {}},
        })
    };
    let mut record = known.cloned().unwrap_or_else(fresh);
    let hour = format!("{:02}", at.0.rem_euclid(DAY_SECONDS) / HOUR_SECONDS);
    let slot = &mut record["spec"]["hours"][&hour];
    let mut sum = Amounts::read(slot);
    sum.add(amounts);
    *slot = sum.write();
    record
}

/// Returns true if a record is older than [`KEPT_DAYS`].
pub fn is_expired(entry: &Entry, now: Timestamp) -> bool {
    let day = day_of(&entry.key);
    day.is_none_or(|day| day.0 + (KEPT_DAYS + 1) * DAY_SECONDS <= now.0)
}

fn day_of(key: &ObjectKey) -> Option<Timestamp> {
    let (_, day) = key.name.rsplit_once('/')?;
    Timestamp::parse(&format!("{day}T00:00:00Z"))
}

/// Amounts of a workspace by the beginning of each hour.
pub type Hours = BTreeMap<i64, Amounts>;

/// Returns the stored amounts of a workspace from a time on, by the hour.
pub fn stored(snapshot: &Snapshot, cluster: &ClusterName, from: Timestamp) -> Hours {
    let mut hours = Hours::new();
    let prefix = format!("{cluster}/");
    let scope = Scope::cluster(ids::meterings(), ClusterName::bound_crds());
    let first = ObjectKey::cluster_scoped(ids::meterings(), ClusterName::bound_crds(), &prefix);
    snapshot.for_each_after(&scope, Some(&first), |entry| {
        if !entry.key.name.starts_with(&prefix) {
            return ControlFlow::Break(());
        }
        let Some(day) = day_of(&entry.key) else {
            return ControlFlow::Continue(());
        };
        let value = entry.object.body_value();
        for (hour, amounts) in value["spec"]["hours"].as_object().into_iter().flatten() {
            let begin = day.0 + hour.parse::<i64>().unwrap_or_default() * HOUR_SECONDS;
            if begin + HOUR_SECONDS > from.0 {
                hours.entry(begin).or_default().add(&Amounts::read(amounts));
            }
        }
        ControlFlow::Continue(())
    });
    hours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterName {
        ClusterName::parse("one").expect("a name")
    }

    #[test]
    fn requests_are_counted_by_verb_until_they_are_taken() {
        let metering = Metering::default();
        let one = cluster();
        let held = metering.request(&one, Some(Verb::Get)).expect("it counts");
        metering.request(&one, None).expect("it counts").sent(10);
        held.converted(2);
        let taken = metering.take();
        assert_eq!(taken, [(one.clone(), Amounts([1, 0, 0, 0, 0, 0, 0, 0, 1, 10, 2]))]);
        // The counters of an open request stay its workspace's.
        assert!(metering.take().is_empty());
        held.sent(5);
        assert_eq!(metering.pending(&one).0[BYTES_OUT], 5);
        metering.put_back(&one, &taken[0].1);
        assert_eq!(metering.take()[0].1, Amounts([1, 0, 0, 0, 0, 0, 0, 0, 1, 15, 2]));
        drop(held);
        assert!(metering.take().is_empty());
        assert!(metering.active.is_empty(), "an idle workspace has no counters");
        assert!(Metering::disabled().request(&one, Some(Verb::Get)).is_none());
    }

    #[test]
    fn records_only_grow_and_have_an_hour_for_each_amount() {
        let at = Timestamp::parse("2026-11-24T08:59:59Z").expect("a time");
        let key = record_of(&cluster(), at);
        assert_eq!(&*key.name, "one/2026-11-24");
        let mut amounts = Amounts::default();
        amounts.0[0] = 3;
        let first = added(None, &key, at, &amounts);
        let second = added(Some(&first), &key, at, &amounts);
        assert_eq!(second["spec"]["hours"], json!({"08": {"get": 6}}));
        let third = added(Some(&second), &key, Timestamp(at.0 + 1), &amounts);
        assert_eq!(third["spec"]["hours"], json!({"08": {"get": 6}, "09": {"get": 3}}));
    }
}
