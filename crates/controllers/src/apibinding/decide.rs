//! Decision about one binding.

use super::{
    claims, conflicts, delete, extras,
    world::{Dropped, Resource, World},
};
use crate::{
    crd::decide::{close, opened},
    loaded::Loaded,
    rollout::{self, Hold, Verdict},
    rollout_steps::StepState,
    write::{drop_condition, sort_conditions, text, unchanged},
};
use insula_api::{
    Condition, Json, ObjectKey, aggregate, condition,
    kinds::{ApiBinding, ApiExport, BoundResource},
    names::labels,
    set_condition,
};
use insula_catalog::{ResourceRoute, digest, exports::ExportName, ids};
use insula_registry::{Intent, Plan};
use insula_store::Entry;
use serde_json::json;

/// Resources that one transaction binds; further ones follow in the next transactions. Each takes
/// up to four guards or writes.
const RESOURCES_MAX: usize = 24;
/// Bytes of bundles in one transaction, well below what every store takes.
const BUNDLE_BYTES_MAX: usize = 1 << 20;

/// Seconds until the objects of dropped resources are counted again: no change reports that the
/// last one is deleted.
const IN_USE_SECONDS: u64 = 60;

const WAITING: &str = "Waiting for API(s) to be established";

pub(super) fn decide(world: &World) -> Plan {
    let Some(binding) = &world.binding else {
        return Plan::rest();
    };
    if binding.is_deleting() {
        return delete::decide(world, binding);
    }
    let Some(alive) = &world.alive else { return Plan::rest() };
    let verdicts = || world.resources.iter().map(|resource| &resource.rollout);
    if verdicts().any(|verdict| matches!(verdict, Verdict::Trying)) {
        return Plan {
            intents: Vec::new(),
            again_after: Some(0),
        };
    }
    let mut value = binding.value.clone();
    // Of a deletion that was taken back.
    drop_condition(&mut value, delete::CONTENT_DELETED);
    if binding.view.status.phase.is_none() {
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        value["status"]["phase"] = json!("Binding");
    }
    let mut plan = match usable_export(world) {
        Ok(export) => bind(world, binding, export, &mut value),
        Err(problem) => {
            set_condition(&mut value, &problem, world.now);
            if let Some(export) = &world.export.found {
                show_export(world, export, &mut value);
            }
            Plan::rest()
        }
    };
    if condition(&value, "InitialBindingCompleted").is_none() {
        set_condition(&mut value, &waiting("InitialBindingCompleted"), world.now);
    }
    summarize(&mut value, world);
    plan.intents.push(binding.update(value));
    let blocked = rollout::blocked_message(verdicts());
    if blocked.is_some() {
        plan.again_after = plan.again_after.or(Some(rollout::AGAIN_SECONDS));
    }
    // With a rollout per binding, the outcome of all of them is the export's: `rollout_status`.
    let found = world.export.found.iter();
    for export in found.filter(|export| export.view.spec.rollout.is_all_or_nothing()) {
        let mut value = export.value.clone();
        rollout::set_rolled_out(&mut value, blocked.clone().map(Hold::of_objects), world.now);
        sort_conditions(&mut value);
        plan.intents.push(export.update(value));
    }
    plan.intents.extend(alive.iter().cloned());
    plan.intents.extend(world.export.guard.clone());
    plan
}

fn waiting(kind: &str) -> Condition {
    Condition::fails(kind, "WaitingForEstablished", WAITING).severity("Info")
}

/// Copies `InitialBindingCompleted` to `Ready`.
fn summarize(value: &mut Json, world: &World) {
    let initial = condition(value, "InitialBindingCompleted").cloned().unwrap_or_default();
    let ready = match initial["status"] == "True" {
        true => Condition::holds("Ready"),
        false => Condition::fails("Ready", text(&initial, "/reason"), text(&initial, "/message"))
            .severity(text(&initial, "/severity")),
    };
    set_condition(value, &ready, world.now);
    sort_conditions(value);
}

/// Returns the export if it is complete, or the condition that says what it lacks.
fn usable_export(world: &World) -> Result<&Loaded<ApiExport>, Condition> {
    let fails = |reason: &str, message: String| Condition::fails("APIExportValid", reason, message);
    let (location, name) = (&world.export.location, &world.export.name);
    let Some(export) = &world.export.found else {
        return Err(fails(
            "APIExportNotFound",
            format!("APIExport {location}|{name} not found"),
        ));
    };
    if export.view.status.identity_hash.is_empty() {
        let message = format!("APIExport {location}|{name} is missing status.identityHash");
        return Err(fails("MissingIdentityHash", message).severity("Warning"));
    }
    if let Some(missing) = world.resources.iter().find(|resource| resource.schema_uid.is_none()) {
        let message = format!(
            "Invalid APIExport. Please contact the APIExport owner to resolve: APIResourceSchema {:?} not found",
            missing.schema_name
        );
        return Err(fails("InternalError", message));
    }
    Ok(export)
}

/// Writes what a binding's status, annotations and label repeat of the export. Its path may lead to
/// another export than at the last write of the binding's spec.
fn show_export(world: &World, export: &Loaded<ApiExport>, value: &mut Json) {
    let ObjectKey { cluster, name, .. } = &export.entry.key;
    value["status"]["apiExportClusterName"] = json!(world.export.location);
    value["metadata"]["labels"][labels::EXPORT] = json!(digest::export_label(cluster, name));
    claims::show(value, &export.value, world.now);
    extras::copy_to_binding(value, &export.value);
}

/// Reason why a resource cannot be bound.
enum Problem {
    /// Another API has one of its names.
    Conflict(String),
    /// Its schema or rules do not compile, or lack versions of stored objects.
    Invalid(String),
    /// Stored objects could not be read with its schema and rules.
    Blocked(String),
    /// The rollout has not come to the binding yet.
    Waiting(String),
}

fn problem(world: &World, binding: &Loaded<ApiBinding>, resource: &Resource) -> Option<Problem> {
    let schema = format!("APIResourceSchema {}|{}", world.export.location, resource.schema_name);
    let api = match &resource.compiled {
        Ok(api) => api,
        Err(errors) => return Some(Problem::Invalid(format!("{schema} is invalid: {}", aggregate(errors)))),
    };
    if !resource.stranded.is_empty() {
        let counts: Vec<String> = resource
            .stranded
            .iter()
            .map(|(version, n)| format!("{n} stored in {version}"))
            .collect();
        return Some(Problem::Invalid(format!(
            "{schema} is invalid: it lacks versions in which objects of this workspace are stored ({}): keep them in \
             spec.versions, not served if they are to go, until the objects were written again",
            counts.join(", ")
        )));
    }
    if let (true, StepState::Waits(why)) = (resource.changes_service, &world.step) {
        return Some(Problem::Waiting(format!("{schema} is not rolled out here yet: {why}")));
    }
    if let (true, Verdict::Blocked(failure)) = (resource.changes_service, &resource.rollout) {
        let why = failure.tenant_message(&binding.entry.key.cluster);
        return Some(Problem::Blocked(format!("{schema} is not rolled out: {why}")));
    }
    conflicts::find(resource, api, &world.others)
        .map(|clash| Problem::Conflict(format!("Unable to bind APIs: {clash}")))
}

/// Binds resources of a usable export. `value` becomes the new state of the binding.
fn bind(world: &World, binding: &Loaded<ApiBinding>, export: &Loaded<ApiExport>, value: &mut Json) -> Plan {
    set_condition(value, &Condition::holds("APIExportValid"), world.now);
    show_export(world, export, value);
    let judged = world.resources.iter();
    let (bindable, problems): (Vec<_>, Vec<_>) = judged
        .map(|resource| (resource, problem(world, binding, resource)))
        .partition(|(_, problem)| problem.is_none());
    let problems: Vec<Problem> = problems.into_iter().filter_map(|(_, problem)| problem).collect();
    let identity = &*export.view.status.identity_hash;
    // A conflict stops the whole binding; an unusable schema stops only its resource.
    let conflict = problems.iter().any(|problem| matches!(problem, Problem::Conflict(_)));
    let bindable = bindable.into_iter().filter(|_| !conflict).map(|(resource, _)| resource);
    let stale: Vec<&Resource> = bindable
        .filter(|resource| !is_bound(binding, export, resource, value))
        .collect();
    if let Some(first) = prepare(&stale) {
        return first;
    }
    let mut plan = Plan::rest();
    for resource in stale.iter().take(RESOURCES_MAX) {
        let bundle = bundle_intent(resource);
        plan.intents
            .push(bundle.unwrap_or_else(|| unchanged(resource.bundle_key.clone(), resource.bundle.as_ref())));
        plan.intents.extend(resource.guards.iter().cloned());
        plan.intents.push(route_intent(binding, export, resource));
        show_bound(value, binding, resource, identity);
    }
    let complete = stale.len() <= RESOURCES_MAX;
    if !complete {
        plan.again_after = Some(0);
    }
    if problems.is_empty() && complete && world.step == StepState::Open {
        let (intents, again) = release(world, value);
        plan.intents.extend(intents);
        plan.again_after = again;
    }
    if world.dropped.iter().any(|dropped| dropped.in_use) {
        plan.again_after = plan.again_after.or(Some(IN_USE_SECONDS));
    }
    show_outcome(world, value, &problems, complete);
    show_release(world, &problems, value);
    plan
}

/// Writes the release that a served binding stays behind, so that nobody takes what it says of
/// another release for a verdict on that.
fn show_release(world: &World, problems: &[Problem], value: &mut Json) {
    let stays = problems.iter().any(|problem| !matches!(problem, Problem::Waiting(_)));
    let is_served = condition(value, "InitialBindingCompleted").is_some_and(|it| it["status"] == "True");
    match stays && is_served {
        true => value["status"]["release"] = json!(world.release),
        false => drop(value["status"].as_object_mut().map(|status| status.remove("release"))),
    }
}

/// Plans a transaction of bundles alone if they are too large for the transaction with their
/// routes. A bundle without a route serves nobody.
fn prepare(stale: &[&Resource]) -> Option<Plan> {
    let size = |resource: &&Resource| resource.wanted.to_string().len();
    let writes: Vec<&&Resource> = stale
        .iter()
        .take(RESOURCES_MAX)
        .filter(|r| bundle_intent(r).is_some())
        .collect();
    let total: usize = writes.iter().map(|r| size(r)).sum();
    if total <= BUNDLE_BYTES_MAX {
        return None;
    }
    let mut intents = Vec::new();
    let mut bytes = 0;
    for resource in writes {
        bytes += size(resource);
        if bytes > BUNDLE_BYTES_MAX && !intents.is_empty() {
            break;
        }
        intents.extend(bundle_intent(resource));
        intents.extend(resource.guards.iter().cloned());
    }
    Some(Plan {
        intents,
        again_after: Some(0),
    })
}

const BUNDLE_FIELDS: [&str; 2] = ["spec", "rules"];

/// Returns the write that brings a bundle up to date. Rules and schema are always written together.
fn bundle_intent(resource: &Resource) -> Option<Intent> {
    let Some(present) = &resource.bundle else {
        return Some(Intent::Create(resource.bundle_key.clone(), resource.wanted.clone()));
    };
    let mut value = present.object.body_value();
    if BUNDLE_FIELDS
        .iter()
        .all(|field| value.get(field) == resource.wanted.get(field))
    {
        return None;
    }
    for field in BUNDLE_FIELDS {
        match resource.wanted.get(field) {
            Some(wanted) => value[field] = wanted.clone(),
            None => drop(value.as_object_mut().map(|fields| fields.remove(field))),
        }
    }
    Some(Intent::Update(present.clone(), value))
}

fn wanted_route(binding: &Loaded<ApiBinding>, export: &Loaded<ApiExport>, resource: &Resource) -> Json {
    let (binding, exporter) = (&binding.entry.key, &export.entry.key);
    let route = ResourceRoute {
        binding: Some(binding.name.clone()),
        export: Some(ExportName {
            cluster: exporter.cluster.clone(),
            name: exporter.name.clone(),
        }),
        definition: None,
        bundle: Some(resource.bundle_key.name.clone()),
        identity: export.view.status.identity_hash.as_str().into(),
        storage: None,
        closing: false,
        frozen: resource.frozen,
        marks: Default::default(),
    };
    route.write(&resource.route_key.name)
}

/// Returns the write of the route. Creating it wins the name. A route that exists is the binding's
/// own, or there would be a conflict.
fn route_intent(binding: &Loaded<ApiBinding>, export: &Loaded<ApiExport>, resource: &Resource) -> Intent {
    let wanted = wanted_route(binding, export, resource);
    match &resource.route {
        None => Intent::Create(resource.route_key.clone(), wanted),
        Some(route) => {
            let mut value = route.object.body_value();
            value["spec"] = wanted["spec"].clone();
            Intent::Update(route.clone(), value)
        }
    }
}

/// Returns true if route, bundle and status of a resource are up to date.
fn is_bound(binding: &Loaded<ApiBinding>, export: &Loaded<ApiExport>, resource: &Resource, value: &Json) -> bool {
    let mut shown = value.clone();
    show_bound(&mut shown, binding, resource, &export.view.status.identity_hash);
    let is_routed = resource
        .route
        .as_ref()
        .is_some_and(|route| route.object.body_value()["spec"] == wanted_route(binding, export, resource)["spec"]);
    is_routed
        && bundle_intent(resource).is_none()
        && shown["status"]["boundResources"] == value["status"]["boundResources"]
}

/// Writes the entry of a resource in `status.boundResources`.
fn show_bound(value: &mut Json, binding: &Loaded<ApiBinding>, resource: &Resource, identity: &str) {
    let (Some(schema_uid), Ok(api)) = (&resource.schema_uid, &resource.compiled) else {
        return;
    };
    let before = binding.view.status.bound(&resource.group, &resource.name);
    // Versions that the schema lacks have no objects, or the resource would not be bound.
    let mut versions: Vec<Json> = before
        .into_iter()
        .flat_map(|bound| &bound.storage_versions)
        .filter(|version| api.version(version).is_some())
        .map(|version| json!(version))
        .collect();
    let storage = json!(&*api.storage_version().name);
    if !versions.contains(&storage) {
        versions.push(storage);
    }
    let entry = json!({
        "group": resource.group, "resource": resource.name,
        "schema": {
            "name": resource.schema_name, "UID": schema_uid, "identityHash": identity,
        },
        "storageVersions": versions,
    });
    if !value["status"]["boundResources"].is_array() {
        value["status"]["boundResources"] = json!([]);
    }
    let Some(list) = value["status"]["boundResources"].as_array_mut() else {
        return;
    };
    let same = |b: &&mut Json| text(b, "/group") == resource.group && text(b, "/resource") == resource.name;
    match list.iter_mut().find(same) {
        Some(known) => *known = entry,
        None => list.push(entry),
    }
}

/// Releases dropped resources without objects: closes their routes, and removes a closed one with
/// its entry in the status. Others are served as before; so is one that got an object until its
/// route was closed. Returns the seconds until the next look as well, if there is one.
fn release(world: &World, value: &mut Json) -> (Vec<Intent>, Option<u64>) {
    let is_closed = |route: &Entry| route.object.parsed(ResourceRoute::read).closing;
    let leads_to = |route: &Entry, bound: &BoundResource| {
        ids::resource_route(&route.key.cluster, &bound.group, &bound.resource) == route.key
    };
    let is_gone = |entry: &Json| {
        let mut gone = world.dropped.iter().filter(|dropped| !dropped.in_use);
        gone.any(|Dropped { bound, .. }| {
            let mut routes = world.routes.iter().filter(|route| leads_to(route, bound));
            let is_it = text(entry, "/group") == bound.group && text(entry, "/resource") == bound.resource;
            is_it && routes.all(is_closed)
        })
    };
    if let Some(list) = value["status"]["boundResources"].as_array_mut() {
        list.retain(|entry| !is_gone(entry));
    }
    let offered = |route: &Entry| world.resources.iter().any(|resource| resource.route_key == route.key);
    let mut again = None;
    let mut intents = Vec::new();
    for route in world.routes.iter().filter(|route| !offered(route)) {
        let mut dropped = world.dropped.iter().filter(|dropped| dropped.in_use);
        let in_use = dropped.any(|dropped| leads_to(route, &dropped.bound));
        intents.extend(match (in_use, is_closed(route)) {
            (true, false) => None,
            (true, true) => Some(Intent::Update(route.clone(), opened(route))),
            (false, true) => Some(Intent::Delete(route.clone())),
            (false, false) => {
                again = Some(0);
                close(route)
            }
        });
    }
    (intents, again)
}

/// Writes the conditions and the phase that follow from the problems.
fn show_outcome(world: &World, value: &mut Json, problems: &[Problem], complete: bool) {
    let outcome = |kind: &str| match problems
        .iter()
        .find(|p| matches!(p, Problem::Conflict(_)))
        .or(problems.first())
    {
        Some(Problem::Conflict(message)) => Condition::fails(kind, "NamingConflicts", message.clone()),
        Some(Problem::Blocked(message)) => Condition::fails(kind, "RolloutBlocked", message.clone()),
        Some(Problem::Waiting(message)) => Condition::fails(kind, "RolloutWaiting", message.clone()).severity("Info"),
        Some(Problem::Invalid(message)) => Condition::fails(kind, "APIResourceSchemaInvalid", message.clone()),
        None if !complete => waiting(kind),
        None => Condition::holds(kind),
    };
    let initially = condition(value, "InitialBindingCompleted").is_some_and(|c| c["status"] == "True");
    // It stays true for ever: later problems are those of `BindingUpToDate`.
    if !initially {
        set_condition(value, &outcome("InitialBindingCompleted"), world.now);
    }
    set_condition(value, &outcome("BindingUpToDate"), world.now);
    if problems.is_empty() && complete {
        value["status"]["phase"] = json!("Bound");
    }
}

#[cfg(test)]
mod tests;
