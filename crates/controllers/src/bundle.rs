//! Collection of bundles that no route refers to.

use crate::runtime::Reconciler;
use insula_api::{ObjectKey, ResourceId, Scope};
use insula_catalog::{ResourceRoute, ids};
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Seconds between the deletion of a route and the check of its bundle: one check serves all routes
/// that are deleted meanwhile.
const SETTLE_SECONDS: u64 = 30;

/// Reconciles bundles.
pub(crate) struct Bundles;

/// World of a bundle.
pub(crate) struct World {
    bundle: Option<Entry>,
    is_routed: bool,
}

impl Bundles {
    pub(crate) fn new(_registry: Arc<Deps>) -> Self {
        Bundles
    }
}

impl Reconciler for Bundles {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "bundle"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::resource_routes(), ids::bundles()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        // A bundle may be written before its route, and the route never.
        if change.key.resource == ids::bundles() {
            return if change.old.is_none() {
                vec![change.key.clone()]
            } else {
                Vec::new()
            };
        }
        let bundle = |object: &insula_api::Object| object.parsed(ResourceRoute::read).bundle.clone();
        let old = change.old.as_ref().and_then(|old| bundle(&old.object));
        let new = change.new.as_ref().and_then(|new| bundle(new));
        match old {
            Some(old) if new.as_ref() != Some(&old) => vec![ids::bundle(&old)],
            _ => Vec::new(),
        }
    }

    fn settle(&self) -> u64 {
        SETTLE_SECONDS
    }

    /// Walks routes until one refers to the bundle. There is no counter that could drift.
    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let mut is_routed = false;
        snapshot.for_each(&Scope::everywhere(ids::resource_routes()), |route| {
            is_routed = route.object.parsed(ResourceRoute::read).bundle.as_deref() == Some(&*key.name);
            if is_routed {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        World {
            bundle: snapshot.get(key),
            is_routed,
        }
    }

    /// Deletes a bundle without routes. A route that is created concurrently does no harm: its
    /// reconciler sees the deletion of the bundle, and creates it again.
    fn decide(&self, world: &World) -> Plan {
        match &world.bundle {
            Some(bundle) if !world.is_routed => Plan::new(vec![Intent::Delete(bundle.clone())]),
            _ => Plan::rest(),
        }
    }
}
