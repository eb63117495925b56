//! Refusals name what is wrong: the field of the request, the limit, the object. Warnings come
//! along.

mod fields;

use insula_e2e::{Client, Server, Who, runtime, shared, with_widgets, workspace};
use insula_proto::{
    admin::v1::{
        AccessLevel, ApplyObjectRequest, BindApiRequest, CreateWorkspaceRequest, GetObjectRequest, GetOperationRequest,
        ListObjectsRequest, ObjectType, RevokeAccessRequest, Subject, SubjectKind, WatchObjectsRequest,
    },
    rpc::{self, Detail},
    value::from_json,
};
use prost::Message;
use prost_types::FileDescriptorProto;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_reflection::pb::v1::{
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use super::{
    Channel, bad_fields, channel,
    conventions::{Outcome, send, text},
    reason, reflect,
};

async fn call(channel: &Channel, server: &Server, method: &str, message: &[u8], headers: &[(&str, &str)]) -> Outcome {
    send(channel, server, &format!("/insula.admin.v1.{method}"), message, headers).await
}

fn kind_of(workspace: &str, api_version: &str, resource: &str) -> Option<ObjectType> {
    Some(ObjectType {
        workspace: workspace.to_owned(),
        api_version: api_version.to_owned(),
        resource: resource.to_owned(),
        kind: String::new(),
    })
}

fn get(workspace: &str, resource: &str, namespace: &str, name: &str) -> GetObjectRequest {
    GetObjectRequest {
        r#type: kind_of(workspace, "v1", resource),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn apply(workspace: &str, object: &Value) -> ApplyObjectRequest {
    ApplyObjectRequest {
        workspace: workspace.to_owned(),
        object: Some(from_json(object.as_object().unwrap()).unwrap()),
        field_manager: "robot".to_owned(),
        ..ApplyObjectRequest::default()
    }
}

fn configmap() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}})
}

/// Returns a manifest of two bytes, in which another begins that ends at the end of all bytes, and
/// so on: a decoder that looks at the end of the outer message last goes down all levels.
fn lying_lengths(levels: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..levels {
        // A field of a Struct, its value, the Struct in that.
        for tag in [1, 2, 5] {
            let mut head = Vec::new();
            prost::encoding::bytes::encode(tag, &message, &mut head);
            message = head;
        }
    }
    let mut request = vec![0x1a, 2];
    request.extend(message);
    request
}

/// Headers, and bytes that are no message.
#[test]
fn calls_that_are_malformed_are_refused_plainly() {
    let server = shared();
    let channel = channel(&server, &Who::KcpAdmin);
    const GET: &str = "ObjectService/GetObject";
    runtime().block_on(async {
        for (header, value) in [("insula-workspace", "no path"), ("grpc-timeout", "1x")] {
            let refusal = call(&channel, &server, GET, &[], &[(header, value)]).await.status;
            assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
            assert_eq!(bad_fields(&refusal), [header], "{refusal:?}");
        }
        let mut no_text = Vec::new();
        prost::encoding::bytes::encode(3, &vec![0xff_u8], &mut no_text);
        for (message, fields) in [(vec![0xff, 0xff], vec![]), (no_text, vec!["name".to_owned()])] {
            let refusal = call(&channel, &server, GET, &message, &[]).await.status;
            assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
            assert_eq!(
                (&*reason(&refusal), bad_fields(&refusal)),
                ("INVALID_FIELD", fields),
                "{refusal:?}"
            );
            assert!(refusal.message().contains("no message of this method"), "{refusal:?}");
        }

        for hostile in [lying_lengths(5000), vec![0x0b; 5000]] {
            let check = "ApiService/CheckRollout";
            let refusal = call(&channel, &server, check, &hostile, &[]).await.status;
            assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal:?}");
        }
        let garbage = vec![0xff, 0xff];
        let refusal = call(&channel, &server, "BackupService/UploadBackup", &garbage, &[])
            .await
            .status;
        assert_eq!(
            (refusal.code(), &*reason(&refusal)),
            (Code::InvalidArgument, "INVALID_FIELD"),
            "{refusal:?}"
        );
    });
}

#[test]
fn limits_of_messages_are_told() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "large");
    let channel = channel(&server, &Who::KcpAdmin);
    runtime().block_on(async {
        let mut object = configmap();
        object["data"] = json!({"a": "x".repeat(4 << 20)});
        for (method, message, most) in [
            ("ObjectService/GetObject", text(3, &"a".repeat(100_000)), 64 << 10),
            (
                "ObjectService/ApplyObject",
                apply(&path, &object).encode_to_vec(),
                3 << 20,
            ),
        ] {
            let refusal = call(&channel, &server, method, &message, &[]).await.status;
            assert_eq!(
                (refusal.code(), &*reason(&refusal)),
                (Code::ResourceExhausted, "LIMIT_REACHED"),
                "{refusal:?}"
            );
            assert!(
                refusal.message().contains(&format!("{most} bytes at most")),
                "{refusal:?}"
            );
        }
        // As large as over HTTP.
        let create = CreateWorkspaceRequest {
            parent: path.clone(),
            name: "annotated".to_owned(),
            annotations: [("a".to_owned(), "x".repeat(250_000))].into(),
            validate_only: true,
            ..CreateWorkspaceRequest::default()
        };
        let answer = call(
            &channel,
            &server,
            "WorkspaceService/CreateWorkspace",
            &create.encode_to_vec(),
            &[],
        )
        .await;
        assert_eq!(answer.status.code(), Code::Ok, "{:?}", answer.status);
    });
}

fn resource_info(refusal: &Status) -> rpc::ResourceInfo {
    let details = rpc::read(refusal.details()).unwrap();
    rpc::ResourceInfo::find(&details).unwrap_or_default()
}

/// Checks that a refusal says which resource does not exist.
fn is_missing(refusal: &Status, named: (&str, &str)) {
    let info = resource_info(refusal);
    let got = (refusal.code(), &*info.resource_type, &*info.resource_name);
    assert_eq!(got, (Code::NotFound, named.0, named.1), "{refusal:?}");
}

#[test]
fn refusals_name_the_resource() {
    let server = shared();
    let at = &*with_widgets(&server);
    let channel = channel(&server, &Who::KcpAdmin);
    let mut object = configmap();
    object["kind"] = json!("Gadget");
    runtime().block_on(async {
        let refusal =
            async |method: &str, message: Vec<u8>| call(&channel, &server, method, &message, &[]).await.status;
        for (message, says) in [
            (get(at, "pods", "default", "a"), "pods in v1"),
            (
                GetObjectRequest {
                    r#type: kind_of(at, "example.io/v9", "widgets"),
                    ..get(at, "", "default", "a")
                },
                "widgets in example.io/v9",
            ),
        ] {
            let refused = refusal("ObjectService/GetObject", message.encode_to_vec()).await;
            assert_eq!(
                (refused.code(), &*reason(&refused)),
                (Code::InvalidArgument, "NOT_SERVED")
            );
            assert!(
                refused.message().contains(&format!("workspace {at} serves no {says}")),
                "{refused:?}"
            );
        }
        let refused = refusal("ObjectService/ApplyObject", apply(at, &object).encode_to_vec()).await;
        assert_eq!(
            (refused.code(), &*reason(&refused)),
            (Code::InvalidArgument, "NOT_SERVED")
        );
        assert!(
            refused
                .message()
                .contains(&format!("workspace {at} serves no Gadget in v1")),
            "{refused:?}"
        );
    });
}

#[test]
fn refusals_name_what_is_missing() {
    let server = shared();
    let at = &*with_widgets(&server);
    let channel = channel(&server, &Who::KcpAdmin);
    let nothing = GetOperationRequest {
        name: "nothing".to_owned(),
    };
    let revoke = RevokeAccessRequest {
        workspace: at.to_owned(),
        subject: Some(Subject {
            kind: SubjectKind::User.into(),
            name: "nobody".to_owned(),
            namespace: String::new(),
        }),
        level: AccessLevel::View.into(),
        ..RevokeAccessRequest::default()
    };
    runtime().block_on(async {
        for (method, message, named) in [
            (
                "OperationService/GetOperation",
                nothing.encode_to_vec(),
                ("operations.admin.insula.io", "nothing"),
            ),
            (
                "AccessService/RevokeAccess",
                revoke.encode_to_vec(),
                (
                    "clusterrolebindings.rbac.authorization.k8s.io",
                    "insula:access:view:user:nobody",
                ),
            ),
        ] {
            is_missing(&call(&channel, &server, method, &message, &[]).await.status, named);
        }
    });
}

/// Clients that have no files decode the details of refusals by reflection.
#[test]
fn reflection_knows_the_details_of_refusals() {
    let server = shared();
    runtime().block_on(async {
        for name in ["Status", "ErrorInfo", "BadRequest", "ResourceInfo", "RetryInfo"] {
            let ask = MessageRequest::FileContainingSymbol(format!("google.rpc.{name}"));
            let found = match reflect(&server, Who::KcpAdmin, ask).await.unwrap() {
                MessageResponse::FileDescriptorResponse(found) => found.file_descriptor_proto,
                other => panic!("{name}: {other:?}"),
            };
            let has = found.iter().any(|file| {
                let file = FileDescriptorProto::decode(&file[..]).unwrap();
                file.message_type.iter().any(|message| message.name() == name)
            });
            assert!(has, "{name}");
        }
        let ask = MessageRequest::FileByFilename("google/protobuf/any.proto".to_owned());
        let found = reflect(&server, Who::KcpAdmin, ask).await.unwrap();
        assert!(matches!(found, MessageResponse::FileDescriptorResponse(_)), "{found:?}");
    });
}

/// Defines pumps in a workspace, whose version v1 is deprecated.
pub(super) fn with_pumps(tenant: &Client) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pumps.example.io"},
        "spec": {"group": "example.io", "scope": "Cluster",
            "names": {"plural": "pumps", "singular": "pump", "kind": "Pump", "listKind": "PumpList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema, "deprecated": true,
                    "deprecationWarning": "v1 endet im März"},
                {"name": "v2", "served": true, "storage": false, "schema": schema}]}});
    tenant
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .expect(201);
    insula_e2e::until("pumps are served", || {
        (tenant.get("/apis/example.io/v2/pumps").code == 200).then_some(())
    });
}

/// A deprecated version, as HTTP clients hear of it: once for a call, and percent-encoded.
#[test]
fn warnings_of_the_http_api_come_with_the_answer() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "warned");
    with_pumps(&server.admin().in_workspace(&path));
    let channel = channel(&server, &Who::KcpAdmin);
    let pump = |version: &str| {
        let api_version = format!("example.io/{version}");
        json!({"apiVersion": api_version, "kind": "Pump", "metadata": {"name": "a"}})
    };
    let get = |version: &str, name: &str| GetObjectRequest {
        r#type: kind_of(&path, &format!("example.io/{version}"), "pumps"),
        name: name.to_owned(),
        ..GetObjectRequest::default()
    };
    let list = |version: &str| ListObjectsRequest {
        r#type: get(version, "").r#type,
        ..ListObjectsRequest::default()
    };
    let watch = |version: &str| WatchObjectsRequest {
        r#type: get(version, "").r#type,
        ..WatchObjectsRequest::default()
    };
    runtime().block_on(async {
        for version in ["v1", "v2"] {
            for (method, message, code) in [
                ("ApplyObject", apply(&path, &pump(version)).encode_to_vec(), Code::Ok),
                ("GetObject", get(version, "a").encode_to_vec(), Code::Ok),
                ("GetObject", get(version, "b").encode_to_vec(), Code::NotFound),
                ("ListObjects", list(version).encode_to_vec(), Code::Ok),
                ("WatchObjects", watch(version).encode_to_vec(), Code::Ok),
            ] {
                let answer = call(&channel, &server, &format!("ObjectService/{method}"), &message, &[]).await;
                assert_eq!(answer.status.code(), code, "{method}: {:?}", answer.status);
                let warnings: Vec<&str> = answer
                    .metadata
                    .get_all("insula-warning")
                    .iter()
                    .map(|w| w.to_str().unwrap())
                    .collect();
                let want = if version == "v1" {
                    &["v1 endet im M%C3%A4rz"][..]
                } else {
                    &[]
                };
                assert_eq!(warnings, want, "{method} {version}");
            }
        }
    });
}

/// A second binding of an API warns over gRPC as it does over HTTP.
#[test]
fn a_second_binding_warns() {
    let server = shared();
    let at = with_widgets(&server);
    let channel = channel(&server, &Who::KcpAdmin);
    let bind = BindApiRequest {
        workspace: at.clone(),
        export_workspace: at,
        export: "widgets".to_owned(),
        binding: "second".to_owned(),
        ..BindApiRequest::default()
    };
    let message = bind.encode_to_vec();
    let answer = runtime().block_on(call(&channel, &server, "ApiService/BindApi", &message, &[]));
    let warning = answer
        .metadata
        .get("insula-warning")
        .map(|warning| warning.to_str().unwrap());
    assert!(
        warning.is_some_and(|text| text.contains("has bound widgets.example.io already")),
        "{warning:?} {:?}",
        answer.status
    );
}
