//! StorageVersionMigrations.

use crate::{Builtin, Strategy, Traits, kind::crd};
use insula_api::{FieldError, FieldPath, Json, Timestamp};

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &StorageVersionMigrations,
    ..Builtin::new(crd!("storagemigration.k8s.io_storageversionmigrations"))
}];

/// Requests to write all objects of a resource in its storage version.
struct StorageVersionMigrations;

impl Strategy for StorageVersionMigrations {
    fn traits(&self) -> Traits {
        Traits {
            unconditional_update: false,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        if let Some(fields) = new.as_object_mut() {
            fields.remove("status");
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let at = FieldPath::new("spec").child("resource");
        let resource = &new["spec"]["resource"];
        let text = |field: &str| resource[field].as_str().unwrap_or_default();
        let mut errors = Vec::new();
        if text("resource").is_empty() {
            errors.push(FieldError::required(
                &at.child("resource"),
                "resource is required to be set",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        if new["spec"] == old["spec"] {
            return Vec::new();
        }
        vec![FieldError::invalid(
            &FieldPath::new("spec"),
            &new["spec"],
            "field is immutable",
        )]
    }
}
