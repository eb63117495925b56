//! Dependencies of a watch beside its objects: the definition of its resource, and its logical
//! cluster.
//!
//! Cursors follow them from the revision at which the request was authorised, so that no change is
//! missed. A cursor whose revision is compacted continues at the latest revision and counts as a
//! change: the watch reads the latest state then, and finds the missed changes in it.

use insula_access::{
    Target,
    view::{By, ViewScope},
};
use insula_api::{ClusterName, Revision, Scope};
use insula_catalog::{Origin, ids, locate};
use insula_registry::Deps;
use insula_store::{Cursor, Snapshot};
use std::future::pending;

/// Cursors over the state that a watch depends on.
pub(super) struct Dependencies([Source; 3]);

/// A part of the state.
enum Source {
    /// The watch does not depend on it.
    None,
    /// A cursor follows it.
    Followed(Cursor),
    /// The cursor's revision is compacted.
    Lost(Scope),
}

impl Dependencies {
    /// Follows the state that a watch of `target` depends on, from a revision on.
    pub(super) fn follow(registry: &Deps, target: &Target, after: Revision) -> Dependencies {
        let [first, second] = definition(target);
        let follow = |scope: Option<Scope>| scope.map_or(Source::None, |scope| Source::follow(registry, scope, after));
        Dependencies([first, second, cluster(target)].map(follow))
    }

    /// Waits until the state may have changed. Cancellation loses nothing.
    pub(super) async fn changed(&mut self, registry: &Deps) {
        let [first, second, third] = &mut self.0;
        tokio::select! {
            () = first.changed(registry) => {}
            () = second.changed(registry) => {}
            () = third.changed(registry) => {}
        }
    }
}

impl Source {
    fn follow(registry: &Deps, scope: Scope, after: Revision) -> Source {
        match registry.store.watch(scope.clone(), after) {
            Ok(cursor) => Source::Followed(cursor),
            Err(_) => Source::Lost(scope),
        }
    }

    async fn changed(&mut self, registry: &Deps) {
        let scope = match self {
            Source::None => return pending().await,
            Source::Followed(cursor) => match cursor.next().await {
                Ok(_) => return,
                Err(_) => cursor.scope().clone(),
            },
            Source::Lost(scope) => scope.clone(),
        };
        *self = Source::follow(registry, scope, registry.store.latest().revision());
    }
}

/// Returns the scopes in which a change may redefine or remove the resource. Built-ins are never
/// redefined.
fn definition(target: &Target) -> [Option<Scope>; 2] {
    let within = |resource| Some(Scope::cluster(resource, target.cluster.clone()));
    let bundles = Some(Scope::cluster(ids::bundles(), ClusterName::bound_crds()));
    // The virtual workspace depends on its export, and on the export's schemas.
    if let ViewScope::AllClusters(across) = &target.view_scope {
        return match across.by {
            By::Provider(_) => [within(ids::apiexports()), bundles],
            By::Everybody | By::Consumer(_) => [None, None],
        };
    }
    match &target.served.origin {
        Origin::System => [None, None],
        Origin::Bound { .. } => [within(ids::resource_routes()), bundles],
        Origin::Local { definition } => [within(ids::resource_routes()), within(definition.kind.resource())],
    }
}

/// Returns the scope of the watch's logical cluster: it may be switched off, be deleted, or no
/// longer wait for the initializer.
fn cluster(target: &Target) -> Option<Scope> {
    let is_one = !target.is_across() && !target.cluster.is_system();
    is_one.then(|| Scope::cluster(ids::logicalclusters(), target.cluster.clone()))
}

/// Returns true if the state of a snapshot lets a watch go on.
pub(super) fn hold(registry: &Deps, target: &Target, snapshot: &Snapshot) -> bool {
    is_open(target, snapshot) && !is_redefined(registry, target, snapshot)
}

/// Returns true if the logical cluster's content may be watched. Its LogicalCluster may be watched
/// even when it is switched off.
fn is_open(target: &Target, snapshot: &Snapshot) -> bool {
    if cluster(target).is_none() {
        return true;
    }
    let itself = target.served.resource_id() == ids::logicalclusters();
    let awaited = match &target.view_scope {
        ViewScope::For(lifecycle) => lifecycle.is_awaited(snapshot, &target.cluster),
        ViewScope::Within | ViewScope::ViaExport(_) | ViewScope::AllClusters(_) => true,
    };
    awaited && locate::logical_cluster(snapshot, &target.cluster).is_some_and(|view| itself || !view.inactive)
}

/// Returns true if the resource is no longer the one that is watched.
fn is_redefined(registry: &Deps, target: &Target, snapshot: &Snapshot) -> bool {
    let Target { cluster, served, .. } = target;
    if let ViewScope::AllClusters(across) = &target.view_scope {
        // New generations do not end the watch; the end of its version does.
        let By::Provider(through) = &across.by else {
            return false;
        };
        let (catalog, api) = (&registry.catalog, &served.api);
        let now = through.export.resolve(catalog, snapshot, &api.group, &api.names.plural);
        return now.is_none_or(|now| {
            now.identity != served.identity || !now.served_versions().any(|known| known.name == target.version)
        });
    }
    if definition(target) == [None, None] {
        return false;
    }
    let now = registry
        .catalog
        .resolve(snapshot, cluster, served.group(), &served.names().plural);
    now.is_none_or(|now| now.api.fingerprint != served.api.fingerprint || now.identity != served.identity)
}
