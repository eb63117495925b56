//! Workspaces.

use crate::{Builtin, Strategy, Traits, kind::crd};
use insula_api::{Json, Timestamp};
use serde_json::json;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Workspaces,
    ..Builtin::new(crd!("tenancy.kcp.io_workspaces"))
}];

/// Workspaces.
struct Workspaces;

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
