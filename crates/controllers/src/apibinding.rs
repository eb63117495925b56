//! APIBindings: a tenant gets the APIs of an export.
//!
//! One decision writes the bundles of schema and rules into `system:bound-crds`, the routes of the
//! resource names into the tenant's cluster, and the binding's status: all at one revision. The
//! plan guards everything that the binding relies upon (export, schemas, conversions, the cluster),
//! so that a concurrent change of it makes the plan conflict.

mod claims;
mod conflicts;
mod decide;
mod delete;
mod extras;
mod served;
pub(crate) mod world;

#[cfg(test)]
mod tests;

use crate::{rollout::Gate, runtime::Reconciler};
use insula_api::{
    ClusterName, Object, ObjectKey, ResourceId, Scope,
    kinds::{self, ApiBindingPhase},
};
use insula_catalog::{
    ResourceRoute,
    exports::{self, ExportName},
    ids, indexes, parts,
};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::{collections::BTreeSet, sync::Arc};

/// Reconciles APIBindings.
pub(crate) struct ApiBindings {
    registry: Arc<Deps>,
    gate: Gate,
}

impl ApiBindings {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        ApiBindings {
            registry,
            gate: Gate::default(),
        }
    }
}

/// Returns the bindings to an export.
fn of_export(snapshot: &Snapshot, cluster: &ClusterName, name: &str) -> Vec<ObjectKey> {
    let bindings = ExportName::new(cluster, name).bindings(snapshot);
    bindings.into_iter().map(|binding| binding.key).collect()
}

/// Returns the bindings to the exports that offer a schema.
fn of_schema(snapshot: &Snapshot, cluster: &ClusterName, schema: &str) -> Vec<ObjectKey> {
    let exports = exports::offering(snapshot, cluster, &BTreeSet::from([schema.to_owned()]));
    let exports = exports.iter();
    exports
        .flat_map(|export| of_export(snapshot, cluster, &export.key.name))
        .collect()
}

impl Reconciler for ApiBindings {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "apibinding"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apibindings(),
            ids::apiexports(),
            ids::apiresourceschemas(),
            ids::apiconversions(),
            ids::bundles(),
            ids::resource_routes(),
            ids::customresourcedefinitions(),
            ids::first_registrations(),
            ids::second_registrations(),
        ]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        match &*key.resource.resource {
            "apibindings" => {
                let own = change.new.iter().map(|_| key.clone());
                own.chain(beside(change, snapshot)).collect()
            }
            "apiexports" if export_changed(change) => of_export(snapshot, &key.cluster, &key.name),
            "apiresourceschemas" => of_schema(snapshot, &key.cluster, &key.name),
            "apiconversions" => {
                let schemas = parts::schemas_of_change(change).into_iter();
                schemas
                    .flat_map(|schema| of_schema(snapshot, &key.cluster, &schema))
                    .collect()
            }
            // The bundle was collected while a route to it was being written.
            "bundles" if change.new.is_none() => of_bundle(snapshot, &key.name),
            // The name is free again.
            ids::RESOURCE_ROUTES if change.new.is_none() => in_cluster(snapshot, &key.cluster),
            "customresourcedefinitions" | "thirdpartyresources" => waiting_in_cluster(snapshot, &key.cluster),
            _ => Vec::new(),
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, &self.gate, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}

/// Returns true if an export changed in a way that bindings react to: not in its conditions.
fn export_changed(change: &Change) -> bool {
    let relevant = |object: &Object| {
        let mut value = object.body_value();
        let extras = extras::extra_annotations(&value);
        let status = &mut value["status"];
        let rollout = ["release", "step"].map(|field| status["rollout"][field].take());
        let identity = status["identityHash"].take();
        (value["spec"].take(), identity, rollout, extras)
    };
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => relevant(&old.object) != relevant(new),
        _ => true,
    }
}

/// Returns the bindings whose routes lead to a bundle.
fn of_bundle(snapshot: &Snapshot, bundle: &str) -> Vec<ObjectKey> {
    let routes = snapshot.indexed(&indexes::ROUTES_BY_BUNDLE, bundle).into_iter();
    let bindings = routes.filter_map(|route| {
        let binding = route.object.parsed(ResourceRoute::read).binding.clone()?;
        Some(ObjectKey::cluster_scoped(
            ids::apibindings(),
            route.key.cluster,
            &binding,
        ))
    });
    bindings.collect()
}

fn in_cluster(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ObjectKey> {
    let bindings = snapshot.range(&Scope::cluster(ids::apibindings(), cluster.clone()), None, usize::MAX);
    bindings.into_iter().map(|binding| binding.key).collect()
}

/// Returns other bindings of the cluster that a change of one is about: those that keep their
/// objects for a while and may hand them over to a new one, and those whose condition names one
/// that keeps its objects.
fn beside(change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
    let cluster = &change.key.cluster;
    let Some(old) = &change.old else {
        let bindings = snapshot.range(&Scope::cluster(ids::apibindings(), cluster.clone()), None, usize::MAX);
        let kept = bindings.into_iter().filter(|it| it.object.meta.awaits_deletion());
        return kept.map(|binding| binding.key).collect();
    };
    let is_kept = change.new.as_ref().is_some_and(|new| new.meta.awaits_deletion());
    match old.object.meta.awaits_deletion() == is_kept {
        true => Vec::new(),
        false => waiting_in_cluster(snapshot, cluster),
    }
}

fn waiting_in_cluster(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ObjectKey> {
    let bindings = snapshot.range(&Scope::cluster(ids::apibindings(), cluster.clone()), None, usize::MAX);
    let waits = |object: &Object| {
        let binding: kinds::ApiBinding = kinds::read(&object.body_value());
        binding.status.phase != Some(ApiBindingPhase::Bound)
    };
    bindings
        .into_iter()
        .filter(|binding| waits(&binding.object))
        .map(|binding| binding.key)
        .collect()
}
