//! Paths of fields in the form of schemas.

use insula_api::Json;
use insula_conversion::{Path, Segment};
use insula_schema::{ListType, Node};
use std::borrow::Cow;

/// Returns the path of an error about an object, `spec.list[3].x`, in the form of schemas,
/// `.spec.list[].x`, as far as the schema knows it. Errors do not quote names: those of the object
/// and of its schema tell where a name with dots ends.
pub(super) fn general(path: &str, root: &Node, object: &Json) -> String {
    let (mut node, mut value, mut rest, mut out) = (root, Some(object), path, String::new());
    while !rest.is_empty() {
        let bracket = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let name = match bracket {
            Some((name, _)) => name,
            None => longest_name(rest.trim_start_matches('.'), node, value),
        };
        let (next, at) = match (node.property(name), node.items().or(node.additional())) {
            (Some(property), _) => (property, field(name)),
            (None, Some(inner)) => (inner, "[]".to_owned()),
            (None, None) => break,
        };
        value = match (value, name.parse::<usize>()) {
            (Some(Json::Array(items)), Ok(index)) => items.get(index),
            (value, _) => value.and_then(|value| value.get(name)),
        };
        rest = match bracket {
            Some((_, after)) => after,
            None => rest.trim_start_matches('.').strip_prefix(name).unwrap_or_default(),
        };
        (node, out) = (next, out + &at);
    }
    out
}

/// Marks in a path behind which a name may end that are looked at: more are in no name of a schema,
/// and a tenant's key may have any number.
const MARKS_MAX: usize = 64;

/// Returns the longest name of a value or its schema with which a path begins, or the text before
/// the first mark.
fn longest_name<'p>(path: &'p str, node: &Node, value: Option<&Json>) -> &'p str {
    let marks = path.match_indices(['.', '[']).map(|(at, _)| at);
    let mut ends: Vec<usize> = marks.take(MARKS_MAX).collect();
    if ends.len() < MARKS_MAX {
        ends.push(path.len());
    }
    let keys = value.and_then(Json::as_object);
    let is_name = |name: &str| node.property(name).is_some() || keys.is_some_and(|keys| keys.contains_key(name));
    let longest = ends.iter().rev().find(|end| is_name(&path[..**end]));
    &path[..*longest.or(ends.first()).unwrap_or(&path.len())]
}

/// Returns true for the path of a field, and false for what belongs to a version as a whole.
pub(super) fn is_field(path: &str) -> bool {
    path.starts_with(['.', '['])
}

/// Writes the step to a field as schemas do: `.name`, or `['a.name']`.
pub(super) fn field(name: &str) -> String {
    Path::from_segments(vec![Segment::Field(name.to_owned())]).to_string()
}

/// Returns true if an object holds a value at a path in that form.
pub(super) fn holds(value: &Json, path: &str) -> bool {
    let Some((step, rest)) = first_step(path) else {
        return path.is_empty() && !value.is_null();
    };
    match (step, value) {
        (Step::Field(name), _) => value.get(&*name).is_some_and(|below| holds(below, rest)),
        (Step::Each, Json::Array(items)) => items.iter().any(|item| holds(item, rest)),
        (Step::Each, Json::Object(map)) => map.values().any(|value| holds(value, rest)),
        (Step::Each, _) => false,
    }
}

/// Returns the outermost list on the way to a value whose items nothing tells apart between two
/// writes: whatever changes in it, all of its values are validated as new ones.
pub(super) fn list_around<'p>(path: &'p str, root: &Node) -> Option<&'p str> {
    let is_as_a_whole = |node: &Node| node.items().is_some() && !matches!(node.list_type(), ListType::Map { .. });
    let mut around = nodes(path, root);
    let (_, rest) = around.find(|(node, rest)| rest.starts_with("[]") && is_as_a_whole(node))?;
    Some(&path[..path.len() - rest.len()])
}

/// Returns true for what makes a value an object of Kubernetes (`x-kubernetes-embedded-resource`):
/// each write validates it, also one that changes nothing there.
pub(super) fn is_of_embedded(path: &str, root: &Node) -> bool {
    let outermost = nodes(path, root).find(|(node, _)| node.embedded());
    outermost.is_some_and(|(_, rest)| {
        let own = [".apiVersion", ".kind", ".metadata"];
        let is_own = |below: &str| below.is_empty() || below.starts_with(['.', '[']);
        rest.is_empty() || own.iter().any(|own| rest.strip_prefix(own).is_some_and(is_own))
    })
}

/// Returns the nodes on the way to a path, as far as the schema knows it: from the root on, each
/// with the rest of the path below it.
fn nodes<'p>(path: &'p str, root: &'p Node) -> impl Iterator<Item = (&'p Node, &'p str)> {
    std::iter::successors(Some((root, path)), |(node, rest)| {
        let (step, after) = first_step(rest)?;
        let below = match step {
            Step::Field(name) => node.property(&name),
            Step::Each => node.items().or_else(|| node.additional()),
        };
        Some((below?, after))
    })
}

enum Step<'p> {
    Field(Cow<'p, str>),
    /// The items of a list or the values of a map.
    Each,
}

/// Returns the first step of a path, `.name`, `['a.name']` or `[]`, and the rest.
fn first_step(path: &str) -> Option<(Step<'_>, &str)> {
    if let Some(rest) = path.strip_prefix("[]") {
        return Some((Step::Each, rest));
    }
    if let Some(quoted) = path.strip_prefix("['") {
        let mut name = String::new();
        let mut characters = quoted.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\'' => return Some((Step::Field(name.into()), quoted[at..].strip_prefix("']")?)),
                '\\' => name.push(characters.next()?.1),
                other => name.push(other),
            }
        }
        return None;
    }
    let rest = path.strip_prefix('.')?;
    let (name, rest) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
    Some((Step::Field(name.into()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_through_lists_and_maps() {
        let object = json!({"spec": {"list": [{"x": 1}, {"y": [2]}], "map": {"k": {"x": null}}, "it's a.b": {"c": 1}}});
        for there in [
            ".spec",
            ".spec.list",
            ".spec.list[].x",
            ".spec.list[].y[]",
            ".spec.map[]",
            r".spec['it\'s a.b'].c",
        ] {
            assert!(holds(&object, there), "{there}");
        }
        for absent in [
            ".status",
            ".spec.list[].z",
            ".spec.map[].x",
            ".spec.list.x",
            "[]x",
            ".spec['a.b']",
        ] {
            assert!(!holds(&object, absent), "{absent}");
        }
    }

    #[test]
    fn a_list_without_keys_is_validated_as_a_whole() {
        let list = |kind: &str, items: Json| {
            json!({"type": "array", "items": items, "x-kubernetes-list-type": kind,
                "x-kubernetes-list-map-keys": if kind == "map" { json!(["k"]) } else { Json::Null }})
        };
        let text = json!({"type": "string"});
        let item = |below: Json| json!({"type": "object", "required": ["k"], "properties": {"k": text, "l": below}});
        let root = json!({"type": "object", "properties": {
            "keyed": list("map", item(list("set", text.clone()))),
            "plain": list("atomic", item(list("map", item(text.clone())))),
            "map": {"type": "object", "additionalProperties": list("atomic", text.clone())}}});
        let root = insula_schema::Structural::parse_trusted(&root).expect("a schema");
        for (path, list) in [
            (".plain[].l[].k", Some(".plain")),
            (".keyed[].l[]", Some(".keyed[].l")),
            (".map[][]", Some(".map[]")),
            (".plain", None),
            (".keyed[].k", None),
            (".keyed[].l", None),
            (".away[].k", None),
        ] {
            assert_eq!(list_around(path, root.root()), list, "{path}");
        }
    }
}
