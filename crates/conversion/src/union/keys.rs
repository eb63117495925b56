//! Keys of lists in the union: any version's key tells the items of all versions apart.

use super::segments;
use crate::path::Segment;
use crate::plan::{Each, Op};
use crate::trace::Seg;
use insula_schema::{ListType, Node};

/// Gives a list of the union the key that tells most items apart: that of any version, if others
/// have no key or a part of it.
pub(super) fn tell_apart(union: &mut Node, own: &ListType) {
    let ListType::Map { keys: fine } = own else { return };
    let is_finer = match union.list_type() {
        ListType::Atomic => !fine.is_empty(),
        ListType::Map { keys } => fine.len() > keys.len() && keys.iter().all(|key| fine.contains(key)),
        ListType::Set => false,
    };
    if is_finer {
        union.set_list_type(own.clone());
    }
}

/// Returns the key of a version's list by the names that its items have in the union: what a loop
/// neither moves nor leaves as it is, is no part of it there.
pub(super) fn renamed_key(each: &Each, list: &Node) -> ListType {
    let ListType::Map { keys } = list.list_type() else {
        return ListType::Atomic;
    };
    let renamed = |key: &String| {
        let own = [Segment::Field(key.clone())];
        let moved = each.body.iter().find_map(|op| match op {
            Op::Move { from, to, .. } => match (segments(from).eq(own.iter().cloned()), &**to) {
                (true, [Seg::Field(name)]) => Some(name.to_string()),
                _ => None,
            },
            _ => None,
        });
        moved.or_else(|| (!each.except.covers(&own)).then(|| key.clone()))
    };
    ListType::Map {
        keys: keys.iter().filter_map(renamed).collect(),
    }
}
