//! ThirdPartyResources of both generations: acceptance of their names, the route that serves them,
//! and the deletion of their objects.
//!
//! Names are accepted by the rules of CustomResourceDefinitions, against all definitions and
//! registrations of the group. A registration differs in what follows: it serves with the names
//! that it was granted, even if short names or the singular belong to others.

mod decide;
mod world;

#[cfg(test)]
mod tests;

use crate::{crd::group, runtime::Reconciler};
use insula_api::{ObjectKey, ResourceId};
use insula_catalog::ids;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

/// Reconciles ThirdPartyResources.
pub(crate) struct Registrations {
    registry: Arc<Deps>,
}

impl Registrations {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Registrations { registry }
    }
}

impl Reconciler for Registrations {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "thirdparty"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::first_registrations(),
            ids::second_registrations(),
            ids::customresourcedefinitions(),
            ids::resource_routes(),
        ]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let mut keys = group::concerned(change, snapshot);
        keys.retain(|key| key.resource != ids::customresourcedefinitions());
        keys
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}
