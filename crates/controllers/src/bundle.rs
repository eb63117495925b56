//! Collection of bundles that no route refers to, and no former release of an export.

use crate::runtime::Reconciler;
use insula_api::{
    Object, ObjectKey, ResourceId,
    kinds::{self, ApiExport},
};
use insula_catalog::{ResourceRoute, ids, indexes};
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Index, Snapshot};
use std::{collections::BTreeSet, sync::Arc};

/// Seconds between the deletion of a route and the check of its bundle: one check serves all routes
/// that are deleted meanwhile.
const SETTLE_SECONDS: u64 = 30;

/// Reconciles bundles.
pub(crate) struct Bundles {
    registry: Arc<Deps>,
}

/// World of a bundle.
pub(crate) struct World {
    bundle: Option<Entry>,
    is_routed: bool,
    /// An export can go back to a release that it serves.
    is_remembered: bool,
}

/// Schemas with their rules, by UID and fingerprint.
type Generations = BTreeSet<(String, String)>;

/// APIExports by the generations that they can go back to.
static EXPORTS_BY_GENERATION: Index = Index {
    resource: ids::apiexports,
    values: |_: &ObjectKey, export: &Object, each: &mut dyn FnMut(&str)| {
        for generation in remembered(export) {
            each(&index_value(&generation));
        }
    },
};

fn index_value((uid, fingerprint): &(String, String)) -> String {
    format!("{uid}/{fingerprint}")
}

/// Returns the schemas with their rules that an export can go back to.
fn remembered(export: &Object) -> Generations {
    let export: ApiExport = kinds::read(&export.body_value());
    let history = export.status.rollout.history;
    let former = history.into_iter().flat_map(|former| former.resources);
    former.map(|resource| (resource.uid, resource.fingerprint)).collect()
}

impl Bundles {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Bundles { registry }
    }

    /// Returns the generation that a bundle has, if the schema of a UID is its own.
    fn generation(&self, bundle: &Entry) -> Option<(String, String)> {
        let uid = ids::schema_of_bundle(&bundle.key.name).to_owned();
        let api = self.registry.catalog.compiled(&bundle.object).ok()?;
        Some((uid, ids::fingerprint(api.fingerprint)))
    }
}

impl Reconciler for Bundles {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "bundle"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::resource_routes(), ids::bundles(), ids::apiexports()]
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
        if change.key.resource == ids::apiexports() {
            let mut forgotten = change
                .old
                .as_ref()
                .map(|old| remembered(&old.object))
                .unwrap_or_default();
            for generation in change.new.iter().flat_map(|new| remembered(new)) {
                forgotten.remove(&generation);
            }
            let names = forgotten
                .iter()
                .flat_map(|(uid, fingerprint)| ids::bundle_names(uid, fingerprint));
            return names.map(|name| ids::bundle(&name)).collect();
        }
        let bundle = |object: &Object| object.parsed(ResourceRoute::read).bundle.clone();
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

    /// Looks for a route and for an export that refer to the bundle. There is no counter that could
    /// drift.
    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let is_routed = indexes::is_routed(snapshot, &key.name);
        let bundle = snapshot.get(key);
        let generation = bundle
            .as_ref()
            .filter(|_| !is_routed)
            .and_then(|bundle| self.generation(bundle));
        let is_remembered =
            generation.is_some_and(|it| snapshot.has_indexed(&EXPORTS_BY_GENERATION, &index_value(&it)));
        World {
            bundle,
            is_routed,
            is_remembered,
        }
    }

    /// Deletes a bundle that nothing refers to. A route that is created concurrently does no harm:
    /// its reconciler sees the deletion of the bundle, and creates it again.
    fn decide(&self, world: &World) -> Plan {
        match &world.bundle {
            Some(bundle) if !world.is_routed && !world.is_remembered => Plan::new(vec![Intent::Delete(bundle.clone())]),
            _ => Plan::rest(),
        }
    }
}
