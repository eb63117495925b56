//! ClusterRoles that every workspace has without storing them (`config/bootstrap/roles.yaml`), as
//! objects for reads: with the rules that count in the workspace. A stored ClusterRole of the same
//! name replaces one.

use insula_access::{
    Target,
    roles::{self, RolesAt},
    rules,
    view::ViewScope,
};
use insula_api::{Json, Object, ObjectKey, Revision, Timestamp};
use insula_catalog::{Error, digest, ids};
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// The first revision: older than every change that a watch reports.
const REVISION: Revision = Revision(1);

/// Returns the role of a name, unless the workspace stores one.
pub(crate) fn find(snapshot: &Snapshot, target: &Target, name: &str) -> Option<Entry> {
    let is_one = is_about_roles(target) && roles::built_in().any(|role| role == name);
    is_one.then(|| shown(snapshot, target.key(name))).flatten()
}

/// Returns all of them that the workspace does not replace, by name.
pub(crate) fn all(snapshot: &Snapshot, target: &Target) -> Vec<Entry> {
    let names = roles::built_in().filter(|_| is_about_roles(target));
    names.filter_map(|name| shown(snapshot, target.key(name))).collect()
}

/// Returns the refusal of a change of an object that is not stored: 403 for a built-in role, else
/// 404.
pub(crate) fn absent(target: &Target, name: &str) -> Error {
    match is_about_roles(target) && roles::built_in().any(|role| role == name) {
        true => {
            let why = "the role is built in and cannot be changed; a ClusterRole of this name that is created in \
                the workspace replaces it there";
            target.served.api.forbidden(name, why)
        }
        false => target.served.api.not_found(name),
    }
}

/// Returns true for an object that is a built-in role, and not stored.
pub(crate) fn is_one(entry: &Entry) -> bool {
    entry.revision == REVISION && entry.key.resource == ids::clusterroles()
}

fn is_about_roles(target: &Target) -> bool {
    target.served.resource_id() == ids::clusterroles() && matches!(target.view_scope, ViewScope::Within)
}

fn shown(snapshot: &Snapshot, key: ObjectKey) -> Option<Entry> {
    if snapshot.get(&key).is_some() {
        return None;
    }
    let rules = RolesAt::new(snapshot, &key.cluster).rules_of(None, &key.name)?;
    let rules: Vec<Json> = rules.iter().map(rules::json).collect();
    let logical = snapshot.get(&ids::logical_cluster(&key.cluster));
    let created = logical.and_then(|logical| logical.object.meta.creation_timestamp);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "annotations": {"kcp.io/cluster": key.cluster.as_str()},
            "creationTimestamp": created.unwrap_or(Timestamp(0)).to_string(),
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "name": &*key.name,
            "uid": digest::uid(&format!("{}/{}", key.cluster, key.name)).to_string(),
        },
        "rules": rules,
    });
    let object = Object::new(&role, None).ok()?;
    Some(Entry {
        key,
        object: Arc::new(object),
        revision: REVISION,
        created: REVISION,
    })
}
