//! Resolution of workspace paths to logical clusters.

use crate::{digest, exports::unbind, ids, limits::WorkspaceLimits, payer};
use insula_api::{ClusterName, ClusterPath, Freeze, Json, ObjectKey, kinds::WorkspacePhase, names::annotations};
use insula_auth::RequiredGroups;
use insula_store::Pinned;
use std::{fmt, sync::Arc};

/// The reason that a path does not resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotLocated {
    /// The first segment names no logical cluster (kcp answers 403).
    UnknownCluster(ClusterName),
    /// A workspace on the path does not exist (404).
    UnknownWorkspace { parent: ClusterName, name: String },
    /// The workspace exists but is not accessible yet or any more (503).
    Unavailable {
        parent: ClusterName,
        name: String,
        phase: String,
    },
    /// The workspace is a mount. `url` is the address of its content.
    Mounted { url: Arc<str> },
}

/// The message is for the audit log only: for clients it would reveal the existence of a cluster.
impl fmt::Display for NotLocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLocated::UnknownCluster(cluster) => write!(f, "there is no logical cluster {cluster}"),
            NotLocated::UnknownWorkspace { parent, name } => {
                write!(f, "the logical cluster {parent} has no workspace {name:?}")
            }
            NotLocated::Unavailable { parent, name, phase } => {
                write!(
                    f,
                    "the workspace {name:?} in the logical cluster {parent} is {phase}, and not Ready"
                )
            }
            NotLocated::Mounted { .. } => f.write_str("the workspace is a mount: its content is on another server"),
        }
    }
}

/// Levels of workspaces that [`awaits_deletion`] looks at: more than a path has.
const LEVELS_MAX: usize = 64;

/// The first segment of paths to home workspaces: `user:alice`.
pub const HOMES: &str = "user";

/// The parsed form of a Workspace for path resolution, cached with the stored object.
#[derive(Debug)]
struct Route {
    cluster: Option<ClusterName>,
    phase: String,
    /// URL of a mount's content.
    mount: Option<Arc<str>>,
}

/// Returns true if a logical cluster exists. System clusters always exist.
pub fn exists(snapshot: &Pinned, cluster: &ClusterName) -> bool {
    cluster.is_system() || snapshot.get(&ids::logical_cluster(cluster)).is_some()
}

/// Returns true if a logical cluster is deactivated, so no caller can reach its content.
pub fn is_inactive(snapshot: &Pinned, cluster: &ClusterName) -> bool {
    logical_cluster(snapshot, cluster).is_some_and(|view| view.inactive)
}

/// Returns true for the cluster of a workspace whose deletion may still be taken back, and for
/// those below it. To their tenants such workspaces are gone.
pub fn awaits_deletion(snapshot: &Pinned, cluster: &ClusterName) -> bool {
    view_awaits_deletion(snapshot, logical_cluster(snapshot, cluster))
}

fn view_awaits_deletion(snapshot: &Pinned, mut view: Option<Arc<LogicalClusterView>>) -> bool {
    for _ in 0..LEVELS_MAX {
        let Some((parent, name)) = view.as_ref().and_then(|view| view.workspace.as_ref()) else {
            return false;
        };
        let workspace = ObjectKey::cluster_scoped(ids::workspaces(), parent.clone(), name);
        if snapshot
            .get(&workspace)
            .is_some_and(|entry| entry.object.meta.awaits_deletion())
        {
            return true;
        }
        view = logical_cluster(snapshot, parent);
    }
    false
}

/// Resolves a path: the first segment names a cluster, each further segment a Workspace in the
/// cluster resolved so far. Workspaces that await their deletion resolve like others, so that
/// nothing that refers to them changes until they go.
///
/// # Errors
/// Returns the reason that the path does not resolve.
pub fn locate(snapshot: &Pinned, path: &ClusterPath) -> Result<ClusterName, NotLocated> {
    walk(snapshot, path, true).map(|(cluster, _)| cluster)
}

/// Resolves the path of a request, and returns the LogicalCluster as well. System clusters have
/// none. Workspaces that await their deletion do not resolve, nor do those below them.
///
/// # Errors
/// Returns the reason that the path does not resolve.
pub fn locate_view(
    snapshot: &Pinned,
    path: &ClusterPath,
) -> Result<(ClusterName, Option<Arc<LogicalClusterView>>), NotLocated> {
    walk(snapshot, path, false)
}

/// Resolves a path. `awaiting` is true if workspaces that await their deletion resolve.
fn walk(
    snapshot: &Pinned,
    path: &ClusterPath,
    awaiting: bool,
) -> Result<(ClusterName, Option<Arc<LogicalClusterView>>), NotLocated> {
    let (mut cluster, rest) = home_of(snapshot, path).unwrap_or_else(|| path.split_first());
    let view = logical_cluster(snapshot, &cluster);
    let is_there = view.is_some() || cluster.is_system();
    if !is_there || !awaiting && view_awaits_deletion(snapshot, view.clone()) {
        return Err(NotLocated::UnknownCluster(cluster));
    }
    if rest.is_empty() {
        return Ok((cluster, view));
    }
    let last = rest.len() - 1;
    for (at, name) in rest.into_iter().enumerate() {
        let key = ObjectKey::cluster_scoped(ids::workspaces(), cluster.clone(), name);
        let entry = snapshot.get(&key);
        let Some(entry) = entry.filter(|entry| awaiting || !entry.object.meta.awaits_deletion()) else {
            return Err(NotLocated::UnknownWorkspace {
                parent: cluster,
                name: name.to_owned(),
            });
        };
        let route = entry.object.parsed(|object| read_route(&object.body_value()));
        cluster = match &route.cluster {
            // Only the other server can resolve segments below a mount.
            None if at == last && route.phase == "Ready" && route.mount.is_some() => {
                let url = route.mount.clone().unwrap_or_default();
                return Err(NotLocated::Mounted { url });
            }
            Some(child) if route.phase != "Unavailable" && route.phase != "Scheduling" => child.clone(),
            _ => {
                let phase = route.phase.clone();
                return Err(NotLocated::Unavailable {
                    parent: cluster,
                    name: name.to_owned(),
                    phase,
                });
            }
        };
    }
    let view = logical_cluster(snapshot, &cluster);
    Ok((cluster, view))
}

/// Returns the home cluster of a path that begins with `user:<name>`, and the remaining segments.
fn home_of<'a>(snapshot: &Pinned, path: &'a ClusterPath) -> Option<(ClusterName, Vec<&'a str>)> {
    let (first, rest) = path.split_first();
    let (user, below) = rest.split_first().filter(|_| first.as_str() == HOMES)?;
    let cluster = digest::home_cluster(user);
    let own = logical_cluster(snapshot, &cluster)?;
    let is_home = own
        .path
        .as_ref()
        .is_some_and(|own| own.as_str() == format!("{HOMES}:{user}"));
    is_home.then(|| (cluster, below.to_vec()))
}

/// Returns the logical cluster of a Workspace, available or not.
pub fn cluster_of(snapshot: &Pinned, parent: &ClusterName, name: &str) -> Option<ClusterName> {
    let entry = snapshot.get(&ObjectKey::cluster_scoped(ids::workspaces(), parent.clone(), name))?;
    let route = entry.object.parsed(|object| read_route(&object.body_value()));
    route.cluster.clone()
}

fn read_route(workspace: &Json) -> Route {
    let text = |pointer: &str| workspace.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    Route {
        cluster: ClusterName::parse(text("/spec/cluster")).ok(),
        phase: text("/status/phase").to_owned(),
        mount: workspace["spec"]["mount"].is_object().then(|| text("/spec/URL").into()),
    }
}

/// Returns the canonical path of a cluster, from an annotation of its LogicalCluster. Without the
/// annotation, returns the cluster's name as a path.
pub fn path_of(snapshot: &Pinned, cluster: &ClusterName) -> ClusterPath {
    let known = logical_cluster(snapshot, cluster).and_then(|view| view.path.clone());
    known.unwrap_or_else(|| ClusterPath::from(cluster))
}

/// The parsed form of a LogicalCluster for request handling, cached with the stored object.
#[derive(Debug)]
pub struct LogicalClusterView {
    /// Canonical path.
    pub path: Option<ClusterPath>,
    /// Cluster and name of the Workspace that it belongs to.
    pub workspace: Option<(ClusterName, Box<str>)>,
    /// `status.phase`.
    pub phase: WorkspacePhase,
    /// True if the cluster is being deleted.
    pub deleting: bool,
    /// True if an annotation deactivates the cluster.
    pub inactive: bool,
    /// Freeze of the workspace itself, from an annotation.
    pub frozen: Option<Box<Freeze>>,
    /// Freeze of a workspace above it, from an annotation.
    pub frozen_above: Option<Box<Freeze>>,
    /// Limits on requests and storage, from an annotation.
    pub limits: Option<Box<WorkspaceLimits>>,
    /// Limit on the objects of the cluster, from an annotation. 0 means no limit; None means that
    /// the server's default applies.
    pub objects_max: Option<u64>,
    /// Seconds for which the deletion of its APIBindings may be taken back, from an annotation.
    pub unbind_grace_seconds: u64,
    /// `status.initializers`.
    pub initializers: Box<[Box<str>]>,
    /// `status.terminators`.
    pub terminators: Box<[Box<str>]>,
    /// Name of the workspace's owner.
    pub owner: Option<Arc<str>>,
    /// True if the owner pays: an administrator of the platform creates workspaces for others.
    owner_pays: bool,
    /// Groups that callers need for access.
    pub required_groups: Option<Arc<RequiredGroups>>,
    /// `<path of the type>:<name of the type>`.
    pub workspace_type: String,
}

impl LogicalClusterView {
    /// Reads a LogicalCluster.
    pub fn read(object: &Json) -> Self {
        let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
        let names = |field: &str| {
            let list = object["status"][field].as_array().into_iter().flatten();
            list.filter_map(Json::as_str).map(Box::from).collect()
        };
        let owner = annotation("experimental.tenancy.kcp.io/owner");
        let owner_pays = owner.and_then(payer::of_owner).is_some();
        let owner = owner
            .and_then(|text| serde_json::from_str::<Json>(text).ok())
            .and_then(|user| user["username"].as_str().map(Arc::from));
        let workspace = &object["spec"]["owner"];
        let workspace = Some(workspace).filter(|owner| owner["resource"] == "workspaces");
        LogicalClusterView {
            workspace: workspace.and_then(|owner| {
                let cluster = ClusterName::parse(owner["cluster"].as_str()?).ok()?;
                Some((cluster, owner["name"].as_str()?.into()))
            }),
            path: annotation("kcp.io/path").and_then(|path| ClusterPath::parse(path).ok()),
            phase: WorkspacePhase::parse(object["status"]["phase"].as_str().unwrap_or_default()),
            deleting: object["metadata"]["deletionTimestamp"].is_string(),
            inactive: annotations::INACTIVE.iter().any(|key| annotation(key) == Some("true")),
            limits: annotation(annotations::LIMITS).map(|text| Box::new(WorkspaceLimits::read(text))),
            frozen: annotation(annotations::FROZEN).map(|text| Box::new(Freeze::read(text))),
            frozen_above: annotation(annotations::FROZEN_ABOVE).map(|text| Box::new(Freeze::read(text))),
            // As in kcp, a negative number means no limit. A value that is not a number is ignored.
            objects_max: annotation("core.kcp.io/max-total-objects")
                .and_then(|text| text.parse::<i64>().ok())
                .map(|limit| u64::try_from(limit).unwrap_or(0)),
            unbind_grace_seconds: unbind::grace_seconds_in(object),
            initializers: names("initializers"),
            terminators: names("terminators"),
            owner,
            owner_pays,
            required_groups: annotation(annotations::REQUIRED_GROUPS).map(|text| Arc::new(RequiredGroups::read(text))),
            workspace_type: annotation("internal.tenancy.kcp.io/type")
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Returns the user that pays for what the workspace stores and computes.
    pub fn payer(&self) -> Option<&Arc<str>> {
        self.owner.as_ref().filter(|_| self.owner_pays)
    }

    /// Returns the freeze of the cluster: its own, or one from above. None while it is being
    /// deleted.
    pub fn freeze(&self) -> Option<&Freeze> {
        let freeze = self.frozen.as_deref().or(self.frozen_above.as_deref());
        freeze.filter(|_| !self.deleting)
    }

    /// Returns the freeze that the cluster hands on to the workspaces below it.
    pub fn handed_down(&self) -> Option<&Freeze> {
        let own = self.frozen.as_deref().filter(|freeze| freeze.subtree);
        own.or(self.frozen_above.as_deref())
    }
}

/// Returns the parsed LogicalCluster of a cluster.
pub fn logical_cluster(snapshot: &Pinned, cluster: &ClusterName) -> Option<Arc<LogicalClusterView>> {
    let entry = snapshot.get(&ids::logical_cluster(cluster))?;
    Some(
        entry
            .object
            .parsed(|object| LogicalClusterView::read(&object.body_value())),
    )
}
