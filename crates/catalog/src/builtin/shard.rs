//! Shards, which belong to the operator.

use crate::{Builtin, Strategy, kind::crd};
use insula_api::Json;

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &Shards,
    operators_only: true,
    ..Builtin::new(crd!("core.kcp.io_shards"))
}];

/// Shards. Unset addresses default to `baseURL`.
struct Shards;

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
