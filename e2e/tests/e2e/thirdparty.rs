//! ThirdPartyResources of both generations.

use insula_e2e::{Server, shared, until, workspace};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

// One test for each script of `e2e/scripts/thirdparty`.
include!(concat!(env!("OUT_DIR"), "/thirdparty.rs"));

const SECOND: &str = "/apis/apiextension.k8s.io/v1beta1/thirdpartyresources";
const FIRST: &str = "/apis/extensions/v1beta1/thirdpartyresources";

fn runners(plural: &str, kind: &str, short: &str) -> Value {
    json!({"apiVersion": "apiextension.k8s.io/v1beta1", "kind": "ThirdPartyResource",
        "metadata": {"name": format!("{plural}.race.example.com")},
        "spec": {"group": "race.example.com", "version": "v1",
            "names": {"plural": plural, "kind": kind, "shortNames": [short]}}})
}

/// Registrations made at the same moment never share a name: of those that want one, exactly one
/// has it, and the others tell of the conflict.
#[test]
fn racing_registrations_share_no_name() {
    let server = shared();
    let admin = server.admin();
    for round in 0..5 {
        let (path, _) = workspace(&admin, "race");
        let client = admin.in_workspace(&path);
        thread::scope(|scope| {
            for i in 0..6 {
                let client = &client;
                scope.spawn(move || {
                    let kind = if i < 3 {
                        "Runner".to_owned()
                    } else {
                        format!("Runner{i}")
                    };
                    client
                        .post(SECOND, &runners(&format!("runners{i}"), &kind, "run"))
                        .expect(201);
                });
            }
        });
        let settled = until("each registration has a verdict", || {
            let all = client.get(SECOND).expect(200)["items"].as_array().unwrap().clone();
            let has = |item: &Value| {
                item["status"]["conditions"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty())
            };
            all.iter().all(has).then_some(all)
        });
        let with = |pointer: &str, wanted: Value| {
            let has = |item: &&Value| item.pointer(pointer) == Some(&wanted);
            settled.iter().filter(has).count()
        };
        assert_eq!(
            with("/status/acceptedNames/kind", json!("Runner")),
            1,
            "round {round}: {settled:?}"
        );
        assert_eq!(
            with("/status/acceptedNames/shortNames", json!(["run"])),
            1,
            "round {round}: {settled:?}"
        );
        let served = client.get("/apis/race.example.com/v1").expect(200);
        let kinds: Vec<&Value> = served["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["kind"])
            .collect();
        let mut distinct = kinds.clone();
        distinct.sort_by_key(ToString::to_string);
        distinct.dedup();
        assert_eq!(distinct.len(), kinds.len(), "round {round}: {kinds:?}");
    }
}

/// Objects that are created while their registration is deleted are either refused or deleted: none
/// is left for the next registration of the name.
#[test]
fn no_object_survives_its_registration() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "survivors");
    let client = admin.in_workspace(&path);
    const OBJECTS: &str = "/apis/race.example.com/v1/namespaces/default/runners";
    for round in 0..5 {
        client.post(SECOND, &runners("runners", "Runner", "run")).expect(201);
        until("it is served", || (client.get(OBJECTS).code == 200).then_some(()));
        let (made, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for writer in 0..4 {
                let (client, made, stop) = (&client, &made, &stop);
                scope.spawn(move || {
                    for i in 0..5000 {
                        let object = json!({"apiVersion": "race.example.com/v1", "kind": "Runner",
                            "metadata": {"name": format!("r-{writer}-{i}"), "finalizers": ["example.com/hold"]}});
                        match client.post(OBJECTS, &object).code {
                            201 => drop(made.fetch_add(1, Ordering::Relaxed)),
                            403 | 404 | 409 => {}
                            code => panic!("round {round}: {code}"),
                        }
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            until("some objects", || (made.load(Ordering::Relaxed) > 40).then_some(()));
            client.delete(&format!("{SECOND}/runners.race.example.com")).expect(200);
            until("the registration is gone", || {
                (client.get(&format!("{SECOND}/runners.race.example.com")).code == 404).then_some(())
            });
            stop.store(true, Ordering::Relaxed);
        });
        client.post(SECOND, &runners("runners", "Runner", "run")).expect(201);
        let list = until("it is served again", || {
            let answer = client.get(OBJECTS);
            (answer.code == 200).then_some(answer.body)
        });
        assert_eq!(list["items"], json!([]), "round {round}");
        client.delete(&format!("{SECOND}/runners.race.example.com")).expect(200);
        until("it is gone", || {
            (client.get(&format!("{SECOND}/runners.race.example.com")).code == 404).then_some(())
        });
    }
}

/// With the setting off the paths answer 404 and discovery has nothing of them. Objects stay in the
/// store, keep their names, and are back with the setting.
#[test]
fn the_setting_hides_and_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("insula.yaml");
    let switch = |on: bool| std::fs::write(&config, format!("workspaces: {{thirdPartyResources: {on}}}\n")).unwrap();
    switch(true);
    let server = Server::with_flags(&["--config", config.to_str().unwrap()]);
    let crontabs = "/thirdparty/example.com/stable/v1/namespaces/default/crontabs";
    let registration = json!({"apiVersion": "extensions/v1beta1", "kind": "ThirdPartyResource",
        "metadata": {"name": "cron-tab.example.com"}, "versions": [{"name": "stable/v1"}, {"name": "v1"}]});
    let object = json!({"apiVersion": "example.com/stable/v1", "kind": "CronTab", "metadata": {"name": "a"}, "x": 1});
    let client = server.admin().in_workspace("root");
    client.post(FIRST, &registration).expect(201);
    until("it is served", || (client.get(crontabs).code == 200).then_some(()));
    client.post(crontabs, &object).expect(201);

    switch(false);
    let server = server.restart();
    let client = server.admin().in_workspace("root");
    let groups = "/apis/extensions";
    for path in [FIRST, SECOND, crontabs, "/thirdparty", "/apis/example.com/v1", groups] {
        assert_eq!(client.get(path).code, 404, "{path}");
    }
    assert!(!client.get("/apis").text.contains("extensions/v1beta1"));

    switch(true);
    let server = server.restart();
    let client = server.admin().in_workspace("root");
    assert_eq!(client.get(&format!("{crontabs}/a")).expect(200)["x"], 1);
    assert!(client.get("/apis").text.contains("extensions/v1beta1"));
}
