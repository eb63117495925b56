//! ValidatingAdmissionPolicies: type check of their expressions, reported in their status.

use crate::runtime::Reconciler;
use insula_admission::{ExpressionWarning, type_check};
use insula_api::{Json, ObjectKey, ResourceId};
use insula_catalog::ids;
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Reconciles ValidatingAdmissionPolicies.
pub(crate) struct Policies {
    registry: Arc<Deps>,
}

/// World of a policy whose generation is not checked yet.
pub(crate) struct World {
    entry: Entry,
    value: Json,
    warnings: Vec<ExpressionWarning>,
}

impl Policies {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Policies { registry }
    }
}

impl Reconciler for Policies {
    type Key = ObjectKey;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "policy"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::validatingadmissionpolicies()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        change.new.iter().map(|_| change.key.clone()).collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<World> {
        let entry = snapshot.get(key)?;
        let value = entry.object.body_value();
        let seen = value["status"]["observedGeneration"].as_i64() == Some(entry.object.meta.generation);
        if seen || entry.object.meta.is_deleting() {
            return None;
        }
        let warnings = type_check(&self.registry.catalog, snapshot, &key.cluster, &value);
        Some(World { entry, value, warnings })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        let Some(World { entry, value, warnings }) = world else {
            return Plan::rest();
        };
        let warning = |w: &ExpressionWarning| json!({"fieldRef": w.field, "warning": w.warning});
        let mut status = value["status"].as_object().cloned().unwrap_or_default();
        let checked = match warnings.is_empty() {
            true => json!({}),
            false => json!({"expressionWarnings": warnings.iter().map(warning).collect::<Vec<_>>()}),
        };
        status.insert("typeChecking".into(), checked);
        status.insert("observedGeneration".into(), json!(entry.object.meta.generation));
        let mut value = value.clone();
        value["status"] = Json::Object(status);
        Plan::new(vec![Intent::Update(entry.clone(), value)])
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestControlPlane;

    #[tokio::test]
    async fn a_policy_is_looked_at_once_for_each_generation() {
        let rig = TestControlPlane::new().await;
        let policy = "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: \
            p}, \
            spec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
            resources: [configmaps]}]}, validations: [{expression: has(object.data)}]}}";
        rig.create("root", "validatingadmissionpolicies", policy).await;
        assert_eq!(rig.settle().await, 1);
        let version = "admissionregistration.k8s.io/v1";
        let policy = rig
            .get("root", version, "validatingadmissionpolicies", "p")
            .expect("is there");
        assert_eq!(
            policy["status"],
            serde_json::json!({"observedGeneration": 1, "typeChecking": {}})
        );
    }
}
