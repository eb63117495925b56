//! Leases, used by controllers for leader election.

use crate::{Builtin, CellValue, Strategy, Table, TableColumn, Traits, kind::crd};
use insula_api::{FieldError, FieldPath, Json, Timestamp};

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Leases,
    claimable: true,
    table: Some(Table::new(&[
        TableColumn::NAME,
        TableColumn::text("Holder", HOLDER_TEXT, CellValue::Text("/spec/holderIdentity")),
        TableColumn::AGE,
    ])),
    ..Builtin::new(crd!("coordination.k8s.io_leases"))
}];

const HOLDER_TEXT: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated \
    Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";

/// Leases (`pkg/apis/coordination/validation`).
struct Leases;

impl Strategy for Leases {
    fn traits(&self) -> Traits {
        Traits {
            unconditional_update: false,
            created_by_update: true,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        drop_coordination(new);
    }

    fn prepare_for_update(&self, new: &mut Json, _old: &Json, _now: Timestamp) {
        drop_coordination(new);
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        let at = FieldPath::new("spec");
        let bounds = [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ];
        let errors = bounds.into_iter().filter_map(|(field, least, why)| {
            let value = &new["spec"][field];
            let low = value.as_i64().is_some_and(|number| number < least);
            low.then(|| FieldError::invalid(&at.child(field), value, why))
        });
        errors.collect()
    }
}

/// Drops the fields of coordinated leader election, whose feature gate is off by default in
/// Kubernetes.
fn drop_coordination(lease: &mut Json) {
    if let Some(spec) = lease.get_mut("spec").and_then(Json::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}
