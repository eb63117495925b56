//! Admission of APIBindings: the export reference is complete and resolves, and each permission
//! claim has a valid selector.

use crate::kinds::review::{Operation, Review, Rules, annotate_path, spaced};
use insula_api::{
    ClusterName, ClusterPath, FieldError, FieldPath, Json, ObjectKey, Scope,
    kinds::{self, ApiExport},
};
use insula_catalog::{ResourceRoute, Result, digest, exports::bind_grant, ids, object::add_finalizer};
use serde_json::json;
use std::ops::ControlFlow;

const FINALIZER: &str = "apis.kcp.io/apibinding-finalizer";
/// Maximum number of exports that a message names.
const EXPORTS_NAMED_MAX: usize = 5;
const EXPORT_LABEL: &str = "internal.apis.kcp.io/export";

pub(super) const RULES: Rules = Rules {
    write: review,
    ..Rules::new("apis.kcp.io", &["apibindings"])
};

fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    let errors = check(new, old);
    if !errors.is_empty() {
        return Err(review.forbid(new, spaced(&errors)));
    }
    let export = new["spec"]["reference"]["export"].clone();
    let (path, name) = (
        export["path"].as_str().unwrap_or_default(),
        export["name"].as_str().unwrap_or_default(),
    );
    let changed = old.is_none_or(|old| old["spec"]["reference"] != new["spec"]["reference"]);
    let cluster = review.place_of(path);
    // A reference without a path may precede its export.
    let bindable =
        |cluster: &ClusterName| (path.is_empty() || review.has_export(cluster, name)) && review.may_bind(cluster, name);
    if changed && !cluster.as_ref().is_some_and(bindable) {
        let verb = if review.operation == Operation::Create {
            "create"
        } else {
            "update"
        };
        let place = if path.is_empty() { review.cluster.as_str() } else { path };
        let missing = cluster.as_ref().filter(|cluster| !review.has_export(cluster, name));
        let why = match missing.and_then(|cluster| exports_seen(review, cluster)) {
            Some(seen) => format!("unable to {verb} APIBinding: no such export {place}:{name}; {seen}"),
            None => format!(
                "unable to {verb} APIBinding: no permission to bind to export {place}:{name}{}",
                way_to_the_right(review, cluster.as_ref(), (place, name))
            ),
        };
        return Err(review.forbid(new, why));
    }
    if let Some(cluster) = cluster.as_ref().filter(|_| changed) {
        warn(review, new, cluster, name);
    }
    match cluster {
        Some(cluster) => {
            if !new["metadata"]["labels"].is_object() {
                new["metadata"]["labels"] = json!({});
            }
            new["metadata"]["labels"][EXPORT_LABEL] = json!(digest::export_label(&cluster, name));
        }
        // The export's workspace is gone, so the label of the old binding is kept.
        None => {
            if let Some(label) = old.and_then(|old| old["metadata"]["labels"].get(EXPORT_LABEL)) {
                new["metadata"]["labels"][EXPORT_LABEL] = label.clone();
            }
        }
    }
    let had = |old: &Json| {
        old["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| list.iter().any(|f| f == FINALIZER))
    };
    if !review.is_master() && old.is_some_and(had) {
        add_finalizer(new, FINALIZER);
    }
    annotate_path(review, new);
    Ok(())
}

/// Returns the end of a refusal: the way to the right to bind the export. Administrators lack no
/// right: what they name does not exist.
fn way_to_the_right(review: &Review<'_>, cluster: Option<&ClusterName>, (place, name): (&str, &str)) -> String {
    let user = review.user.name_within(cluster).filter(|_| !review.privileged());
    let way = user.and_then(|user| bind_grant::way_to_the_right(place, name, &user));
    way.map(|way| format!("; {way}")).unwrap_or_default()
}

/// Returns a line about the exports of a cluster, for callers who may list them there.
fn exports_seen(review: &Review<'_>, cluster: &ClusterName) -> Option<String> {
    if !review.may_list(cluster, "apis.kcp.io", "apiexports") {
        return None;
    }
    let scope = Scope::cluster(ids::apiexports(), cluster.clone());
    let mut names = Vec::new();
    review.snapshot.for_each(&scope, |export| {
        names.push(export.key.name.to_string());
        match names.len() > EXPORTS_NAMED_MAX {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    Some(match names.len() {
        0 => "there is no export".to_owned(),
        count if count > EXPORTS_NAMED_MAX => {
            let names = names[..EXPORTS_NAMED_MAX].join(", ");
            format!("the exports there are {names} and others")
        }
        _ => format!("the exports there are {}", names.join(", ")),
    })
}

/// Warns of an export that is not there yet, and of an API that the workspace has bound already.
fn warn(review: &Review<'_>, new: &Json, cluster: &ClusterName, name: &str) {
    if !review.has_export(cluster, name) {
        if let Some(seen) = exports_seen(review, cluster) {
            review.warn(format!("no such export {name:?} in this workspace; {seen}"));
        }
        return;
    }
    if let Some((api, other)) = bound_already(review, new, cluster, name) {
        review.warn(format!(
            "this workspace has bound {api} already, by APIBinding {other:?}: the new binding serves nothing until \
             that one is deleted"
        ));
    }
}

/// Returns an API of an export that another binding of the workspace brings, and that binding.
fn bound_already(review: &Review<'_>, new: &Json, cluster: &ClusterName, name: &str) -> Option<(String, String)> {
    let own = new["metadata"]["name"].as_str().unwrap_or_default();
    let key = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), name);
    let export: ApiExport = kinds::read(&review.snapshot.get(&key)?.object.body_value());
    for offered in &export.spec.resources {
        let route = ids::resource_route(review.cluster, &offered.group, &offered.name);
        let route = review.snapshot.get(&route);
        let other = route.and_then(|route| route.object.parsed(ResourceRoute::read).binding.clone());
        if let Some(other) = other.filter(|other| **other != *own) {
            return Some((format!("{}.{}", offered.name, offered.group), other.to_string()));
        }
    }
    // The other binding may be as new as this one.
    let label = digest::export_label(cluster, name);
    let scope = Scope::cluster(ids::apibindings(), review.cluster.clone());
    let mut found = None;
    review.snapshot.for_each(&scope, |binding| {
        let same = binding
            .object
            .meta
            .labels
            .get(EXPORT_LABEL)
            .is_some_and(|known| *known == *label);
        match same && *binding.key.name != *own {
            true => {
                found = Some((format!("the export {name}"), binding.key.name.to_string()));
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        }
    });
    found
}

fn check(new: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = FieldPath::new("spec");
    let at = spec.child("reference").child("export");
    let export = &new["spec"]["reference"]["export"];
    if !export.is_object() {
        errors.push(FieldError::required(&at, ""));
    } else if export["name"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(&at.child("name"), ""));
    } else if let Some(path) = export["path"].as_str().filter(|path| !path.is_empty())
        && let Err(error) = ClusterPath::parse(path)
    {
        errors.push(FieldError::invalid(&at.child("path"), &json!(path), error.to_string()));
    }
    for (i, claim) in new["spec"]["permissionClaims"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        check_selector(
            &claim["selector"],
            &spec.child("permissionClaims").index(i).child("selector"),
            &mut errors,
        );
    }
    let phase = |object: &Json| object["status"]["phase"].as_str().unwrap_or_default().to_owned();
    if phase(new).is_empty() && old.is_some_and(|old| !phase(old).is_empty()) {
        let at = FieldPath::new("status").child("phase");
        errors.push(FieldError::invalid(&at, &json!(""), "cannot transition back to \"\""));
    }
    errors
}

fn check_selector(selector: &Json, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let all = selector["matchAll"] == true;
    let filled = |field: &str| match &selector[field] {
        Json::Object(map) => !map.is_empty(),
        Json::Array(list) => !list.is_empty(),
        _ => false,
    };
    let some: Vec<&str> = ["matchLabels", "matchExpressions"]
        .into_iter()
        .filter(|field| filled(field))
        .collect();
    match (all, some.as_slice()) {
        (false, []) => {
            let why = "either one of matchAll, matchLabels, or matchExpressions must be set";
            errors.push(FieldError::required(at, why));
        }
        (true, some) => errors.extend(some.iter().map(|field| {
            // kcp prints the fields in the order of its type.
            let printed = ["matchLabels", "matchExpressions", "matchAll"]
                .iter()
                .filter_map(|field| Some(format!("\"{field}\":{}", selector.get(field)?)))
                .collect::<Vec<_>>()
                .join(",");
            FieldError::invalid_text(
                &at.child(field),
                format!("{{{printed}}}"),
                format!("{field} cannot be used with matchAll"),
            )
        })),
        (false, _) => {}
    }
}
