//! World of the ThirdPartyResource reconciler: everything that the decision about one registration
//! looks at.

use crate::{
    content::BATCH_MAX,
    crd::{group, names, world::is_own},
    write::{alive, text},
};
use insula_api::{Json, ObjectKey, ResourceId, Scope, Timestamp};
use insula_catalog::{ids, registration};
use insula_registry::{Deps, Intent};
use insula_store::{Entry, Snapshot};

/// World of a registration.
pub(crate) struct World {
    /// The registration, if it exists.
    pub(super) registration: Option<Registration>,
    /// Guards on the cluster; `None` while the cluster is being deleted.
    pub(super) alive: Option<Vec<Intent>>,
    pub(super) now: Timestamp,
}

/// A registration that names a kind.
pub(super) struct Registration {
    pub(super) entry: Entry,
    pub(super) value: Json,
    /// The definition that it wants, as the `spec` of a CustomResourceDefinition.
    pub(super) wanted: Json,
    /// Names of other APIs of its group.
    pub(super) taken: names::Taken,
    pub(super) route_key: ObjectKey,
    pub(super) route: Option<Entry>,
    /// Its next objects, while it is being deleted: at most [`BATCH_MAX`].
    pub(super) objects: Vec<Entry>,
}

pub(super) fn observe(registry: &Deps, key: &ObjectKey, snapshot: &Snapshot) -> World {
    World {
        registration: snapshot.get(key).and_then(|entry| read(registry, snapshot, entry)),
        alive: alive(snapshot, &key.cluster),
        now: registry.clock.now(),
    }
}

fn read(registry: &Deps, snapshot: &Snapshot, entry: Entry) -> Option<Registration> {
    let cluster = &entry.key.cluster;
    let value = entry.object.body_value();
    let wanted = registration::wanted(&value)?;
    let (group, plural) = (text(&wanted, "/group"), text(&wanted, "/names/plural"));
    let route_key = ids::resource_route(cluster, group, plural);
    let route = snapshot.get(&route_key);
    let is_own = route.as_ref().is_some_and(|route| is_own(route, &entry.key));
    // Without the route the objects of this name are those of another definition.
    let objects = match entry.object.meta.is_deleting() && is_own {
        true => {
            let scope = Scope::cluster(ResourceId::local(group, plural), cluster.clone());
            snapshot.range(&scope, None, BATCH_MAX)
        }
        false => Vec::new(),
    };
    Some(Registration {
        taken: group::taken(registry, snapshot, &entry, group),
        route_key,
        route,
        objects,
        wanted,
        value,
        entry,
    })
}
