//! Decision about one object.

use super::{
    has,
    owner::{Owner, Seen},
    world::World,
};
use crate::{
    content::BATCH_MAX,
    write::{drop_finalizer, patience},
};
use insula_api::{Json, Meta};
use insula_registry::{FOREGROUND, Intent, ORPHAN, Plan, Propagation, mark_deleted};
use insula_store::Entry;
use serde_json::json;

pub(super) fn decide(world: &World) -> Plan {
    let (Some(entry), Some(dependents)) = (&world.object, &world.dependents) else {
        return Plan::rest();
    };
    let meta = &entry.object.meta;
    match meta.is_deleting() {
        true if has(meta, ORPHAN) => orphan(entry, dependents),
        true if has(meta, FOREGROUND) => wait(world, entry, dependents),
        true => Plan::rest(),
        false => judge(world, entry, dependents),
    }
}

/// Removes the owner from its dependents, and then the finalizer from the owner.
fn orphan(entry: &Entry, dependents: &[Entry]) -> Plan {
    let uid = entry.object.meta.uid.to_string();
    let mut intents: Vec<Intent> = dependents
        .iter()
        .take(BATCH_MAX)
        .map(|dependent| without_owners(dependent, |reference| reference["uid"] == uid.as_str()))
        .collect();
    if dependents.len() > BATCH_MAX {
        intents.push(Intent::Expect(entry.key.clone(), Some(entry.revision)));
        return Plan {
            intents,
            again_after: Some(0),
        };
    }
    intents.push(without_finalizer(entry, ORPHAN));
    Plan::new(intents)
}

/// Releases the owner once no dependent blocks it. Dependents are reconciled on their own.
fn wait(world: &World, entry: &Entry, dependents: &[Entry]) -> Plan {
    let uid = entry.object.meta.uid.to_string();
    let blocks = |dependent: &&Entry| {
        let mut references = dependent.object.meta.owner_references.iter();
        references.any(|reference| reference.uid == uid && reference.block_owner_deletion)
    };
    if dependents.iter().any(|dependent| blocks(&dependent)) {
        return Plan {
            intents: Vec::new(),
            again_after: Some(patience(world.now, entry.object.meta.deletion_timestamp)),
        };
    }
    Plan::new(vec![without_finalizer(entry, FOREGROUND)])
}

/// Deletes an object without an owner; removes references to absent owners if another one exists.
fn judge(world: &World, entry: &Entry, dependents: &[Entry]) -> Plan {
    if world.owners.iter().any(|(_, owner)| *owner == Owner::Unknown) {
        return Plan::rest();
    }
    let gone = |owner: &Owner| matches!(owner, Owner::Absent(_) | Owner::Waiting(_));
    if !world.owners.iter().any(|(_, owner)| gone(owner)) {
        return Plan::rest();
    }
    // The owners must be unchanged.
    let mut intents: Vec<Intent> = world
        .owners
        .iter()
        .filter_map(|(_, owner)| match owner {
            Owner::Solid(Seen(key, revision))
            | Owner::Waiting(Seen(key, revision))
            | Owner::Absent(Seen(key, revision)) => Some(Intent::Expect(key.clone(), *revision)),
            Owner::Unknown => None,
        })
        .collect();
    if world.owners.iter().any(|(_, owner)| matches!(owner, Owner::Solid(_))) {
        let stale: Vec<&str> = world
            .owners
            .iter()
            .filter(|(_, owner)| gone(owner))
            .map(|(reference, _)| reference.uid.as_str())
            .collect();
        intents.push(without_owners(entry, |reference| {
            stale.iter().any(|uid| reference["uid"] == *uid)
        }));
        return Plan::new(intents);
    }
    intents.extend(world.event.iter().cloned());
    let waiting = world.owners.iter().any(|(_, owner)| matches!(owner, Owner::Waiting(_)));
    let propagation = match &entry.object.meta {
        _ if waiting && !dependents.is_empty() => Propagation::Foreground,
        meta if has(meta, ORPHAN) => Propagation::Orphan,
        meta if has(meta, FOREGROUND) => Propagation::Foreground,
        _ => Propagation::Background,
    };
    let circular = propagation == Propagation::Foreground && dependents.iter().any(|d| is_waiting(&d.object.meta));
    let marked = mark_deleted(&entry.object, world.strategy, Some(propagation), world.now);
    intents.push(match marked {
        None => Intent::Delete(entry.clone()),
        Some(mut value) => {
            // In a circle every object would wait for the others.
            if circular {
                unblock(&mut value);
            }
            Intent::Update(entry.clone(), value)
        }
    });
    Plan::new(intents)
}

fn is_waiting(meta: &Meta) -> bool {
    meta.is_deleting() && has(meta, FOREGROUND)
}

fn unblock(value: &mut Json) {
    let references = value["metadata"]["ownerReferences"].as_array_mut();
    for reference in references.into_iter().flatten() {
        reference["blockOwnerDeletion"] = json!(false);
    }
}

fn without_finalizer(entry: &Entry, finalizer: &str) -> Intent {
    let mut value = entry.object.body_value();
    drop_finalizer(&mut value, finalizer);
    Intent::Update(entry.clone(), value)
}

fn without_owners(entry: &Entry, stale: impl Fn(&Json) -> bool) -> Intent {
    let mut value = entry.object.body_value();
    if let Some(references) = value["metadata"]["ownerReferences"].as_array_mut() {
        references.retain(|reference| !stale(reference));
        if references.is_empty()
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("ownerReferences");
        }
    }
    Intent::Update(entry.clone(), value)
}
