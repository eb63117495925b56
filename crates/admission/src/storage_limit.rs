//! Limits of what a workspace and all workspaces of one owner store: the bytes of their objects in
//! memory, and for owners the number of objects.
//!
//! The store counts with every write ([`insula_store::usage`]), so a check takes constant time.
//! Writes that are under way are not counted yet: the limits of requests and bytes in flight bound
//! by how much a limit can be exceeded. A write that makes an object no larger is always taken.

use insula_access::Target;
use insula_api::{ClusterName, Object, kinds::WorkspacePhase, names::groups};
use insula_auth::{GROUP_MASTERS, UserInfo};
use insula_catalog::{Result, ids, locate};
use insula_store::{Snapshot, usage};

/// Bytes of the objects that a new workspace begins with, generously.
const NEW_WORKSPACE_BYTES: u64 = 64 << 10;

/// Limits of the server; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageLimits {
    /// Bytes of a workspace that has no limit of its own.
    pub workspace_bytes: u64,
    /// Bytes of all workspaces of one owner.
    pub owner_bytes: u64,
    /// Objects of all workspaces of one owner.
    pub owner_objects: u64,
}

/// Checks that an object may take the place of another one.
///
/// # Errors
/// 403 with the numbers when the workspace or its owner would store more than they may.
pub fn check(
    limits: &StorageLimits,
    snapshot: &Snapshot,
    target: &Target,
    (old, new): (Option<&Object>, &Object),
) -> Result<()> {
    let before = old.map_or(0, usage::bytes);
    let added = usage::bytes(new).saturating_sub(before) as u64;
    let cluster = &target.cluster;
    // The workspace's own record stays writable, so that its limits can be changed.
    if added == 0 || *cluster == ClusterName::root() || target.served.resource_id() == ids::logicalclusters() {
        return Ok(());
    }
    let Some(view) = locate::logical_cluster(snapshot, cluster).filter(|view| view.phase == WorkspacePhase::Ready)
    else {
        return Ok(());
    };
    let refused = |why: String| Err(target.served.api.quota_exceeded(&new.meta.name, why));
    let used = snapshot.usage(cluster);
    let own = view.limits.as_ref().and_then(|limits| limits.storage);
    let (stored, limit) = (used.cluster.bytes as u64, own.unwrap_or(limits.workspace_bytes));
    if limit > 0 && stored + added > limit {
        return refused(format!(
            "logical cluster {:?} has reached its storage limit ({stored}/{limit} bytes, and this write adds {added}); \
             delete objects to free up capacity",
            cluster.as_str(),
        ));
    }
    let Some((owner, used)) = used.payer else { return Ok(()) };
    let (stored, limit) = (used.bytes as u64, limits.owner_bytes);
    if limit > 0 && stored + added > limit {
        return refused(format!(
            "the workspaces of their owner {owner:?} have reached the storage limit of an owner ({stored}/{limit} \
             bytes, and this write adds {added}); delete objects to free up capacity",
        ));
    }
    let (objects, limit) = (used.objects as u64, limits.owner_objects);
    if limit > 0 && old.is_none() && objects >= limit {
        return refused(format!(
            "the workspaces of their owner {owner:?} have reached the object count limit of an owner \
             ({objects}/{limit} objects); delete objects to free up capacity",
        ));
    }
    Ok(())
}

/// Checks that a user may create another workspace, for which the user will pay.
///
/// # Errors
/// 403 with the numbers when the user's workspaces store as much as they may.
pub fn check_owner(
    limits: &StorageLimits,
    snapshot: &Snapshot,
    target: &Target,
    name: &str,
    user: &UserInfo,
) -> Result<()> {
    let api = &target.served.api;
    if *api.group != *groups::TENANCY || *api.names.plural != *"workspaces" || user.is_in(GROUP_MASTERS) {
        return Ok(());
    }
    let used = snapshot.payer_usage(&user.name);
    for (used, limit, unit) in [
        (used.bytes as u64 + NEW_WORKSPACE_BYTES, limits.owner_bytes, "bytes"),
        (used.objects as u64 + 1, limits.owner_objects, "objects"),
    ] {
        if limit > 0 && used > limit {
            let why = format!(
                "the workspaces of {:?} have reached the storage limit of an owner ({used}/{limit} {unit} with this \
                 one); delete objects to free up capacity",
                user.name,
            );
            return Err(api.quota_exceeded(name, why));
        }
    }
    Ok(())
}
