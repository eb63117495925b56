//! Ownership rules of the schema at a path: which values are atomic, and which have fields of their
//! own.

use insula_api::Json;
use insula_schema::{Children, ListType, MapType, Node, Structural, Type};
use serde_json::json;
use std::sync::OnceLock;

/// The schema at one path of an object, as far as ownership depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    of: Of<'a>,
    /// True if undeclared fields are kept, because of this node or one above it.
    keeps_unknown: bool,
}

#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    Node(&'a Node),
    /// A whole object: `apiVersion`, `kind` and `metadata` beside the fields of the schema.
    Object(&'a Node),
    Text,
    /// No schema: lists are atomic, objects are maps.
    Unknown,
}

/// Ownership of a value by its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Scalar(Scalar),
    AtomicList,
    Set,
    Keyed(&'a [String]),
    AtomicMap,
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Number,
    Text,
    Boolean,
    Any,
}

/// Lookup of the shapes of an object's fields. Names must be asked in ascending order, as objects
/// keep them.
pub(crate) struct Fields<'a> {
    of: Of<'a>,
    keeps_unknown: bool,
    node: Option<(&'a Node, Children<'a>)>,
}

impl<'a> Fields<'a> {
    /// Returns a field, unless the schema does not allow it.
    pub(crate) fn child(&mut self, name: &str) -> Option<Child<'a>> {
        let keeps_unknown = self.keeps_unknown;
        let Some((node, children)) = &mut self.node else {
            return matches!(self.of, Of::Unknown).then_some(Child::UNKNOWN);
        };
        let shape = |of| Shape { of, keeps_unknown };
        match (self.of, name) {
            (Of::Object(_), "apiVersion" | "kind") => return Some(Child::named(shape(Of::Text))),
            (Of::Object(_), "metadata") => return Some(Child::named(shape(Of::Node(metadata().root())))),
            _ => {}
        }
        if let Some(field) = children.property(name) {
            return Some(Child::named(Shape::for_node(field, keeps_unknown)));
        }
        match node.additional() {
            Some(values) => Some(Child::entry(Shape::for_node(values, keeps_unknown))),
            None if keeps_unknown || node.properties().next().is_none() => Some(Child::UNKNOWN),
            None => None,
        }
    }

    /// Returns a field's shape; fields that the schema does not allow have no schema.
    pub(crate) fn field(&mut self, name: &str) -> Shape<'a> {
        self.child(name).map_or(Shape::UNKNOWN, |child| child.shape)
    }
}

/// Schema of a field's name.
pub(crate) struct Child<'a> {
    pub(crate) shape: Shape<'a>,
    /// True if declared by name, false for an entry of a map.
    pub(crate) named: bool,
}

impl<'a> Shape<'a> {
    /// Makes the shape of whole objects with this schema.
    pub fn for_schema(schema: &'a Structural) -> Shape<'a> {
        Shape {
            of: Of::Object(schema.root()),
            keeps_unknown: false,
        }
    }

    const UNKNOWN: Shape<'static> = Shape {
        of: Of::Unknown,
        keeps_unknown: true,
    };

    fn for_node(node: &'a Node, keeps_unknown: bool) -> Shape<'a> {
        let of = match node.embedded() {
            true => Of::Object(node),
            false => Of::Node(node),
        };
        Shape { of, keeps_unknown }
    }

    /// Returns the ownership of a value. Depends on the value only where the schema leaves its type
    /// open.
    pub(crate) fn kind(self, value: &Json) -> Kind<'a> {
        let node = match self.of {
            Of::Text => return Kind::Scalar(Scalar::Text),
            Of::Unknown => return unknown(value),
            Of::Node(node) | Of::Object(node) => node,
        };
        match node.kind() {
            None if node.properties().next().is_none() => unknown(value),
            None | Some(Type::Object) => match node.map_type() {
                MapType::Granular => Kind::Map,
                MapType::Atomic => Kind::AtomicMap,
            },
            Some(Type::Array) => match node.list_type() {
                ListType::Atomic => Kind::AtomicList,
                ListType::Set => Kind::Set,
                ListType::Map { keys } => Kind::Keyed(keys),
            },
            Some(Type::String) if node.format().is_none_or(|format| format == "byte") => Kind::Scalar(Scalar::Text),
            Some(Type::String) => Kind::Scalar(Scalar::Any),
            Some(Type::Integer | Type::Number) => Kind::Scalar(Scalar::Number),
            Some(Type::Boolean) => Kind::Scalar(Scalar::Boolean),
        }
    }

    /// Returns a field, unless the schema does not allow it.
    pub(crate) fn child(self, name: &str) -> Option<Child<'a>> {
        self.fields().child(name)
    }

    /// Returns a field's shape; fields that the schema does not allow have no schema.
    pub(crate) fn field(self, name: &str) -> Shape<'a> {
        self.fields().field(name)
    }

    /// Returns a lookup for the fields of an object.
    pub(crate) fn fields(self) -> Fields<'a> {
        let node = match self.of {
            Of::Node(node) | Of::Object(node) => Some(node),
            Of::Text | Of::Unknown => None,
        };
        Fields {
            of: self.of,
            keeps_unknown: self.keeps_unknown || node.is_some_and(Node::preserves_unknown),
            node: node.map(|node| (node, Children::new(node))),
        }
    }

    /// Returns the shape of a list's items.
    pub(crate) fn items(self) -> Shape<'a> {
        match self.of {
            Of::Node(node) | Of::Object(node) => match node.items() {
                Some(items) => Shape::for_node(items, self.keeps_unknown || node.preserves_unknown()),
                None => Shape::UNKNOWN,
            },
            Of::Text | Of::Unknown => Shape::UNKNOWN,
        }
    }

    /// Returns the default of an item's field, which replaces a missing key.
    pub(crate) fn default_of(self, field: &str) -> Option<&'a Json> {
        match self.of {
            Of::Node(node) | Of::Object(node) => node.property(field)?.default(),
            Of::Text | Of::Unknown => None,
        }
    }

    /// Returns true if there is no schema.
    pub(crate) fn is_unknown(self) -> bool {
        matches!(self.of, Of::Unknown)
    }
}

impl<'a> Child<'a> {
    fn named(shape: Shape<'a>) -> Self {
        Child { shape, named: true }
    }

    /// A field without a schema.
    pub(crate) const UNKNOWN: Child<'static> = Child {
        shape: Shape::UNKNOWN,
        named: false,
    };

    pub(crate) fn entry(shape: Shape<'a>) -> Self {
        Child { shape, named: false }
    }
}

fn unknown(value: &Json) -> Kind<'static> {
    match value {
        Json::Array(_) => Kind::AtomicList,
        Json::Object(_) | Json::Null => Kind::Map,
        _ => Kind::Scalar(Scalar::Any),
    }
}

/// Returns the schema of Kubernetes' ObjectMeta, as far as ownership depends on it.
fn metadata() -> &'static Structural {
    static METADATA: OnceLock<Structural> = OnceLock::new();
    METADATA.get_or_init(|| {
        let text = json!({"type": "string"});
        let time = json!({"type": "string", "format": "date-time"});
        let texts = json!({"type": "object", "additionalProperties": text});
        let owner = json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
        }});
        let schema = json!({"type": "object", "properties": {
            "annotations": texts, "labels": texts, "name": text, "generateName": text, "namespace": text,
            "uid": text, "resourceVersion": text, "selfLink": text, "creationTimestamp": time,
                "deletionTimestamp": time,
            "generation": {"type": "integer"}, "deletionGracePeriodSeconds": {"type": "integer"},
            "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "items": owner},
            "managedFields": {"type": "array", "items": {"type": "object"}},
        }});
        Structural::parse_trusted(&schema).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_a_schema() {
        assert!(metadata().root().property("ownerReferences").is_some());
    }
}
