//! Prevention of privilege escalation: users grant only permissions that they hold
//! (`k8s.io/component-helpers/auth/rbac/validation`).

use super::rule::{PolicyRule, quoted};
use crate::user::UserInfo;
use std::collections::{HashMap, hash_map::Entry};

/// Maximum number of single permissions of a granted role that are compared; larger ones are
/// refused to users who do not hold them as whole rules. Comparing takes time.
const SINGLE_RULES_MAX: usize = 10_000;

/// Returns the parts of the wanted rules that the held ones do not cover, as single permissions,
/// those of one resource together.
pub fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let is_held = |single: &PolicyRule| held.iter().any(|own| own.covers(single));
    // Mostly a whole rule is held: it need not be split.
    let doubtful: Vec<&PolicyRule> = wanted.iter().filter(|rule| !is_held(rule)).collect();
    if doubtful.iter().map(|rule| singles_of(rule)).sum::<usize>() > SINGLE_RULES_MAX {
        return doubtful.into_iter().cloned().collect();
    }
    let missing = doubtful.into_iter().flat_map(singles).filter(|single| !is_held(single));
    let mut known = HashMap::new();
    let mut compact: Vec<PolicyRule> = Vec::new();
    for single in missing {
        if single.resources.is_empty() {
            compact.push(single);
            continue;
        }
        let of = (
            single.api_groups.clone(),
            single.resources.clone(),
            single.resource_names.clone(),
        );
        match known.entry(of) {
            Entry::Occupied(at) => {
                let at: usize = *at.get();
                compact[at].verbs.extend(single.verbs);
            }
            Entry::Vacant(at) => {
                at.insert(compact.len());
                compact.push(single);
            }
        }
    }
    compact.sort_by_cached_key(ToString::to_string);
    compact
}

fn singles_of(rule: &PolicyRule) -> usize {
    let resources = rule.api_groups.len() * rule.resources.len() * rule.resource_names.len().max(1);
    rule.verbs.len() * (resources + rule.non_resource_urls.len())
}

/// Splits a rule into rules of one verb, group, resource and name each, or of one verb and path.
fn singles(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut out = Vec::new();
    let names: Vec<Vec<String>> = match rule.resource_names.is_empty() {
        true => vec![Vec::new()],
        false => rule.resource_names.iter().map(|name| vec![name.clone()]).collect(),
    };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                out.extend(names.iter().map(|names| PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: names.clone(),
                    non_resource_urls: Vec::new(),
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        out.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        }));
    }
    out
}

/// Returns the message for a user who grants permissions without holding them.
pub fn grant_refusal(user: &UserInfo, missing: &[PolicyRule]) -> String {
    let rules: Vec<String> = missing.iter().map(ToString::to_string).collect();
    format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        rules.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> PolicyRule {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn what_is_not_held_is_said_in_kubernetes_words() {
        let held = [rule(&[""], &["configmaps"], &[], &["get", "list"])];
        let paths = PolicyRule {
            verbs: vec!["get".into()],
            non_resource_urls: vec!["/metrics".into(), "/debug/*".into()],
            ..PolicyRule::default()
        };
        for (wanted, want) in [
            (rule(&[""], &["configmaps"], &[], &["get"]), ""),
            (
                rule(&[""], &["configmaps", "secrets"], &[], &["get", "create"]),
                "{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"create\"]}\n{APIGroups:[\"\"], \
                    Resources:[\"secrets\"], Verbs:[\"get\" \"create\"]}",
            ),
            (
                rule(&["*"], &["*"], &[], &["*"]),
                "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}",
            ),
            (
                rule(&[""], &["secrets"], &["a", "b"], &["get"]),
                "{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"a\"], \
                    Verbs:[\"get\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"b\"], \
                    Verbs:[\"get\"]}",
            ),
            (
                paths,
                "{NonResourceURLs:[\"/debug/*\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}",
            ),
        ] {
            let missing = uncovered(&held, &[wanted]);
            let text: Vec<String> = missing.iter().map(ToString::to_string).collect();
            assert_eq!(text.join("\n"), want);
        }
        let eve = UserInfo::authenticated("eve", "", vec!["devs".into()]);
        let missing = [rule(&[""], &["secrets"], &[], &["*"])];
        assert_eq!(
            grant_refusal(&eve, &missing),
            "user \"eve\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
                currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"*\"]}"
        );
    }

    #[test]
    fn huge_roles_are_not_taken_apart() {
        let many: Vec<String> = (0..200).map(|i| format!("r{i}")).collect();
        let wanted = PolicyRule {
            verbs: many.clone(),
            api_groups: many.clone(),
            resources: many.clone(),
            ..PolicyRule::default()
        };
        let wanted = [wanted];
        assert_eq!(uncovered(&[], &wanted), wanted);
        assert_eq!(uncovered(&[rule(&["*"], &["*"], &[], &["*"])], &wanted), []);
    }
}
