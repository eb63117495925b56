//! ClusterRoles and ClusterRoleBindings that every workspace has without storing them
//! (`config/bootstrap/roles.yaml`), as objects for reads: a role with the rules that count in the
//! workspace. A stored ClusterRole of the same name replaces one; a stored ClusterRoleBinding is
//! shown in the place of one, whose subjects keep their rights.

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

/// Kinds with built-in objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Role,
    Binding,
}

impl Kind {
    /// Returns the kind of a target that has built-in objects.
    fn of_target(target: &Target) -> Option<Kind> {
        let id = target.served.resource_id();
        let kind = if id == ids::clusterroles() {
            Kind::Role
        } else if id == ids::clusterrolebindings() {
            Kind::Binding
        } else {
            return None;
        };
        matches!(target.view_scope, ViewScope::Within).then_some(kind)
    }

    /// Returns the names of its built-in objects, sorted.
    fn names(self) -> Vec<&'static str> {
        match self {
            Kind::Role => roles::built_in().collect(),
            Kind::Binding => roles::built_in_bindings().collect(),
        }
    }

    fn has(self, name: &str) -> bool {
        self.names().contains(&name)
    }
}

/// Returns the built-in object of a name, unless the workspace stores one.
pub(crate) fn find(snapshot: &Snapshot, target: &Target, name: &str) -> Option<Entry> {
    let kind = Kind::of_target(target).filter(|kind| kind.has(name))?;
    shown(snapshot, kind, target.key(name))
}

/// Returns all of them that the workspace does not store, by name.
pub(crate) fn all(snapshot: &Snapshot, target: &Target) -> Vec<Entry> {
    let Some(kind) = Kind::of_target(target) else {
        return Vec::new();
    };
    let names = kind.names().into_iter();
    names
        .filter_map(|name| shown(snapshot, kind, target.key(name)))
        .collect()
}

/// Returns the refusal of a change of an object that is not stored: 403 for a built-in one, else
/// 404.
pub(crate) fn absent(target: &Target, name: &str) -> Error {
    let why = match Kind::of_target(target).filter(|kind| kind.has(name)) {
        Some(Kind::Role) => {
            "the role is built in and cannot be changed; a ClusterRole of this name that is created in the workspace \
             replaces it there"
        }
        Some(Kind::Binding) => {
            "the binding is built in and cannot be changed; its subjects keep their rights whatever the workspace \
             stores"
        }
        None => return target.served.api.not_found(name),
    };
    target.served.api.forbidden(name, why)
}

/// Returns true for a built-in object, which is not stored.
pub(crate) fn is_one(entry: &Entry) -> bool {
    let resource = &entry.key.resource;
    entry.revision == REVISION && (*resource == ids::clusterroles() || *resource == ids::clusterrolebindings())
}

fn shown(snapshot: &Snapshot, kind: Kind, key: ObjectKey) -> Option<Entry> {
    if snapshot.get(&key).is_some() {
        return None;
    }
    let logical = snapshot.get(&ids::logical_cluster(&key.cluster));
    let created = logical.and_then(|logical| logical.object.meta.creation_timestamp);
    // Uids of roles are of cluster and name alone: those that clients know stay.
    let (name, uid_of) = match kind {
        Kind::Role => ("ClusterRole", format!("{}/{}", key.cluster, key.name)),
        Kind::Binding => (
            "ClusterRoleBinding",
            format!("{}/clusterrolebindings/{}", key.cluster, key.name),
        ),
    };
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": name,
        "metadata": {
            "annotations": {"kcp.io/cluster": key.cluster.as_str()},
            "creationTimestamp": created.unwrap_or(Timestamp(0)).to_string(),
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "name": &*key.name,
            "uid": digest::uid(&uid_of).to_string(),
        },
    });
    match kind {
        Kind::Role => {
            let rules = RolesAt::new(snapshot, &key.cluster).rules_of(None, &key.name)?;
            object["rules"] = rules.iter().map(rules::json).collect::<Vec<Json>>().into();
        }
        Kind::Binding => {
            let binding = roles::built_in_binding(&key.name)?;
            object["roleRef"] = binding["roleRef"].clone();
            object["subjects"] = binding["subjects"].clone();
        }
    }
    let object = Object::new(&object, None).ok()?;
    Some(Entry {
        key,
        object: Arc::new(object),
        revision: REVISION,
        created: REVISION,
    })
}
