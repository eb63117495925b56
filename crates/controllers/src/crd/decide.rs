//! Decision about one definition.

use super::{
    names,
    world::{World, is_own},
};
use crate::{
    rollout::{self, Hold, Verdict},
    write::{drop_finalizer, patience, text},
};
use insula_api::{
    Condition, ConditionStatus, Json, aggregate, condition,
    names::{annotations, finalizers, groups},
    set_condition,
};
use insula_catalog::{ResourceRoute, bundle, registration::DefinitionName};
use insula_registry::{Intent, Plan};
use insula_store::Entry;
use serde_json::json;

pub(super) fn decide(world: &World) -> Plan {
    let Some((entry, value)) = &world.definition else {
        return Plan::rest();
    };
    if entry.object.meta.is_deleting() {
        return delete(world, entry, value);
    }
    let Some(alive) = &world.alive else { return Plan::rest() };
    let rollout = world.bundle.iter().map(|bundle| &bundle.rollout);
    if rollout.clone().any(|verdict| matches!(verdict, Verdict::Trying)) {
        return Plan {
            intents: Vec::new(),
            again_after: Some(0),
        };
    }
    let mut value = value.clone();
    let blocked = rollout::blocked_message(rollout).map(Hold::of_objects);
    let is_blocked = blocked.is_some();
    let waits = world.misfit.as_ref().filter(|misfit| !misfit.in_force);
    let waits = waits.map(|misfit| Hold {
        reason: "RulesNotFound",
        message: misfit.message.clone(),
    });
    rollout::set_rolled_out(&mut value, waits.or(blocked), world.now);
    let had = value["status"]["acceptedNames"].clone();
    let (accepted, names_accepted) = names::accept(&value["spec"]["names"], &had, &world.taken);
    // Another API may have the route already, while its names do not show yet.
    let lost = world.route.as_ref().is_some_and(|route| !is_own(route, &entry.key));
    let names_accepted = match lost {
        true => plural_conflict(&value),
        false => names_accepted,
    };
    if let Some(approval) = approval(&value) {
        set_condition(&mut value, &approval, world.now);
    }
    judge_structure(&mut value, world);
    let free = names_accepted.status == ConditionStatus::True;
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    value["status"]["acceptedNames"] = accepted;
    set_condition(&mut value, &names_accepted, world.now);
    let was_established = is_established(&value);
    // An established definition stays so: an invalid CA bundle fails conversions, and nothing else.
    let unfit = !was_established && insula_schema::ca_bundle_is_unusable(&value["spec"]["conversion"]);
    let established = (was_established && !lost || free) && !unfit;
    set_condition(&mut value, &establish(established, free && unfit), world.now);

    let waits_for_objects = world.misfit.as_ref().is_some_and(|misfit| misfit.is_of_objects);
    let mut intents = alive.clone();
    intents.push(Intent::Update(entry.clone(), value));
    if established && !is_blocked && (world.misfit.is_none() || world.bundle.is_some()) {
        intents.extend(serve(world, entry));
    }
    Plan {
        intents,
        again_after: (is_blocked || waits_for_objects).then_some(rollout::AGAIN_SECONDS),
    }
}

fn is_established(definition: &Json) -> bool {
    condition(definition, "Established").is_some_and(|c| c["status"] == "True")
}

/// Returns the condition on the approval of a definition in a protected group.
fn approval(definition: &Json) -> Option<Condition> {
    let group = text(definition, "/spec/group");
    if !groups::PROTECTED
        .iter()
        .any(|own| group == *own || group.ends_with(&format!(".{own}")))
    {
        return None;
    }
    let kind = "KubernetesAPIApprovalPolicyConformant";
    let approval = definition["metadata"]["annotations"][annotations::API_APPROVED]
        .as_str()
        .unwrap_or_default();
    Some(match approval.starts_with("unapproved") {
        true => Condition::fails(kind, "UnapprovedAnnotation", format!("not approved: {approval:?}")).severity(""),
        false => Condition::holds(kind).because("ApprovedAnnotation", format!("approved in {approval}")),
    })
}

/// Sets or removes the condition on schemas that are not structural, which only definitions made
/// through v1beta1 may have.
fn judge_structure(definition: &mut Json, world: &World) {
    const KIND: &str = "NonStructuralSchema";
    let violations = match definition["metadata"]["annotations"][annotations::MADE_AS].is_null() {
        true => Vec::new(),
        false => insula_schema::structural_violations(definition),
    };
    if !violations.is_empty() {
        let violated = Condition::holds(KIND).because("Violations", aggregate(&violations));
        set_condition(definition, &violated, world.now);
    } else if let Some(Json::Array(conditions)) = definition.pointer_mut("/status/conditions") {
        conditions.retain(|condition| condition["type"] != KIND);
    }
}

fn plural_conflict(value: &Json) -> Condition {
    let message = format!("{:?} is already in use", text(value, "/spec/names/plural"));
    Condition {
        severity: String::new(),
        ..Condition::fails("NamesAccepted", "PluralConflict", message)
    }
}

fn establish(established: bool, unfit: bool) -> Condition {
    match (established, unfit) {
        (true, _) => {
            Condition::holds("Established").because("InitialNamesAccepted", "the initial names have been accepted")
        }
        (false, true) => {
            let why = "The conversion webhook CABundle is invalid";
            Condition::fails("Established", "InvalidCABundle", why).severity("")
        }
        (false, false) => Condition::fails("Established", "NotAccepted", "not all names are accepted").severity(""),
    }
}

/// Returns the writes of the route, and of the bundle if there are conversion rules.
fn serve(world: &World, definition: &Entry) -> Vec<Intent> {
    let mut intents = Vec::new();
    let mut bundle_name = None;
    if let Some(bundle) = &world.bundle {
        bundle_name = Some(bundle.key.name.clone());
        intents.extend(bundle.conversions.iter().cloned());
        match &bundle.present {
            None => intents.push(Intent::Create(bundle.key.clone(), bundle.value.clone())),
            Some(present) => {
                let old = present.object.body_value();
                if !bundle::is_same(&old, &bundle.value) {
                    let value = bundle::updated(old, &bundle.value);
                    intents.push(Intent::Update(present.clone(), value));
                }
            }
        }
    }
    let wanted = ResourceRoute {
        binding: None,
        export: None,
        definition: DefinitionName::of_key(&definition.key),
        bundle: bundle_name,
        identity: "".into(),
        storage: world.storage.clone(),
        closing: false,
        frozen: world.route.as_ref().is_some_and(is_frozen),
        marks: Default::default(),
    };
    match &world.route {
        None => intents.push(Intent::Create(
            world.route_key.clone(),
            wanted.write(&world.route_key.name),
        )),
        Some(route) => {
            let mut value = route.object.body_value();
            value["spec"] = wanted.write(&world.route_key.name)["spec"].clone();
            intents.push(Intent::Update(route.clone(), value));
        }
    }
    intents
}

/// Returns true for the route of a resource that is being migrated.
pub(crate) fn is_frozen(route: &Entry) -> bool {
    route.object.parsed(ResourceRoute::read).frozen
}

/// Returns the write that marks a route as closing; `None` if it is marked. Objects are counted as
/// gone only after it: a create that was prepared before fails by its guard.
pub(crate) fn close(route: &Entry) -> Option<Intent> {
    let mut value = route.object.body_value();
    (value["spec"]["closing"] != true).then(|| {
        value["spec"]["closing"] = json!(true);
        Intent::Update(route.clone(), value)
    })
}

/// Returns a route without the mark of a closing one.
pub(crate) fn opened(route: &Entry) -> Json {
    let mut value = route.object.body_value();
    if let Some(spec) = value["spec"].as_object_mut() {
        spec.remove("closing");
    }
    value
}

/// Deletes instances first, then the route and the definition in one transaction.
fn delete(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    let mut intents = world.instances.intents.clone();
    let own = world.route.iter().filter(|route| is_own(route, &entry.key));
    intents.extend(own.clone().filter_map(close));
    if world.instances.is_clean() && intents.is_empty() {
        drop_finalizer(&mut value, finalizers::CUSTOM_RESOURCES);
        let (reason, message) = match is_established(&value) {
            true => ("InstanceDeletionCompleted", "removed all instances"),
            false => ("NeverEstablished", "resource was never established"),
        };
        let done = Condition::fails("Terminating", reason, message).severity("");
        set_condition(&mut value, &done, world.now);
        intents.push(Intent::Update(entry.clone(), value));
        intents.extend(own.cloned().map(Intent::Delete));
        return Plan::new(intents);
    }
    let under_way =
        Condition::holds("Terminating").because("InstanceDeletionInProgress", "CustomResource deletion is in progress");
    set_condition(&mut value, &under_way, world.now);
    let again = match intents.is_empty() {
        true => patience(world.now, entry.object.meta.deletion_timestamp),
        false => 0,
    };
    intents.push(Intent::Update(entry.clone(), value));
    Plan {
        intents,
        again_after: Some(again),
    }
}
