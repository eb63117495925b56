//! Admission of APIBindings: the export reference is complete and resolves, and each permission
//! claim has a valid selector.

use crate::kinds::review::{Operation, Review, Rules, annotate_path, spaced};
use insula_api::{ClusterName, ClusterPath, FieldError, FieldPath, Json};
use insula_catalog::{Result, digest, object::add_finalizer};
use serde_json::json;

const FINALIZER: &str = "apis.kcp.io/apibinding-finalizer";
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
        let why = format!("unable to {verb} APIBinding: no permission to bind to export {place}:{name}");
        return Err(review.forbid(new, why));
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
