//! Cancellation of operations: while they wait, while they work, after their first lasting effect,
//! after their end, by callers without the right, and before the server is killed.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use insula_e2e::{Server, Who, copy_stored, runtime, until, workspace, workspace_owned_by};
use insula_proto::admin::v1::{
    CancelOperationRequest, CreateBackupRequest, GetOperationRequest, ListBackupsRequest, Operation,
    RestoreBackupRequest, VerifyBackupRequest,
};
use serde_json::json;
use tonic::{Code, Status};

use super::{
    as_user,
    backup::{backups, create, name, restored},
    operations::{done, operations},
    reason,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Objects of the large backup. Its verification takes longer than a few calls.
const OBJECTS: usize = 3_000;
/// Bytes of each.
const OBJECT_BYTES: usize = 10_000;
/// Attempts to catch an operation at work.
const ATTEMPTS: usize = 20;

/// A server with a workspace, a backup of it, and a large backup of the installation.
pub(super) struct Scene {
    pub(super) server: Server,
    place: String,
    small: String,
    pub(super) large: String,
}

impl Scene {
    pub(super) fn new() -> Scene {
        let server = Server::start();
        let (place, _) = workspace(&server.admin(), "cancelled");
        let (filled, _) = workspace(&server.admin(), "filled");
        let map = |text: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"},
                "data": {"text": text}})
        };
        let maps = |path: &str| server.admin().in_workspace(path);
        maps(&place).post(MAPS, &map("as it was")).expect(201);
        let small = name(&create(&server, &place));
        maps(&filled).post(MAPS, &map(&"x".repeat(OBJECT_BYTES))).expect(201);
        let server = server.restart_after(|data| {
            // Each ConfigMap becomes many.
            copy_stored(data, "configmaps", OBJECTS / 3);
        });
        let large = name(&create(&server, ""));
        Scene {
            server,
            place,
            small,
            large,
        }
    }

    fn directory(&self) -> PathBuf {
        self.server.data_dir().join("backups")
    }

    /// Returns the names of files with an ending.
    fn files(&self, ending: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).collect()
    }

    /// Returns the names of the backups that the server lists.
    fn listed(&self) -> Vec<String> {
        let mut client = backups(&self.server, &Who::KcpAdmin);
        let listed = runtime().block_on(client.list_backups(ListBackupsRequest::default()));
        let mut names: Vec<String> = listed
            .unwrap()
            .into_inner()
            .backups
            .into_iter()
            .map(|it| it.name)
            .collect();
        names.sort();
        names
    }

    pub(super) fn text(&self) -> serde_json::Value {
        let map = self
            .server
            .admin()
            .in_workspace(&self.place)
            .get(&format!("{MAPS}/kept"))
            .expect(200);
        map["data"]["text"].clone()
    }

    fn verify(&self, name: &str) -> Operation {
        let request = VerifyBackupRequest {
            name: name.to_owned(),
            ..VerifyBackupRequest::default()
        };
        let started = runtime().block_on(backups(&self.server, &Who::KcpAdmin).verify_backup(request));
        started.unwrap().into_inner().operation.unwrap()
    }

    pub(super) fn restore(&self) -> Operation {
        let request = self.restore_request();
        let started = runtime().block_on(backups(&self.server, &Who::KcpAdmin).restore_backup(request));
        started.unwrap().into_inner().operation.unwrap()
    }

    fn restore_request(&self) -> RestoreBackupRequest {
        RestoreBackupRequest {
            name: self.small.clone(),
            overwrite: true,
            ..RestoreBackupRequest::default()
        }
    }

    fn create(&self, workspace: &str) -> Operation {
        let request = CreateBackupRequest {
            workspace: workspace.to_owned(),
            installation: workspace.is_empty(),
            ..CreateBackupRequest::default()
        };
        let started = runtime().block_on(backups(&self.server, &Who::KcpAdmin).create_backup(request));
        started.unwrap().into_inner().operation.unwrap()
    }

    fn get(&self, operation: &Operation) -> Operation {
        get(&self.server, operation)
    }

    fn cancel(&self, operation: &Operation) -> Result<Operation, Status> {
        cancel(&self.server, operation)
    }

    pub(super) fn ended(&self, operation: &Operation) -> Operation {
        runtime().block_on(done(&self.server, Some(operation.clone())))
    }

    /// Runs `queue`, whose operations read the small backup, behind a verification of the large
    /// one, and holds them at the middle of the file.
    pub(super) fn blocked<T>(&self, queue: impl Fn() -> (T, Operation)) -> (T, Held) {
        for _ in 0..ATTEMPTS {
            let ahead = self.verify(&self.large);
            let (queued, first) = queue();
            let held = Held::new(&self.directory(), &self.small);
            if self.get(&ahead).done {
                // Too late: they may have read the file.
                held.release();
                self.ended(&first);
                continue;
            }
            self.ended(&ahead);
            return (queued, held);
        }
        panic!("the large backup is verified too fast");
    }
}

fn get(server: &Server, operation: &Operation) -> Operation {
    let get = GetOperationRequest {
        name: operation.name.clone(),
    };
    let found = runtime().block_on(operations(server, &Who::KcpAdmin).get_operation(get));
    found.unwrap().into_inner().operation.unwrap()
}

fn request(operation: &Operation) -> CancelOperationRequest {
    CancelOperationRequest {
        name: operation.name.clone(),
        ..CancelOperationRequest::default()
    }
}

fn cancel(server: &Server, operation: &Operation) -> Result<Operation, Status> {
    let mut client = operations(server, &Who::KcpAdmin);
    let cancelled = runtime().block_on(client.cancel_operation(request(operation)));
    Ok(cancelled?.into_inner().operation.unwrap())
}

fn is_cancelled(operation: &Operation) {
    let error = operation.error.as_ref().unwrap_or_else(|| panic!("{operation:?}"));
    let got = (operation.done, error.code, &*error.reason, &operation.result);
    assert_eq!(got, (true, Code::Cancelled as i32, "Cancelled", &None), "{operation:?}");
    assert!(operation.cancel_requested, "{operation:?}");
}

/// A backup in whose place there is a pipe with the first half of it: who reads it waits.
pub(super) struct Held {
    path: PathBuf,
    kept: PathBuf,
    pipe: File,
    rest: Vec<u8>,
}

impl Held {
    fn new(directory: &Path, name: &str) -> Held {
        let path = directory.join(format!("{name}.backup"));
        let kept = directory.join(format!("{name}.kept"));
        let mut bytes = fs::read(&path).unwrap();
        let pipe = directory.join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::rename(&path, &kept).unwrap();
        fs::rename(&pipe, &path).unwrap();
        // Open for both, so that no end waits for the other one.
        let mut pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let rest = bytes.split_off(bytes.len() / 2);
        assert!(rest.len() < 32_000, "both halves fit into a pipe");
        pipe.write_all(&bytes).unwrap();
        Held { path, kept, pipe, rest }
    }

    /// Lets the reader go on, and puts the backup back.
    pub(super) fn release(mut self) {
        self.pipe.write_all(&self.rest).unwrap();
        fs::rename(&self.kept, &self.path).unwrap();
    }
}

/// Operations that wait for their turn end at once when they are cancelled, and one that works ends
/// at its next step. None leaves anything behind.
#[test]
fn operations_that_wait_or_work_end_without_effect() {
    let scene = Scene::new();
    scene
        .server
        .admin()
        .in_workspace(&scene.place)
        .merge(&format!("{MAPS}/kept"), &json!({"data": {"text": "later"}}));
    let before = scene.listed();
    let ((works, waiting), held) = scene.blocked(|| {
        let works = scene.verify(&scene.small);
        let waiting = [scene.verify(&scene.small), scene.restore(), scene.create(&scene.place)];
        ((works.clone(), waiting), works)
    });
    for operation in &waiting {
        let asked = scene.cancel(operation).unwrap();
        assert!(asked.cancel_requested, "{asked:?}");
        is_cancelled(&scene.ended(operation));
    }
    assert!(!scene.get(&works).done, "the first one goes on");

    // Who lacks the right cancels nothing, and learns nothing.
    let mut bob = operations(&scene.server, &Who::Anonymous);
    let refusals = [works.name.clone(), "verifybackup-0000000000000000".to_owned()].map(|name| {
        let request = CancelOperationRequest {
            name: name.clone(),
            ..CancelOperationRequest::default()
        };
        let refused = runtime()
            .block_on(bob.cancel_operation(as_user("bob-token", request)))
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        refused.message().replace(&name, "NAME")
    });
    assert_eq!(refusals[0], refusals[1]);
    // A check alone changes nothing.
    let check = CancelOperationRequest {
        validate_only: true,
        ..request(&works)
    };
    runtime()
        .block_on(operations(&scene.server, &Who::KcpAdmin).cancel_operation(check))
        .unwrap();
    assert!(!scene.get(&works).cancel_requested);

    for _ in 0..2 {
        assert!(scene.cancel(&works).unwrap().cancel_requested);
    }
    held.release();
    let ended = scene.ended(&works);
    is_cancelled(&ended);
    // After the end nothing changes.
    assert_eq!(scene.cancel(&works).unwrap(), ended);
    assert_eq!(scene.get(&works), ended);

    assert_eq!((scene.listed(), scene.files(".partial")), (before, vec![]));
    assert_eq!(scene.text(), "later", "nothing was restored");
    let verified = scene.ended(&scene.verify(&scene.small));
    assert!(verified.error.is_none(), "{verified:?}");
    let asked = scene.cancel(&verified).unwrap();
    assert_eq!(asked, verified, "success stays success");
}

/// A restore that is cancelled before it writes leaves the workspace as it is, even if the server
/// is killed right after the call; another one runs.
#[test]
fn kill_9_does_not_bring_a_cancelled_operation_back() {
    let mut scene = Scene::new();
    scene
        .server
        .admin()
        .in_workspace(&scene.place)
        .merge(&format!("{MAPS}/kept"), &json!({"data": {"text": "later"}}));
    let (operations, held) = scene.blocked(|| {
        let restore = scene.restore();
        let operations = [restore.clone(), scene.verify(&scene.small), scene.create(&scene.place)];
        (operations, restore)
    });
    for operation in &operations {
        scene.cancel(operation).unwrap();
    }
    scene.server.kill9();
    held.release();
    scene.server = scene.server.restart();
    for operation in &operations {
        is_cancelled(&scene.ended(operation));
    }
    assert_eq!(scene.text(), "later", "nothing was restored");
    assert_eq!(scene.listed().len(), 2);
    assert!(
        restored(&scene.server, scene.restore_request())["updated"]
            .as_u64()
            .unwrap_or(1)
            > 0
    );
    assert_eq!(scene.text(), "as it was");
}

/// A backup that is cancelled at any moment is listed if its operation succeeded, and is not if
/// not, whether the server goes on or is killed.
#[test]
fn a_cancelled_backup_is_whole_or_gone() {
    let mut scene = Scene::new();
    let mut cancelled = 0;
    for round in 0..ATTEMPTS {
        let before = scene.listed();
        let started = scene.create("");
        until("the backup is being written, or done", || {
            let files = scene.files(".partial");
            (!files.is_empty() || scene.get(&started).done).then_some(())
        });
        let asked = scene.cancel(&started);
        if round % 4 == 3 {
            scene.server.kill9();
            scene.server = scene.server.restart();
        }
        let ended = scene.ended(&started);
        match &ended.error {
            Some(_) => {
                is_cancelled(&ended);
                assert_eq!(scene.listed(), before);
                cancelled += 1;
            }
            None => {
                // Asked for too late: it was done, or about to be.
                match asked {
                    Ok(asked) => assert!(asked.done, "{asked:?}"),
                    Err(refusal) => assert_eq!(refusal.code(), Code::FailedPrecondition, "{refusal:?}"),
                }
                assert_eq!(scene.listed().len(), before.len() + 1);
            }
        }
        if cancelled >= 5 && round > 4 {
            break;
        }
    }
    assert!(cancelled > 0, "all were too late");
    // What a killed server was writing goes with the next backup.
    let last = scene.ended(&scene.create(&scene.place));
    assert!(last.error.is_none(), "{last:?}");
    assert_eq!(scene.files(".partial"), Vec::<String>::new());
}

/// Small backups end at about the moment at which they are cancelled.
#[test]
fn a_late_cancellation_is_refused_or_has_an_effect() {
    let server = Server::start();
    let (place, _) = workspace_owned_by(&server, "alice");
    let mut codes = std::collections::BTreeMap::<String, usize>::new();
    let listed = || {
        let listed = runtime().block_on(backups(&server, &Who::KcpAdmin).list_backups(ListBackupsRequest::default()));
        listed.unwrap().into_inner().backups.len()
    };
    let mut whole = 0;
    for round in 0..30 {
        let create = CreateBackupRequest {
            workspace: place.clone(),
            ..CreateBackupRequest::default()
        };
        let started = runtime()
            .block_on(backups(&server, &Who::KcpAdmin).create_backup(create))
            .unwrap();
        let started = started.into_inner().operation.unwrap();
        std::thread::sleep(Duration::from_millis(round % 10));
        // The administrator of the workspace may cancel what others do in it.
        let mut alice = operations(&server, &Who::Anonymous);
        let asked = runtime().block_on(alice.cancel_operation(as_user("alice-token", request(&started))));
        let ended = runtime().block_on(done(&server, Some(started)));
        let outcome = match (&asked, &ended.error) {
            (Ok(asked), Some(_)) => {
                is_cancelled(&ended);
                assert!(asked.get_ref().operation.as_ref().unwrap().cancel_requested);
                "cancelled"
            }
            (Ok(asked), None) => {
                assert_eq!(asked.get_ref().operation.as_ref().unwrap(), &ended, "it was done");
                "done"
            }
            (Err(refusal), None) => {
                assert_eq!(
                    (refusal.code(), &*reason(refusal)),
                    (Code::FailedPrecondition, "WRONG_STATE")
                );
                "refused"
            }
            (Err(refusal), Some(error)) => panic!("{refusal:?} {error:?}"),
        };
        whole += usize::from(outcome != "cancelled");
        assert_eq!(listed(), whole, "{outcome}");
        *codes.entry(outcome.to_owned()).or_default() += 1;
    }
    assert!(!codes.is_empty(), "{codes:?}");
}

/// A restore that has begun to write cannot be cancelled: it would leave half a workspace. Nobody
/// reaches the workspace before it is whole.
#[test]
fn a_restore_that_writes_goes_on_to_its_end() {
    let server = Server::start();
    let (place, _) = workspace(&server.admin(), "large");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    server.admin().in_workspace(&place).post(MAPS, &map).expect(201);
    let server = server.restart_after(|data| copy_stored(data, "configmaps", OBJECTS));
    let count = || {
        let list = server.admin().in_workspace(&place).get(MAPS);
        (list.code == 200).then(|| list.body["items"].as_array().unwrap().len())
    };
    let all = count().expect("it is there");
    let backup = name(&create(&server, &place));
    for _ in 0..ATTEMPTS {
        server.admin().in_workspace(&place).delete(MAPS).expect(200);
        let few = until("they are gone", || count().filter(|few| *few < all));
        let request = RestoreBackupRequest {
            name: backup.clone(),
            overwrite: true,
            ..RestoreBackupRequest::default()
        };
        let mut client = backups(&server, &Who::KcpAdmin);
        let started = runtime().block_on(client.restore_backup(request)).unwrap().into_inner();
        let started = started.operation.unwrap();
        let seen = until("it writes, or is done", || {
            let now = get(&server, &started);
            (now.done || !now.cancellable).then_some(now)
        });
        let refusal = cancel(&server, &started);
        let meanwhile = count();
        let ended = runtime().block_on(done(&server, Some(started)));
        assert!(ended.error.is_none() && !ended.cancel_requested, "{ended:?}");
        assert_eq!(count(), Some(all), "whole");
        let Err(refusal) = refusal else {
            // Too late: it was done.
            assert!(!seen.cancellable, "{seen:?}");
            continue;
        };
        assert_eq!(
            (refusal.code(), &*reason(&refusal)),
            (Code::FailedPrecondition, "WRONG_STATE")
        );
        let whole = meanwhile.is_none_or(|count| count <= few || count == all);
        assert!(whole, "{meanwhile:?} objects: half a workspace");
        return;
    }
    panic!("no restore was seen at work");
}
