//! Lists declared as sets or maps (`x-kubernetes-list-type`): equal in any order, joined without
//! repeating an item.

use crate::cost::Budget;
use crate::decl::{ListKind, Shape};
use crate::error::EvalError;
use crate::items::Items;
use crate::value::{ListVal, Result, Val, numeric};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Identity of an item: the item itself in a set, the values of the key fields in a map.
struct Key<'v>(Vec<Option<Val<'v>>>);

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let orders = self.0.iter().zip(&other.0).map(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => identity(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

/// Total order of scalars of any types.
fn identity(a: &Val<'_>, b: &Val<'_>) -> Ordering {
    fn class(value: &Val<'_>) -> u8 {
        match value {
            Val::Bool(_) => 1,
            Val::Int(_) | Val::Uint(_) | Val::Double(_) => 2,
            Val::Str(_) | Val::String(_) => 3,
            Val::Bytes(_) => 4,
            Val::Timestamp(_) => 5,
            Val::Duration(_) => 6,
            _ => 0,
        }
    }
    match (a, b) {
        (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
        (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
        (Val::Timestamp(a), Val::Timestamp(b)) => a.cmp(b),
        (Val::Duration(a), Val::Duration(b)) => a.cmp(b),
        _ => match (a.as_str(), b.as_str(), numeric(a, b)) {
            (Some(a), Some(b), _) => a.cmp(b),
            (_, _, Some(order)) => order.unwrap_or(Ordering::Equal),
            _ => class(a).cmp(&class(b)),
        },
    }
}

/// Returns the kind of a list whose items have keys; `None` for an atomic list.
pub(crate) fn keyed<'v>(list: &Val<'v>) -> Option<&'v ListKind> {
    match list.declared()?.shape() {
        Shape::List {
            kind: ListKind::Atomic, ..
        } => None,
        Shape::List { kind, .. } => Some(kind),
        _ => None,
    }
}

fn key<'v>(item: &Val<'v>, kind: &ListKind) -> Key<'v> {
    Key(match kind {
        ListKind::Map(names) => names.iter().map(|name| item.field(name)).collect(),
        ListKind::Set | ListKind::Atomic => vec![Some(item.clone())],
    })
}

/// Charges for an index over `items`.
fn index(items: usize, budget: &mut Budget) -> std::result::Result<(), EvalError> {
    budget.charge(items as u64)?;
    budget.memory(items * 4 * size_of::<Val<'_>>())
}

/// Returns true if two lists of one length have equal items under equal keys.
pub(crate) fn equal(
    kind: &ListKind,
    left: Items<'_, '_>,
    right: Items<'_, '_>,
    budget: &mut Budget,
    mut items_equal: impl FnMut(&Val<'_>, &Val<'_>, &mut Budget) -> std::result::Result<bool, EvalError>,
) -> std::result::Result<bool, EvalError> {
    index(left.len() + right.len(), budget)?;
    let left: BTreeMap<Key<'_>, Val<'_>> = left.iter().map(|item| (key(&item, kind), item)).collect();
    for item in right.iter() {
        match left.get(&key(&item, kind)) {
            None => return Ok(false),
            Some(ours) if !items_equal(ours, &item, budget)? => return Ok(false),
            Some(_) => {}
        }
    }
    Ok(true)
}

/// Joins two lists: the left items keep their positions, a map's items of equal keys are replaced
/// by the right ones, and new items follow.
pub(crate) fn join<'v>(list: &Val<'v>, kind: &ListKind, right: Items<'_, 'v>, budget: &mut Budget) -> Result<'v> {
    let mut items: Vec<Val<'v>> = list.items().map(|i| i.iter().collect()).unwrap_or_default();
    index(items.len() + right.len(), budget)?;
    let mut places: BTreeMap<Key<'v>, usize> = items.iter().enumerate().map(|(i, item)| (key(item, kind), i)).collect();
    for item in right.iter() {
        let key = key(&item, kind);
        match (places.get(&key), kind) {
            (Some(place), ListKind::Map(_)) => items[*place] = item,
            (Some(_), _) => {}
            (None, _) => {
                // Keys repeated on the right: only a set looks at the items just added.
                if *kind == ListKind::Set {
                    places.insert(key, items.len());
                }
                items.push(item);
            }
        }
    }
    let declared = list.declared();
    Ok(Val::List(Rc::new(ListVal { items, declared })))
}
