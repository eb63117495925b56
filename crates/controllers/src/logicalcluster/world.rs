//! What is known about one logical cluster.

use crate::{
    content::{Content, Sweep, sweep},
    workspace::{BINDINGS_INITIALIZER, owner},
    write::{list, text},
};
use insula_api::{ClusterName, Json, ObjectKey, Timestamp};
use insula_registry::{
    Registry, Served,
    admission::{digest, types},
    ids, locate,
};
use insula_store::{Entry, Snapshot};

/// The world of a logical cluster.
pub(crate) struct World {
    pub(crate) cluster: ClusterName,
    /// The LogicalCluster, if it still exists.
    pub(crate) logical: Option<(Entry, Json)>,
    /// The default bindings that it waits for.
    pub(crate) bindings: Vec<DefaultBinding>,
    /// What is still in it, while it is being deleted.
    pub(crate) content: Option<Remains>,
    /// The Workspace that it belongs to, while it is being deleted.
    pub(crate) owner: Option<(Entry, Json)>,
    pub(crate) now: Timestamp,
}

/// An API that the type of a workspace binds in it.
pub(crate) struct DefaultBinding {
    pub(crate) path: String,
    pub(crate) export: String,
    /// The exporter's cluster and the APIExport, once there is one.
    pub(crate) found: Option<(ClusterName, Json)>,
    pub(crate) key: ObjectKey,
    pub(crate) binding: Option<Json>,
}

/// What a dying cluster still has: objects, then what serves them.
pub(crate) struct Remains {
    pub(crate) objects: Sweep,
    /// Namespaces, definitions and bindings: empty shells once the objects are gone.
    pub(crate) shells: Vec<Entry>,
    pub(crate) claims: Vec<Entry>,
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
    World {
        bindings: if waits && !deleting {
            default_bindings(snapshot, cluster)
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

fn default_bindings(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<DefaultBinding> {
    let Some(own) = types::of_cluster(snapshot, cluster) else {
        return Vec::new();
    };
    let mut found: Vec<DefaultBinding> = Vec::new();
    for (path, export) in types::closure(snapshot, own)
        .iter()
        .flat_map(|t| t.view.default_bindings.clone())
    {
        if types::is_built_in(&path, &export) || found.iter().any(|b| b.path == path && b.export == export) {
            continue;
        }
        let exporter = insula_api::ClusterPath::parse(&path)
            .ok()
            .and_then(|p| locate::locate(snapshot, &p).ok());
        let name = digest::default_binding_name(cluster, &path, &export);
        let key = ObjectKey::cluster_scoped(ids::apibindings(), cluster.clone(), &name);
        found.push(DefaultBinding {
            found: exporter.and_then(|exporter| {
                let key = ObjectKey::cluster_scoped(ids::apiexports(), exporter.clone(), &export);
                Some((exporter, snapshot.get(&key)?.object.body_value()))
            }),
            binding: snapshot.get(&key).map(|entry| entry.object.body_value()),
            key,
            path,
            export,
        });
    }
    found
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
        claims: in_cluster(ids::claims()),
    }
}
