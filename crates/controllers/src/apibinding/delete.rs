//! The end of a binding: its objects, then its claims and itself in one transaction. Needs neither export nor schema.

use super::{FINALIZER, world::World};
use crate::write::{drop_finalizer, patience, sort_conditions};
use insula_api::{Condition, Json, set_condition};
use insula_registry::{Intent, Plan};
use insula_store::Entry;

pub(super) fn delete(world: &World, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    let content = &world.content;
    let mut intents = content.intents.clone();
    if content.is_clean() {
        intents.extend(world.claims.iter().cloned().map(Intent::Delete));
        drop_finalizer(&mut value, FINALIZER);
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
