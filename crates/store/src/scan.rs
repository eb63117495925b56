//! Walks that hand over one object at a time, for answers that are written bit by bit.

use crate::{
    Entry, Snapshot,
    snapshot::{ENTRY_UNITS, KEY_UNITS, PAID_ENTRIES, Walk},
};
use insula_api::Scope;
use std::vec::IntoIter;

/// The objects of a scope in key order. It reads them a few at a time: to ask a [`Snapshot`] for
/// one object after another would read and charge those few for each.
///
/// It ends early when the payer's request has ended, as other walks do.
pub struct Scan {
    snapshot: Snapshot,
    scope: Scope,
    walk: Walk,
    /// Objects that were read, and not handed over yet.
    found: IntoIter<Entry>,
}

impl Snapshot {
    /// Begins a walk over the objects of a scope, which others may interrupt and resume.
    pub fn scan(&self, scope: Scope) -> Scan {
        Scan {
            snapshot: self.clone(),
            walk: Walk::new(&scope, None),
            scope,
            found: Vec::new().into_iter(),
        }
    }
}

impl Scan {
    /// Reads the next few objects.
    fn read(&mut self) -> Vec<Entry> {
        let Scan {
            snapshot, scope, walk, ..
        } = self;
        let (mut found, mut passed) = (Vec::new(), 0);
        snapshot.mvcc().read(|state| {
            snapshot.note_read(state, scope.resources.one(), scope.cluster.as_ref());
            walk.step(&state.keys, PAID_ENTRIES, |_, slot| {
                passed += 1;
                found.extend(slot.at_revision(snapshot.revision()));
            });
        });
        let price = passed * KEY_UNITS + found.len() as u64 * ENTRY_UNITS;
        if snapshot.meter().spend(price).is_err() {
            walk.done = true;
            found.clear();
        }
        found
    }
}

impl Iterator for Scan {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.found.next() {
                return Some(entry);
            }
            if self.walk.done {
                return None;
            }
            self.found = self.read().into_iter();
        }
    }
}
