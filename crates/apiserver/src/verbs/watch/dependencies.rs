//! State beside the watched objects that a watch depends on: the definition of its resource, and
//! its logical cluster.
//!
//! Cursors follow it from the revision on which the request was authorised, so that nothing in
//! between is missed. A cursor whose place is no longer in the history goes on at the latest
//! revision and counts as a change: whoever follows reads the latest state then, and finds there
//! what the cursor could not tell.

use insula_api::{ClusterName, Revision, Scope};
use insula_registry::{
    Origin, Registry, Target, ids, locate,
    view::{By, ViewScope},
};
use insula_store::{Cursor, Snapshot};
use std::future::pending;

/// Follows the state that a watch depends on.
pub(super) struct Dependencies([Source; 3]);

/// A part of the state.
enum Source {
    /// The watch does not depend on it.
    None,
    /// Followed.
    Followed(Cursor),
    /// Not followed since its place is no longer in the history.
    Lost(Scope),
}

impl Dependencies {
    /// Follows the state that a watch of `target` depends on, from a revision on.
    pub(super) fn follow(registry: &Registry, target: &Target, after: Revision) -> Dependencies {
        let [first, second] = definition(target);
        let follow = |scope: Option<Scope>| scope.map_or(Source::None, |scope| Source::follow(registry, scope, after));
        Dependencies([first, second, cluster(target)].map(follow))
    }

    /// Waits until the state may be another one. Cancelling loses nothing.
    pub(super) async fn changed(&mut self, registry: &Registry) {
        let [first, second, third] = &mut self.0;
        tokio::select! {
            () = first.changed(registry) => {}
            () = second.changed(registry) => {}
            () = third.changed(registry) => {}
        }
    }
}

impl Source {
    fn follow(registry: &Registry, scope: Scope, after: Revision) -> Source {
        match registry.store.watch(scope.clone(), after) {
            Ok(cursor) => Source::Followed(cursor),
            Err(_) => Source::Lost(scope),
        }
    }

    async fn changed(&mut self, registry: &Registry) {
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

/// The scopes in which a change may define the resource anew or remove it. Built-ins are never
/// defined anew.
fn definition(target: &Target) -> [Option<Scope>; 2] {
    let within = |resource| Some(Scope::cluster(resource, target.cluster.clone()));
    let bundles = Some(Scope::cluster(ids::bundles(), ClusterName::bound_crds()));
    // A view changes with its export, and what it shows with the export's schemas.
    if let ViewScope::AllClusters(across) = &target.view_scope {
        return match across.by {
            By::Provider(_) => [within(ids::apiexports()), bundles],
            By::Everybody | By::Consumer(_) => [None, None],
        };
    }
    match &target.served.origin {
        Origin::System => [None, None],
        Origin::Bound { .. } => [within(ids::claims()), bundles],
        Origin::Local { .. } => [within(ids::claims()), within(ids::customresourcedefinitions())],
    }
}

/// The scope of the logical cluster that is watched: it may be switched off, go, or need its
/// initializer no more.
fn cluster(target: &Target) -> Option<Scope> {
    let is_one = !target.is_across() && !target.cluster.is_system();
    is_one.then(|| Scope::cluster(ids::logicalclusters(), target.cluster.clone()))
}

/// Returns true if the state of a snapshot lets a watch go on.
pub(super) fn hold(registry: &Registry, target: &Target, snapshot: &Snapshot) -> bool {
    is_open(target, snapshot) && !is_redefined(registry, target, snapshot)
}

/// Returns true if the logical cluster lets its content be watched. It tells about itself even when
/// it is switched off.
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
fn is_redefined(registry: &Registry, target: &Target, snapshot: &Snapshot) -> bool {
    let Target { cluster, served, .. } = target;
    if let ViewScope::AllClusters(across) = &target.view_scope {
        // Other generations are shown as they come; the watch ends with the version.
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
