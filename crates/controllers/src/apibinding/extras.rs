//! Annotations with the prefix `extra.apis.kcp.io/`: an export hands them on to its bindings.

use insula_api::{Json, names::annotations::EXTRA_PREFIX};
use insula_catalog::names::ANNOTATIONS_BYTES_MAX;
use serde_json::{Map, json};

fn annotations(object: &Json) -> impl Iterator<Item = (&String, &Json)> {
    object["metadata"]["annotations"].as_object().into_iter().flatten()
}

/// Returns the annotations of an export that its bindings carry.
pub(super) fn extra_annotations(export: &Json) -> Map<String, Json> {
    let extra = annotations(export).filter(|(key, _)| key.starts_with(EXTRA_PREFIX));
    extra.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Writes them on a binding, and removes those that the export no longer has. Omits annotations
/// that exceed the limit together with the binding's own: the tenant could not write its binding
/// any more.
pub(super) fn copy_to_binding(binding: &mut Json, export: &Json) {
    let mut wanted = extra_annotations(export);
    let size = |key: &str, value: &Json| key.len() + value.as_str().map_or(0, str::len);
    let own = annotations(binding).filter(|(key, _)| !key.starts_with(EXTRA_PREFIX));
    let mut total: usize = own.map(|(key, value)| size(key, value)).sum();
    wanted.retain(|key, value| {
        total += size(key, value);
        total <= ANNOTATIONS_BYTES_MAX
    });
    if wanted == extra_annotations(binding) {
        return;
    }
    if !binding["metadata"]["annotations"].is_object() {
        binding["metadata"]["annotations"] = json!({});
    }
    if let Some(all) = binding["metadata"]["annotations"].as_object_mut() {
        all.retain(|key, _| !key.starts_with(EXTRA_PREFIX));
        all.extend(wanted);
    }
}
