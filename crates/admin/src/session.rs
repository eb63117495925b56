//! Access of gRPC calls: the edge that they share with HTTP has found out who calls; here each
//! right is asked for.

use crate::{status, workers::WorkerPool};
use insula_api::{ClusterName, ClusterPath, Revision, Timestamp};
use insula_apiserver::{
    ApiServer,
    call::{Caller, Entered},
};
use insula_auth::{Attributes, Forbidden, UserInfo};
use insula_proto::admin::v1::ResponseHeader;
use insula_registry::{
    Registry,
    locate::{self, NotLocated},
};
use insula_store::Snapshot;
use std::sync::Arc;
use tonic::{Request, Status};

/// A name that no cluster has: rights there are those that somebody has everywhere.
const NOWHERE: &str = "nowhere";

/// State that every service holds.
#[derive(Clone)]
pub struct AdminService {
    /// The HTTP face, whose edge and limits the services share.
    pub api: Arc<ApiServer>,
    /// Threads for what takes long.
    pub workers: Arc<WorkerPool>,
    /// Facts that `ClusterService.GetInfo` tells.
    pub info: Arc<Info>,
}

/// Facts about this server.
#[derive(Debug, Clone)]
pub struct Info {
    /// Version of Insula.
    pub version: String,
    /// Version of Kubernetes whose API is served.
    pub kubernetes_version: String,
    /// `embedded`, `etcd` or `memory`.
    pub store: String,
    /// When the server started.
    pub started: Timestamp,
}

/// A call that is being answered: its caller, and the state that is looked at.
pub struct Session {
    /// The caller.
    pub caller: Arc<Caller>,
    /// The state.
    pub snapshot: Snapshot,
    request_id: String,
}

/// A workspace that a call may look at.
pub struct Located {
    /// Its logical cluster.
    pub cluster: ClusterName,
    /// Its path as the caller wrote it.
    pub path: ClusterPath,
}

/// A resource and a verb, as the chain is asked about them.
pub(crate) fn asked(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
    Attributes {
        verb: verb.into(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        is_resource_request: true,
        ..Attributes::default()
    }
}

fn forbidden(forbidden: Forbidden) -> Status {
    Status::permission_denied(forbidden.message)
}

/// The caller, whom the edge has put among the extensions.
pub(crate) fn caller<T>(request: &Request<T>) -> Result<&Arc<Caller>, Status> {
    let caller = request.extensions().get::<Arc<Caller>>();
    caller.ok_or_else(|| Status::unauthenticated("Unauthorized"))
}

impl AdminService {
    /// The objects.
    pub fn registry(&self) -> &Registry {
        &self.api.registry
    }

    /// Begins to answer a call at the latest state.
    pub async fn begin<T>(&self, request: &Request<T>) -> Result<Session, Status> {
        let caller = Arc::clone(caller(request)?);
        let snapshot = self.api.registry.store.snapshot(Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Status::unavailable(error.to_string()))?;
        let given = request.metadata().get("audit-id").and_then(|id| id.to_str().ok());
        Ok(Session {
            caller,
            snapshot,
            request_id: given.unwrap_or_default().to_owned(),
        })
    }

    /// Has a workspace answer a call, and pay for it, within its limits.
    pub async fn enter(&self, visit: &Session, cluster: &ClusterName) -> Result<Entered, Status> {
        let entered = self.api.enter(&visit.caller, cluster).await;
        entered.map_err(|refusal| status::refused(&refusal))
    }
}

impl Session {
    /// The header of each reply.
    pub fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: "root".into(),
            shard: "root".into(),
            revision: self.snapshot.revision().0,
            request_id: self.request_id.clone(),
        })
    }

    /// The user, for calls that are about no workspace.
    pub fn user(&self) -> Result<&UserInfo, Status> {
        self.caller.user().map_err(|refused| {
            self.caller.record().refused(&refused.message);
            forbidden(refused)
        })
    }

    /// Asks the chain for a right in a cluster.
    pub fn permit(&self, cluster: &ClusterName, asked: Attributes) -> Result<(), Status> {
        let decided = self.caller.permit(&self.snapshot, cluster, asked);
        let record = self.caller.record();
        match decided {
            Ok(permit) => record.decided(true, permit.reason(), permit.trail()),
            Err(refused) => {
                record.decided(false, &refused.reason, &refused.trail);
                record.refused(&refused.message);
                return Err(forbidden(refused));
            }
        }
        Ok(())
    }

    /// Finds a workspace in which the caller has a right. Without it, a workspace that exists and
    /// one that does not are answered with the same words.
    pub fn locate(&self, path: &str, asked: &Attributes) -> Result<Located, Status> {
        let path = ClusterPath::parse(path).map_err(|error| {
            Status::invalid_argument(format!("workspace: {error}; write a path such as root:org:team"))
        })?;
        match locate::locate(&self.snapshot, &path) {
            Ok(cluster) => {
                self.caller.record().located(Some(&cluster), Some(&path));
                self.permit(&cluster, asked.clone())?;
                Ok(Located { cluster, path })
            }
            Err(why) => Err(self.not_located(&path, &why, asked)),
        }
    }

    /// The answer about a workspace that cannot be entered. Why is for those who may read it in the
    /// workspace above.
    fn not_located(&self, path: &ClusterPath, why: &NotLocated, asked: &Attributes) -> Status {
        let told = match why {
            NotLocated::UnknownCluster(_) => None,
            NotLocated::UnknownWorkspace { parent, name } => {
                let text = format!("workspaces.tenancy.kcp.io {name:?} not found");
                Some((Some(parent.clone()), name.as_str(), Status::not_found(text)))
            }
            NotLocated::Unavailable { parent, name, phase } => {
                let text = format!("workspace {name:?} is not available: its phase is {phase}");
                Some((Some(parent.clone()), name.as_str(), Status::unavailable(text)))
            }
            NotLocated::Mounted { .. } => {
                let above = path.parent();
                let parent = above.and_then(|above| locate::locate(&self.snapshot, &above).ok());
                let text = format!("workspace {path} is a mount: its content is on another server, ask there");
                Some((parent, path.base(), Status::failed_precondition(text)))
            }
        };
        let record = self.caller.record();
        if let Some((Some(parent), name, told)) = told
            && let above = self::asked("get", "tenancy.kcp.io", "workspaces", name)
            && self.caller.permit(&self.snapshot, &parent, above).is_ok()
        {
            record.refused(why);
            return told;
        }
        let nowhere = ClusterName::parse(NOWHERE).expect("a name");
        let refused = self.permit(&nowhere, asked.clone()).err();
        record.refused(why);
        refused.unwrap_or_else(|| Status::permission_denied(self.caller.forbidden_message(asked)))
    }
}
