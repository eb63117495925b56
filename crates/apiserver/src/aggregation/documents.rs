//! Discovery and OpenAPI of extension servers, merged into the documents of a cluster.
//!
//! `/apis` and `/apis/<group>` follow from the APIServices alone, as in Kubernetes. The aggregated
//! form and the index of OpenAPI show the result of the last check; a server that failed it is
//! marked stale and keeps its resources.

use crate::{openapi::Extension, request_stages::Permitted, server::ApiServer};
use insula_api::Json;
use insula_catalog::aggregation::{self, Aggregated};
use serde_json::json;
use std::{cmp::Reverse, sync::Arc};

/// Resources of one group version; further ones are left out.
const RESOURCES_MAX: usize = 512;
/// Bytes of one text in a discovery document.
const TEXT_BYTES_MAX: usize = 256;
/// Items of a list of verbs, short names or categories.
const LIST_MAX: usize = 32;

/// Returns the group versions of extension servers in the order of discovery.
pub(crate) fn services(server: &ApiServer, request: &Permitted) -> Vec<Aggregated> {
    let Some(cluster) = request
        .authorized
        .scope()
        .cluster
        .as_ref()
        .filter(|_| request.authorized.scope().view.is_none())
    else {
        return Vec::new();
    };
    let snapshot = &request.authorized.scope().snapshot;
    let mut found = aggregation::of_cluster(&server.registry.catalog, snapshot, cluster);
    let priority = |group: &str, all: &[Aggregated]| {
        let of_group = all.iter().filter(|one| *one.service.group == *group);
        of_group.map(|one| one.service.group_priority).max()
    };
    let groups: Vec<_> = found.iter().map(|one| priority(&one.service.group, &found)).collect();
    let mut ranked: Vec<_> = groups.into_iter().zip(found.drain(..)).collect();
    ranked.sort_by_key(|(group, one)| {
        let service = &one.service;
        let (group_name, version) = (service.group.clone(), service.version.clone());
        (Reverse(*group), group_name, Reverse(service.version_priority), version)
    });
    ranked.into_iter().map(|(_, one)| one).collect()
}

/// Adds the groups to `/apis`.
pub(crate) fn add_to_groups(list: &mut Json, services: &[Aggregated]) {
    let Some(groups) = list["groups"].as_array_mut() else {
        return;
    };
    for service in services {
        let name = &*service.service.group;
        match groups.iter_mut().find(|group| group["name"] == name) {
            Some(group) => add_version(group, service),
            None => groups.push(group_of(service)),
        }
    }
}

/// Adds the versions of a group to `/apis/<group>`, which the cluster may not have by itself.
pub(crate) fn with_group(document: Option<Json>, name: &str, services: &[Aggregated]) -> Option<Json> {
    let mut of_group = services.iter().filter(|one| *one.service.group == *name);
    let mut document = match document {
        Some(document) => document,
        None => {
            let mut group = group_of(of_group.next()?);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        }
    };
    of_group.for_each(|service| add_version(&mut document, service));
    Some(document)
}

fn version_of(service: &Aggregated) -> Json {
    json!({"groupVersion": service.service.api_version(), "version": &*service.service.version})
}

fn group_of(service: &Aggregated) -> Json {
    let version = version_of(service);
    json!({"name": &*service.service.group, "versions": [version], "preferredVersion": version})
}

fn add_version(group: &mut Json, service: &Aggregated) {
    if let Some(versions) = group["versions"].as_array_mut() {
        versions.push(version_of(service));
    }
}

/// Adds the groups to the aggregated form of `/apis`.
pub(crate) fn add_to_aggregated(server: &ApiServer, list: &mut Json, services: &[Aggregated]) {
    let Some(groups) = list["items"].as_array_mut() else {
        return;
    };
    for service in services {
        let known = server.extensions.known(&service.key);
        let is_current = known.is_current && service.service.available;
        let version = json!({
            "version": &*service.service.version,
            "resources": known.resources,
            "freshness": if is_current { "Current" } else { "Stale" },
        });
        let name = &*service.service.group;
        match groups.iter_mut().find(|group| group["metadata"]["name"] == name) {
            Some(group) => {
                if let Some(versions) = group["versions"].as_array_mut() {
                    versions.push(version);
                }
            }
            None => groups.push(json!({
                "metadata": {"name": name}, "versions": [version],
            })),
        }
    }
}

/// Adds the documents of extension servers to the index of OpenAPI v3.
pub(crate) fn add_to_index(server: &ApiServer, index: &mut Json, services: &[Aggregated]) {
    for service in services {
        let known = server.extensions.known(&service.key);
        let Some(hash) = known.openapi.as_ref().filter(|_| service.service.available) else {
            continue;
        };
        let path = format!("apis/{}", service.service.api_version());
        let url = crate::openapi::location(&path, hash);
        index["paths"][path] = json!({"serverRelativeURL": url});
    }
}

/// Returns the parts of OpenAPI v2 of extension servers.
pub(crate) fn openapi_v2(server: &ApiServer, services: &[Aggregated]) -> Vec<Arc<Extension>> {
    let available = services.iter().filter(|service| service.service.available);
    let known = available.map(|service| server.extensions.known(&service.key));
    known.filter_map(|known| known.openapi_v2.clone()).collect()
}

/// Reads `/apis/<group>/<version>` of an extension server: resources in the form of aggregated
/// discovery. What is malformed is left out.
pub(super) fn resources(list: &Json, (group, version): (&str, &str)) -> Vec<Json> {
    let mut found: Vec<Json> = Vec::new();
    let entries = list["resources"].as_array().into_iter().flatten();
    for entry in entries.take(RESOURCES_MAX) {
        let Some(name) = text(entry, "name") else { continue };
        let kind = json!({
            "group": text(entry, "group").unwrap_or_else(|| group.to_owned()),
            "version": text(entry, "version").unwrap_or_else(|| version.to_owned()),
            "kind": text(entry, "kind").unwrap_or_default(),
        });
        let verbs = list_of(entry, "verbs");
        match name.split_once('/') {
            None => {
                let scope = match entry["namespaced"] == true {
                    true => "Namespaced",
                    false => "Cluster",
                };
                let mut resource = json!({
                    "resource": name, "responseKind": kind, "scope": scope,
                    "singularResource": text(entry, "singularName").unwrap_or_default(), "verbs": verbs,
                });
                for field in ["shortNames", "categories"] {
                    let items = list_of(entry, field);
                    if !items.is_empty() {
                        resource[field] = json!(items);
                    }
                }
                found.push(resource);
            }
            Some((of, subresource)) => {
                let sub = json!({"subresource": subresource, "responseKind": kind, "verbs": verbs});
                if let Some(resource) = found.iter_mut().find(|resource| resource["resource"] == of) {
                    match resource["subresources"].as_array_mut() {
                        Some(all) => all.push(sub),
                        None => resource["subresources"] = json!([sub]),
                    }
                }
            }
        }
    }
    found
}

fn is_short(text: &&str) -> bool {
    !text.is_empty() && text.len() <= TEXT_BYTES_MAX
}

fn text(of: &Json, field: &str) -> Option<String> {
    of[field].as_str().filter(is_short).map(str::to_owned)
}

fn list_of(of: &Json, field: &str) -> Vec<String> {
    let items = of[field].as_array().into_iter().flatten();
    let texts = items.filter_map(Json::as_str).filter(is_short);
    texts.take(LIST_MAX).map(str::to_owned).collect()
}

/// Reads the hash of a document in the index of an extension server's OpenAPI v3.
pub(super) fn openapi_hash(index: &Json, api_version: &str) -> Option<String> {
    let url = index["paths"][format!("apis/{api_version}")]["serverRelativeURL"].as_str()?;
    let hash = url.split_once("hash=").map_or("", |(_, rest)| rest);
    let plain: String = hash.chars().take_while(char::is_ascii_alphanumeric).take(128).collect();
    // A document without a hash is found by its path.
    Some(match plain.is_empty() {
        true => "0".to_owned(),
        false => plain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_is_read_and_what_is_malformed_left_out() {
        let list = json!({"kind": "APIResourceList", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
             "verbs": ["get", "list", 7], "shortNames": ["fl"]},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
            {"name": "unknown/status", "kind": "X", "verbs": ["get"]},
            {"name": 7}, "nonsense", {"name": "x".repeat(300)},
        ]});
        let kind = json!({"group": "wardle.example.com", "version": "v1alpha1", "kind": "Flunder"});
        let want = json!([{"resource": "flunders", "responseKind": kind, "scope": "Namespaced",
            "singularResource": "flunder", "verbs": ["get", "list"], "shortNames": ["fl"],
            "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}]}]);
        assert_eq!(json!(resources(&list, ("wardle.example.com", "v1alpha1"))), want);
        for nonsense in [json!(null), json!([]), json!({"resources": {"a": 1}})] {
            assert!(resources(&nonsense, ("a", "b")).is_empty());
        }
    }

    #[test]
    fn hashes_are_plain() {
        let index = |url: &str| json!({"paths": {"apis/a/v1": {"serverRelativeURL": url}}});
        let hash = |url: &str| openapi_hash(&index(url), "a/v1");
        assert_eq!(hash("/openapi/v3/apis/a/v1?hash=AB12&x=1").as_deref(), Some("AB12"));
        assert_eq!(hash("/openapi/v3/apis/a/v1").as_deref(), Some("0"));
        assert_eq!(openapi_hash(&json!({}), "a/v1"), None);
    }
}
