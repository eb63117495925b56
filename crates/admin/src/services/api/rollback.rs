//! `ApiService`: return to a former release of an export, as a publication of its schemas and of
//! the rules in the bundles that served it.

use super::{
    manifests::text,
    objects::published,
    publication::{Options, Plan, publish},
};
use insula_admission::publication::{Published, Refusal, RulesSource};
use insula_api::{
    ClusterName, Json,
    kinds::{self, ApiExport, FormerRelease, ReleasedResource},
};
use insula_catalog::{
    bundle,
    exports::{ExportName, release_id},
    ids, parts,
};
use insula_meter::Meter;
use insula_registry::Deps;
use insula_store::Snapshot;
use serde_json::json;
use std::collections::BTreeMap;
use tonic::Status;

/// Plans the return to a former release, or to the last one for an empty name. Returns its name.
pub(super) fn plan(
    (registry, snapshot): (&Deps, &Snapshot),
    export: &ExportName,
    value: &Json,
    release: &str,
    options: &Options,
) -> Result<(Plan, String), Status> {
    let view: ApiExport = kinds::read(value);
    let newer = find(export, &view, release)?;
    let wanted = newer.last().map_or("", |former| &*former.release);
    let (mut apis, mut withdrawn) = (Vec::new(), Vec::new());
    for ((group, name), change) in changed_since(newer) {
        match change {
            Some((former, resource)) => apis.push(restored(
                (registry, snapshot, &options.meter),
                &export.cluster,
                former,
                resource,
            )?),
            None => withdrawn.push((group.to_owned(), name.to_owned())),
        }
    }
    let release = release_with(registry, snapshot, &export.cluster, (&view, &apis, &withdrawn));
    if release != wanted {
        return Err(Status::failed_precondition(format!(
            "release: APIExport {:?} cannot go back to {wanted} exactly: a schema or rules that it had, and that no \
             release after it replaced, are others now; publish the schemas and rules to go back to",
            export.name
        )));
    }
    let options = Options {
        at_once: release.clone(),
        withdrawn,
        ..options.clone()
    };
    let plan = publish((registry, snapshot), &export.cluster, apis, &options)?;
    Ok((plan, release))
}

/// Returns the identifier of an export's release with these APIs, and without what is withdrawn.
fn release_with(
    registry: &Deps,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    (view, apis, withdrawn): (&ApiExport, &[Published], &[(String, String)]),
) -> String {
    let stored = view.spec.resources.iter().filter(|it| it.storage.r#virtual.is_none());
    let others = stored.filter(|offered| {
        let (mut replaced, mut gone) = (apis.iter(), withdrawn.iter());
        !replaced.any(|api| api.group == offered.group && api.plural == offered.name)
            && !gone.any(|(group, name)| *group == offered.group && *name == offered.name)
    });
    let others = others.filter_map(|offered| {
        let api = registry.catalog.stored(snapshot, cluster, &offered.schema)?;
        Some((&*offered.group, &*offered.name, api.fingerprint))
    });
    let restored = apis.iter().filter_map(|api| {
        let compiled = api.compile().ok()?;
        Some((&*api.group, &*api.plural, compiled.fingerprint))
    });
    release_id(others.chain(restored))
}

/// A resource as a former release had it; `None` if that did not have it.
type Change<'e> = Option<(&'e FormerRelease, &'e ReleasedResource)>;

/// Returns the resources of the last of these releases that differ from the present ones, by group
/// and plural. Each release has what the one before it in the list changed.
fn changed_since(releases: &[FormerRelease]) -> BTreeMap<(&str, &str), Change<'_>> {
    let mut changed = BTreeMap::new();
    for former in releases {
        let added = former.added.iter();
        changed.extend(added.map(|it| ((&*it.group, &*it.name), None)));
        let resources = former.resources.iter();
        changed.extend(resources.map(|it| ((&*it.group, &*it.name), Some((former, it)))));
    }
    changed
}

/// Finds a release in the history of an export. Returns it, with those after it before it.
fn find<'e>(export: &ExportName, view: &'e ApiExport, release: &str) -> Result<&'e [FormerRelease], Status> {
    let history = &view.status.rollout.history;
    let is_meant = |former: &FormerRelease| release.is_empty() || former.release == release;
    let found = history.iter().position(is_meant).map(|index| &history[..=index]);
    found.ok_or_else(|| {
        let names: Vec<&str> = history.iter().map(|former| &*former.release).collect();
        let known = match names.is_empty() {
            true => "it has offered no other one since it was first bound".to_owned(),
            false => format!("known are {}", names.join(", ")),
        };
        let wanted = if release.is_empty() { "former release" } else { release };
        Status::failed_precondition(format!(
            "release: APIExport {:?} cannot go back to {wanted}: {known}; publish the schemas and rules to go back to",
            export.name
        ))
    })
}

/// Returns an API as it was in a former release.
fn restored(
    (registry, snapshot, meter): (&Deps, &Snapshot, &Meter),
    cluster: &ClusterName,
    former: &FormerRelease,
    resource: &ReleasedResource,
) -> Result<Published, Status> {
    let name = &*resource.schema;
    let schema = published(snapshot, cluster, "APIResourceSchema", name).ok_or_else(|| {
        Status::failed_precondition(format!(
            "APIResourceSchema {name:?} of release {} is deleted: publish it again",
            former.release
        ))
    })?;
    let stored = parts::joined(snapshot, cluster, name);
    let compiled = registry.catalog.compile(&bundle::of_schema(&schema, stored.as_ref()));
    let (conversion, written_rules) = match compiled {
        // The rules are as they were.
        Ok(api) if ids::fingerprint(api.fingerprint) == resource.fingerprint => (stored, Some(Vec::new())),
        _ => {
            let rules = rules_of(registry, snapshot, &schema, resource).ok_or_else(|| {
                Status::failed_precondition(format!(
                    "no copy of the rules of {name:?} in release {} is stored: publish the schemas and rules to go \
                     back to",
                    former.release
                ))
            })?;
            let written = written(snapshot, cluster, name, rules.as_ref());
            (parts::join(written.clone()), Some(written))
        }
    };
    let mut api = Published {
        group: resource.group.clone(),
        plural: resource.name.clone(),
        schema,
        conversion,
        written_rules,
        rules: RulesSource::Files,
        accepted: Vec::new(),
        remarks: Vec::new(),
        errors: Vec::new(),
        meter: meter.clone(),
    };
    let errors = api.compile().err().unwrap_or_default();
    api.errors = errors.into_iter().map(Refusal::Field).collect();
    Ok(api)
}

/// Returns the rules of a release in its bundle; `None` if that is not stored, `Some(None)` if it
/// has none. The status of an export can be written by its owner, so that only bundles of the
/// schema that is there are read.
fn rules_of(registry: &Deps, snapshot: &Snapshot, schema: &Json, resource: &ReleasedResource) -> Option<Option<Json>> {
    let uid = text(schema, "/metadata/uid");
    if uid.is_empty() || uid != resource.uid {
        return None;
    }
    let mut names = ids::bundle_names(uid, &resource.fingerprint).into_iter();
    let mut bundle = names.find_map(|name| {
        let bundle = snapshot.get(&ids::bundle(&name))?.object;
        let compiled = registry.catalog.compiled(&bundle).ok()?;
        (ids::fingerprint(compiled.fingerprint) == resource.fingerprint).then(|| bundle.body_value())
    })?;
    let rules = bundle["rules"].take();
    Some((!rules.is_null()).then_some(rules))
}

/// Returns the APIConversions of a schema that together have these rules. Those that the schema has
/// beside them are emptied.
fn written(snapshot: &Snapshot, cluster: &ClusterName, schema: &str, rules: Option<&Json>) -> Vec<Json> {
    let present = parts::for_schema(snapshot, cluster, schema);
    let mut specs: BTreeMap<String, Json> = BTreeMap::new();
    match rules.map(|rules| (rules, rules["parts"].as_array())) {
        None => {}
        Some((_, Some(parts))) => {
            specs.extend(
                parts
                    .iter()
                    .map(|part| (text(part, "/name").to_owned(), part["spec"].clone())),
            );
        }
        Some((spec, None)) => {
            let is_own = |name: &str| present.iter().any(|part| &*part.key.name == name);
            let name = match present.first() {
                Some(first) if !is_own(schema) => first.key.name.to_string(),
                _ => schema.to_owned(),
            };
            specs.insert(name, spec.clone());
        }
    }
    for part in &present {
        let name = part.key.name.to_string();
        specs.entry(name).or_insert_with(|| json!({"conversions": []}));
    }
    let objects = specs.into_iter().map(|(name, spec)| {
        let mut metadata = json!({"name": name});
        if name != schema {
            metadata["labels"] = json!({insula_api::names::labels::SCHEMA[0]: schema});
        }
        json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": metadata, "spec": spec})
    });
    objects.collect()
}
