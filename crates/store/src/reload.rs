//! Reloads: the state is read anew when the changes since its revision are lost.

use crate::{Entry, Mvcc};
use insula_api::Revision;
use std::{collections::HashSet, ops::Bound, sync::Arc};

/// A reload of a state, page by page: what is equal is dropped with its page, so that the objects
/// are never in memory twice. Readers see the state before until [`Reload::finish`], and all of the
/// new one from then on.
///
/// A reload that ends before leaves a state that goes on with another reload alone, to the same
/// revision or a later one: the revisions of what it has read are ahead of the state's.
pub struct Reload<'a> {
    mvcc: &'a Mvcc,
    revision: Revision,
    /// Encoded keys that were read; they share the memory of the state's.
    seen: HashSet<Arc<[u8]>>,
}

impl Mvcc {
    /// Begins to read the state at `revision`. Returns nothing if the state has reached it.
    pub fn begin_reload(&self, revision: Revision) -> Option<Reload<'_>> {
        (revision > self.applied()).then(|| Reload {
            mvcc: self,
            revision,
            seen: HashSet::new(),
        })
    }

    /// Replaces the state by `entries` at `revision` when the changes in between are lost. Cursors
    /// become gone; snapshots keep the state that they read.
    pub fn reload(&self, revision: Revision, entries: Vec<Entry>) {
        if let Some(mut reload) = self.begin_reload(revision) {
            reload.page(entries);
            reload.finish();
        }
    }
}

impl Reload<'_> {
    /// Takes the next objects, in whatever order.
    pub fn page(&mut self, entries: Vec<Entry>) {
        let (revision, seen) = (self.revision, &mut self.seen);
        self.mvcc.write(|state| {
            seen.extend(entries.into_iter().map(|entry| state.move_to(revision, entry)));
        });
    }

    /// Ends with the state at the revision: objects that were in no page are gone. Cursors become
    /// gone; snapshots keep the state that they read.
    pub fn finish(self) {
        let (revision, seen) = (self.revision, &self.seen);
        let mut after = Bound::Unbounded;
        while let Some(last) = self.mvcc.write(|state| state.keep_only(revision, seen, after.clone())) {
            after = Bound::Excluded(last);
        }
        self.mvcc.finish_reload(self.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Commit;
    use insula_api::{ClusterName, Object, ObjectKey, ResourceId, Scope};
    use insula_meter::ServerWork;
    use proptest::prelude::*;
    use serde_json::json;

    fn key(n: usize) -> ObjectKey {
        let cluster = ClusterName::parse(&format!("t{}", n % 3)).expect("a cluster");
        ObjectKey::cluster_scoped(ResourceId::local("example.io", "widgets"), cluster, &format!("w{n}"))
    }

    fn everything() -> Scope {
        Scope::everywhere(ResourceId::local("example.io", "widgets"))
    }

    fn entry(n: usize, revision: Revision) -> Entry {
        let object = json!({"apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": format!("w{n}")}, "at": revision.0});
        Entry {
            key: key(n),
            object: Object::new(&object, None).expect("an object").into(),
            revision,
            created: revision,
        }
    }

    fn objects(snapshot: &crate::Snapshot) -> Vec<Entry> {
        snapshot.range(&everything(), None, usize::MAX)
    }

    proptest! {
        /// In pages of any size, with any differences: readers see the state before until the end,
        /// and the new one from then on; watches see nothing of it and end; a reload that broke off
        /// changes nothing that the next one leaves.
        #[test]
        fn a_reload_is_seen_as_a_whole(
            before in prop::collection::btree_set(0..30usize, 0..20),
            after in prop::collection::btree_map(0..30usize, any::<bool>(), 0..20),
            size in 1..7usize,
            broken_after in 0..4usize,
            order in any::<u64>(),
        ) {
            let old = before.iter().map(|n| entry(*n, Revision(5)));
            let mvcc = Mvcc::load(Revision(10), old);
            mvcc.apply(vec![Commit { revision: Revision(11), writes: Vec::new() }]);
            let first = mvcc.latest().for_server(ServerWork::Tool);
            let mut cursor = mvcc.watch(everything(), Revision(11)).expect("a watch");
            let shown = objects(&first);
            let is_kept = |n: &usize, changed: bool| before.contains(n) && !changed;
            let fresh = after.iter().map(|(n, changed)| {
                entry(*n, if is_kept(n, *changed) { Revision(5) } else { Revision(15) })
            });
            let mut fresh: Vec<Entry> = fresh.collect();
            fresh.sort_by_key(|entry| entry.key.encode());
            let mut shuffled = fresh.clone();
            let place = |entry: &Entry| order.rotate_left(u32::from(entry.key.name.as_bytes()[1])) % 64;
            shuffled.sort_by_key(place);

            for (revision, pages) in [(Revision(20), broken_after), (Revision(21), usize::MAX)] {
                let mut reload = mvcc.begin_reload(revision).expect("it is ahead");
                for page in shuffled.chunks(size).take(pages) {
                    reload.page(page.to_vec());
                    prop_assert_eq!(mvcc.applied(), Revision(11));
                    prop_assert_eq!(objects(&mvcc.latest().for_server(ServerWork::Tool)), shown.clone());
                    prop_assert_eq!(mvcc.latest().for_server(ServerWork::Tool).count(&everything()), shown.len());
                    prop_assert!(cursor.try_next().expect("it is no end yet").is_empty());
                }
                if pages == usize::MAX {
                    reload.finish();
                }
            }
            prop_assert_eq!(objects(&first), shown);
            prop_assert_eq!(objects(&mvcc.latest().for_server(ServerWork::Tool)), fresh.clone());
            prop_assert_eq!(mvcc.latest().for_server(ServerWork::Tool).count(&everything()), fresh.len());
            prop_assert!(cursor.try_next().is_err());
        }
    }
}
