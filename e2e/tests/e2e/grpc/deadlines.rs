//! Writes whose deadline is too short: they have no effect, or one that a repetition finds.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use insula_e2e::{Client, Server, Who, runtime, until, workspace, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        AccessLevel, ApplyObjectRequest, CreateBackupRequest, CreateWorkspaceRequest, DeleteObjectRequest,
        DeleteWorkspaceRequest, FreezeWorkspaceRequest, GrantAccessRequest, Limits, ObjectType, RevokeAccessRequest,
        SetLimitsRequest, Subject, SubjectKind, UpdateWorkspaceRequest, access_service_client::AccessServiceClient,
        backup_service_client::BackupServiceClient, object_service_client::ObjectServiceClient,
        quota_service_client::QuotaServiceClient, workspace_service_client::WorkspaceServiceClient,
    },
    value::from_json,
};
use serde_json::json;
use tonic::{Code, Request, Status};

use super::{Channel, as_user, channel, client, operations::done, origin, reason};
use crate::faults::grpc::metric;

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Deadlines in milliseconds: before the write begins, and in the middle of it.
const MILLISECONDS: [u64; 8] = [1, 1, 2, 4, 8, 16, 32, 64];

/// Returns a UUID that no other request of this run has.
fn new_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("7d1b3ad0-94a5-4f4e-9d3a-{count:012x}")
}

/// Sends a request until its id is free again, and returns its result.
async fn repeated<A>(mut call: impl AsyncFnMut(Option<Duration>) -> Result<A, Status>) -> Result<A, Status> {
    for _ in 0..1_000 {
        match call(None).await {
            Err(refusal) if refusal.code() == Code::Aborted && reason(&refusal) == "REQUEST_IN_PROGRESS" => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
    panic!("the first request never ends");
}

/// Makes calls with short deadlines, each followed by its repetition: the answer of the repetition
/// is the result, and so is that of one more. Returns the number of calls that were too late.
async fn survives<A: PartialEq + std::fmt::Debug, F: Future<Output = Result<A, Status>>>(
    name: &str,
    call: impl Fn(String, usize, Option<Duration>) -> F,
) -> usize {
    let mut late = 0;
    for (n, milliseconds) in MILLISECONDS.into_iter().enumerate() {
        let id = new_id();
        let first = call(id.clone(), n, Some(Duration::from_millis(milliseconds))).await;
        if let Err(refusal) = &first {
            assert_eq!(refusal.code(), Code::DeadlineExceeded, "{name}: {refusal:?}");
            assert_eq!(reason(refusal), "TIMEOUT");
            late += 1;
        }
        let again = async |time| call(id.clone(), n, time).await;
        let second = repeated(again)
            .await
            .unwrap_or_else(|refusal| panic!("{name} {milliseconds}: {refusal:?}"));
        let third = repeated(again).await.unwrap();
        assert_eq!(second, third, "{name}");
        if let Ok(first) = first {
            assert_eq!(first, second, "{name}");
        }
    }
    assert!(late > 0, "{name}: 1 ms was enough each time");
    late
}

/// Returns a request with a deadline.
fn within<T>(message: T, time: Option<Duration>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(time) = time {
        request.set_timeout(time);
    }
    request
}

/// A server with a workspace.
struct Scene {
    server: Server,
    place: String,
    channel: Channel,
}

/// Calls a method of a service with a deadline, and returns a part of the answer.
macro_rules! call {
    ($scene:expr, $client:ident, $method:ident, $message:expr, $part:expr) => {
        |id: String, n: usize, time: Option<Duration>| {
            let mut client = $client::with_origin($scene.channel.clone(), origin(&$scene.server));
            let message = $message(id, n);
            async move {
                client
                    .$method(within(message, time))
                    .await
                    .map(|answer| $part(answer.into_inner()))
            }
        }
    };
}

impl Scene {
    fn new() -> Scene {
        let server = Server::start();
        let (place, _) = workspace(&server.admin(), "hurried");
        let channel = channel(&server, &Who::KcpAdmin);
        Scene { server, place, channel }
    }

    fn tenant(&self) -> Client {
        self.server.admin().in_workspace(&self.place)
    }

    fn count(&self, path: &str) -> usize {
        self.tenant().get(path).expect(200)["items"].as_array().unwrap().len()
    }
}

fn guest(n: usize) -> Option<Subject> {
    Some(Subject {
        kind: SubjectKind::User.into(),
        name: format!("guest-{n}"),
        namespace: String::new(),
    })
}

/// Workspaces are created, changed and deleted once.
#[test]
fn workspaces_are_written_once() {
    let scene = &Scene::new();
    let place = &scene.place;
    let name = |n: usize| format!("w{n}");
    runtime().block_on(async {
        let create = call!(
            scene,
            WorkspaceServiceClient,
            create_workspace,
            |request_id, n| CreateWorkspaceRequest {
                parent: place.clone(),
                name: name(n),
                request_id,
                wait: n % 2 == 1,
                ..CreateWorkspaceRequest::default()
            },
            |answer: insula_proto::admin::v1::CreateWorkspaceResponse| answer.workspace.unwrap().uid
        );
        survives("CreateWorkspace", create).await;
    });
    assert_eq!(scene.count(WORKSPACES), MILLISECONDS.len());
    runtime().block_on(async {
        let update = call!(
            scene,
            WorkspaceServiceClient,
            update_workspace,
            |request_id, n| UpdateWorkspaceRequest {
                workspace: format!("{place}:{}", name(n)),
                labels: [("tier".to_owned(), "gold".to_owned())].into(),
                request_id,
                ..UpdateWorkspaceRequest::default()
            },
            |answer: insula_proto::admin::v1::UpdateWorkspaceResponse| answer.workspace.unwrap().etag
        );
        survives("UpdateWorkspace", update).await;
        let freeze = call!(
            scene,
            WorkspaceServiceClient,
            freeze_workspace,
            |request_id, n| FreezeWorkspaceRequest {
                workspace: format!("{place}:{}", name(n)),
                reason: "audit".to_owned(),
                request_id,
                ..FreezeWorkspaceRequest::default()
            },
            |_| ()
        );
        survives("FreezeWorkspace", freeze).await;
        let delete = call!(
            scene,
            WorkspaceServiceClient,
            delete_workspace,
            |request_id, n| DeleteWorkspaceRequest {
                workspace: format!("{place}:{}", name(n)),
                request_id,
                ..DeleteWorkspaceRequest::default()
            },
            |_| ()
        );
        survives("DeleteWorkspace", delete).await;
    });
    until("the deleted ones are gone", || {
        (scene.count(WORKSPACES) == 0).then_some(())
    });
}

/// A workspace whose name the server makes is created once, under one name.
#[test]
fn workspaces_with_made_names_are_created_once() {
    let scene = &Scene::new();
    let place = &scene.place;
    runtime().block_on(async {
        let create = call!(
            scene,
            WorkspaceServiceClient,
            create_workspace,
            |request_id, _| CreateWorkspaceRequest {
                parent: place.clone(),
                name_prefix: "made-".to_owned(),
                request_id,
                ..CreateWorkspaceRequest::default()
            },
            |answer: insula_proto::admin::v1::CreateWorkspaceResponse| answer.workspace.unwrap().name
        );
        survives("CreateWorkspace by prefix", create).await;
    });
    assert_eq!(scene.count(WORKSPACES), MILLISECONDS.len());
}

/// Grants, which write two objects, are whole once they are repeated, and so are revocations.
#[test]
fn access_is_granted_and_revoked_as_a_whole() {
    let scene = &Scene::new();
    runtime().block_on(async {
        let grant = call!(
            scene,
            AccessServiceClient,
            grant_access,
            |request_id, n| GrantAccessRequest {
                workspace: scene.place.clone(),
                subject: guest(n),
                level: AccessLevel::View.into(),
                request_id,
                ..GrantAccessRequest::default()
            },
            |answer: insula_proto::admin::v1::GrantAccessResponse| (answer.bindings, answer.created)
        );
        survives("GrantAccess", grant).await;
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?labelSelector=insula.io/access";
    assert_eq!(scene.count(bindings), 2 * MILLISECONDS.len());
    runtime().block_on(async {
        let revoke = call!(
            scene,
            AccessServiceClient,
            revoke_access,
            |request_id, n| RevokeAccessRequest {
                workspace: scene.place.clone(),
                subject: guest(n),
                request_id,
                ..RevokeAccessRequest::default()
            },
            |answer: insula_proto::admin::v1::RevokeAccessResponse| answer.revoked
        );
        survives("RevokeAccess", revoke).await;
    });
    assert_eq!(scene.count(bindings), 0);
}

/// Objects are applied and deleted once, and limits are set.
#[test]
fn objects_and_limits_are_written_once() {
    let scene = &Scene::new();
    let place = &scene.place;
    let before = scene.count(MAPS);
    let map = |n: usize| {
        let metadata = json!({"name": format!("m{n}"), "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    };
    runtime().block_on(async {
        let apply = call!(
            scene,
            ObjectServiceClient,
            apply_object,
            |request_id, n| ApplyObjectRequest {
                workspace: place.clone(),
                object: Some(from_json(map(n).as_object().unwrap()).unwrap()),
                field_manager: "hurried".to_owned(),
                request_id,
                ..ApplyObjectRequest::default()
            },
            |answer: insula_proto::admin::v1::ApplyObjectResponse| answer.etag
        );
        survives("ApplyObject", apply).await;
    });
    assert_eq!(scene.count(MAPS), before + MILLISECONDS.len());
    runtime().block_on(async {
        let delete = call!(
            scene,
            ObjectServiceClient,
            delete_object,
            |request_id, n| DeleteObjectRequest {
                r#type: Some(ObjectType {
                    workspace: place.clone(),
                    api_version: "v1".to_owned(),
                    resource: "configmaps".to_owned(),
                    kind: String::new(),
                }),
                namespace: "default".to_owned(),
                name: format!("m{n}"),
                request_id,
                ..DeleteObjectRequest::default()
            },
            |answer: insula_proto::admin::v1::DeleteObjectResponse| answer.gone
        );
        survives("DeleteObject", delete).await;
        let limit = call!(
            scene,
            QuotaServiceClient,
            set_limits,
            |request_id, n| SetLimitsRequest {
                workspace: place.clone(),
                limits: Some(Limits {
                    watches: 1_000 + i64::try_from(n).unwrap(),
                    ..Limits::default()
                }),
                request_id,
                ..SetLimitsRequest::default()
            },
            |answer: insula_proto::admin::v1::SetLimitsResponse| answer.etag
        );
        survives("SetLimits", limit).await;
    });
    assert_eq!(scene.count(MAPS), before);
}

/// A backup is one operation, which the repetition of a late call finds.
#[test]
fn a_backup_is_one_operation() {
    let scene = &Scene::new();
    let place = &scene.place;
    runtime().block_on(async {
        let backup = call!(
            scene,
            BackupServiceClient,
            create_backup,
            |request_id, _| CreateBackupRequest {
                workspace: place.clone(),
                request_id,
                ..CreateBackupRequest::default()
            },
            |answer: insula_proto::admin::v1::CreateBackupResponse| answer.operation.unwrap().name
        );
        // The operation that a late call began is found by its repetition; a user has at most
        // eight that are not done.
        for _ in 0..2 {
            survives("CreateBackup", &backup).await;
            let last = backup(new_id(), 0, None).await.unwrap();
            let operation = insula_proto::admin::v1::Operation {
                name: last,
                ..insula_proto::admin::v1::Operation::default()
            };
            done(&scene.server, Some(operation)).await;
        }
    });
    let mut backups = client!(BackupServiceClient<_>, scene.server, Who::KcpAdmin);
    let listed = runtime().block_on(backups.list_backups(insula_proto::admin::v1::ListBackupsRequest::default()));
    assert_eq!(listed.unwrap().into_inner().backups.len(), 2 * (MILLISECONDS.len() + 1));
}

/// A storm of writes with deadlines that are too short takes no more permits than calls that wait,
/// and leaves nothing behind but what each id asked for.
#[test]
fn a_storm_of_short_deadlines_is_bounded() {
    const CALLS: usize = 600;
    const IDS: usize = 40;
    let server = crate::faults::grpc::server_with(&[("REQUESTS_IN_FLIGHT_PER_USER", "20")]);
    let (place, _) = workspace(&server.admin(), "storm");
    let (quiet, _) = workspace_owned_by(&server, "alice");
    let channel = &channel(&server, &Who::Anonymous);
    let create = |id: usize| CreateWorkspaceRequest {
        parent: place.clone(),
        name: format!("s{id}"),
        request_id: format!("7d1b3ad0-94a5-4f4e-9d3b-{id:012x}"),
        wait: id.is_multiple_of(3),
        ..CreateWorkspaceRequest::default()
    };
    let call = async |id: usize, time: Option<Duration>| {
        let mut client = WorkspaceServiceClient::with_origin(channel.clone(), origin(&server));
        let mut request = as_user("carol-token", create(id));
        if let Some(time) = time {
            request.set_timeout(time);
        }
        let answer = client.create_workspace(request).await?;
        Ok::<_, Status>(answer.into_inner().workspace.unwrap().uid)
    };
    runtime().block_on(async {
        let mut late = false;
        // On a busy machine a client may read its clock only when all answers are there.
        for _ in 0..50 {
            let calls = (0..CALLS).map(|n| call(n % IDS, Some(Duration::from_millis(1 + n as u64 % 20))));
            for outcome in futures_util::future::join_all(calls).await {
                let allowed = [Code::Ok, Code::DeadlineExceeded, Code::ResourceExhausted, Code::Aborted];
                let code = outcome.as_ref().map_or_else(Status::code, |_| Code::Ok);
                assert!(allowed.contains(&code), "{outcome:?}");
                late |= code == Code::DeadlineExceeded;
            }
            if late {
                break;
            }
        }
        assert!(late, "no deadline was too short");
    });
    let alice = server.client(Who::Token("alice-token".to_owned()));
    alice.in_workspace(&quiet).get(MAPS).expect(200);
    until("nothing is in flight", || {
        let flying = metric(&server, "insula_requests_in_flight{effect=\"Mutating\"}")?;
        (flying == 0.0 && metric(&server, "insula_grpc_message_bytes")? == 0.0).then_some(())
    });
    let mut made = BTreeSet::new();
    for id in 0..IDS {
        let again = async |time| call(id, time).await;
        let [one, same] = [(); 2].map(|()| runtime().block_on(repeated(again)).unwrap());
        assert_eq!(one, same);
        made.insert(one);
    }
    let found = server.admin().in_workspace(&place).get(WORKSPACES).expect(200);
    assert_eq!((made.len(), found["items"].as_array().unwrap().len()), (IDS, IDS));
}

/// Clients that give up waiting for a workspace that never becomes ready get their permits back.
#[test]
fn abandoned_waits_hold_no_permit() {
    let server = crate::faults::grpc::server_with(&[("REQUESTS_IN_FLIGHT_PER_USER", "2")]);
    let (parent, _) = workspace(&server.admin(), "waiting");
    let kind = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType",
        "metadata": {"name": "slow"}, "spec": {"initializer": true,
            "extend": {"with": [{"name": "universal", "path": "root"}]}}});
    let types = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
    server.admin().in_workspace(&parent).post(types, &kind).expect(201);
    let channel = channel(&server, &Who::Anonymous);
    for n in 0..20 {
        let create = || CreateWorkspaceRequest {
            parent: parent.clone(),
            name: format!("w{n}"),
            r#type: format!("{parent}:slow"),
            wait: true,
            request_id: format!("7d1b3ad0-94a5-4f4e-9d3c-{n:012x}"),
            ..CreateWorkspaceRequest::default()
        };
        until("the user may call again", || {
            let mut client = WorkspaceServiceClient::with_origin(channel.clone(), origin(&server));
            let mut request = as_user("carol-token", create());
            request.set_timeout(Duration::from_millis(100));
            let refusal = runtime().block_on(client.create_workspace(request)).unwrap_err();
            match refusal.code() {
                Code::DeadlineExceeded => Some(()),
                Code::ResourceExhausted => None,
                code => panic!("{code:?}: {refusal:?}"),
            }
        });
    }
}
