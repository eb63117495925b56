//! Alignment of two lists: pairs each item of one list with its item of the other.
//!
//! Items of keyed lists and sets are paired by key, or by the part of it that both lists have.
//! Other lists are aligned by a longest common subsequence, if possible of items that stay in their
//! places; gaps of equal length then pair in order, so that an item edited in place stays the same
//! item.
//!
//! ```text
//! a = [x y z]   b = [x Y z w]     x–x, z–z are common; the gap [y]/[Y] pairs; w is new
//! ```

use insula_schema::{ListType, Node};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Comparisons that one alignment may make. Lists whose differing middles need more pair in order:
/// the result stays correct, but items are recognised less precisely.
const CELLS_MAX: usize = 65_536;

/// Returns for each item of `a` the index of its item in `b`, if it has one.
pub(crate) fn align(a: &[Json], b: &[Json], node: Option<&Node>, same: fn(&Json, &Json) -> bool) -> Vec<Option<usize>> {
    let is_set = node.is_some_and(|node| *node.list_type() == ListType::Set);
    if is_set && let (Some(a_keys), Some(b_keys)) = (identities(a, node), identities(b, node)) {
        let places: HashMap<&str, usize> = b_keys.iter().enumerate().map(|(j, key)| (key.as_str(), j)).collect();
        return a_keys.iter().map(|key| places.get(key.as_str()).copied()).collect();
    }
    by_visible_key(a, b, node, same).unwrap_or_else(|| by_sequence(a, b, &|x: &Json, y: &Json| same(x, y)))
}

/// Returns for each item of a conversion the index of its item in an object. Keys of a conversion
/// may hold defaults, where the version that it is made from lacks a part of them: items that are
/// left pair by the other parts.
pub(crate) fn align_to_base(
    base: &[Json],
    object: &[Json],
    node: Option<&Node>,
    same: fn(&Json, &Json) -> bool,
) -> Vec<Option<usize>> {
    let mut pairs = align(base, object, node, same);
    let keys = defaulted_keys(node);
    if keys.is_empty() || pairs.iter().all(Option::is_some) {
        return pairs;
    }
    let taken: HashSet<usize> = pairs.iter().flatten().copied().collect();
    let mut free: Vec<usize> = (0..object.len()).filter(|j| !taken.contains(j)).collect();
    let mut comparisons = CELLS_MAX;
    for (i, pair) in pairs.iter_mut().enumerate().filter(|(_, pair)| pair.is_none()) {
        let is_default = |(key, default): &(&String, Option<&Json>)| {
            let value = base[i].get(key.as_str());
            default.is_some() && (value.is_none() || value == *default)
        };
        let (_, told): (Vec<_>, Vec<_>) = keys.iter().partition(|key| is_default(key));
        if told.is_empty() || told.len() == keys.len() {
            continue;
        }
        let compared = free.len().min(comparisons);
        let is_same = |j: &usize| {
            told.iter()
                .all(|(key, _)| base[i].get(key.as_str()) == object[*j].get(key.as_str()))
        };
        let at = free.iter().take(compared).position(is_same);
        comparisons -= at.map_or(compared, |at| at + 1);
        *pair = at.map(|at| free.remove(at));
    }
    pairs
}

/// Returns the keys of a list with their defaults; none if no key has one.
fn defaulted_keys(node: Option<&Node>) -> Vec<(&String, Option<&Json>)> {
    let Some(ListType::Map { keys }) = node.map(Node::list_type) else {
        return Vec::new();
    };
    let items = node.and_then(Node::items);
    let default = |key: &String| items.and_then(|items| items.child(key)?.default());
    let keys: Vec<(&String, Option<&Json>)> = keys.iter().map(|key| (key, default(key))).collect();
    match keys.iter().any(|(_, default)| default.is_some()) {
        true => keys,
        false => Vec::new(),
    }
}

/// Pairs items by the part of their key that both lists have: those of one key as a sequence, then
/// equal ones, then the others in order; `None` unless the list has keys and both sides some part
/// of them.
fn by_visible_key(
    a: &[Json],
    b: &[Json],
    node: Option<&Node>,
    same: fn(&Json, &Json) -> bool,
) -> Option<Vec<Option<usize>>> {
    let ListType::Map { keys } = node?.list_type() else {
        return None;
    };
    let has = |items: &[Json], key: &str| items.iter().any(|item| item.get(key).is_some());
    let visible = keys.iter().filter(|key| has(a, key) && has(b, key));
    // An item may lack a key that its list shows: then it has the default.
    let default = |key: &String| node?.items()?.child(key)?.default();
    let visible: Vec<(&String, Option<&Json>)> = visible.map(|key| (key, default(key))).collect();
    if visible.is_empty() {
        return None;
    }
    let identity = |item: &Json| {
        let value = |(key, default): &(&String, Option<&'_ Json>)| item.get(key.as_str()).or(*default).cloned();
        let values: Vec<Option<Json>> = visible.iter().map(value).collect();
        serde_json::to_string(&values).unwrap_or_default()
    };
    let mut groups: BTreeMap<String, [Vec<usize>; 2]> = BTreeMap::new();
    for (side, items) in [a, b].into_iter().enumerate() {
        for (i, item) in items.iter().enumerate() {
            groups.entry(identity(item)).or_default()[side].push(i);
        }
    }
    let mut pairs = vec![None; a.len()];
    let mut comparisons = CELLS_MAX;
    for [ours, theirs] in groups.into_values() {
        if let ([i], [j]) = (ours.as_slice(), theirs.as_slice()) {
            pairs[*i] = Some(*j);
            continue;
        }
        let same = |i: &usize, j: &usize| same(&a[*i], &b[*j]);
        let found = by_sequence(&ours, &theirs, &same);
        for (i, j) in ours
            .iter()
            .zip(with_rest(found, &ours, &theirs, &same, &mut comparisons))
        {
            pairs[*i] = j.map(|j| theirs[j]);
        }
    }
    Some(pairs)
}

/// Pairs what is left of a group of items that all have one key: equal ones, then the others in
/// order.
fn with_rest(
    mut pairs: Vec<Option<usize>>,
    a: &[usize],
    b: &[usize],
    same: &dyn Fn(&usize, &usize) -> bool,
    comparisons: &mut usize,
) -> Vec<Option<usize>> {
    let taken: HashSet<usize> = pairs.iter().flatten().copied().collect();
    let mut free: VecDeque<usize> = (0..b.len()).filter(|j| !taken.contains(j)).collect();
    for (i, pair) in pairs.iter_mut().enumerate().filter(|(_, pair)| pair.is_none()) {
        let compared = free.len().min(*comparisons);
        let at = free.iter().take(compared).position(|j| same(&a[i], &b[*j]));
        *comparisons -= at.map_or(compared, |at| at + 1);
        *pair = at.and_then(|at| free.remove(at));
    }
    for pair in pairs.iter_mut().filter(|pair| pair.is_none()) {
        *pair = free.pop_front();
    }
    pairs
}

/// Returns the identity of each item of a keyed list or a set, or `None` unless all items have
/// distinct ones.
pub(crate) fn identities(items: &[Json], node: Option<&Node>) -> Option<Vec<String>> {
    let identity = |item: &Json| match node?.list_type() {
        ListType::Atomic => None,
        ListType::Set => Some(item.to_string()),
        ListType::Map { keys } => {
            let values: Vec<&Json> = keys.iter().map(|key| item.get(key).unwrap_or(&Json::Null)).collect();
            values
                .iter()
                .any(|v| !v.is_null())
                .then(|| serde_json::to_string(&values).unwrap_or_default())
        }
    };
    let all: Option<Vec<String>> = items.iter().map(identity).collect();
    let all = all?;
    let distinct: HashSet<&str> = all.iter().map(String::as_str).collect();
    (distinct.len() == all.len()).then_some(all)
}

fn by_sequence<T>(a: &[T], b: &[T], same: &dyn Fn(&T, &T) -> bool) -> Vec<Option<usize>> {
    let mut pairs = vec![None; a.len()];
    // Matching the ends first never shortens a common subsequence, and most edits leave little
    // between them.
    let head = a.iter().zip(b).take_while(|(x, y)| same(x, y)).count();
    let tail = a[head..]
        .iter()
        .rev()
        .zip(b[head..].iter().rev())
        .take_while(|(x, y)| same(x, y))
        .count();
    for (i, pair) in pairs.iter_mut().enumerate().take(head) {
        *pair = Some(i);
    }
    for i in 0..tail {
        pairs[a.len() - 1 - i] = Some(b.len() - 1 - i);
    }
    let (mid_a, mid_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    if mid_a.len().saturating_mul(mid_b.len()) <= CELLS_MAX {
        let common = common(mid_a, mid_b, same);
        // Of sequences of equal length, the one whose items stay in their places counts: what is
        // beside items that look alike may have been edited.
        let in_place = mid_a.iter().zip(mid_b).filter(|(x, y)| same(x, y)).count();
        if mid_a.len() != mid_b.len() || in_place < common.len() {
            for (i, j) in common {
                pairs[head + i] = Some(head + j);
            }
        }
    }
    pair_gaps(&mut pairs, b.len());
    pairs
}

/// Returns a longest common subsequence as pairs of indices; the earliest of several.
fn common<T>(a: &[T], b: &[T], same: &dyn Fn(&T, &T) -> bool) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let equal: Vec<bool> = a.iter().flat_map(|x| b.iter().map(move |y| same(x, y))).collect();
    let mut length = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            length[i * width + j] = if equal[i * b.len() + j] {
                length[(i + 1) * width + j + 1] + 1
            } else {
                length[(i + 1) * width + j].max(length[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if equal[i * b.len() + j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if length[(i + 1) * width + j] >= length[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Pairs the items between two anchors in order, where both sides have equally many.
fn pair_gaps(pairs: &mut [Option<usize>], b_len: usize) {
    let mut start = 0;
    let mut b_start = 0;
    for end in 0..=pairs.len() {
        let anchor = match pairs.get(end) {
            Some(None) => continue,
            Some(Some(j)) => *j,
            None => b_len,
        };
        if end - start == anchor - b_start {
            for (step, pair) in pairs[start..end].iter_mut().enumerate() {
                *pair = Some(b_start + step);
            }
        }
        start = end + 1;
        b_start = anchor + 1;
    }
}

/// Returns true if everything in `seen` is in `whole`, which may hold fields that the other side
/// cannot see.
pub(crate) fn covers(seen: &Json, whole: &Json) -> bool {
    match (seen, whole) {
        (Json::Object(seen), Json::Object(whole)) => seen
            .iter()
            .all(|(name, value)| whole.get(name).is_some_and(|w| covers(value, w))),
        (Json::Array(seen), Json::Array(whole)) => {
            let mut rest = whole.iter();
            seen.iter().all(|item| rest.any(|w| covers(item, w)))
        }
        _ => seen == whole,
    }
}

/// Compares two values; the equality that `align` is given.
pub(crate) fn equal(a: &Json, b: &Json) -> bool {
    a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_keep_their_identity() {
        let rows = [
            (json!([1, 2, 3]), json!([1, 2, 3]), vec![Some(0), Some(1), Some(2)]),
            (json!([1, 2, 3]), json!([1, 9, 3]), vec![Some(0), Some(1), Some(2)]),
            (json!([1, 2, 3]), json!([1, 3]), vec![Some(0), None, Some(1)]),
            (json!([1, 3]), json!([1, 2, 3]), vec![Some(0), Some(2)]),
            (json!([]), json!([1]), vec![]),
            (json!([1]), json!([]), vec![None]),
            (json!(["bob"]), json!(["rob"]), vec![Some(0)]),
            (json!([1, 2]), json!([2, 1]), vec![None, Some(0)]),
            (json!([1, 1]), json!([1]), vec![Some(0), None]),
            (json!([0, 0, 0]), json!([1, 0, 2]), vec![Some(0), Some(1), Some(2)]),
            (
                json!([0, 0, 1, 2]),
                json!([0, 1, 2, 0]),
                vec![Some(0), None, Some(1), Some(2)],
            ),
        ];
        for (a, b, want) in rows {
            let got = align(a.as_array().unwrap(), b.as_array().unwrap(), None, equal);
            assert_eq!(got, want, "{a} {b}");
        }
    }

    #[test]
    fn what_is_seen_is_covered_by_the_whole() {
        assert!(covers(
            &json!({"a": [{"n": 1}]}),
            &json!({"a": [{"x": 0}, {"n": 1, "m": 2}], "b": 1})
        ));
        assert!(!covers(&json!({"a": 1}), &json!({"a": 2})));
    }
}
