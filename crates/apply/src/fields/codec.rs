//! JSON form of field sets, `fieldsV1`. Its keys are path elements: `f:` field, `k:` keys of an
//! item, `v:` value of an item, `i:` index of an item, `.` the path itself.

use super::element::Element;
use super::set::{FieldNode, FieldSet};
use insula_api::Json;
use serde_json::Map;

impl FieldSet {
    /// Returns the set as `fieldsV1`.
    pub fn to_json(&self) -> Json {
        let nodes = self.nodes.iter().map(|(element, place)| {
            let mut below = place.below.to_json();
            if place.member
                && let Json::Object(fields) = &mut below
                && !fields.is_empty()
            {
                fields.insert(".".into(), Json::Object(Map::new()));
            }
            (name(element), below)
        });
        Json::Object(nodes.collect())
    }

    /// Reads `fieldsV1`; `None` if it is malformed. Skips elements of unknown kinds, which a later
    /// version may write.
    pub fn from_json(json: &Json) -> Option<FieldSet> {
        read(json).map(|place| place.below)
    }
}

/// Reads one node. A node without known elements below is a member, even if it is not marked as
/// one.
fn read(json: &Json) -> Option<FieldNode> {
    let mut member = false;
    let mut nodes = Vec::new();
    match json {
        Json::Null => {}
        Json::Object(fields) => {
            nodes.reserve_exact(fields.len());
            for (name, below) in fields {
                match (name.as_str(), element(name)?) {
                    (".", _) => member = true,
                    (_, None) => {}
                    (_, Some(element)) => nodes.push((element, read(below)?)),
                }
            }
        }
        _ => return None,
    }
    member |= nodes.is_empty();
    // JSON sorts keys and values as texts.
    let below = FieldSet::from_nodes(nodes);
    Some(FieldNode { member, below })
}

fn name(element: &Element) -> String {
    match element {
        Element::Field(name) => ["f:", name].concat(),
        Element::Key(keys) => {
            let keys: Map<String, Json> = keys
                .iter()
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect();
            format!("k:{}", escaped(&Json::Object(keys)))
        }
        Element::Value(value) => format!("v:{}", escaped(value)),
        Element::Index(place) => format!("i:{place}"),
    }
}

/// Writes JSON as Go does: characters with a meaning in HTML are escaped.
fn escaped(value: &Json) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 10);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Parses an element: `None` if it is malformed, `Some(None)` if its kind is unknown.
fn element(name: &str) -> Option<Option<Element>> {
    if name == "." {
        return Some(None);
    }
    let (kind, rest) = name.split_once(':').filter(|(kind, _)| kind.len() == 1)?;
    Some(match kind {
        "f" => Some(Element::field(rest)),
        "v" => Some(Element::Value(serde_json::from_str(rest).ok()?)),
        "i" => Some(Element::Index(rest.parse().ok()?)),
        "k" => {
            let keys: Map<String, Json> = serde_json::from_str(rest).ok()?;
            Some(Element::key(
                keys.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            ))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_are_read_and_written() {
        let rows = [
            json!({}),
            json!({"f:spec": {".": {}, "f:size": {}}}),
            json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:note": {}}}}}),
            json!({"f:a": {"v:\"x\"": {}, "v:1": {}, "v:true": {}, "i:3": {}}}),
            json!({"f:": {}, "f:.": {}, "f:f:x": {}}),
            json!({"f:a": {"v:\"\\u003cb\\u003e \\u0026\"": {}}}),
        ];
        for row in rows {
            let set = FieldSet::from_json(&row).expect("reads");
            assert_eq!(set.to_json(), row);
        }
        let set = FieldSet::from_json(&json!({"f:a": {"v:\"<b> &\"": {}}})).expect("reads");
        assert!(set.contains(&[Element::field("a"), Element::Value(json!("<b> &"))]));
    }

    #[test]
    fn what_is_not_canonical_is_still_read() {
        for (given, want) in [
            (json!({"f:a": {".": {}}}), json!({"f:a": {}})),
            (json!({"f:a": {"z:new": {}}}), json!({"f:a": {}})),
            (json!({"f:a": null}), json!({"f:a": {}})),
            (json!(null), json!({})),
            (json!({"q:1": {"no": 1}, "f:b": {}}), json!({"f:b": {}})),
        ] {
            assert_eq!(FieldSet::from_json(&given).expect("reads").to_json(), want, "{given}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for broken in [
            json!({"f": {}}),
            json!({"field": {}}),
            json!({"v:x": {}}),
            json!({"k:[]": {}}),
            json!({"i:x": {}}),
            json!({"f:a": 1}),
            json!([]),
        ] {
            assert_eq!(FieldSet::from_json(&broken), None, "{broken}");
        }
    }
}
