//! Etags of grants and freezes, and the watches that a stream counts as.

use insula_e2e::{Server, Setup, Who, runtime, shared, workspace, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        AccessLevel, ApplyObjectRequest, FreezeWorkspaceRequest, GetWorkspaceRequest, GrantAccessRequest,
        ListAccessRequest, ObjectType, RevokeAccessRequest, Subject, SubjectKind, ThawWorkspaceRequest,
        WatchObjectsRequest, WatchWorkspacesRequest, access_service_client::AccessServiceClient,
        object_service_client::ObjectServiceClient, workspace_service_client::WorkspaceServiceClient,
    },
    value::from_json,
};
use serde_json::json;
use tonic::{Code, Status};

use super::{as_user, client, reason};

fn stale(refusal: &Status) {
    let told = (refusal.code(), &*reason(refusal));
    assert_eq!(told, (Code::Aborted, "STALE_ETAG"), "{refusal:?}");
}

#[test]
fn a_grant_is_revoked_in_the_state_that_was_seen() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "etag-access");
    let bob = || {
        Some(Subject {
            kind: SubjectKind::User.into(),
            name: "bob".to_owned(),
            namespace: String::new(),
        })
    };
    runtime().block_on(async {
        let mut access = client!(AccessServiceClient<_>, server, Who::KcpAdmin);
        let grant = GrantAccessRequest {
            workspace: path.clone(),
            subject: bob(),
            level: AccessLevel::View.into(),
            ..GrantAccessRequest::default()
        };
        let granted = access.grant_access(grant).await.unwrap().into_inner();
        let etag = granted.bindings[0].etag.clone();
        let list = ListAccessRequest {
            workspace: path.clone(),
            subject: bob(),
            ..ListAccessRequest::default()
        };
        let listed = access.list_access(list).await.unwrap().into_inner().bindings;
        assert!(listed.iter().any(|binding| binding.etag == etag), "{listed:?}");
        let revoke = |etag: &str, level: AccessLevel| RevokeAccessRequest {
            workspace: path.clone(),
            subject: bob(),
            level: level.into(),
            etag: etag.to_owned(),
            ..RevokeAccessRequest::default()
        };
        let needs_level = access.revoke_access(revoke(&etag, AccessLevel::Unspecified)).await;
        assert_eq!(needs_level.unwrap_err().code(), Code::InvalidArgument);

        let name = granted.bindings[0].binding.clone();
        let binding = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}");
        let at = server.admin().in_workspace(&path);
        let note = json!({"metadata": {"annotations": {"example.io/seen": "by another"}}});
        tokio::task::spawn_blocking(move || at.merge(&binding, &note).expect(200))
            .await
            .unwrap();
        stale(
            &access
                .revoke_access(revoke(&etag, AccessLevel::View))
                .await
                .unwrap_err(),
        );
        let list = ListAccessRequest {
            workspace: path.clone(),
            subject: bob(),
            ..ListAccessRequest::default()
        };
        let listed = access.list_access(list).await.unwrap().into_inner().bindings;
        assert_eq!(listed.len(), 2, "nothing is revoked");
        let now = listed.iter().find(|binding| binding.binding == name).unwrap();
        let gone = access
            .revoke_access(revoke(&now.etag, AccessLevel::View))
            .await
            .unwrap();
        assert_eq!(gone.into_inner().revoked.len(), 2);
    });
}

#[test]
fn a_freeze_changes_in_the_state_that_was_seen() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "etag-freeze");
    runtime().block_on(async {
        let mut client = client!(WorkspaceServiceClient<_>, server, Who::KcpAdmin);
        let freeze = |reason: &str, etag: &str| FreezeWorkspaceRequest {
            workspace: path.clone(),
            reason: reason.to_owned(),
            etag: etag.to_owned(),
            ..FreezeWorkspaceRequest::default()
        };
        let thaw = |etag: &str| ThawWorkspaceRequest {
            workspace: path.clone(),
            etag: etag.to_owned(),
            ..ThawWorkspaceRequest::default()
        };
        let get = || GetWorkspaceRequest {
            workspace: path.clone(),
        };
        let seen = client.get_workspace(get()).await.unwrap().into_inner();
        assert_eq!(seen.freeze, None);
        let open = seen.freeze_etag;
        let frozen = client.freeze_workspace(freeze("a", &open)).await.unwrap().into_inner();
        stale(&client.freeze_workspace(freeze("b", &open)).await.unwrap_err());
        stale(&client.thaw_workspace(thaw(&open)).await.unwrap_err());
        let seen = client.get_workspace(get()).await.unwrap().into_inner();
        assert_eq!((&seen.freeze, &seen.freeze_etag), (&frozen.freeze, &frozen.freeze_etag));
        assert_eq!(seen.freeze.unwrap().reason, "a");
        let thawed = client
            .thaw_workspace(thaw(&frozen.freeze_etag))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(thawed.freeze_etag, open, "the state of before");
    });
}

/// An apply with an etag needs an object in that state: it neither creates one nor overwrites
/// another state.
#[test]
fn an_apply_needs_the_state_that_was_seen() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "etag-apply");
    let maps = server.admin().in_workspace(&path);
    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
    let mut client = client!(ObjectServiceClient<_>, server, Who::KcpAdmin);
    let request = |value: &str, etag: &str, validate_only: bool| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default"}, "data": {"a": value}});
        ApplyObjectRequest {
            workspace: path.clone(),
            object: Some(from_json(object.as_object().unwrap()).unwrap()),
            field_manager: "robot".to_owned(),
            etag: etag.to_owned(),
            validate_only,
            ..ApplyObjectRequest::default()
        }
    };
    let mut apply = |request: ApplyObjectRequest| {
        let applied = runtime().block_on(client.apply_object(request));
        applied.map(|applied| applied.into_inner().etag)
    };
    let first = apply(request("1", "", false)).unwrap();
    let second = apply(request("2", &first, false)).unwrap();
    assert_ne!(first, second);
    for validate_only in [true, false] {
        for etag in [&*first, "0", "1", "99999999999"] {
            stale(&apply(request("3", etag, validate_only)).unwrap_err());
        }
    }
    assert_eq!(maps.get(MAP).expect(200)["data"]["a"], "2");
    maps.delete(MAP).expect(200);
    for validate_only in [true, false] {
        for etag in [&*second, "0"] {
            stale(&apply(request("3", etag, validate_only)).unwrap_err());
        }
    }
    maps.get(MAP).expect(404);
    // A repetition gets the first answer, whatever happened since.
    let once = apply(request("4", "", false)).unwrap();
    let change = ApplyObjectRequest {
        request_id: "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2bee".to_owned(),
        ..request("5", &once, false)
    };
    assert_eq!(apply(change.clone()).unwrap(), apply(change).unwrap());
}

/// A user's limit of watches is that of streams: each counts once.
#[test]
fn a_stream_counts_as_one_watch() {
    let server = Server::with(Setup::limits(&[("WATCHES_PER_USER", "2")]));
    let (path, _) = workspace_owned_by(&server, "alice");
    runtime().block_on(async {
        let mut workspaces = client!(WorkspaceServiceClient<_>, server, Who::Anonymous);
        let mut objects = client!(ObjectServiceClient<_>, server, Who::Anonymous);
        let children = || {
            let watch = WatchWorkspacesRequest {
                parent: path.clone(),
                revision: 0,
            };
            as_user("alice-token", watch)
        };
        let mut first = workspaces.watch_workspaces(children()).await.unwrap().into_inner();
        let maps = WatchObjectsRequest {
            r#type: Some(ObjectType {
                workspace: path.clone(),
                api_version: "v1".to_owned(),
                resource: "configmaps".to_owned(),
                ..ObjectType::default()
            }),
            ..WatchObjectsRequest::default()
        };
        let mut second = objects
            .watch_objects(as_user("alice-token", maps))
            .await
            .unwrap()
            .into_inner();
        first.message().await.unwrap().expect("an event");
        second.message().await.unwrap().expect("an event");
        let third = workspaces.watch_workspaces(children()).await.map(drop).unwrap_err();
        assert_eq!(third.code(), Code::ResourceExhausted);
        assert!(third.message().contains("2 open watches"), "{third:?}");
    });
}
