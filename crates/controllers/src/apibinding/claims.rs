//! Permission claims: those that the export asks for, those that the binding accepts, and the
//! intersection, which applies.

use crate::write::{list, text};
use insula_api::{Condition, Json, Timestamp, set_condition};

/// Claims shown in a message.
const SHOWN_MAX: usize = 10;

fn key(claim: &Json) -> (&str, &str, &str) {
    (
        text(claim, "/group"),
        text(claim, "/resource"),
        text(claim, "/identityHash"),
    )
}

/// Writes claims and conditions about them into a binding's status.
pub(super) fn show(binding: &mut Json, export: &Json, now: Timestamp) {
    let exported = list(export, "/spec/permissionClaims");
    let wanted = list(binding, "/spec/permissionClaims").to_vec();
    let accepted = wanted.iter().filter(|claim| claim["state"] == "Accepted");
    let (applied, unexpected): (Vec<&Json>, Vec<&Json>) =
        accepted.partition(|claim| exported.iter().any(|known| key(known) == key(claim)));
    let applied: Vec<Json> = applied
        .into_iter()
        .map(|claim| {
            let mut claim = claim.clone();
            claim.as_object_mut().map(|fields| fields.remove("state"));
            claim
        })
        .collect();
    if !binding["status"].is_object() {
        binding["status"] = serde_json::json!({});
    }
    let asked: Vec<Json> = exported
        .iter()
        .map(|claim| {
            let mut claim = claim.clone();
            claim.as_object_mut().map(|fields| fields.remove("defaultSelector"));
            claim
        })
        .collect();
    set_or_drop(binding, "exportPermissionClaims", asked);
    set_or_drop(binding, "appliedPermissionClaims", applied);
    let valid = match unexpected.as_slice() {
        [] => Condition::holds("PermissionClaimsValid"),
        some => Condition::fails("PermissionClaimsValid", "InvalidPermissionClaims", describe(some)),
    };
    set_condition(binding, &valid, now);
    set_condition(binding, &Condition::holds("PermissionClaimsApplied"), now);
}

fn set_or_drop(binding: &mut Json, field: &str, claims: Vec<Json>) {
    match claims.is_empty() {
        true => drop(binding["status"].as_object_mut().map(|status| status.remove(field))),
        false => binding["status"][field] = Json::Array(claims),
    }
}

fn describe(unexpected: &[&Json]) -> String {
    let shown = unexpected.iter().take(SHOWN_MAX).map(|claim| {
        let (group, resource, identity) = key(claim);
        format!("unexpected/invalid claim for {resource}.{group} (identity {identity:?})")
    });
    let shown: Vec<String> = shown.collect();
    format!(
        "{} unexpected and/or invalid permission claims (showing first {}): {}",
        unexpected.len(),
        shown.len(),
        shown.join(", ")
    )
}
