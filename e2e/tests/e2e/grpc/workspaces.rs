//! `WorkspaceService`: writes, their idempotency, watches and explanations.

use insula_e2e::{Server, Setup, Who, ready_workspace, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    ChangeType, CreateWorkspaceRequest, DeleteWorkspaceRequest, ExplainWorkspaceRequest, GetInfoRequest,
    GetWorkspaceRequest, ListWorkspacesRequest, UpdateWorkspaceRequest, WatchWorkspacesRequest,
    cluster_service_client::ClusterServiceClient, workspace_service_client::WorkspaceServiceClient,
};
use prost_types::FieldMask;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tonic::Code;

use super::{Channel, as_user, bad_fields, client, reason};

const ID: &str = "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b11";

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_workspace_is_created_and_changed() {
    let server = shared();
    let (parent, _) = workspace(&server.admin(), "grpc-ws");
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let create = CreateWorkspaceRequest {
            parent: parent.clone(),
            name: "team".to_owned(),
            r#type: "root:universal".to_owned(),
            labels: map(&[("tier", "gold")]),
            validate_only: true,
            ..CreateWorkspaceRequest::default()
        };
        let tried = client.create_workspace(create.clone()).await.unwrap().into_inner();
        assert_eq!(tried.workspace.unwrap().name, "team");
        let path = format!("{parent}:team");
        let get = GetWorkspaceRequest {
            workspace: path.clone(),
        };
        let absent = client.get_workspace(get.clone()).await.unwrap_err();
        assert_eq!((absent.code(), &*reason(&absent)), (Code::NotFound, "NOT_FOUND"));
        let create = CreateWorkspaceRequest {
            validate_only: false,
            wait: true,
            ..create
        };
        let made = client.create_workspace(create.clone()).await.unwrap().into_inner();
        let team = made.workspace.unwrap();
        assert_eq!(
            (&*team.phase, &*team.r#type, &*team.labels["tier"]),
            ("Ready", "root:universal", "gold")
        );
        let again = client.create_workspace(create).await.unwrap_err();
        assert_eq!(
            (again.code(), &*reason(&again)),
            (Code::AlreadyExists, "ALREADY_EXISTS")
        );

        let update = UpdateWorkspaceRequest {
            workspace: path.clone(),
            labels: map(&[("tier", "silver")]),
            annotations: map(&[("example.io/left", "out")]),
            update_mask: Some(FieldMask {
                paths: vec!["labels".to_owned()],
            }),
            etag: team.etag.clone(),
            ..UpdateWorkspaceRequest::default()
        };
        let updated = client
            .update_workspace(update.clone())
            .await
            .unwrap()
            .into_inner()
            .workspace
            .unwrap();
        assert_eq!(updated.labels["tier"], "silver");
        assert!(!updated.annotations.contains_key("example.io/left"));
        assert!(!updated.annotations.is_empty(), "those of the system stay");
        let stale = client.update_workspace(update).await.unwrap_err();
        assert_eq!(
            (stale.code(), &*reason(&stale)),
            (Code::Aborted, "STALE_ETAG"),
            "{stale:?}"
        );
    });
}

#[test]
fn a_deletion_says_what_goes() {
    let server = shared();
    let (path, cluster) = workspace(&server.admin(), "grpc-delete");
    ready_workspace(&server.admin(), &path, "below", json!({}));
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let get = GetWorkspaceRequest {
            workspace: path.clone(),
        };
        let delete = DeleteWorkspaceRequest {
            workspace: cluster,
            validate_only: true,
            ..DeleteWorkspaceRequest::default()
        };
        let preview = client.delete_workspace(delete.clone()).await.unwrap().into_inner();
        assert_eq!(preview.paths, [path.clone(), format!("{path}:below")]);
        let count = |resource: &str| {
            preview
                .objects
                .iter()
                .find(|count| count.resource == resource)
                .unwrap()
                .count
        };
        assert_eq!(
            (
                preview.workspaces,
                count("workspaces.tenancy.kcp.io"),
                preview.truncated
            ),
            (2, 1, false)
        );
        assert!(
            count("namespaces") >= 2 && preview.hidden_workspaces == 0,
            "{preview:?}"
        );
        client.get_workspace(get.clone()).await.unwrap();
        let delete = DeleteWorkspaceRequest {
            workspace: path.clone(),
            validate_only: false,
            ..delete
        };
        client.delete_workspace(delete).await.unwrap();
        for _ in 0..600 {
            if client.get_workspace(get.clone()).await.is_err() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(client.get_workspace(get).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn writes_of_workspaces_take_the_rights_that_http_asks_for() {
    let server = shared();
    let (theirs, cluster) = workspace_owned_by(&server, "alice");
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::Anonymous);
        for foreign in [theirs.as_str(), cluster.as_str(), "root", "root:nowhere:below"] {
            let create = CreateWorkspaceRequest {
                parent: foreign.to_owned(),
                name: "mine".to_owned(),
                ..CreateWorkspaceRequest::default()
            };
            let update = UpdateWorkspaceRequest {
                workspace: format!("{foreign}:a"),
                labels: map(&[("a", "b")]),
                ..UpdateWorkspaceRequest::default()
            };
            let delete = DeleteWorkspaceRequest {
                workspace: format!("{foreign}:a"),
                validate_only: true,
                ..DeleteWorkspaceRequest::default()
            };
            let watch = WatchWorkspacesRequest {
                parent: foreign.to_owned(),
                revision: 0,
            };
            let explain = ExplainWorkspaceRequest {
                workspace: foreign.to_owned(),
            };
            for refused in [
                client.create_workspace(as_user("bob-token", create)).await.unwrap_err(),
                client.update_workspace(as_user("bob-token", update)).await.unwrap_err(),
                client.delete_workspace(as_user("bob-token", delete)).await.unwrap_err(),
                client
                    .watch_workspaces(as_user("bob-token", watch))
                    .await
                    .map(drop)
                    .unwrap_err(),
                client
                    .explain_workspace(as_user("bob-token", explain))
                    .await
                    .unwrap_err(),
            ] {
                assert_eq!(refused.code(), Code::PermissionDenied, "{foreign}: {refused:?}");
            }
        }
        let create = CreateWorkspaceRequest {
            parent: theirs.clone(),
            name: "Not A Name".to_owned(),
            ..CreateWorkspaceRequest::default()
        };
        let invalid = client
            .create_workspace(as_user("alice-token", create))
            .await
            .unwrap_err();
        assert_eq!(invalid.code(), Code::InvalidArgument);
        assert_eq!(bad_fields(&invalid)[0], "name", "{invalid:?}");
    });
}

#[test]
fn children_are_watched_from_a_revision_on() {
    let server = shared();
    let admin = server.admin();
    let (parent, _) = workspace(&admin, "grpc-watch");
    ready_workspace(&admin, &parent, "first", json!({}));
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let watch = WatchWorkspacesRequest {
            parent: parent.clone(),
            revision: 0,
        };
        let mut events = client.watch_workspaces(watch).await.unwrap().into_inner();
        let first = events.message().await.unwrap().unwrap();
        assert_eq!(
            (first.r#type(), &*first.workspace.unwrap().path),
            (ChangeType::Added, &*format!("{parent}:first"))
        );
        let synced = events.message().await.unwrap().unwrap();
        assert_eq!((synced.r#type(), &synced.workspace), (ChangeType::Synced, &None));
        let revision = synced.header.unwrap().revision;
        drop(events);
        let create = CreateWorkspaceRequest {
            parent: parent.clone(),
            name: "second".to_owned(),
            ..CreateWorkspaceRequest::default()
        };
        client.create_workspace(create).await.unwrap();
        let watch = WatchWorkspacesRequest {
            parent: parent.clone(),
            revision,
        };
        let mut events = client.watch_workspaces(watch).await.unwrap().into_inner();
        let second = events.message().await.unwrap().unwrap();
        assert!(second.header.unwrap().revision > revision);
        assert_eq!(
            (second.r#type, &*second.workspace.unwrap().name),
            (ChangeType::Added.into(), "second")
        );
    });
}

#[test]
fn a_workspace_that_waits_says_what_for() {
    let server = shared();
    let admin = server.admin();
    let (parent, cluster) = workspace(&admin, "grpc-explain");
    let kind = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType",
        "metadata": {"name": "slow"}, "spec": {"initializer": true,
            "extend": {"with": [{"name": "universal", "path": "root"}]}}});
    let at = admin.in_workspace(&parent);
    at.post("/apis/tenancy.kcp.io/v1alpha1/workspacetypes", &kind)
        .expect(201);
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let create = |name: &str, kind: &str| CreateWorkspaceRequest {
            parent: parent.clone(),
            name: name.to_owned(),
            r#type: kind.to_owned(),
            ..CreateWorkspaceRequest::default()
        };
        client
            .create_workspace(create("waits", &format!("{parent}:slow")))
            .await
            .unwrap();
        let explain = ExplainWorkspaceRequest {
            workspace: format!("{parent}:waits"),
        };
        let mut explained = client.explain_workspace(explain.clone()).await.unwrap().into_inner();
        for _ in 0..600 {
            if !explained.initializers.is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            explained = client.explain_workspace(explain.clone()).await.unwrap().into_inner();
        }
        let initializer = format!("{cluster}:slow");
        assert!(
            explained.initializers.contains(&initializer) && !explained.ready,
            "{explained:?}"
        );
        let subject = format!("initializer {initializer}");
        let finding = explained
            .findings
            .iter()
            .find(|finding| finding.subject == subject)
            .unwrap();
        assert!(finding.fix.contains("controller"), "{finding:?}");
        let ready = ExplainWorkspaceRequest {
            workspace: parent.clone(),
        };
        let ready = client.explain_workspace(ready).await.unwrap().into_inner();
        assert!(ready.ready && ready.findings.is_empty(), "{ready:?}");
    });
}

fn server_with_short_history() -> Server {
    Server::with(Setup {
        environment: vec![("INSULA_WATCHES_HISTORY_SECONDS".to_owned(), "1".to_owned())],
        ..Setup::default()
    })
}

fn list(size: i32, token: &str) -> ListWorkspacesRequest {
    ListWorkspacesRequest {
        page_size: size,
        page_token: token.to_owned(),
        ..ListWorkspacesRequest::default()
    }
}

/// A repetition has no second effect, also at the same time as the first request and after a
/// restart.
#[test]
fn requests_with_an_id_happen_once() {
    let mut server = server_with_short_history();
    let create = |prefix: &str| CreateWorkspaceRequest {
        name_prefix: prefix.to_owned(),
        request_id: ID.to_owned(),
        wait: true,
        ..CreateWorkspaceRequest::default()
    };
    let (first, cluster_id) = runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let calls = (0..4).map(|_| {
            let mut client = client.clone();
            async move { client.create_workspace(create("once-")).await }
        });
        for outcome in futures_util::future::join_all(calls).await {
            if let Err(refused) = outcome {
                assert_eq!(
                    (refused.code(), &*reason(&refused)),
                    (Code::Aborted, "REQUEST_IN_PROGRESS")
                );
            }
        }
        let first = client.create_workspace(create("once-")).await.unwrap().into_inner();
        let other = client.create_workspace(create("other-")).await.unwrap_err();
        assert_eq!(
            (other.code(), &*reason(&other)),
            (Code::InvalidArgument, "REQUEST_ID_REUSED")
        );
        let mut of_bob = client!(WorkspaceServiceClient<_>, server, Who::Anonymous);
        let refused = of_bob
            .create_workspace(as_user("bob-token", create("once-")))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let all = client.list_workspaces(list(0, "")).await.unwrap().into_inner();
        assert_eq!(all.workspaces.len(), 1, "{all:?}");
        (first.workspace.unwrap(), first.header.unwrap().cluster_id)
    });
    server = server.restart();
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let again = client.create_workspace(create("once-")).await.unwrap().into_inner();
        assert_eq!(again.workspace.unwrap().uid, first.uid);
        let mut clusters = client!(ClusterServiceClient<_>, server, Who::KcpAdmin);
        let info = clusters.get_info(GetInfoRequest {}).await.unwrap().into_inner();
        assert_eq!(info.header.unwrap().cluster_id, cluster_id);
        pages(&mut client, &first.path).await;
    });
    audited(&server);
}

/// All pages are of the revision of the first one, until that is compacted.
async fn pages(client: &mut WorkspaceServiceClient<Channel>, elsewhere: &str) {
    let named = |name: &str| CreateWorkspaceRequest {
        name: name.to_owned(),
        ..CreateWorkspaceRequest::default()
    };
    client.create_workspace(named("zz")).await.unwrap();
    let page = client.list_workspaces(list(1, "")).await.unwrap().into_inner();
    let token = page.next_page_token;
    client.create_workspace(named("zzz")).await.unwrap();
    let next = client.list_workspaces(list(5, &token)).await;
    if let Ok(next) = next {
        let next = next.into_inner();
        assert_eq!(next.header.unwrap().revision, page.header.unwrap().revision);
        assert_eq!(
            next.workspaces.iter().map(|found| &*found.name).collect::<Vec<_>>(),
            ["zz"]
        );
    }
    let elsewhere = ListWorkspacesRequest {
        parent: elsewhere.to_owned(),
        ..list(5, &token)
    };
    let refused = client.list_workspaces(elsewhere).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    let expired = loop {
        match client.list_workspaces(list(5, &token)).await {
            Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
            Err(expired) => break expired,
        }
    };
    assert_eq!(
        (expired.code(), &*reason(&expired)),
        (Code::OutOfRange, "REVISION_COMPACTED")
    );
}

/// The request that a call makes has an audit event of its own, which names the call.
fn audited(server: &Server) {
    let log = server.data_dir().join("audit/audit.log");
    let events = until("the calls are in the audit log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        let events: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        events
            .iter()
            .any(|event| event["objectRef"]["name"] == "zzz")
            .then_some(events)
    });
    let inner = events.iter().find(|event| event["objectRef"]["name"] == "zzz").unwrap();
    assert_eq!(
        (&inner["verb"], &inner["user"]["username"]),
        (&json!("create"), &json!("kcp-admin"))
    );
    assert_eq!(inner["responseStatus"]["code"], 201);
    let id = &inner["annotations"]["insula.io/call-id"];
    let call = events.iter().find(|event| event["auditID"] == *id).unwrap();
    assert_eq!(call["requestURI"], "/insula.admin.v1.WorkspaceService/CreateWorkspace");
}
