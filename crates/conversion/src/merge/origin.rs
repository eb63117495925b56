//! Origin of a side of an edit: the value that it was converted from, as long as it passes through,
//! or rules move it or make its items one by one.
//!
//! Items of such a list keep their order, so that the version of the edit tells which item is
//! which: it may show more of their key than the version that is merged into.

use crate::by_path::get;
use crate::passthrough::{Fields, Passthrough};
use crate::plan::{Each, Fill, Op};
use crate::trace::Seg;
use insula_schema::Node;
use serde_json::Value as Json;

/// A value in the version of the edit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The value that this one was copied from.
    carried: Option<Carried<'a>>,
    /// The operations that may write this value, or into it.
    made: Option<Made<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct Carried<'a> {
    value: &'a Json,
    node: &'a Node,
    how: How<'a>,
}

#[derive(Debug, Clone, Copy)]
enum How<'a> {
    Fields(&'a Fields),
    Value(&'a Passthrough),
    Items(&'a Each),
}

/// Operations of an object or an item.
#[derive(Debug, Clone, Copy)]
struct Made<'a> {
    ops: &'a [Op],
    /// The path below what they write into.
    at: &'a [Seg],
    /// The object or item that they read.
    value: &'a Json,
    node: &'a Node,
}

impl<'a> Origin<'a> {
    /// Returns the origin of a whole object, of which these fields pass through and these
    /// operations make others.
    pub(crate) fn object(value: &'a Json, node: &'a Node, fields: &'a Fields, ops: &'a [Op]) -> Origin<'a> {
        let how = How::Fields(fields);
        let made = Made {
            ops,
            at: &[],
            value,
            node,
        };
        Origin {
            carried: Some(Carried { value, node, how }),
            made: Some(made),
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<Origin<'a>> {
        let written = self.made.and_then(|made| made.field(name));
        if let Some((op, made)) = written
            && made.at.len() == op.to().len()
        {
            let carried = made.carried(op)?;
            return Some(Origin {
                carried: Some(carried),
                made: None,
            });
        }
        let carried = self.carried.and_then(|carried| carried.field(name));
        let made = written.map(|(_, made)| made);
        (carried.is_some() || made.is_some()).then_some(Origin { carried, made })
    }

    pub(super) fn index(&self, index: usize) -> Option<Origin<'a>> {
        let carried = self.carried?;
        let (value, node) = (carried.value.get(index)?, carried.node.items()?);
        let passing = |how| {
            let how = How::Value(how);
            Carried { value, node, how }
        };
        Some(match carried.how {
            How::Value(Passthrough::List { items, .. }) => Origin {
                carried: Some(passing(items)),
                made: None,
            },
            How::Value(whole @ Passthrough::Whole) => Origin {
                carried: Some(passing(whole)),
                made: None,
            },
            How::Items(each) => Origin {
                carried: each.passthrough.as_ref().map(passing),
                made: Some(Made {
                    ops: &each.body,
                    at: &[],
                    value,
                    node,
                }),
            },
            How::Value(_) | How::Fields(_) => return None,
        })
    }

    /// Returns the items of a list, if each of `count` items was made of one.
    pub(super) fn items(&self, count: usize) -> Option<(&'a [Json], &'a Node)> {
        let carried = self.carried?;
        let is_list = matches!(
            carried.how,
            How::Value(Passthrough::List { .. } | Passthrough::Whole) | How::Items(_)
        );
        let items = carried.value.as_array();
        let items = items.filter(|items| is_list && items.len() == count)?;
        Some((items, carried.node))
    }
}

impl<'a> Carried<'a> {
    fn field(self, name: &str) -> Option<Carried<'a>> {
        let inside = |fields: &'a Fields| fields.get(name).map(How::Value);
        let how = match self.how {
            How::Fields(fields) => inside(fields)?,
            How::Value(Passthrough::Object { fields, .. }) => inside(fields)?,
            whole @ How::Value(Passthrough::Whole) => whole,
            How::Value(_) | How::Items(_) => return None,
        };
        Some(Carried {
            value: self.value.get(name)?,
            node: self.node.child(name)?,
            how,
        })
    }
}

impl<'a> Made<'a> {
    /// Returns an operation that writes a field or into it, and the operations below that.
    fn field(self, name: &str) -> Option<(&'a Op, Made<'a>)> {
        let depth = self.at.len();
        let op = self.ops.iter().find(|op| {
            let to = op.to();
            to.starts_with(self.at) && matches!(to.get(depth), Some(Seg::Field(field)) if **field == *name)
        })?;
        let at = op.to().get(..=depth)?;
        Some((op, Made { at, ..self }))
    }

    /// Returns the value that an operation copies, or of whose items it makes a list.
    fn carried(self, op: &'a Op) -> Option<Carried<'a>> {
        let (from, how) = match op {
            Op::Move {
                from,
                copy,
                unless_there: false,
                ..
            } => (from, How::Value(copy)),
            Op::Each(each) if !each.over_map && matches!(each.fill, Fill::List) => (&each.from, How::Items(each)),
            Op::Move { .. } | Op::Each(_) | Op::Compute { .. } | Op::Again { .. } => return None,
        };
        let node = from.iter().try_fold(self.node, |node, seg| match seg {
            Seg::Field(name) => node.child(name),
            Seg::Index(_) => node.items(),
        });
        Some(Carried {
            value: get(self.value, from)?,
            node: node?,
            how,
        })
    }
}
