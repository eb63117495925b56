//! Workspaces: which type, who owns them, where they may stand.

use super::{Operation, Review, logicalcluster, types};
use crate::{Result, ids, locate::REQUIRED_GROUPS};
use insula_api::Json;
use insula_auth::UserInfo;
use serde_json::json;

pub(super) const OWNER: &str = "experimental.tenancy.kcp.io/owner";

pub(super) fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    match (review.operation, old) {
        (Operation::Create, _) => create(review, new),
        (_, Some(old)) => update(review, new, old),
        (_, None) => Ok(()),
    }
}

fn create(review: &Review<'_>, new: &mut Json) -> Result<()> {
    if !review.is_master() {
        for (field, name) in [("cluster", "Cluster"), ("URL", "URL")] {
            if !new["spec"][field].is_null() {
                let why = format!("spec.{name} can only be set by system privileged users");
                return Err(review.forbid(new, why));
            }
        }
        new["metadata"]["annotations"][OWNER] = json!(user_json(review.user).to_string());
    }
    required_groups(review, new)?;
    if new["spec"]["mount"].is_object() {
        return Err(review.forbid(
            new,
            "spec.mount is not supported: leave it out, workspaces have their content here",
        ));
    }
    let found = resolve(review, new)?;
    new["spec"]["type"] = found.reference.write();
    for (key, value) in &found.view.labels {
        if !new["metadata"]["labels"].is_object() {
            new["metadata"]["labels"] = json!({});
        }
        if new["metadata"]["labels"].get(key).is_none() {
            new["metadata"]["labels"][key] = json!(value);
        }
    }
    fits(review, new, types::closure(review.snapshot, found))
}

/// A child requires the groups that its parent does. Only the server itself, and a master, may say something else.
fn required_groups(review: &Review<'_>, new: &mut Json) -> Result<()> {
    let given = new["metadata"]["annotations"].get(REQUIRED_GROUPS).cloned();
    if review.is_master() && given.is_some() {
        return logicalcluster::check_required_groups(review, new, None);
    }
    let parent = review.snapshot.get(&ids::logical_cluster(review.cluster));
    let parent = parent.map(|parent| parent.object.body_value()["metadata"]["annotations"][REQUIRED_GROUPS].clone());
    match parent.filter(Json::is_string) {
        Some(groups) => new["metadata"]["annotations"][REQUIRED_GROUPS] = groups,
        None if given.is_some() => {
            new["metadata"]["annotations"]
                .as_object_mut()
                .map(|annotations| annotations.remove(REQUIRED_GROUPS));
        }
        None => {}
    }
    Ok(())
}

fn resolve(review: &Review<'_>, new: &Json) -> Result<types::Resolved> {
    let unresolved = |what: &str| review.forbid(new, format!("workspace type {what:?} cannot be resolved"));
    let parent = types::of_cluster(review.snapshot, review.cluster);
    let wanted = types::TypeReference::read(&new["spec"]["type"]);
    match wanted {
        Some(wanted) if wanted.path.is_empty() => {
            types::upwards(review.snapshot, review.cluster, &wanted.name).ok_or_else(|| unresolved(&wanted.name))
        }
        Some(wanted) => types::at(review.snapshot, &wanted).ok_or_else(|| unresolved(&wanted.to_string())),
        None => {
            let default = parent.as_ref().and_then(|parent| {
                types::closure(review.snapshot, parent.clone())
                    .iter()
                    .find_map(|t| t.view.default_child.clone())
            });
            let default = default.unwrap_or(types::TypeReference {
                path: "root".into(),
                name: "universal".into(),
            });
            types::at(review.snapshot, &default).ok_or_else(|| unresolved(&default.to_string()))
        }
    }
}

/// The limits of the type on its parents, and of the parent on its children; what a type extends counts as the type.
fn fits(review: &Review<'_>, new: &Json, child: Vec<types::Resolved>) -> Result<()> {
    let Some(parent) = types::of_cluster(review.snapshot, review.cluster) else {
        return Ok(());
    };
    let parent = types::closure(review.snapshot, parent);
    let sides = [
        (
            "parent",
            &child,
            &parent,
            (|t| &t.parents) as fn(&types::TypeView) -> &types::Limit,
        ),
        ("child", &parent, &child, |t| &t.children),
    ];
    for (word, limiting, limited, limit) in sides {
        for one in limiting {
            let name = &one.reference;
            match limit(&one.view) {
                types::Limit::Any => {}
                types::Limit::None => {
                    return Err(review.forbid(new, format!("workspace type {name} cannot have any {word}")));
                }
                types::Limit::Types(allowed) => {
                    if !limited.iter().any(|known| allowed.contains(&known.reference)) {
                        let why = format!(
                            "workspace type {name} only allows {} {word} workspaces, but {word} type {} only implements {}",
                            types::words(allowed),
                            limited[0].reference,
                            types::words(limited.iter().map(|known| &known.reference)),
                        );
                        return Err(review.forbid(new, why));
                    }
                }
            }
        }
    }
    Ok(())
}

fn update(review: &Review<'_>, new: &mut Json, old: &Json) -> Result<()> {
    if review.is_master() {
        return Ok(());
    }
    if let Some(owner) = old["metadata"]["annotations"].get(OWNER) {
        new["metadata"]["annotations"][OWNER] = owner.clone();
    }
    logicalcluster::keep(new, old, REQUIRED_GROUPS);
    for (field, name) in [("cluster", "Cluster"), ("URL", "URL")] {
        if new["spec"][field] != old["spec"][field] {
            let why = format!("spec.{name} can only be changed by system privileged users");
            return Err(review.forbid(new, why));
        }
    }
    Ok(())
}

/// Kubernetes' `UserInfo`.
fn user_json(user: &UserInfo) -> Json {
    let mut value = json!({"username": user.name});
    if !user.uid.is_empty() {
        value["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        value["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}
