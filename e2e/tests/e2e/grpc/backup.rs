//! Backups over gRPC: the restore of workspaces into a running server, rights, damage, kill -9.

use std::collections::BTreeMap;

use insula_e2e::{
    Client, Server, Setup, Who, insula, publish_widgets, ready_workspace, runtime, shared, until, workspace,
};
use insula_proto::{
    admin::v1::{
        Backup, CreateBackupRequest, DeleteBackupRequest, DownloadBackupRequest, GetBackupRequest, ListBackupsRequest,
        Operation, RestoreBackupRequest, RestoreBackupResponse, VerifyBackupRequest,
        backup_service_client::BackupServiceClient,
    },
    value::to_json,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Channel, as_user, channel, operations::done, origin};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.io/v2/namespaces/default/widgets";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

pub(super) fn backups(server: &Server, who: &Who) -> BackupServiceClient<Channel> {
    BackupServiceClient::with_origin(channel(server, who), origin(server))
}

pub(super) fn map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": data}})
}

/// Returns the objects of a list without their revisions.
pub(super) fn objects(client: &Client, path: &str) -> BTreeMap<String, Value> {
    let list = client.get(path).expect(200);
    let items = list["items"].as_array().unwrap().iter().map(|item| {
        let mut item = item.clone();
        item["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        (item["metadata"]["name"].as_str().unwrap().to_owned(), item)
    });
    items.collect()
}

/// Returns the result of an operation that succeeded.
fn result(operation: Operation) -> Value {
    assert!(operation.error.is_none(), "{operation:?}");
    Value::Object(to_json(operation.result.unwrap()).unwrap())
}

/// Takes a backup and returns its result.
pub(super) fn create(server: &Server, workspace: &str) -> Value {
    runtime().block_on(async {
        let request = CreateBackupRequest {
            workspace: workspace.to_owned(),
            installation: workspace.is_empty(),
            ..CreateBackupRequest::default()
        };
        let started = backups(server, &Who::KcpAdmin).create_backup(request).await.unwrap();
        result(done(server, started.into_inner().operation).await)
    })
}

pub(super) fn name(result: &Value) -> String {
    result["name"].as_str().unwrap().to_owned()
}

fn restore(server: &Server, request: RestoreBackupRequest) -> Result<RestoreBackupResponse, Status> {
    let mut client = backups(server, &Who::KcpAdmin);
    let answered = runtime().block_on(client.restore_backup(request));
    answered.map(tonic::Response::into_inner)
}

pub(crate) fn restored(server: &Server, request: RestoreBackupRequest) -> Value {
    let started = restore(server, request).unwrap();
    runtime().block_on(async { result(done(server, started.operation).await) })
}

pub(crate) fn delete_workspace(server: &Server, path: &str) {
    let (parent, name) = path.rsplit_once(':').unwrap();
    let parent = server.admin().in_workspace(parent);
    parent.delete(&format!("{WORKSPACES}/{name}")).expect(200);
    until("the workspace is gone", || {
        (parent.get(&format!("{WORKSPACES}/{name}")).code == 404).then_some(())
    });
}

/// A workspace with objects of all sorts: of a bound API in a version that is converted, with
/// owners, in a workspace below.
pub(super) fn filled(server: &Server) -> String {
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "provider");
    publish_widgets(&admin.in_workspace(&provider));
    let (place, _) = workspace(&admin, "kept");
    let client = admin.in_workspace(&place);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": provider, "name": "widgets"}}}});
    client.post(BINDINGS, &binding).expect(201);
    until("widgets are served", || {
        (client.get("/apis/example.io/v2/widgets").code == 200).then_some(())
    });
    let widget = json!({"apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"name": {"first": "Ada"}, "more": "kept beside"}});
    let widget = client.post(WIDGETS, &widget).expect(201);
    let owner = client.post(MAPS, &map("owner", "o")).expect(201);
    for (name, api_version, kind, owner) in [
        ("a-dependent", "v1", "ConfigMap", &owner),
        ("a-part", "example.io/v2", "Widget", &widget),
    ] {
        let mut dependent = map(name, "d");
        dependent["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
        client.post(MAPS, &dependent).expect(201);
    }
    let (below, _) = ready_workspace(&admin, &place, "below", json!({}));
    admin.in_workspace(&below).post(MAPS, &map("deep", "d")).expect(201);
    place
}

/// Returns everything that clients see of a workspace, once its controllers are at rest.
pub(super) fn at_rest(server: &Server, place: &str) -> Vec<BTreeMap<String, Value>> {
    until("the controllers are at rest", || {
        let before = seen(server, place);
        std::thread::sleep(std::time::Duration::from_millis(300));
        (seen(server, place) == before).then_some(before)
    })
}

/// Returns everything that clients see of a workspace.
fn seen(server: &Server, place: &str) -> Vec<BTreeMap<String, Value>> {
    let client = server.admin().in_workspace(place);
    let below = server.admin().in_workspace(&format!("{place}:below"));
    let mut all: Vec<_> = [
        MAPS,
        WIDGETS,
        BINDINGS,
        WORKSPACES,
        "/api/v1/namespaces",
        "/api/v1/serviceaccounts",
    ]
    .iter()
    .map(|path| objects(&client, path))
    .collect();
    all.push(objects(&below, MAPS));
    all
}

#[test]
fn a_deleted_workspace_is_restored_as_it_was() {
    let server = Server::start();
    let place = filled(&server);
    let before = at_rest(&server, &place);
    let taken = create(&server, &place);
    delete_workspace(&server, &place);

    let request = RestoreBackupRequest {
        name: name(&taken),
        ..RestoreBackupRequest::default()
    };
    let check = RestoreBackupRequest {
        validate_only: true,
        ..request.clone()
    };
    let changes = restore(&server, check).unwrap().changes.unwrap();
    assert_eq!(changes.workspaces, [place.clone(), format!("{place}:below")]);
    assert!(
        changes.created > 5 && changes.updated == 0 && changes.deleted == 0,
        "{changes:?}"
    );
    let done = restored(&server, request.clone());
    assert_eq!(done["contentSha256"], taken["contentSha256"], "{done}");
    assert_eq!(at_rest(&server, &place), before);

    // It is alive: writes, conversion, the collector of garbage, its own deletion.
    let client = server.admin().in_workspace(&place);
    let old = client
        .get("/apis/example.io/v1/namespaces/default/widgets/w")
        .expect(200);
    assert_eq!(old["spec"], json!({"firstName": "Ada"}));
    client.delete(&format!("{MAPS}/owner")).expect(200);
    until("the dependent follows its owner", || {
        (client.get(&format!("{MAPS}/a-dependent")).code == 404).then_some(())
    });
    client.post(MAPS, &map("extra", "e")).expect(201);
    client
        .merge(&format!("{MAPS}/a-part"), &json!({"data": {"text": "other"}}))
        .expect(200);

    // What exists is replaced only if the caller says so.
    let refused = restore(&server, request.clone()).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("set overwrite"), "{}", refused.message());
    let overwrite = RestoreBackupRequest {
        overwrite: true,
        ..request
    };
    let done = restored(&server, overwrite);
    assert!(
        done["deleted"].as_u64() >= Some(1) && done["updated"].as_u64() >= Some(1),
        "{done}"
    );
    assert_eq!(at_rest(&server, &place), before);
    delete_workspace(&server, &place);
}

#[test]
fn a_workspace_is_restored_from_a_backup_of_the_installation() {
    let server = Server::start();
    let (place, _) = workspace(&server.admin(), "part");
    let client = server.admin().in_workspace(&place);
    client.post(MAPS, &map("m", "1")).expect(201);
    let taken = create(&server, "");
    let whole = RestoreBackupRequest {
        name: name(&taken),
        ..RestoreBackupRequest::default()
    };
    client
        .merge(&format!("{MAPS}/m"), &json!({"data": {"text": "2"}}))
        .expect(200);
    let part = RestoreBackupRequest {
        workspace: place.clone(),
        overwrite: true,
        ..whole.clone()
    };
    restored(&server, part);
    assert_eq!(client.get(&format!("{MAPS}/m")).expect(200)["data"]["text"], "1");
    let missing = RestoreBackupRequest {
        workspace: "root:never".to_owned(),
        validate_only: true,
        ..whole
    };
    assert_eq!(restore(&server, missing).unwrap_err().code(), Code::NotFound);
}

/// The server is killed as soon as it has answered, some time into the restore.
#[test]
fn a_restore_survives_kill_9() {
    let mut server = Server::start();
    let (place, _) = workspace(&server.admin(), "torn");
    let client = server.admin().in_workspace(&place);
    for n in 0..150 {
        client.post(MAPS, &map(&format!("m{n}"), "x")).expect(201);
    }
    let before = objects(&client, MAPS);
    let taken = create(&server, &place);
    for wait in [0, 5, 40] {
        let request = RestoreBackupRequest {
            name: name(&taken),
            overwrite: true,
            ..RestoreBackupRequest::default()
        };
        let client = server.admin().in_workspace(&place);
        client.post(MAPS, &map("extra", "e")).expect(201);
        let started = restore(&server, request).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        server.kill9();
        server = server.restart();
        let ended = runtime().block_on(async { result(done(&server, started.operation).await) });
        assert_eq!(ended["contentSha256"], taken["contentSha256"], "{ended}");
        assert_eq!(
            objects(&server.admin().in_workspace(&place), MAPS),
            before,
            "after {wait} ms"
        );
    }
}

async fn download(server: &Server, name: &str) -> (Vec<u8>, String) {
    let request = DownloadBackupRequest { name: name.to_owned() };
    let answered = backups(server, &Who::KcpAdmin).download_backup(request).await.unwrap();
    let (mut stream, mut bytes, mut sha256) = (answered.into_inner(), Vec::new(), String::new());
    while let Some(message) = stream.message().await.unwrap() {
        assert!(sha256.is_empty() && message.data.len() <= 1 << 20);
        bytes.extend(message.data);
        sha256 = message.sha256;
    }
    (bytes, sha256)
}

#[test]
fn backups_are_downloaded_and_verified() {
    let server = Server::start();
    let (place, _) = workspace(&server.admin(), "listed");
    let first = create(&server, &place);
    let file = server
        .data_dir()
        .join("backups")
        .join(format!("{}.backup", name(&first)));
    runtime().block_on(async {
        let mut admin = backups(&server, &Who::KcpAdmin);
        let get = GetBackupRequest { name: name(&first) };
        let found: Backup = admin
            .get_backup(get.clone())
            .await
            .unwrap()
            .into_inner()
            .backup
            .unwrap();
        assert_eq!(
            (&*found.workspace, json!(found.sha256)),
            (&*place, first["sha256"].clone())
        );
        let (bytes, sha256) = download(&server, &found.name).await;
        assert_eq!((bytes.len() as i64, sha256.len()), (found.bytes, 64));
        assert_eq!(bytes, std::fs::read(&file).unwrap());

        let verify = VerifyBackupRequest {
            name: found.name.clone(),
            ..VerifyBackupRequest::default()
        };
        let verified = admin.verify_backup(verify.clone()).await.unwrap().into_inner();
        assert_eq!(result(done(&server, verified.operation).await), first);
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        let verified = admin.verify_backup(verify).await.unwrap().into_inner();
        let error = done(&server, verified.operation).await.error.unwrap();
        assert_eq!(error.code, Code::DataLoss as i32, "{error:?}");
    });
}

#[test]
fn backups_have_limits_are_listed_and_deleted() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_BACKUP_MAX_BACKUPS".to_owned(), "2".to_owned())],
        ..Setup::default()
    });
    let (place, _) = workspace(&server.admin(), "listed");
    let first = create(&server, &place);
    let file = server
        .data_dir()
        .join("backups")
        .join(format!("{}.backup", name(&first)));
    runtime().block_on(async {
        let mut admin = backups(&server, &Who::KcpAdmin);
        // A second one fits, a third does not.
        let request = CreateBackupRequest {
            installation: true,
            ..CreateBackupRequest::default()
        };
        let all = admin.create_backup(request.clone()).await.unwrap().into_inner();
        let all = result(done(&server, all.operation).await);
        let third = admin.create_backup(request).await.unwrap().into_inner();
        let error = done(&server, third.operation).await.error.unwrap();
        assert_eq!(error.code, Code::ResourceExhausted as i32, "{error:?}");
        assert!(error.message.contains("backup.maxBackups"), "{error:?}");
        let list = |token: String| ListBackupsRequest {
            page_size: 1,
            page_token: token,
            ..ListBackupsRequest::default()
        };
        let one = admin.list_backups(list(String::new())).await.unwrap().into_inner();
        let two = admin
            .list_backups(list(one.next_page_token.clone()))
            .await
            .unwrap()
            .into_inner();
        assert_eq!([&one, &two].map(|page| page.backups.len()), [1, 1]);
        assert_eq!(two.next_page_token, "");
        let delete = DeleteBackupRequest {
            name: name(&all),
            ..DeleteBackupRequest::default()
        };
        admin.delete_backup(delete.clone()).await.unwrap();
        assert_eq!(admin.delete_backup(delete).await.unwrap_err().code(), Code::NotFound);
    });
    // The command refuses to make an installation of a workspace.
    std::fs::remove_file(&file).unwrap();
    let other = create(&server, &place);
    let file = server
        .data_dir()
        .join("backups")
        .join(format!("{}.backup", name(&other)));
    let file = file.to_str().unwrap();
    assert!(insula(&["backup", "verify", file]).output().unwrap().status.success());
    let to = server.data_dir().join("new");
    let output = insula(&["backup", "restore", file, "--to", to.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("RestoreBackup"), "{text}");
}

#[test]
fn backups_are_for_administrators_of_the_installation() {
    let server = shared();
    runtime().block_on(async {
        let mut client = backups(&server, &Who::Anonymous);
        let name = || "20261124t100000z-0".to_owned();
        let codes = [
            client
                .create_backup(as_user("alice-token", CreateBackupRequest::default()))
                .await
                .map(drop),
            client
                .list_backups(as_user("alice-token", ListBackupsRequest::default()))
                .await
                .map(drop),
            client
                .get_backup(as_user("alice-token", GetBackupRequest { name: name() }))
                .await
                .map(drop),
            client
                .restore_backup(as_user(
                    "alice-token",
                    RestoreBackupRequest {
                        name: name(),
                        ..Default::default()
                    },
                ))
                .await
                .map(drop),
            client
                .download_backup(as_user("alice-token", DownloadBackupRequest { name: name() }))
                .await
                .map(drop),
        ];
        for code in codes {
            assert_eq!(code.unwrap_err().code(), Code::PermissionDenied);
        }
        let mut admin = backups(&server, &Who::KcpAdmin);
        for bad in ["", "../../pki/ca", "A", "a/b"] {
            let refused = admin
                .get_backup(GetBackupRequest { name: bad.to_owned() })
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{bad}");
        }
        let root = CreateBackupRequest {
            workspace: "root".to_owned(),
            ..CreateBackupRequest::default()
        };
        assert_eq!(
            admin.create_backup(root).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    });
}
