//! Names that internal resources have in stores of format 2 and in backups of version 1, and the
//! translation of objects to the present names.

use crate::ids;
use insula_api::{Object, ObjectKey, ResourceId};
use serde_json::json;
use std::sync::Arc;

/// A resource that has another name now.
struct Renamed {
    /// Plural name and kind before.
    before: (&'static str, &'static str),
    /// Resource and kind now.
    now: (fn() -> ResourceId, &'static str),
}

const RENAMED: [Renamed; 2] = [
    Renamed {
        before: ("claims", "Claim"),
        now: (ids::resource_routes, ids::RESOURCE_ROUTE),
    },
    Renamed {
        before: ("registers", "Register"),
        now: (ids::serialization_points, ids::SERIALIZATION_POINT),
    },
];

/// Returns the resources that have other names now, by their names before.
pub fn resources() -> impl Iterator<Item = ResourceId> {
    let before = RENAMED.iter().map(|renamed| renamed.before.0);
    before.map(|plural| ResourceId::local(ids::INTERNAL, plural))
}

/// Returns the key under which an object is stored now. Cluster and name stay.
pub fn present_key(key: &ObjectKey) -> ObjectKey {
    match renamed(key) {
        Some(renamed) => ObjectKey {
            resource: renamed.now.0(),
            ..key.clone()
        },
        None => key.clone(),
    }
}

/// Returns the object in the form in which it is stored under its present key: it has another kind,
/// and keeps its UID and all else.
///
/// # Panics
/// Panics for an object that cannot have been stored, because it lacks apiVersion or metadata.
pub fn present_object(key: &ObjectKey, object: Arc<Object>) -> Arc<Object> {
    let Some(renamed) = renamed(key) else { return object };
    let mut value = object.body_value();
    if value["kind"] == renamed.before.1 {
        value["kind"] = json!(renamed.now.1);
    }
    let written = Object::new(&value, object.residual().map(Into::into));
    let written = written.expect("a stored object has apiVersion and metadata");
    Arc::new(written.written_under(object.schema()))
}

fn renamed(key: &ObjectKey) -> Option<&'static Renamed> {
    if *key.resource.group != *ids::INTERNAL {
        return None;
    }
    RENAMED
        .iter()
        .find(|renamed| *key.resource.resource == *renamed.before.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::ClusterName;

    #[test]
    fn an_object_keeps_everything_but_resource_and_kind() {
        let value = json!({
            "apiVersion": "internal.insula.io/v1", "kind": "Claim",
            "metadata": {"name": "widgets.example.io", "uid": "u"}, "spec": {"binding": "widgets"},
        });
        let object = Arc::new(Object::new(&value, None).expect("an object").written_under(7));
        let before = ResourceId::local("internal.insula.io", "claims");
        let key = ObjectKey::cluster_scoped(before, ClusterName::root(), "widgets.example.io");
        let now = present_object(&key, Arc::clone(&object));
        assert_eq!(
            present_key(&key),
            ids::resource_route(&ClusterName::root(), "example.io", "widgets")
        );
        let mut wanted = value;
        wanted["kind"] = json!("ResourceRoute");
        assert_eq!((now.body_value(), now.schema()), (wanted, 7));

        let foreign = ResourceId::local("example.io", "claims");
        let foreign = ObjectKey::cluster_scoped(foreign, ClusterName::root(), "a");
        assert_eq!(present_key(&foreign), foreign);
        assert!(Arc::ptr_eq(&present_object(&foreign, Arc::clone(&object)), &object));
    }
}
