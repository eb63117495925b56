//! Health of the services, as clients that balance their calls ask for it.

use std::time::Duration;

use http::uri::PathAndQuery;
use insula_e2e::{Server, Setup, Who, runtime, shared};
use prost::Message;
use tonic::{Request, Status};

use super::{Channel, admin_services, channel, origin};

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Returns what a service says of its health, without a credential: 1 is SERVING, 2 NOT_SERVING.
async fn health(server: &Server, service: &str) -> Result<i32, Status> {
    health_on(channel(server, &Who::Anonymous), server, service).await
}

/// Asks over an open channel.
pub(super) async fn health_on(channel: Channel, server: &Server, service: &str) -> Result<i32, Status> {
    let mut grpc = tonic::client::Grpc::with_origin(channel, origin(server));
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(HealthCheckRequest {
        service: service.to_owned(),
    });
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    Ok(grpc.unary(request, path, codec).await?.into_inner().status)
}

#[test]
fn health_needs_no_credential() {
    let server = shared();
    runtime().block_on(async {
        for service in admin_services().into_iter().chain([String::new()]) {
            assert_eq!(health(&server, &service).await.unwrap(), 1, "{service}");
        }
    });
}

#[test]
fn a_server_that_ends_says_so_before_it_closes() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_SHUTDOWN_DELAY_SECONDS".to_owned(), "3".to_owned())],
        ..Setup::default()
    });
    runtime().block_on(async {
        server.signal("-TERM");
        for service in ["", "insula.admin.v1.WorkspaceService"] {
            loop {
                match health(&server, service).await.expect("it has not closed yet") {
                    1 => tokio::time::sleep(Duration::from_millis(10)).await,
                    status => break assert_eq!(status, 2, "{service}"),
                }
            }
        }
    });
    assert_eq!(server.wait().0, Some(0));
}
