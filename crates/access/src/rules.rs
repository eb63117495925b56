//! The rules that a role or a workspace type lists.

use insula_api::Json;
use insula_auth::PolicyRule;
use serde_json::json;

/// The rules of a role.
pub fn rules(role: &Json) -> Vec<PolicyRule> {
    read_rules(&role["rules"])
}

/// Returns a rule as a role lists it.
pub fn json(rule: &PolicyRule) -> Json {
    let mut shown = json!({"verbs": rule.verbs});
    let lists = [
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ];
    for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        shown[field] = json!(list);
    }
    shown
}

/// A list of rules.
pub(crate) fn read_rules(list: &Json) -> Vec<PolicyRule> {
    let texts = |value: &Json| {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let rule = |rule: &Json| PolicyRule {
        verbs: texts(&rule["verbs"]),
        api_groups: texts(&rule["apiGroups"]),
        resources: texts(&rule["resources"]),
        resource_names: texts(&rule["resourceNames"]),
        non_resource_urls: texts(&rule["nonResourceURLs"]),
    };
    list.as_array().into_iter().flatten().map(rule).collect()
}
