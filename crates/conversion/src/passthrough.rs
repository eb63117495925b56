//! Fields that cross without a rule: same path, compatible schema.
//!
//! A [`Passthrough`] is compiled from two schema nodes. Subtrees of equal shape are cloned whole;
//! elsewhere only what the destination declares is visited, so that the result needs no second look
//! for what was never there.

use crate::path::{Path, Segment};
use insula_schema::{Node, Type};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

mod fields;

pub(crate) use fields::Fields;

/// How a value crosses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passthrough {
    /// As it is.
    Whole,
    /// If it is of this type.
    Scalar { kind: Scalar, nullable: bool },
    /// Field by field.
    Object { fields: Fields, nullable: bool },
    /// Item by item.
    List { items: Box<Passthrough>, nullable: bool },
}

/// The types that are checked on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl Passthrough {
    /// The value on the other side; `None` when it does not fit there.
    pub(crate) fn copy(&self, value: &Json) -> Option<Json> {
        match (self, value) {
            (Passthrough::Object { fields, .. }, Json::Object(map)) => Some(Json::Object(fields.copy(map))),
            (Passthrough::List { items, .. }, Json::Array(list)) => {
                Some(Json::Array(list.iter().filter_map(|item| items.copy(item)).collect()))
            }
            _ => self.fits(value).then(|| value.clone()),
        }
    }

    /// Like `copy`, of a value that is needed no more.
    pub(crate) fn take(&self, mut value: Json) -> Option<Json> {
        self.keep(&mut value).then_some(value)
    }

    /// Whether a value crosses as it is, if it is none of objects and lists that are looked into.
    fn fits(&self, value: &Json) -> bool {
        match self {
            Passthrough::Whole => true,
            Passthrough::Scalar { kind, nullable } => kind.takes(value) || *nullable && value.is_null(),
            Passthrough::Object { nullable, .. } | Passthrough::List { nullable, .. } => *nullable && value.is_null(),
        }
    }

    /// Leaves of a value what the other side has a place for; `false` when it does not fit there at
    /// all.
    pub(crate) fn keep(&self, value: &mut Json) -> bool {
        match (self, value) {
            (Passthrough::Object { fields, .. }, Json::Object(map)) => {
                fields.keep(map);
                true
            }
            (Passthrough::List { items, .. }, Json::Array(list)) => {
                list.retain_mut(|item| items.keep(item));
                true
            }
            (_, value) => self.fits(value),
        }
    }

    /// Whether what it makes has no field that the destination does not know, whatever the source
    /// holds: pruning has nothing to do there.
    pub(crate) fn is_exact(&self, to: Option<&Node>) -> bool {
        let Some(to) = to.filter(|to| !to.embedded()) else {
            return false;
        };
        match self {
            Passthrough::Scalar { .. } => true,
            Passthrough::Whole => matches!(known_kind(to), Some(Kind::Scalar(_))),
            Passthrough::List { items, .. } => items.is_exact(to.items()),
            Passthrough::Object { fields, .. } => {
                fields.rest().is_none_or(|rest| rest.is_exact(to.additional()))
                    && fields
                        .named()
                        .all(|(name, how)| how.is_none_or(|how| how.is_exact(to.child(name))))
            }
        }
    }

    /// The destination's type, for messages.
    pub(crate) fn wants(&self) -> &'static str {
        match self {
            Passthrough::Whole => "any",
            Passthrough::Scalar {
                kind: Scalar::String, ..
            } => "string",
            Passthrough::Scalar {
                kind: Scalar::Integer, ..
            } => "integer",
            Passthrough::Scalar {
                kind: Scalar::Number, ..
            } => "number",
            Passthrough::Scalar {
                kind: Scalar::Boolean, ..
            } => "boolean",
            Passthrough::Scalar {
                kind: Scalar::IntOrString,
                ..
            } => "integer or string",
            Passthrough::Object { .. } => "object",
            Passthrough::List { .. } => "array",
        }
    }
}

impl Scalar {
    fn takes(self, value: &Json) -> bool {
        match self {
            Scalar::String => value.is_string(),
            Scalar::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            Scalar::Number => value.is_number(),
            Scalar::Boolean => value.is_boolean(),
            Scalar::IntOrString => value.is_i64() || value.is_u64() || value.is_string(),
        }
    }
}

/// What must not be carried.
#[derive(Debug, Default)]
pub(crate) struct Except {
    /// Written by rules, or dropped: nothing at or below these paths crosses.
    pub(crate) closed: Vec<Path>,
    /// Read by a rule that moves the value elsewhere: not carried into maps and unknown fields, and
    /// to a declared field only if it is declared alike.
    pub(crate) moved: Vec<Path>,
}

impl Except {
    fn closed(&self, at: &[Segment]) -> bool {
        self.closed
            .iter()
            .any(|p| p.segments().len() <= at.len() && matches(p.segments(), &at[..p.segments().len()]))
    }

    fn moved(&self, at: &[Segment]) -> bool {
        self.moved
            .iter()
            .any(|p| p.segments().len() == at.len() && matches(p.segments(), at))
    }

    /// Whether anything below `at` needs a look.
    fn below(&self, at: &[Segment]) -> bool {
        let below = |p: &Path| p.segments().len() > at.len() && matches(&p.segments()[..at.len()], at);
        self.closed.iter().any(below) || self.moved.iter().any(below)
    }

    /// Names of entries below `at` that are spoken of.
    fn names(&self, at: &[Segment]) -> BTreeSet<&str> {
        let all = self.closed.iter().chain(&self.moved);
        let next = all.filter_map(|p| match p.segments().get(at.len()) {
            Some(Segment::Field(name)) if matches(&p.segments()[..at.len()], at) => Some(name.as_str()),
            _ => None,
        });
        next.collect()
    }
}

/// Whether the patterns name the same place; every `[…]` that is not a number is all items.
fn matches(a: &[Segment], b: &[Segment]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| match (a, b) {
            (Segment::Field(a), Segment::Field(b)) => a == b,
            (Segment::Each(_) | Segment::Key(_), Segment::Each(_) | Segment::Key(_)) => true,
            // A map's entry: `all` holds for a named one.
            (Segment::Each(_) | Segment::Key(_), Segment::Field(_)) => true,
            _ => false,
        })
}

/// How values of `from` cross to `to`; `None` when they do not. An absent `from` is a value of
/// unknown type.
pub(crate) fn compile(from: Option<&Node>, to: &Node, except: &Except, at: &mut Vec<Segment>) -> Option<Passthrough> {
    if except.closed(at) {
        return None;
    }
    let alike = from.is_some_and(|from| same_shape(from, to));
    if except.moved(at) && !alike {
        return None;
    }
    if (alike || takes_anything(to)) && !except.below(at) {
        return Some(Passthrough::Whole);
    }
    let from_kind = from.and_then(known_kind);
    let nullable = to.nullable();
    match known_kind(to) {
        // An object of unknown fields with exceptions below.
        None => object(from, to, except, at),
        Some(Kind::Scalar(want)) => {
            let fits = match (from_kind, want) {
                (None, _) => true,
                (Some(Kind::Scalar(have)), want) => {
                    have == want
                        || matches!((have, want), (Scalar::Integer, Scalar::Number))
                        || matches!((have, want), (Scalar::Integer | Scalar::String, Scalar::IntOrString))
                }
                _ => false,
            };
            fits.then_some(Passthrough::Scalar { kind: want, nullable })
        }
        Some(Kind::List) => {
            if !matches!(from_kind, None | Some(Kind::List)) {
                return None;
            }
            let Some(to_items) = to.items() else {
                return Some(Passthrough::Whole);
            };
            at.push(Segment::Each(String::new()));
            let items = compile(from.and_then(Node::items), to_items, except, at);
            at.pop();
            items.map(|items| Passthrough::List {
                items: Box::new(items),
                nullable,
            })
        }
        Some(Kind::Object) => {
            if !matches!(from_kind, None | Some(Kind::Object)) {
                return None;
            }
            object(from, to, except, at)
        }
    }
}

fn object(from: Option<&Node>, to: &Node, except: &Except, at: &mut Vec<Segment>) -> Option<Passthrough> {
    let outer = to;
    let mut names: BTreeSet<&str> = except.names(at);
    names.extend(to.properties().map(|(name, _)| name));
    names.extend(from.into_iter().flat_map(Node::properties).map(|(name, _)| name));
    let mut fields = BTreeMap::new();
    for name in names {
        at.push(Segment::Field(name.to_owned()));
        let how = match child_schema(Some(to), name) {
            ChildSchema::Absent => None,
            ChildSchema::Node(to) => match child_schema(from, name) {
                ChildSchema::Absent => None,
                // An entry of a map that a rule moves elsewhere is gone from here.
                ChildSchema::Node(_) if outer.property(name).is_none() && except.moved(at) => None,
                ChildSchema::Node(from) => compile(Some(from), to, except, at),
                ChildSchema::Unknown => compile(None, to, except, at),
            },
            ChildSchema::Unknown => (!except.closed(at) && !except.moved(at)).then_some(Passthrough::Whole),
        };
        at.pop();
        fields.insert(name.into(), how);
    }
    at.push(Segment::Each(String::new()));
    let rest = match (to.additional(), to.preserves_unknown()) {
        (Some(to), _) => match from {
            Some(from) if !from.preserves_unknown() => {
                from.additional().and_then(|from| compile(Some(from), to, except, at))
            }
            _ => compile(None, to, except, at),
        },
        (None, true) => Some(Passthrough::Whole),
        (None, false) => None,
    };
    at.pop();
    Some(Passthrough::Object {
        fields: Fields::new(fields, rest.map(Box::new)),
        nullable: to.nullable(),
    })
}

enum ChildSchema<'s> {
    Absent,
    Node(&'s Node),
    Unknown,
}

fn child_schema<'s>(node: Option<&'s Node>, name: &str) -> ChildSchema<'s> {
    let Some(node) = node else { return ChildSchema::Unknown };
    match node.child(name) {
        Some(child) => ChildSchema::Node(child),
        None if node.preserves_unknown() || takes_anything(node) => ChildSchema::Unknown,
        None => ChildSchema::Absent,
    }
}

/// A type that is checked on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Scalar(Scalar),
    List,
    Object,
}

/// The type of a node's values, if the node says so.
pub(crate) fn known_kind(node: &Node) -> Option<Kind> {
    if node.int_or_string() {
        return Some(Kind::Scalar(Scalar::IntOrString));
    }
    Some(match node.kind()? {
        Type::Object => Kind::Object,
        Type::Array => Kind::List,
        Type::String => Kind::Scalar(Scalar::String),
        Type::Integer => Kind::Scalar(Scalar::Integer),
        Type::Number => Kind::Scalar(Scalar::Number),
        Type::Boolean => Kind::Scalar(Scalar::Boolean),
    })
}

fn takes_anything(node: &Node) -> bool {
    node.kind().is_none() && !node.int_or_string() && node.properties().next().is_none()
}

/// Whether a value of one is a value of the other, structure and defaults alike. Descriptions and
/// bounds do not matter.
pub(crate) fn same_shape(a: &Node, b: &Node) -> bool {
    let lists = |a: Option<&Node>, b: Option<&Node>| match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => same_shape(a, b),
        _ => false,
    };
    a.kind() == b.kind()
        && a.nullable() == b.nullable()
        && a.int_or_string() == b.int_or_string()
        && a.preserves_unknown() == b.preserves_unknown()
        && a.embedded() == b.embedded()
        && a.default() == b.default()
        && lists(a.items(), b.items())
        && lists(a.additional(), b.additional())
        && a.properties().count() == b.properties().count()
        && a.properties()
            .zip(b.properties())
            .all(|((an, a), (bn, b))| an == bn && same_shape(a, b))
}
