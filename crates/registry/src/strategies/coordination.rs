//! What controllers need beside their own kinds: Leases to elect a leader by, and Events to tell what they did.

use crate::{Strategy, Traits};
use insula_api::{FieldError, FieldPath, Json};
use serde_json::json;

/// Leases (`pkg/apis/coordination/validation`).
pub(super) struct Leases;

impl Strategy for Leases {
    fn traits(&self) -> Traits {
        Traits {
            unconditional_update: false,
            created_by_update: true,
            ..Traits::BUILT_IN
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let at = FieldPath::new("spec");
        let bounds = [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ];
        let mut errors: Vec<FieldError> = bounds
            .into_iter()
            .filter_map(|(field, least, why)| {
                let value = &new["spec"][field];
                let low = value.as_i64().is_some_and(|number| number < least);
                low.then(|| FieldError::invalid(&at.child(field), value, why))
            })
            .collect();
        let named = |field: &str| new["spec"][field].as_str().is_some_and(|text| !text.is_empty());
        if named("preferredHolder") && !named("strategy") {
            let why = "may only be specified if `strategy` is defined";
            errors.push(FieldError::forbidden(&at.child("preferredHolder"), why));
        }
        errors
    }
}

/// Events (`pkg/apis/core/validation/events.go`).
pub(super) struct Events;

impl Strategy for Events {
    fn traits(&self) -> Traits {
        Traits {
            created_by_update: true,
            ..Traits::BUILT_IN
        }
    }

    /// What is about an object of no namespace stands in `default`.
    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default();
        let involved = new["involvedObject"]["namespace"].as_str().unwrap_or_default();
        if namespace == if involved.is_empty() { "default" } else { involved } {
            return Vec::new();
        }
        let at = FieldPath::new("involvedObject").child("namespace");
        vec![FieldError::invalid(
            &at,
            &json!(involved),
            "does not match event.namespace",
        )]
    }
}
