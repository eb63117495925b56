//! Reading and writing of values by path.

use crate::trace::Seg;
use serde_json::{Map, Value as Json};

/// Returns the value at a path; `None` if there is none.
pub(crate) fn get<'j>(json: &'j Json, path: &[Seg]) -> Option<&'j Json> {
    let found = path.iter().try_fold(json, |json, seg| match seg {
        Seg::Field(name) => json.get(&**name),
        Seg::Index(index) => json.get(*index),
    });
    // Null stands for an item that is not made yet.
    found.filter(|value| !path.is_empty() || !value.is_null())
}

/// Returns the value at a path, to be changed.
pub(crate) fn get_mut<'j>(json: &'j mut Json, path: &[Seg]) -> Option<&'j mut Json> {
    path.iter().try_fold(json, |json, seg| match seg {
        Seg::Field(name) => json.get_mut(&**name),
        Seg::Index(index) => json.get_mut(*index),
    })
}

/// Writes a value and creates the objects and lists above it. Missing earlier items of a list are
/// null until its gaps are closed.
pub(crate) fn put(json: &mut Json, path: &[Seg], value: Json) {
    let Some((seg, rest)) = path.split_first() else {
        *json = value;
        return;
    };
    match seg {
        Seg::Field(name) => {
            if !json.is_object() {
                *json = Json::Object(Map::new());
            }
            let Json::Object(map) = json else { return };
            match map.get_mut(&**name) {
                Some(below) => put(below, rest, value),
                None if rest.is_empty() => drop(map.insert(name.to_string(), value)),
                None => put(map.entry(&**name).or_insert(Json::Null), rest, value),
            }
        }
        Seg::Index(index) => {
            if !json.is_array() {
                *json = Json::Array(Vec::new());
            }
            if let Json::Array(items) = json {
                while items.len() <= *index {
                    items.push(Json::Null);
                }
                put(&mut items[*index], rest, value);
            }
        }
    }
}

/// Returns the object at a path of names and creates the objects above it; `None` if the path goes
/// through a list.
pub(crate) fn object_at<'j>(json: &'j mut Json, path: &[Seg]) -> Option<&'j mut Map<String, Json>> {
    if !json.is_object() {
        *json = Json::Object(Map::new());
    }
    let map = json.as_object_mut()?;
    match path.split_first() {
        None => Some(map),
        Some((Seg::Field(name), rest)) => object_at(map.entry(&**name).or_insert(Json::Null), rest),
        Some((Seg::Index(_), _)) => None,
    }
}

/// Returns the JSON type of a value, for messages.
pub(crate) fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(n) if n.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// Returns about the number of bytes of a value's JSON text.
pub(crate) fn json_bytes(value: &Json) -> u64 {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 4,
        Json::String(text) => text.len() as u64 + 2,
        Json::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum::<u64>() + 2,
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| name.len() as u64 + 4 + json_bytes(value);
            fields.iter().map(field).sum::<u64>() + 2
        }
    }
}

/// Removes the elements of lists that no operation wrote.
pub(crate) fn close_gaps(lists: &[Box<[Seg]>], out: &mut Json) {
    for list in lists {
        if let Some(Json::Array(items)) = get_mut(out, list) {
            items.retain(|item| !item.is_null());
        }
    }
}
