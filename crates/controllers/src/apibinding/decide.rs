//! What becomes of one binding.

use super::{
    claims, conflicts, delete, extras,
    world::{Resource, World, bound},
};
use crate::{
    rollout::{self, Verdict},
    write::{sort_conditions, text, unchanged},
};
use insula_api::{Condition, Json, aggregate, condition, set_condition};
use insula_registry::{Intent, Plan, ResourceRoute, exports::ExportName};
use insula_store::Entry;
use serde_json::json;

/// Resources that one transaction binds; the rest comes in the next ones. Each takes up to four
/// guards or writes.
const RESOURCES_MAX: usize = 24;
/// Bytes of bundles in one transaction, well below what every store takes.
const BUNDLE_BYTES_MAX: usize = 1 << 20;

/// Until objects of what is offered no longer are looked for again: nobody tells when the last one
/// goes.
const IN_USE_SECONDS: u64 = 60;

const WAITING: &str = "Waiting for API(s) to be established";

pub(super) fn decide(world: &World) -> Plan {
    let Some((entry, value)) = &world.binding else {
        return Plan::rest();
    };
    if entry.object.meta.is_deleting() {
        return delete::delete(world, entry, value);
    }
    let Some(alive) = &world.alive else { return Plan::rest() };
    let mut value = value.clone();
    if text(&value, "/status/phase").is_empty() {
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        value["status"]["phase"] = json!("Binding");
    }
    let verdicts = || world.resources.iter().map(|resource| &resource.rollout);
    if verdicts().any(|verdict| matches!(verdict, Verdict::Trying)) {
        return Plan {
            intents: Vec::new(),
            again_after: Some(0),
        };
    }
    let mut plan = match usable_export(world) {
        Ok(export) => bind(world, export, &mut value),
        Err(problem) => {
            set_condition(&mut value, &problem, world.now);
            if world.export.found.is_some() {
                show_export(world, &mut value);
            }
            Plan::rest()
        }
    };
    if condition(&value, "InitialBindingCompleted").is_none() {
        set_condition(&mut value, &waiting("InitialBindingCompleted"), world.now);
    }
    summarize(&mut value, world);
    plan.intents.push(Intent::Update(entry.clone(), value));
    if let Some((entry, export)) = &world.export.found {
        let mut export = export.clone();
        let blocked = rollout::blocked_message(verdicts());
        if blocked.is_some() {
            plan.again_after = plan.again_after.or(Some(rollout::AGAIN_SECONDS));
        }
        rollout::set_rolled_out(&mut export, blocked, world.now);
        sort_conditions(&mut export);
        plan.intents.push(Intent::Update(entry.clone(), export));
    }
    plan.intents.extend(alive.iter().cloned());
    plan.intents.extend(world.export.guard.clone());
    plan
}

fn waiting(kind: &str) -> Condition {
    Condition::fails(kind, "WaitingForEstablished", WAITING).severity("Info")
}

/// `Ready` says what `InitialBindingCompleted` says.
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

/// The export with all that it takes to bind it, or why it cannot be bound.
fn usable_export(world: &World) -> Result<&Json, Condition> {
    let fails = |reason: &str, message: String| Condition::fails("APIExportValid", reason, message);
    let (place, name) = (&world.export.place, &world.export.name);
    let Some((_, export)) = &world.export.found else {
        return Err(fails(
            "APIExportNotFound",
            format!("APIExport {place}|{name} not found"),
        ));
    };
    if text(export, "/status/identityHash").is_empty() {
        let message = format!("APIExport {place}|{name} is missing status.identityHash");
        return Err(fails("MissingIdentityHash", message).severity("Warning"));
    }
    if let Some(missing) = world.resources.iter().find(|resource| resource.schema.is_none()) {
        let message = format!(
            "Invalid APIExport. Please contact the APIExport owner to resolve: APIResourceSchema {:?} not found",
            missing.schema_name
        );
        return Err(fails("InternalError", message));
    }
    Ok(export)
}

fn show_export(world: &World, value: &mut Json) {
    value["status"]["apiExportClusterName"] = json!(world.export.place);
    if let Some((_, export)) = &world.export.found {
        claims::show(value, export, world.now);
        extras::carry(value, export);
    }
}

/// What stands in the way of a resource.
enum Problem {
    Conflict(String),
    Invalid(String),
    /// Stored objects could not be read by it.
    Blocked(String),
}

fn problem(world: &World, resource: &Resource) -> Option<Problem> {
    let place = format!("APIResourceSchema {}|{}", world.export.place, resource.schema_name);
    let api = match &resource.compiled {
        Ok(api) => api,
        Err(errors) => return Some(Problem::Invalid(format!("{place} is invalid: {}", aggregate(errors)))),
    };
    if !resource.stranded.is_empty() {
        let counts: Vec<String> = resource
            .stranded
            .iter()
            .map(|(version, n)| format!("{n} stored in {version}"))
            .collect();
        return Some(Problem::Invalid(format!(
            "{place} is invalid: it lacks versions in which objects of this workspace are stored ({}): keep them in \
             spec.versions, not served if they are to go, until the objects were written again",
            counts.join(", ")
        )));
    }
    if let (true, Verdict::Blocked(failure), Some((binding, _))) = (resource.changes, &resource.rollout, &world.binding)
    {
        let why = failure.tenant_message(&binding.key.cluster);
        return Some(Problem::Blocked(format!("{place} is not rolled out: {why}")));
    }
    conflicts::find(resource, api, &world.others)
        .map(|clash| Problem::Conflict(format!("Unable to bind APIs: {clash}")))
}

fn bind(world: &World, export: &Json, value: &mut Json) -> Plan {
    set_condition(value, &Condition::holds("APIExportValid"), world.now);
    show_export(world, value);
    let problems: Vec<Problem> = world
        .resources
        .iter()
        .filter_map(|resource| problem(world, resource))
        .collect();
    let conflict = problems.iter().any(|problem| matches!(problem, Problem::Conflict(_)));
    // A conflict stops the whole binding; a schema that cannot be used stops only its resource.
    let bindable: Vec<&Resource> = match conflict {
        true => Vec::new(),
        false => world
            .resources
            .iter()
            .filter(|resource| problem(world, resource).is_none())
            .collect(),
    };
    let identity = text(export, "/status/identityHash");
    let stale: Vec<&Resource> = bindable
        .into_iter()
        .filter(|r| !is_bound(world, r, value, identity))
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
        plan.intents.push(claim_intent(world, resource, identity));
        show_bound(value, resource, identity);
    }
    let complete = stale.len() <= RESOURCES_MAX;
    if !complete {
        plan.again_after = Some(0);
    }
    if problems.is_empty() && complete {
        plan.intents.extend(release(world, value));
    }
    if world.dropped.iter().any(|(_, in_use)| *in_use) {
        plan.again_after = plan.again_after.or(Some(IN_USE_SECONDS));
    }
    show_outcome(world, value, &problems, complete);
    plan
}

/// Bundles that do not fit into the transaction that claims them are written before: nobody is
/// served from a bundle that nobody claims.
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

/// Rules and schema are always written together.
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

fn wanted_claim(world: &World, resource: &Resource, identity: &str) -> Json {
    let binding = world.binding.as_ref().map(|(entry, _)| entry.key.name.clone());
    let export = world.export.found.as_ref().map(|(entry, _)| ExportName {
        cluster: entry.key.cluster.clone(),
        name: entry.key.name.clone(),
    });
    let claim = ResourceRoute {
        binding,
        export,
        definition: None,
        bundle: Some(resource.bundle_key.name.clone()),
        identity: identity.into(),
        storage: None,
    };
    claim.write(&resource.claim_key.name)
}

/// Making a claim is winning the name; one that is there is the binding's own, or there would be a
/// conflict.
fn claim_intent(world: &World, resource: &Resource, identity: &str) -> Intent {
    let wanted = wanted_claim(world, resource, identity);
    match &resource.claim {
        None => Intent::Create(resource.claim_key.clone(), wanted),
        Some(claim) => {
            let mut value = claim.object.body_value();
            value["spec"] = wanted["spec"].clone();
            Intent::Update(claim.clone(), value)
        }
    }
}

fn is_bound(world: &World, resource: &Resource, value: &Json, identity: &str) -> bool {
    let mut shown = value.clone();
    show_bound(&mut shown, resource, identity);
    let claimed = resource
        .claim
        .as_ref()
        .is_some_and(|claim| claim.object.body_value()["spec"] == wanted_claim(world, resource, identity)["spec"]);
    claimed
        && bundle_intent(resource).is_none()
        && shown["status"]["boundResources"] == value["status"]["boundResources"]
}

fn show_bound(value: &mut Json, resource: &Resource, identity: &str) {
    let (Some((schema, _)), Ok(api)) = (&resource.schema, &resource.compiled) else {
        return;
    };
    let known = |version: &&Json| version.as_str().is_some_and(|version| api.version(version).is_some());
    let before = bound(value, &resource.group, &resource.name).unwrap_or(&Json::Null);
    // Versions that the schema lost have no objects, or it would not be bound.
    let mut versions: Vec<Json> = before["storageVersions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(known)
        .cloned()
        .collect();
    let storage = json!(&*api.storage_version().name);
    if !versions.contains(&storage) {
        versions.push(storage);
    }
    let entry = json!({
        "group": resource.group, "resource": resource.name,
        "schema": {
            "name": resource.schema_name, "UID": schema.object.meta.uid.to_string(), "identityHash": identity,
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

/// What is no longer offered goes once no objects of it are left; until then it is served as it
/// was.
fn release(world: &World, value: &mut Json) -> Vec<Intent> {
    let gone: Vec<&Json> = world
        .dropped
        .iter()
        .filter(|(_, in_use)| !in_use)
        .map(|(bound, _)| bound)
        .collect();
    if let Some(list) = value["status"]["boundResources"].as_array_mut() {
        list.retain(|bound| !gone.contains(&bound));
    }
    let is_released = |claim: &&Entry| {
        let offered = world.resources.iter().any(|resource| resource.claim_key == claim.key);
        let in_use = world.dropped.iter().any(|(bound, in_use)| {
            *in_use
                && insula_registry::ids::claim(&claim.key.cluster, text(bound, "/group"), text(bound, "/resource"))
                    == claim.key
        });
        !offered && !in_use
    };
    world
        .claims
        .iter()
        .filter(is_released)
        .cloned()
        .map(Intent::Delete)
        .collect()
}

fn show_outcome(world: &World, value: &mut Json, problems: &[Problem], complete: bool) {
    let outcome = |kind: &str| match problems
        .iter()
        .find(|p| matches!(p, Problem::Conflict(_)))
        .or(problems.first())
    {
        Some(Problem::Conflict(message)) => Condition::fails(kind, "NamingConflicts", message.clone()),
        Some(Problem::Blocked(message)) => Condition::fails(kind, "RolloutBlocked", message.clone()),
        Some(Problem::Invalid(message)) => Condition::fails(kind, "APIResourceSchemaInvalid", message.clone()),
        None if !complete => waiting(kind),
        None => Condition::holds(kind),
    };
    let initially = condition(value, "InitialBindingCompleted").is_some_and(|c| c["status"] == "True");
    // Once it held it holds for ever: what comes later is a matter of being up to date.
    if !initially {
        set_condition(value, &outcome("InitialBindingCompleted"), world.now);
    }
    set_condition(value, &outcome("BindingUpToDate"), world.now);
    if problems.is_empty() && complete {
        value["status"]["phase"] = json!("Bound");
    }
}
