//! Resources by the names that people use, resolved by discovery as kubectl does.

use insula_api::Verb;
use serde_json::Value;

use crate::{client::Client, files::text};

/// Verbs that kubectl knows besides those of requests. Others are taken with a warning.
const VERBS: [&str; 8] = [
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
    "attest",
];
/// Resources that roles name and no server serves.
const UNSERVED: [&str; 3] = ["users", "groups", "*"];

/// Resource of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) subresource: String,
}

/// Finds the resource that a text such as `widgets.example.io/status` names. Warns, in kubectl's
/// words, of one that the workspace does not have, of an unknown verb, and of a namespace that
/// counts for nothing.
pub(super) async fn find(
    client: &Client,
    asked: &str,
    given: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Resource> {
    let (name, subresource) = given.split_once('/').unwrap_or((given, ""));
    if Verb::named(asked).is_none() && !VERBS.contains(&asked) {
        eprintln!("Warning: verb '{asked}' is not a known verb");
    }
    let (plain, group) = name.split_once('.').unwrap_or((name, ""));
    let asked = Resource {
        group: group.to_owned(),
        name: plain.to_owned(),
        subresource: subresource.to_owned(),
    };
    if UNSERVED.contains(&plain) {
        return Ok(asked);
    }
    let mut groups = Vec::new();
    for path in ["/api", "/apis"] {
        let (code, list) = client.discovery(path).await?;
        let items = list["items"].as_array().filter(|_| code.is_success());
        // A server that does not tell its resources at once gets the question as it is.
        let Some(items) = items else { return Ok(asked) };
        groups.extend(items.clone());
    }
    match lookup(&groups, plain, group) {
        Some((group, found)) => {
            let name = text(found, "/resource");
            if namespace.is_some() && text(found, "/scope") == "Cluster" {
                eprintln!("Warning: resource '{name}' is not namespace scoped{}", in_group(group));
            }
            Ok(Resource {
                group: group.to_owned(),
                name: name.to_owned(),
                subresource: asked.subresource,
            })
        }
        None => {
            eprintln!(
                "Warning: the server doesn't have a resource type '{plain}'{}",
                in_group(group)
            );
            Ok(asked)
        }
    }
}

fn in_group(group: &str) -> String {
    match group {
        "" => String::new(),
        group => format!(" in group '{group}'"),
    }
}

/// Finds a resource by its plural, its singular or a short name. Without a group the first group
/// that has it counts; a group may have a version before it, as in `widgets.v1.example.io`.
fn lookup<'a>(groups: &'a [Value], name: &str, group: &str) -> Option<(&'a str, &'a Value)> {
    let wanted = name.to_lowercase();
    let is_named = |resource: &Value| {
        let short = resource["shortNames"].as_array().into_iter().flatten();
        text(resource, "/resource") == wanted
            || text(resource, "/singularResource") == wanted
            || short.clone().any(|short| *short == *wanted)
    };
    groups.iter().find_map(|entry| {
        let own = text(entry, "/metadata/name");
        let versions = entry["versions"].as_array().into_iter().flatten();
        let mut fitting = versions.filter(|version| {
            let versioned = format!("{}.{own}", text(version, "/version"));
            group.is_empty() || group == own || group == versioned
        });
        let found = fitting.find_map(|version| {
            let resources = version["resources"].as_array().into_iter().flatten();
            resources.into_iter().find(|resource| is_named(resource))
        });
        found.map(|resource| (own, resource))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_found_by_all_their_names() {
        let resource = |plural: &str, singular: &str, short: &[&str]| {
            json!({
                "resource": plural, "singularResource": singular, "shortNames": short, "scope": "Namespaced",
            })
        };
        let group = |name: &str, versions: &[(&str, Value)]| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, resource)| json!({"version": version, "resources": [resource]}))
                .collect();
            json!({"metadata": {"name": name}, "versions": versions})
        };
        let groups = [
            group("", &[("v1", resource("configmaps", "configmap", &["cm"]))]),
            group(
                "example.io",
                &[
                    ("v2", resource("widgets", "widget", &[])),
                    ("v1", resource("olds", "old", &[])),
                ],
            ),
            group("other.io", &[("v1", resource("widgets", "widget", &["wi"]))]),
        ];
        let found = |name, group| lookup(&groups, name, group).map(|(group, found)| (group, text(found, "/resource")));
        for (name, group, want) in [
            ("configmaps", "", Some(("", "configmaps"))),
            ("cm", "", Some(("", "configmaps"))),
            ("Widget", "", Some(("example.io", "widgets"))),
            ("old", "", Some(("example.io", "olds"))),
            ("widgets", "other.io", Some(("other.io", "widgets"))),
            ("widgets", "v2.example.io", Some(("example.io", "widgets"))),
            ("widgets", "v1.example.io", None),
            ("gears", "", None),
        ] {
            assert_eq!(found(name, group), want, "{name} {group}");
        }
    }
}
