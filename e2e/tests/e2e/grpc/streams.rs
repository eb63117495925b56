//! Streams whose clients go: by a cancellation, by the end of a connection, by thousands.

use futures_util::future::BoxFuture;
use insula_e2e::{Server, Who, runtime, shared, until, workspace};
use insula_proto::admin::v1::{
    GetSupportBundleRequest, ListObjectsRequest, ObjectType, TreeWorkspacesRequest, WatchObjectsRequest,
    WatchWorkspacesRequest, maintenance_service_client::MaintenanceServiceClient,
    object_service_client::ObjectServiceClient, workspace_service_client::WorkspaceServiceClient,
};
use serde_json::json;
use tonic::{Code, Status};

use super::{Channel, channel, origin, reason, refusals::with_pumps};
use crate::faults::grpc::{metric, server_with};

/// A stream that the test holds.
type Held = Box<dyn std::any::Any + Send>;
/// Opens a stream of a server over a channel, about a workspace, and reads its first message.
type OpenCall = fn(Channel, http::Uri, String) -> BoxFuture<'static, Result<Held, Status>>;

macro_rules! stream {
    ($client:ident, $method:ident, $request:expr) => {
        |channel, origin, place| {
            Box::pin(async move {
                let mut client = $client::with_origin(channel, origin);
                let request: fn(String) -> _ = $request;
                let mut stream = client.$method(request(place)).await?.into_inner();
                stream.message().await?;
                Ok(Box::new(stream) as Held)
            })
        }
    };
}

fn streams() -> [(&'static str, OpenCall); 4] {
    [
        (
            "WatchWorkspaces",
            stream!(WorkspaceServiceClient, watch_workspaces, |parent| {
                WatchWorkspacesRequest {
                    parent,
                    ..WatchWorkspacesRequest::default()
                }
            }),
        ),
        (
            "WatchObjects",
            stream!(ObjectServiceClient, watch_objects, |workspace| WatchObjectsRequest {
                r#type: Some(ObjectType {
                    workspace,
                    api_version: "v1".to_owned(),
                    resource: "configmaps".to_owned(),
                    kind: String::new(),
                }),
                ..WatchObjectsRequest::default()
            }),
        ),
        (
            "TreeWorkspaces",
            stream!(WorkspaceServiceClient, tree_workspaces, |_| TreeWorkspacesRequest {
                root: "root".to_owned(),
                ..TreeWorkspacesRequest::default()
            }),
        ),
        (
            "GetSupportBundle",
            stream!(MaintenanceServiceClient, get_support_bundle, |_| {
                GetSupportBundleRequest {}
            }),
        ),
    ]
}

fn watches(server: &Server) -> Option<f64> {
    metric(server, "insula_watches ")
}

fn none_is_left(server: &Server) {
    until("no watch is left", || (watches(server)? == 0.0).then_some(()));
}

/// A stream that its client drops is freed at the server, while the connection stays.
#[test]
fn a_cancelled_stream_is_freed() {
    let server = server_with(&[("WATCHES_PER_USER", "1")]);
    let (place, _) = workspace(&server.admin(), "streamed");
    let channel = channel(&server, &Who::KcpAdmin);
    for (name, open) in streams() {
        let open = || runtime().block_on(open(channel.clone(), origin(&server), place.clone()));
        // The only watch of the user is free again each time.
        for _ in 0..2 {
            let held = open().unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
            if name.starts_with("Watch") {
                assert_eq!(watches(&server), Some(1.0), "{name}");
                let second = open().expect_err("the user has one watch");
                assert_eq!(second.code(), Code::ResourceExhausted, "{name}: {second:?}");
            }
            drop(held);
            none_is_left(&server);
        }
    }
}

/// A client whose connections break off without a word frees its streams, too.
#[test]
fn streams_of_a_broken_connection_are_freed() {
    let server = server_with(&[]);
    let (place, _) = workspace(&server.admin(), "broken");
    let (origin, to) = (origin(&server), &server);
    // A runtime that ends takes its sockets with it.
    let lonely = tokio::runtime::Runtime::new().unwrap();
    let held: Vec<Held> = streams()[..2]
        .iter()
        .map(|(_, open)| {
            lonely
                .block_on(open(channel(to, &Who::KcpAdmin), origin.clone(), place.clone()))
                .unwrap()
        })
        .collect();
    assert_eq!(watches(&server), Some(2.0));
    lonely.shutdown_background();
    none_is_left(&server);
    drop(held);
}

/// The refusal that ends a stream comes in its trailers, and explains itself as others do.
#[test]
fn streams_end_with_details() {
    let server = shared();
    let (place, _) = workspace(&server.admin(), "ended");
    let channel = channel(&server, &Who::KcpAdmin);
    runtime().block_on(async {
        let mut workspaces = WorkspaceServiceClient::with_origin(channel.clone(), origin(&server));
        let mut seconds = 1;
        let late = loop {
            let mut watch = tonic::Request::new(WatchWorkspacesRequest {
                parent: place.clone(),
                ..WatchWorkspacesRequest::default()
            });
            watch.set_timeout(std::time::Duration::from_secs(seconds));
            // A stream that did not begin in time has the refusal in its headers.
            if let Ok(stream) = workspaces.watch_workspaces(watch).await {
                let mut stream = stream.into_inner();
                break loop {
                    match stream.message().await {
                        Ok(message) => drop(message.expect("it ends with a refusal")),
                        Err(refusal) => break refusal,
                    }
                };
            }
            seconds *= 2;
        };
        assert_eq!((late.code(), &*reason(&late)), (Code::DeadlineExceeded, "TIMEOUT"));
        assert!(late.message().contains("deadline"), "{late:?}");
    });
}

/// An object with an integer that no Struct holds is named, in a stream and in a list.
#[test]
fn objects_that_cannot_be_sent_are_named() {
    let server = shared();
    let (place, _) = workspace(&server.admin(), "large");
    let tenant = server.admin().in_workspace(&place);
    with_pumps(&tenant);
    let pump = json!({"apiVersion": "example.io/v2", "kind": "Pump", "metadata": {"name": "large"},
        "spec": {"count": 9_007_199_254_740_993_i64}});
    tenant.post("/apis/example.io/v2/pumps", &pump).expect(201);
    let pumps = || {
        Some(ObjectType {
            workspace: place.clone(),
            api_version: "example.io/v2".to_owned(),
            resource: "pumps".to_owned(),
            kind: String::new(),
        })
    };
    runtime().block_on(async {
        let channel = channel(&server, &Who::KcpAdmin);
        let mut objects = ObjectServiceClient::with_origin(channel, origin(&server));
        let watch = WatchObjectsRequest {
            r#type: pumps(),
            ..WatchObjectsRequest::default()
        };
        let mut stream = objects.watch_objects(watch).await.unwrap().into_inner();
        let ended = stream.message().await.unwrap_err();
        let list = ListObjectsRequest {
            r#type: pumps(),
            ..ListObjectsRequest::default()
        };
        let listed = objects.list_objects(list).await.unwrap_err();
        for refusal in [ended, listed] {
            assert_eq!(
                (refusal.code(), &*reason(&refusal)),
                (Code::OutOfRange, "NOT_REPRESENTABLE")
            );
            let text = refusal.message();
            assert!(text.starts_with("Pump \"large\": spec.count: "), "{text}");
        }
    });
}

/// Thousands of streams that are cancelled at once, some of them before their first message, leave
/// nothing and lock nobody out.
#[test]
fn thousands_of_cancelled_streams_leave_nothing() {
    const STREAMS: usize = 3_000;
    const AT_ONCE: usize = 50;
    let server = server_with(&[("STREAMS_PER_CONNECTION", "200"), ("WATCHES_PER_USER", "100")]);
    let (place, _) = workspace(&server.admin(), "storm");
    let channel = channel(&server, &Who::KcpAdmin);
    let open = streams()[..2].iter().map(|(_, open)| *open).collect::<Vec<_>>();
    // The connection is there before those who share it are cancelled.
    drop(runtime().block_on(open[0](channel.clone(), origin(&server), place.clone())));
    for round in 0..STREAMS / AT_ONCE {
        let opening: Vec<_> = (0..AT_ONCE)
            .map(|n| runtime().spawn(open[n % 2](channel.clone(), origin(&server), place.clone())))
            .collect();
        for (n, opening) in opening.into_iter().enumerate() {
            if (n + round) % 3 == 0 {
                opening.abort();
                continue;
            }
            if let Err(refusal) = runtime().block_on(opening).unwrap() {
                // Those that were dropped before may still count.
                assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
            }
        }
    }
    none_is_left(&server);
    until("nothing is in flight", || {
        // The request for the metrics is not counted.
        let flying = metric(&server, "insula_requests_in_flight{effect=\"ReadOnly\"}")?;
        (flying == 0.0 && metric(&server, "insula_grpc_message_bytes")? == 0.0).then_some(())
    });
    runtime().block_on(open[0](channel, origin(&server), place)).unwrap();
}
