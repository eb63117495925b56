//! Passthrough of the fields of an object, by one walk over both sides.

use super::Passthrough;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Passthrough of an object's fields: by name, and for all other names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fields {
    named: BTreeMap<Box<str>, Option<Passthrough>>,
    /// Passthrough of fields that are not named; `None` drops them.
    rest: Option<Box<Passthrough>>,
    /// True if most named fields are dropped.
    few: bool,
}

impl Fields {
    pub(crate) fn new(named: BTreeMap<Box<str>, Option<Passthrough>>, rest: Option<Box<Passthrough>>) -> Fields {
        let behind = named.values().filter(|how| how.is_none()).count();
        let few = rest.is_none() && behind > named.len() / 2;
        Fields { named, rest, few }
    }

    /// Copies the fields that the destination has.
    pub(crate) fn copy(&self, map: &Map<String, Json>) -> Map<String, Json> {
        if !self.few {
            // Cloning a map is faster than building one.
            let mut out = map.clone();
            self.keep(&mut out);
            return out;
        }
        let mut how = self.walk();
        let crossing = map
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), how(name)?.copy_field(value)?)));
        crossing.collect()
    }

    /// Removes the fields that the destination does not have.
    pub(crate) fn keep(&self, map: &mut Map<String, Json>) {
        let mut how = self.walk();
        let mut keep = |name: &str, value: &mut Json| how(name).is_some_and(|how| how.keep_field(value));
        if self.few {
            // Building a map is cheaper than removing most of its entries one by one.
            let all = std::mem::take(map).into_iter();
            *map = all
                .filter_map(|(name, mut value)| keep(&name, &mut value).then_some((name, value)))
                .collect();
        } else {
            map.retain(|name, value| keep(name, value));
        }
    }

    /// Returns a lookup for field names. Names must be asked in ascending order: both sides are
    /// sorted, so that one walk finds all.
    fn walk<'f>(&'f self) -> impl FnMut(&str) -> Option<&'f Passthrough> {
        let mut known = self.named.iter().peekable();
        move |name| {
            while known.next_if(|(known, _)| &***known < name).is_some() {}
            match known.peek() {
                Some((known, how)) if &***known == name => how.as_ref(),
                _ => self.rest.as_deref(),
            }
        }
    }

    /// Returns the passthrough of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Passthrough> {
        match self.named.get(name) {
            Some(how) => how.as_ref(),
            None => self.rest.as_deref(),
        }
    }

    /// Returns the passthrough of fields that are not named.
    pub(crate) fn rest(&self) -> Option<&Passthrough> {
        self.rest.as_deref()
    }

    /// Returns the named fields with their passthrough.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, Option<&Passthrough>)> {
        self.named.iter().map(|(name, how)| (&**name, how.as_ref()))
    }

    /// Returns the same passthrough without the given fields.
    pub(crate) fn without(mut self, names: &[&str]) -> Fields {
        self.named.extend(names.iter().map(|name| ((*name).into(), None)));
        Fields::new(self.named, self.rest)
    }
}
