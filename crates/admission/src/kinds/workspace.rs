//! Admission of Workspaces: their type, owner, required groups and permitted parent.

use crate::kinds::{
    logicalcluster::{self, OWNER},
    review::{Operation, Review, Rules},
};
use insula_access::workspace_types;
use insula_api::{ClusterName, ClusterPath, Json, names::annotations::REQUIRED_GROUPS};
use insula_auth::UserInfo;
use insula_catalog::{Result, ids, locate};
use serde_json::json;

pub(super) const RULES: Rules = Rules {
    write: review,
    ..Rules::new("tenancy.kcp.io", &["workspaces"])
};

fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    match (review.operation, old) {
        (Operation::Create, _) => create(review, new),
        (_, Some(old)) => update(review, new, old),
        (_, None) => Ok(()),
    }
}

/// Field of a Workspace that names its type.
const TYPE: &str = "spec.type";

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
        return mount(review, new);
    }
    let found = resolve(review, new)?;
    // A path that was sent stays as it was, or the same file could not be applied twice.
    if new["spec"]["type"]["path"].as_str().is_none_or(str::is_empty) {
        new["spec"]["type"] = found.reference.write();
    }
    for (key, value) in &found.view.labels {
        if !new["metadata"]["labels"].is_object() {
            new["metadata"]["labels"] = json!({});
        }
        if new["metadata"]["labels"].get(key).is_none() {
            new["metadata"]["labels"][key] = json!(value);
        }
    }
    if let Some(refused) = first_unusable(review, found.clone()) {
        return Err(review.forbid(new, unusable(&refused)));
    }
    let child = workspace_types::lineage(review.snapshot, found).map_err(|why| review.forbid(new, why))?;
    fits(review, new, &child)
}

/// Checks a mount. Its content is elsewhere, so it has no type.
fn mount(review: &Review<'_>, new: &Json) -> Result<()> {
    if !new["spec"]["type"].is_null() && !review.privileged() {
        return Err(review.forbid(
            new,
            "spec.mount and spec.type cannot be set together: a mount has its content elsewhere",
        ));
    }
    for field in ["apiVersion", "kind", "name"] {
        if new["spec"]["mount"]["ref"][field]
            .as_str()
            .unwrap_or_default()
            .is_empty()
        {
            return Err(review.forbid(new, format!("spec.mount.ref.{field} must be set")));
        }
    }
    Ok(())
}

fn may_use(review: &Review<'_>, cluster: &ClusterName, name: &str) -> bool {
    review.may("use", cluster, "tenancy.kcp.io", "workspacetypes", name)
}

/// Returns the first type that the caller may not use among a type and all types it extends. An
/// extending type is checked before the types it extends, so a caller without permission on a type
/// cannot learn what it extends or whether those types exist.
fn first_unusable(review: &Review<'_>, start: workspace_types::Resolved) -> Option<workspace_types::TypeReference> {
    let mut found = vec![start];
    let mut next = 0;
    while let Some(here) = found.get(next) {
        if !may_use(review, &here.cluster, &here.reference.name) {
            return Some(here.reference.clone());
        }
        for wanted in here.view.clone().extends.iter() {
            match workspace_types::resolve(review.snapshot, wanted) {
                Some(base) if found.iter().any(|known| known.reference == base.reference) => {}
                // `lineage` refuses a type that extends too many others.
                Some(base) if found.len() < workspace_types::EXTENDS_MAX => found.push(base),
                Some(_) => return None,
                None if may_know(review, wanted) => {}
                None => return Some(wanted.clone()),
            }
        }
        next += 1;
    }
    None
}

fn unusable(reference: &workspace_types::TypeReference) -> String {
    format!("unable to use workspace type {reference}: missing verb='use' permission on workspacetype")
}

/// Sets the required groups of a workspace to those of its parent. Only the server itself and
/// members of `system:masters` may set others.
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

fn resolve(review: &Review<'_>, new: &Json) -> Result<workspace_types::Resolved> {
    let unresolved = |what: &str| {
        let why = format!("workspace type {what:?} cannot be resolved");
        review.wrong_value(new, TYPE, why)
    };
    let wanted = match workspace_types::TypeReference::read(&new["spec"]["type"]) {
        Some(wanted) if wanted.path.is_empty() => {
            let found = workspace_types::upwards(review.snapshot, review.cluster, &wanted.name);
            return found.ok_or_else(|| unresolved(&wanted.name));
        }
        Some(wanted) => wanted,
        None => default_child(review),
    };
    if let Some(found) = workspace_types::resolve(review.snapshot, &wanted) {
        return Ok(found);
    }
    match may_know(review, &wanted) {
        true => Err(unresolved(&wanted.to_string())),
        false => Err(review.forbid(new, unusable(&wanted))),
    }
}

/// Returns true if the caller may learn that a type does not exist: they could use it if it
/// existed.
fn may_know(review: &Review<'_>, wanted: &workspace_types::TypeReference) -> bool {
    let path = ClusterPath::parse(&wanted.path).ok();
    let place = path.and_then(|path| locate::locate(review.snapshot, &path).ok());
    review.privileged() || place.is_some_and(|place| may_use(review, &place, &wanted.name))
}

/// Returns the default type of a child workspace.
fn default_child(review: &Review<'_>) -> workspace_types::TypeReference {
    let parent = workspace_types::of_cluster(review.snapshot, review.cluster);
    let said = parent.and_then(|parent| parent.view.default_child.clone());
    said.unwrap_or(workspace_types::TypeReference {
        path: "root".into(),
        name: "universal".into(),
    })
}

/// Checks the limits of the type on its parents and of the parent's type on its children. A limit
/// that permits a type also permits the types that extend it.
fn fits(review: &Review<'_>, new: &Json, child: &[workspace_types::Resolved]) -> Result<()> {
    let Some(parent) = workspace_types::of_cluster(review.snapshot, review.cluster) else {
        return Ok(());
    };
    let parent = workspace_types::lineage(review.snapshot, parent).map_err(|why| review.forbid(new, why))?;
    let refusal =
        limited("parent", child, &parent, |t| &t.parents).or_else(|| limited("child", &parent, child, |t| &t.children));
    refusal.map_or(Ok(()), |why| Err(review.wrong_value(new, TYPE, why)))
}

/// Returns the reason why the limits of one side exclude the other side as its parent or child. The
/// last type of each list is the workspace's own.
fn limited(
    word: &str,
    limiting: &[workspace_types::Resolved],
    other: &[workspace_types::Resolved],
    limit: fn(&workspace_types::TypeView) -> &workspace_types::Limit,
) -> Option<String> {
    let (own, others) = (&limiting.last()?.reference, &other.last()?.reference);
    limiting.iter().find_map(|one| match limit(&one.view) {
        workspace_types::Limit::Any => None,
        workspace_types::Limit::None => Some(format!("workspace type {own} cannot have any {word}")),
        workspace_types::Limit::Types(allowed) => {
            if other.iter().any(|known| allowed.contains(&known.reference)) {
                return None;
            }
            let extending = match one.reference == *own {
                true => String::new(),
                false => format!(" extends {}, which", one.reference),
            };
            Some(format!(
                "workspace type {own}{extending} only allows {} {word} workspaces, but {word} type {others} only implements {}",
                workspace_types::list_names(allowed),
                workspace_types::list_names(other.iter().map(|known| &known.reference)),
            ))
        }
    })
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

/// Returns the user as a Kubernetes `UserInfo`.
pub fn user_json(user: &UserInfo) -> Json {
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
