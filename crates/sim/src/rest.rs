//! Promises about the state when nothing happens any more.

use crate::{
    client::{PROVIDERS, TENANTS},
    world::World,
    yaml,
};
use insula_api::{ClusterName, ClusterPath, Json, ObjectKey, Scope};
use insula_catalog::{ResourceRoute, ids, locate, stored};
use insula_meter::ServerWork;
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};
use std::collections::BTreeSet;

/// Checks the state of all servers.
pub(crate) fn check(world: &World) -> Result<(), String> {
    let now = world.center.now();
    let all = entries(&now);
    for (number, server) in world.servers.iter().enumerate() {
        let Some(server) = server else { continue };
        let told = |why: String| format!("server {number}: {why}");
        same(&all, &entries(&server.deps.store.latest().for_server(ServerWork::Tool))).map_err(told)?;
        workspaces(&server.deps, &now).map_err(told)?;
    }
    leftovers(&all)?;
    all.iter().try_for_each(|entry| has_its_place(&now, entry))?;
    orphans(&all)
}

fn entries(snapshot: &Snapshot) -> Vec<Entry> {
    snapshot.range(&Scope::everything(), None, usize::MAX)
}

/// Checks that a copy equals the store.
fn same(store: &[Entry], copy: &[Entry]) -> Result<(), String> {
    let brief = |entry: &Entry| (entry.key.clone(), entry.revision, entry.object.body().concat());
    let store: BTreeSet<_> = store.iter().map(brief).collect();
    let copy: BTreeSet<_> = copy.iter().map(brief).collect();
    match store.symmetric_difference(&copy).next() {
        Some((key, revision, _)) => Err(format!("{key:?} at {revision} is in one of store and copy")),
        None => Ok(()),
    }
}

/// Checks that workspaces are ready, and that bindings serve what their export offers.
fn workspaces(deps: &Deps, now: &Snapshot) -> Result<(), String> {
    let workspaces = now.range(&Scope::everywhere(ids::workspaces()), None, usize::MAX);
    for entry in workspaces {
        let phase = text(&entry, "/status/phase");
        if phase != "Ready" {
            return Err(format!("workspace {} is {phase:?}", entry.key.name));
        }
    }
    for tenant in TENANTS {
        let Some(cluster) = cluster(now, tenant) else { continue };
        let key = ObjectKey::cluster_scoped(ids::apibindings(), cluster.clone(), "widgets");
        let Some(binding) = now.get(&key) else { continue };
        bound(deps, now, tenant, &cluster, &binding)?;
    }
    Ok(())
}

fn bound(deps: &Deps, now: &Snapshot, tenant: &str, cluster: &ClusterName, binding: &Entry) -> Result<(), String> {
    let phase = text(binding, "/status/phase");
    if phase != "Bound" {
        let why = condition(binding, "Ready").to_string();
        return Err(format!("the binding of {tenant} is {phase:?}: {why}"));
    }
    let provider = text(binding, "/spec/reference/export/path");
    let export = PROVIDERS.iter().find(|name| provider == format!("root:{name}"));
    let export = export.and_then(|name| {
        now.get(&ObjectKey::cluster_scoped(
            ids::apiexports(),
            self::cluster(now, name)?,
            "widgets",
        ))
    });
    let Some(export) = export else {
        return Err(format!("{provider} has no export"));
    };
    claims(tenant, &export, binding)?;
    let (offers, has) = (
        text(&export, "/spec/resources/0/schema"),
        text(binding, "/status/boundResources/0/schema/name"),
    );
    if offers.is_empty() || has.is_empty() {
        // The export dropped its resource; what has objects is served as before.
        return Ok(());
    }
    let up_to_date = condition(binding, "BindingUpToDate");
    if offers != has && up_to_date["status"] == "True" {
        return Err(format!("{tenant} has {has}, is offered {offers}, and is up to date"));
    }
    if offers != has && up_to_date["reason"] != "APIResourceSchemaInvalid" {
        return Err(format!("{tenant} has {has} and not {offers}: {up_to_date}"));
    }
    let versions: &[&str] = match has.starts_with("r0") {
        true => &["v1"],
        false => &["v1", "v2"],
    };
    let Some(served) = deps.catalog.resolve(
        &deps.store.latest().for_server(ServerWork::Tool),
        cluster,
        "example.io",
        "widgets",
    ) else {
        return Err(format!("{tenant} is bound, and serves no widgets"));
    };
    if let Some(missing) = versions.iter().find(|version| served.version(version).is_none()) {
        return Err(format!("{tenant} has {has}, and does not serve {missing}"));
    }
    for entry in now.range(&Scope::cluster(served.resource_id(), cluster.clone()), None, usize::MAX) {
        let show = |version: &&str| {
            let shown = stored::value(&served, &entry, version);
            shown.map_err(|why| format!("{:?} cannot be shown in {version}: {why}", entry.key))
        };
        let shown = versions.iter().map(show).collect::<Result<Vec<Json>, String>>()?;
        same_values(&entry.key, &shown)?;
    }
    Ok(())
}

/// Checks that what an export claims and a binding accepts applies, and nothing else.
fn claims(tenant: &str, export: &Entry, binding: &Entry) -> Result<(), String> {
    let [export, binding] = [export, binding].map(|entry| entry.object.body_value());
    let is_claimed = export.pointer("/spec/permissionClaims/0").is_some();
    let answer = binding.pointer("/spec/permissionClaims/0/state");
    let is_accepted = answer.and_then(Json::as_str) == Some("Accepted");
    let applies = binding.pointer("/status/appliedPermissionClaims/0").is_some();
    match applies == (is_claimed && is_accepted) {
        true => Ok(()),
        false => Err(format!(
            "of {tenant} the claim applies: {applies}; claimed: {is_claimed}, accepted: {is_accepted}"
        )),
    }
}

/// Checks that what versions of an object share is the same in each.
fn same_values(key: &ObjectKey, shown: &[Json]) -> Result<(), String> {
    let [v1, v2] = shown else { return Ok(()) };
    let pairs = [
        (&v1["spec"]["first"], &v2["spec"]["name"]["first"]),
        (&v1["spec"]["note"], &v2["spec"]["note"]),
    ];
    match pairs.iter().find(|(a, b)| a != b) {
        Some((a, b)) => Err(format!("{key:?} shows {a} in v1, and {b} in v2")),
        None => Ok(()),
    }
}

/// Checks that nothing is left of workspaces that are gone.
fn leftovers(all: &[Entry]) -> Result<(), String> {
    let there: BTreeSet<String> = all
        .iter()
        .filter(|entry| entry.key.resource == ids::logicalclusters())
        .map(|entry| entry.key.cluster.to_string())
        .collect();
    let is_left = |entry: &&Entry| {
        let cluster = entry.key.cluster.to_string();
        !cluster.starts_with("system:") && !there.contains(&cluster)
    };
    match all.iter().find(is_left) {
        Some(entry) => Err(format!("{:?} is left of a workspace that is gone", entry.key)),
        None => Ok(()),
    }
}

/// Checks that the namespace of an object is there, and what serves it.
fn has_its_place(now: &Snapshot, entry: &Entry) -> Result<(), String> {
    let key = &entry.key;
    if key.cluster.as_str().starts_with("system:") {
        return Ok(());
    }
    let namespace = ObjectKey::cluster_scoped(ids::namespaces(), key.cluster.clone(), &key.namespace);
    if !key.namespace.is_empty() && now.get(&namespace).is_none() {
        return Err(format!("{key:?} is left of a namespace that is gone"));
    }
    let Some(kind) = yaml::KINDS.iter().find(|kind| *kind.plural == *key.resource.resource) else {
        return Ok(());
    };
    let route = now.get(&ids::resource_route(&key.cluster, kind.group, kind.plural));
    let identity = route.map(|route| ResourceRoute::read(&route.object).identity);
    match identity.as_ref() == Some(&key.resource.identity) {
        true => Ok(()),
        false => Err(format!("{key:?} is left of an API that is gone")),
    }
}

/// Checks that each object with owners has one that is there.
fn orphans(all: &[Entry]) -> Result<(), String> {
    let uid = |value: &Json| value["uid"].as_str().unwrap_or_default().to_owned();
    let uids: BTreeSet<String> = all
        .iter()
        .map(|entry| uid(&entry.object.body_value()["metadata"]))
        .collect();
    for entry in all.iter().filter(|entry| *entry.key.resource.resource == *"configmaps") {
        let value = entry.object.body_value();
        let owners = value["metadata"]["ownerReferences"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        if !owners.is_empty() && !owners.iter().any(|owner| uids.contains(&uid(owner))) {
            return Err(format!("{:?} is left of its owner", entry.key));
        }
    }
    Ok(())
}

fn cluster(now: &Snapshot, name: &str) -> Option<ClusterName> {
    let path = ClusterPath::parse(&format!("root:{name}")).ok()?;
    locate::locate(now, &path).ok()
}

fn text(entry: &Entry, place: &str) -> String {
    let value = entry.object.body_value();
    value
        .pointer(place)
        .and_then(Json::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn condition(entry: &Entry, kind: &str) -> Json {
    insula_api::condition(&entry.object.body_value(), kind)
        .cloned()
        .unwrap_or_default()
}
