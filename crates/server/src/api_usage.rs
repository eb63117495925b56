//! Use of exported API versions, as the exports' status has it, for metrics.

use std::ops::ControlFlow;

use insula_api::{
    Scope, Timestamp,
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

/// Returns the use of every exported version, those with the most tenants first.
pub(crate) fn read(snapshot: &Snapshot) -> Vec<VersionUse> {
    let mut uses = Vec::new();
    snapshot.for_each(&Scope::everywhere(ids::apiexports()), |entry| {
        let export: ApiExport = kinds::read(&entry.object.body_value());
        let path = locate::path_of(snapshot, &entry.key.cluster);
        uses.extend(export.status.usage.into_iter().map(|usage| VersionUse {
            export: format!("{path}:{}", entry.key.name),
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
    uses.sort_by_key(|usage| std::cmp::Reverse(usage.tenants));
    uses
}
