//! Workspaces.

use crate::{Strategy, Traits};
use insula_api::{Json, Timestamp};
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
