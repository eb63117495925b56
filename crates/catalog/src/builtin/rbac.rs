//! Roles and bindings (`pkg/apis/rbac/validation`). Admission checks for privilege escalation.

use crate::{
    Builtin, CellValue, Strategy, Table, TableColumn, Traits,
    ids::RBAC as GROUP,
    kind::crd,
    names::{NameRule, check_selector, name_problems},
};
use insula_api::{FieldError, FieldPath, Json, LabelSelector};
use serde_json::json;

pub(super) const KINDS: &[Builtin] = &[
    Builtin {
        strategy: &Roles { namespaced: true },
        claimable: true,
        name_rule: Some(NameRule::PathSegment),
        table: Some(ROLES),
        ..Builtin::new(crd!("rbac.authorization.k8s.io_roles"))
    },
    Builtin {
        strategy: &Roles { namespaced: false },
        claimable: true,
        name_rule: Some(NameRule::PathSegment),
        table: Some(ROLES),
        ..Builtin::new(crd!("rbac.authorization.k8s.io_clusterroles"))
    },
    Builtin {
        strategy: &Bindings { namespaced: true },
        claimable: true,
        name_rule: Some(NameRule::PathSegment),
        table: Some(ROLE_BINDINGS),
        ..Builtin::new(crd!("rbac.authorization.k8s.io_rolebindings"))
    },
    Builtin {
        strategy: &Bindings { namespaced: false },
        claimable: true,
        name_rule: Some(NameRule::PathSegment),
        table: Some(CLUSTER_ROLE_BINDINGS),
        ..Builtin::new(crd!("rbac.authorization.k8s.io_clusterrolebindings"))
    },
];

const ROLES: Table = Table {
    columns: &[TableColumn::NAME, TableColumn::CREATED],
    null_when_empty: true,
};
const ROLE_BINDINGS: Table = Table::new(&[
    TableColumn::NAME,
    TableColumn::text("Role", ROLE_REF_TEXT, ROLE),
    TableColumn::AGE,
    TableColumn::text("Users", "Users in the roleBinding", USERS).wide(),
    TableColumn::text("Groups", "Groups in the roleBinding", GROUPS).wide(),
    TableColumn::text("ServiceAccounts", "ServiceAccounts in the roleBinding", ACCOUNTS).wide(),
]);
const CLUSTER_ROLE_BINDINGS: Table = Table::new(&[
    TableColumn::NAME,
    TableColumn::text("Role", CLUSTER_ROLE_REF_TEXT, ROLE),
    TableColumn::AGE,
    TableColumn::text("Users", "Users in the clusterRoleBinding", USERS).wide(),
    TableColumn::text("Groups", "Groups in the clusterRoleBinding", GROUPS).wide(),
    TableColumn::text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding", ACCOUNTS).wide(),
]);
const ROLE_REF_TEXT: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global \
    namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
const CLUSTER_ROLE_REF_TEXT: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef \
    cannot be resolved, the Authorizer must return an error.";
const ROLE: CellValue = CellValue::Computed(|binding| {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default();
    json!(format!("{}/{}", text("kind"), text("name")))
});
const USERS: CellValue = CellValue::Computed(|binding| json!(subjects(binding, "User")));
const GROUPS: CellValue = CellValue::Computed(|binding| json!(subjects(binding, "Group")));
const ACCOUNTS: CellValue = CellValue::Computed(|binding| json!(subjects(binding, "ServiceAccount")));

/// Returns the names of the subjects of one kind.
fn subjects(binding: &Json, kind: &str) -> String {
    let all = binding["subjects"].as_array().into_iter().flatten();
    let of_kind = all.filter(|subject| subject["kind"] == kind).map(|subject| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match kind {
            "ServiceAccount" => format!("{}/{}", text("namespace"), text("name")),
            _ => text("name").to_owned(),
        }
    });
    of_kind.collect::<Vec<_>>().join(", ")
}

const TRAITS: Traits = Traits {
    created_by_update: true,
    ..Traits::BUILT_IN
};

/// Roles and ClusterRoles.
struct Roles {
    namespaced: bool,
}

impl Strategy for Roles {
    fn traits(&self) -> Traits {
        TRAITS
    }

    /// Sets missing rules to null, because Kubernetes always shows the field.
    fn default(&self, new: &mut Json) {
        if new.get("rules").is_none() {
            new["rules"] = Json::Null;
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let at = FieldPath::new("rules");
        for (i, rule) in new["rules"].as_array().into_iter().flatten().enumerate() {
            self.check_rule(rule, &at.index(i), &mut errors);
        }
        if let Some(aggregation) = new.get("aggregationRule").filter(|rule| rule.is_object()) {
            check_aggregation(aggregation, &mut errors);
        }
        errors
    }
}

impl Roles {
    fn check_rule(&self, rule: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
        let filled = |field: &str| rule[field].as_array().is_some_and(|list| !list.is_empty());
        if !filled("verbs") {
            let why = "verbs must contain at least one value";
            errors.push(FieldError::required(&at.child("verbs"), why));
        }
        if filled("nonResourceURLs") {
            let (at, urls) = (at.child("nonResourceURLs"), &rule["nonResourceURLs"]);
            if self.namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(&at, urls, why));
            }
            if ["apiGroups", "resources", "resourceNames"].into_iter().any(filled) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(&at, urls, why));
            }
            return;
        }
        for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
            if !filled(field) {
                let why = format!("resource rules must supply at least one {what}");
                errors.push(FieldError::required(&at.child(field), why));
            }
        }
    }
}

fn check_aggregation(aggregation: &Json, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = aggregation["clusterRoleSelectors"].as_array();
    let Some(selectors) = selectors.filter(|selectors| !selectors.is_empty()) else {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(&at, why));
        return;
    };
    for (i, selector) in selectors.iter().enumerate() {
        let at = at.index(i);
        check_selector(selector, &at, errors);
        if LabelSelector::from_json(selector).is_err() {
            errors.push(FieldError::invalid(&at, &Json::Null, "invalid label selector."));
        }
    }
}

/// RoleBindings and ClusterRoleBindings.
struct Bindings {
    namespaced: bool,
}

impl Strategy for Bindings {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn default(&self, new: &mut Json) {
        let is_unset = |of: &Json| of["apiGroup"].as_str().unwrap_or_default().is_empty();
        if new["roleRef"].is_object() && is_unset(&new["roleRef"]) {
            new["roleRef"]["apiGroup"] = json!(GROUP);
        }
        let subjects = new.get_mut("subjects").and_then(Json::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            if is_unset(subject) && (subject["kind"] == "User" || subject["kind"] == "Group") {
                subject["apiGroup"] = json!(GROUP);
            }
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let at = FieldPath::new("roleRef");
        let role = &new["roleRef"];
        let kinds: &[&str] = match self.namespaced {
            true => &["Role", "ClusterRole"],
            false => &["ClusterRole"],
        };
        one_of(role, "apiGroup", &[GROUP], &at, &mut errors);
        one_of(role, "kind", kinds, &at, &mut errors);
        let (at, name) = (at.child("name"), role["name"].as_str().unwrap_or_default());
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else {
            let problems = name_problems(name, NameRule::PathSegment);
            errors.extend(
                problems
                    .into_iter()
                    .map(|why| FieldError::invalid(&at, &json!(name), why)),
            );
        }
        let at = FieldPath::new("subjects");
        for (i, subject) in new["subjects"].as_array().into_iter().flatten().enumerate() {
            self.check_subject(subject, &at.index(i), &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        if new["roleRef"] == old["roleRef"] {
            return Vec::new();
        }
        // Go prints the fields of the reference in the order of its struct.
        let text = |field: &str| json!(new["roleRef"][field].as_str().unwrap_or_default());
        let (group, kind, name) = (text("apiGroup"), text("kind"), text("name"));
        let printed = format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}");
        vec![FieldError::invalid_text(
            &FieldPath::new("roleRef"),
            printed,
            "cannot change roleRef",
        )]
    }
}

impl Bindings {
    fn check_subject(&self, subject: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        let name = text("name");
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        match text("kind") {
            "User" | "Group" => one_of(subject, "apiGroup", &[GROUP], at, errors),
            "ServiceAccount" => {
                if !name.is_empty() {
                    let (at, value) = (at.child("name"), json!(name));
                    let problems = name_problems(name, NameRule::Subdomain);
                    errors.extend(problems.into_iter().map(|why| FieldError::invalid(&at, &value, why)));
                }
                one_of(subject, "apiGroup", &[""], at, errors);
                if !self.namespaced && text("namespace").is_empty() {
                    errors.push(FieldError::required(&at.child("namespace"), ""));
                }
            }
            _ => one_of(subject, "kind", &["ServiceAccount", "User", "Group"], at, errors),
        }
    }
}

fn one_of(object: &Json, field: &str, supported: &[&str], at: &FieldPath, errors: &mut Vec<FieldError>) {
    let value = object[field].as_str().unwrap_or_default();
    if !supported.contains(&value) {
        errors.push(FieldError::not_supported(&at.child(field), &json!(value), supported));
    }
}
