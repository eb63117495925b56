//! Freezing and thawing of workspaces: `FreezeWorkspace` and `ThawWorkspace` of `WorkspaceService`.
//!
//! Both take the verb `freeze` on the Workspace in its parent, which the administrators of the
//! workspace itself do not have by that.

use crate::{
    fields,
    pages::hash,
    requests::Once,
    session::{AdminService, Session, right, workspace_path},
    status::{self, Fault},
};
use insula_api::{ClusterName, ClusterPath, Freeze, ObjectKey, names::groups};
use insula_auth::RoleVerb;
use insula_catalog::{
    ids,
    locate::{self, LogicalClusterView},
};
use insula_proto::admin::v1::{
    self as proto, ErrorReason, FreezeWorkspaceRequest, FreezeWorkspaceResponse, ThawWorkspaceRequest,
    ThawWorkspaceResponse,
};
use insula_registry::freeze::{self as freezes, Frozen, SUBTREE_MAX};
use insula_store::{Pinned, Snapshot};
use tonic::{Code, Request, Response, Status};

/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 1024;

/// A workspace on which the caller has a right in its parent.
pub(super) struct Child {
    /// Its Workspace.
    pub(super) workspace: ObjectKey,
    /// Its logical cluster.
    pub(super) cluster: ClusterName,
    path: ClusterPath,
}

impl Child {
    /// Finds a workspace by its path. `verb` is the verb on the Workspace that the caller needs.
    pub(super) fn find(session: &Session, workspace: &str, verb: impl Into<RoleVerb>) -> Result<Self, Status> {
        let path = workspace_path("workspace", workspace)?;
        let Some(parent) = path.parent() else {
            let problem = match path == ClusterPath::from(&ClusterName::root()) {
                true => format!("{path} has no parent: it can be neither frozen nor limited"),
                false => "write the path, such as root:org:team: the right is one in the parent".to_owned(),
            };
            return Err(status::invalid("workspace", problem));
        };
        let name = path.base();
        let above = session.locate(parent.as_str(), &right(verb, groups::TENANCY, "workspaces", name))?;
        let key = ObjectKey::cluster_scoped(ids::workspaces(), above.cluster.clone(), name);
        let entry = session.snapshot.get(&key);
        let entry = entry.ok_or_else(|| status::no_workspace(name))?;
        if entry.object.meta.awaits_deletion() {
            let why = format!("workspace {path} was deleted: WorkspaceService.UndeleteWorkspace takes that back");
            return Err(Fault::new(Code::FailedPrecondition, ErrorReason::WrongState, why)
                .resource("workspaces.tenancy.kcp.io", name)
                .status());
        }
        let cluster = locate::cluster_of(&session.snapshot, &above.cluster, name).ok_or_else(|| {
            let why = format!("workspace {path} has no logical cluster: it is a mount, or is not scheduled yet");
            Status::failed_precondition(why)
        })?;
        Ok(Child {
            path: locate::path_of(&session.snapshot, &cluster),
            workspace: key,
            cluster,
        })
    }

    /// Returns the workspace for a change of its freeze. With an etag it must not change meanwhile.
    fn as_frozen<'a>(&'a self, view: Option<&'a LogicalClusterView>, etag: &str) -> Frozen<'a> {
        Frozen {
            workspace: &self.workspace,
            cluster: &self.cluster,
            seen: (!etag.is_empty()).then(|| view.and_then(|view| view.frozen.as_deref())),
        }
    }

    /// Compares the state of the freeze with the one that the caller has seen.
    fn check_etag(&self, snapshot: &Snapshot, etag: &str) -> Result<(), Status> {
        match fields::etag(etag)?.is_none_or(|etag| etag == state(snapshot, &self.cluster)) {
            true => Ok(()),
            false => {
                let text = format!("etag: the freeze of workspace {} changed: read it again", self.path);
                let fault = Fault::new(Code::Aborted, ErrorReason::StaleEtag, text);
                Err(fault
                    .resource("workspaces.tenancy.kcp.io", &self.workspace.name)
                    .status())
            }
        }
    }
}

impl AdminService {
    pub(super) async fn freeze(
        &self,
        request: Request<FreezeWorkspaceRequest>,
    ) -> Result<Response<FreezeWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let found = Child::find(&session, &request.workspace, "freeze")?;
        if request.reason.len() > REASON_BYTES_MAX {
            return Err(status::invalid(
                "reason",
                format!("must have at most {REASON_BYTES_MAX} bytes"),
            ));
        }
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let entered = self.enter(&session, &found.workspace.cluster).await?;
        let work = entered.run(self.frozen(&session, &found, &request));
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn frozen(
        &self,
        session: &Session,
        found: &Child,
        request: &FreezeWorkspaceRequest,
    ) -> Result<FreezeWorkspaceResponse, Status> {
        found.check_etag(&session.snapshot, &request.etag)?;
        let below = match request.subtree {
            true => freezes::count_below(&session.snapshot, &found.cluster),
            false => 0,
        };
        session.check_walks()?;
        if below > SUBTREE_MAX {
            let problem = format!("the workspace has more than {SUBTREE_MAX} workspaces below it: freeze parts of it");
            return Err(status::invalid("subtree", problem));
        }
        let view = locate::logical_cluster(&session.snapshot, &found.cluster);
        if view.as_ref().is_none_or(|view| view.deleting) {
            return Err(Status::failed_precondition(format!(
                "workspace {} is being deleted",
                found.path
            )));
        }
        let known = view.as_ref().and_then(|view| view.frozen.as_deref());
        let is_same = |known: &&Freeze| known.subtree == request.subtree && known.reason == request.reason;
        let wanted = known.filter(is_same).cloned().unwrap_or_else(|| Freeze {
            workspace: found.path.to_string(),
            reason: request.reason.clone(),
            by: session.caller.name().to_owned(),
            at: self.registry().clock.now().to_string(),
            subtree: request.subtree,
        });
        let changed = match request.validate_only {
            true => 1 + below,
            false => {
                let of = found.as_frozen(view.as_deref(), &request.etag);
                let set = freezes::set(self.registry(), &of, Some(&wanted)).await;
                set.map_err(failed)?
            }
        };
        let snapshot = self.registry().store.latest();
        Ok(FreezeWorkspaceResponse {
            header: session.header_at(snapshot.revision()),
            freeze: Some(answer(&wanted)),
            changed: changed as i64,
            freeze_etag: state(&snapshot, &found.cluster),
        })
    }

    pub(super) async fn thaw(
        &self,
        request: Request<ThawWorkspaceRequest>,
    ) -> Result<Response<ThawWorkspaceResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let found = Child::find(&session, &request.workspace, "freeze")?;
        let once = Once {
            request_id: &request.request_id,
            validate_only: request.validate_only,
        };
        let entered = self.enter(&session, &found.workspace.cluster).await?;
        let work = entered.run(self.thawed(&session, &found, &request));
        self.once(&session, once, &request, work).await.map(Response::new)
    }

    async fn thawed(
        &self,
        session: &Session,
        found: &Child,
        request: &ThawWorkspaceRequest,
    ) -> Result<ThawWorkspaceResponse, Status> {
        found.check_etag(&session.snapshot, &request.etag)?;
        let view = locate::logical_cluster(&session.snapshot, &found.cluster);
        let (own, above) = match &view {
            Some(view) => (view.frozen.as_deref(), view.frozen_above.as_deref()),
            None => (None, None),
        };
        if let (None, Some(above)) = (own, above) {
            return Err(Status::failed_precondition(format!(
                "workspace {} is frozen with {} above it: thaw that one",
                found.path, above.workspace
            )));
        }
        let changed = match request.validate_only {
            true => usize::from(own.is_some()),
            false => {
                let of = found.as_frozen(view.as_deref(), &request.etag);
                let set = freezes::set(self.registry(), &of, None).await;
                set.map_err(failed)?
            }
        };
        let snapshot = self.registry().store.latest();
        let view = locate::logical_cluster(&snapshot, &found.cluster);
        Ok(ThawWorkspaceResponse {
            header: session.header_at(snapshot.revision()),
            freeze: view.and_then(|view| view.freeze().map(answer)),
            changed: changed as i64,
            freeze_etag: state(&snapshot, &found.cluster),
        })
    }
}

/// Returns the name of the state of a workspace's freeze: the same for the same state.
pub(super) fn state(snapshot: &Pinned, cluster: &ClusterName) -> String {
    let view = locate::logical_cluster(snapshot, cluster);
    let freezes = view.iter().map(|view| {
        let freezes = [view.frozen.as_deref(), view.frozen_above.as_deref()];
        format!("{freezes:?}")
    });
    let texts: Vec<String> = freezes.chain([cluster.to_string()]).collect();
    hash(texts.iter().map(String::as_str)).to_string()
}

/// Returns a freeze as an answer.
pub(super) fn answer(freeze: &Freeze) -> proto::Freeze {
    let Freeze {
        workspace,
        reason,
        by,
        at,
        subtree,
    } = freeze;
    let time = insula_api::Timestamp::parse(at);
    proto::Freeze {
        workspace: workspace.clone(),
        reason: reason.clone(),
        by: by.clone(),
        time: time.map(|at| prost_types::Timestamp {
            seconds: at.0,
            nanos: 0,
        }),
        subtree: *subtree,
    }
}

/// Returns the status of an error of the registry.
pub(super) fn failed(error: insula_catalog::Error) -> Status {
    use insula_catalog::Error;
    let text = error.to_string();
    match error {
        Error::NotFound { .. } => Status::not_found(text),
        Error::Conflict { .. } => Status::aborted(text),
        Error::Unavailable(_) | Error::InsufficientStorage(_) => Status::unavailable(text),
        _ => Status::internal(text),
    }
}
