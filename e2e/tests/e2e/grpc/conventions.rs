//! Conventions of all methods, as `common.proto` states them: a table over the descriptors.

use std::collections::{BTreeMap, BTreeSet};

use http_body_util::BodyExt;
use insula_e2e::{Server, Who, runtime, shared};
use insula_proto::admin::v1::{ListWorkspacesRequest, ListWorkspacesResponse, ResponseHeader};
use insula_proto::rpc::Detail;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use tonic::{Code, Status};

use super::{Channel, bad_fields, channel, reason};

/// The beginning of every answer.
#[derive(Clone, PartialEq, Message)]
struct Headed {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
}

/// A method with the fields of its request.
pub(super) struct Method {
    pub(super) path: String,
    pub(super) fields: BTreeMap<String, u32>,
    answer: Vec<String>,
}

pub(super) fn methods() -> Vec<Method> {
    let set = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    let ours = || set.file.iter().filter(|file| file.package() == "insula.admin.v1");
    let message = |name: &str| -> &DescriptorProto {
        let short = name.rsplit('.').next().unwrap();
        let found = ours().flat_map(|file| &file.message_type).find(|m| m.name() == short);
        found.unwrap_or_else(|| panic!("{name}"))
    };
    let mut methods = Vec::new();
    for file in ours() {
        for service in &file.service {
            for method in &service.method {
                let fields = message(method.input_type()).field.iter();
                let answer = message(method.output_type()).field.iter();
                methods.push(Method {
                    path: format!("/{}.{}/{}", file.package(), service.name(), method.name()),
                    fields: fields
                        .map(|field| (field.name().to_owned(), u32::try_from(field.number()).unwrap()))
                        .collect(),
                    answer: answer.map(|field| field.name().to_owned()).collect(),
                });
            }
        }
    }
    methods
}

/// The outcome of a call: its status, its metadata, and its first message.
pub(super) struct Outcome {
    pub(super) status: Status,
    pub(super) metadata: http::HeaderMap,
    pub(super) message: Option<Vec<u8>>,
}

/// Returns the length of the first message, once it is there.
fn first_length(data: &[u8]) -> Option<usize> {
    let length = data.get(1..5)?.try_into().unwrap();
    let length = u32::from_be_bytes(length) as usize;
    (data.len() >= length + 5).then_some(length)
}

/// Sends an encoded request, and reads until its first message or its end.
pub(super) async fn send(
    channel: &Channel,
    server: &Server,
    path: &str,
    message: &[u8],
    headers: &[(&str, &str)],
) -> Outcome {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[0][..], &length, message].concat();
    let mut request = http::Request::post(format!("{}{path}", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = tonic::body::Body::new(http_body_util::Full::new(bytes::Bytes::from(frame)));
    let (head, mut body) = channel.request(request.body(body).unwrap()).await.unwrap().into_parts();
    let (mut metadata, mut data) = (head.headers, Vec::new());
    while let Some(frame) = body.frame().await {
        match frame.unwrap().into_data() {
            Ok(bytes) => data.extend_from_slice(&bytes),
            Err(trailers) => metadata.extend(trailers.into_trailers().unwrap()),
        }
        if first_length(&data).is_some() && !metadata.contains_key("grpc-status") {
            // A stream need not end.
            break;
        }
    }
    Outcome {
        status: Status::from_header_map(&metadata).unwrap_or_else(|| Status::new(Code::Ok, "")),
        metadata,
        message: first_length(&data).map(|length| data[5..length + 5].to_vec()),
    }
}

/// Returns type and name of the object that a refusal is about.
pub(super) fn resource(refusal: &Status) -> (String, String) {
    let details = insula_proto::rpc::read(refusal.details()).unwrap_or_default();
    let resource = insula_proto::rpc::ResourceInfo::find(&details);
    let resource = resource.unwrap_or_else(|| panic!("no object: {refusal:?}"));
    (resource.resource_type, resource.resource_name)
}

pub(super) fn text(field: u32, value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::string::encode(field, &value.to_owned(), &mut out);
    out
}

/// Every answer has the header with the cluster's id and the name of the request, and every refusal
/// has details with a reason of the closed list; both repeat the name of the request.
#[test]
fn every_answer_has_a_header_and_every_refusal_has_details() {
    let server = shared();
    let channels = [
        (Who::KcpAdmin, &[][..]),
        (Who::Anonymous, &[("authorization", "Bearer bob-token")][..]),
        (Who::Anonymous, &[][..]),
    ];
    let channels = channels.map(|(who, headers)| (channel(&server, &who), headers));
    runtime().block_on(async {
        let mut clusters = BTreeSet::new();
        for method in methods() {
            for (index, (channel, credentials)) in channels.iter().enumerate() {
                let name = format!("table/{index}");
                let headers = [credentials, &[("x-request-id", name.as_str())][..]].concat();
                let got = send(channel, &server, &method.path, &[], &headers).await;
                let what = format!("{} of {index}: {:?}", method.path, got.status);
                assert_eq!(got.metadata["x-request-id"], *name, "{what}");
                match got.status.code() {
                    Code::Ok => {
                        let Some(message) = got.message else { continue };
                        let header = Headed::decode(&*message).unwrap().header.expect(&what);
                        assert_eq!(header.request_id, name, "{what}");
                        assert!(header.revision > 0 && header.shard == "root", "{what}");
                        clusters.insert(header.cluster_id);
                    }
                    _ => drop(reason(&got.status)),
                }
            }
        }
        let clusters: Vec<String> = clusters.into_iter().collect();
        assert!(clusters.len() == 1 && clusters[0].len() == 36, "{clusters:?}");
    });
}

/// A row: a field, and a value that no method takes.
#[test]
fn fields_with_a_convention_refuse_other_values() {
    let server = shared();
    let channel = channel(&server, &Who::KcpAdmin);
    let negative = |field: u32| {
        let mut out = Vec::new();
        prost::encoding::int32::encode(field, &-1, &mut out);
        out
    };
    let mask = |field: u32| {
        let mask = prost_types::FieldMask {
            paths: vec!["no_such_field".to_owned()],
        };
        let mut out = Vec::new();
        prost::encoding::message::encode(field, &mask, &mut out);
        out
    };
    type Encode<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let rows: [(&str, Encode<'_>); 8] = [
        ("page_size", &negative),
        ("page_token", &|field| text(field, "no token")),
        ("request_id", &|field| text(field, "no-uuid")),
        ("request_id", &|field| text(field, &"a".repeat(20_000))),
        ("request_id", &|field| {
            text(field, "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b1\0")
        }),
        ("request_id", &|field| {
            text(field, "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b111")
        }),
        ("etag", &|field| text(field, "no etag")),
        ("update_mask", &mask),
    ];
    runtime().block_on(async {
        let mut tried = BTreeMap::<&str, usize>::new();
        for method in methods() {
            for (field, encode) in &rows {
                let Some(number) = method.fields.get(*field) else {
                    continue;
                };
                let got = send(&channel, &server, &method.path, &encode(*number), &[]).await;
                assert_eq!(
                    got.status.code(),
                    Code::InvalidArgument,
                    "{} {field}: {:?}",
                    method.path,
                    got.status
                );
                reason(&got.status);
                *tried.entry(field).or_default() += 1;
            }
        }
        assert_eq!(tried.len(), 5, "{tried:?}");
    });
}

/// Names of requests are repeated where they are printable and short; others get one made up.
#[test]
fn a_request_without_a_usable_name_gets_one() {
    let server = shared();
    let channel = channel(&server, &Who::KcpAdmin);
    runtime().block_on(async {
        let long = "a".repeat(129);
        let named = |name: &'static str| vec![("x-request-id", name)];
        for headers in [
            vec![],
            named(""),
            named("with a space"),
            vec![("x-request-id", long.as_str())],
        ] {
            let got = send(
                &channel,
                &server,
                "/insula.admin.v1.ClusterService/GetInfo",
                &[],
                &headers,
            )
            .await;
            let header = Headed::decode(&*got.message.unwrap()).unwrap().header.unwrap();
            assert_eq!(header.request_id, got.metadata["audit-id"], "{headers:?}");
            assert_eq!(header.request_id, got.metadata["x-request-id"], "{headers:?}");
        }
    });
}

/// First words of methods that only read.
const READS: [&str; 15] = [
    "Get", "List", "Tree", "Watch", "Wait", "Who", "Check", "Explain", "Diff", "Plan", "Lint", "Suggest", "Validate",
    "Convert", "Download",
];

/// Writes that lack a field of the conventions, each with the reason.
const EXCEPTIONS: [(&str, &str, &str); 21] = [
    ("Recompute", "validate_only", "it writes only with `apply`"),
    (
        "Recompute",
        "etag",
        "each object is compared with the state that was examined",
    ),
    ("BeginMigration", "validate_only", "PlanMigration is the trial"),
    (
        "BeginMigration",
        "etag",
        "a registration has one migration, which a second begin finds",
    ),
    (
        "AdvanceMigration",
        "validate_only",
        "the answer of the former part says what comes next",
    ),
    (
        "AdvanceMigration",
        "etag",
        "a step is guarded by the state of the migration",
    ),
    (
        "UndoMigration",
        "validate_only",
        "it turns the direction, and AdvanceMigration writes",
    ),
    (
        "UndoMigration",
        "etag",
        "a step is guarded by the state of the migration",
    ),
    (
        "CancelOperation",
        "etag",
        "an operation is cancelled in any state, or refuses",
    ),
    (
        "DeleteOperation",
        "etag",
        "the record of an operation that is done does not change",
    ),
    ("VerifyBackup", "etag", "backups do not change"),
    ("RestoreBackup", "etag", "backups do not change"),
    ("DeleteBackup", "etag", "backups do not change"),
    ("UploadBackup", "etag", "it is new"),
    ("GrantAccess", "etag", "what exists already stays as it is"),
    ("ImportDefinitions", "etag", "what exists already must be equal"),
    ("BindApi", "etag", "what exists already must be equal"),
    (
        "RetireField",
        "etag",
        "each object that it changes is guarded by itself",
    ),
    ("RequestApi", "etag", "a request that exists already is the answer"),
    ("Compact", "etag", "a revision does not change"),
    ("SetLogLevel", "etag", "the level is one value of one server"),
];

/// Lists have pages, writes are idempotent and can be tried, and what exists has an etag.
#[test]
fn methods_have_the_fields_of_their_kind() {
    let mut missing = Vec::new();
    let methods = methods();
    let mut excused: BTreeSet<(&str, &str)> = EXCEPTIONS.iter().map(|(method, field, _)| (*method, *field)).collect();
    for method in &methods {
        let name = method.path.rsplit('/').next().unwrap();
        let is = |verbs: &[&str]| verbs.iter().any(|verb| name.starts_with(verb));
        let mut needed: Vec<&str> = Vec::new();
        if is(&["List"]) {
            needed.extend(["page_size", "page_token"]);
            if !method.answer.iter().any(|field| field == "next_page_token") {
                missing.push(format!("{name}Response.next_page_token"));
            }
        }
        if !is(&READS) {
            needed.extend(["request_id", "validate_only"]);
            if !is(&["Create"]) {
                needed.push("etag");
            }
        }
        if is(&["Update", "SetLimits"]) {
            needed.push("update_mask");
        }
        let mut lacking: Vec<&str> = needed
            .into_iter()
            .filter(|field| !method.fields.contains_key(*field))
            .collect();
        lacking.retain(|field| !excused.remove(&(name, *field)));
        missing.extend(lacking.into_iter().map(|field| format!("{name}Request.{field}")));
    }
    assert!(missing.is_empty(), "{missing:?}");
    assert!(excused.is_empty(), "they have what they are excused from: {excused:?}");
    let types = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    for message in types.file.iter().flat_map(|file| &file.message_type) {
        for field in &message.field {
            let want = match field.name() {
                "page_size" => Type::Int32,
                "page_token" | "next_page_token" | "request_id" | "etag" => Type::String,
                "validate_only" => Type::Bool,
                _ => continue,
            };
            assert_eq!(field.r#type(), want, "{}.{}", message.name(), field.name());
        }
    }
}

/// Returns texts that differ from a token in a digit, or are cut or longer.
fn edits(token: &str) -> Vec<String> {
    let edited = |at: usize| {
        let digit = if &token[at..=at] == "0" { "1" } else { "0" };
        format!("{}{digit}{}", &token[..at], &token[at + 1..])
    };
    let edits = (0..token.len()).map(edited);
    let cuts = (2..token.len()).step_by(2).map(|end| token[..end].to_owned());
    edits.chain(cuts).chain([format!("{token}61")]).collect()
}

/// Fields of each kind that the tables above try by themselves, and tokens of pages by a call:
/// a token of one method or filter is none of another, for every method with pages.
#[test]
fn tokens_of_other_methods_are_refused_everywhere() {
    let server = shared();
    let (parent, _) = insula_e2e::workspace(&server.admin(), "tokens");
    for name in ["a", "b"] {
        insula_e2e::ready_workspace(&server.admin(), &parent, name, serde_json::json!({}));
    }
    let channel = channel(&server, &Who::KcpAdmin);
    let list = ListWorkspacesRequest {
        parent: parent.clone(),
        page_size: 1,
        ..ListWorkspacesRequest::default()
    };
    const LIST: &str = "/insula.admin.v1.WorkspaceService/ListWorkspaces";
    runtime().block_on(async {
        let page = send(&channel, &server, LIST, &list.encode_to_vec(), &[]).await;
        let page = ListWorkspacesResponse::decode(&*page.message.unwrap()).unwrap();
        let token = page.next_page_token;
        assert!(!token.is_empty());
        let mut tried = 0;
        for method in methods() {
            let Some(field) = method.fields.get("page_token") else {
                continue;
            };
            let mut request = text(*field, &token);
            if let Some(workspace) = method.fields.get("workspace").or(method.fields.get("parent")) {
                request.extend(text(*workspace, "root"));
            }
            let got = send(&channel, &server, &method.path, &request, &[]).await;
            assert_eq!(
                got.status.code(),
                Code::InvalidArgument,
                "{}: {:?}",
                method.path,
                got.status
            );
            tried += 1;
        }
        assert!(tried > 10, "{tried}");
        for page_token in edits(&token) {
            let list = ListWorkspacesRequest {
                page_token,
                ..list.clone()
            };
            let got = send(&channel, &server, LIST, &list.encode_to_vec(), &[]).await.status;
            assert_eq!(got.code(), Code::InvalidArgument, "{list:?}: {got:?}");
            let wrong = ("WRONG_PAGE_TOKEN", vec!["page_token".to_owned()]);
            assert_eq!((&*reason(&got), bad_fields(&got)), wrong);
        }
        let next = ListWorkspacesRequest {
            page_token: token.clone(),
            ..list.clone()
        };
        let page = send(&channel, &server, LIST, &next.encode_to_vec(), &[]).await;
        let page = ListWorkspacesResponse::decode(&*page.message.unwrap()).unwrap();
        assert_eq!((page.workspaces.len(), &*page.workspaces[0].name), (1, "b"));
        let sizes = [(0, 2), (1, 1), (1_001, 2), (i32::MAX, 2)];
        for (page_size, want) in sizes {
            let list = ListWorkspacesRequest {
                page_size,
                ..list.clone()
            };
            let page = send(&channel, &server, LIST, &list.encode_to_vec(), &[]).await;
            let page = ListWorkspacesResponse::decode(&*page.message.unwrap()).unwrap();
            assert_eq!(page.workspaces.len(), want, "{page_size}");
        }
    });
}

/// A thing that is missing is named in the details, whatever it is.
#[test]
fn what_is_not_found_is_named() {
    let server = shared();
    let (place, _) = insula_e2e::workspace(&server.admin(), "missing");
    let channel = channel(&server, &Who::KcpAdmin);
    let stored = [text(1, &place), text(2, "none")].concat();
    let schema = super::apis::message(&super::apis::definition(false)).encode_to_vec();
    let object = [text(1, &place), message(2, &schema), text(4, "none")].concat();
    runtime().block_on(async {
        for (path, request, wanted) in [
            (
                "OperationService/GetOperation",
                text(1, "none"),
                "operations.admin.insula.io",
            ),
            ("BackupService/GetBackup", text(1, "none"), "backups.admin.insula.io"),
            ("BackupService/DeleteBackup", text(1, "none"), "backups.admin.insula.io"),
            ("ApiService/DiffApi", object, "apiexports.apis.kcp.io"),
            (
                "ConversionService/GetCoverage",
                message(2, &stored),
                "apiresourceschemas.apis.kcp.io",
            ),
        ] {
            let path = format!("/insula.admin.v1.{path}");
            let got = send(&channel, &server, &path, &request, &[]).await.status;
            assert_eq!(got.code(), Code::NotFound, "{path}: {got:?}");
            assert_eq!(resource(&got), (wanted.to_owned(), "none".to_owned()), "{path}");
        }
        const LIST: &str = "/insula.admin.v1.BackupService/ListBackups";
        let spaces = send(&channel, &server, LIST, &text(1, "A B"), &[]).await.status;
        assert_eq!(
            (spaces.code(), bad_fields(&spaces)),
            (Code::InvalidArgument, vec!["workspace".to_owned()])
        );
    });
}

fn message(field: u32, encoded: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::bytes::encode(field, &encoded.to_vec(), &mut out);
    out
}
