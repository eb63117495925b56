//! Rules that `view`, `edit` and `admin` have in one workspace beside those of
//! `config/bootstrap/roles.yaml`: on the APIs that the workspace binds, and of its ClusterRoles
//! with the aggregation labels of Kubernetes.
//!
//! ```text
//! bound API    view:        get, list, watch of the resource, its status and its scale
//!              edit, admin: all verbs on the resource and its scale, too
//! ClusterRole with the label     counts in
//!   …/aggregate-to-view          view, edit, admin
//!   …/aggregate-to-edit          edit, admin
//!   …/aggregate-to-admin         admin
//! ```
//! The status of a bound object is its provider's: only `cluster-admin` and roles that name it may
//! write it. The owner of a workspace defines a ClusterRole of the same name to replace all of
//! this.

use crate::rules;
use insula_api::{
    ClusterName, Object, Scope, Verb,
    kinds::{self, ApiBinding, BoundResource},
};
use insula_auth::PolicyRule;
use insula_catalog::ids;
use insula_store::Snapshot;
use std::ops::ControlFlow;

/// Labels, each with the roles that a ClusterRole with it counts in.
const LABELS: [(&str, &[&str]); 3] = [
    (
        "rbac.authorization.k8s.io/aggregate-to-view",
        &["view", "edit", "admin"],
    ),
    ("rbac.authorization.k8s.io/aggregate-to-edit", &["edit", "admin"]),
    ("rbac.authorization.k8s.io/aggregate-to-admin", &["admin"]),
];

/// Rules on the resources of one binding, parsed with the stored object.
#[derive(Debug)]
struct BoundRules {
    read: Vec<PolicyRule>,
    write: Vec<PolicyRule>,
}

/// Returns the additional rules of a role in a cluster; none for roles that do not aggregate.
pub(crate) fn rules_of(snapshot: &Snapshot, cluster: &ClusterName, role: &str) -> Vec<PolicyRule> {
    let mut all = Vec::new();
    any_rule(snapshot, cluster, role, &mut |rule| {
        all.push(rule.clone());
        false
    });
    all
}

/// Shows the additional rules of a role to a function until it returns true, and returns whether it
/// did. Copies none: a workspace may have hundreds of bindings, and every request asks.
pub(crate) fn any_rule(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    role: &str,
    found: &mut dyn FnMut(&PolicyRule) -> bool,
) -> bool {
    if !matches!(role, "view" | "edit" | "admin") {
        return false;
    }
    let mut is_found = false;
    let mut flow = |rules: &[PolicyRule]| {
        is_found = rules.iter().any(&mut *found);
        match is_found {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let mut shown = ControlFlow::Continue(());
    snapshot.for_each(&Scope::cluster(ids::apibindings(), cluster.clone()), |entry| {
        let bound = entry.object.parsed(bound_rules);
        shown = flow(&bound.read);
        if shown.is_continue() && role != "view" {
            shown = flow(&bound.write);
        }
        shown
    });
    if shown.is_break() {
        return true;
    }
    snapshot.for_each(&Scope::cluster(ids::clusterroles(), cluster.clone()), |entry| {
        let counts =
            |(label, roles): &(&str, &[&str])| roles.contains(&role) && entry.object.meta.label(label) == Some("true");
        if LABELS.iter().any(counts) {
            let own = entry
                .object
                .parsed(|object: &Object| rules::rules(&object.body_value()));
            return flow(&own);
        }
        ControlFlow::Continue(())
    });
    is_found
}

fn bound_rules(object: &Object) -> BoundRules {
    let binding: ApiBinding = kinds::read(&object.body_value());
    // A rule for each resource: those of one binding may be in several groups.
    let rules = |reads: bool, subresources: &[&str]| {
        let verbs = Verb::ALL.into_iter().filter(|verb| verb.reads() == reads);
        let mut verbs: Vec<String> = verbs.map(|verb| verb.name().to_owned()).collect();
        verbs.sort_unstable();
        let rule = |bound: &BoundResource| PolicyRule {
            verbs: verbs.clone(),
            api_groups: vec![bound.group.clone()],
            resources: subresources
                .iter()
                .map(|sub| format!("{}{sub}", bound.resource))
                .collect(),
            ..PolicyRule::default()
        };
        binding.status.bound_resources.iter().map(rule).collect()
    };
    BoundRules {
        read: rules(true, &["", "/status", "/scale"]),
        write: rules(false, &["", "/scale"]),
    }
}
