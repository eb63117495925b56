//! Deleted workspaces within their grace period: closed, whole, and brought back.

use insula_e2e::{Client, Server, Setup, Who, ready_workspace, runtime, shared, until, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    DeleteWorkspaceRequest, DeleteWorkspaceResponse, ExplainWorkspaceRequest, GetWorkspaceRequest,
    TreeWorkspacesRequest, UndeleteWorkspaceRequest, UndeleteWorkspaceResponse, Workspace,
    workspace_service_client::WorkspaceServiceClient,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Channel, as_user, client, reason};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

/// Starts a server whose deleted workspaces stay for an hour, and whose watches have a bookmark
/// each second.
fn server() -> Server {
    let settings = [
        ("WORKSPACES_DELETION_GRACE_SECONDS", "3600"),
        ("WATCHES_BOOKMARK_SECONDS", "1"),
    ];
    Server::with(Setup {
        environment: settings
            .map(|(name, value)| (format!("INSULA_{name}"), value.to_owned()))
            .to_vec(),
        ..Setup::default()
    })
}

fn admin(server: &Server) -> WorkspaceServiceClient<Channel> {
    client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin)
}

fn described(server: &Server, path: &str) -> Result<Workspace, Status> {
    let get = GetWorkspaceRequest {
        workspace: path.to_owned(),
    };
    let answer = runtime().block_on(admin(server).get_workspace(get))?;
    Ok(answer.into_inner().workspace.unwrap())
}

fn request(path: &str) -> UndeleteWorkspaceRequest {
    UndeleteWorkspaceRequest {
        workspace: path.to_owned(),
        ..UndeleteWorkspaceRequest::default()
    }
}

fn undelete(server: &Server, request: UndeleteWorkspaceRequest) -> Result<UndeleteWorkspaceResponse, Status> {
    let answer = runtime().block_on(admin(server).undelete_workspace(request))?;
    Ok(answer.into_inner())
}

fn delete(server: &Server, path: &str, immediately: bool) -> DeleteWorkspaceResponse {
    let delete = DeleteWorkspaceRequest {
        workspace: path.to_owned(),
        immediately,
        ..DeleteWorkspaceRequest::default()
    };
    let answer = runtime().block_on(admin(server).delete_workspace(delete));
    answer.unwrap().into_inner()
}

fn refused<T>(answer: Result<T, Status>) -> (Code, String) {
    let refusal = answer.err().expect("a refusal");
    (refusal.code(), reason(&refusal))
}

fn base(path: &str) -> &str {
    path.rsplit(':').next().unwrap()
}

fn is_gone(server: &Server, path: &str) {
    let object = format!("{WORKSPACES}/{}", base(path));
    until("the workspace is gone", || {
        (server.admin().get(&object).code == 404).then_some(())
    });
}

/// Clients of a tenant: by path, by cluster, and in the workspace below.
fn doors(server: &Server, path: &str, cluster: &str, below: &str) -> [Client; 3] {
    [path, cluster, below].map(|name| server.client(Who::Token("alice-token".to_owned())).in_workspace(name))
}

#[test]
fn a_deletion_over_http_is_taken_back_and_nothing_is_lost() {
    let mut server = server();
    let (path, cluster) = workspace_owned_by(&server, "alice");
    let (_, below) = ready_workspace(&server.admin(), &path, "below", json!({}));
    let alice = server.client(Who::Token("alice-token".to_owned())).in_workspace(&path);
    let note = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "1"}});
    let kept = alice.post(CONFIGMAPS, &note).expect(201);
    let inside = server.admin().in_workspace(&below);
    inside.post(CONFIGMAPS, &note).expect(201);

    let deleted = server
        .admin()
        .delete(&format!("{WORKSPACES}/{}", base(&path)))
        .expect(200);
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 3600);
    let check_closed = |server: &Server| {
        for door in doors(server, &path, &cluster, &below) {
            door.get(CONFIGMAPS).expect(403);
        }
        server.admin().in_workspace(&path).get(CONFIGMAPS).expect(404);
        server.admin().in_workspace(&below).get(CONFIGMAPS).expect(403);
    };
    check_closed(&server);
    let shown = until("the Workspace tells the end of its time", || {
        let shown = described(&server, &path).unwrap();
        (shown.phase == "Deleting").then_some(shown)
    });
    assert!(shown.delete_time.is_some());
    server.kill9();
    let server = server.restart();
    check_closed(&server);
    runtime().block_on(explained(&server, &path, &cluster));

    check_refusals(&server, &path, &shown);
    check_closed(&server);

    let with_id = UndeleteWorkspaceRequest {
        request_id: "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b61".to_owned(),
        etag: described(&server, &path).unwrap().etag,
        ..request(&path)
    };
    let back = undelete(&server, with_id.clone()).unwrap();
    assert_eq!(back.workspace.unwrap().delete_time, None);
    let seen = doors(&server, &path, &cluster, &below)[0]
        .get(&format!("{CONFIGMAPS}/kept"))
        .expect(200);
    assert_eq!(seen["metadata"], kept["metadata"], "it is the same object");
    let admin = server.admin();
    admin
        .in_workspace(&cluster)
        .get(&format!("{CONFIGMAPS}/kept"))
        .expect(200);
    admin
        .in_workspace(&below)
        .get(&format!("{CONFIGMAPS}/kept"))
        .expect(200);
    until("the workspace is ready again", || {
        let shown = described(&server, &path).unwrap();
        let is_clean = shown.conditions.iter().all(|condition| condition.status == "True");
        (shown.phase == "Ready" && is_clean).then_some(())
    });
    undelete(&server, with_id).unwrap();
    let twice = undelete(&server, request(&path));
    assert_eq!(refused(twice), (Code::FailedPrecondition, "WRONG_STATE".to_owned()));
}

/// Others, a state that has changed, and a check bring nothing back.
fn check_refusals(server: &Server, path: &str, shown: &Workspace) {
    let bob = runtime().block_on(admin_less(server).undelete_workspace(as_user("bob-token", request(path))));
    assert_eq!(refused(bob).0, Code::PermissionDenied);
    let stale = UndeleteWorkspaceRequest {
        etag: "1".to_owned(),
        ..request(path)
    };
    assert_eq!(
        refused(undelete(server, stale)),
        (Code::Aborted, "STALE_ETAG".to_owned())
    );
    let dry = UndeleteWorkspaceRequest {
        validate_only: true,
        ..request(path)
    };
    assert_eq!(undelete(server, dry).unwrap().delete_time, shown.delete_time);
}

fn admin_less(server: &Server) -> WorkspaceServiceClient<Channel> {
    client!(WorkspaceServiceClient<_>, server, Who::Anonymous)
}

/// The parent shows the workspace and what to do; nothing below it is shown.
async fn explained(server: &Server, path: &str, cluster: &str) {
    let explain = ExplainWorkspaceRequest {
        workspace: path.to_owned(),
    };
    let why = admin(server).explain_workspace(explain).await.unwrap().into_inner();
    assert_eq!((why.ready, &*why.findings[0].subject), (false, "deletion"), "{why:?}");
    assert!(why.findings[0].fix.contains("UndeleteWorkspace"), "{why:?}");
    let tree = admin(server).tree_workspaces(TreeWorkspacesRequest::default()).await;
    let mut tree = tree.unwrap().into_inner();
    let mut paths = Vec::new();
    while let Some(node) = tree.message().await.unwrap() {
        paths.push(node.workspace.unwrap().path);
    }
    assert!(paths.iter().any(|known| known == path) && !paths.contains(&format!("{path}:below")));
    let by_cluster = admin(server).undelete_workspace(request(cluster)).await;
    assert_eq!(
        refused(by_cluster).0,
        Code::InvalidArgument,
        "a closed cluster has no name"
    );
}

#[test]
fn a_deletion_goes_on_when_its_time_is_over_or_not_wanted() {
    let server = server();
    let (path, cluster) = workspace(&server.admin(), "passing");
    ready_workspace(&server.admin(), &path, "below", json!({}));
    let first = delete(&server, &path, false);
    assert!(first.delete_time.is_some() && first.workspaces == 2, "{first:?}");
    let taken = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": base(&path)}});
    server.admin().post(WORKSPACES, &taken).expect(409);
    // A second deletion does not begin the time anew, and may end it.
    assert_eq!(delete(&server, &path, false).delete_time, first.delete_time);
    assert_eq!(delete(&server, &path, true).delete_time, None);
    is_gone(&server, &path);
    let left: Value = server
        .client(Who::Token("carol-token".to_owned()))
        .get(&format!("/clusters/{cluster}{CONFIGMAPS}"))
        .expect(200);
    assert_eq!(left["items"], json!([]));

    let (path, _) = workspace(&server.admin(), "short");
    let object = format!("{WORKSPACES}/{}?gracePeriodSeconds=1", base(&path));
    let marked = server.admin().delete(&object).expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 1);
    is_gone(&server, &path);
    assert_eq!(
        refused(undelete(&server, request(&path))),
        (Code::NotFound, "NOT_FOUND".to_owned())
    );
}

/// Watches that are open end, and masters see what is kept.
#[test]
fn a_closed_workspace_ends_its_watches() {
    let server = server();
    let (path, cluster) = workspace_owned_by(&server, "alice");
    let alice = server.client(Who::Token("alice-token".to_owned())).in_workspace(&path);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let watching = std::thread::spawn(move || {
        alice.watch(&format!("{CONFIGMAPS}?watch=true"), |event| {
            // Nobody listens after the first event.
            let _ = begun.send(());
            (event["type"] == "ERROR").then(|| event["object"]["code"].clone())
        })
    });
    has_begun.recv().expect("the watch begins");
    delete(&server, &path, false);
    assert_eq!(watching.join().unwrap(), Some(json!(403)));
    let kept = server
        .client(Who::ShardAdmin)
        .in_workspace(&cluster)
        .get(CONFIGMAPS)
        .expect(200);
    assert!(!kept["items"].as_array().unwrap().is_empty(), "{kept}");
}

/// A workspace whose time runs goes with the one above it.
#[test]
fn the_end_of_a_workspace_ends_the_time_of_those_below() {
    let server = server();
    let (path, _) = workspace(&server.admin(), "above");
    ready_workspace(&server.admin(), &path, "below", json!({}));
    let below = delete(&server, &format!("{path}:below"), false);
    assert!(below.delete_time.is_some());
    delete(&server, &path, true);
    is_gone(&server, &path);
}

/// Without the setting a deletion begins at once, as ever.
#[test]
fn without_a_grace_period_nothing_comes_back() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "at-once");
    let held = json!({"metadata": {"finalizers": ["core.kcp.io/logicalcluster", "example.io/hold"]}});
    let object = format!("{WORKSPACES}/{}", base(&path));
    server.admin().merge(&object, &held).expect(200);
    let marked = server.admin().delete(&object).expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        refused(undelete(&server, request(&path))),
        (Code::FailedPrecondition, "WRONG_STATE".to_owned())
    );
    server
        .admin()
        .merge(&object, &json!({"metadata": {"finalizers": null}}))
        .expect(200);
    is_gone(&server, &path);
}
