//! Namespaces: deletion with all their content.

mod decide;
mod world;

#[cfg(test)]
mod tests;

use crate::runtime::Reconciler;
use insula_api::{ObjectKey, ResourceId};
use insula_catalog::ids;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::sync::Arc;

pub(crate) use decide::fresh_namespace;

/// Reconciles Namespaces.
pub(crate) struct Namespaces {
    registry: Arc<Deps>,
}

impl Namespaces {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Namespaces { registry }
    }
}

impl Reconciler for Namespaces {
    type Key = ObjectKey;
    type World = world::World;

    fn name(&self) -> &'static str {
        "namespace"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::namespaces()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        match &change.new {
            Some(new) if new.meta.is_deleting() => vec![change.key.clone()],
            _ => Vec::new(),
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> world::World {
        world::observe(&self.registry, key, snapshot)
    }

    fn decide(&self, world: &world::World) -> Plan {
        decide::decide(world)
    }
}
