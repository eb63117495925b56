//! Operations: rights, pages, waits, cancellation, and a server that is killed.

use insula_e2e::{Etcd, Server, Who, runtime, shared, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    CancelOperationRequest, CreateBackupRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    Operation, WaitOperationRequest, backup_service_client::BackupServiceClient,
    operation_service_client::OperationServiceClient,
};
use tonic::{Code, Status};

use super::{Channel, as_user, channel, origin};

pub(super) fn operations(server: &Server, who: &Who) -> OperationServiceClient<Channel> {
    OperationServiceClient::with_origin(channel(server, who), origin(server))
}

/// Waits until an operation is done.
pub(super) async fn done(server: &Server, operation: Option<Operation>) -> Operation {
    let name = operation.expect("an operation").name;
    for _ in 0..10 {
        let request = WaitOperationRequest {
            name: name.clone(),
            timeout: None,
        };
        let waited = operations(server, &Who::KcpAdmin)
            .wait_operation(request)
            .await
            .unwrap();
        let operation = waited.into_inner().operation.unwrap();
        if operation.done {
            return operation;
        }
    }
    panic!("{name} does not end");
}

async fn start(server: &Server, workspace: &str, request_id: &str) -> Operation {
    let mut backups = BackupServiceClient::with_origin(channel(server, &Who::KcpAdmin), origin(server));
    let request = CreateBackupRequest {
        workspace: workspace.to_owned(),
        installation: workspace.is_empty(),
        request_id: request_id.to_owned(),
        ..CreateBackupRequest::default()
    };
    backups
        .create_backup(request)
        .await
        .unwrap()
        .into_inner()
        .operation
        .unwrap()
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.err().map_or(Code::Ok, |status| status.code())
}

#[test]
fn operations_are_listed_waited_for_and_deleted_by_who_may() {
    let server = shared();
    let (place, _) = workspace(&server.admin(), "operated");
    runtime().block_on(async {
        let started = start(&server, &place, "").await;
        assert_eq!(
            (&*started.kind, &*started.workspace, &*started.user),
            ("CreateBackup", &*place, "kcp-admin")
        );
        let ended = done(&server, Some(started.clone())).await;
        assert!(ended.error.is_none() && ended.result.is_some(), "{ended:?}");
        let again = done(&server, Some(start(&server, &place, "").await)).await;
        let mut admin = operations(&server, &Who::KcpAdmin);
        let list = |token: String| ListOperationsRequest {
            workspace: place.clone(),
            kind: "CreateBackup".to_owned(),
            done: Some(true),
            page_size: 1,
            page_token: token,
        };
        let first = admin.list_operations(list(String::new())).await.unwrap().into_inner();
        let second = admin
            .list_operations(list(first.next_page_token.clone()))
            .await
            .unwrap()
            .into_inner();
        let mut names = vec![first.operations[0].name.clone(), second.operations[0].name.clone()];
        names.sort();
        let mut wanted = vec![started.name.clone(), again.name.clone()];
        wanted.sort();
        assert_eq!((names, &*second.next_page_token), (wanted, ""));
        assert_eq!(
            first.header.unwrap().revision,
            second.header.unwrap().revision,
            "one revision"
        );

        // Others learn nothing, whether the operation exists or not.
        let mut other = operations(&server, &Who::Anonymous);
        let mut told = Vec::new();
        for name in [&*started.name, "createbackup-0000000000000000"] {
            let get = GetOperationRequest { name: name.to_owned() };
            let refused = other.get_operation(as_user("bob-token", get)).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
            told.push(refused.message().replace(name, "NAME"));
        }
        assert_eq!(told[0], told[1]);
        let all = ListOperationsRequest::default();
        assert_eq!(
            code(other.list_operations(as_user("bob-token", all)).await),
            Code::PermissionDenied
        );
        let get = |name: &str| GetOperationRequest { name: name.to_owned() };
        assert_eq!(code(admin.get_operation(get("createbackup-0")).await), Code::NotFound);

        let delete = |validate_only| DeleteOperationRequest {
            name: started.name.clone(),
            validate_only,
            ..DeleteOperationRequest::default()
        };
        assert_eq!(
            code(other.delete_operation(as_user("bob-token", delete(false))).await),
            Code::PermissionDenied
        );
        admin.delete_operation(delete(true)).await.unwrap();
        admin.get_operation(get(&started.name)).await.unwrap();
        admin.delete_operation(delete(false)).await.unwrap();
        assert_eq!(code(admin.get_operation(get(&started.name)).await), Code::NotFound);
    });
}

/// Whoever administers a workspace sees its operations, and no others.
#[test]
fn operations_of_a_workspace_are_for_its_administrators() {
    let server = shared();
    let (place, _) = workspace_owned_by(&server, "alice");
    let started = runtime().block_on(start(&server, &place, ""));
    let list = |token: &str| {
        let request = ListOperationsRequest {
            workspace: place.clone(),
            ..ListOperationsRequest::default()
        };
        let mut client = operations(&server, &Who::Anonymous);
        let listed = runtime().block_on(client.list_operations(as_user(token, request)));
        listed.map(|listed| listed.into_inner().operations)
    };
    let seen = list("alice-token").unwrap();
    assert_eq!((seen.len(), &seen[0].name), (1, &started.name));
    assert_eq!(code(list("bob-token")), Code::PermissionDenied);
    let get = GetOperationRequest { name: started.name };
    let mut client = operations(&server, &Who::Anonymous);
    runtime()
        .block_on(client.get_operation(as_user("alice-token", get)))
        .unwrap();
}

/// On a store that two servers share, the other one takes over what a killed one has left.
#[test]
fn another_server_takes_operations_over() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let [mut first, other] = [(); 2].map(|()| Server::with_flags(&["--store", &store]));
    let (place, _) = workspace(&first.admin(), "shared");
    let started = runtime().block_on(start(&first, &place, ""));
    first.kill9();
    let ended = runtime().block_on(done(&other, Some(started)));
    assert!(ended.error.is_none() && ended.result.is_some(), "{ended:?}");
}

#[test]
fn a_request_starts_one_operation() {
    let server = shared();
    let (place, _) = workspace(&server.admin(), "once");
    runtime().block_on(async {
        let id = "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b77";
        let first = start(&server, &place, id).await;
        let again = start(&server, &place, id).await;
        assert_eq!(first.name, again.name);
        let cancel = CancelOperationRequest {
            name: first.name.clone(),
            ..CancelOperationRequest::default()
        };
        match operations(&server, &Who::KcpAdmin).cancel_operation(cancel).await {
            Ok(cancelled) => assert_eq!(cancelled.into_inner().operation.unwrap().name, first.name),
            // The backup is complete and just gets its name.
            Err(refusal) => assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}"),
        }
        let ended = done(&server, Some(first)).await;
        assert!(ended.result.is_some() || ended.error.unwrap().reason == "Cancelled");
    });
}

/// The server is killed right after it has answered: the backup is taken before or after the
/// restart, and the operation ends.
#[test]
fn an_operation_survives_kill_9() {
    let mut server = Server::start();
    let (place, _) = workspace(&server.admin(), "killed");
    let names: Vec<Operation> = runtime().block_on(async {
        let mut started = Vec::new();
        for _ in 0..3 {
            started.push(start(&server, &place, "").await);
        }
        started.push(start(&server, "", "").await);
        started
    });
    server.kill9();
    let server = server.restart();
    runtime().block_on(async {
        for operation in names {
            let ended = done(&server, Some(operation)).await;
            assert!(ended.error.is_none() && ended.result.is_some(), "{ended:?}");
        }
    });
}
