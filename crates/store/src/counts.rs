//! Numbers of objects in large scopes, kept so that they are not counted by a walk each time.
//!
//! A walk over a large scope stores its result here, and each later creation or deletion updates
//! it. A scope of few objects is walked: most scopes are small, and a number for each would cost
//! more than it saves.

use insula_api::Scope;
use std::collections::HashMap;

/// Objects of a scope from which on their number is kept. A scope with fewer objects is walked.
pub(crate) const COUNTED_MIN: usize = 1000;
/// Objects of a scope below which their number is dropped again.
const KEPT_MIN: usize = COUNTED_MIN / 2;

/// Current numbers of objects, by the key prefix of their scope.
#[derive(Default)]
pub(crate) struct Counts(HashMap<Vec<u8>, usize>);

impl Counts {
    pub(crate) fn get(&self, scope: &Scope) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&scope.prefix()).copied()
    }

    /// Keeps the number of a scope from now on.
    pub(crate) fn keep(&mut self, scope: &Scope, count: usize) {
        // No request lists all objects of all resources, and few those of all exporters: `moved`
        // knows the prefixes of one resource alone.
        if scope.resources.one().is_some() {
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
        // A key begins with the three parts of its resource; then come the cluster and the
        // namespace.
        let ends = encoded.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in ends.skip(2) {
            let prefix = &encoded[..=end];
            let Some(count) = self.0.get_mut(prefix) else { continue };
            *count = to(*count);
            if *count < KEPT_MIN {
                self.0.remove(prefix);
            }
        }
    }
}
