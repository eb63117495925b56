//! ThirdPartyResources, the registrations of custom resources before CustomResourceDefinitions, as
//! definitions: both generations are served by the same compiler, verbs and watches as a
//! CustomResourceDefinition.
//!
//! The first generation (`extensions/v1beta1`, proposal "ThirdPartyResource", Kubernetes 1.2 to
//! 1.7) derives every name from its own: `cron-tab.example.com` defines the kind `CronTab`, the
//! resource `crontabs` and the group `example.com`. The second (`apiextension.k8s.io/v1beta1`,
//! proposal "Moving ThirdPartyResources to beta") names them in its `spec`.

mod migration;

pub use migration::{Digest, Migration, Position, Step};

use crate::ids;
use insula_api::{ClusterName, Json, ObjectKey, ResourceId, Scope, names::groups};
use insula_store::Snapshot;
use serde_json::json;
use std::sync::Arc;

/// Kind of both generations.
pub const KIND: &str = "ThirdPartyResource";

/// Returns the kind that the first part of a registration's name stands for: `cron-tab` becomes
/// `CronTab`.
///
/// # Errors
/// Returns why no kind has this name: the conversion back gives another one.
pub fn kind_of(name: &str) -> Result<String, String> {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    let kind: String = words.collect();
    match name_of(&kind) {
        back if back == name && kind.starts_with(|letter: char| letter.is_ascii_uppercase()) => Ok(kind),
        back => Err(format!(
            "{name:?} stands for the kind {kind:?}, whose name is {back:?}: each part between hyphens must begin with \
             a letter"
        )),
    }
}

/// Returns the first part of the name of a kind's registration: `CronTab` becomes `cron-tab`, by
/// the pseudo-code of the proposal, which assumes that the first letter is a capital.
pub fn name_of(kind: &str) -> String {
    let mut name = String::new();
    for (i, letter) in kind.chars().enumerate() {
        if i > 0 && letter.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Returns the name of the registration of a kind: `cron-tab.example.com`. A look-up by kind is a
/// GET of this name.
pub fn registration_of(kind: &str, group: &str) -> String {
    format!("{}.{group}", name_of(kind))
}

/// Returns the plural of a kind, as Kubernetes guessed it for registrations of the first generation
/// (`meta.KindToResource`).
pub fn plural_of(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

/// Returns the versions of a registration of the first generation: `v1`, `stable/v1`. A version
/// with an `apiGroup` has it in front: `{name: v1, apiGroup: stable}` is `stable/v1`.
pub fn versions_of(registration: &Json) -> Vec<String> {
    let versions = registration["versions"].as_array().into_iter().flatten();
    versions
        .filter_map(|version| {
            let name = version["name"].as_str()?;
            Some(match version["apiGroup"].as_str().filter(|group| !group.is_empty()) {
                Some(group) => format!("{group}/{name}"),
                None => name.to_owned(),
            })
        })
        .collect()
}

/// Returns the `spec` of the CustomResourceDefinition that serves what a registration wants:
/// objects of any JSON, in all versions the same. `None` for a registration that does not name a
/// kind.
pub fn wanted(registration: &Json) -> Option<Json> {
    let (group, names, scope, versions) = match is_first_generation(registration) {
        true => {
            let (name, group) = registration["metadata"]["name"].as_str()?.split_once('.')?;
            let kind = kind_of(name).ok()?;
            let names = json!({
                "plural": plural_of(&kind), "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                "kind": kind,
            });
            (json!(group), names, json!("Namespaced"), versions_of(registration))
        }
        false => {
            let spec = &registration["spec"];
            let version = spec["version"].as_str()?.to_owned();
            (
                spec["group"].clone(),
                spec["names"].clone(),
                spec["scope"].clone(),
                vec![version],
            )
        }
    };
    let versions: Vec<Json> = versions
        .into_iter()
        .enumerate()
        .map(|(i, name)| {
            json!({"name": name, "served": true, "storage": i == 0, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}})
        })
        .collect();
    (!versions.is_empty()).then(|| json!({"group": group, "names": names, "scope": scope, "versions": versions}))
}

/// Returns true for registrations of the first generation.
pub fn is_first_generation(registration: &Json) -> bool {
    let api_version = registration["apiVersion"].as_str().unwrap_or_default();
    api_version
        .split_once('/')
        .is_some_and(|(group, _)| group == groups::EXTENSIONS)
}

/// Returns true if names suffice to serve objects: short names and the singular may be missing.
pub fn can_serve(accepted_names: &Json) -> bool {
    let has = |field: &str| accepted_names[field].as_str().is_some_and(|name| !name.is_empty());
    ["plural", "kind", "listKind"].into_iter().all(has)
}

/// Returns true for a definition that a migration replaces, or replaces another by.
pub fn is_migrating(snapshot: &Snapshot, cluster: &ClusterName, resource: &ResourceId, name: &str) -> bool {
    let mut kinds = DefinitionKind::ALL.into_iter();
    let Some(kind) = kinds.find(|kind| kind.resource() == *resource) else {
        return false;
    };
    let definition = DefinitionName {
        kind,
        name: name.into(),
    };
    let records = snapshot.range(
        &Scope::cluster(ids::registration_migrations(), cluster.clone()),
        None,
        usize::MAX,
    );
    let mut records = records.iter().filter_map(|record| Migration::read(&record.object));
    records.any(|migration| migration.concerns(&definition))
}

/// Returns true for a version that only a path below `/thirdparty` can name, because it has a
/// slash.
pub fn is_nested(version: &str) -> bool {
    version.contains('/')
}

/// The object that defines a resource in its own cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionName {
    /// Kind of the object.
    pub kind: DefinitionKind,
    /// Name of the object.
    pub name: Arc<str>,
}

/// Kind of an object that defines a resource in its own cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionKind {
    /// CustomResourceDefinition.
    CustomResource,
    /// ThirdPartyResource of `extensions`.
    FirstRegistration,
    /// ThirdPartyResource of `apiextension.k8s.io`.
    SecondRegistration,
}

/// The field of a route that names a kind, and the values that registrations have there. Routes of
/// CustomResourceDefinitions leave it out.
const KINDS: [(DefinitionKind, &str); 2] = [
    (DefinitionKind::FirstRegistration, groups::EXTENSIONS),
    (DefinitionKind::SecondRegistration, groups::APIEXTENSION),
];

impl DefinitionName {
    /// Returns the key of the object in its cluster.
    pub fn key(&self, cluster: &ClusterName) -> ObjectKey {
        ObjectKey::cluster_scoped(self.kind.resource(), cluster.clone(), &self.name)
    }

    /// Returns the name of a definition or registration from its key; `None` for other objects.
    pub fn of_key(key: &ObjectKey) -> Option<Self> {
        let kind = DefinitionKind::ALL
            .into_iter()
            .find(|kind| kind.resource() == key.resource)?;
        Some(DefinitionName {
            kind,
            name: key.name.clone(),
        })
    }

    /// Returns true for the CustomResourceDefinition of this name.
    pub fn is_custom_resource(&self, name: &str) -> bool {
        self.kind == DefinitionKind::CustomResource && *self.name == *name
    }

    /// Returns the object as messages name it: `CustomResourceDefinition "widgets.example.io"`.
    pub fn describe(&self) -> String {
        match self.kind {
            DefinitionKind::CustomResource => format!("CustomResourceDefinition {:?}", self.name),
            _ => format!("{KIND} {:?}", self.name),
        }
    }
}

impl DefinitionKind {
    /// All kinds.
    pub const ALL: [DefinitionKind; 3] = [
        DefinitionKind::CustomResource,
        DefinitionKind::FirstRegistration,
        DefinitionKind::SecondRegistration,
    ];

    /// Returns the resource of the kind.
    pub fn resource(self) -> ResourceId {
        match self {
            DefinitionKind::CustomResource => ids::customresourcedefinitions(),
            DefinitionKind::FirstRegistration => ids::first_registrations(),
            DefinitionKind::SecondRegistration => ids::second_registrations(),
        }
    }

    /// Returns the kind that a route names; `None` for a name of later versions of the server.
    pub(crate) fn read(named: Option<&str>) -> Option<Self> {
        match named {
            None => Some(DefinitionKind::CustomResource),
            Some(named) => KINDS.into_iter().find(|(_, name)| *name == named).map(|(kind, _)| kind),
        }
    }

    /// Returns the name of the kind in a route.
    pub(crate) fn written(self) -> Option<&'static str> {
        KINDS.into_iter().find(|(kind, _)| *kind == self).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests;
