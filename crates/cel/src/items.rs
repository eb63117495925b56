//! Elements of lists: borrowed from JSON and read by their declaration one by one, or computed.

use crate::typed;
use crate::value::{Declared, Val};
use serde_json::Value;

/// A list's elements, in either representation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Items<'s, 'v> {
    Json(&'v [Value], Declared<'v>),
    Made(&'s [Val<'v>]),
}

impl<'v> Val<'v> {
    /// Returns the elements of a list; `None` for other values.
    #[inline]
    pub(crate) fn items(&self) -> Option<Items<'_, 'v>> {
        match self {
            Self::JsonList(items, declared) => Some(Items::Json(items, typed::items_of(*declared))),
            Self::List(list) => Some(Items::Made(&list.items)),
            _ => None,
        }
    }
}

impl<'s, 'v> Items<'s, 'v> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    pub(crate) fn get(self, index: usize) -> Option<Val<'v>> {
        match self {
            Self::Json(items, declared) => items.get(index).map(|i| Val::read(i, declared)),
            Self::Made(items) => items.get(index).cloned(),
        }
    }

    pub(crate) fn iter(self) -> Elements<'s, 'v> {
        match self {
            Self::Json(items, declared) => Elements::Json(items.iter(), declared),
            Self::Made(items) => Elements::Made(items.iter()),
        }
    }
}

/// Iterator over a list's elements, each read when it is reached.
pub(crate) enum Elements<'s, 'v> {
    Json(std::slice::Iter<'v, Value>, Declared<'v>),
    Made(std::slice::Iter<'s, Val<'v>>),
}

impl<'v> Elements<'_, 'v> {
    /// Writes the next element into the loop's slot. Returns false at the end. A number goes there
    /// in registers.
    #[inline]
    pub(crate) fn next_into(&mut self, place: &mut Val<'v>) -> bool {
        match self {
            Self::Json(items, declared) => match (items.next(), declared) {
                (None, _) => return false,
                (Some(item), None) => *place = Val::from_json(item),
                (Some(item), declared) => *place = Val::read(item, *declared),
            },
            Self::Made(items) => match items.next() {
                None => return false,
                Some(Val::Int(i)) => *place = Val::Int(*i),
                Some(item) => *place = item.clone(),
            },
        }
        true
    }
}

impl<'v> Iterator for Elements<'_, 'v> {
    type Item = Val<'v>;

    #[inline]
    fn next(&mut self) -> Option<Val<'v>> {
        match self {
            Self::Json(items, declared) => items.next().map(|item| Val::read(item, *declared)),
            Self::Made(items) => items.next().map(Val::copied),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Json(items, _) => items.size_hint(),
            Self::Made(items) => items.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Elements<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Json(items, declared) => items.next_back().map(|item| Val::read(item, *declared)),
            Self::Made(items) => items.next_back().cloned(),
        }
    }
}

impl ExactSizeIterator for Elements<'_, '_> {}
