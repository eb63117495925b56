//! The record of a migration: a registration and its objects become objects of a
//! CustomResourceDefinition, of a registration of the second generation, or of a bound API.
//!
//! The record is the only state of a migration. Each step is one transaction that also writes the
//! record, so a migration that stops at any point continues there.

use super::DefinitionName;
use crate::ids;
use insula_api::{ClusterName, Json, Object, ObjectKey, ResourceId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// A migration of one registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// The registration as it is stored.
    pub registration: Json,
    /// Replacement of the registration, as it will be stored. An APIBinding exists already.
    pub replacement: Json,
    /// Group of the objects.
    pub group: String,
    /// Plural of the objects.
    pub plural: String,
    /// Kind of the objects.
    pub kind: String,
    /// `apiVersion` of stored objects, before and after.
    pub stored: (String, String),
    /// The new `apiVersion` of each former one.
    pub api_versions: BTreeMap<String, String>,
    /// Identity of the export that serves the objects afterwards; empty unless bound.
    #[serde(default)]
    pub identity: String,
    /// The step to take next.
    pub step: Step,
    /// True once the migration goes back.
    #[serde(default)]
    pub undo: bool,
    /// The last object that the step has examined.
    #[serde(default)]
    pub position: Option<Position>,
    /// The objects before the migration.
    #[serde(default)]
    pub before: Digest,
    /// The objects that the step has examined.
    #[serde(default)]
    pub seen: Digest,
    /// The reason for which the migration cannot go on; empty while it can.
    #[serde(default)]
    pub message: String,
}

/// The steps of a migration, in their order. Writers are frozen from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Step {
    /// Counts and hashes the objects.
    Export,
    /// Replaces the registration and leaves its objects.
    Replace,
    /// Waits until the replacement serves the objects.
    Serve,
    /// Writes the objects under their new definition.
    Recreate,
    /// Renames the owners in the dependents of the objects.
    Adopt,
    /// Counts and hashes the objects again.
    Verify,
    /// Lets clients write again.
    Thaw,
}

/// The place of an object in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Resource of the object, in the order of [`ResourceId`].
    pub resource: (String, String, String),
    /// Namespace and name.
    pub object: (String, String),
}

/// Number and hash of objects, in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Number of objects.
    pub objects: u64,
    /// Sum of the objects' hashes (SHA-256) as four 64-bit numbers.
    pub sum: [u64; 4],
}

impl Digest {
    /// Adds an object. What a migration changes does not count: versions of the API.
    pub fn add(&mut self, object: &Object) {
        let mut value = object.body_value();
        let api_version = |holder: &mut Json| drop(holder.as_object_mut().map(|fields| fields.remove("apiVersion")));
        api_version(&mut value);
        for list in ["managedFields", "ownerReferences"] {
            let items = value["metadata"].get_mut(list).and_then(Json::as_array_mut);
            items.into_iter().flatten().for_each(api_version);
        }
        let hash = Sha256::digest(value.to_string());
        for (sum, part) in self.sum.iter_mut().zip(hash.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_be_bytes(*part));
        }
        self.objects += 1;
    }

    /// Returns the sum in hexadecimal digits.
    pub fn hex(&self) -> String {
        self.sum.iter().map(|part| format!("{part:016x}")).collect()
    }
}

impl Position {
    /// Returns the position of an object.
    pub fn for_key(key: &ObjectKey) -> Self {
        let ResourceId {
            group,
            resource,
            identity,
        } = &key.resource;
        Position {
            resource: (group.to_string(), resource.to_string(), identity.to_string()),
            object: (key.namespace.to_string(), key.name.to_string()),
        }
    }

    /// Returns the key of the object.
    pub fn key(&self, cluster: &ClusterName) -> ObjectKey {
        let (group, resource, identity) = &self.resource;
        let (namespace, name) = &self.object;
        ObjectKey {
            resource: ResourceId {
                group: group.as_str().into(),
                resource: resource.as_str().into(),
                identity: identity.as_str().into(),
            },
            cluster: cluster.clone(),
            namespace: namespace.as_str().into(),
            name: name.as_str().into(),
        }
    }
}

impl Migration {
    /// Returns the key of the record of a resource.
    pub fn key(cluster: &ClusterName, group: &str, plural: &str) -> ObjectKey {
        let name = format!("{plural}.{group}");
        ObjectKey::cluster_scoped(ids::registration_migrations(), cluster.clone(), &name)
    }

    /// Reads a record; `None` for one that another release wrote in another form.
    pub fn read(object: &Object) -> Option<Self> {
        serde_json::from_value(object.body_value()["spec"].take()).ok()
    }

    /// Returns the record as an object.
    pub fn write(&self) -> Json {
        json!({
            "apiVersion": ids::INTERNAL_V1, "kind": "RegistrationMigration",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)}, "spec": self,
        })
    }

    /// Returns true if the migration replaces this definition, or replaces it by this one.
    pub fn concerns(&self, definition: &DefinitionName) -> bool {
        let is = |object: &Json| {
            let group = insula_api::names::group_of(object["apiVersion"].as_str().unwrap_or_default());
            *definition.kind.resource().group == *group && object["metadata"]["name"] == *definition.name
        };
        is(&self.registration) || is(&self.replacement)
    }

    /// Returns true if the objects get another key.
    pub fn moves(&self) -> bool {
        !self.identity.is_empty()
    }

    /// Returns the resource of the objects before and after the migration.
    pub fn resources(&self) -> (ResourceId, ResourceId) {
        let local = ResourceId::local(&self.group, &self.plural);
        let bound = ResourceId {
            identity: self.identity.as_str().into(),
            ..local.clone()
        };
        (local, bound)
    }

    /// Begins the next step.
    pub fn next(&mut self, step: Step) {
        self.step = step;
        self.position = None;
        self.seen = Digest::default();
        self.message.clear();
    }

    /// Returns an object with the `apiVersion` of its new definition, or of its former one while
    /// the migration goes back. Owners of its fields keep theirs under the new name.
    pub fn renamed(&self, mut object: Json) -> Json {
        let (former, new) = &self.stored;
        object["apiVersion"] = json!(if self.undo { former } else { new });
        let managers = object["metadata"].get_mut("managedFields").and_then(Json::as_array_mut);
        for manager in managers.into_iter().flatten() {
            self.rename(manager);
        }
        object
    }

    /// Renames the owners of a dependent that are objects of the migration. False if there are
    /// none.
    pub fn adopt(&self, dependent: &mut Json) -> bool {
        let owners = dependent["metadata"]
            .get_mut("ownerReferences")
            .and_then(Json::as_array_mut);
        let own = owners.into_iter().flatten().filter(|owner| owner["kind"] == *self.kind);
        own.filter_map(|owner| self.rename(owner).then_some(())).count() > 0
    }

    fn rename(&self, holder: &mut Json) -> bool {
        let given = holder["apiVersion"].as_str().unwrap_or_default().to_owned();
        let wanted = match self.undo {
            false => self.api_versions.get(&given),
            true => self.former(&given),
        };
        match wanted {
            Some(wanted) if *wanted != given => {
                holder["apiVersion"] = json!(wanted);
                true
            }
            _ => false,
        }
    }

    /// Returns the former name of a version: that of the storage version, if it is one of several.
    fn former(&self, api_version: &str) -> Option<&String> {
        if *api_version == *self.stored.1 {
            return Some(&self.stored.0);
        }
        let mut names = self.api_versions.iter();
        names.find(|(_, new)| **new == *api_version).map(|(former, _)| former)
    }

    /// Returns true if versions get other names.
    pub fn renames(&self) -> bool {
        self.api_versions.iter().any(|(former, new)| former != new)
    }
}
