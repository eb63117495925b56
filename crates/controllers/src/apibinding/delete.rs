//! The end of a binding: its objects, then its claims and itself in one transaction. Needs neither
//! export nor schema. Where another binding of the workspace is to the same export, names and
//! objects are left to that one.

use super::world::{World, bound};
use crate::write::{drop_finalizer, list, patience, sort_conditions, text};
use insula_api::{Condition, Json, names::finalizers, set_condition};
use insula_registry::{Intent, Plan, ids};
use insula_store::Entry;
use serde_json::json;

pub(super) fn delete(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    let content = &world.content;
    let mut intents = content.intents.clone();
    if content.is_clean() {
        intents.extend(match &world.heir {
            Some(heir) => inheritance(world, old, heir),
            None => world.claims.iter().cloned().map(Intent::Delete).collect(),
        });
        drop_finalizer(&mut value, finalizers::API_BINDING);
        intents.push(Intent::Update(entry.clone(), value));
        return Plan::of(intents);
    }
    let again = match intents.is_empty() {
        false => 0,
        true => {
            set_condition(&mut value, &what_remains(world), world.now);
            sort_conditions(&mut value);
            patience(world.now, entry.object.meta.deletion_timestamp)
        }
    };
    intents.push(Intent::Update(entry.clone(), value));
    Plan {
        intents,
        again_after: Some(again),
    }
}

/// The claims in the heir's name, and in its status what is bound by them: the versions that
/// objects are stored in above all.
fn inheritance(world: &World, old: &Json, (entry, heir): &(Entry, Json)) -> Vec<Intent> {
    let mut heir = heir.clone();
    let is_claimed = |bound: &&Json| {
        let cluster = &entry.key.cluster;
        let key = ids::claim(cluster, text(bound, "/group"), text(bound, "/resource"));
        world.claims.iter().any(|claim| claim.key == key)
    };
    let left = list(old, "/status/boundResources").iter().filter(is_claimed);
    let new: Vec<Json> = left
        .filter(|left| bound(&heir, text(left, "/group"), text(left, "/resource")).is_none())
        .cloned()
        .collect();
    let mut all = list(&heir, "/status/boundResources").to_vec();
    all.extend(new);
    if !heir["status"].is_object() {
        heir["status"] = json!({});
    }
    heir["status"]["boundResources"] = json!(all);
    let renamed = world.claims.iter().map(|claim| {
        let mut value = claim.object.body_value();
        value["spec"]["binding"] = json!(&*entry.key.name);
        Intent::Update(claim.clone(), value)
    });
    renamed.chain([Intent::Update(entry.clone(), heir)]).collect()
}

fn what_remains(world: &World) -> Condition {
    let content = &world.content;
    let (reason, message) = match content.finalizers.is_empty() {
        true => (
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", content.remaining_words()),
        ),
        false => (
            "SomeFinalizersRemain",
            format!(
                "Some content in the workspace has finalizers remaining: {}",
                content.finalizer_words()
            ),
        ),
    };
    Condition::fails("BindingResourceDeleteSuccess", reason, message)
}
