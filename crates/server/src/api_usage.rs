//! Use of exported API versions and rollouts of exports, as the exports' status has them, for
//! metrics.

use std::ops::ControlFlow;

use insula_api::{
    Json, Scope, Timestamp,
    kinds::{self, ApiExport},
};
use insula_catalog::{ids, locate};
use insula_store::Snapshot;

/// Use of one version of one exported resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionUse {
    /// `<path of the workspace>:<name>` of the export.
    pub(crate) export: String,
    /// `<plural>.<group>`.
    pub(crate) resource: String,
    pub(crate) version: String,
    /// Workspaces that used it lately.
    pub(crate) tenants: usize,
    /// Time of the last use; `None` if there was none.
    pub(crate) last_used: Option<Timestamp>,
}

/// Bindings of an export whose status tells of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// `<path of the workspace>:<name>` of the export.
    pub(crate) export: String,
    /// All its bindings.
    pub(crate) bindings: u64,
    /// Bindings that took over the release on offer.
    pub(crate) current: u64,
    /// Bindings that cannot take it over.
    pub(crate) held: u64,
}

/// State of all exports.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    /// Those with the most tenants first.
    pub(crate) uses: Vec<VersionUse>,
    /// Those with the most bindings first.
    pub(crate) rollouts: Vec<Rollout>,
}

/// Reads all exports.
pub(crate) fn read(snapshot: &Snapshot) -> Exports {
    let mut exports = Exports::default();
    snapshot.for_each(&Scope::everywhere(ids::apiexports()), |entry| {
        let body = entry.object.body_value();
        let export: ApiExport = kinds::read(&body);
        let rollout = &body["status"]["rollout"];
        if export.status.usage.is_empty() && !rollout.is_object() {
            return ControlFlow::Continue(());
        }
        let path = locate::path_of(snapshot, &entry.key.cluster);
        let name = format!("{path}:{}", entry.key.name);
        exports.rollouts.extend(read_rollout(&name, rollout));
        exports
            .uses
            .extend(export.status.usage.into_iter().map(|usage| VersionUse {
                export: name.clone(),
                resource: match usage.group.as_str() {
                    "" => usage.resource,
                    group => format!("{}.{group}", usage.resource),
                },
                version: usage.version,
                tenants: usage.tenants,
                last_used: Timestamp::parse(&usage.last_used),
            }));
        ControlFlow::Continue(())
    });
    exports.uses.sort_by_key(|usage| std::cmp::Reverse(usage.tenants));
    exports
        .rollouts
        .sort_by_key(|rollout| std::cmp::Reverse(rollout.bindings));
    exports
}

fn read_rollout(export: &str, status: &Json) -> Option<Rollout> {
    let count = |field: &str| status[field].as_u64().unwrap_or_default();
    status.is_object().then(|| Rollout {
        export: export.to_owned(),
        bindings: count("bindings"),
        current: count("current"),
        held: count("held"),
    })
}
