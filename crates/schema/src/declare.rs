//! Declarations (`insula_cel::Decl`) of a schema's nodes for expressions, as Kubernetes derives
//! them (`SchemaDeclType`).
//!
//! The bounds determine the estimated cost of rules: the number of elements of a value, from its
//! own limits or else from the largest request; and the size of its shortest JSON, which limits how
//! many such values fit into a request.

use crate::node::{ListType, Node, Type};
use insula_cel::{Decl, Field, ListKind};
use std::collections::HashSet;

/// Bytes of the largest request that the estimates assume, as in Kubernetes.
pub(crate) const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// Bytes of the longest text of format `date-time` or `duration` in JSON.
const TIME_BYTES_MAX: u64 = 32;
/// Bytes of every text of format `date` in JSON.
const DATE_BYTES: u64 = 12;
/// Bytes of the shortest text of format `date-time` in JSON.
const TIME_BYTES_MIN: u64 = 21;
/// Bytes of the shortest duration in JSON: `"0"`.
const DURATION_BYTES_MIN: u64 = 3;
/// Bytes of `""`, `[]` and `{}`.
const EMPTY_BYTES: u64 = 2;

/// Words of the language. Expressions write a field of such a name between underscores.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Role of a node: a whole object has apiVersion, kind and metadata even if they are not declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectRole {
    /// A whole object: the root, or an embedded object.
    AsObject,
    /// Any other value.
    AsField,
}

impl ObjectRole {
    pub(crate) fn for_node(node: &Node) -> ObjectRole {
        if node.embedded {
            ObjectRole::AsObject
        } else {
            ObjectRole::AsField
        }
    }
}

impl Node {
    /// Returns the declaration of values for expressions: type, bounds and fields. `None` if the
    /// schema declares no type here, or none for a list's items or a map's values. `name` names the
    /// type; types of fields get names from it, and objects with equal type names have equal types.
    /// Computed at each call; [`crate::Structural::declaration`] caches its own.
    pub fn declaration(&self, name: &str) -> Option<Decl> {
        declaration(self, ObjectRole::for_node(self), name)
    }
}

/// Returns the declaration of a node's values; `None` where the schema says too little: values
/// without a type, and maps and lists of such. `name` names the type; types of the fields below get
/// names from it.
pub(crate) fn declaration(node: &Node, stands: ObjectRole, name: &str) -> Option<Decl> {
    if node.int_or_string {
        let longest = text_bytes(node).unwrap_or(REQUEST_BYTES_MAX - EMPTY_BYTES);
        return Some(Decl::dynamic().bounded(Some(longest), 1));
    }
    let scalar = |ty, max, min| Some(Decl::scalar(ty).bounded(Some(max), min));
    use insula_cel::Type as Cel;
    match node.kind.or((stands == ObjectRole::AsObject).then_some(Type::Object))? {
        Type::Array => list(node, name),
        Type::Object => match node.additional().filter(|values| !says_nothing(values)) {
            Some(values) => map(node, values, name),
            None => Some(object(node, stands, name)),
        },
        Type::String => match node.format().unwrap_or("") {
            "byte" => {
                let given = node.max_length().map(|n| n as u64);
                scalar(
                    Cel::Bytes,
                    given.unwrap_or(REQUEST_BYTES_MAX - EMPTY_BYTES),
                    EMPTY_BYTES,
                )
            }
            "duration" => scalar(Cel::Duration, TIME_BYTES_MAX, DURATION_BYTES_MIN),
            "date" => scalar(Cel::Timestamp, DATE_BYTES, DATE_BYTES),
            "date-time" => scalar(Cel::Timestamp, TIME_BYTES_MAX, TIME_BYTES_MIN),
            _ => {
                let longest = text_bytes(node).or_else(|| longest_choice(node));
                scalar(
                    Cel::String,
                    longest.unwrap_or(REQUEST_BYTES_MAX - EMPTY_BYTES),
                    EMPTY_BYTES,
                )
            }
        },
        Type::Boolean => scalar(Cel::Bool, 0, 4),
        Type::Number => scalar(Cel::Double, 0, 1),
        Type::Integer => scalar(Cel::Int, 0, 1),
    }
}

/// Returns true for `additionalProperties: true`. Such an object is declared without fields.
fn says_nothing(values: &Node) -> bool {
    values.kind.is_none() && !values.int_or_string && !values.preserves_unknown
}

/// Returns the most bytes of a text: `maxLength` counts characters of up to four bytes.
fn text_bytes(node: &Node) -> Option<u64> {
    node.max_length().map(|n| (n as u64).saturating_mul(4))
}

fn longest_choice(node: &Node) -> Option<u64> {
    let lengths = node.choices().iter().map(|choice| choice.as_str().map_or(0, str::len));
    lengths.max().map(|n| n as u64)
}

fn list(node: &Node, name: &str) -> Option<Decl> {
    let items = node.items()?;
    let items = declaration(items, ObjectRole::for_node(items), &format!("{name}.@idx"))?;
    let fitting = (REQUEST_BYTES_MAX - EMPTY_BYTES) / items.min_bytes().saturating_add(1);
    let most = node.max_items().map_or(fitting, |n| n as u64);
    let kind = match node.list_type() {
        ListType::Atomic => ListKind::Atomic,
        ListType::Set => ListKind::Set,
        ListType::Map { keys } => ListKind::Map(keys.clone()),
    };
    Some(Decl::list(items, kind).bounded(Some(most), EMPTY_BYTES))
}

fn map(node: &Node, values: &Node, name: &str) -> Option<Decl> {
    let values = declaration(values, ObjectRole::for_node(values), &format!("{name}.@elem"))?;
    // Quotes, colon, comma, and a key of two bytes.
    let fitting = (REQUEST_BYTES_MAX - EMPTY_BYTES) / values.min_bytes().saturating_add(6);
    let most = node.max_properties().map_or(fitting, |n| n as u64);
    Some(Decl::map(values).bounded(Some(most), EMPTY_BYTES))
}

fn object(node: &Node, stands: ObjectRole, name: &str) -> Decl {
    let implied = match stands {
        ObjectRole::AsObject if !declares_object(node) => implied_fields(name),
        _ => Vec::new(),
    };
    let is_implied = |name: &str| implied.iter().any(|f: &Field| *f.name == *name);
    let required: HashSet<&str> = node.required.iter().map(String::as_str).collect();
    let mut least = EMPTY_BYTES;
    let mut fields = Vec::with_capacity(node.properties.len() + implied.len());
    for (field, node_of) in node.properties().filter(|(field, _)| !is_implied(field)) {
        let written = escape(field);
        let type_name = format!("{name}.{}", written.as_deref().unwrap_or(field));
        let Some(decl) = declaration(node_of, ObjectRole::for_node(node_of), &type_name) else {
            continue;
        };
        // A field with a default may be absent from a request.
        if node_of.default.is_none() && required.contains(field) {
            least = least.saturating_add(field.len() as u64 + decl.min_bytes() + 4);
        }
        if let Some(written) = written {
            fields.push(Field {
                name: field.into(),
                written: written.into(),
                decl,
            });
        }
    }
    for field in &implied {
        if required.contains(&*field.name) {
            least = least.saturating_add(field.name.len() as u64 + field.decl.min_bytes() + 4);
        }
    }
    fields.extend(implied);
    Decl::object(name, fields).bounded(Some(0), least)
}

/// Returns true if the schema itself declares the fields of every object.
fn declares_object(node: &Node) -> bool {
    let kind = |node: &Node, name: &str| node.property(name).and_then(|n| n.kind);
    let text = Some(Type::String);
    kind(node, "kind") == text
        && kind(node, "apiVersion") == text
        && node.property("metadata").is_some_and(|metadata| {
            metadata.kind == Some(Type::Object)
                && kind(metadata, "name") == text
                && kind(metadata, "generateName") == text
        })
}

fn implied_fields(name: &str) -> Vec<Field> {
    let field = |name: &str, decl: Decl| Field {
        name: name.into(),
        written: name.into(),
        decl,
    };
    let text = || Decl::scalar(insula_cel::Type::String).bounded(Some(REQUEST_BYTES_MAX - EMPTY_BYTES), EMPTY_BYTES);
    let names = vec![field("generateName", text()), field("name", text())];
    let metadata = Decl::object(&format!("{name}.metadata"), names).bounded(Some(0), EMPTY_BYTES);
    vec![
        field("apiVersion", text()),
        field("kind", text()),
        field("metadata", metadata),
    ]
}

/// Escapes a field name for expressions; `None` for a name that has no escaped form.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = rest.get(c.len_utf8()..)?;
    }
    Some(out)
}

/// Returns how many values of a declaration fit into one request.
pub(crate) fn occurrences(decl: &Decl) -> u64 {
    REQUEST_BYTES_MAX / decl.min_bytes().saturating_add(1)
}

/// Returns the declaration of a part of the parent's declaration, so that each subtree is declared
/// once.
pub(crate) fn below<'d>(parent: &'d Decl, step: Step<'_>) -> Option<&'d Decl> {
    use insula_cel::Shape;
    match (step, parent.shape()) {
        (Step::Field(name), Shape::Object { .. }) => parent.field(name).map(|f| &f.decl),
        (Step::Items, Shape::List { items, .. }) => Some(items),
        (Step::Values, Shape::Map { values }) => Some(values),
        _ => None,
    }
}

/// One step down a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Field(&'a str),
    Items,
    Values,
}
