//! Rules that use themselves: `use` in item rules with a name applies them to the items of a list
//! below each item, at every depth that the object has.

use super::body::{Rest, Scope};
use super::{Each, FieldError, Fill, Json, Op, Rule, SchemaNode, Seg, Segment, This, expressions};
use crate::passthrough::takes_anything;

impl Scope<'_> {
    /// Compiles `use`. Schemas cannot say that a list is like the one around it, so the items of
    /// both lists are of any type.
    pub(super) fn again(&self, rest: &Rest<'_>, ops: &mut Vec<Op>, errors: &mut Vec<FieldError>) {
        let rule = rest.rule;
        let at = rule.at.path.child("use");
        let mut refuse = |why: String| {
            let name = rule.uses.as_deref().unwrap_or_default();
            errors.push(FieldError::invalid(&at, &Json::from(name), why));
        };
        let is_plain = |path: &[Segment]| !path.is_empty() && path.iter().all(|s| matches!(s, Segment::Field(_)));
        if !is_plain(rest.from) || !is_plain(rest.to) {
            return refuse(
                "source and destination are fields of the item that hold lists, without brackets".to_owned(),
            );
        }
        for place in [self.find_from(rest.from), self.find_to(rest.to)] {
            match place {
                Ok(place) if is_open(place) => {}
                Ok(_) => {
                    return refuse(
                        "items of this list have a schema of their own: write itemRules for them".to_owned(),
                    );
                }
                Err(why) => return refuse(why),
            }
        }
        ops.push(Op::Again {
            from: Seg::single(rest.from),
            to: Seg::single(rest.to),
        });
    }
}

/// Returns true for a value, or a list of items, of any type.
fn is_open(place: SchemaNode<'_>) -> bool {
    place.is_none_or(|node| takes_anything(node) || node.items().is_some_and(takes_anything))
}

/// Checks rules that have a name. The list that they are used for is read by nothing else, so that
/// their work grows with the object and not with its depth.
pub(super) fn check(rule: &Rule, each: &Each, errors: &mut Vec<FieldError>) {
    let at = rule.at.path.child("itemRules");
    let name = rule.set.as_deref().unwrap_or_default();
    let mut refuse = |why: &str| errors.push(FieldError::invalid(&at, &Json::from(name), why));
    if each.over_map || !matches!(each.fill, Fill::List) {
        refuse("rules with a name convert a list into a list");
    }
    if write_single_items(&each.body) {
        refuse("rules with a name write no single item, such as item.names[0]");
    }
    for (i, op) in each.body.iter().enumerate() {
        let Op::Again { from, .. } = op else { continue };
        let others = each.body.iter().enumerate().filter(|(j, _)| *j != i);
        if others.into_iter().any(|(_, other)| reads(other, from)) {
            refuse("another rule reads the list that they are used for: that would be read once for each level");
        }
    }
}

/// Returns true if operations write an item by its index, at any depth.
fn write_single_items(ops: &[Op]) -> bool {
    let inside = |op: &Op| matches!(op, Op::Each(each) if write_single_items(&each.body));
    !super::indexed(ops).is_empty() || ops.iter().any(inside)
}

/// Returns true if an operation on an item reads a value at, above or below this path of the item.
fn reads(op: &Op, path: &[Seg]) -> bool {
    let meets = |other: &[Seg]| other.iter().zip(path).all(|(a, b)| a == b);
    match op {
        Op::Move { from, .. } | Op::Again { from, .. } => meets(from),
        Op::Each(each) => {
            let around = |op: &Op| match op {
                Op::Compute {
                    this: This::Around(around) | This::Both { around, .. },
                    ..
                } => meets(around),
                _ => false,
            };
            meets(&each.from) || each.body.iter().any(around)
        }
        Op::Compute { this, .. } => {
            let This::At(at) = this else { return true };
            let mut made = Vec::new();
            expressions(std::slice::from_ref(op), &mut made);
            let mut references = made.iter().flat_map(|(_, made)| made.program.references());
            references.any(|reference| {
                let fields = reference.path.iter().map(|name| Seg::Field(name.as_str().into()));
                let path: Vec<Seg> = at.iter().cloned().chain(fields).collect();
                reference.variable == "self" && meets(&path)
            })
        }
    }
}
