//! Layout of the keys in etcd.
//!
//! Up to format 3 the object of a key is at `objects/<key>`, from format 4 on at
//! `slots/<slot>/<key>`, so that all objects of some clusters are a range of etcd's keys. The key
//! `slotted` is written once, and the slots begin at its revision: see `layout.rs`.

use insula_api::{ObjectKey, Revision};
use insula_store::slot;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Name of the mark of the format among the objects. It is no name of an object, so that programs
/// before format 3, which know no mark, refuse the store; their error shows the name.
const FORMAT_MARK: &str = "!a-later-version-of-insula-uses-this-store";

/// Number of ranges of slots that are read beside one another.
pub(crate) const RANGES: usize = 8;

/// The keys under one prefix.
#[derive(Clone)]
pub(crate) struct Keys {
    root: Vec<u8>,
    objects: Vec<u8>,
    slots: Vec<u8>,
    slotted: Vec<u8>,
    sessions: Vec<u8>,
    tick: Vec<u8>,
    format: Vec<u8>,
    /// The revision of `slotted`, or 0 while it is not known to be there.
    began: Arc<AtomicU64>,
}

/// A range of etcd's keys: its begin, and the first key behind it.
pub(crate) type Range = (Vec<u8>, Vec<u8>);

/// The two layouts in which an object can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Among `objects`.
    Earlier,
    /// In its slot.
    Slot,
}

impl Keys {
    /// `/insula` and `/insula/` are the same prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        let root = format!("{}/", prefix.trim_end_matches('/'));
        Keys {
            objects: format!("{root}objects/").into_bytes(),
            slots: format!("{root}slots/").into_bytes(),
            slotted: format!("{root}slotted").into_bytes(),
            sessions: format!("{root}sessions/").into_bytes(),
            tick: format!("{root}tick").into_bytes(),
            format: format!("{root}objects/{FORMAT_MARK}").into_bytes(),
            root: root.into_bytes(),
            began: Arc::default(),
        }
    }

    /// Returns the prefix of all keys.
    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    /// Returns the range of the objects of earlier formats. The mark of the format is in it.
    pub(crate) fn earlier_objects(&self) -> Range {
        bounds(&self.objects)
    }

    /// Returns the ranges that hold the objects between them, and the mark of the format: each
    /// slot is in one of them.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range> {
        let (start, end) = bounds(&self.slots);
        // The names of slots have four hexadecimal digits, of which the first two are `00` to `3f`.
        let inner = (1..RANGES).map(|n| format!("{:02x}", n * 0x40 / RANGES));
        let inner = inner.map(|digits| [&*self.slots, digits.as_bytes()].concat());
        let starts: Vec<Vec<u8>> = std::iter::once(start).chain(inner).collect();
        let ends: Vec<Vec<u8>> = starts[1..].iter().cloned().chain([end]).collect();
        std::iter::once(self.earlier_objects()).chain(starts.into_iter().zip(ends))
    }

    /// Returns the key whose revision is the begin of the slots.
    pub(crate) fn slotted(&self) -> Vec<u8> {
        self.slotted.clone()
    }

    /// Returns true for the key whose revision is the begin of the slots.
    pub(crate) fn is_slotted(&self, key: &[u8]) -> bool {
        key == self.slotted
    }

    /// Takes note of the revision at which the slots began. All clones know it.
    pub(crate) fn begin_slots(&self, revision: Revision) {
        self.began.store(revision.0, Ordering::Release);
    }

    /// Returns the revision at which the slots began, once it is known here.
    pub(crate) fn slots_began(&self) -> Option<Revision> {
        Some(Revision(self.began.load(Ordering::Acquire))).filter(|began| *began > Revision(0))
    }

    /// Returns the range of the sessions of all servers.
    pub(crate) fn sessions(&self) -> Range {
        bounds(&self.sessions)
    }

    /// Returns the key of one session of the server `instance`.
    pub(crate) fn session(&self, instance: u64, session: u64) -> Vec<u8> {
        let name = format!("{instance:016x}-{session}");
        [&*self.sessions, name.as_bytes()].concat()
    }

    /// Returns true for a session of the server `instance`.
    pub(crate) fn is_session_of(&self, key: &[u8], instance: u64) -> bool {
        let name = format!("{instance:016x}-");
        key.strip_prefix(self.sessions.as_slice())
            .is_some_and(|rest| rest.starts_with(name.as_bytes()))
    }

    /// Returns true for the key of any server's session.
    pub(crate) fn is_session(&self, key: &[u8]) -> bool {
        key.starts_with(&self.sessions)
    }

    pub(crate) fn tick(&self) -> Vec<u8> {
        self.tick.clone()
    }

    /// Returns etcd's key of an object in a layout.
    pub(crate) fn object(&self, key: &ObjectKey, layout: Layout) -> Vec<u8> {
        match layout {
            Layout::Earlier => [&*self.objects, &*key.encode()].concat(),
            Layout::Slot => {
                let slot = format!("{:04x}/", slot(&key.cluster));
                [&*self.slots, slot.as_bytes(), &*key.encode()].concat()
            }
        }
    }

    /// Returns the key of the mark of the format.
    pub(crate) fn format(&self) -> Vec<u8> {
        self.format.clone()
    }

    /// Returns true for the key of the mark of the format.
    pub(crate) fn is_format(&self, key: &[u8]) -> bool {
        key == self.format
    }

    /// Returns the layout and the encoded object key of an etcd key, if it belongs to an object.
    pub(crate) fn encoded<'a>(&self, key: &'a [u8]) -> Option<(Layout, &'a [u8])> {
        if let Some(encoded) = key.strip_prefix(self.objects.as_slice()) {
            return (!self.is_format(key)).then_some((Layout::Earlier, encoded));
        }
        let in_slots = key.strip_prefix(self.slots.as_slice())?;
        let slash = in_slots.iter().position(|byte| *byte == b'/')?;
        Some((Layout::Slot, &in_slots[slash + 1..]))
    }
}

/// Returns the first key after another one, at which the page after it begins.
pub(crate) fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn bounds(prefix: &[u8]) -> Range {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // The last byte is the `/`.
        *last += 1;
    }
    (prefix.to_vec(), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{ClusterName, ResourceId};

    fn key(cluster: &str) -> ObjectKey {
        let cluster = ClusterName::parse(cluster).expect("a cluster");
        ObjectKey::cluster_scoped(ResourceId::local("", "namespaces"), cluster, "a")
    }

    #[test]
    fn each_object_lies_in_one_range() {
        for prefix in ["/insula", "/insula/", "insula", ""] {
            let keys = Keys::new(prefix);
            let ranges: Vec<Range> = keys.ranges().collect();
            assert_eq!(ranges.len(), 1 + RANGES);
            let ranges_with = |key: &[u8]| {
                ranges
                    .iter()
                    .filter(|(start, end)| **start <= *key && *key < **end)
                    .count()
            };
            for cluster in ["root", "system:bound-crds", "2xj8k1p0q9z7w3ab", "zzz", "000"] {
                for layout in [Layout::Earlier, Layout::Slot] {
                    let key = key(cluster);
                    let there = keys.object(&key, layout);
                    assert!(
                        ranges_with(&there) == 1 && there.starts_with(keys.root()),
                        "{prefix} {cluster}"
                    );
                    assert_eq!(keys.encoded(&there), Some((layout, &*key.encode())));
                }
            }
            for slot in 0..insula_store::SLOTS {
                assert_eq!(
                    ranges_with(format!("{}slots/{slot:04x}/x", root(&keys)).as_bytes()),
                    1,
                    "{slot}"
                );
            }
            let (mark, (start, end)) = (keys.format(), keys.earlier_objects());
            assert!(start < mark && mark < end && keys.encoded(&mark).is_none(), "{prefix}");
            assert!(
                ObjectKey::decode(&mark[start.len()..]).is_err(),
                "earlier programs refuse it"
            );
            let session = keys.session(7, 1);
            assert!(keys.is_session(&session) && keys.encoded(&session).is_none());
            for other in [session, keys.tick(), keys.slotted()] {
                assert!(other.starts_with(keys.root()) && keys.encoded(&other).is_none() && ranges_with(&other) == 0);
            }
        }
    }

    fn root(keys: &Keys) -> String {
        String::from_utf8_lossy(keys.root()).into_owned()
    }
}
