//! Clients and servers of different ages: messages with more fields than the server knows, with
//! fewer, and with values of enumerations that it does not know.

use insula_e2e::{Who, runtime, shared, workspace};
use insula_proto::admin::v1::{
    GetLimitsRequest, GetWorkspaceRequest, Limits, SetLimitsRequest, UpdateWorkspaceRequest,
    quota_service_client::QuotaServiceClient, workspace_service_client::WorkspaceServiceClient,
};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
use std::collections::{BTreeMap, BTreeSet};
use tonic::Code;

use super::{
    bad_fields, channel, client,
    conventions::{Method, Outcome, methods, send, text},
    reason,
};

/// A field that no message has, as a later version of the API could add it.
#[derive(Clone, PartialEq, Message)]
struct Later {
    #[prost(uint64, tag = "1900")]
    number: u64,
    #[prost(string, tag = "1901")]
    text: String,
    #[prost(message, optional, boxed, tag = "1902")]
    inner: Option<Box<Later>>,
}

fn later() -> Vec<u8> {
    let inner = Later {
        number: 7,
        text: "inner".to_owned(),
        inner: None,
    };
    let later = Later {
        number: u64::MAX,
        text: "later".repeat(20),
        inner: Some(Box::new(inner)),
    };
    later.encode_to_vec()
}

/// A method answers a request with unknown fields as it answers the one without: requests are from
/// a newer client, and its additions mean nothing here.
#[test]
fn unknown_fields_change_no_answer() {
    let server = shared();
    let channel = channel(&server, &Who::KcpAdmin);
    runtime().block_on(async {
        for method in methods() {
            let path = &method.path;
            let plain = send(&channel, &server, path, &[], &[]).await;
            let more = send(&channel, &server, path, &later(), &[]).await;
            let outcome = |got: &Outcome| (got.status.code(), got.status.message().to_owned());
            assert_eq!(outcome(&more), outcome(&plain), "{path}");
        }
    });
}

/// Messages of an early version of the API, with the fields that it had.
mod early {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct CreateWorkspaceRequest {
        #[prost(string, tag = "1")]
        pub(super) parent: String,
        #[prost(string, tag = "2")]
        pub(super) name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Workspace {
        #[prost(string, tag = "2")]
        pub(super) name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct WorkspaceAnswer {
        #[prost(message, optional, tag = "2")]
        pub(super) workspace: Option<Workspace>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Limits {
        #[prost(int64, tag = "1")]
        pub(super) objects: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct SetLimitsRequest {
        #[prost(string, tag = "1")]
        pub(super) workspace: String,
        #[prost(message, optional, tag = "2")]
        pub(super) limits: Option<Limits>,
        #[prost(message, optional, tag = "3")]
        pub(super) update_mask: Option<prost_types::FieldMask>,
    }
}

const CREATE: &str = "/insula.admin.v1.WorkspaceService/CreateWorkspace";
const SET_LIMITS: &str = "/insula.admin.v1.QuotaService/SetLimits";

fn mask(paths: &[&str]) -> Option<prost_types::FieldMask> {
    Some(prost_types::FieldMask {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    })
}

/// A client whose messages have fewer fields creates, reads, and changes what it knows; fields that
/// newer clients have set stay.
#[test]
fn an_old_client_keeps_what_it_does_not_know() {
    let server = shared();
    let (parent, _) = workspace(&server.admin(), "old");
    let channel = channel(&server, &Who::KcpAdmin);
    let mut quotas = client!(QuotaServiceClient<_>, server, Who::KcpAdmin);
    let call = async |path: &str, message: Vec<u8>| {
        let got = send(&channel, &server, path, &message, &[]).await;
        assert_eq!(got.status.code(), Code::Ok, "{path}: {:?}", got.status);
        got.message.unwrap()
    };
    runtime().block_on(async {
        let create = early::CreateWorkspaceRequest {
            parent: parent.clone(),
            name: "team".to_owned(),
        };
        let made = call(CREATE, create.encode_to_vec()).await;
        let made = early::WorkspaceAnswer::decode(&*made).unwrap();
        assert_eq!(made.workspace.unwrap().name, "team");

        let place = format!("{parent}:team");
        let all = SetLimitsRequest {
            workspace: place.clone(),
            limits: Some(Limits {
                objects: 500,
                watches: 40,
                requests_per_second: 30,
                ..Limits::default()
            }),
            ..SetLimitsRequest::default()
        };
        // The early client does not wait until the workspace is there.
        while let Err(refusal) = quotas.set_limits(all.clone()).await {
            assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}");
        }
        for (objects, update_mask) in [(600, mask(&["objects"])), (700, None), (800, mask(&[]))] {
            let set = early::SetLimitsRequest {
                workspace: place.clone(),
                limits: Some(early::Limits { objects }),
                update_mask,
            };
            call(SET_LIMITS, set.encode_to_vec()).await;
            let get = GetLimitsRequest {
                workspace: place.clone(),
            };
            let own = quotas.get_limits(get).await.unwrap().into_inner().own.unwrap();
            let want = (objects, 40, 30);
            assert_eq!((own.objects, own.watches, own.requests_per_second), want, "{own:?}");
        }
    });
}

/// A newer client's field in an update mask is refused: ignoring it would report a change that was
/// not made.
#[test]
fn a_mask_with_an_unknown_field_is_refused() {
    let server = shared();
    let (place, _) = workspace(&server.admin(), "masked");
    let mut workspaces = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
    runtime().block_on(async {
        let update = UpdateWorkspaceRequest {
            workspace: place.clone(),
            labels: [("tier".to_owned(), "gold".to_owned())].into(),
            update_mask: mask(&["labels", "colour"]),
            ..UpdateWorkspaceRequest::default()
        };
        let refused = workspaces.update_workspace(update).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(bad_fields(&refused), ["update_mask"]);
        let get = GetWorkspaceRequest { workspace: place };
        let found = workspaces
            .get_workspace(get)
            .await
            .unwrap()
            .into_inner()
            .workspace
            .unwrap();
        assert!(!found.labels.contains_key("tier"), "nothing was written");
    });
}

fn message(field: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::bytes::encode(field, &value.to_vec(), &mut out);
    out
}

fn unknown(field: u32) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::int32::encode(field, &4_711, &mut out);
    out
}

/// Returns the methods with an enumeration in their requests, each with the path of the field.
fn enumerations() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    let files: Vec<_> = set
        .file
        .iter()
        .filter(|file| file.package() == "insula.admin.v1")
        .collect();
    let types: BTreeMap<String, &DescriptorProto> = files
        .iter()
        .flat_map(|file| &file.message_type)
        .map(|message| (format!(".insula.admin.v1.{}", message.name()), message))
        .collect();
    let methods = files
        .iter()
        .flat_map(|file| &file.service)
        .flat_map(|service| &service.method);
    let mut found = BTreeSet::new();
    for method in methods {
        let mut open = vec![(types[method.input_type()], String::new())];
        while let Some((message, path)) = open.pop() {
            for field in &message.field {
                let path = format!("{path}{}", field.name());
                match types.get(field.type_name()) {
                    Some(inner) => open.push((inner, format!("{path}."))),
                    None if field.r#type() == Type::Enum => drop(found.insert(format!("/{} {path}", method.name()))),
                    None => {}
                }
            }
        }
    }
    found
}

/// Returns the method whose path ends so.
fn method(end: &str) -> Method {
    methods().into_iter().find(|method| method.path.ends_with(end)).unwrap()
}

/// Returns the rows of calls about the exports of a workspace.
fn rows_of_providers(provider: &str) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let fields = method("/RetireVersion").fields;
    let retire = [
        text(fields["workspace"], provider),
        text(fields["export"], "boats"),
        text(fields["version"], "boats/v1"),
        unknown(fields["step"]),
    ];
    let fields = method("/PublishApi").fields;
    let publish = [
        text(fields["workspace"], provider),
        message(fields["bindable_by"], &[unknown(1), text(2, "bob")].concat()),
    ];
    let fields = method("/DecideApiRequest").fields;
    let decide = [
        text(fields["workspace"], provider),
        text(fields["name"], "boats-alice"),
        unknown(fields["decision"]),
    ];
    vec![
        ("/RetireVersion", retire.concat(), "step"),
        ("/PublishApi", publish.concat(), "bindable_by[0].kind"),
        ("/DecideApiRequest", decide.concat(), "decision"),
    ]
}

/// Every request with an enumeration refuses values that the server does not know, and names the
/// field.
#[test]
fn unknown_values_of_enumerations_are_refused() {
    let server = shared();
    let (place, _) = insula_e2e::workspace_owned_by(&server, "alice");
    let scene = super::apis::Scene::new(&server);
    scene.publish_and_bind();
    let channel = channel(&server, &Who::KcpAdmin);
    let subject = |kind: Vec<u8>| [kind, text(2, "bob")].concat();
    let user = subject({
        let mut out = Vec::new();
        prost::encoding::int32::encode(1, &1, &mut out);
        out
    });
    let object_type = [text(1, &place), text(2, "v1"), text(3, "configmaps")].concat();
    let numbers = |path: &str| method(path).fields;
    let question = [text(1, "get"), text(3, "configmaps")].concat();
    let mut rows: Vec<(&str, Vec<u8>, &str)> = Vec::new();
    for path in [
        "/GrantAccess",
        "/RevokeAccess",
        "/ListAccess",
        "/CheckAccess",
        "/ListVisible",
    ] {
        let fields = numbers(path);
        let workspace = text(fields["workspace"], &place);
        let wrong_kind = message(fields["subject"], &subject(unknown(1)));
        let question = fields.get("question").map(|field| message(*field, &question));
        let request = [workspace.clone(), wrong_kind, question.unwrap_or_default()];
        rows.push((path, request.concat(), "subject.kind"));
        if let Some(level) = fields.get("level") {
            let right_kind = message(fields["subject"], &user);
            rows.push((path, [workspace, right_kind, unknown(*level)].concat(), "level"));
        }
    }
    let fields = numbers("/DeleteObject");
    let delete = [
        message(fields["type"], &object_type),
        text(fields["name"], "a"),
        unknown(fields["propagation"]),
    ];
    rows.push(("/DeleteObject", delete.concat(), "propagation"));
    rows.extend(rows_of_providers(&scene.provider));
    let tried: BTreeSet<String> = rows
        .iter()
        .map(|(path, _, field)| format!("{path} {}", field.replace("[0]", "")))
        .collect();
    assert_eq!(tried, enumerations(), "a row for each enumeration of a request");
    runtime().block_on(async {
        for (path, request, field) in rows {
            let got = send(&channel, &server, &method(path).path, &request, &[]).await;
            let refusal = &got.status;
            assert_eq!(refusal.code(), Code::InvalidArgument, "{path} {field}: {refusal:?}");
            assert_eq!(
                (&*reason(refusal), bad_fields(refusal)),
                ("INVALID_FIELD", vec![field.to_owned()]),
                "{path}"
            );
        }
    });
}
