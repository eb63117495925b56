//! How many objects a workspace may have in all: what its administrators' platform says of it, or
//! of every workspace. A limit against runaway programs, as in kcp; what tenants count themselves
//! are ResourceQuotas.
//!
//! No number is stored for a workspace: where there is a limit, a creation asks the store how many
//! there are of each resource, and is committed with the [`SerializationPoint`] of the workspace's
//! objects, so that no two creations take the last place.

use insula_access::Target;
use insula_api::{ClusterName, ResourceId, Scope};
use insula_catalog::{
    Catalog, Result, SerializationPoint, ids,
    locate::{self, Phase},
};
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
    let holds = limit > 0 && view.phase == Phase::Ready && counts(&target.served.resource_id());
    holds.then_some(limit)
}

/// Takes a place for another object: what is written with it.
///
/// # Errors
/// 403 in kcp's words where there is none.
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
    Err(target.served.api.forbidden(name, why))
}

/// Events go by themselves, and help whoever wants to know what happened.
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
