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
    kinds::{self, ApiBindingPhase, ApiExport},
};
use insula_catalog::{ResourceRoute, digest, ids, parts};
use insula_registry::{Deps, Plan, bindings::Index};
use insula_store::{Change, Snapshot};
use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Reconciles APIBindings.
pub(crate) struct ApiBindings {
    registry: Arc<Deps>,
    gate: Gate,
    index: Mutex<Index>,
}

impl ApiBindings {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        ApiBindings {
            registry,
            gate: Gate::default(),
            index: Mutex::default(),
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bindings to an export.
    fn of_export(&self, cluster: &ClusterName, name: &str) -> Vec<ObjectKey> {
        let label = digest::export_label(cluster, name);
        self.index().bindings(&label).cloned().collect()
    }

    /// Returns the bindings to the exports that offer a schema.
    fn of_schema(&self, snapshot: &Snapshot, cluster: &ClusterName, schema: &str) -> Vec<ObjectKey> {
        let exports = snapshot.range(&Scope::cluster(ids::apiexports(), cluster.clone()), None, usize::MAX);
        let offers = |object: &Object| {
            let export: ApiExport = kinds::read(&object.body_value());
            export.spec.resources.iter().any(|resource| resource.schema == schema)
        };
        let exports = exports.into_iter().filter(|export| offers(&export.object));
        exports
            .flat_map(|export| self.of_export(cluster, &export.key.name))
            .collect()
    }
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

    fn restart(&self) {
        *self.index() = Index::default();
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        match &*key.resource.resource {
            "apibindings" => {
                self.index().note(change);
                let own = change.new.iter().map(|_| key.clone());
                own.chain(beside(change, snapshot)).collect()
            }
            "apiexports" if export_changed(change) => self.of_export(&key.cluster, &key.name),
            "apiresourceschemas" => self.of_schema(snapshot, &key.cluster, &key.name),
            "apiconversions" => {
                let schemas = parts::schemas_of_change(change).into_iter();
                schemas
                    .flat_map(|schema| self.of_schema(snapshot, &key.cluster, &schema))
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

/// Returns the bindings whose routes lead to a bundle. Walks all routes: bundles are deleted
/// rarely.
fn of_bundle(snapshot: &Snapshot, bundle: &str) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::resource_routes()), |entry| {
        let route = entry.object.parsed(ResourceRoute::read);
        if route.bundle.as_deref() == Some(bundle)
            && let Some(binding) = &route.binding
        {
            keys.push(ObjectKey::cluster_scoped(
                ids::apibindings(),
                entry.key.cluster.clone(),
                binding,
            ));
        }
        ControlFlow::Continue(())
    });
    keys
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
