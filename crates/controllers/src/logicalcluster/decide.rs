//! What becomes of one logical cluster.

use super::{
    bindings::{DefaultBinding, Keep},
    world::{Newborn, Remains, World},
};
use crate::{
    content::BATCH_MAX,
    workspace::{
        birth::{self, Duties},
        show_phase,
    },
    write::{drop_condition, drop_finalizer, list, patience, removal, sort_conditions, text},
};
use insula_api::{
    Condition, Json, Timestamp,
    names::{annotations, finalizers, well_known},
    set_condition,
};
use insula_registry::{Intent, Plan};
use insula_store::Entry;
use serde_json::json;

/// Finalizers that stand for this very clean-up: they hold nothing here.
const OWN_FINALIZERS: [&str; 2] = [finalizers::API_BINDING, finalizers::CUSTOM_RESOURCES];

pub(super) fn decide(world: &World) -> Plan {
    let Some((entry, value)) = &world.logical else {
        return Plan::rest();
    };
    match &world.content {
        Some(remains) => delete(world, remains, entry, value),
        None => live(world, entry, value),
    }
}

fn live(world: &World, entry: &Entry, old: &Json) -> Plan {
    if let Some(newborn) = &world.newborn {
        return begin(world, newborn, entry, old);
    }
    let mut value = old.clone();
    let mut intents = Vec::new();
    let mut waiting = birth::texts(old, "/status/initializers");
    if waiting.iter().any(|i| i == well_known::BINDINGS_INITIALIZER) {
        intents.extend(
            world
                .bindings
                .iter()
                .filter_map(|wanted| wanted.keep(entry, Keep::First)),
        );
        if world.bindings.iter().all(is_bound) {
            waiting.retain(|i| i != well_known::BINDINGS_INITIALIZER);
            set_condition(&mut value, &Condition::holds("APIBindingsInitialized"), world.now);
        } else {
            set_condition(&mut value, &waits_on_bindings(&world.bindings), world.now);
        }
    }
    let phase = match text(old, "/status/phase") {
        "" | "Scheduling" | "Initializing" if waiting.is_empty() => "Ready",
        "" | "Scheduling" | "Initializing" => "Initializing",
        "Ready" if is_inactive(old) => "Inactive",
        "Inactive" if !is_inactive(old) => "Ready",
        phase => phase,
    };
    if phase == "Ready" {
        // Conditions of the way there do not linger.
        drop_condition(&mut value, "APIBindingsInitialized");
        birth::shorten_owner(&mut value);
    }
    set_condition(&mut value, &birth::initialized(&waiting), world.now);
    sort_conditions(&mut value);
    show_phase(&mut value, phase);
    birth::show_list(&mut value, "initializers", &waiting);
    birth::label(&mut value);
    intents.push(Intent::Update(entry.clone(), value));
    // Exports are not watched here: one that is missing is asked for again.
    let missing = world
        .bindings
        .iter()
        .any(|wanted| wanted.binding.is_none() && wanted.found.is_none());
    Plan {
        intents,
        again_after: missing.then(|| patience(world.now, entry.object.meta.creation_timestamp)),
    }
}

/// A cluster that was made without a Workspace: a home. What its type asks for is written here.
fn begin(world: &World, newborn: &Newborn, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    let duties = Duties::of(&newborn.types);
    duties.write(&mut value, world.now);
    value["status"]["URL"] = json!(format!("{}/clusters/{}", newborn.external_url, world.cluster));
    if duties.waiting.is_empty() {
        birth::shorten_owner(&mut value);
    }
    let mut intents = vec![Intent::Update(entry.clone(), value)];
    intents.extend(birth::content(&newborn.types, &world.cluster, &newborn.trust));
    Plan::of(intents)
}

fn is_inactive(value: &Json) -> bool {
    let annotations = &value["metadata"]["annotations"];
    annotations::INACTIVE.iter().any(|key| annotations[*key] == "true")
}

fn is_bound(wanted: &DefaultBinding) -> bool {
    let binding = wanted.binding.as_ref();
    binding.is_some_and(|(_, binding)| text(binding, "/status/phase") == "Bound")
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

/// Objects first, then what serves them, then the LogicalCluster with the Workspace that it belongs
/// to: all in one transaction where it fits, so that an empty workspace goes at once.
fn delete(world: &World, remains: &Remains, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    show_phase(&mut value, "Deleting");
    birth::label(&mut value);
    if !list(old, "/status/terminators").is_empty() {
        show_phase(&mut value, "Terminating");
        return Plan::of(vec![Intent::Update(entry.clone(), value)]);
    }
    drop_finalizer(&mut value, finalizers::TERMINATORS);
    birth::show_list(&mut value, "terminators", &[]);
    let mut intents = remains.objects.intents.clone();
    let held = held_shells(remains);
    if !remains.objects.will_be_clean() || !held.is_empty() {
        let room = BATCH_MAX.saturating_sub(intents.len());
        intents.extend(
            held.iter()
                .filter_map(|shell| removal(shell, None, world.now))
                .take(room),
        );
        // While there is something to remove nothing is said: it may well be gone in a moment.
        if intents.is_empty() {
            set_condition(&mut value, &what_is_left(remains, &held), world.now);
            sort_conditions(&mut value);
        }
        intents.push(Intent::Update(entry.clone(), value));
        return Plan {
            intents,
            again_after: Some(wait(world.now, entry, remains)),
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
    intents.push(Intent::Update(entry.clone(), value));
    intents.extend(release_owner(world));
    Plan::of(intents)
}

/// Namespaces, definitions and bindings that somebody else's finalizer holds.
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

fn what_is_left(remains: &Remains, held: &[&Entry]) -> Condition {
    let objects = &remains.objects;
    let (mut resources, mut finalizers) = (objects.remaining.clone(), objects.finalizers.clone());
    for shell in held {
        let id = &shell.key.resource;
        *resources.entry(format!("{}.{}", id.resource, id.group)).or_default() += 1;
        for finalizer in &shell.object.meta.finalizers {
            *finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
    }
    let words = crate::content::Sweep {
        remaining: resources,
        finalizers,
        ..Default::default()
    };
    let (reason, message) = match words.finalizers.is_empty() {
        true => (
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", words.remaining_words()),
        ),
        false => (
            "SomeFinalizersRemain",
            format!(
                "Some content in the logical cluster has finalizers remaining: {}",
                words.finalizer_words()
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

/// The Workspace of a cluster that is gone goes too, unless somebody else holds it.
fn release_owner(world: &World) -> Option<Intent> {
    let (entry, workspace) = world.owner.as_ref()?;
    if text(workspace, "/spec/cluster") != world.cluster.as_str() {
        return None;
    }
    let mut workspace = workspace.clone();
    drop_finalizer(&mut workspace, finalizers::WORKSPACE);
    if !entry.object.meta.is_deleting() {
        workspace["metadata"]["deletionTimestamp"] = json!(world.now.to_string());
        workspace["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    }
    Some(Intent::Update(entry.clone(), workspace))
}
