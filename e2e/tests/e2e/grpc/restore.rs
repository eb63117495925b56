//! Restore of an installation into a running server: everything that clients see is as it was,
//! nothing else stays, what does not differ stays open, and no write is lost that was acknowledged
//! after a workspace was opened again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::Duration,
};

use insula_e2e::{Client, Server, Setup, Who, ready_workspace, runtime, stored_keys, until, workspace};
use insula_proto::admin::v1::{Operation, RestoreBackupRequest, RestoreBackupResponse, RestoreChanges};
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{
    backup::{at_rest, backups, create, delete_workspace, filled, map, name, objects, restored},
    cancel,
    operations::done,
};
use crate::unbinding::{self, BINDING, WIDGETS};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";

fn whole(backup: &str) -> RestoreBackupRequest {
    RestoreBackupRequest {
        name: backup.to_owned(),
        overwrite: true,
        ..RestoreBackupRequest::default()
    }
}

fn restore(server: &Server, request: RestoreBackupRequest) -> Result<RestoreBackupResponse, Status> {
    let answered = runtime().block_on(backups(server, &Who::KcpAdmin).restore_backup(request));
    answered.map(tonic::Response::into_inner)
}

fn ended(server: &Server, started: &Operation) -> Operation {
    runtime().block_on(done(server, Some(started.clone())))
}

fn post_map(client: &Client, name: &str, text: &str) {
    client.post(MAPS, &map(name, text)).expect(201);
}

fn change_map(client: &Client, name: &str, text: &str) {
    let change = json!({"data": {"text": text}});
    client.merge(&format!("{MAPS}/{name}"), &change).expect(200);
}

/// Makes the home of a user, and returns its logical cluster.
fn home(server: &Server, token: &str) -> String {
    let user = server.client(Who::Token(token.to_owned())).in_workspace("root");
    let home = until("the home is ready", || {
        let found = user.get(&format!("{WORKSPACES}/~"));
        (found.code == 200 && found.body["status"]["phase"] == "Ready").then_some(found.body)
    });
    home["spec"]["cluster"].as_str().unwrap().to_owned()
}

/// A server with workspaces, a home and objects in `root`.
struct Scene {
    server: Server,
    /// It has objects of all sorts, and is deleted after the backup.
    place: String,
    home: String,
    /// It is not changed after the backup.
    still: String,
    changed: String,
}

impl Scene {
    fn new() -> Scene {
        let server = Server::start();
        let scene = Scene {
            place: filled(&server),
            home: home(&server, "alice-token"),
            still: workspace(&server.admin(), "still").0,
            changed: workspace(&server.admin(), "changed").0,
            server,
        };
        for client in scene.to_change().iter().chain([&scene.client(&scene.still)]) {
            post_map(client, "kept", "as it was");
            post_map(client, "lost", "as it was");
        }
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "readers"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
        scene.client("root").post(ROLES, &role).expect(201);
        scene
    }

    fn client(&self, place: &str) -> Client {
        self.server.client(Who::ShardAdmin).in_workspace(place)
    }

    fn to_change(&self) -> [Client; 3] {
        ["root", &self.home, &self.changed].map(|place| self.client(place))
    }

    /// Everything that clients see, but for the deleted place.
    fn seen(&self) -> Vec<BTreeMap<String, Value>> {
        let root = self.client("root");
        let mut all: Vec<_> = [MAPS, ROLES, WORKSPACES, TYPES, "/api/v1/namespaces"]
            .iter()
            .map(|path| objects(&root, path))
            .collect();
        let others = [&self.still, &self.changed, &self.home];
        all.extend(others.map(|place| objects(&self.client(place), MAPS)));
        all
    }

    /// Changes everything but one workspace, and makes others. Returns their paths and clusters.
    fn change(&self) -> BTreeMap<String, String> {
        for client in self.to_change() {
            change_map(&client, "kept", "later");
            client.delete(&format!("{MAPS}/lost")).expect(200);
            post_map(&client, "later", "later");
        }
        self.client("root").delete(&format!("{ROLES}/readers")).expect(200);
        delete_workspace(&self.server, &self.place);
        let admin = self.server.admin();
        let later = workspace(&admin, "later");
        let below = ready_workspace(&admin, &later.0, "below", json!({}));
        let inner = ready_workspace(&admin, &self.changed, "inner", json!({}));
        for (path, _) in [&later, &below, &inner] {
            post_map(&admin.in_workspace(path), "later", "later");
        }
        // Of the name of the workspace that is gone.
        let again = ready_workspace(&admin, "root", self.place.strip_prefix("root:").unwrap(), json!({}));
        self.client("root").delete(&format!("{TYPES}/universal")).expect(200);
        [later, below, inner, again].into_iter().collect()
    }
}

#[test]
fn the_installation_is_restored_as_it_was() {
    let scene = Scene::new();
    let server = &scene.server;
    let (tenant, before) = (at_rest(server, &scene.place), scene.seen());
    let taken = create(server, "");
    let kept = format!("{MAPS}/kept");
    let untouched = scene.client(&scene.still).get(&kept).expect(200);
    let superfluous = scene.change();

    let careful = RestoreBackupRequest {
        overwrite: false,
        ..whole(&name(&taken))
    };
    let refused = restore(server, careful).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("set overwrite"), "{}", refused.message());
    let changes = checked(server, &name(&taken));
    let paths: Vec<&String> = superfluous.keys().collect();
    assert_eq!(changes.deleted_workspaces.iter().collect::<Vec<_>>(), paths);
    assert!(
        ["root", &scene.still]
            .iter()
            .all(|path| changes.workspaces.contains(&(*path).to_owned()))
    );
    assert_eq!(text(server, &scene.changed), "later", "nothing is written");

    // A user who asks for their home all the time does not get a new one meanwhile.
    let (asking, user) = (
        AtomicBool::new(true),
        server.client(Who::Token("alice-token".to_owned())),
    );
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while asking.load(Ordering::Relaxed) {
                user.in_workspace("root").get(&format!("{WORKSPACES}/~"));
            }
        });
        let result = restored(server, whole(&name(&taken)));
        asking.store(false, Ordering::Relaxed);
        result
    });
    assert_eq!(result["contentSha256"], taken["contentSha256"], "{result}");
    assert_eq!(at_rest(server, &scene.place), tenant);
    until("all is as it was", || (scene.seen() == before).then_some(()));
    let now = scene.client(&scene.still).get(&kept).expect(200);
    assert_eq!(now, untouched, "it was not written again");

    // All is alive: conversion, new workspaces, the next restore.
    let widget = "/apis/example.io/v1/namespaces/default/widgets/w";
    let old = scene.client(&scene.place).get(widget).expect(200);
    assert_eq!(old["spec"], json!({"firstName": "Ada"}));
    delete_workspace(server, &workspace(&server.admin(), "new").0);
    let again = restored(server, whole(&name(&taken)));
    assert_eq!(again["contentSha256"], taken["contentSha256"], "{again}");

    let clusters = stored_clusters(scene.server);
    for (path, cluster) in superfluous {
        assert!(!clusters.contains(&cluster), "{path} {cluster}");
    }
}

/// Returns the changes that a restore of all would make.
fn checked(server: &Server, backup: &str) -> RestoreChanges {
    let request = RestoreBackupRequest {
        validate_only: true,
        ..whole(backup)
    };
    restore(server, request).unwrap().changes.unwrap()
}

fn text(server: &Server, place: &str) -> Value {
    let client = server.admin().in_workspace(place);
    client.get(&format!("{MAPS}/kept")).expect(200)["data"]["text"].clone()
}

/// Returns the logical clusters that have any object in the store, once the server has ended.
fn stored_clusters(server: Server) -> BTreeSet<String> {
    server.signal("-TERM");
    let stopped = server.ended();
    let keys = stored_keys(&stopped.data_dir()).into_iter();
    // Amounts that were metered are kept for the bill.
    let keys = keys.filter(|key| !key.starts_with("internal.insula.io/meterings "));
    keys.map(|key| key.split(' ').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn nothing_stays_of_workspaces_below_that_the_backup_lacks() {
    let server = Server::start();
    let admin = server.admin();
    let (place, _) = workspace(&admin, "place");
    post_map(&admin.in_workspace(&place), "kept", "as it was");
    let taken = create(&server, &place);
    let (below, one) = ready_workspace(&admin, &place, "below", json!({}));
    let (deep, two) = ready_workspace(&admin, &below, "deep", json!({}));
    post_map(&admin.in_workspace(&deep), "later", "later");
    let changes = checked(&server, &name(&taken));
    assert_eq!(changes.deleted_workspaces, [below, deep]);
    restored(&server, whole(&name(&taken)));
    assert_eq!(text(&server, &place), "as it was");
    let clusters = stored_clusters(server);
    assert!(!clusters.contains(&one) && !clusters.contains(&two), "{clusters:?}");
}

/// The server is killed at some time in a restore, also after the first workspaces are open again.
/// Every write that was acknowledged since then stays.
#[test]
fn a_restore_of_all_survives_kill_9_and_loses_no_later_write() {
    let mut server = Server::start();
    let places: Vec<String> = (0..12).map(|_| workspace(&server.admin(), "torn").0).collect();
    let (below, _) = ready_workspace(&server.admin(), &places[0], "below", json!({}));
    let all: Vec<&String> = places.iter().chain([&below]).collect();
    for place in &all {
        post_map(&server.admin().in_workspace(place), "kept", "as it was");
    }
    let backup = name(&create(&server, ""));
    let mut kept = 0;
    for round in 0..6 {
        for place in &all {
            change_map(&server.admin().in_workspace(place), "kept", "later");
        }
        let started = restore(&server, whole(&backup)).unwrap().operation.unwrap();
        // Killed while it reads, writes or opens; later rounds wait for a workspace that is open.
        let mut acknowledged = Vec::new();
        if round < 3 {
            sleep(Duration::from_millis(10 * round));
        } else {
            until("one is open again", || {
                acknowledged = all.iter().filter(|place| is_written(&server, place)).collect();
                (!acknowledged.is_empty()).then_some(())
            });
        }
        server.kill9();
        server = server.restart();
        let ended = ended(&server, &started);
        assert!(ended.error.is_none(), "{ended:?}");
        for place in &all {
            let client = server.admin().in_workspace(place);
            let map = client.get(&format!("{MAPS}/kept")).expect(200);
            assert_eq!(map["data"]["text"], "as it was", "{place} in round {round}");
            let written = client.get(&format!("{MAPS}/written")).code;
            if acknowledged.contains(&place) {
                assert_eq!(written, 200, "{place} in round {round}");
                client.delete(&format!("{MAPS}/written")).expect(200);
                kept += 1;
            }
        }
    }
    assert!(kept > 0);
}

/// Writes into a workspace if it has been restored. Returns true if the write was acknowledged.
fn is_written(server: &Server, place: &str) -> bool {
    let client = server.admin().in_workspace(place);
    let found = client.get(&format!("{MAPS}/kept"));
    found.code == 200 && found.body["data"]["text"] == "as it was" && {
        let written = client.post(MAPS, &map("written", "after")).code;
        written == 201
    }
}

/// A restore of the installation is alone: what comes after it, and would be in its way, is
/// refused. Others run beside each other.
#[test]
fn a_restore_of_all_is_alone() {
    let scene = cancel::Scene::new();
    let ((first, second), held) = scene.blocked(|| {
        let first = scene.restore();
        let second = restore(&scene.server, whole(&scene.large)).unwrap().operation.unwrap();
        ((first.clone(), second), first)
    });
    let error = scene.ended(&second).error.unwrap();
    assert_eq!(error.code, Code::FailedPrecondition as i32, "{error:?}");
    assert!(error.message.contains(&first.name), "{error:?}");
    held.release();
    assert!(scene.ended(&first).error.is_none());
    assert_eq!(scene.text(), "as it was");
    restored(&scene.server, whole(&scene.large));
}

/// Bindings to the exports of a workspace that was gone work again once it is back.
#[test]
fn bindings_follow_a_provider_that_is_restored_alone() {
    let server = Server::start();
    let place = filled(&server);
    let tenant = server.admin().in_workspace(&place);
    let binding = "/apis/apis.kcp.io/v1alpha2/apibindings/widgets";
    let provider = tenant.get(binding).expect(200)["spec"]["reference"]["export"]["path"].clone();
    let provider = provider.as_str().unwrap();
    let is_valid = |wanted: &str| {
        let found = tenant.get(binding).expect(200);
        let conditions = found["status"]["conditions"].as_array().unwrap().clone();
        let mut valid = conditions
            .iter()
            .filter(|condition| condition["type"] == "APIExportValid");
        valid.any(|condition| condition["status"] == wanted).then_some(())
    };
    until("it is valid", || is_valid("True"));
    let taken = create(&server, provider);
    delete_workspace(&server, provider);
    until("its export is gone", || is_valid("False"));
    restored(&server, whole(&name(&taken)));
    until("its export is back", || is_valid("True"));
}

/// A workspace in its grace period at the backup would go as soon as it is back.
#[test]
fn a_workspace_in_its_grace_period_comes_back_alive() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_WORKSPACES_DELETION_GRACE_SECONDS".to_owned(), "3600".to_owned())],
        ..Setup::default()
    });
    let (place, _) = workspace(&server.admin(), "deleted");
    post_map(&server.admin().in_workspace(&place), "kept", "as it was");
    let own = format!("{WORKSPACES}/{}", place.strip_prefix("root:").unwrap());
    let root = server.admin().in_workspace("root");
    root.delete(&own).expect(200);
    let taken = create(&server, "");
    assert!(root.get(&own).expect(200)["metadata"]["deletionTimestamp"].is_string());
    restored(&server, whole(&name(&taken)));
    until("it is open", || {
        let client = server.admin().in_workspace(&place);
        (client.get(&format!("{MAPS}/kept")).code == 200).then_some(())
    });
    assert_eq!(root.get(&own).expect(200)["metadata"]["deletionTimestamp"], Value::Null);
}

/// So would a binding, with its objects.
#[test]
fn a_binding_in_its_grace_period_comes_back_alive() {
    let server = Server::start();
    let scene = unbinding::Scene::new(&server, Some(3600));
    let tenant = scene.at_tenant(&server);
    tenant.delete(BINDING).expect(200);
    let taken = create(&server, "");
    tenant.delete(&format!("{BINDING}?gracePeriodSeconds=0")).expect(200);
    scene.until_gone(&server);
    restored(&server, whole(&name(&taken)));
    until("the widgets are back", || {
        let widgets = tenant.get(WIDGETS).body;
        (widgets["items"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let back = tenant.get(BINDING).expect(200);
    assert_eq!(back["metadata"]["deletionTimestamp"], Value::Null);
}

/// Objects that own each other have no first one.
#[test]
fn objects_that_own_each_other_are_restored() {
    let server = Server::start();
    let (place, _) = workspace(&server.admin(), "circle");
    let client = server.admin().in_workspace(&place);
    let names: Vec<String> = (0..12).map(|n| format!("m{n}")).collect();
    let owners = names.iter().map(|name| {
        let made = client.post(MAPS, &map(name, "x")).expect(201);
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]})
    });
    let owners: Vec<Value> = owners.collect();
    for (own, name) in names.iter().enumerate() {
        let others: Vec<&Value> = owners
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != own)
            .map(|(_, it)| it)
            .collect();
        let change = json!({"metadata": {"ownerReferences": others}});
        client.merge(&format!("{MAPS}/{name}"), &change).expect(200);
    }
    let taken = create(&server, &place);
    let before = objects(&client, MAPS);
    delete_workspace(&server, &place);
    let result = restored(&server, whole(&name(&taken)));
    assert_eq!(result["contentSha256"], taken["contentSha256"]);
    assert_eq!(objects(&client, MAPS), before);
}

/// The backup of another installation would bring foreign identities: it takes a new store.
#[test]
fn a_backup_of_another_installation_is_refused() {
    let (one, other) = (Server::start(), Server::start());
    let taken = name(&create(&one, ""));
    let file = format!("{taken}.backup");
    let from = one.data_dir().join("backups").join(&file);
    let to = other.data_dir().join("backups");
    std::fs::create_dir_all(&to).unwrap();
    std::fs::copy(from, to.join(&file)).unwrap();
    for validate_only in [false, true] {
        let refused = restore(
            &other,
            RestoreBackupRequest {
                validate_only,
                ..whole(&taken)
            },
        )
        .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(
            refused.message().contains("insula backup restore"),
            "{}",
            refused.message()
        );
    }
}
