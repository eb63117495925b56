//! What is known about one logical cluster.

use super::bindings::{self, DefaultBinding};
use crate::{
    content::{Content, Sweep, sweep},
    workspace::owner,
    write::{list, text},
};
use insula_api::{ClusterName, Json, ObjectKey, Timestamp, names::well_known::BINDINGS_INITIALIZER};
use insula_registry::{Registry, Served, admission::types, ids};
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// The world of a logical cluster.
pub(crate) struct World {
    pub(crate) cluster: ClusterName,
    /// The LogicalCluster, if it still exists.
    pub(crate) logical: Option<(Entry, Json)>,
    /// It was just made, by nobody who says what is in it.
    pub(crate) newborn: Option<Newborn>,
    /// The default bindings that it waits for.
    pub(crate) bindings: Vec<DefaultBinding>,
    /// What is still in it, while it is being deleted.
    pub(crate) content: Option<Remains>,
    /// The Workspace that it belongs to, while it is being deleted.
    pub(crate) owner: Option<(Entry, Json)>,
    pub(crate) now: Timestamp,
}

/// What a cluster that nobody began needs to begin.
pub(crate) struct Newborn {
    /// Its type and all that the type extends.
    pub(crate) types: Vec<types::Resolved>,
    pub(crate) external_url: String,
    pub(crate) trust: Arc<str>,
}

/// What a dying cluster still has: objects, then what serves them.
pub(crate) struct Remains {
    pub(crate) objects: Sweep,
    /// Namespaces, definitions and bindings: empty shells once the objects are gone.
    pub(crate) shells: Vec<Entry>,
    /// What the server noted there for itself.
    pub(crate) internals: Vec<Entry>,
}

pub(super) fn observe(registry: &Registry, cluster: &ClusterName, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let load = |key: &ObjectKey| {
        snapshot
            .get(key)
            .map(|entry| (entry.clone(), entry.object.body_value()))
    };
    let logical = load(&ids::logical_cluster(cluster));
    let deleting = logical
        .as_ref()
        .is_some_and(|(entry, _)| entry.object.meta.is_deleting());
    let waits = logical.as_ref().is_some_and(|(_, value)| {
        list(value, "/status/initializers")
            .iter()
            .any(|i| i == BINDINGS_INITIALIZER)
    });
    let unborn = logical
        .as_ref()
        .is_some_and(|(_, value)| text(value, "/status/phase") == "Scheduling");
    let newborn = || {
        Some(Newborn {
            types: types::closure(snapshot, types::of_cluster(snapshot, cluster)?),
            external_url: registry.external_url.clone(),
            trust: registry.trust.clone(),
        })
    };
    World {
        newborn: if unborn && !deleting { newborn() } else { None },
        bindings: if waits && !deleting {
            bindings::of(snapshot, cluster, |_| true)
        } else {
            Vec::new()
        },
        content: deleting.then(|| remains(registry, snapshot, cluster, now)),
        owner: match &logical {
            Some((_, value)) if deleting => owner(value).and_then(|key| load(&key)),
            _ => None,
        },
        cluster: cluster.clone(),
        logical,
        now,
    }
}

fn remains(registry: &Registry, snapshot: &Snapshot, cluster: &ClusterName, now: Timestamp) -> Remains {
    let in_cluster = |id| snapshot.range(&insula_api::Scope::cluster(id, cluster.clone()), None, usize::MAX);
    let shell_kinds = [ids::namespaces(), ids::customresourcedefinitions(), ids::apibindings()];
    let is_object = |served: &&Served| {
        let id = served.resource_id();
        served.alias.is_none() && id != ids::logicalclusters() && !shell_kinds.contains(&id)
    };
    let served = registry.catalog.served(snapshot, cluster);
    let mut contents: Vec<Content> = served.iter().filter(is_object).map(Content::of).collect();
    let shells: Vec<Entry> = shell_kinds.iter().cloned().flat_map(in_cluster).collect();
    // A binding may have objects that its claim no longer shows.
    for shell in shells.iter().filter(|shell| shell.key.resource == ids::apibindings()) {
        for bound in list(&shell.object.body_value(), "/status/boundResources") {
            let resource = insula_api::ResourceId {
                group: text(bound, "/group").into(),
                resource: text(bound, "/resource").into(),
                identity: text(bound, "/schema/identityHash").into(),
            };
            if !contents.iter().any(|content| content.resource == resource) {
                contents.push(Content::custom(resource));
            }
        }
    }
    Remains {
        objects: sweep(snapshot, &contents, cluster, None, now),
        shells,
        internals: [ids::claims(), ids::registers()]
            .into_iter()
            .flat_map(in_cluster)
            .collect(),
    }
}
