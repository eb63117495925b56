//! Decision about one logical cluster.

use super::{
    bindings::{DefaultBinding, Keep},
    world::{Newborn, Remains, World},
};
use crate::{
    content::BATCH_MAX,
    loaded::Loaded,
    workspace::{
        birth::{self, Lifecycle},
        move_url, show_list, show_phase,
    },
    write::{drop_condition, drop_finalizer, list, patience, removal, sort_conditions},
};
use insula_api::{
    Condition, Timestamp,
    kinds::{ApiBindingPhase, LogicalCluster, WorkspacePhase},
    names::{annotations, finalizers, well_known},
    set_condition,
};
use insula_registry::{Intent, Plan};
use insula_store::Entry;
use serde_json::json;

/// Finalizers that this very deletion satisfies.
const OWN_FINALIZERS: [&str; 3] = [
    finalizers::API_BINDING,
    finalizers::CUSTOM_RESOURCES,
    finalizers::THIRD_PARTY_RESOURCES,
];

pub(super) fn decide(world: &World) -> Plan {
    let Some(logical) = &world.logical else {
        return Plan::rest();
    };
    match (&world.content, &world.newborn) {
        (Some(remains), _) => delete(world, remains, logical),
        (None, Some(newborn)) => begin(world, newborn, logical),
        (None, None) => live(world, logical),
    }
}

fn live(world: &World, logical: &Loaded<LogicalCluster>) -> Plan {
    let mut value = logical.value.clone();
    move_url(&mut value, "/status/URL", world.shard_url.as_deref());
    let mut intents = Vec::new();
    let mut waiting = logical.view.status.initializers.clone();
    if waiting.iter().any(|name| name == well_known::BINDINGS_INITIALIZER) {
        let bindings = world.bindings.iter();
        intents.extend(bindings.filter_map(|wanted| wanted.keep(&logical.entry, Keep::First)));
        if world.bindings.iter().all(is_bound) {
            waiting.retain(|name| name != well_known::BINDINGS_INITIALIZER);
            set_condition(&mut value, &Condition::holds("APIBindingsInitialized"), world.now);
        } else {
            set_condition(&mut value, &waits_on_bindings(&world.bindings), world.now);
        }
    }
    let phase = next_phase(&logical.view, &waiting);
    if phase == WorkspacePhase::Ready {
        // Conditions of the initialization do not linger.
        drop_condition(&mut value, "APIBindingsInitialized");
        birth::shorten_owner(&mut value);
    }
    set_condition(&mut value, &birth::initialized(&waiting), world.now);
    sort_conditions(&mut value);
    show_phase(&mut value, phase.as_str());
    show_list(&mut value, "initializers", &waiting);
    birth::label(&mut value);
    intents.push(logical.update(value));
    // This reconciler does not watch exports: it looks for a missing one again.
    let is_missing = |wanted: &DefaultBinding| wanted.binding.is_none() && wanted.found.is_none();
    let created = logical.entry.object.meta.creation_timestamp;
    Plan {
        intents,
        again_after: (world.bindings.iter().any(is_missing)).then(|| patience(world.now, created)),
    }
}

fn next_phase(logical: &LogicalCluster, waiting: &[String]) -> WorkspacePhase {
    use WorkspacePhase::{Inactive, Initializing, Ready, Scheduling};
    match logical.status.phase {
        None | Some(Scheduling | Initializing) if waiting.is_empty() => Ready,
        None | Some(Scheduling | Initializing) => Initializing,
        Some(Ready) if is_inactive(logical) => Inactive,
        Some(Inactive) if !is_inactive(logical) => Ready,
        Some(phase) => phase,
    }
}

/// Creates the content of a cluster that was created without a Workspace: a home.
fn begin(world: &World, newborn: &Newborn, logical: &Loaded<LogicalCluster>) -> Plan {
    let mut value = logical.value.clone();
    let lifecycle = Lifecycle::from_types(&newborn.types);
    lifecycle.write(&mut value, world.now);
    value["status"]["URL"] = json!(format!("{}/clusters/{}", newborn.external_url, world.cluster));
    if lifecycle.waiting.is_empty() {
        birth::shorten_owner(&mut value);
    }
    let mut intents = vec![logical.update(value)];
    intents.extend(birth::content(&newborn.types, &world.cluster, &newborn.trust));
    Plan::new(intents)
}

fn is_inactive(logical: &LogicalCluster) -> bool {
    let mut keys = annotations::INACTIVE.iter();
    keys.any(|key| logical.metadata.annotation(key) == Some("true"))
}

fn is_bound(wanted: &DefaultBinding) -> bool {
    let binding = wanted.binding.as_ref();
    binding.is_some_and(|binding| binding.view.status.phase == Some(ApiBindingPhase::Bound))
}

fn waits_on_bindings(bindings: &[DefaultBinding]) -> Condition {
    let waiting = bindings.iter().filter(|wanted| !is_bound(wanted)).map(|wanted| {
        let missing = if wanted.found.is_none() && wanted.binding.is_none() {
            " (which does not exist)"
        } else {
            ""
        };
        format!("{}:{}{missing}", wanted.path, wanted.export)
    });
    let message = format!(
        "APIBinding(s) not yet fully bound: {}",
        waiting.collect::<Vec<_>>().join(", ")
    );
    Condition::fails("APIBindingsInitialized", "WaitingOnAPIBindings", message).severity("Info")
}

/// Deletes objects first, then the objects that serve them, then the LogicalCluster with its
/// Workspace: all in one transaction where it fits, so that an empty workspace goes at once.
fn delete(world: &World, remains: &Remains, logical: &Loaded<LogicalCluster>) -> Plan {
    let mut value = logical.value.clone();
    show_phase(&mut value, "Deleting");
    birth::label(&mut value);
    if !logical.view.status.terminators.is_empty() {
        show_phase(&mut value, "Terminating");
        return Plan::new(vec![logical.update(value)]);
    }
    drop_finalizer(&mut value, finalizers::TERMINATORS);
    show_list(&mut value, "terminators", &[]);
    let mut intents = remains.objects.intents.clone();
    let held = held_shells(remains);
    if !remains.objects.will_be_clean() || !held.is_empty() {
        let room = BATCH_MAX.saturating_sub(intents.len());
        intents.extend(
            held.iter()
                .filter_map(|shell| removal(shell, None, world.now))
                .take(room),
        );
        // While there is something to delete, the condition would be out of date in a moment.
        if intents.is_empty() {
            set_condition(&mut value, &remaining_content(remains, &held), world.now);
            sort_conditions(&mut value);
        }
        intents.push(logical.update(value));
        return Plan {
            intents,
            again_after: Some(wait(world.now, &logical.entry, remains)),
        };
    }
    let rest = remains.shells.iter().chain(&remains.internals);
    let room = BATCH_MAX.saturating_sub(intents.len());
    intents.extend(rest.clone().take(room).cloned().map(Intent::Delete));
    if rest.count() > room {
        return Plan {
            intents,
            again_after: Some(0),
        };
    }
    drop_finalizer(&mut value, finalizers::LOGICAL_CLUSTER);
    let is_gone = list(&value, "/metadata/finalizers").is_empty();
    if !is_gone {
        set_condition(&mut value, &Condition::holds("WorkspaceContentDeleted"), world.now);
        sort_conditions(&mut value);
    }
    intents.push(logical.update(value));
    intents.extend(release_owner(world, is_gone));
    Plan::new(intents)
}

/// Returns the namespaces, definitions and bindings that have finalizers of others.
fn held_shells(remains: &Remains) -> Vec<&Entry> {
    let foreign = |entry: &&Entry| {
        entry
            .object
            .meta
            .finalizers
            .iter()
            .any(|finalizer| !OWN_FINALIZERS.contains(&&**finalizer))
    };
    remains.shells.iter().filter(foreign).collect()
}

/// Returns the condition that tells what still holds the cluster.
fn remaining_content(remains: &Remains, held: &[&Entry]) -> Condition {
    let objects = &remains.objects;
    let (mut resources, mut finalizers) = (objects.remaining.clone(), objects.finalizers.clone());
    for shell in held {
        let id = &shell.key.resource;
        *resources.entry(format!("{}.{}", id.resource, id.group)).or_default() += 1;
        for finalizer in &shell.object.meta.finalizers {
            *finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
    }
    let sweep = crate::content::Sweep {
        remaining: resources,
        finalizers,
        ..Default::default()
    };
    let (reason, message) = match sweep.finalizers.is_empty() {
        true => (
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", sweep.describe_remaining()),
        ),
        false => (
            "SomeFinalizersRemain",
            format!(
                "Some content in the logical cluster has finalizers remaining: {}",
                sweep.describe_finalizers()
            ),
        ),
    };
    Condition::fails("WorkspaceContentDeleted", reason, message).severity("Info")
}

fn wait(now: Timestamp, entry: &Entry, remains: &Remains) -> u64 {
    match remains.objects.more {
        true => 0,
        false => patience(now, entry.object.meta.deletion_timestamp),
    }
}

/// Deletes the Workspace of a cluster that is deleted, and releases it when the cluster is gone:
/// finalizers of others may hold either.
fn release_owner(world: &World, is_gone: bool) -> Option<Intent> {
    let owner = world.owner.as_ref()?;
    if owner.view.spec.cluster != world.cluster.as_str() {
        return None;
    }
    let mut value = owner.value.clone();
    if is_gone {
        drop_finalizer(&mut value, finalizers::WORKSPACE);
    }
    if !owner.is_deleting() {
        value["metadata"]["deletionTimestamp"] = json!(world.now.to_string());
        value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    }
    Some(owner.update(value))
}

#[cfg(test)]
mod tests;
