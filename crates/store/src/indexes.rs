//! Indexes: the objects of a resource by a value that they have, at every revision that a snapshot
//! can read.
//!
//! By example, the index of bindings by export: {b1: v@3, then w@7} is found by v and by w as long
//! as a snapshot may read revision 3; a snapshot shows it by the one that it has there. So an index
//! is as exact as a walk, and a read costs what it finds.

use crate::{
    snapshot::Walk,
    state::{Slot, State},
};
use insula_api::{Object, ObjectKey, ResourceId, Scope};
use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    ptr,
    sync::Arc,
};

/// A function that passes on each value that an object is found by.
pub type Values = fn(&ObjectKey, &Object, &mut dyn FnMut(&str));

/// An index, a `static` of the crate that reads it. It is built when it is read first, and follows
/// all commits from then on.
pub struct Index {
    /// The resource whose objects are in it, in every cluster.
    pub resource: fn() -> ResourceId,
    /// The values of an object. Called under the lock of the state, so that it has to be cheap; the
    /// same object always has the same values.
    pub values: Values,
}

impl Index {
    /// Returns true if an object is found by a value.
    pub(crate) fn has(&self, (key, object): (&ObjectKey, &Object), value: &str) -> bool {
        let mut found = false;
        (self.values)(key, object, &mut |of_object| found |= of_object == value);
        found
    }
}

/// Encoded keys by value.
type Keys = HashMap<Box<str>, BTreeSet<Arc<[u8]>>>;

/// The content of an index.
struct Content {
    index: &'static Index,
    resource: ResourceId,
    keys: Keys,
    is_complete: bool,
}

impl Content {
    /// Adds the values of all versions that a key has.
    fn add(&mut self, encoded: &Arc<[u8]>, slot: &Slot) {
        for object in slot.objects() {
            self.add_version(encoded, &slot.key, object);
        }
    }

    fn add_version(&mut self, encoded: &Arc<[u8]>, key: &ObjectKey, object: &Object) {
        let keys = &mut self.keys;
        (self.index.values)(key, object, &mut |value| {
            let known = match keys.get_mut(value) {
                Some(known) => known,
                None => keys.entry(value.into()).or_default(),
            };
            known.insert(encoded.clone());
        });
    }

    /// Removes the values of a version that went, except those that a version which stays has.
    fn remove(&mut self, encoded: &[u8], (key, gone): (&ObjectKey, &Object), stay: Option<&Slot>) {
        let (index, keys) = (self.index, &mut self.keys);
        (index.values)(key, gone, &mut |value| {
            let stays = stay.is_some_and(|slot| slot.objects().any(|object| index.has((key, object), value)));
            if !stays && let Some(known) = keys.get_mut(value) {
                known.remove(encoded);
                if known.is_empty() {
                    keys.remove(value);
                }
            }
        });
    }
}

/// The indexes of a state.
#[derive(Default)]
pub(crate) struct Indexes(Vec<Content>);

impl Indexes {
    fn content(&self, index: &'static Index) -> Option<&Content> {
        self.0.iter().find(|content| ptr::eq(content.index, index))
    }

    fn about(&mut self, key: &ObjectKey) -> impl Iterator<Item = &mut Content> {
        self.0.iter_mut().filter(|content| content.resource == key.resource)
    }

    /// Returns true once reads of the index are right.
    pub(crate) fn is_complete(&self, index: &'static Index) -> bool {
        self.content(index).is_some_and(|content| content.is_complete)
    }

    /// Takes in a new version of a key.
    pub(crate) fn written(&mut self, encoded: &Arc<[u8]>, key: &ObjectKey, object: Option<&Object>) {
        let Some(object) = object else { return };
        self.about(key)
            .for_each(|content| content.add_version(encoded, key, object));
    }

    /// Takes out a version that nobody can read any more; `stay` has the others of its key.
    pub(crate) fn forgotten(&mut self, encoded: &[u8], version: (&ObjectKey, &Object), stay: Option<&Slot>) {
        self.about(version.0)
            .for_each(|content| content.remove(encoded, version, stay));
    }

    /// Returns up to `limit` keys with a value, after one.
    pub(crate) fn keys_after(
        &self,
        index: &'static Index,
        value: &str,
        (after, limit): (Option<&Arc<[u8]>>, usize),
    ) -> Vec<Arc<[u8]>> {
        let known = self.content(index).and_then(|content| content.keys.get(value));
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let known = known
            .into_iter()
            .flat_map(|known| known.range::<Arc<[u8]>, _>((start, Bound::Unbounded)));
        known.take(limit).cloned().collect()
    }
}

/// A walk that fills an index, in steps.
pub(crate) struct Filling {
    index: &'static Index,
    walk: Walk,
}

impl Filling {
    /// Begins: from now on the index follows what is written.
    pub(crate) fn begin(state: &mut State, index: &'static Index) -> Self {
        let resource = (index.resource)();
        let walk = Walk::new(&Scope::everywhere(resource.clone()), None);
        state.indexes.0.push(Content {
            index,
            resource,
            keys: HashMap::new(),
            is_complete: false,
        });
        Filling { index, walk }
    }

    /// Takes in up to `size` keys. Returns true when all are in.
    pub(crate) fn step(&mut self, state: &mut State, size: usize) -> bool {
        let mut all = state.indexes.0.iter_mut();
        if let Some(content) = all.find(|content| ptr::eq(content.index, self.index)) {
            self.walk
                .step(&state.keys, size, |encoded, slot| content.add(encoded, slot));
            content.is_complete = self.walk.done;
        }
        self.walk.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Commit, MemoryStore, Mvcc, Snapshot, Store, Txn, Write};
    use futures_util::FutureExt;
    use insula_api::{ClusterName, Revision};
    use insula_meter::ServerWork;
    use proptest::prelude::*;
    use serde_json::json;
    use std::{collections::BTreeMap, ops::ControlFlow};

    fn widgets() -> ResourceId {
        ResourceId::local("example.io", "widgets")
    }

    /// Widgets by each label's value.
    static BY_LABEL: Index = Index {
        resource: widgets,
        values: |_, object, each| object.meta.labels.iter().for_each(|(_, value)| each(value)),
    };

    fn key(cluster: usize) -> ObjectKey {
        let cluster = ClusterName::parse(&format!("t{cluster}")).expect("a cluster");
        ObjectKey::cluster_scoped(widgets(), cluster, "w")
    }

    fn widget(values: &[&str]) -> Object {
        let named = values.iter().enumerate();
        let labels: BTreeMap<String, &str> = named.map(|(n, value)| (format!("l{n}"), *value)).collect();
        let object = json!({"apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": "w", "labels": labels}});
        Object::new(&object, None).expect("an object")
    }

    fn write(store: &MemoryStore, cluster: usize, labels: Option<&[&str]>) {
        let write = match labels {
            None => Write::Delete(key(cluster)),
            Some(labels) => Write::Put(key(cluster), widget(labels).into()),
        };
        let txn = Txn {
            guards: Vec::new(),
            writes: vec![write],
        };
        store.commit(txn).now_or_never().expect("at once").expect("stored");
    }

    fn walked(snapshot: &Snapshot, value: &str) -> Vec<ObjectKey> {
        let mut found = Vec::new();
        snapshot.for_each(&Scope::everywhere(widgets()), |entry| {
            if BY_LABEL.has((&entry.key, &entry.object), value) {
                found.push(entry.key.clone());
            }
            ControlFlow::Continue(())
        });
        found
    }

    fn keys(entries: Vec<crate::Entry>) -> Vec<ObjectKey> {
        entries.into_iter().map(|entry| entry.key).collect()
    }

    /// A step: which widget, its labels or its deletion, and what else happens.
    #[derive(Debug, Clone)]
    enum Step {
        Write(usize, Option<Vec<&'static str>>),
        Hold,
        Release,
        Compact,
    }

    fn step() -> impl Strategy<Value = Step> {
        let value = prop::sample::select(vec!["a", "b", "c"]);
        prop_oneof![
            6 => (0..5usize, prop::option::weighted(0.8, prop::collection::vec(value, 0..3)))
                .prop_map(|(cluster, labels)| Step::Write(cluster, labels)),
            1 => Just(Step::Hold),
            1 => Just(Step::Release),
            1 => Just(Step::Compact),
        ]
    }

    proptest! {
        /// The index gives what a walk gives, at every revision that somebody holds, whatever was
        /// written, compacted and forgotten since, from whenever on it is kept.
        #[test]
        fn an_index_gives_what_a_walk_gives(steps in prop::collection::vec(step(), 1..60), first_read in 0..60usize) {
            let store = MemoryStore::new();
            let mut held = Vec::new();
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(cluster, labels) => write(&store, cluster, labels.as_deref()),
                    Step::Hold => held.push(store.latest().for_server(ServerWork::Tool)),
                    Step::Release => drop((!held.is_empty()).then(|| held.remove(0))),
                    Step::Compact => {
                        let upto = store.latest().revision();
                        store.compact(upto).now_or_never().expect("at once").expect("compacted");
                    }
                }
                if n < first_read {
                    continue;
                }
                for snapshot in held.iter().chain([&store.latest().for_server(ServerWork::Tool)]) {
                    for value in ["a", "b", "c", "d"] {
                        prop_assert_eq!(keys(snapshot.indexed(&BY_LABEL, value)), walked(snapshot, value));
                    }
                }
            }
        }
    }

    /// Values that nobody can read any more are not kept.
    #[test]
    fn an_index_forgets_with_the_history() {
        let mvcc = Mvcc::new(Revision(1));
        let mut revision = Revision(1);
        let mut write = |cluster, labels: Option<&[&str]>| {
            revision.0 += 1;
            let writes = vec![(key(cluster), labels.map(|labels| widget(labels).into()))];
            mvcc.apply(vec![Commit { revision, writes }]);
        };
        write(1, Some(&["a"]));
        assert_eq!(
            mvcc.latest().for_server(ServerWork::Tool).indexed(&BY_LABEL, "a").len(),
            1
        );
        write(1, Some(&["b"]));
        write(2, Some(&["c"]));
        write(2, None);
        let values = || {
            mvcc.read(|state| {
                let content = state.indexes.content(&BY_LABEL).expect("it was read");
                content
                    .keys
                    .keys()
                    .map(|value| value.to_string())
                    .collect::<BTreeSet<_>>()
            })
        };
        assert_eq!(values(), ["a", "b", "c"].map(str::to_owned).into());
        mvcc.compact(mvcc.applied()).expect("compacted");
        assert_eq!(values(), ["b".to_owned()].into());
    }
}
