//! What becomes of one logical cluster.

use super::{
    initialized, waits_for,
    world::{DefaultBinding, Remains, World},
};
use crate::{
    content::BATCH_MAX,
    workspace::{BINDINGS_INITIALIZER, CLUSTER_FINALIZER, FINALIZER, show_phase},
    write::{drop_condition, drop_finalizer, list, patience, removal, sort_conditions, text},
};
use insula_api::{Condition, Json, Timestamp, set_condition};
use insula_registry::{Intent, Plan, admission::digest};
use insula_store::Entry;
use serde_json::json;

/// Finalizers that stand for this very clean-up: they hold nothing here.
const OWN_FINALIZERS: [&str; 2] = [
    "apis.kcp.io/apibinding-finalizer",
    "customresourcecleanup.apiextensions.k8s.io",
];

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
    let mut value = old.clone();
    let mut intents = Vec::new();
    let mut initializers = list(old, "/status/initializers").to_vec();
    if initializers.iter().any(|i| i == BINDINGS_INITIALIZER) {
        let missing = world.bindings.iter().filter(|wanted| wanted.binding.is_none());
        intents.extend(missing.filter_map(|wanted| create(wanted, entry)));
        if world.bindings.iter().all(is_bound) {
            initializers.retain(|i| i != BINDINGS_INITIALIZER);
            set_condition(&mut value, &Condition::holds("APIBindingsInitialized"), world.now);
        } else {
            set_condition(&mut value, &waits_on_bindings(&world.bindings), world.now);
        }
    }
    let names: Vec<String> = initializers
        .iter()
        .filter_map(|i| i.as_str().map(str::to_owned))
        .collect();
    let phase = match text(old, "/status/phase") {
        "" | "Scheduling" | "Initializing" if names.is_empty() => "Ready",
        "" | "Scheduling" | "Initializing" => "Initializing",
        "Ready" if is_inactive(old) => "Inactive",
        "Inactive" if !is_inactive(old) => "Ready",
        phase => phase,
    };
    if phase == "Ready" {
        // Conditions of the way there do not linger.
        drop_condition(&mut value, "APIBindingsInitialized");
    }
    set_condition(
        &mut value,
        &if names.is_empty() {
            initialized()
        } else {
            waits_for(&names)
        },
        world.now,
    );
    sort_conditions(&mut value);
    show_phase(&mut value, phase);
    match names.is_empty() {
        true => drop(
            value["status"]
                .as_object_mut()
                .map(|status| status.remove("initializers")),
        ),
        false => value["status"]["initializers"] = json!(names),
    }
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

fn is_inactive(value: &Json) -> bool {
    value["metadata"]["annotations"]["core.kcp.io/inactive"] == "true"
}

fn is_bound(wanted: &DefaultBinding) -> bool {
    wanted
        .binding
        .as_ref()
        .is_some_and(|binding| text(binding, "/status/phase") == "Bound")
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

fn create(wanted: &DefaultBinding, logical: &Entry) -> Option<Intent> {
    let (exporter, export) = wanted.found.as_ref()?;
    let mut binding = default_binding(&wanted.path, &wanted.export, export);
    binding["metadata"]["labels"] = json!({
        "internal.apis.kcp.io/export": digest::export_label(exporter, &wanted.export),
    });
    if let Some(path) = logical.object.body_value()["metadata"]["annotations"].get("kcp.io/path") {
        binding["metadata"]["annotations"] = json!({"kcp.io/path": path});
    }
    Some(Intent::Create(wanted.key.clone(), binding))
}

/// A binding to an export, with all that the export claims accepted.
fn default_binding(path: &str, name: &str, export: &Json) -> Json {
    let claims: Vec<Json> = list(export, "/spec/permissionClaims")
        .iter()
        .map(|claim| {
            let mut claim = claim.clone();
            let selector = claim
                .as_object_mut()
                .and_then(|fields| fields.remove("defaultSelector"));
            claim["selector"] = selector.unwrap_or_else(|| json!({"matchAll": true}));
            claim["state"] = json!("Accepted");
            claim
        })
        .collect();
    let mut binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"finalizers": ["apis.kcp.io/apibinding-finalizer"]},
        "spec": {"reference": {"export": {"path": path, "name": name}}},
    });
    if !claims.is_empty() {
        binding["spec"]["permissionClaims"] = json!(claims);
    }
    binding
}

/// Objects first, then what serves them, then the LogicalCluster with the Workspace that it belongs to: all in one
/// transaction where it fits, so that an empty workspace goes at once.
fn delete(world: &World, remains: &Remains, entry: &Entry, old: &Json) -> Plan {
    let mut value = old.clone();
    show_phase(&mut value, "Deleting");
    if !list(old, "/status/terminators").is_empty() {
        show_phase(&mut value, "Terminating");
        return Plan {
            intents: vec![Intent::Update(entry.clone(), value)],
            again_after: None,
        };
    }
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
    let rest = remains.shells.iter().chain(&remains.claims);
    let room = BATCH_MAX.saturating_sub(intents.len());
    intents.extend(rest.clone().take(room).cloned().map(Intent::Delete));
    if rest.count() > room {
        return Plan {
            intents,
            again_after: Some(0),
        };
    }
    drop_finalizer(&mut value, CLUSTER_FINALIZER);
    intents.push(Intent::Update(entry.clone(), value));
    intents.extend(release_owner(world));
    Plan {
        intents,
        again_after: None,
    }
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
    drop_finalizer(&mut workspace, FINALIZER);
    if !entry.object.meta.is_deleting() {
        workspace["metadata"]["deletionTimestamp"] = json!(world.now.to_string());
        workspace["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    }
    Some(Intent::Update(entry.clone(), workspace))
}
