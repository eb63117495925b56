//! Path elements: a field, or an item of a list by its keys, its value or its index.

use insula_api::Json;
use std::{cmp::Ordering, fmt};

/// One element of a path.
///
/// Ordered as in structured-merge-diff: fields, keys, values, indices. Numbers are equal by value,
/// so that `1` and `1.0` name the same item of a set.
#[derive(Debug, Clone)]
pub enum Element {
    /// A field of an object, or a key of a map.
    Field(Box<str>),
    /// An item of a keyed list, by the values of its keys, sorted by key.
    Key(Vec<(Box<str>, Json)>),
    /// An item of a set, by its value.
    Value(Json),
    /// An item of a list without identities, by its index from 0. Such items have no owners;
    /// messages name them.
    Index(i64),
}

impl Element {
    /// Makes the element of a field.
    pub fn field(name: &str) -> Element {
        Element::Field(name.into())
    }

    /// Makes the element of an item of a keyed list.
    pub(crate) fn key(mut keys: Vec<(Box<str>, Json)>) -> Element {
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Element::Key(keys)
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => order_keys(a, b),
            (Element::Value(a), Element::Value(b)) => order(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

fn order_keys(a: &[(Box<str>, Json)], b: &[(Box<str>, Json)]) -> Ordering {
    let pairs = a.iter().zip(b);
    let first = pairs
        .map(|((name, value), (other, theirs))| name.cmp(other).then_with(|| order(value, theirs)))
        .find(|found| found.is_ne());
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Orders values: numbers before strings before booleans before lists before objects before null.
fn order(a: &Json, b: &Json) -> Ordering {
    fn rank(value: &Json) -> u8 {
        match value {
            Json::Number(_) => 0,
            Json::String(_) => 1,
            Json::Bool(_) => 2,
            Json::Array(_) => 3,
            Json::Object(_) => 4,
            Json::Null => 5,
        }
    }
    match (a, b) {
        (Json::Number(x), Json::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => {
                let (x, y) = (x.as_f64().unwrap_or_default(), y.as_f64().unwrap_or_default());
                x.total_cmp(&y)
            }
        },
        (Json::String(x), Json::String(y)) => x.cmp(y),
        (Json::Bool(x), Json::Bool(y)) => x.cmp(y),
        (Json::Array(x), Json::Array(y)) => {
            let first = x.iter().zip(y).map(|(x, y)| order(x, y)).find(|found| found.is_ne());
            first.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Json::Object(x), Json::Object(y)) => {
            let pairs = x.iter().zip(y);
            let first = pairs
                .map(|((name, x), (other, y))| name.cmp(other).then_with(|| order(x, y)))
                .find(|found| found.is_ne());
            first.unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                let keys: Vec<_> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={}", shown(value)))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
            Element::Value(value) => write!(f, "[={}]", shown(value)),
            Element::Index(place) => write!(f, "[{place}]"),
        }
    }
}

fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

/// Path of a field. Displays as in messages: `.spec.ports[port=80].note`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Path(pub Vec<Element>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_print_as_conflicts_name_them() {
        let key = Element::key(vec![("protocol".into(), json!("TCP")), ("port".into(), json!(80))]);
        let path = Path(vec![
            Element::field("spec"),
            Element::field("a b"),
            key,
            Element::Value(json!("x")),
            Element::Index(2),
        ]);
        assert_eq!(path.to_string(), ".spec.a b[port=80,protocol=\"TCP\"][=\"x\"][2]");
    }

    #[test]
    fn elements_have_one_order() {
        let sorted = [
            Element::field("a"),
            Element::field("b"),
            Element::key(vec![("a".into(), json!(1))]),
            Element::key(vec![("a".into(), json!(1)), ("b".into(), json!(1))]),
            Element::key(vec![("a".into(), json!("1"))]),
            Element::Value(json!(9)),
            Element::Value(json!(9.5)),
            Element::Value(json!(10)),
            Element::Value(json!("x")),
            Element::Value(json!(true)),
            Element::Value(json!([1])),
            Element::Value(json!([1, 2])),
            Element::Value(json!({"a": 1})),
            Element::Value(json!(null)),
            Element::Index(0),
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(Element::Value(json!(1)), Element::Value(json!(1.0)));
    }
}
