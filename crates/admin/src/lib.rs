//! The gRPC admin services: the same registry, the same chain of access, another wire.
//!
//! Health is for everybody; reflection and every service ask for a credential first.

mod door;
mod services;
pub mod status;

pub use door::{Door, Info};

use futures_util::FutureExt;
use insula_proto::{
    FILE_DESCRIPTOR_SET,
    admin::v1::{
        cluster_service_server::ClusterServiceServer, conversion_service_server::ConversionServiceServer,
        workspace_service_server::WorkspaceServiceServer,
    },
};
use tonic::{Request, Status, service::Routes};

/// All services of the admin port. `Err` only if our own descriptors do not parse.
pub async fn routes(door: Door) -> Result<Routes, tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<ClusterServiceServer<Door>>().await;
    reporter.set_serving::<WorkspaceServiceServer<Door>>().await;
    reporter.set_serving::<ConversionServiceServer<Door>>().await;
    let descriptors = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let keeper = door.clone();
    // Names of services are told to nobody without a credential. An interceptor cannot wait, so whoever comes with a token
    // of an issuer whose keys are not here yet comes again.
    let known = move |request: Request<()>| -> Result<Request<()>, Status> {
        let asked = keeper
            .authenticate(request.metadata(), request.extensions(), "")
            .now_or_never();
        asked.unwrap_or_else(|| {
            Err(Status::unavailable(
                "the keys of the token's issuer are being fetched; try again",
            ))
        })?;
        Ok(request)
    };
    let guard = tonic::service::InterceptorLayer::new(known);
    let v1 = tower_layer(&guard, descriptors().build_v1()?);
    let v1alpha = tower_layer(&guard, descriptors().build_v1alpha()?);
    Ok(Routes::new(health)
        .add_service(v1)
        .add_service(v1alpha)
        .add_service(ClusterServiceServer::new(door.clone()))
        .add_service(WorkspaceServiceServer::new(door.clone()))
        .add_service(ConversionServiceServer::new(door)))
}

fn tower_layer<I: Clone, S>(
    layer: &tonic::service::InterceptorLayer<I>,
    service: S,
) -> tonic::service::interceptor::InterceptedService<S, I> {
    tower::Layer::layer(layer, service)
}
