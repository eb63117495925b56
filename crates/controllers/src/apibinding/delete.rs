//! End of a binding: its routes are closed, so that a create that was prepared before fails. Then
//! its objects go, and at last its routes and itself in one transaction. Needs neither export nor
//! schema. If the workspace has another binding to the same export, or to an
//! export of the same identity, names and objects go over to that successor.
//!
//! A binding with a grace period keeps its objects and routes until the end of it, as long as it
//! has objects. It does not outlive its workspace, and hands over to a successor at once: nothing
//! is lost then.

use super::world::{Successor, World};
use crate::{
    crd::decide::{close, opened},
    loaded::Loaded,
    write::{self, drop_condition, drop_finalizer, list, patience, sort_conditions, text},
};
use insula_api::{Condition, Json, kinds::ApiBinding, names::finalizers, set_condition};
use insula_catalog::ids;
use insula_registry::{Intent, Plan, grace};
use serde_json::json;

/// The condition that tells what the deletion waits for.
pub(super) const CONTENT_DELETED: &str = "BindingResourceDeleteSuccess";

/// Decides about a binding whose deletion was requested.
pub(super) fn decide(world: &World, binding: &Loaded<ApiBinding>) -> Plan {
    let is_kept = world.alive.is_some() && world.successor.is_none() && !world.content.is_clean();
    let left = write::grace_left(&binding.entry.object.meta, world.now);
    match left.filter(|_| is_kept) {
        Some(seconds) => await_deletion(world, binding, seconds),
        None => delete(world, binding),
    }
}

/// Shows that the objects of a deleted binding are still there.
fn await_deletion(world: &World, binding: &Loaded<ApiBinding>, seconds: u64) -> Plan {
    let name = &binding.entry.key.name;
    let end = binding.entry.object.meta.deletion_timestamp.unwrap_or(world.now);
    let message = format!(
        "the objects are kept until {end}, and the deletion can be taken back until then: `insula unbind {name} \
         --undelete`; `insula unbind {name} --now` removes them at once"
    );
    let value = binding.value.clone();
    write::await_deletion(&binding.entry, value, (CONTENT_DELETED, message), (seconds, world.now))
}

fn delete(world: &World, binding: &Loaded<ApiBinding>) -> Plan {
    let mut value = binding.value.clone();
    if binding.entry.object.meta.deletion_grace {
        // In the transaction that removes the first objects, so that a deletion is taken back
        // with all of them or not at all.
        grace::end(&mut value, world.now);
        drop_condition(&mut value, CONTENT_DELETED);
    }
    let to_close = world.routes.iter().filter(|_| world.successor.is_none());
    let mut closing: Vec<Intent> = to_close.filter_map(close).collect();
    if !closing.is_empty() {
        closing.push(binding.update(value));
        return Plan {
            intents: closing,
            again_after: Some(0),
        };
    }
    let content = &world.content;
    let mut intents = content.intents.clone();
    if content.is_clean() {
        intents.extend(match &world.successor {
            Some(successor) => hand_over(world, binding, successor),
            None => world.routes.iter().cloned().map(Intent::Delete).collect(),
        });
        drop_finalizer(&mut value, finalizers::API_BINDING);
        intents.push(binding.update(value));
        return Plan::new(intents);
    }
    let again = match intents.is_empty() {
        false => 0,
        true => {
            set_condition(&mut value, &remaining_content(world), world.now);
            sort_conditions(&mut value);
            patience(world.now, binding.entry.object.meta.deletion_timestamp)
        }
    };
    intents.push(binding.update(value));
    Plan {
        intents,
        again_after: Some(again),
    }
}

/// Points the routes at the successor, and adds the resources bound by them to its status: above
/// all the versions that objects are stored in.
fn hand_over(world: &World, binding: &Loaded<ApiBinding>, to: &Successor) -> Vec<Intent> {
    let successor = &to.binding;
    let key = &successor.entry.key;
    let is_routed = |bound: &&Json| {
        let route = ids::resource_route(&key.cluster, text(bound, "/group"), text(bound, "/resource"));
        world.routes.iter().any(|known| known.key == route)
    };
    let is_new = |bound: &&Json| {
        let (group, resource) = (text(bound, "/group"), text(bound, "/resource"));
        successor.view.status.bound(group, resource).is_none()
    };
    let mut all = list(&successor.value, "/status/boundResources").to_vec();
    let left = list(&binding.value, "/status/boundResources").iter();
    all.extend(left.filter(is_routed).filter(is_new).cloned());
    let mut value = successor.value.clone();
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    value["status"]["boundResources"] = json!(all);
    let renamed = world.routes.iter().map(|route| {
        let mut value = opened(route);
        value["spec"]["binding"] = json!(&*key.name);
        value["spec"]["export"] = to.export.write();
        Intent::Update(route.clone(), value)
    });
    renamed.chain([successor.update(value)]).collect()
}

/// Returns the condition that tells what still holds the binding.
fn remaining_content(world: &World) -> Condition {
    let content = &world.content;
    let (reason, message) = match content.finalizers.is_empty() {
        true => (
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", content.describe_remaining()),
        ),
        false => (
            "SomeFinalizersRemain",
            format!(
                "Some content in the workspace has finalizers remaining: {}",
                content.describe_finalizers()
            ),
        ),
    };
    Condition::fails(CONTENT_DELETED, reason, message)
}
