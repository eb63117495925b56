//! The admin services over gRPC, with the generated client and with a client that uses only
//! reflection.

mod access;
mod apis;
pub(crate) mod backup;
mod bind_requests;
mod cancel;
mod certificates;
mod claims;
mod conventions;
mod conversions;
mod deadlines;
mod drain;
mod etags;
mod evolution;
mod exports;
mod freeze;
mod grpcurl;
mod health;
mod maintenance;
mod manifests;
mod objects;
mod offers;
mod onboarding;
mod operations;
mod quota;
mod refusals;
mod repairs;
mod requests;
mod restore;
mod rollouts;
mod rules;
mod streams;
mod unbinding;
mod undelete;
mod uploads;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};

use hyper_rustls::HttpsConnector;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use insula_e2e::{Server, Who, runtime, shared, tls, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    ConvertRequest, GetInfoRequest, GetWorkspaceRequest, ListWorkspacesRequest, TreeWorkspacesRequest, ValidateRequest,
    cluster_service_client::ClusterServiceClient, conversion_service_client::ConversionServiceClient,
    workspace_service_client::WorkspaceServiceClient,
};
use insula_proto::rpc::Detail;
use prost::Message;
use prost_types::{FileDescriptorProto, MethodDescriptorProto};
use serde_json::{Value, json};
use tonic::{Code, Request, Status, metadata::MetadataValue};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

pub(crate) type Channel = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

pub(crate) fn channel(server: &Server, who: &Who) -> Channel {
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls(&server.data_dir(), who))
        .https_only();
    let mut client = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    client.http2_only(true).build(connector.enable_http2().build())
}

pub(crate) fn origin(server: &Server) -> http::Uri {
    server.url().parse().unwrap()
}

/// Methods that answer an empty request of any authenticated user. All others need a right
/// (`tenant_isolation/admin.rs`).
pub(crate) const ANSWERS_ANY_IDENTITY: &[&str] = &["/insula.admin.v1.ClusterService/GetInfo"];

/// Names of all services of the admin API.
fn admin_services() -> BTreeSet<String> {
    let set = prost_types::FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    let ours = set.file.iter().filter(|file| file.package().starts_with("insula."));
    ours.flat_map(|file| {
        file.service
            .iter()
            .map(|service| format!("{}.{}", file.package(), service.name()))
    })
    .collect()
}

/// Returns the client of a service, whose requests carry credentials of their own or none.
macro_rules! client {
    ($client:ty, $server:expr, $who:expr) => {
        <$client>::with_origin(crate::grpc::channel(&$server, &$who), crate::grpc::origin(&$server))
    };
}
pub(crate) use client;

/// Returns the reason in the details of a refusal, which is one of the closed list.
pub(crate) fn reason(refusal: &Status) -> String {
    let details = insula_proto::rpc::read(refusal.details()).unwrap_or_else(|| panic!("no details: {refusal:?}"));
    let info = insula_proto::rpc::ErrorInfo::find(&details).unwrap();
    let known = insula_proto::admin::v1::ErrorReason::from_str_name(&format!("ERROR_REASON_{}", info.reason));
    assert!(known.is_some() && info.domain == "insula.io", "{info:?}");
    info.reason
}

/// Returns the fields that the details of a refusal name.
pub(crate) fn bad_fields(refusal: &Status) -> Vec<String> {
    let details = insula_proto::rpc::read(refusal.details()).unwrap_or_default();
    let bad = insula_proto::rpc::BadRequest::find(&details).unwrap_or_default();
    bad.field_violations
        .into_iter()
        .map(|violation| violation.field)
        .collect()
}

/// Calls appear in the audit log like every request, with the equivalent HTTP status code.
#[test]
fn calls_are_in_the_audit_log() {
    let server = Server::start();
    let tenant = workspace_owned_by(&server, "alice").0;
    runtime().block_on(async {
        let mut workspaces = WorkspaceServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
        let tree = || TreeWorkspacesRequest {
            root: tenant.clone(),
            ..TreeWorkspacesRequest::default()
        };
        workspaces.tree_workspaces(tree()).await.unwrap_err();
        workspaces
            .tree_workspaces(as_user("bob-token", tree()))
            .await
            .unwrap_err();
        workspaces
            .tree_workspaces(as_user("alice-token", tree()))
            .await
            .unwrap();
    });
    let log = server.data_dir().join("audit/audit.log");
    let calls: Vec<Value> = insula_e2e::until("the calls are in the audit log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        let calls = text
            .lines()
            .filter(|line| line.contains("WorkspaceService/TreeWorkspaces"));
        let calls: Vec<Value> = calls.filter_map(|line| serde_json::from_str(line).ok()).collect();
        (calls.len() == 3).then_some(calls)
    });
    let told: Vec<_> = calls
        .iter()
        .map(|call| (&call["user"]["username"], &call["responseStatus"]["code"]))
        .collect();
    let (nobody, bob, alice) = (json!("system:anonymous"), json!("bob"), json!("alice"));
    assert_eq!(
        told,
        [(&nobody, &json!(401)), (&bob, &json!(403)), (&alice, &json!(200))]
    );
    assert_eq!(calls[0]["annotations"]["insula.io/reason"], "no credential was shown");
    assert_eq!(calls[1]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(calls[2]["annotations"]["kcp.io/path"], tenant);
}

pub(crate) fn as_user<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

#[test]
fn get_info_returns_the_server_and_the_caller() {
    let server = shared();
    runtime().block_on(async {
        let mut client = ClusterServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
        let info = client.get_info(GetInfoRequest {}).await.unwrap().into_inner();
        assert_eq!(
            (info.store.as_str(), info.caller.unwrap().username.as_str()),
            ("embedded", "kcp-admin")
        );
        assert!(
            info.kubernetes_version.starts_with("v1.36"),
            "{}",
            info.kubernetes_version
        );
        assert!(!info.version.is_empty() && info.header.unwrap().revision > 0);
        let mut client = ClusterServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
        let info = client
            .get_info(as_user("alice-token", GetInfoRequest {}))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(info.caller.unwrap().username, "alice");
    });
}

#[test]
fn calls_without_a_credential_are_refused() {
    let server = shared();
    runtime().block_on(async {
        let anonymous = || channel(&server, &Who::Anonymous);
        let mut clusters = ClusterServiceClient::with_origin(anonymous(), origin(&server));
        let mut workspaces = WorkspaceServiceClient::with_origin(anonymous(), origin(&server));
        let mut conversions = ConversionServiceClient::with_origin(anonymous(), origin(&server));
        let refusals: Vec<Status> = vec![
            clusters.get_info(GetInfoRequest {}).await.unwrap_err(),
            clusters
                .get_info(as_user("wrong", GetInfoRequest {}))
                .await
                .unwrap_err(),
            workspaces
                .list_workspaces(ListWorkspacesRequest::default())
                .await
                .unwrap_err(),
            workspaces
                .get_workspace(GetWorkspaceRequest {
                    workspace: "root".to_owned(),
                })
                .await
                .unwrap_err(),
            workspaces
                .tree_workspaces(TreeWorkspacesRequest::default())
                .await
                .unwrap_err(),
            conversions.validate(ValidateRequest::default()).await.unwrap_err(),
            conversions.convert(ConvertRequest::default()).await.unwrap_err(),
            reflect(&server, Who::Anonymous, MessageRequest::ListServices(String::new()))
                .await
                .unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(refusal.code(), Code::Unauthenticated, "{refusal}");
        }
    });
}

/// Health needs no credential: `grpc.health.v1.Health/Check` of every service, with messages
/// encoded by hand.
#[test]
fn workspaces_are_listed_in_pages_and_streamed_as_a_tree() {
    let server = shared();
    let admin = server.admin();
    let (parent, cluster) = workspace(&admin, "tree");
    for child in ["a", "b", "c"] {
        insula_e2e::ready_workspace(&admin, &parent, child, json!({}));
    }
    insula_e2e::ready_workspace(&admin, &format!("{parent}:b"), "leaf", json!({}));
    runtime().block_on(async {
        let mut client = WorkspaceServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
        let (mut found, mut page_token) = (Vec::new(), String::new());
        loop {
            let page = ListWorkspacesRequest {
                parent: parent.clone(),
                page_size: 2,
                page_token,
            };
            let page = client.list_workspaces(page).await.unwrap().into_inner();
            found.extend(page.workspaces.into_iter().map(|workspace| workspace.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(found, ["a", "b", "c"]);
        let one = client
            .get_workspace(GetWorkspaceRequest {
                workspace: parent.clone(),
            })
            .await
            .unwrap()
            .into_inner()
            .workspace
            .unwrap();
        assert_eq!(
            (one.cluster.as_str(), one.phase.as_str(), one.path.as_str()),
            (cluster.as_str(), "Ready", parent.as_str())
        );
        let tree = TreeWorkspacesRequest {
            root: parent.clone(),
            max_depth: 0,
        };
        let mut tree = client.tree_workspaces(tree).await.unwrap().into_inner();
        let mut nodes = Vec::new();
        while let Some(node) = tree.message().await.unwrap() {
            nodes.push((
                node.depth,
                node.workspace.unwrap().path.trim_start_matches(&parent).to_owned(),
            ));
        }
        let wanted = [(0, ""), (1, ":a"), (1, ":b"), (2, ":b:leaf"), (1, ":c")];
        assert_eq!(nodes, wanted.map(|(depth, path)| (depth, path.to_owned())));
        let missing = client
            .get_workspace(GetWorkspaceRequest {
                workspace: format!("{parent}:nothing"),
            })
            .await
            .unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
    });
}

#[test]
fn a_tenant_reaches_its_own_workspace_only() {
    let server = shared();
    let (mine, _) = workspace_owned_by(&server, "alice");
    let (theirs, cluster) = workspace_owned_by(&server, "other");
    runtime().block_on(async {
        let mut client = WorkspaceServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
        let own = client
            .list_workspaces(as_user(
                "alice-token",
                ListWorkspacesRequest {
                    parent: mine.clone(),
                    ..ListWorkspacesRequest::default()
                },
            ))
            .await;
        assert!(own.is_ok(), "{own:?}");
        for foreign in [theirs.as_str(), cluster.as_str(), "root", "system:bound-crds"] {
            let list = ListWorkspacesRequest {
                parent: foreign.to_owned(),
                ..ListWorkspacesRequest::default()
            };
            let refused = client.list_workspaces(as_user("alice-token", list)).await.unwrap_err();
            assert!(
                [Code::PermissionDenied, Code::NotFound].contains(&refused.code()),
                "{foreign}: {refused}"
            );
            let tree = TreeWorkspacesRequest {
                root: foreign.to_owned(),
                max_depth: 0,
            };
            let refused = client
                .tree_workspaces(as_user("alice-token", tree))
                .await
                .map(drop)
                .unwrap_err();
            assert!(
                [Code::PermissionDenied, Code::NotFound].contains(&refused.code()),
                "{foreign}: {refused}"
            );
        }
    });
}

async fn reflect(server: &Server, who: Who, ask: MessageRequest) -> Result<MessageResponse, Status> {
    let mut client = ServerReflectionClient::with_origin(channel(server, &who), origin(server));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(ask),
    };
    let mut answers = client
        .server_reflection_info(futures_util::stream::iter([request]))
        .await?
        .into_inner();
    let answer = answers.message().await?.ok_or_else(|| Status::internal("no answer"))?;
    answer
        .message_response
        .ok_or_else(|| Status::internal("an empty answer"))
}

/// A client that was built without any of our definitions. It lists the services, reads the
/// messages' fields, builds a request from them and decodes the answer with them.
#[test]
fn a_client_can_call_by_reflection_alone() {
    let server = shared();
    runtime().block_on(async {
        let services = match reflect(&server, Who::KcpAdmin, MessageRequest::ListServices(String::new()))
            .await
            .unwrap()
        {
            MessageResponse::ListServicesResponse(list) => {
                list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let ours: BTreeSet<&String> = services.iter().filter(|name| name.starts_with("insula.")).collect();
        assert_eq!(ours, admin_services().iter().collect());
        let ask = MessageRequest::FileContainingSymbol("insula.admin.v1.WorkspaceService".to_owned());
        let files: Vec<FileDescriptorProto> = match reflect(&server, Who::KcpAdmin, ask).await.unwrap() {
            MessageResponse::FileDescriptorResponse(found) => found
                .file_descriptor_proto
                .iter()
                .map(|bytes| FileDescriptorProto::decode(&bytes[..]).unwrap())
                .collect(),
            other => panic!("{other:?}"),
        };
        let file = files.iter().find(|file| !file.service.is_empty()).unwrap();
        let method = file.service[0]
            .method
            .iter()
            .find(|method| method.name() == "GetWorkspace")
            .unwrap();
        let answer = call(&server, file, method, &[("workspace", "root")]).await;
        let workspace = read(&answer, &fields(file, method.output_type()));
        let workspace = read(&workspace["workspace"], &fields(file, ".insula.admin.v1.Workspace"));
        assert_eq!(
            (&workspace["path"][..], &workspace["phase"][..]),
            (&b"root"[..], &b"Ready"[..])
        );
    });
}

/// Returns the numbers of a message's fields by name.
fn fields(file: &FileDescriptorProto, message: &str) -> BTreeMap<String, u32> {
    let short = message.rsplit('.').next().unwrap();
    let found = file
        .message_type
        .iter()
        .find(|candidate| candidate.name() == short)
        .unwrap();
    found
        .field
        .iter()
        .map(|field| (field.name().to_owned(), field.number() as u32))
        .collect()
}

/// Calls a method with a message of strings. The type of a field alone determines its encoding.
async fn call(
    server: &Server,
    file: &FileDescriptorProto,
    method: &MethodDescriptorProto,
    values: &[(&str, &str)],
) -> Vec<u8> {
    let numbers = fields(file, method.input_type());
    let mut message = Vec::new();
    for (name, text) in values {
        prost::encoding::string::encode(numbers[*name], &(*text).to_owned(), &mut message);
    }
    let path = format!("/{}.{}/{}", file.package(), file.service[0].name(), method.name());
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0][..], &length, &message].concat();
    let client: hyper_util::client::legacy::Client<_, http_body_util::Full<bytes::Bytes>> = {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(&server.data_dir(), &Who::KcpAdmin))
            .https_only();
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(connector.enable_http2().build())
    };
    let request = http::Request::post(format!("{}{path}", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(frame.into())
        .unwrap();
    let body = http_body_util::BodyExt::collect(client.request(request).await.unwrap().into_body())
        .await
        .unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    body.to_bytes()[5..].to_vec()
}

/// Returns the length-delimited fields by name: strings and messages.
fn read(mut message: &[u8], numbers: &BTreeMap<String, u32>) -> BTreeMap<String, Vec<u8>> {
    use prost::encoding::{DecodeContext, WireType, bytes, decode_key, skip_field};
    let mut found = BTreeMap::new();
    while !message.is_empty() {
        let (number, wire) = decode_key(&mut message).unwrap();
        let name = numbers
            .iter()
            .find_map(|(name, field)| (*field == number).then_some(name));
        match (wire, name) {
            (WireType::LengthDelimited, Some(name)) => {
                let mut value = Vec::new();
                bytes::merge(wire, &mut value, &mut message, DecodeContext::default()).unwrap();
                found.insert(name.clone(), value);
            }
            _ => skip_field(wire, number, &mut message, DecodeContext::default()).unwrap(),
        }
    }
    found
}
