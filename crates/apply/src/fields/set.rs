//! Sets of paths as trees: the difference of two objects, or the fields that a manager owns.

use super::element::{Element, Path};
use std::cmp::Ordering;

/// A set of field paths.
///
/// Invariant: nodes are sorted, and every node is a member or has members below, so that equal sets
/// are equal trees. Objects keep their fields sorted too, so that sets of whole objects are built
/// by appending, and two sets are walked in parallel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    pub(super) nodes: Vec<(Element, FieldNode)>,
}

/// One node of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldNode {
    /// True if the path of this node is in the set.
    pub(crate) member: bool,
    /// The members of the set below it.
    pub(crate) below: FieldSet,
}

impl FieldNode {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Returns an empty set with capacity for this number of nodes.
    pub(crate) fn with_capacity(nodes: usize) -> FieldSet {
        FieldSet {
            nodes: Vec::with_capacity(nodes),
        }
    }

    /// Makes a set of nodes in any order, none of them empty.
    pub(super) fn from_nodes(mut nodes: Vec<(Element, FieldNode)>) -> FieldSet {
        nodes.sort_by(|(a, _), (b, _)| a.cmp(b));
        nodes.dedup_by(|(later, _), (first, _)| later == first);
        FieldSet { nodes }
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path. Ignores the empty path, which stands for the whole object and has no owner.
    pub fn insert(&mut self, path: &[Element]) {
        self.insert_tree(path, FieldSet::default());
    }

    /// Adds a path with all members of `below` under it.
    pub(crate) fn insert_tree(&mut self, path: &[Element], below: FieldSet) {
        let Some((last, above)) = path.split_last() else {
            self.unite(below);
            return;
        };
        let set = above.iter().fold(self, |set, element| &mut set.entry(element).below);
        let place = set.entry(last);
        place.member = true;
        place.below.unite(below);
    }

    /// Returns the index of an element, or the index at which to insert it: mostly the end.
    fn find(&self, element: &Element) -> Result<usize, usize> {
        match self.nodes.last() {
            Some((last, _)) if last >= element => self.nodes.binary_search_by(|(own, _)| own.cmp(element)),
            _ => Err(self.nodes.len()),
        }
    }

    fn entry(&mut self, element: &Element) -> &mut FieldNode {
        let found = self.find(element).unwrap_or_else(|free| {
            self.nodes.insert(free, (element.clone(), FieldNode::default()));
            free
        });
        &mut self.nodes[found].1
    }

    /// Sets the node of an element; ignores empty nodes.
    pub(crate) fn put(&mut self, element: Element, place: FieldNode) {
        if !place.is_empty() {
            match self.find(&element) {
                Ok(found) => self.nodes[found].1 = place,
                Err(free) => self.nodes.insert(free, (element, place)),
            }
        }
    }

    /// Applies a function to every node; removes nodes that become empty.
    pub(crate) fn map(mut self, mut change: impl FnMut(&Element, FieldNode) -> FieldNode) -> FieldSet {
        self.nodes.retain_mut(|(element, place)| {
            *place = change(element, std::mem::take(place));
            !place.is_empty()
        });
        self
    }

    /// Adds the paths that lead to members.
    pub(crate) fn with_parents(self) -> FieldSet {
        self.map(|_, place| FieldNode {
            member: place.member || !place.below.is_empty(),
            below: place.below.with_parents(),
        })
    }

    pub(crate) fn place(&self, element: &Element) -> Option<&FieldNode> {
        self.find(element).ok().map(|found| &self.nodes[found].1)
    }

    /// Returns true if the path is in the set.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return false;
        };
        let set = above
            .iter()
            .try_fold(self, |set, element| Some(&set.place(element)?.below));
        set.and_then(|set| set.place(last)).is_some_and(|place| place.member)
    }

    /// Adds all members of another set.
    pub fn unite(&mut self, other: FieldSet) {
        if self.is_empty() || other.is_empty() {
            self.nodes.extend(other.nodes);
            return;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut rest = other.nodes.into_iter().peekable();
        for (element, mut own) in std::mem::take(&mut self.nodes) {
            while let Some(before) = rest.next_if(|(theirs, _)| *theirs < element) {
                nodes.push(before);
            }
            if let Some((_, theirs)) = rest.next_if(|(theirs, _)| *theirs == element) {
                own.member |= theirs.member;
                own.below.unite(theirs.below);
            }
            nodes.push((element, own));
        }
        nodes.extend(rest);
        self.nodes = nodes;
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet::default();
        let mut beside = other.beside();
        for (element, own) in &self.nodes {
            if let Some(theirs) = beside.next(element) {
                let member = own.member && theirs.member;
                let below = own.below.intersection(&theirs.below);
                both.put(element.clone(), FieldNode { member, below });
            }
        }
        both
    }

    /// Removes the members of another set; members below them stay.
    pub fn subtract(&mut self, other: &FieldSet) {
        let mut beside = other.beside();
        self.nodes.retain_mut(|(element, own)| {
            if let Some(theirs) = beside.next(element) {
                own.member &= !theirs.member;
                own.below.subtract(&theirs.below);
            }
            !own.is_empty()
        });
    }

    /// Removes the members of another set, with everything below them.
    pub fn cut(&mut self, other: &FieldSet) {
        let mut beside = other.beside();
        self.nodes.retain_mut(|(element, own)| match beside.next(element) {
            Some(theirs) if theirs.member => false,
            Some(theirs) => {
                own.below.cut(&theirs.below);
                !own.is_empty()
            }
            None => true,
        });
    }

    fn beside(&self) -> Beside<'_> {
        Beside { rest: &self.nodes }
    }

    /// Returns all paths, in the order in which conflicts are listed: at each level, members before
    /// the paths below them.
    pub fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, above: &mut Vec<Element>, found: &mut Vec<Path>) {
        for (element, _) in self.nodes.iter().filter(|(_, place)| place.member) {
            found.push(Path(above.iter().chain([element]).cloned().collect()));
        }
        for (element, place) in &self.nodes {
            above.push(element.clone());
            place.below.collect(above, found);
            above.pop();
        }
    }
}

/// Cursor over the nodes of a set, for a parallel walk with another set.
struct Beside<'a> {
    rest: &'a [(Element, FieldNode)],
}

impl<'a> Beside<'a> {
    /// Returns the node of an element. Elements must be asked in ascending order.
    fn next(&mut self, element: &Element) -> Option<&'a FieldNode> {
        while let Some(((first, place), rest)) = self.rest.split_first() {
            match first.cmp(element) {
                Ordering::Less => self.rest = rest,
                Ordering::Equal => {
                    self.rest = rest;
                    return Some(place);
                }
                Ordering::Greater => return None,
            }
        }
        None
    }
}

impl<'a> FromIterator<&'a [Element]> for FieldSet {
    fn from_iter<I: IntoIterator<Item = &'a [Element]>>(paths: I) -> Self {
        let mut set = FieldSet::default();
        paths.into_iter().for_each(|path| set.insert(path));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The model: a plain set of paths.
    type Model = BTreeSet<Vec<u8>>;

    fn model() -> impl Strategy<Value = Model> {
        prop::collection::btree_set(prop::collection::vec(0u8..3, 1..4), 0..8)
    }

    fn set(model: &Model) -> FieldSet {
        let mut set = FieldSet::default();
        for path in model {
            let path: Vec<_> = path.iter().map(|step| Element::field(&step.to_string())).collect();
            set.insert(&path);
        }
        set
    }

    proptest! {
        #[test]
        fn sets_of_fields_are_sets_of_paths(a in model(), b in model()) {
            let (x, y) = (set(&a), set(&b));
            let mut united = x.clone();
            united.unite(y.clone());
            prop_assert_eq!(&united, &set(&a.union(&b).cloned().collect()));
            prop_assert_eq!(x.intersection(&y), set(&a.intersection(&b).cloned().collect()));
            let mut left = x.clone();
            left.subtract(&y);
            prop_assert_eq!(left, set(&a.difference(&b).cloned().collect()));
            let mut left = x.clone();
            left.cut(&y);
            let outside = |path: &&Vec<u8>| !(1..=path.len()).any(|end| b.contains(&path[..end]));
            prop_assert_eq!(left, set(&a.iter().filter(outside).cloned().collect()));
            prop_assert_eq!(FieldSet::from_json(&united.to_json()), Some(united.clone()));
            prop_assert_eq!(united.paths().len(), a.union(&b).count());
            for path in united.paths() {
                prop_assert!(united.contains(&path.0));
            }
        }
    }
}
