//! Metadata of objects in every version: what rules name is converted, the rest is one for all.

use super::Bundle;
use insula_api::Json;

impl Bundle {
    /// Returns true if rules write the label of this key or move it away, so that versions show
    /// other values of it.
    pub fn rules_change_label(&self, key: &str) -> bool {
        let mut ruled = self.ruled_metadata.iter();
        ruled.any(|(part, ruled)| part == "labels" && ruled == key)
    }

    /// Gives a conversion the metadata of its source. Metadata is the same in every version, but
    /// for the labels and annotations that rules name: these stay as they were converted.
    pub fn keep_metadata(&self, source: &Json, converted: &mut Json) {
        let made = converted.get("metadata").cloned().unwrap_or_default();
        let Some(object) = converted.as_object_mut() else {
            return;
        };
        match source.get("metadata") {
            Some(metadata) => drop(object.insert("metadata".to_owned(), metadata.clone())),
            None => drop(object.remove("metadata")),
        }
        for (part, key) in &self.ruled_metadata {
            let value = made.get(part).and_then(|part| part.get(key));
            match value {
                Some(value) => {
                    let metadata = object
                        .entry("metadata")
                        .or_insert_with(|| Json::Object(Default::default()));
                    let Some(metadata) = metadata.as_object_mut() else {
                        continue;
                    };
                    let part = metadata
                        .entry(part.as_str())
                        .or_insert_with(|| Json::Object(Default::default()));
                    if let Some(part) = part.as_object_mut() {
                        part.insert(key.clone(), value.clone());
                    }
                }
                None => {
                    let Some(metadata) = object.get_mut("metadata").and_then(Json::as_object_mut) else {
                        continue;
                    };
                    let Some(entries) = metadata.get_mut(part).and_then(Json::as_object_mut) else {
                        continue;
                    };
                    if entries.remove(key).is_some() && entries.is_empty() {
                        metadata.remove(part);
                    }
                }
            }
        }
    }
}

/// Returns true if only metadata that no rule sees differs. Such a write needs no converter, so
/// that a finalizer can be removed from an object that cannot be converted.
pub(super) fn same_content(bundle: &Bundle, shown: &Json, x: &Json) -> bool {
    let (Some(shown), Some(x)) = (shown.as_object(), x.as_object()) else {
        return false;
    };
    let part =
        |map: &'_ serde_json::Map<String, Json>, name: &str| map.get("metadata").and_then(|m| m.get(name)).cloned();
    let seen = bundle.rules_see_metadata
        && ["labels", "annotations"]
            .iter()
            .any(|name| part(shown, name) != part(x, name));
    let others = |map: &serde_json::Map<String, Json>| map.keys().filter(|name| *name != "metadata").count();
    !seen
        && others(shown) == others(x)
        && shown
            .iter()
            .all(|(name, value)| name == "metadata" || x.get(name) == Some(value))
}

/// Returns the stored object with the metadata of the written one.
pub(super) fn with_metadata(bundle: &Bundle, stored: &Json, x: &Json) -> Json {
    let mut out = stored.clone();
    let (Some(map), Some(metadata)) = (out.as_object_mut(), x.get("metadata")) else {
        return out;
    };
    let mut metadata = metadata.clone();
    if let (true, Some(new)) = (bundle.rules_see_metadata, metadata.as_object_mut()) {
        for part in ["labels", "annotations"] {
            match stored.get("metadata").and_then(|m| m.get(part)) {
                Some(kept) => new.insert(part.to_owned(), kept.clone()),
                None => new.remove(part),
            };
        }
    }
    map.insert("metadata".to_owned(), metadata);
    out
}
