//! Fields of two versions without a counterpart at their own path.

use super::names::NameWords;
use super::units::{self, Unit};
use super::{Suggestions, choices, crosses, inner, is_object, items, joined, kinds_match};
use crate::passthrough::same_shape;
use crate::path::Segment;
use insula_schema::Node;

/// A field without a counterpart at its own path.
pub(super) struct Loose<'s> {
    pub(super) path: Vec<Segment>,
    pub(super) node: &'s Node,
    pub(super) words: NameWords,
    /// Unit of a number, from its name.
    pub(super) unit: Option<Unit>,
    /// The words of its name without the unit.
    pub(super) bare: NameWords,
}

impl Loose<'_> {
    pub(super) fn name(&self) -> &str {
        match self.path.last() {
            Some(Segment::Field(name)) => name,
            _ => "",
        }
    }
}

/// Collects the fields that exist in one version only. Lists at the same path with different items
/// are compared at once.
pub(super) fn loose<'s>(
    old: &'s Node,
    new: &'s Node,
    at: &mut Vec<Segment>,
    olds: &mut Vec<Loose<'s>>,
    news: &mut Vec<Loose<'s>>,
    above: (&[Segment], &[Segment]),
    out: &mut Suggestions,
) {
    for (name, a) in old.properties() {
        if reserved(at, name) {
            continue;
        }
        at.push(Segment::Field(name.to_owned()));
        match new.property(name) {
            Some(b) if same_shape(a, b) && choices::between(a, b).is_none() => {}
            Some(b) if is_object(a) && is_object(b) => loose(a, b, at, olds, news, above, out),
            Some(b) if inner(a).is_some_and(is_object) && inner(b).is_some_and(is_object) && kinds_match(a, b) => {
                items((a, &joined(above.0, at)), (b, &joined(above.1, at)), 1.0, out);
            }
            Some(b) if crosses(a, b) && crosses(b, a) && choices::between(a, b).is_none() => {}
            other => {
                everything(a, at, olds);
                if let Some(b) = other {
                    everything(b, at, news);
                }
            }
        }
        at.pop();
    }
    for (name, b) in new.properties() {
        if old.property(name).is_none() && !reserved(at, name) {
            at.push(Segment::Field(name.to_owned()));
            everything(b, at, news);
            at.pop();
        }
    }
}

fn reserved(at: &[Segment], name: &str) -> bool {
    at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata")
}

/// Collects a field and, if it is an object, all fields below it.
fn everything<'s>(node: &'s Node, at: &mut Vec<Segment>, out: &mut Vec<Loose<'s>>) {
    let (mut unit, mut bare) = (None, at.clone());
    if let Some(Segment::Field(name)) = bare.last_mut()
        && let Some((rest, found)) = units::named(name)
    {
        unit = Some(found);
        *name = rest.to_owned();
    }
    out.push(Loose {
        path: at.clone(),
        node,
        words: NameWords::from_path(at, node.description()),
        unit,
        bare: NameWords::from_path(&bare, node.description()),
    });
    for (name, child) in node.properties() {
        at.push(Segment::Field(name.to_owned()));
        everything(child, at, out);
        at.pop();
    }
}
