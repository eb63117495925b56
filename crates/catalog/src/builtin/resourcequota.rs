//! ResourceQuotas: validation of their limits (`ValidateResourceQuota`) and canonical quantities.

use crate::{Builtin, CellValue, Strategy, Table, TableColumn, Traits, kind::crd, names};
use insula_api::{FieldError, FieldPath, Json};
use insula_cel::Quantity;
use serde_json::json;
use std::cmp::Ordering;

/// Unqualified resources measured in fractional amounts, except huge pages.
const AMOUNTS: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
/// An unqualified resource that is known but cannot be limited by a quota.
const STORAGE: &str = "storage";
/// Unqualified resources counted in integers.
const WHOLE: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Pairs of mutually exclusive scopes.
const OPPOSITES: &[[&str; 2]] = &[["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const POD_COMPUTE: &[&str] = &[
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];
/// JSON pointers to the maps of quantities.
const LISTS: [&str; 3] = ["/spec/hard", "/status/hard", "/status/used"];

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Quotas,
    claimable: true,
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::text(
            "Request",
            REQUEST_TEXT,
            CellValue::Computed(|quota| json!(usage(quota, false))),
        ),
        TableColumn::text(
            "Limit",
            LIMIT_TEXT,
            CellValue::Computed(|quota| json!(usage(quota, true))),
        ),
        TableColumn::AGE,
    ])),
    ..Builtin::new(crd!("core_resourcequotas"))
}];

const REQUEST_TEXT: &str = "Request represents a minimum amount of cpu/memory that a container may consume.";
const LIMIT_TEXT: &str = "Limits control the maximum amount of cpu/memory that a container may use independent of \
    contention on the node.";

/// Returns the quantities with their usage: those named `limits.…`, or all others.
fn usage(quota: &Json, limits: bool) -> String {
    let status = &quota["status"];
    let hard = status["hard"].as_object().into_iter().flatten();
    let shown = hard.filter(|(name, _)| name.starts_with("limits.") == limits);
    let pairs = shown.map(|(name, hard)| {
        let used = status["used"][name].as_str().unwrap_or("0");
        format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
    });
    pairs.collect::<Vec<_>>().join(", ")
}

/// ResourceQuotas.
struct Quotas;

impl Strategy for Quotas {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            ..Traits::BUILT_IN
        }
    }

    fn undecodable(&self, sent: &Json) -> Option<String> {
        let values = LISTS
            .iter()
            .filter_map(|list| sent.pointer(list)?.as_object())
            .flat_map(|map| map.values());
        let values = values.filter(|value| !value.is_null());
        let mut wrong = values.filter_map(|value| Quantity::parse(&written(value)).err());
        wrong.next().map(str::to_owned)
    }

    fn prepare_for_create(&self, new: &mut Json, _now: insula_api::Timestamp) {
        new["status"] = json!({});
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (parent, field) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
            let at = FieldPath::new(parent).child(field);
            for (name, value) in new[parent][field].as_object().into_iter().flatten() {
                check_limit(&at.key(name), name, value, &mut errors);
            }
        }
        check_scopes(&new["spec"], &mut errors);
        check_selector(&new["spec"], &mut errors);
        errors
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        let scopes = |quota: &Json| {
            let mut scopes: Vec<String> = texts(&quota["spec"]["scopes"]).map(str::to_owned).collect();
            scopes.sort_unstable();
            scopes.dedup();
            scopes
        };
        match scopes(new) == scopes(old) {
            true => Vec::new(),
            false => vec![invalid_scopes(&new["spec"], "field is immutable")],
        }
    }

    /// Writes quantities in Go's canonical form: `1.5` as `1500m`.
    fn canonicalize(&self, new: &mut Json) {
        for list in LISTS {
            let map = new.pointer_mut(list).and_then(Json::as_object_mut);
            for value in map.into_iter().flat_map(|map| map.values_mut()) {
                if let Ok(quantity) = Quantity::parse(&written(value)) {
                    *value = json!(quantity.to_string());
                }
            }
        }
    }
}

/// Returns a quantity as text, whether it is a JSON string or a number.
fn written(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

fn texts(list: &Json) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str)
}

fn is_standard(name: &str) -> bool {
    AMOUNTS.contains(&name)
        || WHOLE.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

fn check_limit(at: &FieldPath, name: &str, value: &Json, errors: &mut Vec<FieldError>) {
    let problems = names::qualified_name_problems(name);
    let qualified = problems.is_empty();
    let about_name = |text: &str| FieldError::invalid(at, &json!(name), text);
    errors.extend(problems.iter().map(|problem| about_name(problem)));
    if !name.contains('/') && !is_standard(name) {
        if qualified && name != STORAGE {
            errors.push(about_name("must be a standard resource type or fully qualified"));
        }
        errors.push(about_name("must be a standard resource for quota"));
    }
    let Ok(quantity) = Quantity::parse(&written(value)) else {
        return;
    };
    let about_value = |text: &str| FieldError::invalid(at, &json!(quantity.to_string()), text);
    if quantity.sign() == Ordering::Less {
        errors.push(about_value("must be greater than or equal to 0"));
    }
    // Extended resources have no unit in Kubernetes and are counted in integers.
    let extended = name.contains('/') && !name.contains("kubernetes.io/");
    if (WHOLE.contains(&name) || extended) && !quantity.is_whole() {
        errors.push(about_value("must be an integer"));
    }
}

/// Returns true if a scope applies to a limited resource. Resources that are not standard pass.
fn fits(scope: &str, limited: &str) -> bool {
    match scope {
        _ if !is_standard(limited) => true,
        "BestEffort" => limited == "pods",
        "VolumeAttributesClass" => matches!(limited, "persistentvolumeclaims" | "requests.storage"),
        _ if SCOPES.contains(&scope) => limited == "pods" || POD_COMPUTE.contains(&limited),
        _ => true,
    }
}

fn invalid_scopes(spec: &Json, why: &str) -> FieldError {
    let given = spec.get("scopes").unwrap_or(&Json::Null);
    FieldError::invalid(&FieldPath::new("spec").child("scopes"), given, why)
}

fn limited(spec: &Json) -> impl Iterator<Item = &str> {
    spec["hard"]
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
        .map(String::as_str)
}

fn check_scopes(spec: &Json, errors: &mut Vec<FieldError>) {
    for scope in texts(&spec["scopes"]) {
        if !SCOPES.contains(&scope) {
            errors.push(invalid_scopes(spec, "unsupported scope"));
        }
        let unfit = limited(spec).filter(|limited| !fits(scope, limited));
        errors.extend(unfit.map(|_| invalid_scopes(spec, "unsupported scope applied to resource")));
    }
    let scopes: Vec<&str> = texts(&spec["scopes"]).collect();
    errors.extend(opposites(&scopes).map(|()| invalid_scopes(spec, "conflicting scopes")));
}

fn opposites<'a>(scopes: &'a [&str]) -> impl Iterator<Item = ()> + 'a {
    let both = OPPOSITES
        .iter()
        .filter(|pair| pair.iter().all(|scope| scopes.contains(scope)));
    both.map(|_| ())
}

fn check_selector(spec: &Json, errors: &mut Vec<FieldError>) {
    let selector = &spec["scopeSelector"];
    let at = FieldPath::new("spec").child("scopeSelector").child("matchExpressions");
    let mut scopes = Vec::new();
    for term in selector["matchExpressions"].as_array().into_iter().flatten() {
        let text = |field: &str| term[field].as_str().unwrap_or_default();
        let (scope, operator) = (text("scopeName"), text("operator"));
        scopes.push(scope);
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(
                &at.child("scopeName"),
                &json!(scope),
                "unsupported scope",
            ));
        }
        for _ in limited(spec).filter(|limited| !fits(scope, limited)) {
            let why = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(&at, selector, why));
        }
        check_operator(&at, scope, operator, term, errors);
    }
    errors.extend(opposites(&scopes).map(|()| {
        let given = spec.get("scopes").unwrap_or(&Json::Null);
        FieldError::invalid(&at, given, "conflicting scopes")
    }));
}

fn check_operator(at: &FieldPath, scope: &str, operator: &str, term: &Json, errors: &mut Vec<FieldError>) {
    let has_values = texts(&term["values"]).next().is_some();
    let invalid = |why: &str| FieldError::invalid(&at.child("operator"), &json!(operator), why);
    let takes_values = matches!(scope, "PriorityClass" | "VolumeAttributesClass");
    if SCOPES.contains(&scope) && !takes_values && operator != "Exists" {
        errors.push(invalid(
            "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
             ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
             ResourceQuotaScopeCrossNamespacePodAffinity",
        ));
    }
    let values = at.child("values");
    match operator {
        "In" | "NotIn" if !has_values => errors.push(FieldError::required(
            &values,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        )),
        "Exists" | "DoesNotExist" if has_values => errors.push(FieldError::invalid(
            &values,
            &term["values"],
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => errors.push(invalid("not a valid selector operator")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(spec: Json) -> Vec<String> {
        let mut quota = json!({"spec": spec, "status": {}});
        Quotas.canonicalize(&mut quota);
        Quotas.validate(&quota).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn limits_are_on_what_can_be_counted() {
        let rows: [(Json, &[&str]); 6] = [
            (
                json!({"hard": {"count/widgets.example.io": "2", "secrets": 3, "hugepages-2Mi": "4Mi"}}),
                &[],
            ),
            (
                json!({"hard": {"bogus": "1"}}),
                &[
                    "spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified",
                    "spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource for quota",
                ],
            ),
            (
                json!({"hard": {"count/a": "1.5", "cpu": "1.5", "pods": "-1"}}),
                &[
                    "spec.hard[count/a]: Invalid value: \"1500m\": must be an integer",
                    "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
                ],
            ),
            (
                json!({"hard": {"secrets": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
                &[
                    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: unsupported scope applied to resource",
                    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: unsupported scope applied to resource",
                    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
                ],
            ),
            (
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
                &[
                    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when \
                     `operator` is 'In' or 'NotIn' for scope selector",
                ],
            ),
            (json!({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}), &[]),
        ];
        for (spec, want) in rows {
            assert_eq!(refused(spec.clone()), want, "{spec}");
        }
    }

    #[test]
    fn quantities_are_read_as_go_reads_them() {
        let wrong = |value: Json| Quotas.undecodable(&json!({"spec": {"hard": {"pods": value}}}));
        assert_eq!(wrong(json!("1k")), None);
        assert_eq!(wrong(json!(2)), None);
        assert!(wrong(json!("many")).is_some_and(|why| why.starts_with("quantities must match")));
        let mut quota = json!({"spec": {"hard": {"pods": "1000", "secrets": 2}}});
        Quotas.canonicalize(&mut quota);
        assert_eq!(quota["spec"]["hard"], json!({"pods": "1k", "secrets": "2"}));
    }
}
