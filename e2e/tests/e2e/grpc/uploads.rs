//! Uploads of backups: verified before they are listed, and removed where they break off.

use futures_util::{
    Stream, StreamExt,
    stream::{iter, pending},
};
use insula_e2e::{Server, Setup, Who, runtime, until, workspace};
use insula_proto::admin::v1::{
    Backup, CreateBackupRequest, DeleteBackupRequest, DownloadBackupRequest, ListBackupsRequest, RestoreBackupRequest,
    UploadBackupRequest, VerifyBackupRequest, backup_service_client::BackupServiceClient,
};
use serde_json::{Value, json};
use tonic::{Code, Request, Status};

use super::{Channel, as_user, client, operations::done};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WORKSPACES: &str = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";

fn backups(server: &Server) -> BackupServiceClient<Channel> {
    client!(BackupServiceClient<_>, *server, Who::KcpAdmin)
}

/// The file of a backup, and its SHA-256.
type File = (Vec<u8>, String);

/// Takes a backup, downloads it and deletes it on the server.
async fn taken(server: &Server, workspace: &str) -> File {
    let mut client = backups(server);
    let create = CreateBackupRequest {
        workspace: workspace.to_owned(),
        ..CreateBackupRequest::default()
    };
    let started = client.create_backup(create).await.unwrap().into_inner();
    let ended = done(server, started.operation).await;
    let result = insula_proto::value::to_json(ended.result.expect("a backup")).unwrap();
    let name = result["name"].as_str().unwrap().to_owned();
    let download = DownloadBackupRequest { name: name.clone() };
    let mut parts = client.download_backup(download).await.unwrap().into_inner();
    let mut file = File::default();
    while let Some(part) = parts.message().await.unwrap() {
        file.0.extend_from_slice(&part.data);
        file.1 = part.sha256;
    }
    let delete = DeleteBackupRequest {
        name,
        ..DeleteBackupRequest::default()
    };
    client.delete_backup(delete).await.unwrap();
    file
}

fn sha256_of(bytes: &[u8]) -> String {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let hash = suite.tls13().unwrap().common.hash_provider.hash(bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The messages of an upload, in chunks of a megabyte.
fn messages(file: &[u8], sha256: &str, bytes: usize, id: &str) -> Vec<UploadBackupRequest> {
    let first = UploadBackupRequest {
        sha256: sha256.to_owned(),
        bytes: i64::try_from(bytes).unwrap(),
        request_id: id.to_owned(),
        ..UploadBackupRequest::default()
    };
    let chunks = file.chunks(1 << 20).map(|chunk| UploadBackupRequest {
        data: chunk.to_vec(),
        ..UploadBackupRequest::default()
    });
    std::iter::once(first).chain(chunks).collect()
}

async fn send(
    server: &Server,
    messages: impl Stream<Item = UploadBackupRequest> + Send + 'static,
) -> Result<Backup, Status> {
    let answer = backups(server).upload_backup(messages).await?;
    Ok(answer.into_inner().backup.unwrap_or_default())
}

async fn listed(server: &Server) -> Vec<String> {
    let listed = backups(server).list_backups(ListBackupsRequest::default()).await;
    listed
        .unwrap()
        .into_inner()
        .backups
        .into_iter()
        .map(|backup| backup.name)
        .collect()
}

/// Names of the files in the directory of backups.
fn files(server: &Server) -> Vec<String> {
    let directory = server.data_dir().join("backups");
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Fills a workspace with two megabytes, so that its backup has more than one message.
fn filled(server: &Server) -> String {
    let (path, _) = workspace(&server.admin(), "uploaded");
    let at = server.admin().in_workspace(&path);
    for n in 0..4 {
        // Text that does not compress away.
        let text: String = (0..60_000)
            .map(|i| format!("{:x}", (i * 2_654_435_761_u64) ^ n))
            .collect();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {"text": text}});
        at.post(MAPS, &map).expect(201);
    }
    path
}

/// A workspace moves to another server: download, upload, restore.
#[test]
fn an_uploaded_backup_is_verified_and_restored() {
    let [from, to] = [(); 2].map(|()| Server::start());
    let path = filled(&from);
    let before: Value = from.admin().in_workspace(&path).get(&format!("{MAPS}/m0")).expect(200);
    runtime().block_on(async {
        let (file, sha256) = taken(&from, &path).await;
        assert!(file.len() > 1 << 20, "{}", file.len());
        let id = "6f1b3ad0-94a5-4f4e-9d3a-0a7d3c5f2b51";
        let whole = || iter(messages(&file, &sha256, file.len(), id));
        // What is restored into a workspace that exists needs that one to be of this installation.
        let one = send(&from, whole()).await.unwrap();
        assert_eq!(
            (one.bytes, &*one.workspace),
            (i64::try_from(file.len()).unwrap(), &*path)
        );
        let again = send(&from, whole()).await.unwrap();
        assert_eq!(again, one, "the same request uploads nothing");
        assert_eq!(listed(&from).await, std::slice::from_ref(&one.name));
        let verify = VerifyBackupRequest {
            name: one.name.clone(),
            ..VerifyBackupRequest::default()
        };
        let verified = backups(&from).verify_backup(verify).await.unwrap().into_inner();
        let verified = done(&from, verified.operation).await;
        assert!(verified.error.is_none(), "{verified:?}");
        let dry = UploadBackupRequest {
            sha256: sha256.clone(),
            bytes: one.bytes,
            validate_only: true,
            ..UploadBackupRequest::default()
        };
        send(&to, iter([dry])).await.unwrap();
        assert!(listed(&to).await.is_empty());
        let other = send(&to, iter(messages(&file, &sha256, file.len(), ""))).await.unwrap();
        assert_eq!((other.sha256, other.objects), (one.sha256.clone(), one.objects));
        let object = format!("{WORKSPACES}/{}", path.rsplit(':').next().unwrap());
        let admin = from.admin();
        tokio::task::spawn_blocking(move || {
            admin.delete(&object).expect(200);
            until("the workspace is gone", || {
                (admin.get(&object).code == 404).then_some(())
            });
        })
        .await
        .unwrap();
        let restore = RestoreBackupRequest {
            name: one.name,
            ..RestoreBackupRequest::default()
        };
        let restored = backups(&from).restore_backup(restore).await.unwrap().into_inner();
        let restored = done(&from, restored.operation).await;
        assert!(restored.error.is_none(), "{restored:?}");
        let progress = restored.progress.unwrap();
        assert!(progress.done > 0 && progress.done == progress.total, "{progress:?}");
        assert_eq!(progress.text, "done");
    });
    let after = from.admin().in_workspace(&path).get(&format!("{MAPS}/m0")).expect(200);
    assert_eq!(
        (&after["data"], &after["metadata"]["uid"]),
        (&before["data"], &before["metadata"]["uid"])
    );
}

/// Damage, cuts, lies about the size and other people: nothing is listed and no file stays.
#[test]
fn what_is_no_whole_backup_is_not_kept() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_BACKUP_MAX_MEGABYTES".into(), "8".into())],
        ..Setup::default()
    });
    let path = filled(&server);
    runtime().block_on(async {
        let (file, sha256) = taken(&server, &path).await;
        let mut flipped = file.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let zeros = vec![0; 4096];
        let sha256_of_zeros = "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7";
        let size = file.len();
        let mut over = messages(&file, &sha256, size, "");
        over.push(over[1].clone());
        for (what, messages, code) in [
            (
                "a bit is flipped",
                messages(&flipped, &sha256, size, ""),
                Code::DataLoss,
            ),
            (
                "the end is missing",
                messages(&file[..size / 2], &sha256, size, ""),
                Code::DataLoss,
            ),
            (
                "it is no backup",
                messages(&zeros, sha256_of_zeros, 4096, ""),
                Code::InvalidArgument,
            ),
            (
                "it was damaged before",
                messages(&flipped, &sha256_of(&flipped), size, ""),
                Code::DataLoss,
            ),
            (
                "it was cut before",
                messages(&file[..size / 2], &sha256_of(&file[..size / 2]), size / 2, ""),
                Code::DataLoss,
            ),
            ("more comes than was said", over, Code::InvalidArgument),
            (
                "it is too large",
                messages(&file, &sha256, 9 << 20, ""),
                Code::ResourceExhausted,
            ),
            ("no hash", messages(&file, "x", size, ""), Code::InvalidArgument),
            ("no size", messages(&file, &sha256, 0, ""), Code::InvalidArgument),
            ("nothing", Vec::new(), Code::InvalidArgument),
        ] {
            let refusal = send(&server, iter(messages)).await.unwrap_err();
            assert_eq!(refusal.code(), code, "{what}: {refusal:?}");
            assert_eq!(files(&server), [""; 0], "{what}");
        }
        let stranger = Request::new(iter(messages(&file, &sha256, size, "")));
        let (_, extensions, stream) = stranger.into_parts();
        let metadata = as_user("alice-token", ()).into_parts().0;
        let refused = client!(BackupServiceClient<_>, server, Who::Anonymous)
            .upload_backup(Request::from_parts(metadata, extensions, stream))
            .await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
        assert!(listed(&server).await.is_empty());
    });
}

/// Begins an upload that sends a part of a file and then waits.
fn begin(server: &Server, file: &File) -> tokio::task::JoinHandle<Result<(), Status>> {
    let mut client = backups(server);
    let mut parts = messages(&file.0, &file.1, file.0.len(), "");
    parts.truncate(2);
    let stalled = iter(parts).chain(pending());
    runtime().spawn(async move { client.upload_backup(stalled).await.map(drop) })
}

/// A client that goes away, and a server that is killed, leave nothing.
#[test]
fn an_upload_that_breaks_off_is_removed() {
    let mut server = Server::start();
    let path = filled(&server);
    let file = runtime().block_on(taken(&server, &path));
    let call = begin(&server, &file);
    let begun = |server: &Server| until("the upload has begun", || (!files(server).is_empty()).then_some(()));
    begun(&server);
    // One upload at a time.
    let second = runtime().block_on(send(&server, iter(messages(&file.0, &file.1, file.0.len(), ""))));
    assert_eq!(second.unwrap_err().code(), Code::ResourceExhausted);
    assert!(runtime().block_on(listed(&server)).is_empty());
    call.abort();
    until("the partial file is gone", || files(&server).is_empty().then_some(()));

    let call = begin(&server, &file);
    begun(&server);
    server.kill9();
    assert!(runtime().block_on(call).unwrap().is_err());
    assert_eq!(files(&server).len(), 1, "a killed server cleans nothing");
    let server = server.restart();
    assert_eq!(files(&server), [""; 0]);
    runtime()
        .block_on(send(&server, iter(messages(&file.0, &file.1, file.0.len(), ""))))
        .unwrap();
    assert_eq!(runtime().block_on(listed(&server)).len(), 1);
}
