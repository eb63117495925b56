//! Idempotency of Recompute and of the writes of migrations, across restarts.

use std::path::Path;

use insula_e2e::{Client, Server, Who, runtime, until, workspace};
use insula_proto::{
    admin::v1::{
        AdvanceMigrationRequest, BeginMigrationRequest, CreateBackupRequest, DeleteBackupRequest, Migration,
        MigrationSource, NewDefinition, RecomputeRequest, RecomputeState, RestoreBackupRequest, UndoMigrationRequest,
        VerifyBackupRequest, backup_service_client::BackupServiceClient,
        conversion_service_client::ConversionServiceClient, migration_service_client::MigrationServiceClient,
        migration_source::Replacement,
    },
    value::from_json,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Channel, client, operations::done, reason};
use crate::tools::ran;

const EXPORT: &str = "repair.example.io";
const DISKS: &str = "/apis/repair.example.io";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const FIRST: &str = "/apis/extensions/v1beta1/thirdpartyresources";
const NESTED: &str = "/thirdparty/stable.example.com/stable/v1/namespaces/default/crontabs";

fn id(n: usize) -> String {
    format!("5c1b3ad0-94a5-4f4e-9d3a-{n:012x}")
}

fn is_reused<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let refusal = answer.unwrap_err();
    let got = (refusal.code(), reason(&refusal));
    assert_eq!(
        got,
        (Code::InvalidArgument, "REQUEST_ID_REUSED".to_owned()),
        "{refusal:?}"
    );
}

fn sample(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/samples/repair");
    folder.join(name).to_str().unwrap().to_owned()
}

fn publish(server: &Server, provider: &str, rules: &str) {
    let (kubeconfig, definition, rules) = (server.kubeconfig(), sample("definition.yaml"), sample(rules));
    let at = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", provider];
    let files = ["-f", &definition, "-f", &rules];
    let (code, out, error) = ran(
        &[
            &[
                "export",
                "publish",
                "--apply",
                "--accept",
                "value-changed",
                "--accept",
                "write-changed",
            ],
            &files[..],
            &at,
        ]
        .concat(),
        "",
    );
    assert_eq!(code, 0, "{out}{error}");
}

fn disk(name: &str) -> Value {
    json!({"apiVersion": "repair.example.io/v1", "kind": "Disk", "metadata": {"name": name}, "spec": {"size": "1Gi"}})
}

/// Returns the size and the resource version of a disk.
fn bytes(client: &Client, name: &str) -> (Value, Value) {
    let found = client.get(&format!("{DISKS}/v2/disks/{name}")).expect(200);
    (
        found["spec"]["bytes"].clone(),
        found["metadata"]["resourceVersion"].clone(),
    )
}

/// Waits until the corrected rules convert.
fn until_corrected(client: &Client, disks: &str) {
    let mut probes = 0;
    until("the corrected rules serve", || {
        probes += 1;
        let name = format!("probe-{probes}");
        client.post(disks, &disk(&name)).expect(201);
        let serves = bytes(client, &name).0 == 1 << 30;
        client.delete(&format!("{disks}/{name}")).expect(200);
        serves.then_some(())
    });
}

/// A repetition of Recompute answers with the objects that the first call stored, and stores none.
#[test]
fn a_recomputation_happens_once() {
    let mut server = Server::start();
    let (provider, _) = workspace(&server.admin(), "provider");
    let (tenant, _) = workspace(&server.admin(), "tenant");
    publish(&server, &provider, "wrong.yaml");
    let at = |server: &Server| server.admin().in_workspace(&tenant);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "disks"},
        "spec": {"reference": {"export": {"path": provider, "name": EXPORT}}}});
    at(&server).post(BINDINGS, &binding).expect(201);
    let disks = format!("{DISKS}/v1/disks");
    until("disks are served", || {
        (at(&server).get(&disks).code == 200).then_some(())
    });
    for name in ["a", "b"] {
        at(&server).post(&disks, &disk(name)).expect(201);
    }
    publish(&server, &provider, "rules.yaml");
    until_corrected(&at(&server), &disks);
    let rules: Value = serde_saphyr::from_str(&std::fs::read_to_string(sample("wrong.yaml")).unwrap()).unwrap();
    let request = RecomputeRequest {
        workspace: provider.clone(),
        export: EXPORT.to_owned(),
        group: EXPORT.to_owned(),
        resource: "disks".to_owned(),
        former_rules: vec![from_json(rules.as_object().unwrap()).unwrap()],
        apply: true,
        request_id: id(1),
        ..RecomputeRequest::default()
    };
    let recompute = |server: &Server, request: &RecomputeRequest| {
        let mut client = client!(ConversionServiceClient<_>, server, Who::KcpAdmin);
        let answered = runtime().block_on(client.recompute(request.clone()));
        answered.map(|answer| (answer.get_ref().objects.clone(), answer.get_ref().examined))
    };
    let first = recompute(&server, &request).unwrap();
    let names: Vec<_> = first.0.iter().map(|object| (&*object.name, object.state())).collect();
    assert_eq!(
        names,
        [("a", RecomputeState::Recomputed), ("b", RecomputeState::Recomputed)]
    );
    let stored = ["a", "b"].map(|name| bytes(&at(&server), name));
    assert!(stored.iter().all(|(bytes, _)| *bytes == 1 << 30), "{stored:?}");
    assert_eq!(recompute(&server, &request).unwrap(), first);
    server.kill9();
    let server = server.restart();
    assert_eq!(recompute(&server, &request).unwrap(), first);
    assert_eq!(
        ["a", "b"].map(|name| bytes(&at(&server), name)),
        stored,
        "nothing was written again"
    );
    is_reused(recompute(
        &server,
        &RecomputeRequest {
            page_size: 1,
            ..request.clone()
        },
    ));
    // Under another id there is nothing left to do.
    let other = RecomputeRequest {
        request_id: id(2),
        ..request
    };
    assert_eq!(recompute(&server, &other).unwrap(), (Vec::new(), 2));
}

/// A workspace with a registration and objects.
struct Registered {
    server: Server,
    place: String,
}

impl Registered {
    fn new(objects: usize) -> Registered {
        let server = Server::start();
        let (place, _) = workspace(&server.admin(), "registered");
        let client = server.admin().in_workspace(&place);
        let registration = json!({"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource",
            "metadata": {"name": "cron-tab.stable.example.com"}, "versions": [{"name": "stable/v1"}]});
        client.post(FIRST, &registration).expect(201);
        until("it is served", || (client.get(NESTED).code == 200).then_some(()));
        for n in 0..objects {
            let object = json!({"apiVersion": "stable.example.com/stable/v1", "kind": "CronTab",
                "metadata": {"name": format!("tab-{n}")}, "cronSpec": "* * * * 1"});
            client.post(NESTED, &object).expect(201);
        }
        Registered { server, place }
    }

    fn client(&self) -> MigrationServiceClient<Channel> {
        client!(MigrationServiceClient<_>, self.server, Who::KcpAdmin)
    }

    fn begin(&self, n: usize) -> Result<Migration, Status> {
        let request = BeginMigrationRequest {
            source: Some(MigrationSource {
                workspace: self.place.clone(),
                group: "extensions".to_owned(),
                name: "cron-tab.stable.example.com".to_owned(),
                replacement: Some(Replacement::Definition(NewDefinition::default())),
            }),
            request_id: id(n),
        };
        let begun = runtime().block_on(self.client().begin_migration(request))?;
        Ok(begun.into_inner().migration.unwrap())
    }

    fn advance(&self, n: usize) -> Result<Option<Migration>, Status> {
        let request = AdvanceMigrationRequest {
            workspace: self.place.clone(),
            resource: "crontabs.stable.example.com".to_owned(),
            request_id: id(n),
        };
        Ok(runtime()
            .block_on(self.client().advance_migration(request))?
            .into_inner()
            .migration)
    }

    fn undo(&self, n: usize) -> Result<(), Status> {
        let request = UndoMigrationRequest {
            workspace: self.place.clone(),
            resource: "crontabs.stable.example.com".to_owned(),
            request_id: id(n),
        };
        runtime().block_on(self.client().undo_migration(request)).map(drop)
    }

    fn registrations(&self) -> usize {
        let found = self.server.admin().in_workspace(&self.place).get(FIRST).expect(200);
        found["items"].as_array().unwrap().len()
    }

    fn killed(mut self) -> Self {
        self.server.kill9();
        Registered {
            server: self.server.restart(),
            place: self.place,
        }
    }
}

/// Each write of a migration happens once: also when the server is killed after it, and when the
/// registration that it names is gone.
#[test]
fn a_migration_is_driven_by_repeated_requests() {
    let mut at = Registered::new(3);
    let begun = at.begin(1).unwrap();
    assert_eq!(at.begin(1).unwrap(), begun);
    at = at.killed();
    assert_eq!(at.begin(1).unwrap(), begun);
    is_reused(at.advance(1));
    let mut steps = vec![Some(begun.clone())];
    while steps.last().unwrap().is_some() {
        let n = steps.len() + 1;
        assert!(n < 100, "it does not end: {steps:?}");
        let step = at.advance(n).unwrap();
        assert_eq!(at.advance(n).unwrap(), step, "the part {n} happens once");
        if n % 3 == 0 {
            at = at.killed();
            assert_eq!(at.advance(n).unwrap(), step, "the part {n} happens once");
        }
        steps.push(step);
    }
    // No repetition was a step of its own.
    assert!(steps.windows(2).all(|pair| pair[0] != pair[1]), "{steps:#?}");
    assert_eq!(at.registrations(), 0);
    assert_eq!(
        at.begin(1).unwrap(),
        begun,
        "the registration is gone, the answer is not"
    );
    let missing = at.begin(1_000).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
}

/// A migration that was undone is not undone, and not begun, again by a repetition.
#[test]
fn an_undone_migration_stays_undone() {
    let mut at = Registered::new(3);
    let begun = at.begin(1).unwrap();
    at.advance(2).unwrap().expect("it goes on");
    at.undo(3).unwrap();
    at.undo(3).unwrap();
    at = at.killed();
    at.undo(3).unwrap();
    let over = (10..100).find(|n| match at.advance(*n) {
        Ok(migration) => migration.is_none(),
        Err(refusal) => refusal.code() == Code::NotFound,
    });
    assert!(over.is_some(), "it does not end");
    assert_eq!(at.registrations(), 1);
    assert_eq!(at.begin(1).unwrap(), begun);
    let none = at.advance(200).unwrap_err();
    assert_eq!(none.code(), Code::NotFound, "nothing has begun: {none:?}");
    // After the repetition of the undoing a new migration goes forward.
    let again = at.begin(201).unwrap();
    at.undo(3).unwrap();
    assert!(!again.undo);
    let next = at.advance(202).unwrap().expect("it goes on");
    assert!(!next.undo, "{next:?}");
}

/// A repeated request finds its operation also when the backup that it names is deleted.
#[test]
fn operations_on_deleted_backups_are_found() {
    let mut server = Server::start();
    let (place, _) = workspace(&server.admin(), "backed-up");
    let backups =
        |server: &Server| -> BackupServiceClient<Channel> { client!(BackupServiceClient<_>, *server, Who::KcpAdmin) };
    let create = CreateBackupRequest {
        workspace: place.clone(),
        ..CreateBackupRequest::default()
    };
    let created = runtime()
        .block_on(backups(&server).create_backup(create))
        .unwrap()
        .into_inner();
    let created = runtime().block_on(done(&server, created.operation));
    let result = insula_proto::value::to_json(created.result.unwrap()).unwrap();
    let name = result["name"].as_str().unwrap().to_owned();
    let verify = VerifyBackupRequest {
        name: name.clone(),
        request_id: id(1),
        ..VerifyBackupRequest::default()
    };
    let restore = RestoreBackupRequest {
        name: name.clone(),
        overwrite: true,
        request_id: id(2),
        ..RestoreBackupRequest::default()
    };
    let started = |server: &Server| {
        runtime().block_on(async {
            let verified = backups(server)
                .verify_backup(verify.clone())
                .await
                .unwrap()
                .into_inner();
            let restored = backups(server)
                .restore_backup(restore.clone())
                .await
                .unwrap()
                .into_inner();
            [
                done(server, verified.operation).await.name,
                done(server, restored.operation).await.name,
            ]
        })
    };
    let first = started(&server);
    let delete = DeleteBackupRequest {
        name,
        ..DeleteBackupRequest::default()
    };
    runtime().block_on(backups(&server).delete_backup(delete)).unwrap();
    assert_eq!(started(&server), first);
    server.kill9();
    let server = server.restart();
    assert_eq!(started(&server), first);
    let other = VerifyBackupRequest {
        request_id: id(3),
        ..verify
    };
    let missing = runtime().block_on(backups(&server).verify_backup(other)).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}
