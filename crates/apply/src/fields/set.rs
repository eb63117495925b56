//! A set of paths, as a tree: what differs between two objects, what a manager owns.

use super::element::{Element, Path};
use std::collections::BTreeMap;

/// A set of fields.
///
/// Invariant: every place is a member or has members below, so that equal sets are equal trees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    pub(super) places: BTreeMap<Element, Place>,
}

/// One place of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Whether the place itself is in the set.
    pub(crate) member: bool,
    /// What is in the set below it.
    pub(crate) below: FieldSet,
}

impl Place {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a path; the empty path stands for the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[Element]) {
        if let Some((last, above)) = path.split_last() {
            self.at(above).places.entry(last.clone()).or_default().member = true;
        }
    }

    /// Adds a path with everything that is given below it.
    pub(crate) fn insert_tree(&mut self, path: &[Element], below: FieldSet) {
        let Some((last, above)) = path.split_last() else {
            self.unite(&below);
            return;
        };
        let place = self.at(above).places.entry(last.clone()).or_default();
        place.member = true;
        match place.below.is_empty() {
            true => place.below = below,
            false => place.below.unite(&below),
        }
    }

    fn at(&mut self, path: &[Element]) -> &mut FieldSet {
        path.iter().fold(self, |set, element| {
            &mut set.places.entry(element.clone()).or_default().below
        })
    }

    /// Puts a place where none is.
    pub(crate) fn put(&mut self, element: Element, place: Place) {
        if !place.is_empty() {
            self.places.insert(element, place);
        }
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = (&Element, &Place)> {
        self.places.iter()
    }

    pub(crate) fn place(&self, element: &Element) -> Option<&Place> {
        self.places.get(element)
    }

    /// Whether a path is in the set.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return false;
        };
        let set = above
            .iter()
            .try_fold(self, |set, element| Some(&set.places.get(element)?.below));
        set.and_then(|set| set.places.get(last))
            .is_some_and(|place| place.member)
    }

    /// Adds all of another set.
    pub fn unite(&mut self, other: &FieldSet) {
        for (element, theirs) in &other.places {
            match self.places.get_mut(element) {
                Some(own) => {
                    own.member |= theirs.member;
                    own.below.unite(&theirs.below);
                }
                None => {
                    self.places.insert(element.clone(), theirs.clone());
                }
            }
        }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet::default();
        for (element, own) in &self.places {
            if let Some(theirs) = other.places.get(element) {
                let member = own.member && theirs.member;
                let below = own.below.intersection(&theirs.below);
                both.put(element.clone(), Place { member, below });
            }
        }
        both
    }

    /// Takes the members of another set away. What is below them stays.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.places.retain(|element, own| {
            if let Some(theirs) = other.places.get(element) {
                own.member &= !theirs.member;
                own.below.subtract(&theirs.below);
            }
            !own.is_empty()
        });
    }

    /// Takes the members of another set away, with everything below them.
    pub fn cut(&mut self, other: &FieldSet) {
        self.places.retain(|element, own| match other.places.get(element) {
            Some(theirs) if theirs.member => false,
            Some(theirs) => {
                own.below.cut(&theirs.below);
                !own.is_empty()
            }
            None => true,
        });
    }

    /// All paths: at each level members before what is below them, as conflicts are listed.
    pub fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, above: &mut Vec<Element>, found: &mut Vec<Path>) {
        for (element, _) in self.places.iter().filter(|(_, place)| place.member) {
            found.push(Path(above.iter().chain([element]).cloned().collect()));
        }
        for (element, place) in &self.places {
            above.push(element.clone());
            place.below.collect(above, found);
            above.pop();
        }
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
            united.unite(&y);
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
