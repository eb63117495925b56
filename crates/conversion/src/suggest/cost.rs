//! Prices of comparisons, in units of a meter: about the time that they take.

use super::{Loose, inner};
use insula_schema::Node;

/// Price of one pair of names: their words are compared each with each.
const NAMES: u64 = 50;
/// Price of one pair of fields without what they hold: their paths, names and bounds.
const PAIR: u64 = 150;
/// Price of two fields from which on they are not compared: about two tenths of a second.
const PAIR_MAX: u64 = 10_000_000;

/// Sizes of all that is compared of a field.
pub(super) struct Size {
    /// Nodes of its schema.
    nodes: u64,
    /// Fields of the object, or of the items.
    fields: u64,
    /// Sum of the squares of the numbers of words of all enumerations in it.
    choices: f64,
    /// Words of the path and of the description that are compared.
    words: u64,
}

impl Size {
    pub(super) fn for_field(node: &Node, words: usize) -> Size {
        let fields = |node: &Node| node.properties().count() as u64;
        Size {
            nodes: nodes(node),
            fields: fields(node).max(inner(node).map_or(0, fields)),
            choices: choices(node),
            words: words as u64,
        }
    }

    /// Returns the price of collecting the field.
    pub(super) fn cost(&self) -> u64 {
        NAMES + self.nodes + self.words
    }
}

/// Returns the price of comparing two fields; `None` for two that are too large.
pub(super) fn of_pair(a: &Loose<'_>, b: &Loose<'_>) -> Option<u64> {
    let (a, b) = (&a.size, &b.size);
    let names = a.fields * b.fields + together(a.choices, b.choices);
    let price = PAIR + a.nodes.min(b.nodes) + names.saturating_mul(NAMES) + a.words * b.words * 2;
    (price <= PAIR_MAX).then_some(price)
}

/// Returns the price of comparing two shapes, and the words of their enumerations; `None` for two
/// that are too large to be compared as a whole.
pub(super) fn of_shapes(a: &Node, b: &Node) -> Option<u64> {
    let names = together(choices(a), choices(b));
    let price = NAMES + nodes(a) + nodes(b) + names.saturating_mul(NAMES);
    (price <= PAIR_MAX).then_some(price)
}

/// Returns the most comparisons of words of two fields, by the sums of the squares of their
/// numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of comparisons"
)]
fn together(a: f64, b: f64) -> u64 {
    (a * b).sqrt() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a number of words")]
fn choices(node: &Node) -> f64 {
    let below = node.properties().map(|(_, child)| choices(child)).sum::<f64>();
    (node.choices().len() as f64).powi(2) + below + inner(node).map_or(0.0, choices)
}

/// Returns the price of comparing two objects by the names of the fields below them.
pub(super) fn of_ends(a: usize, b: usize) -> u64 {
    PAIR + a.min(b) as u64
}

/// Returns the price of a look at each pair of fields of two versions.
pub(super) fn of_all(olds: &[Loose<'_>], news: &[Loose<'_>]) -> u64 {
    (olds.len() as u64).saturating_mul(news.len() as u64)
}

/// Returns the price of choosing a pair among others: which one is a rival, what is used, and what
/// the names beside it tell.
pub(super) fn of_choice(places: usize, used: u64, pairs: usize) -> u64 {
    let (places, pairs) = (places as u64, pairs as u64);
    places.saturating_mul(used) + pairs.saturating_mul(2)
}

/// Returns the number of nodes of a schema.
fn nodes(node: &Node) -> u64 {
    let below = node.properties().map(|(_, child)| nodes(child)).sum::<u64>();
    1 + below + inner(node).map_or(0, nodes)
}
