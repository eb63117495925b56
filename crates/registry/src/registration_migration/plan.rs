//! The plan of a migration: its replacement, and what stands against it. A plan writes nothing.

use crate::{Deps, Intent, Plan, WriteOptions, Written, commit, verbs};
use insula_access::Target;
use insula_api::{ClusterName, Json, ResourceId};
use insula_catalog::{
    Api, Error, ResourceRoute, Result, Served,
    exports::ExportName,
    ids,
    registration::{self, DefinitionKind, DefinitionName, Digest, Migration, Step},
};
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

/// Problems that a plan lists; more are counted.
const PROBLEMS_MAX: usize = 20;

/// The replacement of a registration.
#[derive(Debug, Clone)]
pub enum Replacement {
    /// A CustomResourceDefinition: the given one, or one that holds the same objects.
    Definition(Option<Json>),
    /// A registration of the second generation.
    Registration,
    /// An APIBinding, given with the export that it names.
    Binding(Json, ExportName),
}

/// A migration that can begin, unless there are problems.
#[derive(Debug)]
pub struct Planned {
    /// The migration before its first step.
    pub migration: Migration,
    /// Reasons for which it cannot begin: objects that the replacement would refuse or prune.
    pub problems: Vec<String>,
    /// Number of the objects.
    pub objects: usize,
    /// The replacement as clients would create it.
    pub manifest: Json,
    registration: Entry,
    route: Entry,
}

/// Plans a migration.
///
/// # Errors
/// There is no such registration, it serves nothing or is being deleted, or the caller cannot
/// create the replacement.
pub async fn plan(
    deps: &Deps,
    snapshot: &Snapshot,
    (cluster, name): (&ClusterName, &DefinitionName),
    replacement: &Replacement,
    options: &WriteOptions<'_>,
) -> Result<Planned> {
    let (registration, route) = find(snapshot, cluster, name)?;
    let stored = registration.object.body_value();
    let mut wanted = registration::wanted(&stored).ok_or_else(|| refuse(name, "it names no kind"))?;
    if let Some(short) = stored.pointer("/status/acceptedNames/shortNames") {
        wanted["names"]["shortNames"] = short.clone();
    }
    let (manifest, identity) = manifest(deps, snapshot, name, &wanted, replacement)?;
    let former = former_versions(&wanted);
    let storage = former.first().cloned().unwrap_or_default();
    let group = text(&wanted["group"]);
    let api_version = |version: &str| format!("{group}/{version}");
    let migration = Migration {
        replacement: stored_form(deps, cluster, &manifest, replacement, (options, snapshot.meter())).await?,
        kind: text(&wanted["names"]["kind"]).to_owned(),
        plural: text(&wanted["names"]["plural"]).to_owned(),
        group: group.to_owned(),
        stored: (api_version(&storage), api_version(flat(&storage))),
        api_versions: former
            .iter()
            .map(|version| (api_version(version), api_version(flat(version))))
            .collect::<BTreeMap<_, _>>(),
        identity,
        step: Step::Export,
        undo: false,
        position: None,
        before: Digest::default(),
        seen: Digest::default(),
        message: String::new(),
        registration: stored,
    };
    let api = served_afterwards(deps, snapshot, &migration, replacement)?;
    let (objects, problems) = examine(snapshot, cluster, &migration, &api);
    // A walk that ended early has found no problems in the rest.
    snapshot.meter().check()?;
    Ok(Planned {
        migration,
        problems,
        objects,
        manifest,
        registration,
        route,
    })
}

/// Begins a planned migration: from here on nobody writes the objects. An APIBinding is created
/// now, and waits for the name that the registration has.
///
/// # Errors
/// The plan has problems, something of it has changed, or the caller cannot create the binding.
pub async fn begin(
    deps: &Deps,
    cluster: &ClusterName,
    planned: Planned,
    (options, request): (&WriteOptions<'_>, &Meter),
) -> Result<()> {
    let Planned {
        migration,
        registration,
        route,
        problems,
        ..
    } = planned;
    if let Some(first) = problems.first() {
        return Err(Error::BadRequest(format!(
            "the replacement does not fit {} objects: {first}",
            problems.len()
        )));
    }
    if migration.moves() {
        match create(deps, cluster, &migration.replacement, (options, request)).await {
            Ok(_) | Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let key = Migration::key(cluster, &migration.group, &migration.plural);
    let mut intents = vec![
        Intent::Expect(registration.key.clone(), Some(registration.revision)),
        Intent::Create(key, migration.write()),
        freeze(&route, true),
    ];
    intents.extend(super::thawed(&deps.store.latest(), cluster)?);
    commit(deps, &Plan::new(intents)).await.map(drop)
}

/// Returns the write that freezes a route, or thaws it.
pub(super) fn freeze(route: &Entry, frozen: bool) -> Intent {
    let mut value = route.object.body_value();
    match frozen {
        true => value["spec"]["frozen"] = json!(true),
        false => drop(value["spec"].as_object_mut().map(|spec| spec.remove("frozen"))),
    }
    Intent::Update(route.clone(), value)
}

fn find(snapshot: &Snapshot, cluster: &ClusterName, name: &DefinitionName) -> Result<(Entry, Entry)> {
    let registration = snapshot.get(&name.key(cluster)).ok_or_else(|| Error::NotFound {
        resource: insula_catalog::Named {
            group: name.kind.resource().group,
            resource: name.kind.resource().resource,
        },
        name: name.name.to_string(),
    })?;
    if registration.object.meta.is_deleting() {
        return Err(refuse(name, "it is being deleted"));
    }
    let wanted = registration::wanted(&registration.object.body_value());
    let wanted = wanted.ok_or_else(|| refuse(name, "it names no kind"))?;
    let key = ids::resource_route(cluster, text(&wanted["group"]), text(&wanted["names"]["plural"]));
    let route = snapshot
        .get(&key)
        .filter(|route| route.object.parsed(ResourceRoute::read).definition.as_ref() == Some(name));
    let route = route.ok_or_else(|| refuse(name, "it serves nothing: see its condition NameConflict"))?;
    Ok((registration, route))
}

/// Returns the replacement as clients would create it, and the identity of its export.
fn manifest(
    deps: &Deps,
    snapshot: &Snapshot,
    name: &DefinitionName,
    wanted: &Json,
    replacement: &Replacement,
) -> Result<(Json, String)> {
    let (group, names) = (text(&wanted["group"]), &wanted["names"]);
    let plural = text(&names["plural"]);
    let former = former_versions(wanted);
    let storage = flat(former.first().map_or("", String::as_str));
    let manifest = match replacement {
        Replacement::Registration if name.kind == DefinitionKind::SecondRegistration => {
            return Err(refuse(name, "it is of the second generation already"));
        }
        Replacement::Registration => json!({
            "apiVersion": "apiextension.k8s.io/v1beta1", "kind": registration::KIND,
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "version": storage, "names": names, "scope": wanted["scope"]},
        }),
        Replacement::Definition(None) => definition_of_any(wanted, &former, storage),
        Replacement::Definition(Some(given)) => {
            check_given(name, wanted, storage, given)?;
            given.clone()
        }
        Replacement::Binding(binding, export) => {
            let served = exported(deps, snapshot, export, group, plural)
                .ok_or_else(|| refuse(name, &format!("APIExport {:?} offers no {plural}.{group}", export.name)))?;
            if *served.api.names.kind != *text(&names["kind"]) || served.version(storage).is_none() {
                let why = format!(
                    "the exported API needs the kind {} in the version {storage:?}",
                    names["kind"]
                );
                return Err(refuse(name, &why));
            }
            return Ok((binding.clone(), served.identity.to_string()));
        }
    };
    Ok((manifest, String::new()))
}

/// Returns a definition that accepts any object, in versions without a slash.
fn definition_of_any(wanted: &Json, former: &[String], storage: &str) -> Json {
    let mut versions: Vec<&str> = Vec::new();
    for version in former.iter().map(|version| flat(version)) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    let versions: Vec<Json> = versions
        .iter()
        .map(|version| {
            json!({"name": version, "served": true, "storage": *version == storage, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        })
        .collect();
    let (group, names) = (text(&wanted["group"]), &wanted["names"]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{group}", text(&names["plural"]))},
        "spec": {"group": group, "names": names, "scope": wanted["scope"], "versions": versions},
    })
}

/// Checks that a given definition serves the objects of a registration.
fn check_given(name: &DefinitionName, wanted: &Json, storage: &str, given: &Json) -> Result<()> {
    let (names, spec) = (&wanted["names"], &given["spec"]);
    for (field, have, want) in [
        ("group", &spec["group"], &wanted["group"]),
        ("scope", &spec["scope"], &wanted["scope"]),
        ("names.plural", &spec["names"]["plural"], &names["plural"]),
        ("names.kind", &spec["names"]["kind"], &names["kind"]),
    ] {
        if have != want {
            let why = format!("spec.{field} of the definition must be {want}, not {have}");
            return Err(refuse(name, &why));
        }
    }
    let has = |version: &Json| version["name"] == storage && version["storage"] == true;
    match spec["versions"]
        .as_array()
        .is_some_and(|versions| versions.iter().any(has))
    {
        true => Ok(()),
        false => Err(refuse(
            name,
            &format!("the definition must store the version {storage:?}"),
        )),
    }
}

fn exported(deps: &Deps, snapshot: &Snapshot, export: &ExportName, group: &str, plural: &str) -> Option<Served> {
    export.resolve(&deps.catalog, snapshot, group, plural)
}

/// Returns the replacement as the server would store it.
async fn stored_form(
    deps: &Deps,
    cluster: &ClusterName,
    manifest: &Json,
    replacement: &Replacement,
    (options, request): (&WriteOptions<'_>, &Meter),
) -> Result<Json> {
    if matches!(replacement, Replacement::Binding(..)) {
        return Ok(manifest.clone());
    }
    let options = WriteOptions {
        dry_run: true,
        ..options.clone()
    };
    let written = create(deps, cluster, manifest, (&options, request)).await?;
    let mut stored = written.entry.object.body_value();
    if let Some(metadata) = stored["metadata"].as_object_mut() {
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
    }
    Ok(stored)
}

/// Creates a replacement as any client would.
async fn create(
    deps: &Deps,
    cluster: &ClusterName,
    manifest: &Json,
    (options, request): (&WriteOptions<'_>, &Meter),
) -> Result<Written> {
    let resource = match text(&manifest["kind"]) {
        registration::KIND => ids::second_registrations(),
        "APIBinding" => ids::apibindings(),
        _ => ids::customresourcedefinitions(),
    };
    let served = deps.catalog.system().get(&resource.group, &resource.resource);
    let served = served.ok_or(Error::UnknownResource)?.charged_to(request);
    let version = insula_api::names::version_of(text(&manifest["apiVersion"]));
    let target = Target::for_the_server(cluster.clone(), served, version.into());
    verbs::create(deps, &target, manifest.clone(), options).await
}

/// Returns the API that serves the objects afterwards.
fn served_afterwards(
    deps: &Deps,
    snapshot: &Snapshot,
    migration: &Migration,
    replacement: &Replacement,
) -> Result<Arc<Api>> {
    if let Replacement::Binding(_, export) = replacement {
        let served = exported(deps, snapshot, export, &migration.group, &migration.plural);
        return served.map(|served| served.api).ok_or(Error::UnknownResource);
    }
    let compiled = deps.catalog.compile(&migration.replacement);
    compiled.map_err(|errors| Error::BadRequest(insula_api::aggregate(&errors)))
}

/// Counts the objects, and names those that the new API would refuse or prune.
fn examine(snapshot: &Snapshot, cluster: &ClusterName, migration: &Migration, api: &Api) -> (usize, Vec<String>) {
    let resource = ResourceId::local(&migration.group, &migration.plural);
    let scope = insula_api::Scope::cluster(resource, cluster.clone());
    let version = insula_api::names::version_of(&migration.stored.1);
    let Some(schema) = api.version(version).map(|version| &version.schema) else {
        return (0, vec![format!("the replacement has no version {version:?}")]);
    };
    let (mut objects, mut problems, mut more) = (0, Vec::new(), 0_usize);
    snapshot.for_each(&scope, |entry| {
        objects += 1;
        let mut value = migration.renamed(entry.object.body_value());
        insula_schema::default(&mut value, schema);
        let pruned = insula_schema::prune_report(&value, schema);
        let lost = pruned.first().map(|field| format!("the schema has no field {field}"));
        let invalid = || {
            insula_schema::validate(&value, schema, snapshot.meter())
                .first()
                .map(ToString::to_string)
        };
        if let Some(why) = lost.or_else(invalid) {
            let place = match &*entry.key.namespace {
                "" => entry.key.name.to_string(),
                namespace => format!("{namespace}/{}", entry.key.name),
            };
            match problems.len() < PROBLEMS_MAX {
                true => problems.push(format!("{place}: {why}")),
                false => more += 1,
            }
        }
        ControlFlow::Continue(())
    });
    if more > 0 {
        problems.push(format!("{more} more objects"));
    }
    (objects, problems)
}

fn former_versions(wanted: &Json) -> Vec<String> {
    let versions = wanted["versions"].as_array().into_iter().flatten();
    versions.map(|version| text(&version["name"]).to_owned()).collect()
}

/// Returns the name of a version without a slash: `stable/v1` becomes `v1`.
fn flat(version: &str) -> &str {
    version.rsplit('/').next().unwrap_or(version)
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

fn refuse(name: &DefinitionName, why: &str) -> Error {
    Error::BadRequest(format!("{} cannot be migrated: {why}", name.describe()))
}
