//! Small things that several reconcilers do to objects.

use insula_api::{ClusterName, Json, ObjectKey, Timestamp};
use insula_registry::{Custom, Intent, Propagation, Strategy, ids, locate, mark_deleted};
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// Text at a pointer, or nothing.
pub(crate) fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// Items at a pointer.
pub(crate) fn list<'a>(value: &'a Json, pointer: &str) -> &'a [Json] {
    value
        .pointer(pointer)
        .and_then(Json::as_array)
        .map_or(&[], Vec::as_slice)
}

/// `object.metadata.<map>[key] = value`.
pub(crate) fn mark(object: &mut Json, map: &str, key: &str, value: &str) {
    if !object["metadata"][map].is_object() {
        object["metadata"][map] = json!({});
    }
    object["metadata"][map][key] = json!(value);
}

/// Counts a change of the spec, which the HTTP verbs do for everybody else.
pub(crate) fn count_generation(object: &mut Json) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    object["metadata"]["generation"] = json!(generation + 1);
}

/// Takes a finalizer off.
pub(crate) fn drop_finalizer(object: &mut Json, finalizer: &str) {
    if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
        list.retain(|known| known != finalizer);
    }
}

/// Conditions in kcp's order: `Ready`, then by type.
pub(crate) fn sort_conditions(object: &mut Json) {
    if let Some(list) = object.pointer_mut("/status/conditions").and_then(Json::as_array_mut) {
        list.sort_by_cached_key(|c| (c["type"] != "Ready", c["type"].as_str().unwrap_or_default().to_owned()));
    }
}

/// Takes a condition away.
pub(crate) fn drop_condition(object: &mut Json, kind: &str) {
    if let Some(list) = object.pointer_mut("/status/conditions").and_then(Json::as_array_mut) {
        list.retain(|condition| condition["type"] != kind);
    }
}

/// What DELETE in the background would do to an object: mark it where something holds it, else
/// remove it. Nothing when it is marked already.
pub(crate) fn removal(entry: &Entry, strategy: Option<&dyn Strategy>, now: Timestamp) -> Option<Intent> {
    if entry.object.meta.is_deleting() {
        return None;
    }
    if entry.object.meta.finalizers.is_empty() && strategy.is_none() {
        return Some(Intent::Delete(entry.clone()));
    }
    let marked = mark_deleted(
        &entry.object,
        strategy.unwrap_or(&Custom),
        Some(Propagation::Background),
        now,
    );
    Some(match marked {
        Some(value) => Intent::Update(entry.clone(), value),
        None => Intent::Delete(entry.clone()),
    })
}

/// A guard that the cluster stays as it is, and is not being deleted. Whoever creates objects
/// beside the ones it was asked to look at takes it along, so that nothing appears in a cluster
/// behind the back of its deletion.
pub(crate) fn alive(snapshot: &Snapshot, cluster: &ClusterName) -> Option<Vec<Intent>> {
    if cluster.is_system() {
        return locate::exists(snapshot, cluster).then(Vec::new);
    }
    let key = ids::logical_cluster(cluster);
    let entry = snapshot.get(&key).filter(|entry| !entry.object.meta.is_deleting())?;
    Some(vec![Intent::Expect(key, Some(entry.revision))])
}

/// A guard that an object stays as it was seen.
pub(crate) fn unchanged(key: ObjectKey, entry: Option<&Entry>) -> Intent {
    Intent::Expect(key, entry.map(|entry| entry.revision))
}

/// Seconds until it is worth looking again at something that waits since a moment: soon at first,
/// then less and less.
pub(crate) fn patience(now: Timestamp, since: Option<Timestamp>) -> u64 {
    let waited = since.map_or(0, |since| now.since(since).max(0));
    (waited as u64 / 4).clamp(1, 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_long_is_asked_less_often() {
        let ask = |seconds| patience(Timestamp(seconds), Some(Timestamp(0)));
        assert_eq!([ask(0), ask(3), ask(40), ask(4000)], [1, 1, 10, 30]);
    }
}
