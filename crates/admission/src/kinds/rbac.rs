//! Escalation checks of roles and bindings (`pkg/registry/rbac/*/policybased`). A caller may grant
//! only rules that they hold, unless they may `escalate` the role, may `bind` it, or administer the
//! workspace.
//!
//! Every update is checked, except one that changes only the fields of the garbage collector. A
//! changed label matters, too: it can make an aggregated role gather the rules of the labelled
//! role.

use crate::kinds::review::{Review, Rules};
use insula_access::{facts, roles::RolesAt, rules};
use insula_api::Json;
use insula_auth::{Attributes, Decision, PolicyRule, RoleVerb, authorize, grant_refusal, uncovered};
use insula_catalog::{Error, Named, Result, exports::bind_grant, ids, object};

/// Metadata that grants nothing: the two fields of the garbage collector, and fields that the
/// server writes (`IsOnlyMutatingGCFields` in `pkg/registry/rbac/helpers.go`).
const UNCHECKED: [&str; 5] = [
    "ownerReferences",
    "finalizers",
    "managedFields",
    "resourceVersion",
    "deletionTimestamp",
];

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, new, old),
    ..Rules::new(
        ids::RBAC,
        &["roles", "clusterroles", "rolebindings", "clusterrolebindings"],
    )
};

fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    if old.is_some_and(|old| checked(old) == checked(new)) {
        return Ok(());
    }
    match &*review.served.api.names.plural {
        "roles" | "clusterroles" => role(review, new, old),
        _ => binding(review, new),
    }
}

/// Returns the object without the fields that need no check.
fn checked(object: &Json) -> Json {
    let mut object = object.clone();
    object::unplace(&mut object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !UNCHECKED.contains(&&**field));
    }
    object
}

fn role(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let resource = review.served.api.names.plural.to_string();
    let namespace = text(&new["metadata"]["namespace"]);
    if may(review, "escalate", &resource, namespace, text(&new["metadata"]["name"])) {
        return Ok(());
    }
    holds(review, new, namespace, &rules::rules(new))?;
    // Removing an aggregation rule needs the same right as setting one: the gathered rules stay.
    let aggregates = |role: &Json| role["aggregationRule"].is_object();
    if (aggregates(new) || old.is_some_and(aggregates)) && !missing(review, namespace, &everything()).is_empty() {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        return Err(review.forbid(new, why));
    }
    Ok(())
}

fn binding(review: &Review<'_>, new: &Json) -> Result<()> {
    let namespace = text(&new["metadata"]["namespace"]);
    let (kind, name) = (text(&new["roleRef"]["kind"]), text(&new["roleRef"]["name"]));
    let (resource, of) = match kind {
        "Role" => ("roles", Some(namespace)),
        _ => ("clusterroles", None),
    };
    if may(review, "bind", resource, namespace, name) {
        return Ok(());
    }
    let roles = RolesAt::new(review.snapshot, review.cluster);
    let rules = roles.rules_of(of, name).ok_or_else(|| Error::NotFound {
        resource: Named {
            group: ids::RBAC.into(),
            resource: resource.into(),
        },
        name: name.to_owned(),
    })?;
    holds(review, new, namespace, &rules)
}

/// Checks that the caller may grant the right to bind an export, as by the ClusterRoleBinding that
/// gives it.
///
/// # Errors
/// The rules that the caller does not hold.
pub(super) fn may_let_bind(review: &Review<'_>, export: &str) -> std::result::Result<(), String> {
    if may(review, "bind", "clusterroles", "", &bind_grant::role_name(export)) {
        return Ok(());
    }
    let missing = missing(review, "", &rules::rules(&bind_grant::role(export)));
    match missing.is_empty() {
        true => Ok(()),
        false => Err(grant_refusal(review.user, &missing)),
    }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns true if the authorization chain lets the caller use the verb on the role.
fn may(review: &Review<'_>, verb: impl Into<RoleVerb>, resource: &str, namespace: &str, name: &str) -> bool {
    let attributes = Attributes {
        verb: verb.into(),
        group: ids::RBAC.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        cluster: Some(review.cluster.clone()),
        is_resource_request: true,
        ..Attributes::default()
    };
    let facts = facts(review.snapshot, review.cluster);
    matches!(authorize(review.user, &attributes, &facts), Decision::Allow { .. })
}

fn missing(review: &Review<'_>, namespace: &str, rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let held = RolesAt::new(review.snapshot, review.cluster).rules_for(review.user, namespace);
    uncovered(&held, rules)
}

fn holds(review: &Review<'_>, new: &Json, namespace: &str, rules: &[PolicyRule]) -> Result<()> {
    let missing = missing(review, namespace, rules);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(review.forbid(new, grant_refusal(review.user, &missing))),
    }
}

/// Returns the rules of `cluster-admin`: all resources and all paths.
fn everything() -> [PolicyRule; 2] {
    let all = || vec!["*".to_owned()];
    let resources = PolicyRule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        ..PolicyRule::default()
    };
    let paths = PolicyRule {
        verbs: all(),
        non_resource_urls: all(),
        ..PolicyRule::default()
    };
    [resources, paths]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_garbage_collector_writes_is_not_checked() {
        let old = json!({
            "kind": "ClusterRole",
            "metadata": {"name": "mighty", "uid": "x", "resourceVersion": "1", "labels": {"a": "b"}},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
        });
        let rows = [
            (json!({}), true),
            (json!({"metadata": {"finalizers": ["a.io/b"]}}), true),
            (json!({"metadata": {"ownerReferences": [{"name": "a"}]}}), true),
            (
                json!({"metadata": {"managedFields": [{}], "resourceVersion": "2"}}),
                true,
            ),
            (json!({"metadata": {"annotations": {"kcp.io/cluster": "c"}}}), true),
            (
                json!({"metadata": {"annotations": {"kcp.io/cluster": "c", "d": "e"}}}),
                false,
            ),
            (
                json!({"metadata": {"finalizers": ["a.io/b"], "labels": {"gather": "yes"}}}),
                false,
            ),
            (json!({"metadata": {"labels": null}}), false),
            (json!({"rules": []}), false),
            (json!({"aggregationRule": {}}), false),
            (json!({"subjects": [{"kind": "User", "name": "eve"}]}), false),
        ];
        for (change, unchecked) in rows {
            let mut new = old.clone();
            for (field, value) in change.as_object().unwrap() {
                match (field.as_str(), value.as_object()) {
                    ("metadata", Some(changed)) => new["metadata"].as_object_mut().unwrap().extend(changed.clone()),
                    _ => new[field] = value.clone(),
                }
            }
            assert_eq!(checked(&old) == checked(&new), unchecked, "{change}");
        }
    }
}
