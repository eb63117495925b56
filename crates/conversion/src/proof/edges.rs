//! Edge values of a schema, on which expressions are most likely to fail. Few, and always the same.
//!
//! They are heuristics and may be invalid: rules of the schema are not solved. Callers that need
//! evidence validate the object that holds such a value.

use super::random::Random;
use super::text::{Patterns, text};
use crate::path::Segment;
use crate::scope::SchemaNode;
use insula_schema::{Node, Type};
use serde_json::{Map, Value as Json, json};

/// Greatest depth to which required fields are filled in.
const DEPTH_MAX: usize = 12;
/// Longest text or list that is made to satisfy a lower bound.
const FILL_MAX: usize = 256;
/// Maximum number of choices of an enum that are tried.
const CHOICES_MAX: usize = 8;
/// Number of texts made for a pattern; the seed for making them follows.
const PATTERN_TEXTS: usize = 4;
const PATTERN_SEED: u64 = 1;
/// The key of the only entry of generated maps.
const KEY: &str = "a";

/// Returns edge values for a schema node: scalars, empty lists and maps; the plainest first.
pub(crate) fn edges(place: SchemaNode<'_>) -> Vec<Json> {
    let Some(node) = place else {
        return vec![json!("x"), json!(1), json!({}), json!([])];
    };
    if !node.choices().is_empty() {
        return node.choices().iter().take(CHOICES_MAX).cloned().collect();
    }
    let mut out = match (node.int_or_string(), node.kind()) {
        (true, _) => vec![json!(1), json!("x"), json!("50%"), json!("")],
        (false, None) => edges(None),
        (false, Some(Type::String)) => texts(node),
        (false, Some(Type::Integer)) => integers(node),
        (false, Some(Type::Number)) => numbers(node),
        (false, Some(Type::Boolean)) => vec![json!(true), json!(false)],
        (false, Some(Type::Array)) => vec![json!([])],
        (false, Some(Type::Object)) => vec![json!({})],
    };
    if node.nullable() {
        out.push(Json::Null);
    }
    out
}

fn texts(node: &Node) -> Vec<Json> {
    let all: &[&str] = match node.format() {
        Some("date-time" | "datetime") => &["2024-05-06T07:08:09Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"],
        Some("date") => &["2024-05-06", "0001-01-01", "9999-12-31"],
        Some("duration") => &["1s", "0s", "2540400h"],
        Some("byte") => &["YQ==", "", "/w=="],
        Some("ipv4") => &["10.0.0.1", "0.0.0.0"],
        Some("ipv6") => &["::1", "2001:db8::1"],
        Some("cidr") => &["10.0.0.0/8", "::/0"],
        Some("uri") => &["http://example.io/x"],
        Some("uuid" | "uuid4") => &["1b4e28ba-2fa1-41d2-883f-0016d3cca427"],
        Some("email") => &["a@example.io"],
        _ => &[
            "x",
            "",
            "0",
            "1",
            "-1",
            "1.5",
            "a.b",
            "a-b",
            "A",
            "a b",
            "9223372036854775808",
            "1s",
            "é",
        ],
    };
    let sized = |text: &&str| {
        let mut text = (*text).to_owned();
        let least = node.min_length().unwrap_or(0).min(FILL_MAX);
        while text.chars().count() < least {
            text.push('x');
        }
        match node.max_length() {
            Some(most) => text.chars().take(most).collect(),
            None => text,
        }
    };
    let (mut random, patterns) = (Random::new(PATTERN_SEED), Patterns::default());
    let fitting = node.pattern().map_or(0, |_| PATTERN_TEXTS);
    let fitting = (0..fitting).map(|_| text(node, &patterns, &mut random));
    fitting.chain(all.iter().map(sized)).map(Json::String).collect()
}

fn integers(node: &Node) -> Vec<Json> {
    let range = match node.format() {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    #[expect(clippy::cast_possible_truncation, reason = "saturates, as meant")]
    let bound = |bound: Option<(f64, bool)>, inward: i64| {
        bound.map(|(n, excluded)| (n as i64).saturating_add(if excluded { inward } else { 0 }))
    };
    let least = bound(node.minimum(), 1).unwrap_or(range.0).max(range.0);
    let most = bound(node.maximum(), -1).unwrap_or(range.1).min(range.1);
    let inside = |n: &i64| (least..=most).contains(n);
    let all = [1, 0, -1, 2, least, most];
    all.into_iter().filter(inside).map(Json::from).collect()
}

fn numbers(node: &Node) -> Vec<Json> {
    let least = node.minimum().map_or(f64::MIN, |(n, _)| n);
    let most = node.maximum().map_or(f64::MAX, |(n, _)| n);
    let all = [1.0, 0.0, 0.5, -1.0, least, most];
    all.into_iter()
        .filter(|n| (least..=most).contains(n))
        .map(Json::from)
        .collect()
}

/// Sets the value at a path and creates the values above it: one item in lists, one entry in maps.
pub(crate) fn put(here: &mut Json, path: &[Segment], place: SchemaNode<'_>, value: Json) {
    let Some((segment, rest)) = path.split_first() else {
        *here = value;
        return;
    };
    let list = place.is_some_and(|node| node.items().is_some());
    let (index, name) = match segment {
        Segment::Index(index) => (Some(*index), ""),
        Segment::Each(_) | Segment::Key(_) if list => (Some(0), ""),
        Segment::Each(_) | Segment::Key(_) => (None, KEY),
        Segment::Field(name) => (name.parse().ok().filter(|_| list), name.as_str()),
    };
    match index {
        Some(index) => {
            let below = place.and_then(Node::items);
            if !here.is_array() {
                *here = json!([]);
            }
            let Json::Array(items) = here else { return };
            while items.len() <= index.min(FILL_MAX) {
                items.push(sample(below, 0));
            }
            if let Some(item) = items.get_mut(index) {
                put(item, rest, below, value);
            }
        }
        None => {
            if !here.is_object() {
                *here = json!({});
            }
            let Json::Object(fields) = here else { return };
            let below = place.and_then(|node| node.child(name));
            put(fields.entry(name).or_insert(Json::Null), rest, below, value);
        }
    }
}

/// Completes a value so that it is valid: adds required fields and the least number of items.
pub(crate) fn complete(value: &mut Json, node: &Node, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        Json::Object(fields) => {
            for name in node.required() {
                if !fields.contains_key(name) {
                    fields.insert(name.clone(), sample(node.child(name), depth + 1));
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = node.child(name) {
                    complete(value, child, depth + 1);
                }
            }
        }
        Json::Array(items) => {
            let Some(below) = node.items() else { return };
            while items.len() < node.min_items().unwrap_or(0).min(FILL_MAX) {
                items.push(sample(Some(below), depth + 1));
            }
            items.iter_mut().for_each(|item| complete(item, below, depth + 1));
        }
        _ => {}
    }
}

/// Returns the plainest value of a schema node.
fn sample(place: SchemaNode<'_>, depth: usize) -> Json {
    let mut value = match place {
        Some(node) => node.default().cloned(),
        None => None,
    }
    .or_else(|| edges(place).into_iter().next())
    .unwrap_or_else(|| Json::Object(Map::new()));
    if let Some(node) = place {
        complete(&mut value, node, depth + 1);
    }
    value
}
