//! Aggregated ClusterRoles: their rules are those of the roles that their selectors match
//! (`pkg/controller/clusterroleaggregation`).

use crate::runtime::Reconciler;
use insula_api::{Json, LabelSelector, ObjectKey, ResourceId, Scope};
use insula_catalog::ids;
use insula_registry::{Deps, Intent, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

/// Reconciles aggregated ClusterRoles.
#[derive(Debug)]
pub(crate) struct Aggregation;

/// World: an aggregated role, and the roles of its workspace in the order of their names.
pub(crate) struct World {
    role: Entry,
    value: Json,
    others: Vec<Entry>,
}

impl Aggregation {
    pub(crate) fn new(_registry: Arc<Deps>) -> Self {
        Aggregation
    }
}

impl Reconciler for Aggregation {
    type Key = ObjectKey;
    type World = Option<World>;

    fn name(&self) -> &'static str {
        "aggregation"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::clusterroles()]
    }

    /// Returns all aggregated roles of the workspace: the changed role may match their selectors
    /// now, or no longer.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let roles = Scope::cluster(ids::clusterroles(), change.key.cluster.clone());
        let roles = snapshot.range(&roles, None, usize::MAX).into_iter();
        // The bytes are searched first: hardly any role aggregates.
        let aggregates = |role: &Entry| {
            let parts = role.object.body();
            parts.iter().any(|part| part.contains("\"aggregationRule\""))
        };
        roles.filter(aggregates).map(|role| role.key).collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> Option<World> {
        let role = snapshot.get(key)?;
        let value = role.object.body_value();
        let scope = Scope::cluster(ids::clusterroles(), key.cluster.clone());
        let aggregated = value["aggregationRule"].is_object() && !role.object.meta.is_deleting();
        aggregated.then(|| World {
            role,
            value,
            others: snapshot.range(&scope, None, usize::MAX),
        })
    }

    fn decide(&self, world: &Option<World>) -> Plan {
        let Some(World { role, value, others }) = world else {
            return Plan::rest();
        };
        let selectors = value["aggregationRule"]["clusterRoleSelectors"].as_array();
        let selectors = selectors.into_iter().flatten().map(LabelSelector::from_json);
        let selectors: Vec<LabelSelector> = selectors.filter_map(Result::ok).collect();
        let chosen = others.iter().filter(|other| {
            let labels = &other.object.meta.labels;
            other.key != role.key && selectors.iter().any(|selector| selector.matches(labels))
        });
        let (mut rules, mut known): (Vec<Json>, BTreeSet<String>) = Default::default();
        for other in chosen {
            let mut body = other.object.body_value();
            if let Json::Array(own) = body["rules"].take() {
                rules.extend(own.into_iter().filter(|rule| known.insert(rule.to_string())));
            }
        }
        let rules = json!(rules);
        if value["rules"] == rules || rules == json!([]) && value["rules"].is_null() {
            return Plan::rest();
        }
        let mut value = value.clone();
        value["rules"] = rules;
        Plan::new(vec![Intent::Update(role.clone(), value)])
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestControlPlane;
    use serde_json::json;

    const API: &str = "rbac.authorization.k8s.io/v1";

    fn role(name: &str, labels: &str, rules: &str) -> String {
        format!(
            "{{apiVersion: {API}, kind: ClusterRole, metadata: {{name: {name}, labels: {labels}}}, rules: {rules}}}"
        )
    }

    #[tokio::test]
    async fn a_role_is_made_of_those_that_it_selects() {
        let rig = TestControlPlane::new().await;
        let rule = |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
        let whole = format!(
            "{{apiVersion: {API}, kind: ClusterRole, metadata: {{name: whole}}, rules: [{}], \
            aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{part: 'yes'}}}}]}}}}",
            rule("ignored")
        );
        let got =
            |rig: &TestControlPlane| rig.get("root", API, "clusterroles", "whole").expect("is there")["rules"].clone();
        rig.create("root", "clusterroles", &whole).await;
        rig.settle().await;
        assert_eq!(got(&rig), json!([]));
        for (name, labels, resource) in [
            ("b", "{part: 'yes'}", "secrets"),
            ("a", "{part: 'yes'}", "configmaps"),
            ("c", "{part: 'yes'}", "secrets"),
            ("d", "{part: 'no'}", "leases"),
        ] {
            let text = role(name, labels, &format!("[{}]", rule(resource)));
            rig.create("root", "clusterroles", &text).await;
        }
        rig.settle().await;
        assert_eq!(got(&rig), json!([rule("configmaps"), rule("secrets")]));
        assert_eq!(rig.settle().await, 0, "and then it rests");
    }
}
