//! WorkspaceTypes: addresses of the virtual workspaces in which controllers find the workspaces
//! that wait for them.

use crate::{runtime::Reconciler, write::sort_conditions};
use insula_api::{Condition, Json, ObjectKey, ResourceId, Timestamp, set_condition};
use insula_registry::{Intent, Plan, Registry, ids};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Reconciles WorkspaceTypes.
pub(crate) struct WorkspaceTypes {
    registry: Arc<Registry>,
}

/// World of a type.
pub(crate) struct World {
    workspace_type: Option<(Entry, Json)>,
    external_url: String,
    now: Timestamp,
}

impl WorkspaceTypes {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
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
        let workspace_type = snapshot.get(key).map(|entry| {
            let value = entry.object.body_value();
            (entry, value)
        });
        World {
            workspace_type,
            external_url: self.registry.external_url.clone(),
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        let Some((entry, old)) = &world.workspace_type else {
            return Plan::rest();
        };
        if entry.object.meta.is_deleting() {
            return Plan::rest();
        }
        let mut value = old.clone();
        let name = format!("{}:{}", entry.key.cluster, entry.key.name);
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
        Plan::of(vec![Intent::Update(entry.clone(), value)])
    }
}
