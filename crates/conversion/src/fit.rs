//! Type check of expression results: the checker's type against the schema of the rule's
//! destination.
//!
//! | type | fits |
//! |---|---|
//! | bool | boolean |
//! | int | integer, number, int-or-string |
//! | uint | integer, number |
//! | double | number |
//! | string | string, int-or-string |
//! | timestamp | string, also with format `date-time` (RFC 3339) or `date` (the day) |
//! | duration | string, also with format `duration`: seconds (`90s`) |
//! | bytes | string, also with format `byte`: base64 |
//! | list, map, object | array, object; item by item, field by field |
//! | `optional_type(T)` | where T fits; an empty optional writes no value |
//! | null | where the schema is nullable |
//! | dyn | anywhere; checked against the value at run time |

use crate::passthrough::known_kind;
use crate::passthrough::{Kind, Scalar};
use crate::scope::SchemaNode;
use insula_cel::{Decl, Field, Shape, Type};
use insula_schema::Node;

/// Static knowledge about the results of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Every value of the type fits.
    Sure,
    /// Some values may not fit: checked at run time.
    AtRun,
}

impl Fit {
    fn and(self, other: Fit) -> Fit {
        if self == Fit::Sure { other } else { self }
    }
}

/// Checks values of `ty` against `place`; `None` if none fits.
pub(crate) fn fit(ty: &Type, place: SchemaNode<'_>) -> Option<Fit> {
    let Some(node) = place else { return anything(ty) };
    let Some(kind) = known_kind(node) else {
        return anything(ty);
    };
    let want = match kind {
        Kind::List => return list(ty, node),
        Kind::Object => return object(ty, node),
        Kind::Scalar(want) => want,
    };
    match ty {
        Type::Dyn | Type::Param(_) => Some(Fit::AtRun),
        Type::Optional(of) => fit(of, place),
        Type::Null => node.nullable().then_some(Fit::Sure),
        Type::Bool => (want == Scalar::Boolean).then_some(Fit::Sure),
        Type::Int | Type::Uint => {
            matches!(want, Scalar::Integer | Scalar::Number | Scalar::IntOrString).then_some(Fit::Sure)
        }
        // NaN and infinities are not JSON.
        Type::Double => (want == Scalar::Number).then_some(Fit::AtRun),
        Type::String => matches!(want, Scalar::String | Scalar::IntOrString).then_some(Fit::Sure),
        Type::Timestamp => text(node, want, &["date-time", "datetime", "date"]),
        Type::Duration => text(node, want, &["duration"]),
        Type::Bytes => text(node, want, &["byte"]),
        // The only library type with a text form.
        Type::Opaque("kubernetes.Quantity") => text(node, want, &[]),
        Type::List(_) | Type::Map(_) | Type::Object(_) | Type::Type(_) | Type::Opaque(_) => None,
        // The type checker uses these internally.
        Type::Var(_) | Type::Error => None,
    }
}

/// Checks a type that is written as text: it fits strings, except those with the format of another
/// type.
fn text(node: &Node, want: Scalar, own: &[&str]) -> Option<Fit> {
    const TYPED: [&str; 5] = ["date-time", "datetime", "date", "duration", "byte"];
    let other = node
        .format()
        .is_some_and(|format| TYPED.contains(&format) && !own.contains(&format));
    (want == Scalar::String && !other).then_some(Fit::Sure)
}

fn list(ty: &Type, node: &Node) -> Option<Fit> {
    match ty {
        Type::Dyn | Type::Param(_) => Some(Fit::AtRun),
        Type::Optional(of) => list(of, node),
        Type::Null => node.nullable().then_some(Fit::Sure),
        Type::List(item) => fit(item, node.items()),
        _ => None,
    }
}

fn object(ty: &Type, node: &Node) -> Option<Fit> {
    match ty {
        Type::Dyn | Type::Param(_) => Some(Fit::AtRun),
        Type::Optional(of) => object(of, node),
        Type::Null => node.nullable().then_some(Fit::Sure),
        Type::Object(decl) => fields(decl, node),
        Type::Map(pair) => {
            let key = match pair.0 {
                Type::String => Fit::Sure,
                Type::Dyn | Type::Param(_) => Fit::AtRun,
                _ => return None,
            };
            match node.additional() {
                Some(values) => Some(key.and(fit(&pair.1, Some(values))?)),
                None if node.properties().next().is_none() => Some(key),
                // The keys are unknown; but the values must fit at least one field.
                None => {
                    let mut fits = node.properties().map(|(_, child)| fit(&pair.1, Some(child)));
                    (node.preserves_unknown() || fits.any(|f| f.is_some())).then_some(Fit::AtRun)
                }
            }
        }
        _ => None,
    }
}

/// Checks an object: fields that the destination also has must fit; it ignores the others.
fn fields(decl: &Decl, node: &Node) -> Option<Fit> {
    let Shape::Object { fields, .. } = decl.shape() else {
        return Some(Fit::AtRun);
    };
    let mut all = Fit::Sure;
    for field in fields {
        if let Some(child) = node.child(&field.name) {
            all = all.and(fit(&field.decl.ty(), Some(child))?);
        }
    }
    Some(all)
}

/// Checks that a type has a JSON form.
fn anything(ty: &Type) -> Option<Fit> {
    match ty {
        Type::Type(_) => None,
        Type::Opaque(name) => (*name == "kubernetes.Quantity").then_some(Fit::Sure),
        Type::Optional(of) => anything(of),
        Type::List(item) => anything(item),
        Type::Map(pair) => anything(&pair.1),
        Type::Dyn | Type::Param(_) | Type::Double => Some(Fit::AtRun),
        _ => Some(Fit::Sure),
    }
}

/// Returns true if a timestamp is written as a date, because the destination has that format.
pub(crate) fn leaves_as_day(ty: &Type, place: SchemaNode<'_>) -> bool {
    let timestamp = match ty {
        Type::Optional(of) => **of == Type::Timestamp,
        other => *other == Type::Timestamp,
    };
    timestamp && place.and_then(Node::format) == Some("date")
}

/// Describes a type that does not fit:
/// `gives int, but .spec.size of v2 is a string; string(...) would convert it`.
pub(crate) fn misfit(ty: &Type, place: SchemaNode<'_>, path: &str, version: &str) -> String {
    let Some(node) = place else {
        return format!("gives {ty}, which has no JSON form");
    };
    let Some(kind) = known_kind(node) else {
        return format!("gives {ty}, which has no JSON form");
    };
    let inner = match ty {
        Type::Optional(of) => of,
        other => other,
    };
    if let (Kind::Object, Type::Object(decl)) = (kind, inner)
        && let Shape::Object { fields, .. } = decl.shape()
    {
        let misfits = |field: &&Field| {
            node.child(&field.name)
                .is_some_and(|c| fit(&field.decl.ty(), Some(c)).is_none())
        };
        if let Some(field) = fields.iter().find(misfits) {
            let path = format!("{path}.{}", field.name);
            let why = misfit(&field.decl.ty(), node.child(&field.name), &path, version);
            return format!("gives {ty}; its field {}: {why}", field.name);
        }
    }
    let number = matches!(inner, Type::Int | Type::Uint | Type::Double);
    let help = match (kind, inner) {
        (Kind::Scalar(Scalar::String), ty) if number || *ty == Type::Bool => "; string(...) would convert it",
        (Kind::Scalar(Scalar::Integer), Type::String | Type::Double | Type::Timestamp) => "; int(...) would convert it",
        (Kind::Scalar(Scalar::Number), Type::String) => "; double(...) would convert it",
        (Kind::Scalar(Scalar::Boolean), Type::String) => "; bool(...) would convert it",
        (Kind::Scalar(Scalar::IntOrString), Type::Double) => "; int(...) or string(...) would convert it",
        (Kind::List, _) if node.items().is_none_or(|items| fit(inner, Some(items)).is_some()) => {
            "; [...] would make a list of it"
        }
        _ => "",
    };
    format!("gives {ty}, but {path} of {version} is {}{help}", described(node, kind))
}

/// Describes a node: `a string`, `a list of integer`, …
fn described(node: &Node, kind: Kind) -> String {
    let nested = |node: Option<&Node>| node.map_or("any".to_owned(), word);
    match kind {
        Kind::List => format!("a list of {}", nested(node.items())),
        Kind::Object if node.additional().is_some() => format!("a map of {}", nested(node.additional())),
        Kind::Scalar(Scalar::String) if node.format().is_some() => {
            format!("a string of format {}", node.format().unwrap_or_default())
        }
        Kind::Scalar(Scalar::Integer | Scalar::IntOrString) | Kind::Object => format!("an {}", word(node)),
        Kind::Scalar(_) => format!("a {}", word(node)),
    }
}

/// Returns the schema's name of a node's type.
pub(crate) fn word(node: &Node) -> String {
    match (node.int_or_string(), node.kind()) {
        (true, _) => "integer or string",
        (false, Some(kind)) => kind.as_str(),
        (false, None) => "any",
    }
    .to_owned()
}
