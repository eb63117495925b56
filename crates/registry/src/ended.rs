//! Record of a release of an export that a write ends, in the transaction of that write.
//!
//! A release is what an export offers: its schemas and their rules. It ends with a write of the
//! export's `spec.resources`, or of the rules of a schema on offer. So that an export can go back
//! to it, its history says what it was, and a copy of its rules stays: the rules that are stored
//! serve until they are written or deleted, and a bundle with them is stored before that.

use crate::{
    client::stamp,
    deps::Deps,
    draft::Draft,
    verbs::{Admission, commit_error},
};
use insula_access::Target;
use insula_api::{
    ClusterName, Json, Object, ObjectKey, Scope,
    kinds::{self, AddedResource, ApiExport, ExportedResource, ReleasedResource},
};
use insula_catalog::{
    Api, Part, Result, Served, bundle,
    exports::{ExportName, Replaced, end_release, history_value, release_on_offer},
    ids,
    object::rewrite,
    parts,
};
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

/// Adds to the history of an export the release that a change of its resources ends.
pub(crate) fn by_export(deps: &Deps, admission: &Admission<'_>, old: &Entry, draft: &mut Draft) {
    let Admission { snapshot, target, .. } = *admission;
    if admission.part != Part::Main || target.served.resource_id() != ids::apiexports() {
        return;
    }
    let old_value = old.object.body_value();
    if old_value["spec"]["resources"] == draft.value["spec"]["resources"] {
        return;
    }
    let export: ApiExport = kinds::read(&old_value);
    let new: ApiExport = kinds::read(&draft.value);
    let replaced = between(deps, snapshot, &target.cluster, (&export, &new));
    if let Some(history) = history_with(deps, snapshot, (old, &old_value, &export), replaced) {
        for value in std::iter::once(&mut draft.value).chain(&mut draft.shown) {
            value["status"]["rollout"]["history"] = history.clone();
        }
    }
}

/// Returns true for a resource that the server stores.
fn is_stored(resource: &&ExportedResource) -> bool {
    resource.storage.r#virtual.is_none()
}

/// Returns the change between two states of an export. Schemas that do not compile are no part of a
/// release.
fn between(deps: &Deps, snapshot: &Snapshot, cluster: &ClusterName, (old, new): (&ApiExport, &ApiExport)) -> Replaced {
    let find = |export: &ApiExport, wanted: &ExportedResource| {
        let mut stored = export.spec.resources.iter().filter(is_stored);
        let found = stored.find(|it| it.group == wanted.group && it.name == wanted.name);
        found.map(|found| found.schema.clone())
    };
    let mut replaced = Replaced::default();
    for resource in old.spec.resources.iter().filter(is_stored) {
        if find(new, resource).as_ref() == Some(&resource.schema) {
            continue;
        }
        let api = deps.catalog.stored(snapshot, cluster, &resource.schema);
        let released = api.and_then(|api| released(snapshot, cluster, resource, &api));
        replaced.resources.extend(released);
    }
    let added = new.spec.resources.iter().filter(is_stored);
    let added = added.filter(|resource| find(old, resource).is_none());
    replaced.added.extend(added.map(|resource| AddedResource {
        group: resource.group.clone(),
        name: resource.name.clone(),
    }));
    replaced
}

fn schema_key(cluster: &ClusterName, schema: &str) -> ObjectKey {
    ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), schema)
}

fn released(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    resource: &ExportedResource,
    api: &Api,
) -> Option<ReleasedResource> {
    let schema = snapshot.get(&schema_key(cluster, &resource.schema))?;
    Some(ReleasedResource {
        group: resource.group.clone(),
        name: resource.name.clone(),
        schema: resource.schema.clone(),
        uid: schema.object.meta.uid.to_string(),
        fingerprint: ids::fingerprint(api.fingerprint),
    })
}

/// Returns the history of an export after a change; `None` if nothing changes, or nobody was bound
/// to the export.
fn history_with(
    deps: &Deps,
    snapshot: &Snapshot,
    (entry, value, export): (&Entry, &Json, &ApiExport),
    replaced: Replaced,
) -> Option<Json> {
    let state = &export.status.rollout;
    if replaced.is_empty() || state.release.is_empty() && !is_bound(snapshot, &entry.key) {
        return None;
    }
    let cluster = &entry.key.cluster;
    let release = || match is_observed(snapshot, (entry, value, export)) {
        true => state.release.clone(),
        // To compute it takes as long as to read all schemas.
        false => release_on_offer(&deps.catalog, snapshot, cluster, &export.spec.resources),
    };
    let mut history = state.history.clone();
    end_release(&mut history, replaced, deps.clock.now(), release);
    Some(history_value(&history))
}

fn is_bound(snapshot: &Snapshot, export: &ObjectKey) -> bool {
    ExportName::new(&export.cluster, &export.name).is_bound(snapshot)
}

/// Returns true if the status of an export names the release that it offers: the objects from which
/// that was read have not changed since.
fn is_observed(snapshot: &Snapshot, (entry, value, export): (&Entry, &Json, &ApiExport)) -> bool {
    if export.status.rollout.release.is_empty() {
        return false;
    }
    let stored = export.spec.resources.iter().filter(is_stored);
    let offered: BTreeSet<&str> = stored.map(|resource| &*resource.schema).collect();
    let own = ("APIExport".to_owned(), entry.key.name.to_string());
    let mut now = BTreeMap::from([(own, entry.object.meta.generation)]);
    let scope = Scope::cluster(ids::apiconversions(), entry.key.cluster.clone());
    snapshot.for_each(&scope, |rules| {
        if offered.contains(parts::schema_of_stored(&rules.object, &rules.key.name)) {
            let one = ("APIConversion".to_owned(), rules.key.name.to_string());
            now.insert(one, rules.object.meta.generation);
        }
        ControlFlow::Continue(())
    });
    let observed = value.pointer("/status/rollout/observed").and_then(Json::as_array);
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let observed = observed.into_iter().flatten().map(|it| {
        let generation = it["generation"].as_i64().unwrap_or_default();
        ((text(&it["kind"]), text(&it["name"])), generation)
    });
    observed.collect::<BTreeMap<_, _>>() == now
}

/// Releases that a write of rules ends.
#[derive(Default)]
pub(crate) struct Ended {
    /// Exports with the history as it is then.
    exports: Vec<(Guard, Write)>,
    /// Copies of the rules, for exports that can go back to them.
    copies: Vec<(ObjectKey, Arc<Object>)>,
}

impl Ended {
    /// Stores the copies of the rules and adds the exports to the transaction of the write. The
    /// copies come before it, in transactions of their own: all together may be larger than one.
    /// Bundles that no export remembers are collected.
    ///
    /// # Errors
    /// The request of the write has ended, or the store refuses.
    pub(crate) async fn join(self, deps: &Deps, served: &Served, txn: &mut Txn) -> Result<()> {
        // A walk that ended early is no verdict: nothing is written by it.
        served.meter.check()?;
        for (key, object) in &self.copies {
            let txn = Txn {
                guards: vec![Guard::Absent(key.clone())],
                writes: vec![Write::Put(key.clone(), object.clone())],
            };
            match deps.store.commit(txn).await {
                // Another write has stored it.
                Ok(_) | Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(commit_error(error)),
            }
        }
        let (guards, writes): (Vec<Guard>, Vec<Write>) = self.exports.into_iter().unzip();
        txn.guards.extend(guards);
        txn.writes.extend(writes);
        Ok(())
    }
}

/// Returns the releases that a write of an APIConversion ends; none for other kinds.
pub(crate) fn by_rules(
    deps: &Deps,
    snapshot: &Snapshot,
    target: &Target,
    key: &ObjectKey,
    (old, new): (Option<&Object>, Option<&Object>),
) -> Result<Ended> {
    let mut ended = Ended::default();
    if target.served.resource_id() != ids::apiconversions() {
        return Ok(ended);
    }
    let schemas: BTreeSet<&str> = [old, new]
        .into_iter()
        .flatten()
        .map(|rules| parts::schema_of_stored(rules, &key.name))
        .collect();
    for schema in schemas {
        let new = new.filter(|rules| parts::schema_of_stored(rules, &key.name) == schema);
        of_schema(deps, snapshot, key, (schema, new), &mut ended)?;
    }
    Ok(ended)
}

/// Adds the releases that end with a change of the rules of one schema.
fn of_schema(
    deps: &Deps,
    snapshot: &Snapshot,
    key: &ObjectKey,
    (name, new): (&str, Option<&Object>),
    ended: &mut Ended,
) -> Result<()> {
    let cluster = &key.cluster;
    let Some(schema) = snapshot.get(&schema_key(cluster, name)) else {
        return Ok(());
    };
    let value = schema.object.body_value();
    let stored = parts::for_schema(snapshot, cluster, name);
    let compile = |rules: Vec<Json>| {
        let bundle = bundle::of_schema(&value, parts::join(rules).as_ref());
        let api = deps.catalog.compile(&bundle).ok()?;
        Some((bundle, api))
    };
    let Some((before, api)) = compile(stored.iter().map(|part| part.object.body_value()).collect()) else {
        return Ok(());
    };
    let mut after: BTreeMap<&str, Json> = stored
        .iter()
        .filter(|part| part.key != *key)
        .map(|part| (&*part.key.name, part.object.body_value()))
        .collect();
    after.extend(new.map(|rules| (&*key.name, rules.body_value())));
    let is_partial = stored.len().max(after.len()) > 1;
    if compile(after.into_values().collect()).is_some_and(|(_, after)| after.fingerprint == api.fingerprint) {
        return Ok(());
    }
    let generation = (schema.object.meta.uid.to_string(), ids::fingerprint(api.fingerprint));
    let mut is_remembered = false;
    for entry in exports(snapshot, cluster) {
        let value = entry.object.body_value();
        let export: ApiExport = kinds::read(&value);
        let former = export
            .status
            .rollout
            .history
            .iter()
            .flat_map(|former| &former.resources);
        is_remembered |= former
            .into_iter()
            .any(|it| (&it.uid, &it.fingerprint) == (&generation.0, &generation.1));
        let offered = export.spec.resources.iter().filter(is_stored);
        let offered = offered.filter(|resource| resource.schema == name);
        let replaced = Replaced {
            resources: offered
                .filter_map(|resource| released(snapshot, cluster, resource, &api))
                .collect(),
            added: Vec::new(),
            is_partial,
        };
        if let Some(history) = history_with(deps, snapshot, (&entry, &value, &export), replaced) {
            is_remembered = true;
            let mut value = value;
            value["status"]["rollout"]["history"] = history;
            let object = Arc::new(rewrite(&entry.object, &value)?);
            let guard = Guard::At(entry.key.clone(), entry.revision);
            ended.exports.push((guard, Write::Put(entry.key.clone(), object)));
        }
    }
    if is_remembered {
        ended.copies.extend(copy(deps, snapshot, before, &generation)?);
    }
    Ok(())
}

/// Returns the exports of a cluster.
fn exports(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Entry> {
    let mut found = Vec::new();
    snapshot.for_each(&Scope::cluster(ids::apiexports(), cluster.clone()), |export| {
        if !export.object.meta.is_deleting() {
            found.push(export.clone());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Returns the bundle of a schema with its rules; `None` if one is stored.
fn copy(
    deps: &Deps,
    snapshot: &Snapshot,
    mut bundle: Json,
    (uid, fingerprint): &(String, String),
) -> Result<Option<(ObjectKey, Arc<Object>)>> {
    let serves_it = |name: &String| {
        let present = snapshot.get(&ids::bundle(name));
        let present = present.and_then(|present| deps.catalog.compiled(&present.object).ok());
        present.is_some_and(|present| ids::fingerprint(present.fingerprint) == *fingerprint)
    };
    let names = ids::bundle_names(uid, fingerprint);
    if names.iter().any(serves_it) {
        return Ok(None);
    }
    let key = ids::bundle(&names[0]);
    bundle["metadata"]["name"] = json!(names[0]);
    let object = stamp(deps, &key, bundle)?;
    Ok(Some((key, Arc::new(object))))
}
