//! `ApiService`: permission claims of bindings.

use super::{
    manifests::text,
    objects::{items, required, resource_name},
};
use crate::pages::Page;
use insula_api::{Json, Revision};
use insula_proto::admin::v1::{ClaimState, PermissionClaim};
use serde_json::json;
use tonic::Status;

/// Decision on claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Accepted,
    Rejected,
}

/// Name of all claims that are open.
const ALL: &str = "*";

/// Returns true if two claims are about one resource.
fn is_same(a: &Json, b: &Json) -> bool {
    ["/group", "/resource", "/identityHash"]
        .iter()
        .all(|field| text(a, field) == text(b, field))
}

/// Returns true if a name means a claim: `configmaps`, `widgets.example.io` or `configmaps.core`.
fn is_named(claim: &Json, name: &str) -> bool {
    let (group, resource) = (text(claim, "/group"), text(claim, "/resource"));
    name == resource_name(group, resource) || (group.is_empty() && name == resource)
}

/// Returns the claims of a binding's export with the binding's decisions.
pub(super) fn claims(binding: &Json) -> Vec<PermissionClaim> {
    let claim = |requested: &Json| {
        let decided = items(binding, "/spec/permissionClaims").find(|it| is_same(it, requested));
        let state = match decided.map(|decided| text(decided, "/state")) {
            Some("Accepted") => ClaimState::Accepted,
            Some("Rejected") => ClaimState::Rejected,
            _ => ClaimState::Open,
        };
        let accepted = decided.filter(|_| state == ClaimState::Accepted);
        PermissionClaim {
            group: text(requested, "/group").to_owned(),
            resource: text(requested, "/resource").to_owned(),
            identity_hash: text(requested, "/identityHash").to_owned(),
            verbs: verbs(requested),
            state: state.into(),
            accepted_verbs: accepted.map(verbs).unwrap_or_default(),
        }
    };
    requested(binding).into_iter().map(claim).collect()
}

/// Returns what an export asks for, before anybody has decided.
pub(super) fn open(export: &Json) -> Vec<PermissionClaim> {
    let claim = |requested: &Json| PermissionClaim {
        group: text(requested, "/group").to_owned(),
        resource: text(requested, "/resource").to_owned(),
        identity_hash: text(requested, "/identityHash").to_owned(),
        verbs: verbs(requested),
        state: ClaimState::Open.into(),
        accepted_verbs: Vec::new(),
    };
    items(export, "/spec/permissionClaims").map(claim).collect()
}

/// Returns a page of the claims of a binding, and the token of the next one.
pub(super) fn page(binding: &Json, page: &Page, revision: Revision) -> (Vec<PermissionClaim>, String) {
    let first: usize = page
        .after
        .as_ref()
        .and_then(|(_, at)| at.parse().ok())
        .unwrap_or_default();
    let mut claims = claims(binding);
    let rest = claims.split_off(first.min(claims.len()));
    let next = match rest.len() > page.size {
        true => page.next(revision, &(first + page.size).to_string()),
        false => String::new(),
    };
    (rest.into_iter().take(page.size).collect(), next)
}

/// Returns what the export of a binding asks for.
pub(super) fn requested(binding: &Json) -> Vec<&Json> {
    items(binding, "/status/exportPermissionClaims").collect()
}

fn verbs(claim: &Json) -> Vec<String> {
    let verbs = items(claim, "/verbs").filter_map(Json::as_str);
    verbs.map(str::to_owned).collect()
}

/// Returns decisions on the named claims, in addition to decisions that were made before.
///
/// # Errors
/// A name means none of the claims.
pub(super) fn decided(
    requested: &[&Json],
    before: &Json,
    names: &[String],
    decision: Decision,
    field: &str,
) -> Result<Json, Status> {
    let mut decisions: Vec<Json> = before.as_array().cloned().unwrap_or_default();
    for (index, name) in names.iter().enumerate() {
        required(&format!("{field}[{index}]"), name)?;
        let is_open = |claim: &&Json| !decisions.iter().any(|known| is_same(known, claim));
        let meant: Vec<&Json> = match name.as_str() {
            ALL => requested.iter().copied().filter(is_open).collect(),
            name => requested
                .iter()
                .copied()
                .filter(|claim| is_named(claim, name))
                .collect(),
        };
        if meant.is_empty() && name != ALL {
            let known: Vec<String> = requested
                .iter()
                .map(|claim| resource_name(text(claim, "/group"), text(claim, "/resource")))
                .collect();
            return Err(Status::invalid_argument(format!(
                "{field}: the export asks for no {name}; it asks for [{}]",
                known.join(", ")
            )));
        }
        for claim in meant {
            let mut new = claim.clone();
            let known = decisions.iter_mut().find(|known| is_same(known, claim));
            let selector = known.as_ref().map(|known| known["selector"].clone());
            new["selector"] = selector.filter(Json::is_object).unwrap_or(json!({"matchAll": true}));
            new["state"] = match decision {
                Decision::Accepted => "Accepted".into(),
                Decision::Rejected => "Rejected".into(),
            };
            match known {
                Some(known) => *known = new,
                None => decisions.push(new),
            }
        }
    }
    Ok(decisions.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_added_and_replaced() {
        let requested = [
            json!({"resource": "configmaps", "verbs": ["get"]}),
            json!({"group": "example.io", "resource": "widgets", "verbs": ["*"]}),
        ];
        let decide = |before: &Json, names: &[&str], decision| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            decided(
                &requested.iter().collect::<Vec<_>>(),
                before,
                &names,
                decision,
                "claims",
            )
        };
        let selected = json!([{"resource": "configmaps", "verbs": [], "state": "Rejected",
            "selector": {"matchLabels": {"a": "b"}}}]);
        let accepted = decide(&selected, &["configmaps"], Decision::Accepted).unwrap();
        assert_eq!(
            accepted,
            json!([{"resource": "configmaps", "verbs": ["get"], "state": "Accepted",
                "selector": {"matchLabels": {"a": "b"}}}])
        );
        let all = decide(&accepted, &["*"], Decision::Rejected).unwrap();
        assert_eq!(all[0]["state"], "Accepted", "it is decided already");
        assert_eq!(
            (&all[1]["state"], &all[1]["selector"]),
            (&json!("Rejected"), &json!({"matchAll": true}))
        );
        let unknown = decide(&accepted, &["secrets"], Decision::Accepted).unwrap_err();
        assert!(
            unknown.message().contains("configmaps.core, widgets.example.io"),
            "{unknown}"
        );
    }
}
