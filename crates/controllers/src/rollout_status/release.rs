//! Release that an export offers: its schemas with their rules, under one identifier.

use crate::loaded::Loaded;
use insula_api::{
    ClusterName, Json, ObjectKey, Scope,
    kinds::{ApiExport, ReleasedResource},
};
use insula_catalog::{ResourceRoute, exports::release_id, ids, parts};
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    ops::ControlFlow,
    sync::Arc,
};

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

/// Fingerprints of bundles by name, of one look at the bindings of an export.
#[derive(Default)]
pub(super) struct Fingerprints(HashMap<Arc<str>, Option<String>>);

impl Fingerprints {
    /// Returns the fingerprint of what a route leads to.
    fn behind_route(&mut self, deps: &Deps, snapshot: &Snapshot, route: &ObjectKey) -> Option<String> {
        let route = snapshot.get(route)?;
        let bundle = route.object.parsed(ResourceRoute::read).bundle.clone()?;
        let known = self.0.entry(bundle).or_insert_with_key(|bundle| {
            let bundle = snapshot.get(&ids::bundle(bundle))?;
            let api = deps.catalog.compiled(&bundle.object).ok()?;
            Some(ids::fingerprint(api.fingerprint))
        });
        known.clone()
    }
}

/// Returns a digest of the revisions of everything that the release of an export is read from.
pub(super) fn revisions(snapshot: &Snapshot, export: &Loaded<ApiExport>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let cluster = &export.entry.key.cluster;
    export.entry.object.meta.generation.hash(&mut hasher);
    for resource in &export.view.spec.resources {
        let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), &resource.schema);
        snapshot.get(&key).map(|schema| schema.revision.0).hash(&mut hasher);
    }
    snapshot.for_each(&Scope::cluster(ids::apiconversions(), cluster.clone()), |rules| {
        (&rules.key.name, rules.revision.0).hash(&mut hasher);
        ControlFlow::Continue(())
    });
    hasher.finish()
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

impl Release {
    /// Returns true if all resources of a cluster are served by the release.
    pub(super) fn serves(
        &self,
        (deps, snapshot): (&Deps, &Snapshot),
        known: &mut Fingerprints,
        cluster: &ClusterName,
    ) -> bool {
        let mut serves = |offered: &ReleasedResource| {
            let route = ids::resource_route(cluster, &offered.group, &offered.name);
            known.behind_route(deps, snapshot, &route).as_ref() == Some(&offered.fingerprint)
        };
        self.broken.is_empty() && self.resources.iter().all(&mut serves)
    }
}

fn observed(kind: &str, entry: &Entry) -> Json {
    json!({"kind": kind, "name": &*entry.key.name, "generation": entry.object.meta.generation})
}
