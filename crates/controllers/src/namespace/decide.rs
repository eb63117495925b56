//! Decision about one namespace.

use super::world::World;
use crate::write::patience;
use insula_api::{
    Condition, ConditionStatus, Json,
    names::{finalizers, labels},
    set_condition,
};
use insula_registry::{Intent, Plan};
use serde_json::json;

/// Returns a new namespace.
pub(crate) fn fresh_namespace(name: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {labels::NAMESPACE_NAME: name}},
        "spec": {"finalizers": [finalizers::NAMESPACE]},
        "status": {"phase": "Active"},
    })
}

pub(super) fn decide(world: &World) -> Plan {
    let Some((entry, old)) = &world.namespace else {
        return Plan::rest();
    };
    if !entry.object.meta.is_deleting() {
        return Plan::rest();
    }
    let mut value = old.clone();
    let mut intents = world.content.intents.clone();
    if world.content.will_be_clean() {
        if let Some(finalizers) = value.pointer_mut("/spec/finalizers").and_then(Json::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != finalizers::NAMESPACE);
        }
        intents.push(Intent::Update(entry.clone(), value));
        return Plan::new(intents);
    }
    // While there is something to delete, conditions would be out of date in a moment.
    if intents.is_empty() {
        for condition in conditions(world) {
            set_condition(&mut value, &condition, world.now);
        }
    }
    // Also guards against two servers that delete by different snapshots.
    intents.push(Intent::Update(entry.clone(), value));
    let again = if world.content.more {
        0
    } else {
        patience(world.now, entry.object.meta.deletion_timestamp)
    };
    Plan {
        intents,
        again_after: Some(again),
    }
}

fn conditions(world: &World) -> [Condition; 5] {
    let content = &world.content;
    let no =
        |kind: &str, reason: &str, message: &str| condition(kind, ConditionStatus::False, reason, message.to_owned());
    let remaining = format!("Some resources are remaining: {}", content.describe_remaining());
    let finalizers = format!(
        "Some content in the namespace has finalizers remaining: {}",
        content.describe_finalizers()
    );
    [
        no(
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        no(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        no(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        match content.remaining.is_empty() {
            true => no(
                "NamespaceContentRemaining",
                "ContentRemoved",
                "All content successfully removed",
            ),
            false => condition(
                "NamespaceContentRemaining",
                ConditionStatus::True,
                "SomeResourcesRemain",
                remaining,
            ),
        },
        match content.finalizers.is_empty() {
            true => no(
                "NamespaceFinalizersRemaining",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
            false => condition(
                "NamespaceFinalizersRemaining",
                ConditionStatus::True,
                "SomeFinalizersRemain",
                finalizers,
            ),
        },
    ]
}

fn condition(kind: &str, status: ConditionStatus, reason: &str, message: String) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status,
        severity: String::new(),
        reason: reason.to_owned(),
        message,
        generation: None,
    }
}
