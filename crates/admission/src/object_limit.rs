//! Object limit of a workspace: the number that the platform's administrators set for it, or the
//! server's default. As in kcp, it protects against runaway programs; tenants set limits of their
//! own with ResourceQuotas.
//!
//! No counter is stored for a workspace. If it has a limit, a creation counts the objects of each
//! resource in the store and commits with the [`SerializationPoint`] of the workspace's objects, so
//! two creations cannot both take the last place.

use insula_access::Target;
use insula_api::{ClusterName, ResourceId, Scope, kinds::WorkspacePhase};
use insula_catalog::{Catalog, Result, SerializationPoint, ids, locate};
use insula_store::Snapshot;
use std::collections::BTreeSet;

/// Returns the object limit of the cluster of a new object; none where the object does not count or
/// nothing is limited. `default` holds for workspaces whose LogicalCluster names no limit; 0 is no
/// limit.
pub fn of_target(default: u64, snapshot: &Snapshot, target: &Target) -> Option<u64> {
    let cluster = &target.cluster;
    let view = locate::logical_cluster(snapshot, cluster)?;
    let of_all = if *cluster == ClusterName::root() { 0 } else { default };
    let limit = view.objects_max.unwrap_or(of_all);
    let holds = limit > 0 && view.phase == WorkspacePhase::Ready && counts(&target.served.resource_id());
    holds.then_some(limit)
}

/// Reserves room for one more object and returns the guards and writes to commit with it.
///
/// # Errors
/// 403 with kcp's message if the limit is reached.
pub fn settle(
    catalog: &Catalog,
    snapshot: &Snapshot,
    target: &Target,
    name: &str,
    limit: u64,
) -> Result<SerializationPoint> {
    let cluster = &target.cluster;
    let count = count(catalog, snapshot, cluster);
    if count < limit {
        return Ok(SerializationPoint::of_objects(snapshot, cluster));
    }
    let why = format!(
        "logical cluster {:?} has reached its total object count limit ({count}/{limit} objects); delete objects to free up capacity",
        cluster.as_str()
    );
    Err(target.served.api.quota_exceeded(name, why))
}

/// Returns true for resources that count. Events do not: they expire, and they help to find the
/// cause of a problem.
fn counts(resource: &ResourceId) -> bool {
    *resource != ids::events() && *resource != ids::logicalclusters()
}

fn count(catalog: &Catalog, snapshot: &Snapshot, cluster: &ClusterName) -> u64 {
    let served = catalog.served(snapshot, cluster);
    let resources: BTreeSet<ResourceId> = served
        .iter()
        .map(|served| served.resource_id())
        .filter(counts)
        .collect();
    let count = |resource: ResourceId| snapshot.count(&Scope::cluster(resource, cluster.clone())) as u64;
    resources.into_iter().map(count).sum()
}
