//! The metadata that the server sets: identity, creation time, generation, cluster.

use crate::{
    context::Context,
    metadata::{self, generated_name},
};
use insula_api::{FieldError, FieldPath, Json, Timestamp, Uid};
use insula_catalog::{
    ApiVersion, Part, Result, ScopeKind, Served,
    object::{annotate_cluster, metadata_of},
};
use serde_json::json;

/// Sets the server-owned metadata of a new object and completes its name.
pub(super) fn own_new_metadata(context: &Context<'_>, new: &mut Json, now: Timestamp) -> Result<()> {
    let Context {
        served,
        cluster,
        namespace,
        rng,
        ..
    } = context;
    let metadata = metadata_of(new);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generation",
        "resourceVersion",
    ] {
        metadata.remove(field);
    }
    metadata::prune(metadata);
    if served.api.scope == ScopeKind::Namespaced {
        metadata.insert("namespace".into(), json!(namespace));
    } else {
        metadata.remove("namespace");
    }
    let text = |field: &str| {
        metadata
            .get(field)
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (mut name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && !prefix.is_empty() {
        name = generated_name(&prefix, *rng);
        metadata.insert("name".into(), json!(name));
    }
    if name.is_empty() {
        let at = FieldPath::new("metadata").child("name");
        return Err(served
            .api
            .invalid("", vec![FieldError::required(&at, "name or generateName is required")]));
    }
    metadata.insert("uid".into(), json!(Uid::random(*rng).to_string()));
    metadata.insert("creationTimestamp".into(), json!(now.to_string()));
    if served.api.strategy.traits().generation {
        metadata.insert("generation".into(), json!(1));
    }
    annotate_cluster(metadata, cluster);
    Ok(())
}

/// Restores the metadata that an update cannot change from the old object.
pub(crate) fn keep_old_metadata(context: &Context<'_>, new: &mut Json, old: &Json) {
    let old = &old["metadata"];
    let metadata = metadata_of(new);
    metadata::prune(metadata);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    metadata.remove("resourceVersion");
    for field in ["name", "namespace", "uid", "creationTimestamp", "generation"] {
        match old.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !metadata.contains_key(field)
            && let Some(value) = old.get(field)
        {
            metadata.insert(field.into(), value.clone());
        }
    }
    annotate_cluster(metadata, context.cluster);
}

/// Sets the generation: the old one, or the next one if the update changes more than metadata and
/// status.
pub(super) fn count_generation(served: &Served, version: &ApiVersion, new: &mut Json, old: &Json, part: Part) {
    if !served.api.strategy.traits().generation || part.is_of_status() {
        return;
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    let grows = desired(new, version) != desired(old, version);
    metadata_of(new).insert("generation".into(), json!(generation + i64::from(grows)));
}

/// Returns the fields of an object whose changes count as a generation.
fn desired<'a>(object: &'a Json, version: &ApiVersion) -> Vec<(&'a String, &'a Json)> {
    let counts = |field: &str| field != "metadata" && !(field == "status" && version.status);
    let map = object.as_object().into_iter().flatten();
    map.filter(|(field, _)| counts(field)).collect()
}

/// Restores the generation of the old object if the stored forms differ in metadata and status
/// alone: canonicalization has undone the change that was sent.
pub(super) fn keep_generation(served: &Served, stored: &mut Json, old: &Json) {
    let version = served.api.storage_version();
    if desired(stored, version) == desired(old, version)
        && let Some(generation) = old["metadata"].get("generation").cloned()
    {
        metadata_of(stored).insert("generation".into(), generation);
    }
}
