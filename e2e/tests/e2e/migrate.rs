//! `insula migrate tpr`: kills at every step, undo, and data of other clusters.

use crate::tools::ran;
use insula_e2e::{Client, Server, shared, until, workspace};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, process::Stdio, thread, time::Duration};

const FIRST: &str = "/apis/extensions/v1beta1/thirdpartyresources";
const NAME: &str = "cron-tab.stable.example.com";
const NESTED: &str = "/thirdparty/stable.example.com/stable/v1/namespaces/default/crontabs";
const FLAT: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Steps of a migration at which it can stop.
const STEPS: [&str; 6] = ["export", "replace", "serve", "recreate", "adopt", "verify"];
const OBJECTS: usize = 130;

fn object(i: usize) -> Value {
    json!({"apiVersion": "stable.example.com/stable/v1", "kind": "CronTab",
        "metadata": {"name": format!("tab-{i:04}"), "labels": {"odd": (i % 2 == 1).to_string()}},
        "cronSpec": format!("* * * * {i}"), "any": [{"list": [1, null, {"deep": "x".repeat(i % 7)}]}]})
}

/// Creates a registration, its objects, and two dependents of the first object.
fn fill(client: &Client, objects: usize) {
    client
        .post(
            FIRST,
            &json!({"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource", "metadata": {"name": NAME},
                "description": "Jobs by the clock", "versions": [{"name": "stable/v1"}, {"name": "v2"}]}),
        )
        .expect(201);
    until("it is served", || (client.get(NESTED).code == 200).then_some(()));
    thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                for i in (worker..objects).step_by(8) {
                    client.post(NESTED, &object(i)).expect(201);
                }
            });
        }
    });
    let owner = client.get(&format!("{NESTED}/tab-0000")).expect(200);
    for name in ["one", "two"] {
        let dependent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name,
            "ownerReferences": [{"apiVersion": "stable.example.com/stable/v1", "kind": "CronTab",
                "name": "tab-0000", "uid": owner["metadata"]["uid"]}]}});
        client.post(MAPS, &dependent).expect(201);
    }
}

/// Returns the objects by name, without what a migration may change.
fn contents(client: &Client, path: &str) -> BTreeMap<String, Value> {
    let list = client.get(path).expect(200);
    let items = list["items"].as_array().unwrap().iter().cloned();
    items
        .map(|mut item| {
            item.as_object_mut().unwrap().remove("apiVersion");
            for field in ["resourceVersion", "managedFields"] {
                item["metadata"].as_object_mut().unwrap().remove(field);
            }
            (item["metadata"]["name"].as_str().unwrap().to_owned(), item)
        })
        .collect()
}

/// Runs the command in a workspace, and returns its code and its outputs.
fn migrate(server: &Server, workspace: &str, arguments: &[&str]) -> (i32, String) {
    let kubeconfig = server.kubeconfig();
    let at = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", workspace];
    let (code, out, error) = ran(&[&["migrate", "tpr"], arguments, &at[..]].concat(), "");
    (code, out + &error)
}

fn migrated(server: &Server, workspace: &str, arguments: &[&str]) -> String {
    let (code, out) = migrate(server, workspace, arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}");
    out
}

/// Checks that dependents name an owner that exists, by its `apiVersion` and UID.
fn owners_are_named(client: &Client, api_version: &str, uid: &Value) {
    for name in ["one", "two"] {
        let owner = &client.get(&format!("{MAPS}/{name}")).expect(200)["metadata"]["ownerReferences"][0];
        assert_eq!(owner["apiVersion"], api_version);
        assert_eq!(owner["uid"], *uid);
    }
}

fn is_frozen(client: &Client, path: &str) {
    let patch = json!({"cronSpec": "changed"});
    let refused = client.merge(&format!("{path}/tab-0001"), &patch);
    // A binding that takes over has no route for a moment.
    assert!([403, 404, 500].contains(&refused.code), "{}", refused.text);
}

/// The server is killed at each step, forwards and back: nothing is lost.
#[test]
fn nothing_is_lost_when_killed_at_any_step() {
    let mut server = Server::start();
    for step in STEPS {
        for back in [false, true] {
            let (path, _) = workspace(&server.admin(), "kill");
            let client = server.admin().in_workspace(&path);
            fill(&client, OBJECTS);
            let before = contents(&client, NESTED);
            assert_eq!(before.len(), OBJECTS);
            let uid = before["tab-0000"]["metadata"]["uid"].clone();
            migrated(&server, &path, &[NAME, "--until", step]);
            server.kill9();
            server = server.restart();
            let client = server.admin().in_workspace(&path);
            is_frozen(&client, if step == "export" { NESTED } else { FLAT });
            let end: &[&str] = if back { &[NAME, "--undo"] } else { &[NAME] };
            let out = migrated(&server, &path, end);
            let (now, api_version) = match back {
                true => (NESTED, "stable.example.com/stable/v1"),
                false => (FLAT, "stable.example.com/v1"),
            };
            assert_eq!(contents(&client, now), before, "{step}, back: {back}: {out}");
            owners_are_named(&client, api_version, &uid);
            client
                .merge(&format!("{now}/tab-0001"), &json!({"cronSpec": "changed"}))
                .expect(200);
            let registrations = client.get(FIRST).expect(200);
            assert_eq!(registrations["items"].as_array().unwrap().len(), usize::from(back));
        }
    }
}

/// The server is killed while the command runs, at moments that differ from run to run.
#[test]
fn nothing_is_lost_when_killed_at_any_moment() {
    let mut server = Server::start();
    let (path, _) = workspace(&server.admin(), "moments");
    fill(&server.admin().in_workspace(&path), 1_500);
    let before = contents(&server.admin().in_workspace(&path), NESTED);
    for round in 0..6 {
        let kubeconfig = server.kubeconfig();
        let mut arguments = vec!["migrate", "tpr", NAME, "--workspace", &path, "--kubeconfig"];
        arguments.push(kubeconfig.to_str().unwrap());
        // Forwards and back by turns.
        if round % 2 == 1 {
            arguments.push("--undo");
        }
        let mut running = insula_e2e::insula(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(40 + 45 * round));
        server.kill9();
        let _ = running.kill();
        let _ = running.wait();
        server = server.restart();
    }
    migrated(&server, &path, &[NAME]);
    let client = server.admin().in_workspace(&path);
    assert_eq!(contents(&client, FLAT), before);
}

/// Objects move to the API of an export and back, and keep their UIDs.
#[test]
fn objects_become_those_of_a_bound_api() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "publisher");
    let (path, _) = workspace(&admin, "bound");
    let client = admin.in_workspace(&path);
    fill(&client, OBJECTS);
    let before = contents(&client, NESTED);
    let export = format!("{provider}:crontabs");
    let to = [NAME, "--to", "binding", "--export", &export];
    for step in ["replace", "recreate", "verify"] {
        migrated(&server, &path, &[&to[..], &["--until", step]].concat());
        is_frozen(&client, FLAT);
        migrated(&server, &path, &[NAME, "--undo"]);
        assert_eq!(contents(&client, NESTED), before, "undo after {step}");
        let gone = || {
            client
                .get("/apis/apis.kcp.io/v1alpha2/apibindings/crontabs.stable.example.com")
                .code
                == 404
        };
        until("the binding is gone", || gone().then_some(()));
        assert_eq!(contents(&client, NESTED), before, "after the deletion of the binding");
    }
    migrated(&server, &path, &to);
    assert_eq!(contents(&client, FLAT), before);
    owners_are_named(&client, "stable.example.com/v1", &before["tab-0000"]["metadata"]["uid"]);
    let binding = client
        .get("/apis/apis.kcp.io/v1alpha2/apibindings/crontabs.stable.example.com")
        .expect(200);
    assert_eq!(binding["status"]["phase"], "Bound", "{binding}");
    client
        .merge(&format!("{FLAT}/tab-0001"), &json!({"cronSpec": "changed"}))
        .expect(200);
}

/// A registration of the second generation serves the same objects; it becomes a definition then.
#[test]
fn objects_go_by_the_second_generation_to_a_definition() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "second");
    let client = admin.in_workspace(&path);
    fill(&client, 20);
    let before = contents(&client, NESTED);
    migrated(&server, &path, &["--all", "--to", "registration"]);
    assert_eq!(contents(&client, FLAT), before);
    let second = "/apis/apiextension.k8s.io/v1beta1/thirdpartyresources/crontabs.stable.example.com";
    let registration = client.get(second).expect(200);
    assert_eq!(registration["status"]["acceptedNames"]["plural"], "crontabs");
    let out = migrated(&server, &path, &["--all", "--to", "registration"]);
    assert!(out.contains("nothing to migrate"), "{out}");
    migrated(&server, &path, &["--all"]);
    assert_eq!(contents(&client, FLAT), before);
    assert_eq!(client.get(second).code, 404);
    let definitions = client
        .get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .expect(200);
    let items = definitions["items"].as_array().unwrap();
    let names: Vec<&Value> = items.iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["crontabs.stable.example.com"]);
}

/// A definition that would refuse or prune objects is not used; the dry run names them.
#[test]
fn a_definition_that_does_not_fit_is_refused() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "unfit");
    let client = admin.in_workspace(&path);
    fill(&client, 3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("definition.yaml");
    let definition = |extra: &str, storage: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
             metadata: {{name: crontabs.stable.example.com}}\n\
             spec:\n  group: stable.example.com\n  scope: Namespaced\n  \
             names: {{plural: crontabs, kind: CronTab}}\n  versions:\n  - name: {storage}\n    \
             served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object, \
             properties: {{cronSpec: {{type: string}}{extra}}}}}}}\n"
        )
    };
    let arguments = [NAME, "--definition", file.to_str().unwrap()];
    std::fs::write(&file, definition("", "v1")).unwrap();
    for dry_run in [true, false] {
        let more: &[&str] = if dry_run { &["--dry-run"] } else { &[] };
        let (code, out) = migrate(&server, &path, &[&arguments[..], more].concat());
        assert_eq!(code, 1, "{out}");
        assert!(out.contains("default/tab-0000: the schema has no field any"), "{out}");
    }
    std::fs::write(&file, definition("", "v9")).unwrap();
    let (code, out) = migrate(&server, &path, &arguments);
    assert!(
        code == 2 && out.contains("the definition must store the version \"v1\""),
        "{out}"
    );
    assert_eq!(contents(&client, NESTED).len(), 3);
    let any = ", any: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    std::fs::write(&file, definition(any, "v1")).unwrap();
    migrated(&server, &path, &arguments);
    assert_eq!(contents(&client, FLAT).len(), 3);
}

/// Files of another cluster: registrations, objects, dependents with UIDs that change.
#[test]
fn files_of_another_cluster_are_imported() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "import");
    let client = admin.in_workspace(&path);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, value: &Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let metadata = |name: &str, uid: &str| {
        json!({"name": name, "namespace": "team", "uid": uid, "resourceVersion": "77", "selfLink": "/x",
            "creationTimestamp": "2017-05-01T00:00:00Z", "labels": {"app": "a"}})
    };
    let registrations = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource", "description": "Jobs",
         "metadata": {"name": NAME, "uid": "u-0", "resourceVersion": "5"}, "versions": [{"name": "v1"}]}]});
    let mut owned = metadata("child", "u-2");
    owned["ownerReferences"] = json!([
        {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "name": "parent", "uid": "u-1"},
        {"apiVersion": "v1", "kind": "Pod", "name": "lost", "uid": "u-9"}]);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": owned, "spec": {"x": 1}},
        {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": metadata("parent", "u-1"), "y": [2]},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("map", "u-3"), "data": {"k": "v"}}]});
    let files = [file("a.json", &registrations), file("b.json", &objects)];
    let from: Vec<&str> = files.iter().flat_map(|file| ["--from", file]).collect();
    let (code, out) = migrate(&server, &path, &[&from[..], &["--dry-run"]].concat());
    assert!(
        code == 0 && client.get("/apis/stable.example.com/v1/crontabs").code == 404,
        "{out}"
    );
    // The second run finds everything as it should be.
    for round in 0..2 {
        let out = migrated(&server, &path, &from);
        assert!(out.contains("is not in the files: left out"), "{out}");
        let tabs = "/apis/stable.example.com/v1/namespaces/team/crontabs";
        let parent = client.get(&format!("{tabs}/parent")).expect(200);
        assert_eq!(
            (&parent["y"], &parent["metadata"]["labels"]["app"]),
            (&json!([2]), &json!("a"))
        );
        assert_ne!(parent["metadata"]["uid"], "u-1");
        let child = client.get(&format!("{tabs}/child")).expect(200);
        let owners = child["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(owners.len(), 1, "round {round}");
        assert_eq!(owners[0]["uid"], parent["metadata"]["uid"]);
        client.get("/api/v1/namespaces/team/configmaps/map").expect(200);
        client
            .get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.stable.example.com")
            .expect(200);
        assert_eq!(client.get(FIRST).expect(200)["items"], json!([]), "round {round}");
    }
}

/// `--keep` writes the objects as files that can be imported again, for many workspaces at once.
#[test]
fn objects_of_many_workspaces_are_kept_as_files() {
    let server = shared();
    let admin = server.admin();
    let (parent, _) = workspace(&admin, "org");
    let children = ["a", "b"].map(|name| {
        let made = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}});
        let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
        admin.in_workspace(&parent).post(workspaces, &made).expect(201);
        let path = format!("{parent}:{name}");
        until("it is ready", || {
            (admin.in_workspace(&path).get(MAPS).code == 200).then_some(())
        });
        fill(&admin.in_workspace(&path), 5);
        path
    });
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().to_str().unwrap();
    let out = migrated(
        &server,
        &parent,
        &["--all", "--recursive", "--keep", keep, "-o", "json"],
    );
    let reports: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(reports.as_array().unwrap().len(), 2, "{out}");
    let (fresh, _) = workspace(&admin, "fresh");
    let kept = Path::new(keep)
        .join(children[0].replace(':', "/"))
        .join("crontabs.stable.example.com.yaml");
    let text = std::fs::read_to_string(&kept).unwrap();
    assert_eq!(text.matches("kind: CronTab").count(), 5, "{text}");
    let registration = folder.path().join("registration.yaml");
    std::fs::write(
        &registration,
        json!({"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource", "metadata": {"name": NAME},
            "versions": [{"name": "stable/v1"}]})
        .to_string(),
    )
    .unwrap();
    let from = [
        "--from",
        registration.to_str().unwrap(),
        "--from",
        kept.to_str().unwrap(),
    ];
    migrated(&server, &fresh, &from);
    assert_eq!(contents(&admin.in_workspace(&fresh), FLAT).len(), 5);
}
