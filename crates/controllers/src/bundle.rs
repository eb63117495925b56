//! Bundles that no claim refers to any more are collected.

use crate::runtime::Reconciler;
use insula_api::{ObjectKey, ResourceId, Scope};
use insula_registry::{Intent, Plan, Registry, ResourceRoute, ids};
use insula_store::{Change, Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Seconds between the end of a claim and the look at its bundle. Many claims on one bundle may end
/// in these; one look is enough for all.
const SETTLE_SECONDS: u64 = 30;

/// Reconciles bundles.
pub(crate) struct Bundles;

/// The world of a bundle.
pub(crate) struct World {
    bundle: Option<Entry>,
    claimed: bool,
}

impl Bundles {
    pub(crate) fn new(_registry: Arc<Registry>) -> Self {
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
        vec![ids::claims(), ids::bundles()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        // One that was prepared and then not claimed.
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

    /// Walks claims until one refers to the bundle: there is no count to get wrong.
    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let mut claimed = false;
        snapshot.for_each(&Scope::everywhere(ids::claims()), |claim| {
            claimed = claim.object.parsed(ResourceRoute::read).bundle.as_deref() == Some(&*key.name);
            if claimed {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        World {
            bundle: snapshot.get(key),
            claimed,
        }
    }

    /// A claim that is made in this very moment is no harm: its reconciler sees the bundle go, and
    /// makes it again.
    fn decide(&self, world: &World) -> Plan {
        match &world.bundle {
            Some(bundle) if !world.claimed => Plan::of(vec![Intent::Delete(bundle.clone())]),
            _ => Plan::rest(),
        }
    }
}
