//! Namespaces.

use crate::{
    Builtin, CellValue, OnDelete, Strategy, Subresource, Table, TableColumn, Traits,
    kind::crd,
    names::{self, NameRule},
    object::list_at,
};
use insula_api::{FieldError, FieldPath, Json, Timestamp, Verb};
use serde_json::json;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Namespaces,
    claimable: true,
    name_rule: Some(NameRule::Label),
    merge_keys: &[("status.conditions", "type")],
    subresources: &[Subresource {
        name: "finalize",
        body: None,
        verbs: &[Verb::Update],
    }],
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::text(
            "Status",
            "The status of the namespace",
            CellValue::Text("/status/phase"),
        ),
        TableColumn::AGE,
    ])),
    ..Builtin::new(crd!("core_namespaces"))
}];

/// Namespaces.
struct Namespaces;

impl Strategy for Namespaces {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            own_deletion: true,
            deletes_collection: false,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        if !new["spec"].is_object() {
            new["spec"] = json!({});
        }
        let finalizers = list_at(new, "spec", "finalizers");
        if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
            finalizers.push(json!("kubernetes"));
        }
        new["status"] = json!({"phase": "Active"});
        label_with_name(new);
    }

    /// Keeps the old `spec`: its finalizers change only through the `finalize` subresource.
    fn prepare_for_update(&self, new: &mut Json, old: &Json, _now: Timestamp) {
        if let Some(spec) = old.get("spec") {
            new["spec"] = spec.clone();
        }
        label_with_name(new);
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let at = FieldPath::new("spec").child("finalizers");
        let mut errors = Vec::new();
        for finalizer in new["spec"]["finalizers"].as_array().into_iter().flatten() {
            let problems = names::qualified_name_problems(finalizer.as_str().unwrap_or_default());
            errors.extend(problems.into_iter().map(|p| FieldError::invalid(&at, finalizer, p)));
            names::check_finalizer_is_qualified(finalizer, &at, &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Json, _old: &Json) -> Vec<FieldError> {
        let phase = &new["status"]["phase"];
        let deleting = !new["metadata"]["deletionTimestamp"].is_null();
        let why = match (deleting, phase.as_str()) {
            (false, Some(phase)) if phase != "Active" => "may only be 'Active' if `deletionTimestamp` is empty",
            (true, Some(phase)) if phase != "Terminating" => {
                "may only be 'Terminating' if `deletionTimestamp` is not empty"
            }
            _ => return Vec::new(),
        };
        vec![FieldError::invalid(
            &FieldPath::new("status").child("Phase"),
            phase,
            why,
        )]
    }

    fn on_delete(&self, object: &mut Json, _now: Timestamp) -> OnDelete {
        if !self.is_held(object) {
            return OnDelete::Go;
        }
        object["status"]["phase"] = json!("Terminating");
        OnDelete::Hold
    }

    fn is_held(&self, object: &Json) -> bool {
        object
            .pointer("/spec/finalizers")
            .and_then(Json::as_array)
            .is_some_and(|list| !list.is_empty())
    }
}

fn label_with_name(namespace: &mut Json) {
    let name = namespace["metadata"]["name"].clone();
    if !namespace["metadata"]["labels"].is_object() {
        namespace["metadata"]["labels"] = json!({});
    }
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}
