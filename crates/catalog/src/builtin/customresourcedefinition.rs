//! CustomResourceDefinitions.

mod v1beta1;

use crate::{
    Builtin, OnDelete, Strategy, Table, TableColumn, Traits,
    kind::crd,
    object::{add_finalizer, metadata_of},
};
use insula_api::{
    Condition, FieldError, Json, Timestamp,
    names::annotations::{MADE_AS, V1BETA1},
    set_condition,
};
use insula_schema::{
    default_definition, definition_warnings, undecodable_definition, unknown_keywords, validate_definition,
    validate_definition_status, validate_definition_update,
};
use serde_json::json;

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Definitions,
    claimable: true,
    table: Some(Table {
        columns: &[TableColumn::NAME, TableColumn::CREATED],
        null_when_empty: true,
    }),
    coded_version: Some(v1beta1::VERSION),
    gate: Some(v1beta1::gate),
    ..Builtin::new(crd!("apiextensions.k8s.io_customresourcedefinitions"))
}];

/// CustomResourceDefinitions of a workspace.
struct Definitions;

impl Strategy for Definitions {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            own_deletion: true,
            built_in: true,
            // Its schemas have values of any JSON.
            is_struct: false,
            ..Traits::CUSTOM
        }
    }

    fn undecodable(&self, sent: &Json) -> Option<String> {
        match insula_api::names::version_of(sent["apiVersion"].as_str().unwrap_or_default()) == V1BETA1 {
            true => undecodable_definition(&(v1beta1::VERSION.to_storage)(sent.clone())),
            false => undecodable_definition(sent),
        }
    }

    fn unknown_fields(&self, sent: &Json) -> Vec<String> {
        unknown_keywords(sent)
    }

    /// Adds what Go encodes without a value, before the schema requires it.
    fn default_version(&self, new: &mut Json, _version: &str) {
        if new["spec"].is_null() {
            new["spec"] = json!({});
        }
        let status = new.get_mut("status").and_then(Json::as_object_mut);
        for (field, value) in status.into_iter().flatten() {
            let (list, encoded) = match (&**field, value) {
                ("conditions", Json::Array(conditions)) => (&mut conditions[..], ["type", "status"]),
                ("acceptedNames", names) => (std::slice::from_mut(names), ["plural", "kind"]),
                _ => continue,
            };
            for fields in list.iter_mut().filter_map(Json::as_object_mut) {
                for name in encoded {
                    fields.entry(name).or_insert_with(|| json!(""));
                }
            }
        }
    }

    fn default(&self, new: &mut Json) {
        default_definition(new);
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        // Several storage versions record none. Validation refuses them, and also a definition
        // without a storage version.
        let stored = storage_versions(new);
        let stored = if stored.len() == 1 { stored } else { Vec::new() };
        new["status"] = json!({
            "acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored,
        });
    }

    /// Adds the current storage version to `status.storedVersions`. A definition stays what it was
    /// made as, whichever version writes it.
    fn prepare_for_update(&self, new: &mut Json, old: &Json, _now: Timestamp) {
        keep_made_as(new, old);
        let storage = storage_versions(new);
        if !new["status"].is_object() {
            new["status"] = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null});
        }
        if !new["status"]["storedVersions"].is_array() {
            new["status"]["storedVersions"] = json!([]);
        }
        let Some(stored) = new["status"]["storedVersions"].as_array_mut() else {
            return;
        };
        for version in storage {
            if !stored.contains(&version) {
                stored.push(version);
            }
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        // An update is checked against the old object in `validate_update`.
        if new["status"]["conditions"].is_null() {
            validate_definition(new)
        } else {
            Vec::new()
        }
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        if new["status"]["conditions"].is_null() && new["spec"] == old["spec"] {
            return Vec::new();
        }
        let mut errors = validate_definition_update(new, old);
        // A name is immutable. If it no longer fits, another error already reports the cause.
        errors.retain(|error| error.field.as_str() != "metadata.name");
        if new["status"] != old["status"] {
            let status = validate_definition_status(new);
            errors.extend(
                status
                    .into_iter()
                    .filter(|error| error.field.as_str().starts_with("status.acceptedNames")),
            );
        }
        errors
    }

    fn warnings(&self, new: &Json, old: Option<&Json>) -> Vec<String> {
        let known = old.map(definition_warnings).unwrap_or_default();
        let mut warnings = definition_warnings(new);
        warnings.retain(|warning| !known.contains(warning));
        warnings
    }

    fn on_delete(&self, object: &mut Json, now: Timestamp) -> OnDelete {
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        if !deleting {
            add_finalizer(object, FINALIZER);
            let pending = Condition::holds("Terminating").because(
                "InstanceDeletionPending",
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            );
            set_condition(object, &pending, now);
        }
        OnDelete::Go
    }
}

fn keep_made_as(new: &mut Json, old: &Json) {
    let made_as = &old["metadata"]["annotations"][MADE_AS];
    match new["metadata"].get_mut("annotations") {
        _ if !made_as.is_null() => new["metadata"]["annotations"][MADE_AS] = made_as.clone(),
        Some(Json::Object(annotations)) => {
            annotations.remove(MADE_AS);
            if annotations.is_empty() && old["metadata"].get("annotations").is_none() {
                metadata_of(new).remove("annotations");
            }
        }
        _ => {}
    }
}

fn storage_versions(definition: &Json) -> Vec<Json> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    versions
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect()
}
