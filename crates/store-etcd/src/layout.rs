//! Layouts of objects in etcd, while a store of format 3 becomes one with slots.
//!
//! The slots begin at one revision ([`Keys::slots_began`]). The transaction that begins them also
//! ends every session, so that a transaction that was made before never happens after it. From then
//! on every write goes to a slot, and takes the object out of the earlier layout. So the layout of
//! an object follows from the revision of its last write, and no server has to know what others
//! have moved: one that was last written before the slots began is where it was, one that was
//! written later is in its slot. `relocation.rs` moves the rest.
//!
//! etcd tells when a key was created, and a moved object was created before its key. So the value
//! of a write that creates no object begins with the revision at which the object was created. An
//! etcd whose keys were copied from another one keeps what it tells.

use crate::keys::{Keys, Layout};
use insula_api::{ObjectKey, Revision};
use insula_store::Mvcc;

/// First byte of a value that begins with the revision of the object's creation. The stored form
/// of an object begins with another one.
const CREATED: u8 = 0xc0;

/// Keys in etcd of one object, and of its next write, as far as this process has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Key of the object, if there is one.
    pub(crate) present: Vec<u8>,
    /// Key of its next write, where that is another one.
    pub(crate) next: Option<Vec<u8>>,
    /// The revision of its creation, which its next value tells.
    pub(crate) created: Option<Revision>,
}

impl Location {
    /// Returns the location of an object.
    pub(crate) fn find(keys: &Keys, mvcc: &Mvcc, key: &ObjectKey) -> Self {
        let Some(began) = keys.slots_began() else {
            return Location {
                present: keys.object(key, Layout::Earlier),
                next: None,
                created: None,
            };
        };
        let slot = keys.object(key, Layout::Slot);
        let known = mvcc.current(&key.encode());
        let created = known.map(|(_, created)| created);
        match known {
            Some((written, _)) if written <= began => Location {
                present: keys.object(key, Layout::Earlier),
                next: Some(slot),
                created,
            },
            _ => Location {
                present: slot,
                next: None,
                created,
            },
        }
    }

    /// Returns the value of its next write.
    pub(crate) fn value(&self, stored: Vec<u8>) -> Vec<u8> {
        match self.created {
            Some(created) => with_created(created, &stored),
            None => stored,
        }
    }
}

/// Returns true for the revision of a write to a slot.
pub(crate) fn is_slotted(keys: &Keys, written: Revision) -> bool {
    keys.slots_began().is_some_and(|began| written > began)
}

/// Returns the key of an object that was last written at a revision.
pub(crate) fn written_at(keys: &Keys, key: &ObjectKey, written: Revision) -> Vec<u8> {
    let layout = match is_slotted(keys, written) {
        true => Layout::Slot,
        false => Layout::Earlier,
    };
    keys.object(key, layout)
}

/// Returns true for a change in the earlier layout that came after the slots began. A deletion
/// there may be a move. Only a server of an earlier program puts something there, before it has
/// seen that the slots began: it does not count until it is moved.
pub(crate) fn is_stray(keys: &Keys, layout: Layout, changed: Revision) -> bool {
    layout == Layout::Earlier && is_slotted(keys, changed)
}

/// Returns a value that tells when its object was created.
pub(crate) fn with_created(created: Revision, stored: &[u8]) -> Vec<u8> {
    [&[CREATED][..], &created.0.to_le_bytes(), stored].concat()
}

/// Splits a value into the revision of the object's creation, if it tells one, and the stored form.
pub(crate) fn split_created(value: &[u8]) -> (Option<Revision>, &[u8]) {
    let tells = value.strip_prefix(&[CREATED]).and_then(|rest| rest.split_first_chunk());
    match tells {
        Some((created, stored)) => (Some(Revision(u64::from_le_bytes(*created))), stored),
        None => (None, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{ClusterName, Object, ResourceId};
    use insula_store::Entry;
    use serde_json::json;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster_scoped(ResourceId::local("example.io", "widgets"), ClusterName::root(), name)
    }

    #[test]
    fn the_layout_follows_from_the_revision() {
        let entry = |name: &str, revision, created| Entry {
            key: key(name),
            object: Object::new(
                &json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": name}}),
                None,
            )
            .expect("an object")
            .into(),
            revision: Revision(revision),
            created: Revision(created),
        };
        let mvcc = Mvcc::load(Revision(20), [entry("a", 9, 4), entry("b", 12, 5), entry("c", 13, 13)]);
        let keys = Keys::new("/insula");
        let find = |name: &str| Location::find(&keys, &mvcc, &key(name));
        let [earlier, slot] = [Layout::Earlier, Layout::Slot]
            .map(|layout| move |keys: &Keys, name: &str| keys.object(&key(name), layout));
        for name in ["a", "b", "c", "absent"] {
            assert_eq!((find(name).present, find(name).next), (earlier(&keys, name), None));
        }
        keys.clone().begin_slots(Revision(10));
        let location = find("a");
        assert_eq!(
            (location.present, location.next),
            (earlier(&keys, "a"), Some(slot(&keys, "a")))
        );
        assert_eq!(location.created, Some(Revision(4)));
        for (name, created) in [("b", Some(Revision(5))), ("c", Some(Revision(13))), ("absent", None)] {
            let location = find(name);
            assert_eq!((location.present, location.next), (slot(&keys, name), None));
            assert_eq!(location.created, created, "{name}");
        }
        assert_eq!(written_at(&keys, &key("a"), Revision(10)), earlier(&keys, "a"));
        assert_eq!(written_at(&keys, &key("a"), Revision(11)), slot(&keys, "a"));
    }

    #[test]
    fn a_value_tells_when_its_object_was_created() {
        let stored = Object::new(
            &json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}}),
            None,
        )
        .expect("an object")
        .to_stored();
        assert_eq!(split_created(&stored), (None, &*stored));
        let value = with_created(Revision(7), &stored);
        assert_eq!(split_created(&value), (Some(Revision(7)), &*stored));
        assert_eq!(
            split_created(&[CREATED, 1]),
            (None, &[CREATED, 1][..]),
            "it is damaged, and shows so later"
        );
    }
}
