//! `ClusterService`: facts about this installation.

use crate::session::AdminService;
use insula_proto::admin::v1::{GetInfoRequest, GetInfoResponse, Identity, cluster_service_server::ClusterService};
use tonic::{Request, Response, Status};

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
        }))
    }
}
