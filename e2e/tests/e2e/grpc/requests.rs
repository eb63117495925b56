//! Idempotency of writes where servers die, and where two of them share a store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use insula_e2e::{Client, Etcd, Hook, Reply, Server, Setup, Who, publish_widgets, runtime, shared, until, workspace};
use insula_proto::admin::v1::{
    AccessLevel, BindApiRequest, CreateWorkspaceRequest, CreateWorkspaceResponse, GrantAccessRequest,
    GrantAccessResponse, Subject, SubjectKind, access_service_client::AccessServiceClient,
    api_service_client::ApiServiceClient, workspace_service_client::WorkspaceServiceClient,
};
use prost::Message;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{channel, client, conventions::send, reason};

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Creates a workspace whose name the server makes up, as often as it takes until the first request
/// with the id has ended.
async fn create(server: &Server, parent: &str, id: &str) -> CreateWorkspaceResponse {
    let mut client = client!(WorkspaceServiceClient<_>, *server, Who::KcpAdmin);
    let request = creation(parent, id);
    for _ in 0..1000 {
        match client.create_workspace(request.clone()).await {
            Ok(answer) => return answer.into_inner(),
            Err(refusal) => assert_eq!(reason(&refusal), "REQUEST_IN_PROGRESS", "{refusal:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the request never ends");
}

fn creation(parent: &str, id: &str) -> CreateWorkspaceRequest {
    CreateWorkspaceRequest {
        parent: parent.to_owned(),
        name_prefix: "made-".to_owned(),
        request_id: id.to_owned(),
        ..CreateWorkspaceRequest::default()
    }
}

/// Two servers on one store run a request once, whichever gets it, and when both do.
#[test]
fn a_request_to_two_servers_runs_once() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let servers = [(); 2].map(|()| Server::with_flags(&["--store", &store]));
    let [first, second] = &servers;
    let (parent, _) = workspace(&first.admin(), "twice");
    let uid = |answer: CreateWorkspaceResponse| answer.workspace.unwrap().uid;
    runtime().block_on(async {
        let id = "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b31";
        let one = uid(create(first, &parent, id).await);
        assert_eq!(uid(create(second, &parent, id).await), one, "one after the other");
        for round in 0..5 {
            let id = format!("6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2c{round:02}");
            let (one, other) = tokio::join!(create(first, &parent, &id), create(second, &parent, &id));
            assert_eq!(uid(one), uid(other), "at once");
        }
    });
    let made = first.admin().in_workspace(&parent).get(WORKSPACES).expect(200);
    assert_eq!(made["items"].as_array().unwrap().len(), 6);
}

/// A server that is killed in the middle of creations forgets none of their ids: the repetition
/// finds the workspace that was made, or makes it.
#[test]
fn creations_are_repeated_after_kill_9() {
    const CALLS: usize = 32;
    let mut server = Server::start();
    let (parent, _) = workspace(&server.admin(), "killed");
    for round in 0..6 {
        let id = |n: usize| format!("7d1b3ad0-94a5-4f4e-9d3d-{:012x}", round * CALLS + n);
        let channel = channel(&server, &Who::KcpAdmin);
        runtime().block_on(async {
            let calls = (0..CALLS).map(async |n| {
                let mut client = WorkspaceServiceClient::with_origin(channel.clone(), super::origin(&server));
                client.create_workspace(creation(&parent, &id(n))).await
            });
            // The calls are cut off in different steps.
            let time = Duration::from_millis(2 + 2 * round as u64);
            let _ = tokio::time::timeout(time, join_all(calls)).await;
        });
        server.kill9();
        server = server.restart();
        runtime().block_on(async {
            for n in 0..CALLS {
                let uid = async || create(&server, &parent, &id(n)).await.workspace.unwrap().uid;
                assert_eq!(uid().await, uid().await);
            }
        });
        let found = server.admin().in_workspace(&parent).get(WORKSPACES).expect(200);
        assert_eq!(found["items"].as_array().unwrap().len(), (round + 1) * CALLS);
    }
}

/// As workspaces, so bindings.
#[test]
fn bindings_are_repeated_after_kill_9() {
    const CALLS: usize = 16;
    let mut server = Server::start();
    let (provider, _) = workspace(&server.admin(), "provider");
    publish_widgets(&server.admin().in_workspace(&provider));
    let (consumer, _) = workspace(&server.admin(), "consumer");
    let asked = |round: usize, n: usize| BindApiRequest {
        workspace: consumer.clone(),
        export_workspace: provider.clone(),
        export: "widgets".to_owned(),
        binding: format!("b{round}-{n}"),
        request_id: format!("7d1b3ad0-94a5-4f4e-9d3e-{:012x}", round * CALLS + n),
        ..BindApiRequest::default()
    };
    for round in 0..4 {
        let open = channel(&server, &Who::KcpAdmin);
        runtime().block_on(async {
            let calls = (0..CALLS).map(async |n| {
                let mut client = ApiServiceClient::with_origin(open.clone(), super::origin(&server));
                client.bind_api(asked(round, n)).await
            });
            let time = Duration::from_millis(2 + 4 * round as u64);
            let _ = tokio::time::timeout(time, join_all(calls)).await;
        });
        server.kill9();
        server = server.restart();
        let mut client = client!(ApiServiceClient<_>, server, Who::KcpAdmin);
        runtime().block_on(async {
            for n in 0..CALLS {
                let bound = client.bind_api(asked(round, n)).await.unwrap().into_inner();
                assert_eq!(bound.binding.unwrap().name, format!("b{round}-{n}"));
            }
        });
    }
}

async fn grant(server: &Server, request: GrantAccessRequest) -> Result<GrantAccessResponse, Status> {
    let mut client = client!(AccessServiceClient<_>, *server, Who::KcpAdmin);
    Ok(client.grant_access(request).await?.into_inner())
}

/// Calls a webhook about the second binding of a grant.
fn configure(at: &Client, hook: &Hook) {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "slow"},
        "webhooks": [{
            "name": "slow.hooks.example.io", "clientConfig": hook.client_config("/slow"), "sideEffects": "None",
            "timeoutSeconds": 30, "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["clusterrolebindings"]}],
            "objectSelector": {"matchLabels": {"insula.io/access": "access"}},
        }],
    });
    at.post(HOOKS, &configuration).expect(201);
}

/// A server is killed after a part of the effect of a request, and before its record. The
/// repetition completes the request; the one after it gets the same answer.
#[test]
fn a_request_survives_kill_9_between_its_effect_and_its_record() {
    let mut server = Server::with(Setup {
        flags: vec!["--webhook-allow".into(), "127.0.0.1".into()],
        ..Setup::default()
    });
    let (path, _) = workspace(&server.admin(), "cut");
    let answers = Arc::new(AtomicBool::new(false));
    let lets_pass = Arc::clone(&answers);
    let hook = Hook::start(&server, move |_, review: &Value| {
        if !lets_pass.load(Ordering::Relaxed) {
            return Reply::Hang;
        }
        let response = json!({"uid": review["request"]["uid"], "allowed": true});
        Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
    });
    configure(&server.admin().in_workspace(&path), &hook);
    let request = GrantAccessRequest {
        workspace: path.clone(),
        subject: Some(Subject {
            kind: SubjectKind::User.into(),
            name: "bob".to_owned(),
            namespace: String::new(),
        }),
        level: AccessLevel::View.into(),
        request_id: "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b41".to_owned(),
        ..GrantAccessRequest::default()
    };
    let mut client = client!(AccessServiceClient<_>, server, Who::KcpAdmin);
    let cut = request.clone();
    let call = runtime().spawn(async move { client.grant_access(cut).await.map(drop) });
    until("the second binding waits", || {
        (!hook.take("/slow").is_empty()).then_some(())
    });
    let granted = |server: &Server| {
        let bindings = format!("{BINDINGS}?labelSelector=insula.io/access");
        let found = server.admin().in_workspace(&path).get(&bindings).expect(200);
        found["items"].as_array().unwrap().len()
    };
    assert_eq!(granted(&server), 1, "the first one is there");
    let other = runtime().block_on(grant(&server, request.clone()));
    assert_eq!(reason(&other.unwrap_err()), "REQUEST_IN_PROGRESS");
    server.kill9();
    assert!(runtime().block_on(call).unwrap().is_err());
    let server = server.restart();
    answers.store(true, Ordering::Relaxed);
    assert_eq!(granted(&server), 1, "the effect is kept");
    let completed = runtime().block_on(grant(&server, request.clone())).unwrap();
    assert_eq!((completed.bindings.len(), granted(&server)), (2, 2));
    let again = runtime().block_on(grant(&server, request.clone())).unwrap();
    assert_eq!((again.bindings, again.created), (completed.bindings, completed.created));
    let reused = GrantAccessRequest {
        level: AccessLevel::Edit.into(),
        ..request
    };
    let reused = runtime().block_on(grant(&server, reused)).unwrap_err();
    assert_eq!(
        (reused.code(), &*reason(&reused)),
        (Code::InvalidArgument, "REQUEST_ID_REUSED")
    );
}

/// The entries of a map have no order in a message: a repetition may send them in another one.
#[test]
fn maps_in_another_order_are_the_same_request() {
    let server = shared();
    let (parent, _) = workspace(&server.admin(), "ordered");
    let channel = channel(&server, &Who::KcpAdmin);
    let keys: Vec<String> = (0..12).map(|n| format!("label-{n}")).collect();
    let request = |keys: &mut dyn Iterator<Item = &String>| {
        let mut bytes = CreateWorkspaceRequest {
            parent: parent.clone(),
            name: "team".to_owned(),
            request_id: "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b61".to_owned(),
            ..CreateWorkspaceRequest::default()
        }
        .encode_to_vec();
        for key in keys {
            let label = CreateWorkspaceRequest {
                labels: [(key.clone(), "x".to_owned())].into(),
                ..CreateWorkspaceRequest::default()
            };
            bytes.extend(label.encode_to_vec());
        }
        bytes
    };
    let path = "/insula.admin.v1.WorkspaceService/CreateWorkspace";
    runtime().block_on(async {
        let mut uids = Vec::new();
        for bytes in [
            request(&mut keys.iter()),
            request(&mut keys.iter().rev()),
            request(&mut keys.iter()),
        ] {
            let got = send(&channel, &server, path, &bytes, &[]).await;
            assert_eq!(got.status.code(), Code::Ok, "{:?}", got.status);
            let answer = CreateWorkspaceResponse::decode(&*got.message.unwrap()).unwrap();
            let made = answer.workspace.unwrap();
            assert_eq!(made.labels.len(), keys.len());
            uids.push(made.uid);
        }
        assert!(uids.iter().all(|uid| *uid == uids[0]), "{uids:?}");
    });
}
