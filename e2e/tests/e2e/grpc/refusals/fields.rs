//! Tables of fields that a method refuses, with the name of the field in the refusal.

use insula_e2e::{Server, Who, runtime, shared, with_widgets, workspace};
use insula_proto::admin::v1::{
    AccessLevel, ApplyObjectRequest, CreateWorkspaceRequest, DeleteWorkspaceRequest, ExplainWorkspaceRequest,
    GetKubeconfigRequest, GetWorkspaceRequest, GrantAccessRequest, ListObjectsRequest, ListWorkspacesRequest,
    RevokeAccessRequest, Subject, SubjectKind, TreeWorkspacesRequest, UndeleteWorkspaceRequest, UpdateWorkspaceRequest,
    WatchObjectsRequest, WatchWorkspacesRequest,
};
use prost::Message;
use prost_types::FieldMask;
use serde_json::{Value, json};
use tonic::Code;

use super::{
    super::{bad_fields, channel, reason},
    apply, call, configmap, get, kind_of,
};

/// A row: method, message, field of the refusal, and a part of its text.
type Row = (&'static str, Vec<u8>, &'static str, &'static str);

fn row(method: &'static str, message: impl Message, field: &'static str, says: &'static str) -> Row {
    (method, message.encode_to_vec(), field, says)
}

/// Checks that the rows are refused with INVALID_ARGUMENT and the field.
fn refuses(server: &Server, rows: Vec<Row>) {
    let channel = channel(server, &Who::KcpAdmin);
    runtime().block_on(async {
        for (method, message, field, says) in rows {
            let refusal = call(&channel, server, method, &message, &[]).await.status;
            let what = format!("{method} {field}: {refusal:?}");
            assert_eq!(refusal.code(), Code::InvalidArgument, "{what}");
            assert_eq!(reason(&refusal), "INVALID_FIELD", "{what}");
            // A field may be wrong in two ways.
            let mut fields = bad_fields(&refusal);
            fields.dedup();
            assert_eq!(fields, [field], "{what}");
            assert!(refusal.message().contains(says), "{what}");
        }
    });
}

fn list(workspace: &str, labels: &str, fields: &str) -> ListObjectsRequest {
    ListObjectsRequest {
        r#type: kind_of(workspace, "v1", "configmaps"),
        label_selector: labels.to_owned(),
        field_selector: fields.to_owned(),
        ..ListObjectsRequest::default()
    }
}

const GET: &str = "ObjectService/GetObject";
const LIST: &str = "ObjectService/ListObjects";
const APPLY: &str = "ObjectService/ApplyObject";
const CREATE: &str = "WorkspaceService/CreateWorkspace";
const UPDATE: &str = "WorkspaceService/UpdateWorkspace";
const UNDELETE: &str = "WorkspaceService/UndeleteWorkspace";
const GRANT: &str = "AccessService/GrantAccess";
const REVOKE: &str = "AccessService/RevokeAccess";

/// Names, namespaces, resources and selectors of objects.
fn addresses(at: &str) -> Vec<Row> {
    let watch = WatchObjectsRequest {
        r#type: kind_of(at, "v1", "configmaps"),
        label_selector: "a=(".to_owned(),
        ..WatchObjectsRequest::default()
    };
    let of = |resource, namespace, name| get(at, resource, namespace, name);
    let elsewhere = get("no path", "configmaps", "default", "a");
    vec![
        row(GET, of("configmaps", "default", "a/b"), "name", "no name"),
        row(GET, of("configmaps", "default", ""), "name", "is required"),
        row(GET, of("configmaps", "a/b", "a"), "namespace", "no name"),
        row(GET, of("configmaps", "", "a"), "namespace", "is required"),
        row(GET, of("namespaces", "default", "a"), "namespace", "must be empty"),
        row(
            GET,
            of("configmaps/status", "default", "a"),
            "type.resource",
            "no plural resource",
        ),
        row(GET, elsewhere, "type.workspace", "root:org:team"),
        row(LIST, list(at, "a=(", ""), "label_selector", ""),
        row(LIST, list(at, "", "a"), "field_selector", ""),
        row(LIST, list(at, "", "spec.nothing=1"), "field_selector", ""),
        row("ObjectService/WatchObjects", watch, "label_selector", ""),
    ]
}

/// Objects with wrong fields.
fn objects(at: &str) -> Vec<Row> {
    let with = |path: &str, value: Value| {
        let mut object = json!({"apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": "a", "namespace": "default"}, "spec": {"firstName": "Ada"}});
        *object.pointer_mut(path).unwrap() = value;
        apply(at, &object)
    };
    let mut large = apply(at, &configmap());
    let number = prost_types::value::Kind::NumberValue(1e300);
    let number = prost_types::Value { kind: Some(number) };
    large.object.as_mut().unwrap().fields.insert("size".to_owned(), number);
    let mut managed = configmap();
    managed["metadata"]["managedFields"] = json!([]);
    vec![
        row(
            APPLY,
            with("/spec", json!({"nonsense": 1})),
            "object.spec.nonsense",
            "nonsense",
        ),
        row(
            APPLY,
            with("/spec/firstName", json!([])),
            "object.spec.firstName",
            "firstName",
        ),
        row(
            APPLY,
            with("/metadata/namespace", json!("")),
            "object.metadata.namespace",
            "is required",
        ),
        row(
            APPLY,
            with("/metadata/name", json!("A_B")),
            "object.metadata.name",
            "A_B",
        ),
        row(
            APPLY,
            apply(at, &managed),
            "object.metadata.managedFields",
            "must be absent",
        ),
        row(APPLY, large, "object.size", "2^53"),
    ]
}

/// Fields beside the object of an apply.
fn applies(at: &str) -> Vec<Row> {
    let managed_by = |manager: &str| ApplyObjectRequest {
        field_manager: manager.to_owned(),
        ..apply(at, &configmap())
    };
    let mut odd = configmap();
    odd["metadata"] = json!("a");
    let odd = ApplyObjectRequest {
        etag: "1".to_owned(),
        ..apply(at, &odd)
    };
    let secret = ApplyObjectRequest {
        resource: "secrets".to_owned(),
        ..apply(at, &configmap())
    };
    vec![
        row(APPLY, odd, "object.metadata.name", "is required"),
        row(APPLY, secret, "object.kind", "secrets"),
        row(APPLY, managed_by(""), "field_manager", "is required"),
        row(APPLY, managed_by("x\ny"), "field_manager", "printable"),
        row(APPLY, managed_by(&"x".repeat(200)), "field_manager", "128 bytes"),
    ]
}

#[test]
fn fields_of_objects_are_named() {
    let server = shared();
    let at = &*with_widgets(&server);
    refuses(&server, [addresses(at), objects(at), applies(at)].concat());
}

/// Workspaces that are created and changed.
fn workspaces(path: &str) -> Vec<Row> {
    let create = |name: &str, kind: &str| CreateWorkspaceRequest {
        parent: path.to_owned(),
        name: name.to_owned(),
        r#type: kind.to_owned(),
        ..CreateWorkspaceRequest::default()
    };
    let odd = || [("a b".to_owned(), "x".to_owned())].into();
    let elsewhere = CreateWorkspaceRequest {
        parent: "no path".to_owned(),
        ..create("a", "")
    };
    let labels = CreateWorkspaceRequest {
        labels: odd(),
        ..create("a", "")
    };
    let annotations = CreateWorkspaceRequest {
        annotations: odd(),
        ..create("a", "")
    };
    let update = UpdateWorkspaceRequest {
        workspace: path.to_owned(),
        labels: odd(),
        ..UpdateWorkspaceRequest::default()
    };
    let nothing = UpdateWorkspaceRequest {
        update_mask: Some(FieldMask {
            paths: vec![String::new()],
        }),
        ..update.clone()
    };
    vec![
        row(CREATE, create("A_B", ""), "name", "A_B"),
        row(CREATE, create("a", "root:universal:"), "type", "root:universal"),
        row(
            CREATE,
            create("a", "root:nothing"),
            "type",
            "workspace type \"root:nothing\" cannot be resolved",
        ),
        row(CREATE, create("a", "nothing"), "type", "cannot be resolved"),
        row(CREATE, create("a", "root:root"), "type", "cannot have any parent"),
        row(CREATE, elsewhere, "parent", "root:org:team"),
        row(CREATE, labels, "labels", "a b"),
        row(CREATE, annotations, "annotations", "a b"),
        row(UPDATE, update, "labels", "a b"),
        row(UPDATE, nothing, "update_mask", "empty path"),
    ]
}

/// Fields that name a workspace, other than `workspace`.
fn places(cluster: &str) -> Vec<Row> {
    let list = ListWorkspacesRequest {
        parent: "no path".to_owned(),
        ..ListWorkspacesRequest::default()
    };
    let watch = WatchWorkspacesRequest {
        parent: "no path".to_owned(),
        revision: 0,
    };
    let tree = TreeWorkspacesRequest {
        root: "no path".to_owned(),
        max_depth: 0,
    };
    // A deleted workspace cannot be found by its cluster.
    let undelete = UndeleteWorkspaceRequest {
        workspace: cluster.to_owned(),
        ..UndeleteWorkspaceRequest::default()
    };
    vec![
        row("WorkspaceService/ListWorkspaces", list, "parent", "root:org:team"),
        row("WorkspaceService/WatchWorkspaces", watch, "parent", "root:org:team"),
        row("WorkspaceService/TreeWorkspaces", tree, "root", "root:org:team"),
        row(UNDELETE, undelete, "workspace", "write the path"),
    ]
}

/// Subjects and levels of grants.
fn grants(path: &str) -> Vec<Row> {
    let subject = |kind: i32| Subject {
        kind,
        name: "bob".to_owned(),
        namespace: String::new(),
    };
    let grant = |kind: i32, level: i32| GrantAccessRequest {
        workspace: path.to_owned(),
        subject: Some(subject(kind)),
        level,
        ..GrantAccessRequest::default()
    };
    let (user, view) = (SubjectKind::User.into(), AccessLevel::View.into());
    let revoke = RevokeAccessRequest {
        workspace: path.to_owned(),
        subject: Some(subject(user)),
        level: 99,
        ..RevokeAccessRequest::default()
    };
    let unknown = "none that this server knows";
    vec![
        row(GRANT, grant(9, view), "subject.kind", unknown),
        row(GRANT, grant(0, view), "subject.kind", "is required"),
        row(GRANT, grant(user, 99), "level", unknown),
        row(GRANT, grant(user, 0), "level", "is required"),
        row(REVOKE, revoke, "level", unknown),
    ]
}

/// Requests without the workspace that they need.
fn without_workspace() -> Vec<Row> {
    let empty = |method, message: Vec<u8>| (method, message, "workspace", "workspace: is required");
    vec![
        empty(
            "WorkspaceService/GetWorkspace",
            GetWorkspaceRequest::default().encode_to_vec(),
        ),
        empty(UPDATE, UpdateWorkspaceRequest::default().encode_to_vec()),
        empty(
            "WorkspaceService/DeleteWorkspace",
            DeleteWorkspaceRequest::default().encode_to_vec(),
        ),
        empty(UNDELETE, UndeleteWorkspaceRequest::default().encode_to_vec()),
        empty(
            "WorkspaceService/ExplainWorkspace",
            ExplainWorkspaceRequest::default().encode_to_vec(),
        ),
        empty(GRANT, GrantAccessRequest::default().encode_to_vec()),
        empty(REVOKE, RevokeAccessRequest::default().encode_to_vec()),
        empty(
            "AccessService/GetKubeconfig",
            GetKubeconfigRequest::default().encode_to_vec(),
        ),
    ]
}

#[test]
fn fields_of_workspaces_and_grants_are_named() {
    let server = shared();
    let (path, cluster) = workspace(&server.admin(), "fields");
    let rows = [workspaces(&path), places(&cluster), grants(&path), without_workspace()];
    refuses(&server, rows.concat());
}
