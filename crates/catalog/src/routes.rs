//! Routes of resource names in a cluster: the internal objects that lead from a name to the bundle
//! or definition that serves it.

use crate::{
    ids,
    registration::{DefinitionKind, DefinitionName},
    use_marks::UseMarks,
};
use insula_api::{ClusterName, Json, Object, ObjectKey};
use std::sync::Arc;

/// The location of an APIExport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportName {
    /// Cluster of the export.
    pub cluster: ClusterName,
    /// Name of the export.
    pub name: Arc<str>,
}

impl ExportName {
    /// Names the export of a cluster.
    pub fn new(cluster: &ClusterName, name: &str) -> Self {
        ExportName {
            cluster: cluster.clone(),
            name: name.into(),
        }
    }

    /// Returns the export's key.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::cluster_scoped(ids::apiexports(), self.cluster.clone(), &self.name)
    }

    /// Reads the location from a route.
    pub fn read(value: &Json) -> Option<Self> {
        Some(ExportName {
            cluster: ClusterName::parse(value["cluster"].as_str()?).ok()?,
            name: value["name"].as_str()?.into(),
        })
    }

    /// Returns the location in the form of a route.
    pub fn write(&self) -> Json {
        serde_json::json!({"cluster": self.cluster.as_str(), "name": &*self.name})
    }
}

/// The route of a resource name.
#[derive(Debug)]
pub struct ResourceRoute {
    /// APIBinding that owns the route, unless a definition does.
    pub binding: Option<Arc<str>>,
    /// APIExport of the binding.
    pub export: Option<ExportName>,
    /// Definition or registration that owns the route, unless a binding does.
    pub definition: Option<DefinitionName>,
    /// Bundle that serves the resource. A definition without conversion rules needs none.
    pub bundle: Option<Arc<str>>,
    /// Identity of the export; empty unless bound.
    pub identity: Arc<str>,
    /// Storage version of a definition, which can change in place. The route is a guard of every
    /// write, so a change of this field fails the writes that were prepared for another storage
    /// version.
    pub storage: Option<Arc<str>>,
    /// True once the definition is being deleted. The change of the route fails the writes that
    /// were prepared before, so no object appears after the last one was deleted.
    pub closing: bool,
    /// True while the registration behind the resource is migrated: objects are read and not
    /// written.
    pub frozen: bool,
    /// Versions that were used in the present hour. Not stored.
    pub marks: UseMarks,
}

impl ResourceRoute {
    /// Reads a route.
    pub fn read(object: &Object) -> Self {
        let value = object.body_value();
        let text = |field: &str| value["spec"][field].as_str().filter(|s| !s.is_empty()).map(Arc::from);
        ResourceRoute {
            binding: text("binding"),
            export: ExportName::read(&value["spec"]["export"]),
            definition: text("definition").and_then(|name| {
                let kind = DefinitionKind::read(value["spec"]["definitionGroup"].as_str())?;
                Some(DefinitionName { kind, name })
            }),
            bundle: text("bundle"),
            storage: text("storage"),
            closing: value["spec"]["closing"] == true,
            frozen: value["spec"]["frozen"] == true,
            identity: text("identity").unwrap_or_else(|| "".into()),
            marks: UseMarks::default(),
        }
    }

    /// Returns the route as an object.
    pub fn write(&self, name: &str) -> Json {
        let mut spec = serde_json::Map::new();
        for (field, value) in [
            ("binding", &self.binding),
            ("bundle", &self.bundle),
            ("storage", &self.storage),
        ] {
            if let Some(value) = value {
                spec.insert(field.into(), Json::String(value.to_string()));
            }
        }
        if let Some(definition) = &self.definition {
            spec.insert("definition".into(), Json::String(definition.name.to_string()));
            if let Some(group) = definition.kind.written() {
                spec.insert("definitionGroup".into(), Json::String(group.to_owned()));
            }
        }
        if let Some(export) = &self.export {
            spec.insert("export".into(), export.write());
        }
        for (field, flag) in [("closing", self.closing), ("frozen", self.frozen)] {
            if flag {
                spec.insert(field.into(), Json::Bool(true));
            }
        }
        if !self.identity.is_empty() {
            spec.insert("identity".into(), Json::String(self.identity.to_string()));
        }
        serde_json::json!({
            "apiVersion": ids::INTERNAL_V1, "kind": ids::RESOURCE_ROUTE, "metadata": {"name": name}, "spec": spec,
        })
    }
}
