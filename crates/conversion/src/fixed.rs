//! Items of lists and entries of maps that rules name: `domains[0]`, `m['main']`.
//!
//! To the rules such a value is a field like any other: it stays the same one whatever of it
//! another version shows, and it is there as long as anything in it is.

use crate::plan::Op;
use crate::trace::Seg;
use insula_schema::Node;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The named items and entries of a value, with the paths to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fixed {
    named: BTreeMap<Seg, Fixed>,
    /// The same in each item or entry that rules loop over.
    every: Option<Box<Fixed>>,
}

impl Fixed {
    /// Collects the items and entries that operations write; `node` is the schema of what they
    /// write into.
    pub(crate) fn written(ops: &[Op], node: Option<&Node>) -> Fixed {
        let mut fixed = Fixed::default();
        for op in ops {
            match op {
                Op::Move { to, .. } | Op::Compute { to, .. } => fixed.add(to, node, None),
                // Rules that use themselves name no item.
                Op::Again { .. } => {}
                Op::Each(each) => {
                    let place = each.to.iter().try_fold(node, |node, seg| Some(step(node, seg)));
                    let items = place
                        .flatten()
                        .and_then(|node| node.items().or_else(|| node.additional()));
                    let inner = Fixed::written(&each.body, items);
                    if !inner.is_empty() {
                        fixed.add(&each.to, node, Some(inner));
                    }
                }
            }
        }
        fixed
    }

    fn add(&mut self, path: &[Seg], node: Option<&Node>, every: Option<Fixed>) {
        let mut at = node;
        let mut end = every.is_some().then_some(path.len());
        for (depth, seg) in path.iter().enumerate() {
            let is_named = match seg {
                Seg::Index(_) => true,
                Seg::Field(name) => at.is_some_and(|node| node.property(name).is_none() && node.additional().is_some()),
            };
            if is_named {
                end = end.max(Some(depth + 1));
            }
            at = step(at, seg);
        }
        let Some(end) = end else { return };
        let mut here = self;
        for seg in &path[..end] {
            here = here.named.entry(seg.clone()).or_default();
        }
        if let Some(every) = every {
            here.every = Some(Box::new(every));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.every.is_none()
    }

    /// Returns what is named in a field or an entry.
    pub(crate) fn field(&self, name: &str) -> Option<&Fixed> {
        match self.is_empty() {
            true => None,
            false => self.named.get(&Seg::Field(name.into())).or(self.every.as_deref()),
        }
    }

    /// Returns what is named in an item.
    pub(crate) fn index(&self, index: usize) -> Option<&Fixed> {
        self.named.get(&Seg::Index(index)).or(self.every.as_deref())
    }

    /// Returns true if an entry of a map is named.
    pub(crate) fn names(&self, entry: &str) -> bool {
        self.named.contains_key(&Seg::Field(entry.into()))
    }

    /// Returns true if an item of a list is named.
    pub(crate) fn has_item(&self, index: usize) -> bool {
        self.named.contains_key(&Seg::Index(index))
    }

    /// Returns true if any item of a list is named.
    pub(crate) fn has_items(&self) -> bool {
        self.named.keys().any(|seg| matches!(seg, Seg::Index(_)))
    }

    /// Removes the nulls that stand for items before a named one.
    pub(crate) fn close_gaps(&self, value: &mut Json) {
        match value {
            Json::Object(map) if !self.is_empty() => {
                for (name, value) in map {
                    if let Some(below) = self.field(name) {
                        below.close_gaps(value);
                    }
                }
            }
            Json::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let Some(below) = self.index(index) {
                        below.close_gaps(item);
                    }
                }
                if self.has_items() {
                    items.retain(|item| !item.is_null());
                }
            }
            _ => {}
        }
    }
}

fn step<'n>(node: Option<&'n Node>, seg: &Seg) -> Option<&'n Node> {
    match seg {
        Seg::Field(name) => node?.child(name),
        Seg::Index(_) => node?.items(),
    }
}
