//! Decision about one registration.

use super::world::{Registration, World};
use crate::{
    crd::{
        decide::{close, is_frozen},
        names,
        world::{is_own, storage_version},
    },
    write::{drop_finalizer, text},
};
use insula_api::{Condition, ConditionStatus, Json, names::finalizers, set_condition};
use insula_catalog::{
    ResourceRoute,
    registration::{DefinitionName, can_serve},
};
use insula_registry::{Intent, Plan};
use serde_json::json;

pub(super) fn decide(world: &World) -> Plan {
    let Some(registration) = &world.registration else {
        return Plan::rest();
    };
    if registration.entry.object.meta.is_deleting() {
        return delete(world, registration);
    }
    let Some(alive) = &world.alive else { return Plan::rest() };
    let mut value = registration.value.clone();
    let (accepted, conflict) = accept(registration);
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    let serves = can_serve(&accepted);
    value["status"]["acceptedNames"] = accepted;
    set_condition(&mut value, &conflict, world.now);
    let mut intents = alive.clone();
    intents.push(Intent::Update(registration.entry.clone(), value));
    if serves {
        intents.push(route(registration));
    }
    Plan::new(intents)
}

/// Returns the accepted names and the condition `NameConflict`.
fn accept(registration: &Registration) -> (Json, Condition) {
    let mut taken = registration.taken.clone();
    let (wanted, had) = (
        &registration.wanted["names"],
        &registration.value["status"]["acceptedNames"],
    );
    let mut had = had.clone();
    let is_foreign = |route| !is_own(route, &registration.entry.key);
    if registration.route.as_ref().is_some_and(is_foreign) {
        // Another API has the route, though its names may not show yet.
        taken.resources.insert(text(wanted, "/plural").to_owned());
        had["plural"] = json!("");
    }
    let (accepted, names_accepted) = names::accept(wanted, &had, &taken);
    let conflict = match names_accepted.status {
        ConditionStatus::True => Condition::fails("NameConflict", "NoConflicts", names_accepted.message).severity(""),
        _ => Condition::holds("NameConflict").because(&names_accepted.reason, names_accepted.message),
    };
    (accepted, conflict)
}

/// Returns the write of the route.
fn route(registration: &Registration) -> Intent {
    let key = &registration.route_key;
    let route = ResourceRoute {
        binding: None,
        export: None,
        definition: DefinitionName::of_key(&registration.entry.key),
        bundle: None,
        identity: "".into(),
        storage: storage_version(&registration.wanted).map(Into::into),
        closing: false,
        frozen: registration.route.as_ref().is_some_and(is_frozen),
        marks: Default::default(),
    };
    let value = route.write(&key.name);
    match &registration.route {
        None => Intent::Create(key.clone(), value),
        Some(present) => {
            let mut changed = present.object.body_value();
            changed["spec"] = value["spec"].clone();
            Intent::Update(present.clone(), changed)
        }
    }
}

/// Deletes the objects, then the route and the registration in one transaction. Finalizers of
/// others hold the registration, and reads go on until they are gone. They do not hold the objects:
/// a terminating registration refuses every write, so nobody could remove them.
fn delete(world: &World, registration: &Registration) -> Plan {
    let mut value = registration.value.clone();
    let mut intents: Vec<Intent> = registration.objects.iter().cloned().map(Intent::Delete).collect();
    let route = registration.route.iter();
    let route = route.filter(|route| is_own(route, &registration.entry.key));
    intents.extend(route.clone().filter_map(close));
    let clean = intents.is_empty();
    let held_by = &registration.entry.object.meta.finalizers;
    let is_held = held_by
        .iter()
        .any(|finalizer| **finalizer != *finalizers::THIRD_PARTY_RESOURCES);
    if clean && !is_held {
        drop_finalizer(&mut value, finalizers::THIRD_PARTY_RESOURCES);
        intents.extend(route.cloned().map(Intent::Delete));
    }
    let terminating =
        Condition::holds("Terminating").because("Deleting", "the objects of the resource are being deleted");
    set_condition(&mut value, &terminating, world.now);
    intents.push(Intent::Update(registration.entry.clone(), value));
    Plan {
        intents,
        again_after: (!clean).then_some(0),
    }
}
