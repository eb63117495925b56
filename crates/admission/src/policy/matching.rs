//! Matching of policies and bindings against a request, by Kubernetes' rules
//! (`admission/plugin/policy/matching`).

use insula_api::{Json, LabelSelector, Labels};
use insula_catalog::policies::spec::{MatchResources, Rule};
use std::sync::Arc;

/// A resource in a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceVersion {
    pub(crate) group: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) resource: Arc<str>,
    pub(crate) kind: Arc<str>,
}

/// Properties of a request that matching uses before a version is chosen.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) operation: &'static str,
    pub(crate) resource: ResourceVersion,
    /// Other versions, and other spellings, of the same resource.
    pub(crate) equivalents: Vec<ResourceVersion>,
    pub(crate) subresource: &'a str,
    /// The object's namespace; its own name for a Namespace that exists.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Labels for `namespaceSelector`; `None` without a namespace.
    pub(crate) namespace_labels: Option<Labels>,
    /// Labels of the new and the old object, where they exist.
    pub(crate) object_labels: Vec<Labels>,
}

/// Returns the version in which a policy sees the request, or `None` if the policy does not match.
/// Fails if a selector of a matching policy is malformed.
pub(crate) fn matches(subject: &Subject<'_>, constraints: &MatchResources) -> Result<Option<ResourceVersion>, String> {
    let namespace = match &subject.namespace_labels {
        // Objects in no namespace are never exempt.
        None => Ok(true),
        Some(labels) => selects(constraints.namespace_selector.as_ref(), std::slice::from_ref(labels)),
    };
    let object = selects(constraints.object_selector.as_ref(), &subject.object_labels);
    if matches!(namespace, Ok(false)) || matches!(object, Ok(false)) {
        return Ok(None);
    }
    let exact = constraints.match_policy == "Exact";
    if find(subject, &constraints.exclude_resource_rules, exact).is_some() {
        return Ok(None);
    }
    let found = match constraints.resource_rules.is_empty() {
        true => Some(&subject.resource),
        false => find(subject, &constraints.resource_rules, exact),
    };
    let Some(found) = found else { return Ok(None) };
    // A malformed selector is an error only if the rules match.
    namespace?;
    object?;
    Ok(Some(found.clone()))
}

/// Finds a matching version: the request's own first, then its equivalents.
fn find<'s>(subject: &'s Subject<'_>, rules: &[Rule], exact: bool) -> Option<&'s ResourceVersion> {
    if rules.iter().any(|rule| concerns(rule, subject, &subject.resource)) {
        return Some(&subject.resource);
    }
    if exact {
        return None;
    }
    rules.iter().find_map(|rule| {
        let mut others = subject.equivalents.iter();
        others.find(|resource| concerns(rule, subject, resource))
    })
}

fn concerns(rule: &Rule, subject: &Subject<'_>, resource: &ResourceVersion) -> bool {
    in_scope(rule, subject, resource)
        && names(&rule.operations, subject.operation)
        && names(&rule.api_groups, &resource.group)
        && names(&rule.api_versions, &resource.version)
        && rule
            .resources
            .iter()
            .any(|pattern| is_resource(pattern, &resource.resource, subject.subresource))
        && (rule.resource_names.is_empty() || rule.resource_names.iter().any(|name| name == subject.name))
}

fn in_scope(rule: &Rule, subject: &Subject<'_>, resource: &ResourceVersion) -> bool {
    let is_namespace = resource.group.is_empty() && &*resource.resource == "namespaces";
    let in_namespace = !is_namespace && !subject.namespace.is_empty();
    match rule.scope.as_str() {
        "Namespaced" => in_namespace,
        "Cluster" => !in_namespace,
        _ => true,
    }
}

fn names(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Matches a pattern of resources: `orders`, `orders/status`, `*`, `*/status`, `orders/*`, `*/*`.
fn is_resource(pattern: &str, resource: &str, subresource: &str) -> bool {
    let (wanted, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (wanted == "*" || wanted == resource) && (sub == "*" || sub == subresource)
}

/// Returns true if the selector matches one of the label sets. An absent selector matches
/// everything.
fn selects(selector: Option<&Json>, labels: &[Labels]) -> Result<bool, String> {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return Ok(true);
    };
    let selector = LabelSelector::from_json(selector).map_err(|error| error.to_string())?;
    Ok(selector.is_empty() || labels.iter().any(|labels| selector.matches(labels)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    fn version(group: &str, version: &str) -> ResourceVersion {
        ResourceVersion {
            group: group.into(),
            version: version.into(),
            resource: "orders".into(),
            kind: "Order".into(),
        }
    }

    fn subject() -> Subject<'static> {
        let labels = |json: Json| Labels::deserialize(json).expect("labels");
        Subject {
            operation: "CREATE",
            resource: version("shop", "v1"),
            equivalents: vec![version("shop", "v2")],
            subresource: "",
            namespace: "default",
            name: "a",
            namespace_labels: Some(labels(json!({"env": "prod"}))),
            object_labels: vec![labels(json!({"app": "web"}))],
        }
    }

    /// The version in which the constraints see the subject.
    fn seen(subject: &Subject<'_>, constraints: Json) -> Result<Option<String>, String> {
        let constraints = MatchResources::deserialize(constraints).expect("constraints");
        Ok(matches(subject, &constraints)?.map(|found| found.version.to_string()))
    }

    fn rule(change: Json) -> Json {
        let mut rule =
            json!({"apiGroups": ["shop"], "apiVersions": ["v1"], "resources": ["orders"], "operations": ["CREATE"]});
        for (key, value) in change.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        rule
    }

    #[test]
    fn rules_and_wildcards() {
        let table = [
            (json!({}), Some("v1")),
            (
                json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}),
                Some("v1"),
            ),
            (json!({"operations": ["UPDATE"]}), None),
            (json!({"resources": ["orders/status"]}), None),
            (json!({"resources": ["orders/*"]}), Some("v1")),
            (json!({"resources": ["*/*"]}), Some("v1")),
            (json!({"resources": ["*/status"]}), None),
            (json!({"apiVersions": ["v2"]}), Some("v2")),
            (json!({"apiVersions": ["v3"]}), None),
            (json!({"apiGroups": [""]}), None),
            (json!({"scope": "Cluster"}), None),
            (json!({"scope": "Namespaced"}), Some("v1")),
            (json!({"resourceNames": ["b"]}), None),
            (json!({"resourceNames": ["b", "a"]}), Some("v1")),
        ];
        for (change, want) in table {
            let got = seen(&subject(), json!({"resourceRules": [rule(change.clone())]}));
            assert_eq!(got, Ok(want.map(str::to_owned)), "{change}");
        }
    }

    #[test]
    fn the_rest_of_the_constraints() {
        let rules = |more: Json| {
            let mut constraints = json!({"resourceRules": [rule(json!({}))]});
            for (key, value) in more.as_object().into_iter().flatten() {
                constraints[key] = value.clone();
            }
            constraints
        };
        let v2 = json!({"matchPolicy": "Exact", "resourceRules": [rule(json!({"apiVersions": ["v2"]}))]});
        let table = [
            (json!({}), Some("v1")),
            (v2, None),
            (rules(json!({"excludeResourceRules": [rule(json!({}))]})), None),
            (
                rules(json!({"excludeResourceRules": [rule(json!({"apiVersions": ["v2"]}))]})),
                None,
            ),
            (
                rules(json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}})),
                Some("v1"),
            ),
            (
                rules(json!({"namespaceSelector": {"matchLabels": {"env": "test"}}})),
                None,
            ),
            (
                rules(json!({"objectSelector": {"matchLabels": {"app": "web"}}})),
                Some("v1"),
            ),
            (
                rules(json!({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}})),
                None,
            ),
        ];
        for (constraints, want) in table {
            assert_eq!(
                seen(&subject(), constraints.clone()),
                Ok(want.map(str::to_owned)),
                "{constraints}"
            );
        }
    }

    #[test]
    fn objects_outside_of_namespaces_are_not_exempt() {
        let subject = Subject {
            namespace: "",
            namespace_labels: None,
            ..subject()
        };
        let constraints = json!({"namespaceSelector": {"matchLabels": {"env": "test"}}});
        assert_eq!(seen(&subject, constraints), Ok(Some("v1".to_owned())));
    }

    #[test]
    fn a_malformed_selector_is_told_only_where_the_rules_fit() {
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "Nonsense"}]});
        let other = rule(json!({"apiGroups": ["other"]}));
        assert!(seen(&subject(), json!({"objectSelector": selector})).is_err());
        assert_eq!(
            seen(
                &subject(),
                json!({"objectSelector": selector, "resourceRules": [other]})
            ),
            Ok(None)
        );
    }
}
