//! Differences between two views of an object.

use super::{names, paths::field};
use insula_api::Json;
use insula_schema::Node;

/// A kind of effect, and the path of the field.
pub(super) type Differing = (&'static str, String);

/// Returns the paths at which two views of an object differ: values that are gone or are others.
/// Names that the schema does not know are those of a map, and stay the tenant's. Of the metadata,
/// labels and annotations are compared: all that rules can make of it.
pub(super) fn differing(was: &Json, is: &Json, root: &Node) -> Vec<Differing> {
    let mut found = Vec::new();
    for (name, value) in was.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => metadata(value, &is["metadata"], &mut found),
            name => collect(value, is.get(name), root.property(name), &field(name), &mut found),
        }
    }
    found
}

/// Returns the paths at which the second of two views has a value and the first has none.
pub(super) fn added(was: &Json, is: &Json, root: &Node) -> Vec<Differing> {
    let missing = differing(is, was, root).into_iter();
    let missing = missing.filter(|(kind, _)| *kind == names::VALUE_HIDDEN);
    missing.map(|(_, path)| (names::VALUE_ADDED, path)).collect()
}

/// Compares labels and annotations. Keys that differ are those that rules name, the others are the
/// same in every version.
fn metadata(was: &Json, is: &Json, found: &mut Vec<Differing>) {
    for part in ["labels", "annotations"] {
        for (key, value) in was[part].as_object().into_iter().flatten() {
            let now = is[part].get(key);
            if Some(value) != now {
                let path = format!(".metadata.{part}{}", field(key));
                collect(value, now, None, &path, found);
            }
        }
    }
}

fn collect(was: &Json, is: Option<&Json>, node: Option<&Node>, path: &str, found: &mut Vec<Differing>) {
    let is = match (was, is) {
        // A field that holds nothing is a field.
        (Json::Object(map), None | Some(Json::Null)) if !map.is_empty() => &Json::Null,
        (Json::Array(list), None | Some(Json::Null)) if !list.is_empty() => &Json::Null,
        (Json::Null, Some(Json::Null)) => return,
        (_, None | Some(Json::Null)) => return found.push((names::VALUE_HIDDEN, path.to_owned())),
        (_, Some(is)) => is,
    };
    match (was, is) {
        (Json::Object(was), _) => {
            for (name, value) in was {
                let (node, at) = match node.and_then(|node| node.property(name)) {
                    Some(property) => (Some(property), format!("{path}{}", field(name))),
                    None => (node.and_then(Node::additional), format!("{path}[]")),
                };
                collect(value, is.get(name), node, &at, found);
            }
        }
        (Json::Array(was), _) => {
            let (node, at) = (node.and_then(Node::items), format!("{path}[]"));
            for (index, value) in was.iter().enumerate() {
                collect(value, is.get(index), node, &at, found);
            }
        }
        (was, is) if was != is => found.push((names::VALUE_CHANGED, path.to_owned())),
        _ => {}
    }
}
