//! The compiled schema tree. A node is read by every walk (prune, default, validate), so that each
//! walk is one recursion over value and node side by side.

use crate::declare::{Stands, declaration};
use crate::regexp::Pattern;
use crate::rules::Rule;
use insula_api::Json;

/// The types a structural schema can give a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A JSON object: fields or a map.
    Object,
    /// A JSON array.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
}

impl Type {
    /// The schema's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Type> {
        [
            Type::Object,
            Type::Array,
            Type::String,
            Type::Integer,
            Type::Number,
            Type::Boolean,
        ]
        .into_iter()
        .find(|t| t.as_str() == text)
    }
}

/// How items of a list keep their identity between two writes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// They do not: the list is one value.
    #[default]
    Atomic,
    /// By value; each at most once.
    Set,
    /// By the values of these fields.
    Map {
        /// Names of the item's fields, as written in `x-kubernetes-list-map-keys`.
        keys: Vec<String>,
    },
}

/// Whether an object's fields have owners of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapType {
    /// Each field on its own.
    #[default]
    Granular,
    /// The object is one value.
    Atomic,
}

/// Bounds on one value. Boxed in the node: most nodes have none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) format: Option<Box<str>>,
    /// The format's test; none for formats that are not known, which mean nothing.
    pub(crate) check: Option<fn(&str) -> bool>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) choices: Vec<Json>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_length: Option<usize>,
    pub(crate) min_items: Option<usize>,
    pub(crate) max_items: Option<usize>,
    pub(crate) min_properties: Option<usize>,
    pub(crate) max_properties: Option<usize>,
}

/// Logical combinations. Their nodes only restrict: structure is always declared outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Node>,
}

/// What a subtree contains, so that walks can turn back early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) defaults: bool,
    pub(crate) rules: bool,
    /// Sets, keyed lists.
    pub(crate) lists: bool,
    pub(crate) embedded: bool,
}

/// One place of a schema.
#[derive(Debug, Clone, Default)]
pub struct Node {
    pub(crate) kind: Option<Type>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserves_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) below: Below,
    pub(crate) description: Box<str>,
    pub(crate) default: Option<Json>,
    /// Sorted by name.
    pub(crate) properties: Vec<(Box<str>, Node)>,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) additional: Option<Box<Node>>,
    pub(crate) list_type: ListType,
    pub(crate) map_type: MapType,
    pub(crate) required: Vec<String>,
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) junctors: Option<Box<Junctors>>,
    pub(crate) rules: Vec<Rule>,
}

impl Node {
    /// The declared type. Absent for int-or-string and for nodes that take anything.
    pub fn kind(&self) -> Option<Type> {
        self.kind
    }

    /// A declared field.
    pub fn property(&self, name: &str) -> Option<&Node> {
        let found = self.properties.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        self.properties.get(found).map(|(_, node)| node)
    }

    /// The declared fields, in order of name.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.properties.iter().map(|(name, node)| (&**name, node))
    }

    /// The schema of a list's items.
    pub fn items(&self) -> Option<&Node> {
        self.items.as_deref()
    }

    /// The schema of a map's values.
    pub fn additional(&self) -> Option<&Node> {
        self.additional.as_deref()
    }

    /// The schema that holds for the value under `name`: a field's, or that of the map's values.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.property(name).or_else(|| self.additional())
    }

    /// Whether null is a value of its own here.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// The default.
    pub fn default(&self) -> Option<&Json> {
        self.default.as_ref()
    }

    /// Whether undeclared fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub fn preserves_unknown(&self) -> bool {
        self.preserves_unknown
    }

    /// Whether integers and strings are both accepted (`x-kubernetes-int-or-string`).
    pub fn int_or_string(&self) -> bool {
        self.int_or_string
    }

    /// Whether the value is an object with apiVersion, kind and metadata
    /// (`x-kubernetes-embedded-resource`).
    pub fn embedded(&self) -> bool {
        self.embedded
    }

    /// How a list's items are told apart.
    pub fn list_type(&self) -> &ListType {
        &self.list_type
    }

    /// Whether an object is owned as a whole.
    pub fn map_type(&self) -> MapType {
        self.map_type
    }

    /// Names of fields that must be present.
    pub fn required(&self) -> &[String] {
        &self.required
    }

    /// The author's words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The most items a list may have.
    pub fn max_items(&self) -> Option<usize> {
        self.limits.as_ref()?.max_items
    }

    /// The most characters a string may have.
    pub fn max_length(&self) -> Option<usize> {
        self.limits.as_ref()?.max_length
    }

    /// The most entries an object may have.
    pub fn max_properties(&self) -> Option<usize> {
        self.limits.as_ref()?.max_properties
    }

    /// The fewest items a list may have.
    pub fn min_items(&self) -> Option<usize> {
        self.limits.as_ref()?.min_items
    }

    /// The fewest characters a string may have.
    pub fn min_length(&self) -> Option<usize> {
        self.limits.as_ref()?.min_length
    }

    /// The fewest entries an object may have.
    pub fn min_properties(&self) -> Option<usize> {
        self.limits.as_ref()?.min_properties
    }

    /// The regular expression that strings match, as written.
    pub fn pattern(&self) -> Option<&str> {
        Some(self.limits.as_ref()?.pattern.as_ref()?.source())
    }

    /// The format, as written.
    pub fn format(&self) -> Option<&str> {
        self.limits.as_ref()?.format.as_deref()
    }

    /// The allowed values; empty when any will do.
    pub fn choices(&self) -> &[Json] {
        self.limits.as_ref().map_or(&[], |l| &l.choices)
    }

    /// The smallest number allowed, and whether it is itself excluded.
    pub fn minimum(&self) -> Option<(f64, bool)> {
        let limits = self.limits.as_ref()?;
        limits.minimum.map(|bound| (bound, limits.exclusive_minimum))
    }

    /// The largest number allowed, and whether it is itself excluded.
    pub fn maximum(&self) -> Option<(f64, bool)> {
        let limits = self.limits.as_ref()?;
        limits.maximum.map(|bound| (bound, limits.exclusive_maximum))
    }

    /// Whether the node has rules (`x-kubernetes-validations`) of its own.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What expressions may know of values here: their type, bounds and fields. None where the
    /// schema does not say the type, or not that of a list's items or a map's values. `name` names
    /// the type; types of fields are named after it, and objects of one name are of one type. Made
    /// anew at each call; [`crate::Structural::declaration`] keeps its own.
    pub fn declaration(&self, name: &str) -> Option<insula_cel::Decl> {
        declaration(self, Stands::of(self), name)
    }

    /// Whether every value that `other` accepts **by type** is acceptable here, however deep.
    /// Bounds (lengths, patterns, choices, rules) do not count: a value may fit and yet be refused
    /// by validation.
    ///
    /// Used to carry fields of the same path from one version to another.
    pub fn fits(&self, other: &Node) -> bool {
        if other.nullable && !self.nullable && !self.takes_anything() {
            return false;
        }
        self.takes_anything() || (self.fits_scalar(other) && self.fits_below(other))
    }

    fn takes_anything(&self) -> bool {
        self.kind.is_none() && !self.int_or_string && self.preserves_unknown && self.properties.is_empty()
    }

    fn fits_scalar(&self, other: &Node) -> bool {
        if self.int_or_string {
            return other.int_or_string || matches!(other.kind, Some(Type::Integer | Type::String));
        }
        match (self.kind, other.kind) {
            (None, _) => true,
            (Some(Type::Number), Some(Type::Integer)) => true,
            (Some(a), Some(b)) => a == b,
            (Some(_), None) => false,
        }
    }

    fn fits_below(&self, other: &Node) -> bool {
        if let Some(items) = &other.items {
            match &self.items {
                Some(own) => {
                    if !own.fits(items) {
                        return false;
                    }
                }
                None => return self.preserves_unknown,
            }
        }
        let fields = other.properties.iter().all(|(name, node)| match self.child(name) {
            Some(own) => own.fits(node),
            None => self.preserves_unknown,
        });
        let values = match (&other.additional, &self.additional) {
            (None, _) => true,
            (Some(theirs), Some(own)) => own.fits(theirs),
            (Some(_), None) => self.preserves_unknown,
        };
        // What the other keeps without declaring it must be kept here too.
        let unknown = !other.preserves_unknown || self.preserves_unknown;
        fields && values && unknown
    }
}

/// Finds the nodes of an object's fields in order. Both are sorted by name, so that the next field
/// is mostly the next property; where it is not, the rest is searched.
#[derive(Debug)]
pub struct Children<'a> {
    rest: &'a [(Box<str>, Node)],
    additional: Option<&'a Node>,
}

impl<'a> Children<'a> {
    /// The children of a node.
    pub fn of(node: &'a Node) -> Children<'a> {
        Children {
            rest: &node.properties,
            additional: node.additional(),
        }
    }

    /// The node of a declared field. Names must be asked for in ascending order.
    pub fn property(&mut self, name: &str) -> Option<&'a Node> {
        if let [(first, node), rest @ ..] = self.rest
            && **first == *name
        {
            self.rest = rest;
            return Some(node);
        }
        let (found, skip) = match self.rest.binary_search_by(|(n, _)| (**n).cmp(name)) {
            Ok(at) => (self.rest.get(at).map(|(_, node)| node), at + 1),
            Err(at) => (None, at),
        };
        self.rest = self.rest.get(skip..).unwrap_or_default();
        found
    }

    /// The node of a declared field, or else that of the map's values.
    pub(crate) fn child(&mut self, name: &str) -> Option<&'a Node> {
        self.property(name).or(self.additional)
    }
}
