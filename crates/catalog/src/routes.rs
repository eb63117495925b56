//! Routes of resource names in a cluster: the internal objects that lead from a name to the bundle
//! or definition that serves it.

use crate::ids;
use insula_api::{ClusterName, Json, Object, ObjectKey};
use std::sync::Arc;

/// An export by where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportName {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Its name.
    pub name: Arc<str>,
}

impl ExportName {
    /// The export's key.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::cluster_scoped(ids::apiexports(), self.cluster.clone(), &self.name)
    }

    /// As a claim tells it.
    pub fn read(value: &Json) -> Option<Self> {
        Some(ExportName {
            cluster: ClusterName::parse(value["cluster"].as_str()?).ok()?,
            name: value["name"].as_str()?.into(),
        })
    }

    /// Writes the name as a route tells it.
    pub fn write(&self) -> Json {
        serde_json::json!({"cluster": self.cluster.as_str(), "name": &*self.name})
    }
}

/// What a claim says.
#[derive(Debug)]
pub struct ResourceRoute {
    /// The APIBinding, unless a definition claims.
    pub binding: Option<Arc<str>>,
    /// The APIExport that the binding binds.
    pub export: Option<ExportName>,
    /// The CustomResourceDefinition, unless a binding claims.
    pub definition: Option<Arc<str>>,
    /// The bundle that serves; a definition without rules of its own serves itself.
    pub bundle: Option<Arc<str>>,
    /// The exporter's identity.
    pub identity: Arc<str>,
    /// The version that a definition's objects are stored in. A definition changes in place; here
    /// it stands so that writes that were prepared for another storage version fail, since the
    /// claim is a guard of each.
    pub storage: Option<Arc<str>>,
}

impl ResourceRoute {
    /// Reads a claim.
    pub fn read(object: &Object) -> Self {
        let value = object.body_value();
        let text = |field: &str| value["spec"][field].as_str().filter(|s| !s.is_empty()).map(Arc::from);
        ResourceRoute {
            binding: text("binding"),
            export: ExportName::read(&value["spec"]["export"]),
            definition: text("definition"),
            bundle: text("bundle"),
            storage: text("storage"),
            identity: text("identity").unwrap_or_else(|| "".into()),
        }
    }

    /// The claim as an object.
    pub fn write(&self, name: &str) -> Json {
        let mut spec = serde_json::Map::new();
        for (field, value) in [
            ("binding", &self.binding),
            ("definition", &self.definition),
            ("bundle", &self.bundle),
            ("storage", &self.storage),
        ] {
            if let Some(value) = value {
                spec.insert(field.into(), Json::String(value.to_string()));
            }
        }
        if let Some(export) = &self.export {
            spec.insert("export".into(), export.write());
        }
        if !self.identity.is_empty() {
            spec.insert("identity".into(), Json::String(self.identity.to_string()));
        }
        serde_json::json!({
            "apiVersion": format!("{}/v1", ids::INTERNAL), "kind": "Claim", "metadata": {"name": name}, "spec": spec,
        })
    }
}
