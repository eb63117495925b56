//! Mounts: workspaces whose content is on another server. An object of the parent has its address
//! (`status.URL`) and its health (`status.phase`); the Workspace mirrors them, and requests are
//! forwarded.

use crate::{
    loaded::Loaded,
    runtime::Reconciler,
    workspace::show_phase,
    write::{count_generation, sort_conditions, text},
};
use insula_api::{
    ClusterName, Condition, Json, Object, ObjectKey, ResourceId, Scope, Timestamp,
    kinds::{self, MountReference, Workspace},
    set_condition,
};
use insula_catalog::ids;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const READY: &str = "WorkspaceMountReady";

/// Reconciles Workspaces that are mounts.
pub(crate) struct Mounts {
    registry: Arc<Deps>,
    /// The Workspaces that mount an object, by the cluster and name of that object.
    index: Mutex<Index>,
}

type Index = HashMap<(ClusterName, Arc<str>), Vec<ObjectKey>>;

/// World of a mount: its Workspace, and the object that it refers to.
pub(crate) struct World {
    workspace: Loaded<Workspace>,
    reference: MountReference,
    target: Option<Json>,
    now: Timestamp,
}

impl Mounts {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Mounts {
            registry,
            index: Mutex::default(),
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self, snapshot: &Snapshot, key: &ObjectKey, reference: &MountReference) -> Option<Json> {
        let api_version = &*reference.api_version;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = self.registry.catalog.served(snapshot, &key.cluster);
        let served = served
            .iter()
            .find(|served| **served.group() == *group && *served.names().kind == *reference.kind)?;
        let found = ObjectKey {
            resource: served.resource_id(),
            cluster: key.cluster.clone(),
            namespace: reference.namespace.as_str().into(),
            name: reference.name.as_str().into(),
        };
        insula_catalog::stored::value(served, &snapshot.get(&found)?, version).ok()
    }
}

impl Reconciler for Mounts {
    type Key = ObjectKey;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "mount"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::workspaces()]
    }

    fn scopes(&self) -> Vec<Scope> {
        vec![Scope::everything()]
    }

    fn restart(&self) {
        self.index().clear();
    }

    /// Returns the mounts that changed, or that refer to the changed object. Nearly all changes
    /// cost a lookup in a small table.
    fn keys(&self, change: &Change, _: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        let mut index = self.index();
        if key.resource != ids::workspaces() {
            let found = (!index.is_empty()).then(|| index.get(&(key.cluster.clone(), key.name.clone())));
            return found.flatten().cloned().unwrap_or_default();
        }
        if let Some(target) = change.old.as_ref().and_then(|old| target_name(&old.object)) {
            let at = (key.cluster.clone(), target);
            if let Some(mounts) = index.get_mut(&at) {
                mounts.retain(|mount| mount != key);
                if mounts.is_empty() {
                    index.remove(&at);
                }
            }
        }
        let Some(target) = change.new.as_ref().and_then(|new| target_name(new)) else {
            return Vec::new();
        };
        index
            .entry((key.cluster.clone(), target))
            .or_default()
            .push(key.clone());
        vec![key.clone()]
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<World> {
        let workspace = Loaded::<Workspace>::get(snapshot, key).filter(|workspace| !workspace.is_deleting())?;
        let reference = workspace.view.spec.mount.clone()?.r#ref;
        Some(World {
            target: self.target(snapshot, key, &reference),
            workspace,
            reference,
            now: self.registry.clock.now(),
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        world.as_ref().map_or_else(Plan::rest, decide)
    }
}

/// Returns the name of the object that a Workspace mounts.
fn target_name(workspace: &Object) -> Option<Arc<str>> {
    let is_mount = workspace.body().iter().any(|piece| piece.contains("\"mount\""));
    let workspace: Workspace = is_mount.then(|| kinds::read(&workspace.body_value()))?;
    Some(workspace.spec.mount?.r#ref.name.as_str().into())
}

fn decide(world: &World) -> Plan {
    let mut value = world.workspace.value.clone();
    let state = state(world);
    let phase = match &state {
        Ok(url) => {
            if value["spec"]["URL"] != *url {
                value["spec"]["URL"] = Json::from(*url);
                count_generation(&mut value);
            }
            set_condition(&mut value, &Condition::holds(READY), world.now);
            "Ready"
        }
        Err(problem) => {
            set_condition(&mut value, problem, world.now);
            "Unavailable"
        }
    };
    sort_conditions(&mut value);
    show_phase(&mut value, phase);
    Plan::new(vec![world.workspace.update(value)])
}

/// Returns the address of the content, or the condition that tells why there is none.
fn state(world: &World) -> Result<&str, Condition> {
    let MountReference {
        kind, namespace, name, ..
    } = &world.reference;
    let Some(target) = &world.target else {
        let message = format!("{kind} {:?} not found", format!("{namespace}/{name}"));
        return Err(Condition::fails(READY, "MountObjectNotFound", message));
    };
    let url = text(target, "/status/URL");
    if text(target, "/status/phase") != "Ready" || !url.starts_with("https://") {
        let message = format!("Mount is not reporting ready. See {kind} {name:?} status for more details");
        return Err(Condition::fails(READY, "MountObjectNotReady", message));
    }
    Ok(url)
}
