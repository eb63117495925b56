//! Origin of a side of an edit: the value that it was converted from, as long as it passes through.
//!
//! Items of a list that passes through keep their order, so that the version of the edit tells
//! which item is which: it may show more of their key than the version that is merged into.

use crate::passthrough::{Fields, Passthrough};
use insula_schema::Node;
use serde_json::Value as Json;

/// A value in the version of the edit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    value: &'a Json,
    node: &'a Node,
    carried: Carried<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Carried<'a> {
    Fields(&'a Fields),
    Value(&'a Passthrough),
}

impl<'a> Origin<'a> {
    /// Returns the origin of a whole object, of which these fields pass through.
    pub(crate) fn object(value: &'a Json, node: &'a Node, fields: &'a Fields) -> Origin<'a> {
        Origin {
            value,
            node,
            carried: Carried::Fields(fields),
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<Origin<'a>> {
        let inside = |fields: &'a Fields| fields.get(name).map(Carried::Value);
        let carried = match self.carried {
            Carried::Fields(fields) => inside(fields)?,
            Carried::Value(Passthrough::Object { fields, .. }) => inside(fields)?,
            whole @ Carried::Value(Passthrough::Whole) => whole,
            Carried::Value(_) => return None,
        };
        Some(Origin {
            value: self.value.get(name)?,
            node: self.node.child(name)?,
            carried,
        })
    }

    pub(super) fn index(&self, index: usize) -> Option<Origin<'a>> {
        let carried = match self.carried {
            Carried::Value(Passthrough::List { items, .. }) => Carried::Value(items),
            whole @ Carried::Value(Passthrough::Whole) => whole,
            Carried::Value(_) | Carried::Fields(_) => return None,
        };
        Some(Origin {
            value: self.value.get(index)?,
            node: self.node.items()?,
            carried,
        })
    }

    /// Returns the items of a list, if `count` of them passed through.
    pub(super) fn items(&self, count: usize) -> Option<(&'a [Json], &'a Node)> {
        let is_list = matches!(
            self.carried,
            Carried::Value(Passthrough::List { .. } | Passthrough::Whole)
        );
        let items = self.value.as_array().filter(|items| is_list && items.len() == count)?;
        Some((items, self.node))
    }
}
