//! Defaulting and validation of resource definitions (`apiextensions.k8s.io/v1`
//! `CustomResourceDefinition`).
//!
//! Errors have the paths of Kubernetes' internal form: settings that are equal in all versions are
//! reported at their former fields `spec.validation`, `spec.subresources` and
//! `spec.additionalPrinterColumns`, others in their version.

mod conversion;
mod go;
mod names;
mod types;
mod versions;

pub use conversion::{ca_bundle_is_unusable, validate_client_config};

use insula_api::{
    FieldError, FieldPath, Json,
    names::annotations::{MADE_AS, V1BETA1},
};
use serde_json::json;
use std::collections::HashMap;

pub use go::{undecodable_definition, undecodable_schema, unknown_keywords};

const SCHEMA: &str = "openAPIV3Schema";

const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_POLICY: &str = "https://github.com/kubernetes/enhancements/pull/1111";

/// Fills in the optional fields of a definition: singular, listKind, flags, the conversion
/// strategy, a webhook's port. Drops null defaults, which mean nothing, and unknown keywords.
pub fn default_definition(definition: &mut Json) {
    let Some(spec) = definition.get_mut("spec").filter(|s| s.is_object()) else {
        return;
    };
    go::encode_spec(spec);
    if let Some(Json::Object(names)) = spec.get_mut("names") {
        let kind = names.get("kind").and_then(Json::as_str).unwrap_or("").to_owned();
        for (name, value) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            let missing = names.get(name).and_then(Json::as_str).is_none_or(str::is_empty);
            if missing && !kind.is_empty() {
                names.insert(name.to_owned(), Json::from(value));
            }
        }
    }
    if spec.get("conversion").is_none_or(Json::is_null) {
        spec["conversion"] = json!({"strategy": "None"});
    }
    if let Some(Json::Object(service)) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        service.entry("port").or_insert_with(|| json!(443));
    }
    for version in spec
        .get_mut("versions")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Json::Object(version) = version {
            for flag in ["served", "storage"] {
                version.entry(flag).or_insert(Json::Bool(false));
            }
            if version.get("deprecated") == Some(&Json::Bool(false)) {
                version.remove("deprecated");
            }
        }
    }
}

/// The rules of the version that a definition was created in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MadeAs {
    V1,
    /// A Scale needs no `statusReplicasPath`. Without `preserveUnknownFields` the other rules are
    /// those of v1.
    V1beta1,
    /// A definition in v1beta1 that preserves unknown fields: schemas may be missing, and need not
    /// be structural.
    Free,
}

impl MadeAs {
    fn for_definition(definition: &Json) -> MadeAs {
        let annotations = definition.pointer("/metadata/annotations");
        let made_as = annotations.and_then(|annotations| annotations.get(MADE_AS));
        match definition.pointer("/spec/preserveUnknownFields") {
            _ if made_as.is_none_or(|made_as| made_as != V1BETA1) => MadeAs::V1,
            Some(Json::Bool(true)) => MadeAs::Free,
            _ => MadeAs::V1beta1,
        }
    }
}

/// Validates a definition as a whole object. Of its metadata it checks only the name, which must be
/// `<plural>.<group>`, and the approval that protected groups need.
pub fn validate_definition(definition: &Json) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = definition.get("spec").unwrap_or(&Json::Null);
    let path = FieldPath::new("spec");
    names::validate_place(definition, spec, &mut errors);
    approval(definition, &mut errors);
    let made_as = MadeAs::for_definition(definition);
    if made_as == MadeAs::Free {
        free(spec, &path, &mut errors);
    } else if spec.get("preserveUnknownFields") == Some(&Json::Bool(true)) {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(
            &path.child("preserveUnknownFields"),
            &Json::Bool(true),
            why,
        ));
    }
    versions::validate(spec, made_as, &mut errors);
    conversion::validate(
        spec.get("conversion").unwrap_or(&Json::Null),
        &path.child("conversion"),
        &mut errors,
    );
    stored_versions(definition, spec, &mut errors);
    errors
}

/// Checks what a definition cannot do while it preserves unknown fields.
fn free(spec: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let strategy = spec.pointer("/conversion/strategy").unwrap_or(&Json::Null);
    if !strategy.is_null() && strategy != "None" {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(
            &path.child("conversion").child("strategy"),
            strategy,
            why,
        ));
    }
    let schema = |version: &Json| version.pointer("/schema/openAPIV3Schema").is_some_and(has_default);
    if list(spec).iter().any(schema) {
        let why = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid(
            &path.child("preserveUnknownFields"),
            &Json::Bool(true),
            why,
        ));
    }
}

fn has_default(schema: &Json) -> bool {
    let mut found = schema.get("default").is_some_and(|default| !default.is_null());
    crate::admit::children(schema, &FieldPath::root(), |child, _| found |= has_default(child));
    found
}

/// Returns why the schemas of a definition are not structural; empty if they are.
pub fn structural_violations(definition: &Json) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("versions");
    let versions = list(&definition["spec"]).iter().enumerate();
    let schemas = versions.filter_map(|(i, version)| {
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        Some((schema, at.index(i).child("schema").child(SCHEMA)))
    });
    schemas
        .flat_map(|(schema, at)| crate::admit::check_structure(schema, &at))
        .collect()
}

/// Validates an update of a definition. Errors that the old definition's schemas have too do not
/// count: rules become stricter, and existing definitions must stay usable.
pub fn validate_definition_update(new: &Json, old: &Json) -> Vec<FieldError> {
    let mut errors = validate_definition(new);
    if !errors.is_empty() {
        // The same rule may have moved to another version: errors compare by their path within the
        // schema.
        let within = |error: &FieldError| Some(error.field.as_str().split_once(SCHEMA)?.1.to_owned());
        let same = |a: &FieldError, b: &FieldError| a.kind == b.kind && a.value == b.value && a.detail == b.detail;
        let earlier = validate_definition(old);
        let mut known: HashMap<String, Vec<&FieldError>> = HashMap::new();
        for error in &earlier {
            if let Some(place) = within(error) {
                known.entry(place).or_default().push(error);
            }
        }
        errors.retain(|error| {
            let known = within(error).and_then(|place| known.get(&place));
            known.is_none_or(|known| !known.iter().any(|k| same(k, error)))
        });
    }
    let established = old
        .pointer("/status/conditions")
        .and_then(Json::as_array)
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|c| c["type"] == json!("Established") && c["status"] == json!("True"))
        });
    if established {
        conversion::ca_bundle_update(new, old, &mut errors);
    }
    let mut immutable = |pointer: &str, field: &str| {
        let (new, old) = (new.pointer(pointer), old.pointer(pointer));
        if new != old {
            let value = new.unwrap_or(&Json::Null);
            errors.push(FieldError::invalid(&FieldPath::new(field), value, "field is immutable"));
        }
    };
    if established {
        immutable("/spec/scope", "spec.scope");
        immutable("/spec/names/kind", "spec.names.kind");
    }
    immutable("/spec/group", "spec.group");
    immutable("/spec/names/plural", "spec.names.plural");
    errors
}

/// Validates an update of the status subresource of a definition.
pub fn validate_definition_status(definition: &Json) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = definition.get("spec").unwrap_or(&Json::Null);
    if let Some(accepted) = definition.pointer("/status/acceptedNames") {
        names::accepted(accepted, &FieldPath::new("status").child("acceptedNames"), &mut errors);
    }
    stored_versions(definition, spec, &mut errors);
    errors
}

/// Returns the warnings for an accepted definition: unknown formats.
pub fn definition_warnings(definition: &Json) -> Vec<String> {
    let mut formats = Vec::new();
    for version in definition
        .pointer("/spec/versions")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            unknown_formats(schema, 0, &mut formats);
        }
    }
    formats.sort_unstable();
    formats.dedup();
    formats
        .into_iter()
        .map(|format| format!("unrecognized format {format:?}"))
        .collect()
}

fn unknown_formats(schema: &Json, depth: usize, found: &mut Vec<String>) {
    if depth > crate::parse::SCHEMA_DEPTH_MAX {
        return;
    }
    let text = |name: &str| schema.get(name).and_then(Json::as_str).unwrap_or("");
    if text("type") == "string" && !crate::formats::is_known(text("format")) {
        found.push(text("format").to_owned());
    }
    crate::admit::children(schema, &FieldPath::root(), |child, _| {
        unknown_formats(child, depth + 1, found)
    });
    crate::admit::alternatives(schema, &FieldPath::root(), |child, _| {
        unknown_formats(child, depth + 1, found)
    });
}

/// Returns the versions of a definition; empty if there are none.
fn list(spec: &Json) -> &[Json] {
    spec.get("versions")
        .and_then(Json::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn stored_versions(definition: &Json, spec: &Json, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status").child("storedVersions");
    let storage = |v: &&Json| v.get("storage") == Some(&Json::Bool(true));
    let storage: Vec<&str> = list(spec)
        .iter()
        .filter(storage)
        .filter_map(|v| v.get("name")?.as_str())
        .collect();
    // On create the server fills in the storage version, if there is exactly one.
    let created: Vec<Json> = match storage[..] {
        [name] => vec![Json::from(name)],
        _ => Vec::new(),
    };
    let given = definition.pointer("/status/storedVersions").and_then(Json::as_array);
    let stored = given.filter(|s| !s.is_empty()).unwrap_or(&created);
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            &path,
            &Json::Null,
            "must have at least one stored version",
        ));
        return;
    }
    for (i, version) in stored.iter().enumerate() {
        let Some(name) = version.as_str() else { continue };
        if !list(spec).iter().any(|v| v.get("name") == Some(version)) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(FieldError::invalid(&path.index(i), version, why));
        }
    }
    for name in storage {
        if !stored.iter().any(|v| v.as_str() == Some(name)) {
            let why = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(&path, &Json::from(stored.clone()), why));
        }
    }
}

/// Checks the approval annotation of definitions in the community's groups, those under `k8s.io`
/// and `kubernetes.io`.
fn approval(definition: &Json, errors: &mut Vec<FieldError>) {
    let group = definition.pointer("/spec/group").and_then(Json::as_str).unwrap_or("");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|g| group == *g || group.ends_with(&format!(".{g}")));
    if !protected {
        return;
    }
    let path = FieldPath::new("metadata").child("annotations").key(APPROVAL);
    let annotations = definition.pointer("/metadata/annotations");
    let given = annotations
        .and_then(|a| a.get(APPROVAL))
        .and_then(Json::as_str)
        .unwrap_or("");
    if given.is_empty() {
        let why = format!("protected groups must have approval annotation \"{APPROVAL}\", see {APPROVAL_POLICY}");
        errors.push(FieldError::required(&path, why));
        return;
    }
    let is_url = given.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') && !given.contains(' ')
    });
    if !is_url && !given.starts_with("unapproved") {
        let why = format!(
            "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \
             \"unapproved\", see {APPROVAL_POLICY}"
        );
        errors.push(FieldError::invalid(&path, &Json::from(given), why));
    }
}
