//! Limits, fairness and guards of the gRPC services.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use insula_e2e::{Server, Setup, Who, runtime, tls, until, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        ConvertRequest, GetInfoRequest, InlineRules, ListWorkspacesRequest, ValidateRequest,
        cluster_service_client::ClusterServiceClient, conversion_service_client::ConversionServiceClient,
        convert_request::Source, workspace_service_client::WorkspaceServiceClient,
    },
    value::from_json,
};
use prost_types::Struct;
use serde_json::json;
use tokio::{
    sync::mpsc::{Sender, channel},
    task::JoinHandle,
    time::timeout,
};
use tonic::Code;

use crate::grpc::{self, as_user};

const VALIDATE: &str = "/insula.admin.v1.ConversionService/Validate";
const TREE: &str = "/insula.admin.v1.WorkspaceService/TreeWorkspaces";
/// Longest wait of a test for a condition; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

type Headers<'a> = &'a [(&'a str, &'a str)];

/// A client of calls whose messages the test sends slowly.
pub(crate) struct Slow {
    http: Client<HttpsConnector<HttpConnector>, BoxBody<Bytes, Infallible>>,
    url: String,
}

/// A call whose message has not ended.
pub(crate) struct OpenCall {
    /// Sends more of the message. Dropping it ends the message.
    pub(crate) rest: Sender<Bytes>,
    answer: JoinHandle<Result<Response<Incoming>, String>>,
}

/// Result of a call.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Code,
    headers: HeaderMap,
}

impl Slow {
    pub(crate) fn new(server: &Server) -> Self {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(&server.data_dir(), &Who::Anonymous))
            .https_only();
        let mut client = Client::builder(TokioExecutor::new());
        Slow {
            http: client.http2_only(true).build(connector.enable_http2().build()),
            url: server.url().to_owned(),
        }
    }

    pub(crate) fn open(&self, path: &str, headers: &[(&str, &str)]) -> OpenCall {
        let (rest, pieces) = channel::<Bytes>(1);
        let pieces = futures_util::stream::unfold(pieces, async |mut pieces| {
            let piece = pieces.recv().await?;
            Some((Ok(Frame::data(piece)), pieces))
        });
        let mut request = http::Request::post(format!("{}{path}", self.url)).header("te", "trailers");
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(BodyExt::boxed(StreamBody::new(pieces))).unwrap();
        let asked = self.http.request(request);
        let answer = runtime().spawn(async { asked.await.map_err(|error| format!("{error:?}")) });
        OpenCall { rest, answer }
    }
}

impl OpenCall {
    /// Returns the result of a call whose message has not ended.
    pub(crate) async fn ended(self) -> Ended {
        let OpenCall { rest, answer } = self;
        let ended = Self::answered(answer).await;
        drop(rest);
        ended
    }

    /// Sends the rest of the message, and returns the result.
    pub(crate) async fn completed(self, bytes: Vec<u8>) -> Ended {
        let OpenCall { rest, answer } = self;
        rest.send(bytes.into()).await.unwrap();
        drop(rest);
        Self::answered(answer).await
    }

    async fn answered(answer: JoinHandle<Result<Response<Incoming>, String>>) -> Ended {
        let answer = timeout(PATIENCE, answer).await.expect("an answer in time");
        let answer = answer.unwrap().expect("an answer");
        assert_eq!(answer.status(), 200, "{:?}", answer.headers());
        let (head, body) = answer.into_parts();
        let body = timeout(PATIENCE, body.collect())
            .await
            .expect("an end in time")
            .unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
        Ended {
            code: Code::from_bytes(status.expect("a status").as_bytes()),
            headers: head.headers,
        }
    }
}

pub(crate) fn server_with(settings: &[(&str, &str)]) -> Server {
    let variables = settings.iter();
    Server::with(Setup {
        flags: vec!["--store".to_owned(), "memory".to_owned()],
        environment: variables
            .map(|(name, value)| (format!("INSULA_LIMITS_{name}"), (*value).to_owned()))
            .collect(),
        ..Setup::default()
    })
}

/// Returns the prefix of a message with a number of bytes.
pub(crate) fn announced(bytes: u32) -> Bytes {
    Bytes::from([&[0][..], &bytes.to_be_bytes()].concat())
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Returns a number of the server's metrics.
pub(crate) fn metric(server: &Server, name: &str) -> Option<f64> {
    let text = server.admin().get_with("/metrics", &[("accept", "text/plain")]).text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    line.and_then(|value| value.trim().parse().ok())
}

fn message(value: &serde_json::Value) -> Option<Struct> {
    Some(from_json(value.as_object().unwrap()).unwrap())
}

/// Returns a schema that is slow to compile: many fields with rules.
fn schema() -> Option<Struct> {
    let rule = json!([{"rule": "self.all(a, self.all(b, a == b || a != b))"}]);
    let list = json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10},
        "x-kubernetes-validations": rule});
    let fields: serde_json::Map<String, serde_json::Value> =
        (0..100).map(|n| (format!("field{n}"), list.clone())).collect();
    message(&json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": "v1.widgets.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": fields}}}}]},
    }))
}

/// The server does not buffer messages of anonymous callers, and limits those of accounts without
/// rights. A hundred open messages of 4 MB used to add 407 MiB.
#[test]
fn unfinished_messages_use_bounded_memory() {
    const STREAMS: usize = 100;
    // Half of the total size of the messages; 50 MiB were measured while calls are refused.
    const GROWTH_MAX: u64 = 128 << 20;
    let server = server_with(&[("STREAMS_PER_CONNECTION", "200")]);
    server.admin().get("/version").expect(200);
    let before = resident_bytes(&server);
    let slow = Slow::new(&server);
    let grown = || resident_bytes(&server).saturating_sub(before);
    runtime().block_on(async {
        // The server reads no message without a credential. The messages of an account share its
        // limit, which is less than three of them.
        for (headers, refusal) in [
            (&[][..], Code::Unauthenticated),
            (&[("authorization", "Bearer bob-token")][..], Code::ResourceExhausted),
        ] {
            let bytes: usize = if headers.is_empty() { 4_000_000 } else { 3_000_000 };
            let mut held = Vec::new();
            let calls: Vec<OpenCall> = (0..STREAMS).map(|_| slow.open(VALIDATE, headers)).collect();
            let mut answers = Vec::new();
            for OpenCall { rest, answer } in calls {
                let (sender, silent) = (rest.clone(), rest);
                runtime().spawn(async move {
                    // All but the last byte. The send fails if the call was answered.
                    let _ = sender.send(announced(u32::try_from(bytes).unwrap())).await;
                    for _ in 0..(bytes - 1) / 50_000 {
                        if sender.send(vec![0; 50_000].into()).await.is_err() {
                            break;
                        }
                    }
                });
                held.push(silent);
                answers.push(answer);
            }
            let begun = Instant::now();
            let refused = |answers: &[JoinHandle<_>]| answers.iter().filter(|answer| answer.is_finished()).count();
            while refused(&answers) < STREAMS - 3 {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{} of {STREAMS} were refused",
                    refused(&answers)
                );
                assert!(grown() < GROWTH_MAX, "{} MiB more", grown() >> 20);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            for answer in answers.into_iter().filter(JoinHandle::is_finished) {
                let answer = answer.await.unwrap().expect("an answer");
                let code = answer.headers()["grpc-status"].as_bytes();
                assert_eq!(Code::from_bytes(code), refusal, "{:?}", answer.headers());
            }
            assert!(grown() < GROWTH_MAX, "{} MiB more", grown() >> 20);
        }
    });
}

/// A flood of calls that compile a schema, by an account without rights. The server refuses each
/// before it compiles anything. Before the fix, another tenant's requests took 17 s beside the
/// flood.
#[test]
fn calls_without_rights_start_no_computation() {
    const CALLS: usize = 200;
    let server = server_with(&[("REQUESTS_IN_FLIGHT_PER_USER", "150")]);
    let (tenant, _) = workspace_owned_by(&server, "alice");
    let maps = format!("/clusters/{tenant}/api/v1/namespaces/default/configmaps");
    let alice = server.client(Who::Token("alice-token".to_owned()));
    alice.get(&maps).expect(200);
    let schema = schema();
    runtime().block_on(async {
        let mut flood = Vec::new();
        for n in 0..CALLS {
            let channel = grpc::channel(&server, &Who::Anonymous);
            let mut client = ConversionServiceClient::with_origin(channel, grpc::origin(&server));
            let (schema, tenant) = (schema.clone(), tenant.clone());
            flood.push(runtime().spawn(async move {
                let refused = match n % 2 {
                    0 => {
                        let validate = ValidateRequest {
                            schema,
                            workspace: tenant,
                            ..ValidateRequest::default()
                        };
                        client.validate(as_user("bob-token", validate)).await.map(drop)
                    }
                    _ => {
                        let inline = InlineRules {
                            schema,
                            ..InlineRules::default()
                        };
                        let object = message(&json!({"apiVersion": "example.io/v1", "kind": "Widget"}));
                        let convert = ConvertRequest {
                            source: Some(Source::Inline(inline)),
                            object,
                            to_version: "v1".to_owned(),
                        };
                        client.convert(as_user("bob-token", convert)).await.map(drop)
                    }
                };
                refused.expect_err("no right").code()
            }));
        }
        for _ in 0..20 {
            let alice = alice.clone();
            let maps = maps.clone();
            runtime()
                .spawn_blocking(move || alice.get(&maps).expect(200))
                .await
                .unwrap();
        }
        for call in flood {
            let code = timeout(PATIENCE, call).await.expect("an answer in time").unwrap();
            assert!(
                matches!(code, Code::PermissionDenied | Code::ResourceExhausted),
                "{code:?}"
            );
        }
    });
    let refused = "insula_requests_total{verb=\"Other\",class=\"Call\",code=\"ClientError\"}";
    assert_eq!(metric(&server, refused), Some(CALLS as f64));
}

/// A call ends at its client's deadline, or at the server's limit if that is earlier.
#[test]
fn calls_end_at_their_deadline() {
    let server = server_with(&[("REQUEST_SECONDS", "2"), ("REQUESTS_IN_FLIGHT_PER_USER", "1")]);
    let slow = Slow::new(&server);
    let alice = ("authorization", "Bearer alice-token");
    runtime().block_on(async {
        for (headers, want) in [
            (&[alice, ("grpc-timeout", "1m")][..], Code::DeadlineExceeded),
            (&[alice, ("grpc-timeout", "10H")], Code::DeadlineExceeded),
            (&[alice], Code::DeadlineExceeded),
            (&[alice, ("grpc-timeout", "soon")], Code::InvalidArgument),
        ] {
            let call = slow.open(VALIDATE, headers);
            call.rest.send(announced(100)).await.unwrap();
            let rest = call.rest.clone();
            let ended = call.ended().await;
            assert_eq!(ended.code, want, "{headers:?} {:?}", ended.headers);
            drop(rest);
        }
        // A stream of requests that stalls, too.
        let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let call = slow.open(path, &[alice]);
        let rest = call.rest.clone();
        call.rest.send(announced(100)).await.unwrap();
        assert_eq!(call.ended().await.code, Code::Ok, "the answer ends");
        drop(rest);
    });
}

/// A caller at the limit of open calls gets a retry delay. An abandoned call frees its permit.
#[test]
fn calls_take_and_release_permits() {
    let server = server_with(&[("REQUESTS_IN_FLIGHT_PER_USER", "2"), ("WATCHES_PER_USER", "1")]);
    let slow = Slow::new(&server);
    let alice = ("authorization", "Bearer alice-token");
    let info = || async {
        let channel = grpc::channel(&server, &Who::Anonymous);
        let mut client = ClusterServiceClient::with_origin(channel, grpc::origin(&server));
        client.get_info(as_user("alice-token", GetInfoRequest {})).await
    };
    let calls: Vec<OpenCall> = runtime().block_on(async {
        let calls: Vec<OpenCall> = (0..2).map(|_| slow.open(VALIDATE, &[alice])).collect();
        for call in &calls {
            call.rest.send(announced(100)).await.unwrap();
        }
        calls
    });
    until(
        "both calls are admitted, and what is there of their messages is read",
        || {
            let bytes = metric(&server, "insula_grpc_message_bytes")?;
            (bytes == 10.0).then_some(())
        },
    );
    runtime().block_on(async {
        let refused = info().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
        let text =
            "Too many requests, please try again later: the user has 2 requests being answered, and may have no more";
        assert_eq!(refused.message(), text);
        for call in calls {
            call.answer.abort();
        }
        let begun = Instant::now();
        while let Err(refused) = info().await {
            assert!(begun.elapsed() < PATIENCE, "{refused:?}");
        }
        // Streams take permits of watches, those of anonymous callers too.
        let watch = || async {
            let call = slow.open("/grpc.health.v1.Health/Watch", &[]);
            call.rest.send(announced(0)).await.unwrap();
            call
        };
        let OpenCall { rest, answer } = watch().await;
        drop(rest);
        let answer = timeout(PATIENCE, answer).await.expect("in time").unwrap().unwrap();
        assert_eq!(watch().await.ended().await.code, Code::ResourceExhausted);
        drop(answer);
    });
}

/// Calls that are reset at once keep no resources.
#[test]
fn reset_calls_do_not_delay_other_tenants() {
    let server = server_with(&[]);
    let (tenant, _) = workspace_owned_by(&server, "alice");
    let slow = Slow::new(&server);
    runtime().block_on(async {
        for _ in 0..1_000 {
            let call = slow.open(TREE, &[("authorization", "Bearer alice-token")]);
            let _ = timeout(Duration::from_micros(50), call.rest.send(announced(0))).await;
            call.answer.abort();
        }
        let channel = grpc::channel(&server, &Who::Anonymous);
        let mut client = WorkspaceServiceClient::with_origin(channel, grpc::origin(&server));
        let list = ListWorkspacesRequest {
            parent: tenant.clone(),
            ..ListWorkspacesRequest::default()
        };
        client.list_workspaces(as_user("alice-token", list)).await.unwrap();
    });
    until("nothing of it is left", || {
        let bytes = metric(&server, "insula_grpc_message_bytes")?;
        // The request for the metrics is not counted.
        let flying = metric(&server, "insula_requests_in_flight{effect=\"ReadOnly\"}")?;
        (bytes == 0.0 && flying == 0.0).then_some(())
    });
}

/// Every refusal of a call has gRPC's form; other requests get HTTP's.
#[test]
fn refusals_are_grpc_statuses() {
    let server = server_with(&[]);
    let slow = Slow::new(&server);
    let alice = ("authorization", "Bearer alice-token");
    let json = ("content-type", "application/grpc+json");
    let rows: [(&str, Headers<'_>, Code); 6] = [
        (TREE, &[json, alice], Code::Unimplemented),
        (TREE, &[json], Code::Unauthenticated),
        (TREE, &[("authorization", "Bearer nothing")], Code::Unauthenticated),
        ("/nothing/Here", &[alice], Code::Unimplemented),
        ("/clusters/root/api/v1/namespaces", &[alice], Code::Unimplemented),
        (
            TREE,
            &[alice, ("impersonate-group", "system:masters")],
            Code::InvalidArgument,
        ),
    ];
    runtime().block_on(async {
        for (path, headers, want) in rows {
            let call = slow.open(path, headers);
            let rest = call.rest.clone();
            let ended = call.ended().await;
            assert_eq!(ended.code, want, "{path} {headers:?}: {:?}", ended.headers);
            assert_eq!(ended.headers["content-type"], "application/grpc", "{path}");
            let text = ended.headers["grpc-message"].to_str().unwrap_or_default();
            assert!(!text.contains(['"', '{']), "percent-encoded: {text}");
            drop(rest);
        }
        let web = slow.open(TREE, &[("content-type", "application/grpc-web"), alice]);
        drop(web.rest);
        let answer = timeout(PATIENCE, web.answer).await.expect("in time").unwrap().unwrap();
        assert_eq!(answer.status(), 403, "{:?}", answer.headers());
        assert!(answer.headers().get("grpc-status").is_none());
    });
}
