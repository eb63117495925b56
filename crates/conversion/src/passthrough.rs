//! Passthrough of fields without a rule: same path, compatible schema.
//!
//! A [`Passthrough`] is compiled from two schema nodes. Subtrees of equal shape are cloned whole.
//! Elsewhere only fields that the destination declares are visited, so that the result needs no
//! pruning.

use crate::path::{Path, Segment, covers};
use crate::rules::Rule;
use insula_schema::{Node, Type};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};

mod fields;

pub(crate) use fields::Fields;

/// Compiled passthrough of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passthrough {
    /// Copies the value unchanged.
    Whole,
    /// Copies a scalar of this type.
    Scalar { kind: Scalar, nullable: bool },
    /// Copies an object field by field. `sheds`: one that loses its last field on the way is left
    /// out, where it is a field itself. `others`: values that are no object pass unchanged.
    Object {
        fields: Fields,
        nullable: bool,
        sheds: bool,
        others: bool,
    },
    /// Copies a list item by item.
    List { items: Box<Passthrough>, nullable: bool },
}

/// Scalar types that are checked during passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl Passthrough {
    /// Like [`Passthrough::copy`], for the value of a field.
    fn copy_field(&self, value: &Json) -> Option<Json> {
        self.copy(value).filter(|copied| !self.is_shed(value, copied))
    }

    fn is_shed(&self, value: &Json, kept: &Json) -> bool {
        let is_empty = |value: &Json| value.as_object().is_some_and(Map::is_empty);
        matches!(self, Passthrough::Object { sheds: true, .. }) && is_empty(kept) && !is_empty(value)
    }

    /// Like [`Passthrough::keep`], for the value of a field.
    fn keep_field(&self, value: &mut Json) -> bool {
        if !matches!(self, Passthrough::Object { sheds: true, .. }) {
            return self.keep(value);
        }
        let was_empty = value.as_object().is_some_and(Map::is_empty);
        self.keep(value) && (was_empty || !value.as_object().is_some_and(Map::is_empty))
    }

    /// Returns a copy of the value for the destination; `None` if it does not fit.
    pub(crate) fn copy(&self, value: &Json) -> Option<Json> {
        match (self, value) {
            (Passthrough::Object { fields, .. }, Json::Object(map)) => Some(Json::Object(fields.copy(map))),
            (Passthrough::List { items, .. }, Json::Array(list)) => {
                Some(Json::Array(list.iter().filter_map(|item| items.copy(item)).collect()))
            }
            _ => self.fits(value).then(|| value.clone()),
        }
    }

    /// Like [`Passthrough::copy`], but consumes the value.
    pub(crate) fn take(&self, mut value: Json) -> Option<Json> {
        self.keep(&mut value).then_some(value)
    }

    /// Returns true if a value fits unchanged. Objects and lists with compiled contents are the
    /// callers' to handle.
    fn fits(&self, value: &Json) -> bool {
        match self {
            Passthrough::Whole => true,
            Passthrough::Scalar { kind, nullable } => kind.takes(value) || *nullable && value.is_null(),
            Passthrough::Object { nullable, others, .. } => *others || *nullable && value.is_null(),
            Passthrough::List { nullable, .. } => *nullable && value.is_null(),
        }
    }

    /// Reduces a value to what the destination has fields for; returns `false` if it does not fit.
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

    /// Returns true if results never have fields that the destination does not know, whatever the
    /// source holds: they need no pruning.
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

    /// Returns the destination's type, for messages.
    pub(crate) fn wants(&self) -> &'static str {
        match self {
            Passthrough::Whole | Passthrough::Object { others: true, .. } => "any",
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

/// Paths excluded from passthrough: those that rules write or move elsewhere, and those that the
/// author drops. Nothing at or below them passes through.
#[derive(Debug, Default)]
pub(crate) struct Except {
    paths: Vec<Path>,
    /// The paths that the author drops, which are in `paths`, too.
    dropped: Vec<Path>,
    /// Objects of which no field passes are left out, because rules move them all.
    pub(crate) sheds: bool,
}

impl Except {
    /// Excludes the paths that a rule uses up, relative to the object or to the item of a loop:
    /// `to`, which it writes, and `from`, if the rule moves it. Paths that lead into items exclude
    /// the whole list or map; the loop carries what is left. A list written or moved element by
    /// element keeps its other elements, and so passes through.
    pub(crate) fn rule(&mut self, rule: &Rule, from: &[Segment], to: &[Segment]) {
        if !rule.only_if_absent {
            self.container(to);
        }
        if rule.moved().is_some() {
            self.container(from);
        }
    }

    fn container(&mut self, path: &[Segment]) {
        if path.iter().any(|segment| matches!(segment, Segment::Index(_))) {
            return;
        }
        let into = |segment: &Segment| matches!(segment, Segment::Each(_) | Segment::Key(_));
        let end = path.iter().position(into).unwrap_or(path.len());
        self.path(Path::from_segments(path[..end].to_vec()));
    }

    /// Excludes a path.
    pub(crate) fn path(&mut self, path: Path) {
        self.paths.push(path);
    }

    /// Excludes a path that the author drops.
    pub(crate) fn drop(&mut self, path: Path) {
        self.dropped.push(path.clone());
        self.paths.push(path);
    }

    /// Returns all excluded paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter()
    }

    /// Returns true if nothing passes through at a path.
    pub(crate) fn covers(&self, at: &[Segment]) -> bool {
        self.paths.iter().any(|p| covers(p.segments(), at))
    }

    /// Returns true if a path below `at` is excluded.
    fn below(&self, at: &[Segment]) -> bool {
        any_below(&self.paths, at)
    }

    /// Returns true if an object at this path is left out when its last field is.
    fn sheds(&self, at: &[Segment]) -> bool {
        self.sheds && any_below(&self.paths, at) && !any_below(&self.dropped, at)
    }

    /// Returns the names of entries directly below `at` that exclusions mention.
    fn names(&self, at: &[Segment]) -> BTreeSet<&str> {
        let next = self.paths.iter().filter_map(|p| match p.segments().get(at.len()) {
            Some(Segment::Field(name)) if covers(&p.segments()[..at.len()], at) => Some(name.as_str()),
            _ => None,
        });
        next.collect()
    }
}

fn any_below(paths: &[Path], at: &[Segment]) -> bool {
    let below = |path: &Path| path.segments().len() > at.len() && covers(&path.segments()[..at.len()], at);
    paths.iter().any(below)
}

/// Compiles the passthrough from `from` to `to`; `None` if no values pass. An absent `from` stands
/// for values of unknown type.
pub(crate) fn compile(from: Option<&Node>, to: &Node, except: &Except, at: &mut Vec<Segment>) -> Option<Passthrough> {
    if except.covers(at) {
        return None;
    }
    let alike = from.is_some_and(|from| same_shape(from, to));
    if (alike || takes_anything(to)) && !except.below(at) {
        return Some(Passthrough::Whole);
    }
    let from_kind = from.and_then(known_kind);
    let nullable = to.nullable();
    match known_kind(to) {
        // An object of unknown fields with exclusions below.
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
                ChildSchema::Node(from) => compile(Some(from), to, except, at),
                ChildSchema::Unknown => compile(None, to, except, at),
            },
            ChildSchema::Unknown => (!except.covers(at)).then_some(Passthrough::Whole),
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
        sheds: except.sheds(at),
        others: takes_anything(to),
    })
}

/// The schema of a field, as its parent declares it.
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

/// JSON types that the schema can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Scalar(Scalar),
    List,
    Object,
}

/// Returns the type of a node's values, if the node declares one.
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

pub(crate) fn takes_anything(node: &Node) -> bool {
    node.kind().is_none() && !node.int_or_string() && node.properties().next().is_none()
}

/// Returns true if both nodes have the same values, structure and defaults. Ignores descriptions
/// and bounds.
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
