//! Helpers for the parts that every object has, as JSON: its metadata and the annotation with its
//! cluster.

use crate::{Error, Result, Served};
use insula_api::{ClusterName, FieldError, Json, Object};
use serde_json::{Map, json};

/// Annotation with an object's cluster. kcp's clients expect it on every object.
pub const CLUSTER_ANNOTATION: &str = "kcp.io/cluster";

/// The part of an object that a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything except status, if status is a subresource.
    Main,
    /// Only status.
    Status,
    /// Only the replicas, by the scale subresource.
    Scale,
    /// Only the approval of a CertificateSigningRequest, a part of its status.
    Approval,
    /// Only a namespace's `spec.finalizers`.
    Finalizers,
}

impl Part {
    /// Returns true for parts that may change only `status`.
    pub fn is_of_status(self) -> bool {
        match self {
            Part::Status | Part::Approval => true,
            Part::Main | Part::Scale | Part::Finalizers => false,
        }
    }
}

/// Returns the object's metadata as a map. Creates it if it is missing.
pub fn metadata_of(object: &mut Json) -> &mut Map<String, Json> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("was just made one")
}

/// Sets the annotation with the name of the object's cluster.
pub fn annotate_cluster(metadata: &mut Map<String, Json>, cluster: &ClusterName) {
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(CLUSTER_ANNOTATION.into(), json!(cluster.as_str()));
    }
}

/// Annotates an object with its cluster. Returns true if the annotation was there already, and for
/// `null`.
pub fn place(object: &mut Json, cluster: &ClusterName) -> bool {
    if *object == Json::Null || !object["metadata"]["annotations"][CLUSTER_ANNOTATION].is_null() {
        return true;
    }
    annotate_cluster(metadata_of(object), cluster);
    false
}

/// Removes the annotation with the object's cluster.
pub fn unplace(object: &mut Json) {
    let metadata = metadata_of(object);
    if let Some(Json::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(CLUSTER_ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Errors that a refusal tells, as many as those of a schema: a small body of empty items has many.
const ERRORS_MAX: usize = 1000;

/// Returns `Ok` for an object without errors.
///
/// # Errors
/// Returns `Invalid` with the first errors of an object.
pub fn refuse(served: &Served, name: &str, mut errors: Vec<FieldError>) -> Result<()> {
    errors.truncate(ERRORS_MAX);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(served.api.invalid(name, errors))
    }
}

/// Returns group and version in the form of messages about kinds: with a slash, even for the core
/// group.
pub fn group_version(api_version: &str) -> String {
    match api_version.contains('/') {
        true => api_version.to_owned(),
        false => format!("/{api_version}"),
    }
}

/// Returns an object with new JSON in the same version and with the same residual and schema
/// fingerprint.
///
/// # Errors
/// Returns `Internal` if the value is no valid object.
pub fn rewrite(old: &Object, value: &Json) -> Result<Object> {
    Object::new(value, old.residual().map(Box::from))
        .map(|object| object.written_under(old.schema()))
        .map_err(|error| Error::Internal(error.to_string()))
}

/// Returns `object.<parent>.<field>` as a mutable list; creates it if needed.
pub fn list_at<'a>(object: &'a mut Json, parent: &str, field: &str) -> &'a mut Vec<Json> {
    let parent = &mut object[parent];
    if !parent[field].is_array() {
        parent[field] = Json::Array(Vec::new());
    }
    parent[field].as_array_mut().expect("made an array above")
}

/// Adds a finalizer unless the object already has it.
pub fn add_finalizer(object: &mut Json, finalizer: &str) {
    let list = list_at(object, "metadata", "finalizers");
    if !list.iter().any(|known| known == finalizer) {
        list.push(Json::String(finalizer.to_owned()));
    }
}
