//! How many objects a scope has, without walking them each time.
//!
//! Whoever counted a scope of many objects leaves the number here, and each creation and deletion
//! after that moves it. A scope of few objects is walked: most have few, and a number for each
//! would cost more than it spares.

use insula_api::Scope;
use std::collections::HashMap;

/// A scope with fewer objects is walked.
pub(crate) const MANY: usize = 1000;
/// A number that fell so far is forgotten.
const FEW: usize = MANY / 2;

/// Numbers of the objects that there are now, by the prefix of their scope's keys.
#[derive(Default)]
pub(crate) struct Tallies(HashMap<Vec<u8>, usize>);

impl Tallies {
    pub(crate) fn of(&self, scope: &Scope) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&scope.prefix()).copied()
    }

    /// Keeps a number from now on.
    pub(crate) fn keep(&mut self, scope: &Scope, count: usize) {
        // All objects of all resources are nobody's list.
        if scope.resource.is_some() {
            self.0.insert(scope.prefix(), count);
        }
    }

    pub(crate) fn created(&mut self, encoded: &[u8]) {
        self.moved(encoded, |count| count + 1);
    }

    pub(crate) fn deleted(&mut self, encoded: &[u8]) {
        self.moved(encoded, |count| count.saturating_sub(1));
    }

    fn moved(&mut self, encoded: &[u8], to: impl Fn(usize) -> usize) {
        if self.0.is_empty() {
            return;
        }
        // A resource is three parts of a key; then come the cluster and the namespace.
        let ends = encoded.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in ends.skip(2) {
            let prefix = &encoded[..=end];
            let Some(count) = self.0.get_mut(prefix) else { continue };
            *count = to(*count);
            if *count < FEW {
                self.0.remove(prefix);
            }
        }
    }
}
