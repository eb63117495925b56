//! World of the LogicalCluster reconciler: everything that the decision about one cluster looks at.

use super::bindings::{self, DefaultBinding};
use crate::{
    content::{Content, Sweep, sweep},
    loaded::Loaded,
    workspace::{base_url, owner, shard_url},
};
use insula_access::workspace_types;
use insula_api::{
    ClusterName, Scope, Timestamp,
    kinds::{ApiBinding, LogicalCluster, Workspace, WorkspacePhase},
    names::well_known::BINDINGS_INITIALIZER,
};
use insula_catalog::{Served, ids, registration::Migration};
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// World of a logical cluster.
pub(crate) struct World {
    pub(crate) cluster: ClusterName,
    /// The LogicalCluster, if it exists.
    pub(crate) logical: Option<Loaded<LogicalCluster>>,
    /// Set for a cluster that was created without a Workspace and has no content yet.
    pub(crate) newborn: Option<Newborn>,
    /// Base URL of the shard, for a cluster that has a URL already.
    pub(crate) shard_url: Option<String>,
    /// Default bindings that it waits for.
    pub(crate) bindings: Vec<DefaultBinding>,
    /// Its content, while it is being deleted.
    pub(crate) content: Option<Remains>,
    /// The Workspace that it belongs to, while it is being deleted.
    pub(crate) owner: Option<Loaded<Workspace>>,
    pub(crate) now: Timestamp,
}

/// Input for the content of a new cluster.
pub(crate) struct Newborn {
    /// Its type and all that the type extends.
    pub(crate) types: Vec<workspace_types::Resolved>,
    pub(crate) external_url: String,
    pub(crate) trust: Arc<str>,
}

/// Content of a cluster that is being deleted: objects, then the objects that serve them.
pub(crate) struct Remains {
    pub(crate) objects: Sweep,
    /// Namespaces, definitions, registrations and bindings: empty once the objects are gone.
    pub(crate) shells: Vec<Entry>,
    /// Internal objects of the server.
    pub(crate) internals: Vec<Entry>,
}

pub(super) fn observe(registry: &Deps, cluster: &ClusterName, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let mut world = World {
        cluster: cluster.clone(),
        logical: None,
        newborn: None,
        shard_url: None,
        bindings: Vec::new(),
        content: None,
        owner: None,
        now,
    };
    let Some(logical) = Loaded::<LogicalCluster>::get(snapshot, &ids::logical_cluster(cluster)) else {
        return world;
    };
    let status = &logical.view.status;
    if logical.is_deleting() {
        world.content = Some(remains(registry, snapshot, cluster, now));
        world.owner = owner(&logical.view).and_then(|key| Loaded::get(snapshot, &key));
    } else {
        world.shard_url = shard_url(snapshot);
        if status.phase == Some(WorkspacePhase::Scheduling) {
            world.newborn = workspace_types::of_cluster(snapshot, cluster).map(|own| Newborn {
                types: workspace_types::closure(snapshot, own),
                external_url: base_url(registry, snapshot),
                trust: registry.trust.present(),
            });
        }
        if status.initializers.iter().any(|name| name == BINDINGS_INITIALIZER) {
            world.bindings = bindings::for_cluster(snapshot, cluster, |_| true);
        }
    }
    world.logical = Some(logical);
    world
}

fn remains(registry: &Deps, snapshot: &Snapshot, cluster: &ClusterName, now: Timestamp) -> Remains {
    let in_cluster = |id| snapshot.range(&Scope::cluster(id, cluster.clone()), None, usize::MAX);
    let shell_kinds = [
        ids::namespaces(),
        ids::customresourcedefinitions(),
        ids::first_registrations(),
        ids::second_registrations(),
        ids::apibindings(),
    ];
    let is_object = |served: &&Served| {
        let id = served.resource_id();
        served.alias.is_none() && id != ids::logicalclusters() && !shell_kinds.contains(&id)
    };
    let served = registry.catalog.served(snapshot, cluster);
    let mut contents: Vec<Content> = served.iter().filter(is_object).map(Content::for_api).collect();
    let shells: Vec<Entry> = shell_kinds.iter().cloned().flat_map(in_cluster).collect();
    // A binding may have objects that no route leads to any more.
    for shell in shells.iter().filter(|shell| shell.key.resource == ids::apibindings()) {
        let binding = Loaded::<ApiBinding>::from_entry(shell.clone());
        for bound in &binding.view.status.bound_resources {
            let resource = bound.id();
            if !contents.iter().any(|content| content.resource == resource) {
                contents.push(Content::custom(resource));
            }
        }
    }
    // A migration that has not ended has objects without a route.
    for record in in_cluster(ids::registration_migrations()) {
        if let Some(migration) = Migration::read(&record.object).filter(Migration::moves) {
            contents.push(Content::custom(migration.resources().0));
        }
    }
    Remains {
        objects: sweep(snapshot, &contents, cluster, None, now),
        shells,
        internals: [
            ids::resource_routes(),
            ids::version_uses(),
            ids::serialization_points(),
            ids::registration_migrations(),
        ]
        .into_iter()
        .flat_map(in_cluster)
        .collect(),
    }
}
