//! `ClusterService`: facts about this installation.

use super::quota::bytes_or_none;
use crate::session::{AdminService, Session};
use insula_api::{ClusterName, Verb};
use insula_catalog::locate;
use insula_proto::admin::v1::{
    GetInfoRequest, GetInfoResponse, Identity, Storage, StorageShare, cluster_service_server::ClusterService,
};
use insula_store::usage::Usage;
use tonic::{Request, Response, Status};

/// Maximum workspaces, and owners, in the answer.
const LARGEST_MAX: usize = 10;

#[tonic::async_trait]
impl ClusterService for AdminService {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let session = self.begin(&request).await?;
        let user = session.user()?;
        let info = &self.info;
        Ok(Response::new(GetInfoResponse {
            header: session.header(),
            version: info.version.clone(),
            kubernetes_version: info.kubernetes_version.clone(),
            external_url: self.registry().external_url.clone(),
            store: info.store.clone(),
            start_time: Some(prost_types::Timestamp {
                seconds: info.started.0,
                nanos: 0,
            }),
            caller: Some(Identity {
                username: user.name.clone(),
                groups: user.groups.clone(),
            }),
            storage: session
                .may_administer(Verb::Get, "/metrics")
                .then(|| self.storage(&session)),
        }))
    }
}

impl AdminService {
    fn storage(&self, session: &Session) -> Storage {
        let snapshot = &session.snapshot;
        let largest = snapshot.largest(LARGEST_MAX);
        let workspace = |(cluster, usage): &(ClusterName, Usage)| StorageShare {
            path: locate::logical_cluster(snapshot, cluster)
                .and_then(|view| view.path.as_ref().map(ToString::to_string))
                .unwrap_or_default(),
            ..share(cluster.as_str(), *usage)
        };
        let limits = &self.registry().storage;
        Storage {
            objects: signed(largest.all.objects),
            bytes: signed(largest.all.bytes),
            workspaces: largest.clusters.iter().map(workspace).collect(),
            owners: largest
                .payers
                .iter()
                .map(|(owner, usage)| share(owner, *usage))
                .collect(),
            bytes_per_workspace: bytes_or_none(limits.workspace_bytes),
            bytes_per_owner: bytes_or_none(limits.owner_bytes),
        }
    }
}

fn share(name: &str, usage: Usage) -> StorageShare {
    StorageShare {
        name: name.to_owned(),
        path: String::new(),
        objects: signed(usage.objects),
        bytes: signed(usage.bytes),
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
