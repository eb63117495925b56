//! Release that an export offers: its schemas with their rules, under one identifier.

use crate::loaded::Loaded;
use insula_api::{
    Json, ObjectKey,
    kinds::{ApiExport, ReleasedResource},
};
use insula_catalog::{exports::release_id, ids, parts};
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};
use serde_json::json;

/// A release.
#[derive(Default)]
pub(super) struct Release {
    /// Identifier; the same schemas and rules have the same one.
    pub(super) id: String,
    pub(super) resources: Vec<ReleasedResource>,
    /// The objects that it was read from: kind, name, generation.
    pub(super) observed: Vec<Json>,
    /// Schemas that do not exist, or do not compile with their rules.
    pub(super) broken: Vec<String>,
}

impl Release {
    pub(super) fn offered_by(registry: &Deps, snapshot: &Snapshot, export: &Loaded<ApiExport>) -> Self {
        let mut release = Release {
            observed: vec![observed("APIExport", &export.entry)],
            ..Release::default()
        };
        let cluster = &export.entry.key.cluster;
        let mut fingerprints = Vec::new();
        let resources = export.view.spec.resources.iter();
        for resource in resources.filter(|r| r.storage.r#virtual.is_none()) {
            let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), &resource.schema);
            let schema = snapshot.get(&key);
            release
                .observed
                .extend(schema.iter().map(|schema| observed("APIResourceSchema", schema)));
            let rules = parts::for_schema(snapshot, cluster, &resource.schema);
            release
                .observed
                .extend(rules.iter().map(|rules| observed("APIConversion", rules)));
            let api = registry.catalog.stored(snapshot, cluster, &resource.schema);
            match &api {
                Some(api) => fingerprints.push((&*resource.group, &*resource.name, api.fingerprint)),
                None => release.broken.push(resource.schema.clone()),
            }
            release.resources.push(ReleasedResource {
                group: resource.group.clone(),
                name: resource.name.clone(),
                schema: resource.schema.clone(),
                uid: schema
                    .map(|schema| schema.object.meta.uid.to_string())
                    .unwrap_or_default(),
                fingerprint: api.map(|api| ids::fingerprint(api.fingerprint)).unwrap_or_default(),
            });
        }
        release.id = release_id(fingerprints.into_iter());
        release
    }
}

fn observed(kind: &str, entry: &Entry) -> Json {
    json!({"kind": kind, "name": &*entry.key.name, "generation": entry.object.meta.generation})
}
