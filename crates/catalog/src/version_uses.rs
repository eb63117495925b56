//! Uses of the versions of bound APIs by tenants.
//!
//! A request in a tenant's workspace for a bound resource is a use of the version in its path,
//! unless a page of the console reads it in the session of a viewer.
//! [`VersionUses`] notes the first use of each hour in memory; every later one of the hour costs an
//! atomic read. The note wakes a task of the server, which writes it into one [`UseRecord`] for
//! each route, so that a guard on another server sees the use as well, and several servers on one
//! store merge theirs by the latest time. The status of an export and the
//! admission of its changes sum up the records.

use crate::{
    Origin, Served, ids, indexes,
    routes::{ExportName, ResourceRoute},
};
use insula_api::{ClusterName, Json, Object, ObjectKey, Timestamp};
use insula_store::{Entry, Snapshot};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    ops::{Bound, ControlFlow},
    sync::Arc,
    task::{Poll, Waker},
};

/// Resolution of the recorded times, and the least time between two writes for one version.
const PERIOD_SECONDS: i64 = 3_600;

/// Returns the number of the hour that a time is in. The hours of different clusters begin at
/// different minutes, so that their records are not all written at once.
fn period(cluster: &ClusterName, at: Timestamp) -> i64 {
    let mut hasher = DefaultHasher::new();
    cluster.as_str().hash(&mut hasher);
    let offset = (hasher.finish() % PERIOD_SECONDS.unsigned_abs()).cast_signed();
    at.0.saturating_add(offset).div_euclid(PERIOD_SECONDS)
}

/// Uses of the versions of one route: the last time of each version.
pub type UsesByVersion = BTreeMap<Arc<str>, Timestamp>;

/// Uses of one route that are not stored yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotedUses {
    /// Identity of the export that served them.
    pub identity: Arc<str>,
    /// Last use of each version.
    pub versions: UsesByVersion,
}

/// Uses that are not stored yet, by the key of the route. At most one entry for each bound resource
/// that was used since the notes were stored.
#[derive(Debug, Default)]
pub struct VersionUses {
    notes: Mutex<Notes>,
    is_disabled: bool,
}

#[derive(Debug, Default)]
struct Notes {
    routes: BTreeMap<ObjectKey, NotedUses>,
    /// The task that stores them, while there are none.
    waiting: Option<Waker>,
}

impl Notes {
    fn wake(&mut self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}

impl VersionUses {
    /// Returns an instance that notes nothing.
    pub fn disabled() -> Self {
        VersionUses {
            is_disabled: true,
            ..VersionUses::default()
        }
    }

    /// Returns true if it notes nothing.
    pub fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// Notes the use of a version of a bound resource in a cluster.
    pub fn note(&self, served: &Served, cluster: &ClusterName, version: &str, now: Timestamp) {
        let (Origin::Bound { .. }, Some(route), Some((key, _))) = (&served.origin, &served.route, &served.guard) else {
            return;
        };
        if self.is_disabled {
            return;
        }
        let Some(index) = served.api.versions.iter().position(|known| *known.name == *version) else {
            return;
        };
        if route.marks.mark(index, period(cluster, now)) {
            let mut all = self.notes.lock();
            let noted = all.routes.entry(key.clone()).or_default();
            if noted.identity != route.identity {
                *noted = NotedUses {
                    identity: route.identity.clone(),
                    versions: BTreeMap::new(),
                };
            }
            noted.versions.insert(served.api.versions[index].name.clone(), now);
            all.wake();
        }
    }

    /// Waits until there are notes. One task at a time may.
    pub async fn wait(&self) {
        std::future::poll_fn(|context| {
            let mut all = self.notes.lock();
            if !all.routes.is_empty() {
                return Poll::Ready(());
            }
            all.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns the notes of at most `max` routes after one.
    pub fn noted(&self, after: Option<&ObjectKey>, max: usize) -> Vec<(ObjectKey, NotedUses)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.notes.lock();
        let found = all.routes.range::<ObjectKey, _>((from, Bound::Unbounded)).take(max);
        found.map(|(key, noted)| (key.clone(), noted.clone())).collect()
    }

    /// Forgets notes that are stored, unless there are newer ones of the same route.
    pub fn forget(&self, stored: &[(ObjectKey, NotedUses)]) {
        let all = &mut self.notes.lock().routes;
        for (key, noted) in stored {
            if all.get(key) == Some(noted) {
                all.remove(key);
            }
        }
    }

    /// Adds notes. Those that are there win.
    pub fn add(&self, notes: Vec<(ObjectKey, NotedUses)>) {
        let mut all = self.notes.lock();
        for (key, noted) in notes {
            all.routes.entry(key).or_insert(noted);
        }
        all.wake();
    }
}

/// Record of the uses of one route in a tenant's cluster. It has the name of the route, and is
/// deleted with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseRecord {
    /// Export that serves the resource.
    pub export: ExportName,
    /// Identity of the export.
    pub identity: Arc<str>,
    /// Last use of each version, to the hour.
    pub versions: UsesByVersion,
}

impl UseRecord {
    /// Reads a record; `None` if it is malformed.
    pub fn read(object: &Object) -> Option<Self> {
        let value = object.body_value();
        let spec = &value["spec"];
        let versions = spec["versions"].as_object()?.iter();
        let time = |at: &Json| Timestamp::parse(at.as_str()?);
        Some(UseRecord {
            export: ExportName::read(&spec["export"])?,
            identity: spec["identity"].as_str()?.into(),
            versions: versions
                .filter_map(|(version, at)| Some((version.as_str().into(), time(at)?)))
                .collect(),
        })
    }

    /// Returns the record as an object.
    pub fn write(&self, name: &str) -> Json {
        let versions = self.versions.iter();
        let versions: serde_json::Map<String, Json> = versions
            .map(|(version, at)| (version.to_string(), at.to_string().into()))
            .collect();
        serde_json::json!({
            "apiVersion": ids::INTERNAL_V1, "kind": "VersionUses", "metadata": {"name": name},
            "spec": {"export": self.export.write(), "identity": &*self.identity, "versions": versions},
        })
    }

    /// Returns the record of a route with noted uses merged in, or `None` if nothing of them is
    /// new: the route serves another export by now, or each version has a use of the same hour.
    pub fn merged(known: Option<&UseRecord>, route: &Entry, noted: &NotedUses) -> Option<UseRecord> {
        let said = route.object.parsed(ResourceRoute::read);
        let export = said.export.clone().filter(|_| said.identity == noted.identity)?;
        let cluster = &route.key.cluster;
        let mut record = UseRecord {
            export,
            identity: said.identity.clone(),
            versions: BTreeMap::new(),
        };
        if let Some(known) = known.filter(|known| known.identity == record.identity) {
            record.versions.clone_from(&known.versions);
        }
        let mut is_new = false;
        for (version, at) in &noted.versions {
            let before = record.versions.get(version);
            if before.is_none_or(|before| period(cluster, *before) < period(cluster, *at)) {
                record.versions.insert(version.clone(), *at);
                is_new = true;
            }
        }
        is_new.then_some(record)
    }

    /// Returns the record of an entry, if it is about a route that still serves the same export.
    pub fn current(snapshot: &Snapshot, entry: &Entry) -> Option<Arc<Option<UseRecord>>> {
        let record = entry.object.parsed(UseRecord::read);
        let identity = &record.as_ref().as_ref()?.identity;
        let route = snapshot.get(&route_of(&entry.key))?;
        (route.object.parsed(ResourceRoute::read).identity == *identity).then_some(record)
    }
}

/// Returns the key of the route that a record is about.
pub fn route_of(record: &ObjectKey) -> ObjectKey {
    ObjectKey::cluster_scoped(ids::resource_routes(), record.cluster.clone(), &record.name)
}

/// Returns the key of the record of a route.
pub fn record_of(route: &ObjectKey) -> ObjectKey {
    ObjectKey::cluster_scoped(ids::version_uses(), route.cluster.clone(), &route.name)
}

/// Calls a function with the current record of every tenant of an export, and the record's key.
pub fn for_each_of_export(snapshot: &Snapshot, export: &ExportName, mut each: impl FnMut(&ObjectKey, &UseRecord)) {
    snapshot.for_each_indexed(&indexes::VERSION_USES_BY_EXPORT, &export.label(), |entry| {
        if let Some(record) = UseRecord::current(snapshot, entry)
            && let Some(record) = record.as_ref()
            && record.export == *export
        {
            each(&entry.key, record);
        }
        ControlFlow::Continue(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::parse(name).expect("a cluster")
    }

    #[test]
    fn hours_of_clusters_begin_at_different_minutes() {
        let begins = |name: &str| {
            let cluster = cluster(name);
            let first = period(&cluster, Timestamp(0));
            (0..PERIOD_SECONDS).find(|second| period(&cluster, Timestamp(*second)) != first)
        };
        assert_ne!(begins("one"), begins("two"));
        let one = cluster("one");
        assert_eq!(period(&one, Timestamp(PERIOD_SECONDS)), period(&one, Timestamp(0)) + 1);
    }

    /// A guard on another server sees a use once it is stored: the task must not wait any longer.
    #[test]
    fn a_note_wakes_the_task_that_waits_for_it() {
        use std::sync::atomic::{AtomicBool, Ordering};

        #[derive(Default)]
        struct Woken(AtomicBool);

        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let (uses, woken) = (VersionUses::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = std::task::Context::from_waker(&waker);
        let mut wait = std::pin::pin!(uses.wait());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        assert!(!woken.0.load(Ordering::Relaxed));
        let route = ObjectKey::cluster_scoped(ids::resource_routes(), cluster("one"), "widgets.example.io");
        uses.add(vec![(route, NotedUses::default())]);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(wait.poll(&mut context).is_ready());
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let record = UseRecord {
            export: ExportName {
                cluster: cluster("provider"),
                name: "widgets".into(),
            },
            identity: "0123".into(),
            versions: BTreeMap::from([("v1".into(), Timestamp(1_795_255_200))]),
        };
        let object = Object::new(&record.write("widgets.example.io"), None).expect("an object");
        assert_eq!(UseRecord::read(&object), Some(record));
    }
}
