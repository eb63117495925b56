//! Default bindings that types maintain (`defaultAPIBindingLifecycle: Maintain`): existing
//! workspaces get missing bindings, and changed ones are reset. Exports that a type no longer names
//! stay bound.
//!
//! A change of a type or of an export looks at all types, of which hardly any maintains bindings,
//! and then at the workspaces of those that it is about. A change of a binding concerns its own
//! workspace.

use crate::{
    logicalcluster::bindings::{self, DefaultBinding, Keep},
    runtime::Reconciler,
    write::unchanged,
};
use insula_access::workspace_types::{self, Resolved};
use insula_api::{ClusterName, Json, ResourceId, Scope, kinds::WorkspacePhase};
use insula_catalog::{ids, indexes, locate};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Reconciles the default bindings of workspaces that are Ready.
pub(crate) struct Maintenance;

/// World of a workspace: the bindings that its types maintain.
pub(crate) struct World {
    logical: Entry,
    bindings: Vec<DefaultBinding>,
}

impl Maintenance {
    pub(crate) fn new(_registry: Arc<Deps>) -> Self {
        Maintenance
    }
}

impl Reconciler for Maintenance {
    type Key = ClusterName;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "maintenance"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::workspacetypes(), ids::apiexports(), ids::apibindings()]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ClusterName> {
        let key = &change.key;
        match &*key.resource.resource {
            "workspacetypes" => {
                let changed = workspace_types::get(snapshot, &key.cluster, &key.name);
                changed.map_or(Vec::new(), |changed| {
                    of_types(snapshot, |t| t.reference == changed.reference)
                })
            }
            // A binding takes nothing else from its export.
            "apiexports" if claims(change.new.as_ref()) != claims(change.old.as_ref().map(|old| &old.object)) => {
                of_types(snapshot, |t| {
                    let declared = &t.view.default_bindings;
                    t.view.maintains && declared.iter().any(|(_, export)| *export == *key.name)
                })
            }
            "apibindings" if maintained(snapshot, &key.cluster) => vec![key.cluster.clone()],
            _ => Vec::new(),
        }
    }

    fn observe(&self, key: &ClusterName, snapshot: &Snapshot) -> Option<World> {
        let logical = snapshot.get(&ids::logical_cluster(key))?;
        let ready = locate::logical_cluster(snapshot, key)?.phase == WorkspacePhase::Ready;
        (ready && !logical.object.meta.is_deleting()).then(|| World {
            logical,
            bindings: bindings::for_cluster(snapshot, key, |view| view.maintains),
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        let Some(World { logical, bindings }) = world else {
            return Plan::rest();
        };
        let mut intents = vec![unchanged(logical.key.clone(), Some(logical))];
        intents.extend(bindings.iter().filter_map(|wanted| wanted.keep(logical, Keep::Always)));
        Plan::new(intents)
    }
}

fn claims(export: Option<&Arc<insula_api::Object>>) -> Option<Json> {
    export.map(|export| export.body_value()["spec"]["permissionClaims"].take())
}

fn maintained(snapshot: &Snapshot, cluster: &ClusterName) -> bool {
    let own = workspace_types::of_cluster(snapshot, cluster);
    own.is_some_and(|own| workspace_types::closure(snapshot, own).iter().any(|t| t.view.maintains))
}

/// Returns the clusters whose type is or extends one of the given types, if some type in that line
/// maintains bindings.
fn of_types(snapshot: &Snapshot, concerns: impl Fn(&Resolved) -> bool) -> Vec<ClusterName> {
    let mut types = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::workspacetypes()), |entry| {
        types.extend(workspace_types::get(snapshot, &entry.key.cluster, &entry.key.name));
        ControlFlow::Continue(())
    });
    if !types.iter().any(|own| own.view.maintains) {
        return Vec::new();
    }
    let is_concerned = |own: &&Resolved| {
        let line = workspace_types::closure(snapshot, (*own).clone());
        line.iter().any(&concerns) && line.iter().any(|t| t.view.maintains)
    };
    let concerned = types.iter().filter(is_concerned);
    let clusters =
        concerned.flat_map(|own| snapshot.indexed(&indexes::LOGICALCLUSTERS_BY_TYPE, &own.reference.to_string()));
    clusters.map(|entry| entry.key.cluster).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::TestControlPlane;
    use insula_api::Json;
    use serde_json::json;

    const BINDINGS: (&str, &str) = ("apis.kcp.io/v1alpha2", "apibindings");

    fn bindings(rig: &TestControlPlane, path: &str) -> Vec<Json> {
        let cluster = rig.cluster(path);
        let keys = rig.keys(insula_catalog::ids::apibindings());
        let own = keys.iter().filter(|key| key.cluster == cluster);
        own.filter_map(|key| rig.get(path, BINDINGS.0, BINDINGS.1, &key.name))
            .collect()
    }

    /// A type whose workspaces bind an export of `root`, and a workspace of a type that extends it.
    async fn kept(lifecycle: &str) -> TestControlPlane {
        let rig = TestControlPlane::new().await;
        let export =
            |name: &str| json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}});
        for name in ["maps", "more"] {
            rig.create("root", "apiexports", &export(name).to_string()).await;
        }
        let base = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType",
            "metadata": {"name": "base"},
            "spec": {"extend": {"with": [{"name": "universal", "path": "root"}]},
                "defaultAPIBindingLifecycle": lifecycle,
                "defaultAPIBindings": [{"path": "root", "export": "maps"}]}});
        let own = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "own"},
            "spec": {"extend": {"with": [{"name": "base", "path": "root"}]}}});
        for workspace_type in [base, own] {
            rig.create("root", "workspacetypes", &workspace_type.to_string()).await;
        }
        let workspace = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"},
            "spec": {"type": {"name": "own", "path": "root"}}});
        rig.create("root", "workspaces", &workspace.to_string()).await;
        rig.settle().await;
        assert_eq!(bindings(&rig, "root:w").len(), 1);
        rig
    }

    async fn change(rig: &TestControlPlane, plural: &str, name: &str, spec: Json) {
        let version = if plural == "workspacetypes" {
            "tenancy.kcp.io/v1alpha1"
        } else {
            BINDINGS.0
        };
        rig.patch("root", version, plural, name, json!({"spec": spec}))
            .await
            .unwrap();
        rig.settle().await;
    }

    #[tokio::test]
    async fn maintained_bindings_follow_the_type_and_the_export() {
        let rig = kept("Maintain").await;
        let claim = json!([{"group": "", "resource": "configmaps", "verbs": ["get"]}]);
        change(&rig, "apiexports", "maps", json!({"permissionClaims": claim})).await;
        let accepted = |rig: &TestControlPlane| bindings(rig, "root:w")[0]["spec"]["permissionClaims"][0].clone();
        assert_eq!(accepted(&rig)["state"], "Accepted");
        let name = bindings(&rig, "root:w")[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned();

        let mut rejected = accepted(&rig);
        rejected["state"] = json!("Rejected");
        let spec = json!({"spec": {"permissionClaims": [rejected]}});
        rig.patch("root:w", BINDINGS.0, BINDINGS.1, &name, spec).await.unwrap();
        rig.settle().await;
        assert_eq!(accepted(&rig)["state"], "Accepted", "what was changed is put back");

        rig.delete("root:w", BINDINGS.0, BINDINGS.1, &name).await.unwrap();
        rig.settle().await;
        assert_eq!(bindings(&rig, "root:w").len(), 1, "what was deleted comes back");

        let both = json!([{"path": "root", "export": "maps"}, {"path": "root", "export": "more"}]);
        change(&rig, "workspacetypes", "base", json!({"defaultAPIBindings": both})).await;
        assert_eq!(bindings(&rig, "root:w").len(), 2, "what is new is bound");
        change(&rig, "workspacetypes", "base", json!({"defaultAPIBindings": null})).await;
        assert_eq!(bindings(&rig, "root:w").len(), 2, "what is no longer named stays");
        assert_eq!(rig.settle().await, 0);
    }

    #[tokio::test]
    async fn initial_bindings_are_created_once() {
        let rig = kept("InitializeOnly").await;
        let name = bindings(&rig, "root:w")[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        rig.delete("root:w", BINDINGS.0, BINDINGS.1, &name).await.unwrap();
        rig.settle().await;
        assert!(bindings(&rig, "root:w").is_empty());
    }
}
