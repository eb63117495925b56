//! Sessions: authorisation of gRPC calls. The edge has authenticated the caller; a session asks for
//! each right at one state.

use crate::{host::Host, operations::Operations, requests::Requests, status, workers::WorkerPool};
use futures_util::future::BoxFuture;
use insula_access::WorkspaceNames;
use insula_api::{
    ClusterName, ClusterPath, Json, Revision, Timestamp, Verb,
    names::{groups, well_known},
};
use insula_apiserver::{
    ApiServer,
    call::{Caller, Entered},
};
use insula_auth::{Attributes, ClusterFacts, RoleVerb, UserInfo};
use insula_catalog::{
    ids,
    locate::{self, NotLocated},
};
use insula_edge::port::crossing;
use insula_proto::admin::v1::ResponseHeader;
use insula_registry::Deps;
use insula_registry::servers::Server;
use insula_store::Snapshot;
use std::sync::{Arc, OnceLock};
use tonic::{Request, Status};

/// A name that no cluster has: rights there are those that a user has everywhere.
const NO_CLUSTER: &str = "nowhere";
/// The metadata with the id of a request, which the edge has checked or made up.
const REQUEST_ID: &str = "x-request-id";

/// Permits of uploads.
pub type Uploads = tokio::sync::Semaphore;

/// The admin services' shared state.
#[derive(Clone)]
pub struct AdminService {
    /// The API server, whose edge and limits the services share.
    pub api: Arc<ApiServer>,
    /// Threads for calls that take long.
    pub workers: Arc<WorkerPool>,
    /// Operations.
    pub operations: Arc<Operations>,
    /// The server around the services.
    pub host: Arc<dyn Host>,
    /// Facts of `ClusterService.GetInfo`.
    pub info: Arc<Info>,
    /// Permit of the one upload of a backup that runs at a time.
    pub uploads: Arc<Uploads>,
    /// Requests with a `request_id` that this server runs.
    pub requests: Arc<Requests>,
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
    /// Time at which the server started.
    pub started: Timestamp,
}

/// A call that is being answered: its caller, and the state that it reads.
pub struct Session {
    /// The caller.
    pub caller: Arc<Caller>,
    /// The state.
    pub snapshot: Snapshot,
    pub(crate) api: Arc<ApiServer>,
    request_id: String,
    /// When the request of the call, told by its `request_id`, ran for the first time, if it runs
    /// again.
    first_run: OnceLock<Timestamp>,
}

/// A workspace in which the caller has a right.
pub struct Located {
    /// Its logical cluster.
    pub cluster: ClusterName,
    /// Its path as the caller wrote it.
    pub path: ClusterPath,
}

/// Returns the right to a verb on a resource.
pub(crate) fn right(verb: impl Into<RoleVerb>, group: &str, resource: &str, name: &str) -> Attributes {
    Attributes {
        verb: verb.into(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        is_resource_request: true,
        ..Attributes::default()
    }
}

/// Reads the path of a workspace, or the name of its logical cluster, from a field of a request.
pub(crate) fn workspace_path(field: &str, path: &str) -> Result<ClusterPath, Status> {
    if path.is_empty() {
        return Err(status::invalid(
            field,
            "is required: write a path such as root:org:team",
        ));
    }
    ClusterPath::parse(path)
        .map_err(|error| status::invalid(field, format!("{error}; write a path such as root:org:team")))
}

/// Reads the path of a workspace that has a parent, for rights that are rights in the parent. The
/// second path is that of the parent.
pub(crate) fn child_path(field: &str, path: &str) -> Result<(ClusterPath, ClusterPath), Status> {
    let path = workspace_path(field, path)?;
    let parent = path.parent().ok_or_else(|| {
        let problem = "write the path, such as root:org:team: the right is one in the parent";
        status::invalid(field, problem)
    })?;
    Ok((path, parent))
}

/// Returns the caller, whom the edge has admitted.
pub(crate) fn caller<T>(request: &Request<T>) -> Result<&Arc<Caller>, Status> {
    crossing::caller(request).ok_or_else(|| Status::unauthenticated("Unauthorized"))
}

impl AdminService {
    /// Returns the registry of objects.
    pub fn registry(&self) -> &Deps {
        &self.api.registry
    }

    /// Returns this server, as it shows itself to others on the same store.
    pub fn server(&self) -> Server {
        Server {
            name: self.registry().team.run().to_owned(),
            url: self.registry().external_url.clone(),
            version: self.info.version.clone(),
            started: self.info.started.0,
            format: insula_store::FORMAT,
        }
    }

    /// Begins the session of a call at the latest state.
    pub fn begin<T>(&self, request: &Request<T>) -> BoxFuture<'static, Result<Session, Status>> {
        let caller = caller(request).cloned();
        let given = request.metadata().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let request_id = given.unwrap_or_default().to_owned();
        let api = Arc::clone(&self.api);
        Box::pin(async move {
            let caller = caller?;
            let snapshot = api.registry.store.snapshot(Revision(0)).await;
            let snapshot = snapshot.map_err(|error| Status::unavailable(error.to_string()))?;
            Ok(Session {
                snapshot: snapshot.charged_to(caller.work()),
                caller,
                api,
                request_id,
                first_run: OnceLock::new(),
            })
        })
    }

    /// Enters a workspace with a call, which counts against the workspace's limits from here on.
    pub fn enter<'a>(
        &'a self,
        session: &'a Session,
        cluster: &'a ClusterName,
    ) -> BoxFuture<'a, Result<Entered, Status>> {
        Box::pin(async move {
            let entered = self.api.enter(&session.caller, cluster).await;
            entered.map_err(|refusal| status::refused(&refusal))
        })
    }
}

impl Session {
    /// Returns the header of a reply that was read at the session's state.
    pub fn header(&self) -> Option<ResponseHeader> {
        self.header_at(self.snapshot.revision())
    }

    /// Returns the header of a reply that was read at a revision.
    pub fn header_at(&self, revision: Revision) -> Option<ResponseHeader> {
        let root = self.snapshot.get(&ids::logical_cluster(&ClusterName::root()));
        Some(ResponseHeader {
            cluster_id: root.map(|root| root.object.meta.uid.to_string()).unwrap_or_default(),
            shard: well_known::SHARD.into(),
            revision: revision.0,
            request_id: self.request_id.clone(),
        })
    }

    /// Refuses when the request of the call has ended: a walk for it has found a part since, which
    /// is no verdict.
    pub(crate) fn check_walks(&self) -> Result<(), Status> {
        let ended = self.caller.work().check();
        ended.map_err(|ended| Status::unavailable(ended.to_string()))
    }

    /// Says that the request of the call has run before, and since when.
    pub(crate) fn runs_again(&self, first_run: Timestamp) {
        // A call has one request.
        let _ = self.first_run.set(first_run);
    }

    /// Returns true if an earlier run of the call's request may have made objects.
    pub(crate) fn has_earlier_run(&self) -> bool {
        self.first_run.get().is_some()
    }

    /// Returns true for an object that an earlier run of the call's request may have made: it is
    /// younger than that run. The caller compares it with what the request asks for.
    pub(crate) fn is_of_earlier_run(&self, object: &Json) -> bool {
        let created = object["metadata"]["creationTimestamp"].as_str();
        let created = created.and_then(Timestamp::parse);
        let first_run = self.first_run.get().copied();
        first_run.is_some_and(|first_run| created.is_some_and(|created| created >= first_run))
    }

    /// Returns the header of a reply with an object that was written: at its revision, or at that
    /// of the session's state if it is newer.
    pub(crate) fn header_of(&self, written: &Json) -> Option<ResponseHeader> {
        let revision = written["metadata"]["resourceVersion"].as_str();
        let revision = revision.and_then(|revision| revision.parse().ok()).unwrap_or_default();
        self.header_at(self.snapshot.revision().max(Revision(revision)))
    }

    /// Asks for a right to the installation, as the endpoint of the path would: only administrators
    /// of the platform have it.
    pub fn administer(&self, verb: impl Into<RoleVerb>, path: &str) -> Result<(), Status> {
        let user = self.user()?;
        let right = Attributes {
            verb: verb.into(),
            path: path.to_owned(),
            ..Attributes::default()
        };
        let record = self.caller.record();
        match insula_auth::permit(user, right, &ClusterFacts::default()) {
            Ok(permit) => {
                record.decided(true, permit.reason(), permit.trail());
                Ok(())
            }
            Err(refused) => {
                record.decided(false, &refused.reason, &refused.trail);
                record.refused(&refused.message);
                Err(status::forbidden(refused))
            }
        }
    }

    /// Returns true for callers who have a right to the installation. Leaves no trace in the audit
    /// log: the answer is only fuller for them.
    pub fn may_administer(&self, verb: impl Into<RoleVerb>, path: &str) -> bool {
        let right = Attributes {
            verb: verb.into(),
            path: path.to_owned(),
            ..Attributes::default()
        };
        self.user()
            .is_ok_and(|user| insula_auth::permit(user, right, &ClusterFacts::default()).is_ok())
    }

    /// Returns the user, for calls that are about no workspace.
    pub fn user(&self) -> Result<&UserInfo, Status> {
        self.caller.user().map_err(|refused| {
            self.caller.record().refused(&refused.message);
            status::forbidden(refused)
        })
    }

    /// Returns the names of workspaces that the answer may have, as of a state.
    pub(crate) fn names(&self, snapshot: &Snapshot) -> Result<WorkspaceNames, Status> {
        Ok(WorkspaceNames::new(snapshot, self.user()?))
    }

    /// Asks the authorizers for a right in a cluster.
    pub fn permit(&self, cluster: &ClusterName, right: Attributes) -> Result<(), Status> {
        let decided = self.caller.permit(&self.snapshot, cluster, right);
        let record = self.caller.record();
        match decided {
            Ok(permit) => record.decided(true, permit.reason(), permit.trail()),
            Err(refused) => {
                record.decided(false, &refused.reason, &refused.trail);
                record.refused(&refused.message);
                return Err(status::forbidden(refused));
            }
        }
        Ok(())
    }

    /// Finds the workspace that the field `workspace` of a request names, as
    /// [`Session::locate_field`] does.
    pub fn locate(&self, path: &str, right: &Attributes) -> Result<Located, Status> {
        self.locate_field("workspace", path, right)
    }

    /// Finds a workspace in which the caller has a right. Without the right, the answer is the same
    /// for a workspace that exists and for one that does not. `field` is the path of the request's
    /// field that names the workspace.
    pub fn locate_field(&self, field: &str, path: &str, right: &Attributes) -> Result<Located, Status> {
        let path = workspace_path(field, path)?;
        match locate::locate_view(&self.snapshot, &path) {
            Ok((cluster, _)) => {
                self.caller.record().located(Some(&cluster), Some(&path));
                self.permit(&cluster, right.clone())?;
                Ok(Located { cluster, path })
            }
            Err(why) => Err(self.not_located(&path, &why, right)),
        }
    }

    /// Returns the status for a workspace that cannot be entered. Callers who may read it in its
    /// parent learn the reason.
    fn not_located(&self, path: &ClusterPath, why: &NotLocated, right: &Attributes) -> Status {
        let (parent, name) = match why {
            NotLocated::UnknownCluster(_) => (None, ""),
            NotLocated::UnknownWorkspace { parent, name } | NotLocated::Unavailable { parent, name, .. } => {
                (Some(parent.clone()), name.as_str())
            }
            NotLocated::Mounted { .. } => {
                let above = path.parent();
                let parent = above.and_then(|above| locate::locate(&self.snapshot, &above).ok());
                (parent, path.base())
            }
        };
        let record = self.caller.record();
        if let (Some(parent), Some(status)) = (parent, status::not_located(path, why))
            && let above = self::right(Verb::Get, groups::TENANCY, "workspaces", name)
            && self.caller.permit(&self.snapshot, &parent, above).is_ok()
        {
            record.refused(why);
            return status;
        }
        let no_cluster = ClusterName::parse(NO_CLUSTER).expect("a name");
        let refused = self.permit(&no_cluster, right.clone()).err();
        record.refused(why);
        refused.unwrap_or_else(|| Status::permission_denied(self.caller.forbidden_message(right)))
    }
}
