//! Workspaces, shards and workspace authentication configurations.

use crate::{Strategy, Traits, issuer_list};
use insula_api::{FieldError, Json, Timestamp};
use serde_json::json;

/// Workspaces.
pub(super) struct Workspaces;

impl Strategy for Workspaces {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            ..Traits::CUSTOM
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        new["status"] = json!({"phase": "Scheduling"});
    }
}

/// Shards. Unset addresses default to `baseURL`.
pub(super) struct Shards;

impl Strategy for Shards {
    fn default(&self, new: &mut Json) {
        let base = new["spec"]["baseURL"].clone();
        for address in ["externalURL", "virtualWorkspaceURL"] {
            if base.is_string() && !new["spec"][address].is_string() {
                new["spec"][address] = base.clone();
            }
        }
    }
}

/// WorkspaceAuthenticationConfigurations. Validation refuses issuers that cannot be used.
pub(super) struct AuthenticationConfigurations;

impl Strategy for AuthenticationConfigurations {
    fn validate(&self, new: &Json) -> Vec<FieldError> {
        issuer_list::check(new)
    }
}
