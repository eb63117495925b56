//! Admission policies and their bindings. [`crate::policies`] validates their specs.

use crate::{Strategy, Traits, policies::validate};
use insula_api::{FieldError, Json, Timestamp};
use serde_json::json;

const TRAITS: Traits = Traits {
    generation: true,
    ..Traits::BUILT_IN
};

/// ValidatingAdmissionPolicies.
pub(super) struct ValidatingPolicies;

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
pub(super) struct ValidatingBindings;

impl Strategy for ValidatingBindings {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::binding(new, true)
    }
}

/// MutatingAdmissionPolicies.
pub(super) struct MutatingPolicies;

impl Strategy for MutatingPolicies {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::mutating_policy(new)
    }
}

/// MutatingAdmissionPolicyBindings.
pub(super) struct MutatingBindings;

impl Strategy for MutatingBindings {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        validate::binding(new, false)
    }
}

/// Both kinds of webhook configurations.
pub(super) enum WebhookConfigurations {
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
