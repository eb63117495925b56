//! The largest clusters, payers and resources.
//!
//! A scrape of metrics reads them every few seconds while others write: so their names and numbers
//! are copied in steps, with the lock taken once for each, and ordered outside of it. What is added
//! or removed between two steps may be missing.

use crate::{
    Snapshot,
    state::CHUNK_ENTRIES,
    usage::{Usage, Usages},
};
use insula_api::{ClusterName, ResourceId};
use std::{cmp::Reverse, collections::BTreeMap, ops::Bound, sync::Arc};

/// Price of a name that is copied and ordered.
const NAME_UNITS: u64 = 10;

/// The clusters and payers with the most bytes, the largest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Largest {
    /// All clusters together.
    pub all: Usage,
    /// The largest clusters.
    pub clusters: Vec<(ClusterName, Usage)>,
    /// The largest payers.
    pub payers: Vec<(Arc<str>, Usage)>,
}

impl Snapshot {
    /// Returns the clusters and payers that store most at the latest revision, up to `count` of
    /// each. Looks at all of them.
    pub fn largest(&self, count: usize) -> Largest {
        Largest {
            all: self.mvcc().read(|state| state.usages.all),
            clusters: top(self.copied(|usages| &usages.clusters, |paid| paid.usage), count),
            payers: top(self.copied(|usages| &usages.payers, |usage| *usage), count),
        }
    }

    /// Returns the resources with the most objects at the latest revision, up to `count`, in their
    /// order. Exporters of the same resource are counted together. Looks at all of them.
    pub fn largest_resources(&self, count: usize) -> Vec<(ResourceId, usize)> {
        let without_exporter = |id: ResourceId| ResourceId {
            identity: Arc::default(),
            ..id
        };
        // Exporters of the same resource stand beside each other.
        let mut named: Vec<(ResourceId, usize)> = Vec::new();
        for (id, objects) in self.copied(|usages| &usages.resources, |objects| *objects) {
            match named.last_mut() {
                Some((last, all)) if last.group == id.group && last.resource == id.resource => *all += objects,
                _ => named.push((without_exporter(id), objects)),
            }
        }
        named.sort_by_key(|(_, objects)| Reverse(*objects));
        named.truncate(count);
        named.sort_unstable();
        named
    }

    /// Copies the keys of a map in their order, each with a number of its value.
    fn copied<K: Ord + Clone, V, T>(&self, map: fn(&Usages) -> &BTreeMap<K, V>, number: fn(&V) -> T) -> Vec<(K, T)> {
        let mut all: Vec<(K, T)> = Vec::new();
        loop {
            let before = all.len();
            self.mvcc().read(|state| {
                let after = all
                    .last()
                    .map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key.clone()));
                let rest = map(&state.usages).range((after, Bound::Unbounded));
                all.extend(
                    rest.take(CHUNK_ENTRIES)
                        .map(|(key, value)| (key.clone(), number(value))),
                );
            });
            let found = all.len() - before;
            if found < CHUNK_ENTRIES || self.meter().spend(found as u64 * NAME_UNITS).is_err() {
                return all;
            }
        }
    }
}

fn top<T: Ord>(mut all: Vec<(T, Usage)>, count: usize) -> Vec<(T, Usage)> {
    // Stable: equal ones stay in the order of their names.
    all.sort_by_key(|(_, usage)| Reverse(usage.bytes));
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, Mvcc};
    use insula_api::{Object, ObjectKey, Revision};
    use insula_meter::ServerWork;

    fn key(resource: &str, identity: &str, name: &str) -> ObjectKey {
        ObjectKey {
            resource: ResourceId {
                identity: identity.into(),
                ..ResourceId::local("example.io", resource)
            },
            cluster: ClusterName::root(),
            namespace: Arc::default(),
            name: name.into(),
        }
    }

    fn write(mvcc: &Mvcc, key: ObjectKey, is_there: bool) {
        let value = serde_json::json!({"apiVersion": "example.io/v1", "kind": "A", "metadata": {"name": "a"}});
        let object = is_there.then(|| Arc::new(Object::new(&value, None).expect("an object")));
        let revision = Revision(mvcc.applied().0 + 1);
        let writes = vec![(key, object)];
        mvcc.apply(vec![Commit { revision, writes }]);
    }

    fn counts(mvcc: &Arc<Mvcc>, count: usize) -> Vec<(String, usize)> {
        let snapshot = mvcc.latest().for_server(ServerWork::Tool);
        let largest = snapshot.largest_resources(count).into_iter();
        largest.map(|(id, objects)| (id.qualified(), objects)).collect()
    }

    #[test]
    fn resources_are_counted_by_name() {
        let mvcc = Mvcc::new(Revision(1));
        for (resource, identity, name) in [
            ("b", "x", "1"),
            ("b", "y", "1"),
            ("b", "y", "2"),
            ("a", "", "1"),
            ("c", "", "1"),
        ] {
            write(&mvcc, key(resource, identity, name), true);
        }
        // An update is no other object.
        write(&mvcc, key("c", "", "1"), true);
        let named = |name: &str| format!("{name}.example.io");
        assert_eq!(counts(&mvcc, 2), [(named("a"), 1), (named("b"), 3)]);
        write(&mvcc, key("a", "", "1"), false);
        write(&mvcc, key("b", "x", "1"), false);
        assert_eq!(counts(&mvcc, 9), [(named("b"), 2), (named("c"), 1)]);
    }

    #[test]
    fn more_names_than_a_step_copies_are_all_counted() {
        let mvcc = Mvcc::new(Revision(1));
        let names = 2 * CHUNK_ENTRIES + 1;
        for n in 0..names {
            write(&mvcc, key(&format!("r{n:05}"), "", "1"), true);
        }
        write(&mvcc, key("r00007", "", "2"), true);
        assert_eq!(counts(&mvcc, usize::MAX).len(), names);
        assert_eq!(counts(&mvcc, 1), [("r00007.example.io".to_owned(), 2)]);
    }
}
