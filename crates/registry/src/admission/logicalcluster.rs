//! LogicalClusters: made and ended by the server, finished by initializers.

use super::{Operation, Review};
use crate::{Result, locate::REQUIRED_GROUPS};
use insula_api::{FieldError, FieldPath, Json};
use insula_auth::RequiredGroups;

pub(super) fn review(review: &Review<'_>, new: Option<&mut Json>, old: Option<&Json>) -> Result<()> {
    if let (true, Some(new)) = (review.privileged(), &new) {
        check_required_groups(review, new, old)?;
    }
    if review.is_master() {
        return Ok(());
    }
    match (review.operation, new, old) {
        (Operation::Create, Some(new), _) => Err(review.forbid(new, "LogicalCluster cannot be created")),
        (Operation::Delete, _, Some(old)) if old["spec"]["directlyDeletable"] != true => {
            Err(review.forbid(old, "LogicalCluster cannot be deleted"))
        }
        (Operation::Update, Some(new), Some(old)) => update(review, new, old),
        _ => Ok(()),
    }
}

/// Leaves an annotation as it was.
pub(super) fn keep(new: &mut Json, old: &Json, key: &str) {
    let annotations = &mut new["metadata"]["annotations"];
    if let Some(kept) = old["metadata"]["annotations"].get(key) {
        annotations[key] = kept.clone();
    } else if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(key);
    }
}

/// A list of groups that nobody can be in would lock a workspace.
pub(super) fn check_required_groups(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let of = |object: &Json| {
        object["metadata"]["annotations"][REQUIRED_GROUPS]
            .as_str()
            .map(str::to_owned)
    };
    match of(new) {
        Some(text) if old.and_then(of).as_ref() != Some(&text) => match RequiredGroups::parse(&text) {
            Ok(_) => Ok(()),
            Err(why) => {
                let at = FieldPath::new("metadata").child("annotations").key(REQUIRED_GROUPS);
                Err(review.forbid(
                    new,
                    FieldError::invalid(&at, &Json::from(text), why.to_string()).to_string(),
                ))
            }
        },
        _ => Ok(()),
    }
}

fn update(review: &Review<'_>, new: &mut Json, old: &Json) -> Result<()> {
    for key in ["kcp.io/path", super::workspace::OWNER] {
        if let Some(kept) = old["metadata"]["annotations"].get(key) {
            new["metadata"]["annotations"][key] = kept.clone();
        }
    }
    if !review.privileged() {
        keep(new, old, REQUIRED_GROUPS);
    }
    // Deletion of the content cannot be skipped.
    for finalizer in old["metadata"]["finalizers"].as_array().into_iter().flatten() {
        if finalizer == "core.kcp.io/logicalcluster-deletion" {
            crate::strategies::add_finalizer(new, "core.kcp.io/logicalcluster-deletion");
        }
    }
    let spec = FieldPath::new("spec");
    for field in ["initializers", "createdBy", "owner", "directlyDeletable", "terminators"] {
        if new["spec"].get(field) != old["spec"].get(field) {
            let error = match field {
                "initializers" | "terminators" => return Err(review.forbid(new, format!("spec.{field} is immutable"))),
                _ => FieldError::invalid(&spec.child(field), &new["spec"][field], "field is immutable"),
            };
            return Err(review.forbid(new, error.to_string()));
        }
    }
    let phase = |object: &Json| object["status"]["phase"].as_str().unwrap_or_default().to_owned();
    let initializers = |object: &Json| object["status"]["initializers"].as_array().cloned().unwrap_or_default();
    let (was, is) = (initializers(old), initializers(new));
    if is.iter().any(|initializer| !was.contains(initializer)) {
        let why = match phase(old).as_str() {
            "Initializing" => "status.initializers must not grow",
            _ => "status.initializers is immutable after initialization",
        };
        return Err(review.forbid(new, why));
    }
    let (from, to) = (phase(old), phase(new));
    if from != to {
        if !is.is_empty() && from == "Initializing" {
            return Err(review.forbid(new, "status.initializers is not empty"));
        }
        let ordinal = |phase: &str| {
            ["", "Scheduling", "Initializing", "Ready"]
                .iter()
                .position(|p| *p == phase)
        };
        let forward = matches!((ordinal(&from), ordinal(&to)), (Some(from), Some(to)) if from < to);
        if !forward {
            return Err(review.forbid(new, format!("cannot transition from {from:?} to {to:?}")));
        }
    }
    Ok(())
}
