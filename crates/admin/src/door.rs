//! The way in: who asks, where, and whether they may. The same chain as for HTTP; there is no side door.

use insula_api::{ClusterName, ClusterPath, Timestamp, Uid};
use insula_auth::{Attributes, ClusterFacts, Permit, UserInfo, audit::Record, forbidden_message, permit};
use insula_proto::admin::v1::ResponseHeader;
use insula_registry::{
    Registry,
    access::{self, Authenticator, PeerCertificate},
    locate::{self, NotLocated},
};
use insula_store::Snapshot;
use std::sync::Arc;
use tonic::{Extensions, Request, Status, metadata::MetadataMap};

/// What every service holds.
#[derive(Clone)]
pub struct Door {
    /// The objects.
    pub registry: Arc<Registry>,
    /// Who is who.
    pub authenticator: Arc<Authenticator>,
    /// What `ClusterService.GetInfo` tells.
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

/// Somebody who was let in, and the state that was looked at.
pub struct Visit {
    /// Who.
    pub user: UserInfo,
    /// The state.
    pub snapshot: Snapshot,
    request_id: String,
    record: Record,
}

impl Door {
    /// Finds out who asks, about a workspace (or, if that is empty, none). Nobody is let in without a credential.
    pub async fn authenticate(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
        workspace: &str,
    ) -> Result<UserInfo, Status> {
        let record = extensions.get::<Record>().cloned().unwrap_or_default();
        let credentials = metadata.get_all("authorization");
        let user = self
            .authenticator
            .authenticate(
                extensions.get::<PeerCertificate>(),
                credentials.iter().map(|value| value.as_encoded_bytes()),
                // What a workspace's issuers say counts in that workspace alone.
                || {
                    let (snapshot, path) = (self.registry.store.latest(), ClusterPath::parse(workspace).ok()?);
                    let cluster = locate::locate(&snapshot, &path).ok()?;
                    Some((snapshot, cluster))
                },
            )
            .await
            .map_err(|why| {
                tracing::info!(%why, "authentication failed");
                record.refused(&why);
                Status::unauthenticated("Unauthorized")
            })?;
        record.known(&user);
        if user.name == insula_auth::USER_ANONYMOUS {
            record.refused("no credential was shown");
            return Err(Status::unauthenticated("Unauthorized"));
        }
        Ok(user)
    }

    /// Opens the door to somebody with a credential; what they may see is asked for each thing. The workspace is the one that
    /// is asked about, if one is.
    pub async fn enter<T>(&self, request: &Request<T>, workspace: &str) -> Result<Visit, Status> {
        let user = self
            .authenticate(request.metadata(), request.extensions(), workspace)
            .await?;
        let snapshot = self.registry.store.snapshot(insula_api::Revision(0)).await;
        let snapshot = snapshot.map_err(|error| Status::unavailable(error.to_string()))?;
        let given = request.metadata().get("audit-id").and_then(|id| id.to_str().ok());
        let request_id = given.map_or_else(|| Uid::random(&*self.registry.rng).to_string(), str::to_owned);
        Ok(Visit {
            user,
            snapshot,
            request_id,
            record: request.extensions().get::<Record>().cloned().unwrap_or_default(),
        })
    }

    /// Finds a workspace. One that does not exist and one that may not be seen look the same.
    pub fn locate(&self, visit: &Visit, path: &str) -> Result<(ClusterName, ClusterPath), Status> {
        let path = ClusterPath::parse(path).map_err(|error| {
            Status::invalid_argument(format!("workspace: {error}; write a path such as root:org:team"))
        })?;
        match locate::locate(&visit.snapshot, &path).inspect_err(|why| visit.record.refused(why)) {
            Ok(cluster) => {
                visit.record.located(Some(&cluster), Some(&path));
                Ok((cluster, path))
            }
            Err(NotLocated::UnknownCluster(_)) => Err(Status::permission_denied(forbidden_message(
                &visit.user,
                &Attributes::default(),
            ))),
            Err(NotLocated::UnknownWorkspace { name, .. }) => Err(Status::not_found(format!(
                "workspaces.tenancy.kcp.io {name:?} not found"
            ))),
            Err(NotLocated::Unavailable { name, phase, .. }) => Err(Status::unavailable(format!(
                "workspace {name:?} is not available: its phase is {phase}"
            ))),
            Err(NotLocated::Mounted { .. }) => Err(Status::failed_precondition(format!(
                "workspace {path} is a mount: its content is on another server, ask there"
            ))),
        }
    }

    /// Asks the chain about a resource in a cluster.
    pub fn permit(
        &self,
        visit: &Visit,
        cluster: Option<&ClusterName>,
        verb: &str,
        group: &str,
        resource: &str,
        name: &str,
    ) -> Result<Permit, Status> {
        let attributes = Attributes {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            name: name.into(),
            cluster: cluster.cloned(),
            is_resource_request: true,
            ..Attributes::default()
        };
        let facts = match cluster {
            Some(cluster) => access::facts(&visit.snapshot, cluster),
            None => ClusterFacts::default(),
        };
        match permit(&visit.user, attributes, &facts) {
            Ok(permit) => {
                visit.record.decided(true, permit.reason(), permit.trail());
                Ok(permit)
            }
            Err(forbidden) => {
                visit.record.decided(false, &forbidden.reason, &forbidden.trail);
                visit.record.refused(&forbidden.message);
                Err(Status::permission_denied(forbidden.message))
            }
        }
    }
}

impl Visit {
    /// The header of each reply.
    pub fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: "root".into(),
            shard: "root".into(),
            revision: self.snapshot.revision().0,
            request_id: self.request_id.clone(),
        })
    }
}
