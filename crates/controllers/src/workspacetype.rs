//! WorkspaceTypes: addresses of the virtual workspaces in which controllers find the workspaces
//! that wait for them.

use crate::{loaded::Loaded, runtime::Reconciler, workspace::base_url, write::sort_conditions};
use insula_api::{Condition, ObjectKey, ResourceId, Timestamp, kinds::WorkspaceType, set_condition};
use insula_catalog::ids;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Reconciles WorkspaceTypes.
pub(crate) struct WorkspaceTypes {
    registry: Arc<Deps>,
}

/// World of a type.
pub(crate) struct World {
    workspace_type: Option<Loaded<WorkspaceType>>,
    external_url: String,
    now: Timestamp,
}

impl WorkspaceTypes {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        WorkspaceTypes { registry }
    }
}

impl Reconciler for WorkspaceTypes {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "workspacetype"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::workspacetypes()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        if change.new.is_some() {
            vec![change.key.clone()]
        } else {
            Vec::new()
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        World {
            workspace_type: Loaded::get(snapshot, key),
            external_url: base_url(&self.registry, snapshot),
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        let workspace_type = world.workspace_type.as_ref();
        let Some(workspace_type) = workspace_type.filter(|found| !found.is_deleting()) else {
            return Plan::rest();
        };
        let mut value = workspace_type.value.clone();
        let key = &workspace_type.entry.key;
        let name = format!("{}:{}", key.cluster, key.name);
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        value["status"]["virtualWorkspaces"] = json!([
            {"type": "initializing", "url": format!("{}/services/initializingworkspaces/{name}", world.external_url)},
            {"type": "terminating", "url": format!("{}/services/terminatingworkspaces/{name}", world.external_url)},
        ]);
        for condition in ["VirtualWorkspaceURLsReady", "Ready"] {
            set_condition(&mut value, &Condition::holds(condition), world.now);
        }
        sort_conditions(&mut value);
        Plan::new(vec![workspace_type.update(value)])
    }
}
