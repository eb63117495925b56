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
    Condition, Json, ObjectKey, ResourceId, Scope, Timestamp,
    kinds::{self, MountReference, Workspace},
    names::annotations::IS_MOUNT,
    set_condition,
};
use insula_catalog::ids;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

const READY: &str = "WorkspaceMountReady";

/// Reconciles Workspaces that are mounts.
pub(crate) struct Mounts {
    registry: Arc<Deps>,
}

/// World of a mount: its Workspace, and the object that it refers to.
pub(crate) struct World {
    workspace: Loaded<Workspace>,
    reference: MountReference,
    target: Option<Json>,
    now: Timestamp,
}

impl Mounts {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Mounts { registry }
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

    /// Returns the mounts that changed, or that refer to the changed object. Only objects of
    /// tenants' APIs carry the mount annotation, so most changes cost a search in a few bytes.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        let mentions = |text: &str| {
            let mut sides = change.new.iter().chain(change.old.as_ref().map(|old| &old.object));
            sides.any(|object| object.body().iter().any(|piece| piece.contains(text)))
        };
        if key.resource == ids::workspaces() {
            return if mentions("\"mount\"") {
                vec![key.clone()]
            } else {
                Vec::new()
            };
        }
        let is_ours = self
            .registry
            .catalog
            .system()
            .get(&key.resource.group, &key.resource.resource)
            .is_some();
        if is_ours || key.resource.group == ids::INTERNAL.into() || !mentions(IS_MOUNT) {
            return Vec::new();
        }
        let mut keys = Vec::new();
        snapshot.for_each(&Scope::cluster(ids::workspaces(), key.cluster.clone()), |entry| {
            let workspace: Workspace = kinds::read(&entry.object.body_value());
            if workspace.spec.mount.is_some_and(|mount| mount.r#ref.name == *key.name) {
                keys.push(entry.key.clone());
            }
            ControlFlow::Continue(())
        });
        keys
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
    if target["metadata"]["annotations"][IS_MOUNT] != "true" {
        let message = format!("{kind} {name:?} is no mount: its owner has to annotate it with {IS_MOUNT}: \"true\"");
        return Err(Condition::fails(READY, "MountAnnotationInvalid", message));
    }
    let url = text(target, "/status/URL");
    if text(target, "/status/phase") != "Ready" || !url.starts_with("https://") {
        let message = format!("Mount is not reporting ready. See {kind} {name:?} status for more details");
        return Err(Condition::fails(READY, "MountObjectNotReady", message));
    }
    Ok(url)
}
