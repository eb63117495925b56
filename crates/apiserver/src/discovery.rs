//! Discovery documents: `/api`, `/apis`, `/apis/<group>`, `/apis/<group>/<version>` and their
//! aggregated form. Pure functions of the APIs that a cluster serves.

mod order;

pub(crate) use order::Ordered;

use base64::{Engine, engine::general_purpose::STANDARD};
use insula_api::{Json, Verb};
use insula_catalog::{ApiVersion, Origin, ScopeKind, Served, Subresource, registration};
use serde_json::json;
use sha2::{Digest, Sha256, Sha512};
use std::{cmp::Reverse, collections::BTreeMap, sync::OnceLock};

/// Version of Kubernetes whose API is served.
const KUBERNETES_MAJOR: &str = "1";
const KUBERNETES_MINOR: &str = "36";

/// Verbs of a custom resource, in Kubernetes' order.
const CUSTOM_VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];
const SUBRESOURCE_VERBS: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

/// Word of a build without git for its commit.
const UNKNOWN: &str = "unknown";

/// The source that a program was built from.
#[derive(Debug, Clone, Copy)]
pub struct Build {
    /// Commit, in hexadecimal digits; "unknown" where the build had no git.
    pub commit: &'static str,
    /// Date of the commit, `2026-11-21`; "unknown" likewise.
    pub date: &'static str,
}

/// Source of the running program. Libraries do not know it: only a program is built from a commit.
static BUILD: OnceLock<Build> = OnceLock::new();

/// Says what the program was built from; once, when it starts.
pub fn identify(build: Build) {
    let _ = BUILD.set(build);
}

/// Returns `/version`, for the whole server and in a workspace. `insula` is this program's version.
/// A date that is not known is Go's for none.
pub fn version(insula: &str) -> Json {
    let build = BUILD.get().filter(|build| build.commit != UNKNOWN);
    let date = build.map(|build| build.date).filter(|date| *date != UNKNOWN);
    json!({
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+insula-{insula}"),
        "gitCommit": build.map_or("", |build| build.commit),
        "gitTreeState": "",
        "buildDate": date.map_or("1970-01-01T00:00:00Z".to_owned(), |date| format!("{date}T00:00:00Z")),
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    })
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns `/api`. `address` is `host:port` as clients reach this server.
pub fn core_versions(address: &str) -> Json {
    json!({
        "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses(address),
    })
}

fn addresses(address: &str) -> Json {
    json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": address}])
}

/// Returns `/apis`: every group but the core one, by name. Kubernetes' own groups have the server's
/// address, as in Kubernetes.
pub fn groups(served: &[Served], address: &str) -> Json {
    let group = |(name, of_group): (&str, Vec<&Served>)| {
        let mut body = group_body(&of_group, name)?;
        if of_group.iter().all(|one| is_built_in(one)) {
            body["serverAddressByClientCIDRs"] = addresses(address);
        }
        Some(body)
    };
    let groups: Vec<Json> = by_group(served).into_iter().filter_map(group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/<group>`.
pub fn group(served: &[Served], name: &str) -> Option<Json> {
    let mut body = group_body(&in_group(served, name), name)?;
    body["kind"] = json!("APIGroup");
    body["apiVersion"] = json!("v1");
    Some(body)
}

fn group_body(of_group: &[&Served], name: &str) -> Option<Json> {
    let versions: Vec<Json> = ranked(of_group)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn in_group<'a>(served: &'a [Served], group: &str) -> Vec<&'a Served> {
    served.iter().filter(|one| **one.group() == *group).collect()
}

/// Returns the groups but the core one, each with its APIs. Clients resolve a resource name in the
/// first group that has it: Kubernetes' own groups come first, so that a tenant's `roles` are not
/// taken for theirs, and aliases of groups come last.
fn by_group(served: &[Served]) -> Vec<(&str, Vec<&Served>)> {
    let mut groups: BTreeMap<(Rank, &str), Vec<&Served>> = BTreeMap::new();
    for one in served.iter().filter(|one| !one.group().is_empty()) {
        let rank = match (is_built_in(one), one.alias.is_some()) {
            (true, _) => Rank::BuiltIn,
            (false, false) => Rank::Own,
            (false, true) => Rank::Alias,
        };
        groups.entry((rank, one.group())).or_default().push(one);
    }
    groups
        .into_iter()
        .map(|((_, name), of_group)| (name, of_group))
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    BuiltIn,
    Own,
    Alias,
}

/// Returns the versions of a group, the preferred one first.
pub fn versions<'a>(served: &'a [Served], group: &str) -> Vec<&'a str> {
    ranked(&in_group(served, group))
}

fn ranked<'a>(of_group: &[&'a Served]) -> Vec<&'a str> {
    let mut versions: Vec<&str> = of_group
        .iter()
        .flat_map(|one| one.served_versions().map(|v| &*v.name))
        // Clients cannot read a group version with two slashes: `/thirdparty` lists those.
        .filter(|version| !registration::is_nested(version))
        .collect();
    versions.sort_by_key(|version| priority(version));
    versions.dedup();
    versions
}

/// Sorts versions by Kubernetes' priority: `v10`, `v2`, `v1`, `v11beta2`, `v10beta3`, `v3alpha1`,
/// then others by name.
fn priority(version: &str) -> (u8, Reverse<u64>, Reverse<u64>, &str) {
    let other = (3, Reverse(0), Reverse(0), version);
    let Some(rest) = version.strip_prefix('v') else {
        return other;
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let Ok(major) = major.parse::<u64>() else { return other };
    if rest.is_empty() {
        return (0, Reverse(major), Reverse(0), "");
    }
    let stages = [(1, "beta"), (2, "alpha")];
    let staged = stages
        .into_iter()
        .find_map(|(rank, stage)| Some((rank, rest.strip_prefix(stage)?.parse::<u64>().ok()?)));
    staged.map_or(other, |(rank, minor)| (rank, Reverse(major), Reverse(minor), ""))
}

/// Returns `/apis/<group>/<version>`, and `/api/v1` for the core group: resources by name, each
/// followed by its subresources.
pub fn resources(served: &[Served], group: &str, version: &str) -> Option<Json> {
    let found = of_version(&in_group(served, group), version);
    if found.is_empty() {
        return None;
    }
    let entries: Vec<Json> = found
        .into_iter()
        .flat_map(|(one, version)| resource_entries(one, version))
        .collect();
    let mut list = json!({"kind": "APIResourceList", "resources": entries});
    if group.is_empty() {
        list["groupVersion"] = json!(version);
    } else {
        list["apiVersion"] = json!("v1");
        list["groupVersion"] = json!(format!("{group}/{version}"));
    }
    Some(list)
}

/// Returns the APIs of a version of a group, by resource name.
fn of_version<'a>(of_group: &[&'a Served], version: &str) -> Vec<(&'a Served, &'a ApiVersion)> {
    let mut found: Vec<_> = of_group
        .iter()
        .filter_map(|one| Some((*one, one.served_versions().find(|v| *v.name == *version)?)))
        .collect();
    found.sort_by_key(|(one, _)| one.names().plural.clone());
    found
}

fn subresources(served: &Served, version: &ApiVersion) -> Vec<Subresource> {
    let mut found = Vec::new();
    found.extend(served.api.builtin.map_or(&[][..], |builtin| builtin.subresources));
    if version.status {
        found.push(Subresource {
            name: "status",
            body: None,
            verbs: SUBRESOURCE_VERBS,
        });
    }
    if version.scale.is_some() {
        let body = Some(("autoscaling", "v1", "Scale"));
        found.push(Subresource {
            name: "scale",
            body,
            verbs: SUBRESOURCE_VERBS,
        });
    }
    found
}

fn verb_names(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.name()).collect()
}

fn verbs(served: &Served) -> Vec<&'static str> {
    if served.api.strategy.traits().review {
        return vec![Verb::Create.name()];
    }
    let deletes_collection = served.api.strategy.traits().deletes_collection;
    let read_only = served.api.strategy.traits().read_only;
    let exists = |verb: &Verb| match verb {
        verb if read_only => verb.reads(),
        Verb::DeleteCollection if !deletes_collection => false,
        // What is being deleted can still be deleted, except for the objects of a
        // ThirdPartyResource.
        Verb::Delete | Verb::DeleteCollection => !(served.terminating && served.is_third_party()),
        _ => verb.reads() || !served.terminating,
    };
    let mut verbs: Vec<Verb> = CUSTOM_VERBS.into_iter().filter(exists).collect();
    if is_built_in(served) {
        verbs.sort_unstable_by_key(|verb| verb.name());
    }
    verb_names(&verbs)
}

/// Returns true for built-in kinds, which have another order of verbs and a shorter `responseKind`.
pub(crate) fn is_built_in(served: &Served) -> bool {
    served.api.strategy.traits().built_in
}

/// Returns the entries of a resource and its subresources.
pub(crate) fn resource_entries(served: &Served, version: &ApiVersion) -> Vec<Json> {
    let names = served.names();
    let namespaced = served.api.scope == ScopeKind::Namespaced;
    let mut entry = json!({
        "name": &*names.plural, "singularName": &*names.singular, "namespaced": namespaced, "kind": &*names.kind,
        "verbs": verbs(served),
    });
    if !served.api.strategy.traits().review && served.api.storage_version().served {
        entry["storageVersionHash"] = json!(storage_version_hash(served));
    }
    insert_lists(&mut entry, served);
    let subresources = subresources(served, version).into_iter().map(|sub| {
        let mut entry = json!({
            "name": format!("{}/{}", names.plural, sub.name), "singularName": "", "namespaced": namespaced,
            "kind": &*names.kind, "verbs": verb_names(sub.verbs),
        });
        if let Some((group, version, kind)) = sub.body {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
            entry["kind"] = json!(kind);
        }
        entry
    });
    std::iter::once(entry).chain(subresources).collect()
}

fn insert_lists(entry: &mut Json, served: &Served) {
    let names = served.names();
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        if !list.is_empty() {
            entry[field] = json!(list);
        }
    }
}

/// Returns a hash of the storage version, by which clients notice a change of it. kcp's begins with
/// the name of the cluster, which is empty for its own kinds; Kubernetes' does not, and tests of
/// both compute it.
fn storage_version_hash(served: &Served) -> String {
    let version = served
        .alias
        .as_ref()
        .map_or(&served.api.storage_version().name, |alias| &alias.version);
    let slash = match served.origin {
        Origin::System => "/",
        Origin::Bound { .. } | Origin::Local { .. } => "",
    };
    let digest = Sha256::digest(format!("{slash}{}/{version}/{}", served.group(), served.names().kind));
    STANDARD.encode(&digest[..8])
}

/// Returns `/api` in its aggregated form: the core group.
pub fn aggregated_core(served: &[Served]) -> Json {
    let item = aggregated_group(&in_group(served, ""), "");
    group_discovery_list(item.into_iter().collect())
}

/// Returns `/apis` in its aggregated form: every other group.
pub fn aggregated_groups(served: &[Served]) -> Json {
    group_discovery_list(
        by_group(served)
            .into_iter()
            .filter_map(|(name, of_group)| aggregated_group(&of_group, name))
            .collect(),
    )
}

fn group_discovery_list(items: Vec<Json>) -> Json {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_group(of_group: &[&Served], name: &str) -> Option<Json> {
    let versions: Vec<Json> = ranked(of_group)
        .into_iter()
        .map(|version| {
            let resources: Vec<Json> = of_version(of_group, version)
                .into_iter()
                .map(|(one, version)| aggregated_resource(one, version))
                .collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    if versions.is_empty() {
        return None;
    }
    let metadata = if name.is_empty() {
        json!({})
    } else {
        json!({"name": name})
    };
    Some(json!({"metadata": metadata, "versions": versions}))
}

fn aggregated_resource(served: &Served, version: &ApiVersion) -> Json {
    let names = served.names();
    // Built-ins leave out a group and version that equal those of the document.
    let own = match is_built_in(served) {
        true => json!({"group": "", "version": "", "kind": &*names.kind}),
        false => json!({"group": &**served.group(), "version": &*version.name, "kind": &*names.kind}),
    };
    let scope = match served.api.scope {
        ScopeKind::Namespaced => "Namespaced",
        ScopeKind::Cluster => "Cluster",
    };
    let mut entry = json!({
        "resource": &*names.plural, "responseKind": own, "scope": scope, "singularResource": &*names.singular,
        "verbs": verbs(served),
    });
    insert_lists(&mut entry, served);
    let subresources: Vec<Json> = subresources(served, version)
        .into_iter()
        .map(|sub| {
            let kind = sub
                .body
                .map(|(group, version, kind)| json!({"group": group, "version": version, "kind": kind}));
            let kind = kind.unwrap_or_else(|| own.clone());
            json!({"subresource": sub.name, "responseKind": kind, "verbs": verb_names(sub.verbs)})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}

/// Returns the JSON text of a document.
pub(crate) fn text(document: &Json) -> Vec<u8> {
    serde_json::to_vec(&Ordered::document(document)).expect("values have JSON texts")
}

/// Returns a strong entity tag without its quotes: SHA-512 in upper-case hex, as in kube-apiserver.
pub fn etag(bytes: &[u8]) -> String {
    hex_upper(&Sha512::digest(bytes))
}

/// Returns true if an `If-None-Match` header names a tag.
pub fn etag_matches(header: Option<&str>, tag: &str) -> bool {
    header.is_some_and(|header| {
        header
            .split(',')
            .map(|one| one.trim().trim_start_matches("W/").trim_matches('"'))
            .any(|one| one == tag || one == "*")
    })
}

pub(crate) fn hex_upper(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests;
