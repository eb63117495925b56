//! APIBindings, the heart: a tenant gets the API of an export.
//!
//! One decision makes the bundles of schema and rules in `system:bound-crds`, the claims on
//! resource names in the tenant's cluster and the binding's status, and they appear at one
//! revision. What a binding relied upon (export, schemas, conversions, the cluster) is guarded, so
//! that nobody binds what has just changed.

mod claims;
mod conflicts;
mod decide;
mod delete;
mod extras;
mod world;

#[cfg(test)]
mod tests;

use crate::{rollout::Gate, runtime::Reconciler, write::list};
use insula_api::{ClusterName, Json, Object, ObjectKey, ResourceId, Scope, names::labels};
use insula_registry::{Plan, Registry, ResourceRoute, admission::digest, ids};
use insula_store::{Change, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Reconciles APIBindings.
pub(crate) struct ApiBindings {
    registry: Arc<Registry>,
    gate: Gate,
}

impl ApiBindings {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        ApiBindings {
            registry,
            gate: Gate::default(),
        }
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
            ids::claims(),
            ids::customresourcedefinitions(),
        ]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        match &*key.resource.resource {
            "apibindings" if change.new.is_some() => vec![key.clone()],
            "apiexports" if export_changed(change) => of_export(snapshot, &key.cluster, &key.name),
            "apiresourceschemas" | "apiconversions" => of_schema(snapshot, &key.cluster, &key.name),
            // Somebody collected a bundle in the moment in which it was claimed again.
            "bundles" if change.new.is_none() => of_bundle(snapshot, &key.name),
            // A name becomes free.
            "claims" if change.new.is_none() => in_cluster(snapshot, &key.cluster),
            "customresourcedefinitions" => waiting_in_cluster(snapshot, &key.cluster),
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

/// Whether bindings have to look: conditions of an export are nothing to them.
fn export_changed(change: &Change) -> bool {
    let relevant = |object: &Object| {
        let mut value = object.body_value();
        let extras = extras::of(&value);
        (value["spec"].take(), value["status"]["identityHash"].take(), extras)
    };
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => relevant(&old.object) != relevant(new),
        _ => true,
    }
}

fn of_export(snapshot: &Snapshot, cluster: &ClusterName, name: &str) -> Vec<ObjectKey> {
    let label = digest::export_label(cluster, name);
    let mut keys = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::apibindings()), |binding| {
        if binding.object.meta.label(labels::EXPORT) == Some(&label) {
            keys.push(binding.key.clone());
        }
        ControlFlow::Continue(())
    });
    keys
}

fn of_schema(snapshot: &Snapshot, cluster: &ClusterName, schema: &str) -> Vec<ObjectKey> {
    let exports = snapshot.range(&Scope::cluster(ids::apiexports(), cluster.clone()), None, usize::MAX);
    let names = |value: &Json| {
        list(value, "/spec/resources")
            .iter()
            .any(|resource| resource["schema"] == schema)
    };
    let exports = exports.into_iter().filter(|export| names(&export.object.body_value()));
    exports
        .flat_map(|export| of_export(snapshot, cluster, &export.key.name))
        .collect()
}

fn of_bundle(snapshot: &Snapshot, bundle: &str) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::claims()), |claim| {
        let said = claim.object.parsed(ResourceRoute::read);
        if said.bundle.as_deref() == Some(bundle)
            && let Some(binding) = &said.binding
        {
            keys.push(ObjectKey::cluster_scoped(
                ids::apibindings(),
                claim.key.cluster.clone(),
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

fn waiting_in_cluster(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<ObjectKey> {
    let bindings = snapshot.range(&Scope::cluster(ids::apibindings(), cluster.clone()), None, usize::MAX);
    let waits = |object: &Object| object.body_value()["status"]["phase"] != "Bound";
    bindings
        .into_iter()
        .filter(|binding| waits(&binding.object))
        .map(|binding| binding.key)
        .collect()
}
