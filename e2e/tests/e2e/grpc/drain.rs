//! The end of a server as gRPC clients with open channels see it.

use insula_e2e::{Server, Setup, Who, runtime, until};
use insula_proto::{
    admin::v1::{
        GetInfoRequest, ListWorkspacesRequest, WatchWorkspacesRequest, cluster_service_client::ClusterServiceClient,
        workspace_service_client::WorkspaceServiceClient,
    },
    rpc::{self, Detail},
};
use prost::Message;
use std::net::TcpStream;
use tonic::{Code, Status};

use super::{Channel, channel, health::health_on, origin, reason};
use crate::faults::grpc::{OpenCall, Slow, announced, metric};

const LIST: &str = "/insula.admin.v1.WorkspaceService/ListWorkspaces";

fn server(drain_seconds: &str) -> Server {
    Server::with(Setup {
        environment: vec![("INSULA_DRAIN_SECONDS".to_owned(), drain_seconds.to_owned())],
        ..Setup::default()
    })
}

/// A call of carol's whose message has begun and not ended.
fn begun(server: &Server, slow: &Slow) -> (OpenCall, Vec<u8>) {
    let list = ListWorkspacesRequest {
        parent: "root".to_owned(),
        ..ListWorkspacesRequest::default()
    };
    let message = list.encode_to_vec();
    let call = slow.open(LIST, &[("authorization", "Bearer carol-token")]);
    let head = announced(u32::try_from(message.len()).unwrap());
    runtime().block_on(call.rest.send(head)).unwrap();
    until("its message has begun to arrive", || {
        (metric(server, "insula_grpc_message_bytes")? > 0.0).then_some(())
    });
    (call, message)
}

fn retry_seconds(refusal: &Status) -> Option<i64> {
    let details = rpc::read(refusal.details())?;
    Some(rpc::RetryInfo::find(&details)?.retry_delay?.seconds)
}

async fn info(server: &Server, channel: &Channel) -> Result<(), Status> {
    let mut client = ClusterServiceClient::with_origin(channel.clone(), origin(server));
    client.get_info(GetInfoRequest {}).await.map(drop)
}

/// Calls in flight end, and new calls on open connections are UNAVAILABLE with the time after which
/// to call again, until the last call in flight has ended. New connections are refused.
#[test]
fn new_calls_on_open_channels_are_told_to_come_back() {
    let server = server("3600");
    let slow = Slow::new(&server);
    let open = channel(&server, &Who::KcpAdmin);
    runtime().block_on(info(&server, &open)).unwrap();
    let (in_flight, message) = begun(&server, &slow);
    let mut workspaces = WorkspaceServiceClient::with_origin(open.clone(), origin(&server));
    let watch = WatchWorkspacesRequest {
        parent: "root".to_owned(),
        ..WatchWorkspacesRequest::default()
    };
    let mut events = runtime()
        .block_on(workspaces.watch_workspaces(watch))
        .unwrap()
        .into_inner();

    server.signal("-TERM");
    let refusal = until("new calls are refused", || {
        runtime().block_on(info(&server, &open)).err()
    });
    let told = (refusal.code(), &*reason(&refusal), retry_seconds(&refusal));
    assert_eq!(told, (Code::Unavailable, "UNAVAILABLE", Some(1)), "{refusal:?}");
    assert_eq!(refusal.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
    until("new connections are refused", || {
        TcpStream::connect(server.address()).err()
    });
    runtime().block_on(async {
        while let Ok(Some(_)) = events.message().await {}
        assert_eq!(health_on(open.clone(), &server, "").await.unwrap(), 2, "not serving");
    });
    // It lasts for as long as a call is in flight.
    for _ in 0..20 {
        let refusal = runtime().block_on(info(&server, &open)).unwrap_err();
        assert_eq!(retry_seconds(&refusal), Some(1), "{refusal:?}");
    }
    let ended = runtime().block_on(in_flight.completed(message));
    assert_eq!(ended.code, Code::Ok, "{ended:?}");
    // Without calls in flight nothing holds the connection, and so the server, open.
    let address = server.address().to_owned();
    assert_eq!(server.wait().0, Some(0));
    TcpStream::connect(address).unwrap_err();
}

/// Channels without calls do not delay the end.
#[test]
fn idle_channels_do_not_keep_a_server() {
    let server = server("3600");
    let channels = [(); 3].map(|()| channel(&server, &Who::KcpAdmin));
    for channel in &channels {
        runtime().block_on(info(&server, channel)).unwrap();
    }
    server.signal("-TERM");
    assert_eq!(server.wait().0, Some(0));
}

/// A call that does not end, and a client that calls all the time, do not keep the server beyond
/// the time to drain.
#[test]
fn the_time_to_drain_is_the_longest() {
    let server = server("1");
    let slow = Slow::new(&server);
    let open = channel(&server, &Who::KcpAdmin);
    runtime().block_on(info(&server, &open)).unwrap();
    let (in_flight, _) = begun(&server, &slow);
    server.signal("-TERM");
    let origin = origin(&server);
    let calling = runtime().spawn(async move {
        let mut client = ClusterServiceClient::with_origin(open, origin);
        loop {
            let refused = client.get_info(GetInfoRequest {}).await;
            if refused.is_err_and(|refusal| refusal.details().is_empty()) {
                return;
            }
        }
    });
    assert_eq!(server.wait().0, Some(0));
    runtime().block_on(calling).unwrap();
    drop(in_flight);
}
