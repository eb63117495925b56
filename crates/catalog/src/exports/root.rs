//! Exports in `root` by which kcp offers kinds that every workspace serves here without a binding.
//! Providers name their identity in permission claims, and administrators in paths to all clusters.

use crate::exports::ExportName;
use insula_api::ClusterName;
use insula_store::Snapshot;

/// Returns the name of the export in `root` that offers a built-in kind in kcp.
fn export_of(group: &str, plural: &str) -> Option<&'static str> {
    match (group, plural) {
        ("tenancy.kcp.io", _) => Some("tenancy.kcp.io"),
        ("topology.kcp.io", _) => Some("topology.kcp.io"),
        ("core.kcp.io", "shards") => Some("shards.core.kcp.io"),
        _ => None,
    }
}

/// Returns true if `identity` is the identity hash of the export in `root` that offers a built-in
/// kind in kcp.
pub fn is_identity_of(snapshot: &Snapshot, (group, plural): (&str, &str), identity: &str) -> bool {
    let Some(name) = export_of(group, plural).filter(|_| !identity.is_empty()) else {
        return false;
    };
    let export = ExportName {
        cluster: ClusterName::root(),
        name: name.into(),
    };
    export.spec(snapshot).is_some_and(|spec| spec.has_identity(identity))
}
