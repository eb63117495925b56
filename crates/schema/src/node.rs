//! The compiled schema tree. All walks (prune, default, validate) are recursions over a value and
//! its node.

use crate::number::Number;
use crate::regexp::Pattern;
use crate::rule::Rule;
use insula_api::Json;
use std::sync::Arc;

/// Types of values in a structural schema.
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
    /// Returns the type's name in the schema language.
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

/// Identity of a list's items between two writes (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// No identity: the list is one value.
    #[default]
    Atomic,
    /// By value, each at most once.
    Set,
    /// By the values of key fields.
    Map {
        /// Names of the item's fields, as written in `x-kubernetes-list-map-keys`.
        keys: Vec<String>,
    },
}

/// Granularity of field ownership in an object (`x-kubernetes-map-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapType {
    /// Each field has its own owners.
    #[default]
    Granular,
    /// The object is owned as a whole.
    Atomic,
}

/// Bounds on one value. Boxed in the node, since most nodes have none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) format: Option<Box<str>>,
    /// Check of the format; `None` for unknown formats, which accept everything.
    pub(crate) check: Option<fn(&str) -> bool>,
    pub(crate) pattern: Option<Arc<Pattern>>,
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

/// Logical combinations of schemas. Their nodes only restrict; structure is always declared
/// outside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Node>,
}

/// Features of a subtree, which let walks skip it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) defaults: bool,
    pub(crate) rules: bool,
    /// Sets and keyed lists.
    pub(crate) lists: bool,
    pub(crate) embedded: bool,
}

/// One node of a compiled schema.
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
    /// Declared fields, sorted by name.
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
    /// Returns the declared type; `None` for int-or-string and for nodes that accept any value.
    pub fn kind(&self) -> Option<Type> {
        self.kind
    }

    /// Drops the checks that a decoder into structs makes, here and below: of formats, of nulls.
    pub(crate) fn drop_decoder_checks(&mut self) {
        self.nullable = true;
        if let Some(limits) = &mut self.limits {
            limits.check = None;
        }
        let fields = self.properties.iter_mut().map(|(_, node)| node);
        let inner = [&mut self.items, &mut self.additional].into_iter().flatten();
        fields
            .chain(inner.map(|node| &mut **node))
            .for_each(Node::drop_decoder_checks);
    }

    /// Makes this node and those below it keep unknown fields.
    pub(crate) fn preserve_unknown(&mut self) {
        self.preserves_unknown = true;
        let fields = self.properties.iter_mut().map(|(_, node)| node);
        let inner = [&mut self.items, &mut self.additional].into_iter().flatten();
        fields
            .chain(inner.map(|node| &mut **node))
            .for_each(Node::preserve_unknown);
    }

    /// Returns the node of a declared field.
    pub fn property(&self, name: &str) -> Option<&Node> {
        let found = self.properties.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        self.properties.get(found).map(|(_, node)| node)
    }

    /// Returns the declared fields in order of name.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.properties.iter().map(|(name, node)| (&**name, node))
    }

    /// Returns the schema of a list's items.
    pub fn items(&self) -> Option<&Node> {
        self.items.as_deref()
    }

    /// Returns the schema of a map's values.
    pub fn additional(&self) -> Option<&Node> {
        self.additional.as_deref()
    }

    /// Returns the schema of the value under `name`: a field's, or that of the map's values.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.property(name).or_else(|| self.additional())
    }

    /// Returns true if null is allowed.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// Returns the default.
    pub fn default(&self) -> Option<&Json> {
        self.default.as_ref()
    }

    /// Returns true if unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub fn preserves_unknown(&self) -> bool {
        self.preserves_unknown
    }

    /// Returns true if integers and strings are both accepted (`x-kubernetes-int-or-string`).
    pub fn int_or_string(&self) -> bool {
        self.int_or_string
    }

    /// Returns true if the value is an object with apiVersion, kind and metadata
    /// (`x-kubernetes-embedded-resource`).
    pub fn embedded(&self) -> bool {
        self.embedded
    }

    /// Returns the identity of a list's items.
    pub fn list_type(&self) -> &ListType {
        &self.list_type
    }

    /// Returns the granularity of ownership of an object's fields.
    pub fn map_type(&self) -> MapType {
        self.map_type
    }

    /// Returns the names of required fields.
    pub fn required(&self) -> &[String] {
        &self.required
    }

    /// Returns the author's description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the maximum number of a list's items.
    pub fn max_items(&self) -> Option<usize> {
        self.limits.as_ref()?.max_items
    }

    /// Returns the maximum number of a string's characters.
    pub fn max_length(&self) -> Option<usize> {
        self.limits.as_ref()?.max_length
    }

    /// Returns the maximum number of an object's entries.
    pub fn max_properties(&self) -> Option<usize> {
        self.limits.as_ref()?.max_properties
    }

    /// Returns the minimum number of a list's items.
    pub fn min_items(&self) -> Option<usize> {
        self.limits.as_ref()?.min_items
    }

    /// Returns the minimum number of a string's characters.
    pub fn min_length(&self) -> Option<usize> {
        self.limits.as_ref()?.min_length
    }

    /// Returns the minimum number of an object's entries.
    pub fn min_properties(&self) -> Option<usize> {
        self.limits.as_ref()?.min_properties
    }

    /// Returns the regular expression for strings, as written.
    pub fn pattern(&self) -> Option<&str> {
        Some(self.limits.as_ref()?.pattern.as_ref()?.source())
    }

    /// Returns the format, as written.
    pub fn format(&self) -> Option<&str> {
        self.limits.as_ref()?.format.as_deref()
    }

    /// Returns the allowed values; empty if there is no such restriction.
    pub fn choices(&self) -> &[Json] {
        self.limits.as_ref().map_or(&[], |l| &l.choices)
    }

    /// Returns the lower bound of numbers, and true if it is exclusive.
    pub fn minimum(&self) -> Option<(f64, bool)> {
        let limits = self.limits.as_ref()?;
        limits.minimum.map(|bound| (bound, limits.exclusive_minimum))
    }

    /// Returns the upper bound of numbers, and true if it is exclusive.
    pub fn maximum(&self) -> Option<(f64, bool)> {
        let limits = self.limits.as_ref()?;
        limits.maximum.map(|bound| (bound, limits.exclusive_maximum))
    }

    /// Returns the node's own rules (`x-kubernetes-validations`).
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns true if a value that is not null has the declared type.
    pub fn takes_type_of(&self, value: &Json) -> bool {
        let is_whole = || matches!(value, Json::Number(number) if Number::from_json(number).is_whole());
        match (self.kind, self.int_or_string) {
            (_, true) => value.is_string() || is_whole(),
            (None, false) => true,
            (Some(Type::Object), _) => value.is_object(),
            (Some(Type::Array), _) => value.is_array(),
            (Some(Type::String), _) => value.is_string(),
            (Some(Type::Boolean), _) => value.is_boolean(),
            (Some(Type::Number), _) => value.is_number(),
            (Some(Type::Integer), _) => is_whole(),
        }
    }

    /// Returns true if every value that `other` accepts **by type** is acceptable here, at any
    /// depth. Bounds (lengths, patterns, choices, rules) do not count: a value may fit and still
    /// fail validation.
    ///
    /// Decides if conversion may copy fields of the same path from one version to another.
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
        // Unknown fields that the other keeps must be kept here too.
        let unknown = !other.preserves_unknown || self.preserves_unknown;
        fields && values && unknown
    }
}

/// Lookup of the nodes of an object's fields in order. Both are sorted by name, so the next field
/// is mostly the next property; otherwise the rest is searched.
#[derive(Debug)]
pub struct Children<'a> {
    rest: &'a [(Box<str>, Node)],
    additional: Option<&'a Node>,
}

impl<'a> Children<'a> {
    /// Returns the lookup over the children of a node.
    pub fn new(node: &'a Node) -> Children<'a> {
        Children {
            rest: &node.properties,
            additional: node.additional(),
        }
    }

    /// Returns the node of a declared field. Names must come in ascending order.
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

    /// Returns the node of a declared field, or else that of the map's values. Names must come in
    /// ascending order.
    pub fn child(&mut self, name: &str) -> Option<&'a Node> {
        self.property(name).or(self.additional)
    }
}
