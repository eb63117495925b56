//! The fields of an object on their way, found by one walk over both sides.

use super::Passthrough;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// How an object's fields cross.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fields {
    named: BTreeMap<Box<str>, Option<Passthrough>>,
    /// How those cross that are not named.
    rest: Option<Box<Passthrough>>,
    /// Whether most of those that are named stay behind.
    few: bool,
}

impl Fields {
    pub(crate) fn new(named: BTreeMap<Box<str>, Option<Passthrough>>, rest: Option<Box<Passthrough>>) -> Fields {
        let behind = named.values().filter(|how| how.is_none()).count();
        let few = rest.is_none() && behind > named.len() / 2;
        Fields { named, rest, few }
    }

    /// What the other side has a place for.
    pub(crate) fn copy(&self, map: &Map<String, Json>) -> Map<String, Json> {
        if !self.few {
            // A map is cloned faster than it is built.
            let mut out = map.clone();
            self.keep(&mut out);
            return out;
        }
        let mut how = self.walk();
        let crossing = map
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), how(name)?.copy(value)?)));
        crossing.collect()
    }

    /// Leaves of an object what the other side has a place for.
    pub(crate) fn keep(&self, map: &mut Map<String, Json>) {
        let mut how = self.walk();
        let mut keep = |name: &str, value: &mut Json| how(name).is_some_and(|how| how.keep(value));
        if self.few {
            // To build a map is cheaper than to take most of one away, one by one.
            let all = std::mem::take(map).into_iter();
            *map = all
                .filter_map(|(name, mut value)| keep(&name, &mut value).then_some((name, value)))
                .collect();
        } else {
            map.retain(|name, value| keep(name, value));
        }
    }

    /// How a field crosses. It is asked in the order of names: both sides are in order, so that one
    /// walk finds all.
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

    /// How the field of this name crosses.
    pub(crate) fn get(&self, name: &str) -> Option<&Passthrough> {
        match self.named.get(name) {
            Some(how) => how.as_ref(),
            None => self.rest.as_deref(),
        }
    }

    /// How those cross that are not named.
    pub(crate) fn rest(&self) -> Option<&Passthrough> {
        self.rest.as_deref()
    }

    /// The fields that are named.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, Option<&Passthrough>)> {
        self.named.iter().map(|(name, how)| (&**name, how.as_ref()))
    }

    /// The same, but that these fields stay behind.
    pub(crate) fn without(mut self, names: &[&str]) -> Fields {
        self.named.extend(names.iter().map(|name| ((*name).into(), None)));
        Fields::new(self.named, self.rest)
    }
}
