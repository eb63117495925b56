//! Admission of LogicalClusters. The server creates and deletes them; initializers and terminators
//! complete their phases.

use crate::kinds::review::{Operation, Review, Rules};
use insula_access::lifecycle::{INITIALIZER_GROUP, TERMINATOR_GROUP};
use insula_api::{
    ClusterName, FieldError, FieldPath, Json,
    names::annotations::{FROZEN, FROZEN_ABOVE, LIMITS, REQUIRED_GROUPS, UNBIND_GRACE_SECONDS},
};
use insula_auth::RequiredGroups;
use insula_catalog::{Error, Named, Result, exports::unbind};

/// Annotation with the owner of a workspace, on the Workspace and its LogicalCluster.
pub(super) const OWNER: &str = "experimental.tenancy.kcp.io/owner";

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, Some(new), old),
    deletion: |review, old| match *review.cluster == ClusterName::root() {
        true => Err(review.forbid(old, "LogicalCluster cannot be deleted")),
        false => self::review(review, None, Some(old)),
    },
    ..Rules::new("core.kcp.io", &["logicalclusters"])
};

fn review(review: &Review<'_>, new: Option<&mut Json>, old: Option<&Json>) -> Result<()> {
    if let (true, Some(new)) = (review.privileged(), &new) {
        check_required_groups(review, new, old)?;
    }
    if let Some(new) = &new {
        check_unbind_grace(review, new, old)?;
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

/// Restores an annotation to its old value.
pub(super) fn keep(new: &mut Json, old: &Json, key: &str) {
    let annotations = &mut new["metadata"]["annotations"];
    if let Some(kept) = old["metadata"]["annotations"].get(key) {
        annotations[key] = kept.clone();
    } else if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(key);
    }
}

/// Checks that the required groups parse: an invalid list would lock out every user.
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

/// Checks a new grace period of deleted APIBindings: one that is not read would be none.
fn check_unbind_grace(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let value = &new["metadata"]["annotations"][UNBIND_GRACE_SECONDS];
    let is_kept = old.is_some_and(|old| old["metadata"]["annotations"][UNBIND_GRACE_SECONDS] == *value);
    match value.as_str() {
        Some(text) if !is_kept && unbind::grace_seconds(text).is_none() => {
            let at = FieldPath::new("metadata")
                .child("annotations")
                .key(UNBIND_GRACE_SECONDS);
            let problem = FieldError::invalid(&at, value, unbind::grace_seconds_problem());
            Err(review.forbid(new, problem.to_string()))
        }
        _ => Ok(()),
    }
}

/// Labels and annotations that only platform administrators may change, so that users cannot lift
/// the limits of their own workspace.
const OPERATORS: [&str; 6] = [
    "core.kcp.io/inactive",
    "core.kcp.io/max-total-objects",
    "tenancy.kcp.io/phase",
    FROZEN,
    FROZEN_ABOVE,
    LIMITS,
];

fn update(review: &Review<'_>, new: &mut Json, old: &Json) -> Result<()> {
    for key in ["kcp.io/path", OWNER] {
        if let Some(kept) = old["metadata"]["annotations"].get(key) {
            new["metadata"]["annotations"][key] = kept.clone();
        }
    }
    if !review.privileged() {
        keep(new, old, REQUIRED_GROUPS);
        operators_only(review, new, old)?;
    }
    // Clients cannot skip the deletion of the content.
    for finalizer in old["metadata"]["finalizers"].as_array().into_iter().flatten() {
        if let Some(own @ ("core.kcp.io/logicalcluster-deletion" | "kcp.io/has-terminators")) = finalizer.as_str() {
            insula_catalog::object::add_finalizer(new, own);
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
    lists(review, new, old)?;
    let (from, to) = (phase(old), phase(new));
    if from != to {
        if !list(new, "initializers").is_empty() && from == "Initializing" {
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

fn phase(object: &Json) -> String {
    object["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

fn list(object: &Json, field: &str) -> Vec<Json> {
    object["status"][field].as_array().cloned().unwrap_or_default()
}

fn operators_only(review: &Review<'_>, new: &mut Json, old: &Json) -> Result<()> {
    for (map, key) in ["labels", "annotations"]
        .into_iter()
        .flat_map(|map| OPERATORS.map(|key| (map, key)))
    {
        let at = |object: &Json| object["metadata"][map].get(key).cloned();
        match (at(old), at(new)) {
            (was, is) if was == is => {}
            // Omitted keys are kept: a client may PUT a manifest without them.
            (Some(was), None) => new["metadata"][map][key] = was,
            _ => {
                let why =
                    format!("metadata.{map}[{key}] can only be changed by system privileged users: leave it as it is");
                return Err(review.forbid(new, why));
            }
        }
    }
    Ok(())
}

/// Checks changes of `status.initializers` and `status.terminators`. Entries may only be removed,
/// each by its own controller or by a platform administrator. A controller may change nothing else.
fn lists(review: &Review<'_>, new: &Json, old: &Json) -> Result<()> {
    for (field, word, group) in [
        ("initializers", "initializer", INITIALIZER_GROUP),
        ("terminators", "terminator", TERMINATOR_GROUP),
    ] {
        let (was, is) = (list(old, field), list(new, field));
        let own = review.user.groups.iter().find_map(|name| name.strip_prefix(group));
        let grows = is.iter().any(|entry| !was.contains(entry));
        if let (Some(own), true) = (own, grows) {
            return Err(only_removing(field, word, own, &is));
        }
        if grows {
            let why = match (field, phase(old).as_str()) {
                ("initializers", "Initializing") | ("terminators", _) => format!("status.{field} must not grow"),
                _ => format!("status.{field} is immutable after initialization"),
            };
            return Err(review.forbid(new, why));
        }
        let gone: Vec<&Json> = was.iter().filter(|entry| !is.contains(entry)).collect();
        match own {
            Some(own) if gone != [own] => return Err(only_removing(field, word, own, &is)),
            Some(own) => {
                let mut rest = (old["status"].clone(), new["status"].clone());
                for side in [&mut rest.0, &mut rest.1] {
                    side.as_object_mut().map(|status| status.remove(field));
                }
                if rest.0 != rest.1 || old["spec"] != new["spec"] {
                    let why = format!("only removing the {own:?} {word} is supported: leave everything else as it is");
                    return Err(review.forbid(new, why));
                }
            }
            None if !gone.is_empty() && !review.privileged() => {
                let why = format!("status.{field} is for those who stand for its entries: use their virtual workspace");
                return Err(review.forbid(new, why));
            }
            None => {}
        }
    }
    Ok(())
}

fn only_removing(field: &str, word: &str, own: &str, is: &[Json]) -> Error {
    let at = FieldPath::new("status").child(field);
    let why = format!("only removing the {own:?} {word} is supported");
    Error::Invalid {
        subject: Named {
            group: "tenancy.kcp.io".into(),
            resource: "Workspace".into(),
        },
        name: "cluster".to_owned(),
        errors: vec![FieldError::invalid(&at, &Json::from(is), why)],
    }
}
