//! Helpers of several reconcilers for reading and writing objects.

use insula_api::{ClusterName, Condition, Json, Meta, ObjectKey, Timestamp, set_condition};
use insula_catalog::{Custom, Strategy, ids, locate};
use insula_registry::{Intent, Plan, Propagation, grace, mark_deleted};
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// Maximum number of seconds between two looks at an object whose deletion may be taken back: the
/// wall clock may be set meanwhile.
const GRACE_LOOK_SECONDS: u64 = 60;

/// Returns the text at a pointer, or the empty text.
pub(crate) fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// Returns the items at a pointer, or none.
pub(crate) fn list<'a>(value: &'a Json, pointer: &str) -> &'a [Json] {
    value
        .pointer(pointer)
        .and_then(Json::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Sets `object.metadata.<map>[key]`.
pub(crate) fn mark(object: &mut Json, map: &str, key: &str, value: &str) {
    if !object["metadata"][map].is_object() {
        object["metadata"][map] = json!({});
    }
    object["metadata"][map][key] = json!(value);
}

/// Increments `metadata.generation`, as the HTTP verbs do for a change of the spec.
pub(crate) fn count_generation(object: &mut Json) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    object["metadata"]["generation"] = json!(generation + 1);
}

/// Removes a finalizer.
pub(crate) fn drop_finalizer(object: &mut Json, finalizer: &str) {
    if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
        list.retain(|known| known != finalizer);
    }
}

/// Sorts the conditions as kcp does: `Ready` first, then by type.
pub(crate) fn sort_conditions(object: &mut Json) {
    if let Some(list) = object.pointer_mut("/status/conditions").and_then(Json::as_array_mut) {
        list.sort_by_cached_key(|c| (c["type"] != "Ready", c["type"].as_str().unwrap_or_default().to_owned()));
    }
}

/// Removes a condition.
pub(crate) fn drop_condition(object: &mut Json, kind: &str) {
    if let Some(list) = object.pointer_mut("/status/conditions").and_then(Json::as_array_mut) {
        list.retain(|condition| condition["type"] != kind);
    }
}

/// Returns the intent of a background DELETE: mark the object if finalizers hold it, else delete
/// it. Returns `None` if it is marked already. A grace period ends.
pub(crate) fn removal(entry: &Entry, strategy: Option<&dyn Strategy>, now: Timestamp) -> Option<Intent> {
    if entry.object.meta.is_deleting() {
        return entry.object.meta.deletion_grace.then(|| {
            let mut value = entry.object.body_value();
            grace::end(&mut value, now);
            Intent::Update(entry.clone(), value)
        });
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

/// Returns the seconds for which the deletion of an object may still be taken back; `None` if it
/// may not.
pub(crate) fn grace_left(meta: &Meta, now: Timestamp) -> Option<u64> {
    let end = meta.deletion_timestamp.filter(|_| meta.deletion_grace)?;
    let left = u64::try_from(end.since(now)).ok();
    left.filter(|left| *left > 0)
}

/// Returns the plan for an object whose deletion may be taken back for some more seconds: its state
/// tells it by the condition of its deletion.
pub(crate) fn await_deletion(
    object: &Entry,
    mut value: Json,
    (condition, message): (&str, String),
    (seconds, now): (u64, Timestamp),
) -> Plan {
    let kept = Condition::fails(condition, "GracePeriod", message).severity("Info");
    set_condition(&mut value, &kept, now);
    sort_conditions(&mut value);
    Plan {
        intents: vec![Intent::Update(object.clone(), value)],
        again_after: Some(seconds.min(GRACE_LOOK_SECONDS)),
    }
}

/// Returns guards that the cluster is unchanged and not being deleted; `None` if it is. A plan that
/// creates objects in the cluster contains them, so that no object appears in a cluster after its
/// deletion has passed.
pub(crate) fn alive(snapshot: &Snapshot, cluster: &ClusterName) -> Option<Vec<Intent>> {
    if cluster.is_system() {
        return locate::exists(snapshot, cluster).then(Vec::new);
    }
    let key = ids::logical_cluster(cluster);
    let entry = snapshot.get(&key).filter(|entry| !entry.object.meta.is_deleting())?;
    Some(vec![Intent::Expect(key, Some(entry.revision))])
}

/// Returns the guard that an object is unchanged, or still absent.
pub(crate) fn unchanged(key: ObjectKey, entry: Option<&Entry>) -> Intent {
    Intent::Expect(key, entry.map(|entry| entry.revision))
}

/// Returns the seconds until the next look at something that has waited since a time: a quarter of
/// the wait, between 1 and 30.
pub(crate) fn patience(now: Timestamp, since: Option<Timestamp>) -> u64 {
    let waited = since.map_or(0, |since| now.since(since).max(0));
    (waited as u64 / 4).clamp(1, 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_wait() {
        let ask = |seconds| patience(Timestamp(seconds), Some(Timestamp(0)));
        assert_eq!([ask(0), ask(3), ask(40), ask(4000)], [1, 1, 10, 30]);
    }
}
