//! A label that objects are shown with and that none is stored with.
//!
//! It is written into an object where that is encoded for a client. Stored objects and cached
//! conversions stay as they are, so that all readers share them.

use crate::{Json, LabelSelector, object::value_start};
use std::borrow::Cow;

/// A label that all objects of a view are shown with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLabel {
    key: String,
    value: String,
    /// Key and value as in JSON: `"key":"value"`.
    pair: String,
}

impl ShownLabel {
    /// Makes a label.
    pub fn new(key: String, value: String) -> ShownLabel {
        ShownLabel {
            pair: format!("{}:{}", Json::from(&*key), Json::from(&*value)),
            key,
            value,
        }
    }

    /// Sets the label of an object.
    pub fn set(&self, object: &mut Json) {
        let labels = &mut object["metadata"]["labels"];
        if labels.is_object() || labels.is_null() {
            labels[&*self.key] = Json::from(&*self.value);
        }
    }

    /// Sets the label of the object in compact JSON that `out` ends with and that begins at
    /// `begin`.
    pub fn write(&self, out: &mut Vec<u8>, begin: usize) {
        if let Some(at) = value_start(&out[begin..], b"metadata") {
            self.write_at(out, begin + at);
        }
    }

    /// Sets the label in the metadata whose brace is at `metadata`.
    pub fn write_at(&self, out: &mut Vec<u8>, metadata: usize) {
        if out.get(metadata) != Some(&b'{') {
            return;
        }
        let Some(at) = value_start(&out[metadata..], b"labels") else {
            return insert(out, metadata, &format!("\"labels\":{{{}}}", self.pair));
        };
        let labels = metadata + at;
        if out.get(labels) != Some(&b'{') {
            return;
        }
        match value_start(&out[labels..], self.key.as_bytes()) {
            // The values of labels have no escapes.
            Some(at) => {
                let begin = labels + at + 1;
                let length = out[begin..].iter().take_while(|byte| **byte != b'"').count();
                out.splice(begin..begin + length, self.value.bytes());
            }
            None => insert(out, labels, &self.pair),
        }
    }

    /// Returns a selector of objects as they are shown as one of stored objects.
    pub fn stored_selector<'a>(&self, shown: &'a LabelSelector) -> Cow<'a, LabelSelector> {
        let mut selector = Cow::Borrowed(shown);
        if shown.keys().any(|key| key == self.key) {
            selector.to_mut().assume(&self.key, &self.value);
        }
        selector
    }
}

/// Inserts a field behind the brace of an object.
fn insert(out: &mut Vec<u8>, brace: usize, field: &str) {
    let comma = match out.get(brace + 1) {
        Some(b'}') => "",
        _ => ",",
    };
    let at = brace + 1;
    out.splice(at..at, field.bytes().chain(comma.bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Object, Revision};
    use serde_json::json;

    fn label() -> ShownLabel {
        ShownLabel::new("x.io/key".into(), "value".into())
    }

    #[test]
    fn bytes_and_values_are_shown_alike() {
        let rows = [
            json!({}),
            json!({"name": "a"}),
            json!({"labels": {}}),
            json!({"labels": {"a": "b"}, "name": "a"}),
            json!({"labels": {"x.io/key": "another", "z": "z"}}),
            json!({"annotations": {"labels": "{\"labels\":{\\"}, "labels": {"x.io/key": "", "a": "x.io/key"}}),
            json!({"annotations": {"x.io/key": "a"}, "managedFields": [{"labels": {"a": "b"}}]}),
        ];
        for metadata in rows {
            let value = json!({"apiVersion": "v1", "data": {"labels": {}, "metadata": {}}, "kind": "X",
                "metadata": metadata, "spec": {"labels": {"a": "b"}, "metadata": {"labels": {}}}});
            let mut want = value.clone();
            label().set(&mut want);
            assert_eq!(want["metadata"]["labels"]["x.io/key"], "value");
            let mut out = b"[".to_vec();
            out.extend_from_slice(value.to_string().as_bytes());
            label().write(&mut out, 1);
            assert_eq!(serde_json::from_slice::<Json>(&out[1..]).expect("is JSON"), want);

            let object = Object::new(&value, None).expect("an object");
            let mut out = b"[".to_vec();
            object.write_to(Revision(7), &mut out);
            label().write_at(&mut out, 1 + object.metadata_at());
            want["metadata"]["resourceVersion"] = json!("7");
            assert_eq!(serde_json::from_slice::<Json>(&out[1..]).expect("is JSON"), want);
            let text = String::from_utf8(out).expect("is text");
            assert_eq!(text.matches("\"x.io/key\":\"value\"").count(), 1, "{text}");
        }
    }

    #[test]
    fn selectors_of_shown_objects_select_stored_ones() {
        let labels = [("a".into(), "b".into())].into_iter().collect();
        for (shown, stored) in [
            ("", Some("")),
            ("a=b", Some("a=b")),
            ("x.io/key=value", Some("")),
            ("x.io/key", Some("")),
            ("x.io/key!=other", Some("")),
            ("x.io/key in (other,value),a=b", Some("a=b")),
            ("x.io/key=other", None),
            ("!x.io/key", None),
            ("x.io/key notin (value)", None),
        ] {
            let shown = LabelSelector::parse(shown).expect("a selector");
            let selector = label().stored_selector(&shown);
            match stored {
                Some(stored) => assert_eq!(*selector, LabelSelector::parse(stored).expect("a selector"), "{shown}"),
                None => assert!(!selector.matches(&labels), "{shown}"),
            }
        }
    }
}
