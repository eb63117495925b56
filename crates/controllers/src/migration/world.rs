//! World of a storage migration: one resource of one cluster.

use super::{pace::Pace, request, scan};
use crate::{
    crd::world::storage_version,
    write::{list, text},
};
use insula_api::{Json, ObjectKey, Revision, Timestamp};
use insula_catalog::{Origin, ResourceRoute, Served, ids, registration::DefinitionKind};
use insula_registry::{Deps, Intent};
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

/// World of a resource.
pub(crate) struct World {
    /// Key of the route of its name.
    pub(super) key: ObjectKey,
    pub(super) now: Timestamp,
    pub(super) revision: Revision,
    /// The first unfinished StorageVersionMigration of it.
    pub(super) request: Option<(Entry, Json)>,
    pub(super) resource: Resource,
}

/// State of the resource.
pub(super) enum Resource {
    /// Nothing is due.
    AtRest,
    /// It is not served.
    Unknown,
    /// Its API is about to change.
    Changing,
    /// Its definition serves other versions than its bundle, which follows or is blocked.
    Following,
    /// Objects may be written.
    Ready(Box<Ready>),
}

/// Resource whose migration can proceed or end.
pub(super) struct Ready {
    pub(super) storage: Arc<str>,
    /// Guard of every write: the route.
    pub(super) guard: Option<Intent>,
    pub(super) owner: Option<Owner>,
    pub(super) scan: scan::Scan,
}

/// Object whose status names the versions that objects are stored in.
pub(super) enum Owner {
    Binding(Entry, Json),
    Definition(Entry, Json),
}

pub(super) fn observe(registry: &Deps, pace: &Pace, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let (plural, group) = key.name.split_once('.').unwrap_or((&key.name, ""));
    let group = if group == "core" { "" } else { group };
    let request = request::next(snapshot, &key.cluster, group, plural);
    let resource = match registry.catalog.resolve(snapshot, &key.cluster, group, plural) {
        Some(served) if !served.terminating => look(registry, pace, key, snapshot, &served, request.is_some()),
        Some(_) => Resource::Changing,
        None => Resource::Unknown,
    };
    World {
        key: key.clone(),
        now,
        revision: snapshot.revision(),
        request,
        resource,
    }
}

fn look(
    registry: &Deps,
    pace: &Pace,
    key: &ObjectKey,
    snapshot: &Snapshot,
    served: &Served,
    requested: bool,
) -> Resource {
    let storage = served.api.storage_version().name.clone();
    let find = |resource, name: &str| {
        let entry = snapshot.get(&ObjectKey::cluster_scoped(resource, key.cluster.clone(), name))?;
        let value = entry.object.body_value();
        Some((entry, value))
    };
    let (owner, automatic) = match &served.origin {
        Origin::System => (None, false),
        Origin::Bound { binding } => match find(ids::apibindings(), binding) {
            Some((entry, value)) => (Some(Owner::Binding(entry, value)), true),
            None => return Resource::Changing,
        },
        // Its versions differ in nothing but their name.
        Origin::Local { definition } if definition.kind != DefinitionKind::CustomResource => (None, false),
        Origin::Local { definition } => {
            let route = snapshot.get(key).map(|route| route.object.parsed(ResourceRoute::read));
            let found = find(ids::customresourcedefinitions(), &definition.name);
            let (Some(route), Some((entry, value))) = (route, found) else {
                return Resource::Changing;
            };
            // The served API, the definition and the guarding route must agree.
            if route.storage.as_ref() != Some(&storage) || storage_version(&value["spec"]) != Some(&storage) {
                return Resource::Changing;
            }
            let defined = super::names_of(&value, |version| version["served"] == true);
            let serves: BTreeSet<String> = served
                .served_versions()
                .map(|version| version.name.to_string())
                .collect();
            if route.bundle.is_some() && serves != defined {
                return Resource::Following;
            }
            // Without conversion rules definitions behave as in Kubernetes, where fields that the
            // storage version lacks are lost when an object is written: that needs a request.
            (Some(Owner::Definition(entry, value)), route.bundle.is_some())
        }
    };
    let due = automatic && owner.as_ref().is_some_and(|owner| owner.is_mixed(key, &storage));
    if !automatic && !requested {
        return Resource::AtRest;
    }
    let scan = scan::scan(registry, pace, served, &key.cluster, snapshot);
    // Moving the owners of fields to another version is no migration that a status reports.
    let owner = owner.filter(|_| due || requested);
    if owner.is_none() && !requested && scan.is_over() {
        return Resource::AtRest;
    }
    Resource::Ready(Box::new(Ready {
        guard: served
            .guard
            .as_ref()
            .map(|(key, revision)| Intent::Expect(key.clone(), Some(*revision))),
        owner,
        scan,
        storage,
    }))
}

impl Owner {
    /// Returns true if objects may be stored in other versions.
    fn is_mixed(&self, route: &ObjectKey, storage: &str) -> bool {
        let versions = match self {
            Owner::Binding(_, value) => bound(value, route).map_or(&[][..], |bound| list(bound, "/storageVersions")),
            Owner::Definition(_, value) => list(value, "/status/storedVersions"),
        };
        versions.iter().any(|version| version != storage)
    }

    /// Writes that all objects are stored in one version.
    pub(super) fn show_stored(&self, value: &mut Json, route: &ObjectKey, storage: &str) {
        match self {
            Owner::Definition(..) => value["status"]["storedVersions"] = json!([storage]),
            Owner::Binding(..) => {
                let bound = value["status"]["boundResources"].as_array_mut();
                let routed = bound.into_iter().flatten().filter(|bound| is_routed_by(bound, route));
                routed.for_each(|bound| bound["storageVersions"] = json!([storage]));
            }
        }
    }
}

fn is_routed_by(bound: &Json, route: &ObjectKey) -> bool {
    ids::resource_route(&route.cluster, text(bound, "/group"), text(bound, "/resource")).name == route.name
}

fn bound<'a>(binding: &'a Json, route: &ObjectKey) -> Option<&'a Json> {
    let mut all = list(binding, "/status/boundResources").iter();
    all.find(|bound| is_routed_by(bound, route))
}
