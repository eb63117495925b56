//! The law of identity: an item that an edit leaves alone stays as it is in every version, and one
//! that is edited keeps what the writer cannot see.

use crate::align::{align, equal, identities};
use crate::carried::{Claims, kinds, text};
use crate::passthrough::{Kind, known_kind};
use crate::path::Segment;
use insula_schema::{ListType, Node};
use serde_json::Value as Json;

/// One version of an edit: its schema, and its views before and after.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) node: &'a Node,
    pub(super) before: Option<&'a Json>,
    pub(super) after: Option<&'a Json>,
    /// The value that a reader is shown where nothing is stored.
    pub(super) fallback: Option<&'a Json>,
}

impl<'a> Seen<'a> {
    fn field(&self, name: &str, node: &'a Node) -> Seen<'a> {
        let field = |value: Option<&'a Json>| value.and_then(|value| value.get(name));
        Seen {
            node,
            before: field(self.before),
            after: field(self.after),
            fallback: node.default().or(field(self.fallback)),
        }
    }

    /// Returns true if nothing is stored and a default is shown: the value is no edit's.
    fn is_default(&self) -> bool {
        self.after.is_some() && self.after == self.fallback
    }

    fn lists(&self) -> Option<(&'a [Json], &'a [Json])> {
        let list = |value: Option<&'a Json>| match value {
            None => Some(&[][..]),
            Some(value) => value.as_array().map(Vec::as_slice),
        };
        Some((list(self.before)?, list(self.after)?))
    }
}

/// Compares what an edit in one version does to another one. Returns the first item that it changes
/// although the writer did not, or that it takes something from.
pub(super) fn broken(claims: &Claims, writer: Seen<'_>, other: Seen<'_>, at: &mut Vec<Segment>) -> Option<String> {
    if claims.cover(at) || kinds(writer.node) != kinds(other.node) || writer.before == writer.after {
        return None;
    }
    if writer.after.is_none() && other.is_default() {
        return None;
    }
    match known_kind(writer.node) {
        Some(Kind::Object) if !writer.node.embedded() && !other.node.embedded() => {
            writer.node.properties().find_map(|(name, own)| {
                if at.is_empty() && matches!(name, "apiVersion" | "kind" | "metadata") {
                    return None;
                }
                at.push(Segment::Field(name.to_owned()));
                let theirs = other.node.property(name);
                let found =
                    theirs.and_then(|theirs| broken(claims, writer.field(name, own), other.field(name, theirs), at));
                at.pop();
                found
            })
        }
        Some(Kind::List) if !claims.below(at) => items(claims, writer, other, at),
        _ => None,
    }
}

fn items(claims: &Claims, writer: Seen<'_>, other: Seen<'_>, at: &mut Vec<Segment>) -> Option<String> {
    let ((was, is), (had, has)) = (writer.lists()?, other.lists()?);
    let (own, theirs) = (writer.node.items()?, other.node.items()?);
    // Equal items cannot be told apart, and a list of another length holds hidden ones.
    let repeats = was.iter().enumerate().any(|(i, item)| was[..i].contains(item));
    if was.len() != had.len() || repeats || kinds(own) != kinds(theirs) {
        return None;
    }
    if is.len() != has.len() {
        return Some(text(at));
    }
    let node = named_by(writer.node, other.node, &[was, is]);
    let pairs = align(was, is, node, equal);
    pairs.iter().enumerate().find_map(|(i, to)| {
        let j = (*to)?;
        at.push(Segment::Index(j));
        let found = if was[i] == is[j] {
            (had[i] != has[j]).then(|| text(at))
        } else if node.is_some() {
            let seen = |node, before, after| Seen {
                node,
                before: Some(before),
                after: Some(after),
                fallback: None,
            };
            hidden(own, theirs, (&had[i], &has[j]), at)
                .or_else(|| broken(claims, seen(own, &was[i], &is[j]), seen(theirs, &had[i], &has[j]), at))
        } else {
            None
        };
        at.pop();
        found
    })
}

/// Returns the list whose key names each item for the writer: the key is the other version's or a
/// part of it, or has more parts, or one of the two has none. Items that look alike in a part are
/// not named by it.
fn named_by<'n>(writer: &'n Node, other: &'n Node, lists: &[&[Json]]) -> Option<&'n Node> {
    let all_of = |a: &[String], b: &[String]| a.iter().all(|key| b.contains(key));
    let (node, is_same) = match (writer.list_type(), other.list_type()) {
        (ListType::Map { keys: own }, ListType::Map { keys: theirs }) => {
            let is_part = all_of(own, theirs) || all_of(theirs, own);
            (is_part.then_some(writer)?, own == theirs)
        }
        (ListType::Map { .. }, ListType::Atomic) => (writer, false),
        (ListType::Atomic, ListType::Map { .. }) => (other, false),
        _ => return None,
    };
    let is_named = |items: &&[Json]| identities(items, Some(node)).is_some();
    (is_same || lists.iter().all(is_named)).then_some(node)
}

/// Returns a field of an item that the writer's version lacks, if an edit of the item changes it.
fn hidden(own: &Node, theirs: &Node, (had, has): (&Json, &Json), at: &mut Vec<Segment>) -> Option<String> {
    let names = theirs.properties().map(|(name, _)| name);
    let mut lacking = names.filter(|name| own.child(name).is_none() && !own.preserves_unknown());
    let changed = lacking.find(|name| had.get(name) != has.get(name))?;
    at.push(Segment::Field(changed.to_owned()));
    let found = text(at);
    at.pop();
    Some(found)
}
