//! Admission policies and their bindings. [`crate::policies`] validates their specs.

use crate::{Builtin, CellValue, Strategy, Table, TableColumn, Traits, kind::crd, policies::validate};
use insula_api::{FieldError, Json, Timestamp};
use serde_json::json;

pub(super) const KINDS: &[Builtin] = &[
    Builtin {
        strategy: &ValidatingPolicies,
        claimable: true,
        ..Builtin::new(crd!("admissionregistration.k8s.io_validatingadmissionpolicies"))
    },
    Builtin {
        strategy: &ValidatingBindings,
        claimable: true,
        ..Builtin::new(crd!("admissionregistration.k8s.io_validatingadmissionpolicybindings"))
    },
    Builtin {
        strategy: &MutatingPolicies,
        claimable: true,
        ..Builtin::new(crd!("admissionregistration.k8s.io_mutatingadmissionpolicies"))
    },
    Builtin {
        strategy: &MutatingBindings,
        claimable: true,
        ..Builtin::new(crd!("admissionregistration.k8s.io_mutatingadmissionpolicybindings"))
    },
    Builtin {
        strategy: &WebhookConfigurations::Validating,
        claimable: true,
        table: Some(WEBHOOKS),
        merge_keys: &[("webhooks", "name")],
        ..Builtin::new(crd!("admissionregistration.k8s.io_validatingwebhookconfigurations"))
    },
    Builtin {
        strategy: &WebhookConfigurations::Mutating,
        claimable: true,
        table: Some(WEBHOOKS),
        merge_keys: &[("webhooks", "name")],
        ..Builtin::new(crd!("admissionregistration.k8s.io_mutatingwebhookconfigurations"))
    },
];

const WEBHOOKS_TEXT: &str = "Webhooks indicates the number of webhooks registered in this configuration";
const WEBHOOKS: Table = Table::new(&[
    TableColumn::NAME,
    TableColumn::integer("Webhooks", WEBHOOKS_TEXT, CellValue::Items("webhooks")),
    TableColumn::AGE,
]);

const TRAITS: Traits = Traits {
    generation: true,
    ..Traits::BUILT_IN
};

/// ValidatingAdmissionPolicies.
struct ValidatingPolicies;

impl Strategy for ValidatingPolicies {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        new["status"] = json!({});
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::validating_policy(new)
    }
}

/// ValidatingAdmissionPolicyBindings.
struct ValidatingBindings;

impl Strategy for ValidatingBindings {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::binding(new, true)
    }
}

/// MutatingAdmissionPolicies.
struct MutatingPolicies;

impl Strategy for MutatingPolicies {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::mutating_policy(new)
    }
}

/// MutatingAdmissionPolicyBindings.
struct MutatingBindings;

impl Strategy for MutatingBindings {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::binding(new, false)
    }
}

/// Both kinds of webhook configurations.
enum WebhookConfigurations {
    Validating,
    Mutating,
}

impl Strategy for WebhookConfigurations {
    fn traits(&self) -> Traits {
        Traits {
            unconditional_update: false,
            ..TRAITS
        }
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::webhook_configuration(new, matches!(self, WebhookConfigurations::Mutating))
    }
}
