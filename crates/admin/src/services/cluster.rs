//! `ClusterService`: what this installation is.

use crate::session::AdminService;
use insula_proto::admin::v1::{GetInfoRequest, GetInfoResponse, Identity, cluster_service_server::ClusterService};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl ClusterService for AdminService {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let visit = self.begin(&request).await?;
        let user = visit.user()?;
        let info = &self.info;
        Ok(Response::new(GetInfoResponse {
            header: visit.header(),
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
