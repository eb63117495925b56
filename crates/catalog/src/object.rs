//! Parts of an object that every kind has, as JSON: its metadata, and the annotation of its
//! cluster.

use crate::{Error, Result, Served};
use insula_api::{ClusterName, FieldError, Json, Object};
use serde_json::{Map, json};

/// Every object says which cluster it is in, as kcp's clients expect.
pub const CLUSTER_ANNOTATION: &str = "kcp.io/cluster";

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All but status, where status is a subresource.
    Main,
    /// Only status.
    Status,
    /// Only the replicas, through the scale subresource.
    Scale,
    /// Only whether a request for a certificate is granted: a part of its status.
    Approval,
    /// Only what a namespace waits for before it goes: `spec.finalizers`.
    Finalizers,
}

impl Part {
    /// Whether nothing but the status may change.
    pub fn is_of_status(self) -> bool {
        match self {
            Part::Status | Part::Approval => true,
            Part::Main | Part::Scale | Part::Finalizers => false,
        }
    }
}

/// The object's metadata as a map, made where there is none.
pub fn metadata_of(object: &mut Json) -> &mut Map<String, Json> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("was just made one")
}

/// Writes the name of its cluster into an object's annotations.
pub fn annotate_cluster(metadata: &mut Map<String, Json>, cluster: &ClusterName) {
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(CLUSTER_ANNOTATION.into(), json!(cluster.as_str()));
    }
}

/// Writes on an object where it is. Whether that stood there already.
pub fn place(object: &mut Json, cluster: &ClusterName) -> bool {
    if *object == Json::Null || !object["metadata"]["annotations"][CLUSTER_ANNOTATION].is_null() {
        return true;
    }
    annotate_cluster(metadata_of(object), cluster);
    false
}

/// Takes the word about where an object is off it.
pub fn unplace(object: &mut Json) {
    let metadata = metadata_of(object);
    if let Some(Json::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(CLUSTER_ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Returns `Invalid` for an object with errors.
pub fn refuse(served: &Served, name: &str, errors: Vec<FieldError>) -> Result<()> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(served.api.invalid(name, errors))
    }
}

/// Group and version as messages about kinds name them: with a slash, even for the core group.
pub fn group_version(api_version: &str) -> String {
    match api_version.contains('/') {
        true => api_version.to_owned(),
        false => format!("/{api_version}"),
    }
}

/// The same object with other JSON in the same version: residual and schema mark stay.
pub fn rewrite(old: &Object, value: &Json) -> Result<Object> {
    Object::new(value, old.residual().map(Box::from))
        .map(|object| object.written_under(old.schema()))
        .map_err(|error| Error::Internal(error.to_string()))
}
