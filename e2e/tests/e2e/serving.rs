//! Custom resources as Kubernetes serves them.

use insula_e2e::{Client, Server, shared, until, workspace};
use serde_json::{Value, json};

// One test for each script of `e2e/scripts/serving`.
include!(concat!(env!("OUT_DIR"), "/serving.rs"));

/// All pages of a list are of one revision and contain each object once, for any page size and
/// under concurrent writes.
#[test]
fn pages_of_any_size_make_the_same_list() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "pages").0);
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: String| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for i in 0..23 {
        client.post(maps, &map(format!("m{i:02}"))).expect(201);
    }
    let names = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let whole = names(&client.get(maps).expect(200));
    for limit in [1, 5, 22, 23, 24] {
        let (mut found, mut token, mut revisions) = (Vec::new(), String::new(), Vec::new());
        loop {
            let page = client
                .get(&format!("{maps}?limit={limit}&continue={token}"))
                .expect(200);
            found.extend(names(&page));
            revisions.push(page["metadata"]["resourceVersion"].clone());
            client
                .post(maps, &map(format!("z{limit}-{}", revisions.len())))
                .expect(201);
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
        revisions.dedup();
        assert_eq!(revisions.len(), 1, "limit {limit}: {revisions:?}");
        assert_eq!(found[..whole.len()], whole[..], "limit {limit}");
        for name in names(&client.get(maps).expect(200))
            .iter()
            .filter(|name| name.starts_with('z'))
        {
            client.delete(&format!("{maps}/{name}")).expect(200);
        }
    }
}

/// Concurrent read-modify-write updates succeed exactly as often as the object changes.
#[test]
fn no_update_is_lost_among_writers() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "writers").0);
    let path = "/api/v1/namespaces/default/configmaps/counter";
    let start = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}, "data": {"n": "0"}});
    client.post("/api/v1/namespaces/default/configmaps", &start).expect(201);
    let write = |client: insula_e2e::Client| {
        let mut conflicts = 0;
        for _ in 0..15 {
            loop {
                let mut now = client.get(path).expect(200);
                let n: u32 = now["data"]["n"].as_str().unwrap().parse().unwrap();
                now["data"]["n"] = (n + 1).to_string().into();
                match client.put(path, &now).code {
                    200 => break,
                    409 => conflicts += 1,
                    other => panic!("{other}"),
                }
            }
        }
        conflicts
    };
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || write(client))
        })
        .collect();
    let conflicts: u32 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert_eq!(
        client.get(path).expect(200)["data"]["n"],
        "60",
        "after {conflicts} conflicts"
    );
}

/// The server retries patches without a revision after a conflict: none is refused, and none is
/// lost.
#[test]
fn patches_at_the_same_time_all_count() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "patches").0);
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many"}});
    client.post(maps, &map).expect(201);
    let (writers, writes) = (4, 10);
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (client, path) = (client.clone(), format!("{maps}/many"));
            std::thread::spawn(move || {
                for write in 0..writes {
                    let key = format!("w{writer}-{write}");
                    client.merge(&path, &json!({"data": {key: "here"}})).expect(200);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let data = &client.get(&format!("{maps}/many")).expect(200)["data"];
    assert_eq!(data.as_object().unwrap().len(), writers * writes);
}

/// The server drops managed fields of an object that is too large with them, and refuses an object
/// that is too large without them.
#[test]
fn managed_fields_are_dropped_from_large_objects() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "large").0);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names = json!({"plural": "boxes", "kind": "Box"});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": schema}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.large.example.io"},
        "spec": {"group": "large.example.io", "scope": "Cluster", "names": names,
            "versions": [version("v1", true), version("v2", false)]}});
    client.post(definitions, &definition).expect(201);
    let boxes = |version: &str| format!("/apis/large.example.io/{version}/boxes");
    insula_e2e::until("boxes are served", || {
        (client.get(&boxes("v1")).code == 200).then_some(())
    });
    // Fields with short values: their owners take as much room as they do.
    let with = |version: &str, name: &str, fields: usize| {
        let spec: serde_json::Map<String, Value> = (0..fields)
            .map(|field| (format!("field-{field:06}"), json!("")))
            .collect();
        json!({"apiVersion": format!("large.example.io/{version}"), "kind": "Box", "metadata": {"name": name},
            "spec": spec})
    };
    let owners = |object: &Value| object["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    for (version, name) in [("v1", "a"), ("v2", "b")] {
        let small = client.post(&boxes(version), &with(version, name, 10)).expect(201);
        assert_eq!(owners(&small), 1);
        let path = format!("{}/{name}", boxes(version));
        let patch = with(version, name, 50_000);
        let large = client.merge(&path, &json!({"spec": patch["spec"]})).expect(200);
        assert_eq!(owners(&large), 0, "{version}");
        assert_eq!(owners(&client.get(&path).expect(200)), 0);
        let more = with(version, &format!("{name}2"), 50_000);
        let made = client.post(&boxes(version), &more).expect(201);
        assert_eq!((owners(&made), &made["spec"]), (0, &more["spec"]));
    }
    let refused = client.post(&boxes("v1"), &with("v1", "c", 90_000)).expect(413);
    assert_eq!(refused["reason"], "RequestEntityTooLarge");
}

/// Creates a ConfigMap, changes it a number of times, and deletes it.
fn change_map(client: &Client, name: &str, changes: usize) {
    let maps = "/api/v1/namespaces/default/configmaps";
    client
        .post(
            maps,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        )
        .expect(201);
    for change in 0..changes {
        client
            .merge(&format!("{maps}/{name}"), &json!({"data": {"n": change.to_string()}}))
            .expect(200);
    }
    client.delete(&format!("{maps}/{name}")).expect(200);
}

/// A watch sends every change once, in order, under concurrent writes. A second watch from a
/// revision in between sends the same remaining events.
#[test]
fn watches_are_ordered_unique_and_complete() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "watched").0);
    let maps = "/api/v1/namespaces/default/configmaps";
    let begin = client.get(maps).expect(200)["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    let (writers, changes) = (3, 12);
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let client = client.clone();
            std::thread::spawn(move || {
                change_map(&client, &format!("m{writer}"), changes);
            })
        })
        .collect();
    let wanted = writers * (changes + 2);
    let follow = |from: &str, count: usize| {
        let mut events: Vec<(u64, Value)> = Vec::new();
        client.watch(&format!("{maps}?watch=true&resourceVersion={from}"), |event| {
            let revision = event["object"]["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            events.push((
                revision,
                json!([
                    event["type"],
                    event["object"]["metadata"]["name"],
                    event["object"]["data"]["n"]
                ]),
            ));
            (events.len() == count).then_some(())
        });
        events
    };
    let events = follow(&begin, wanted);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(events.len(), wanted);
    assert!(events.windows(2).all(|pair| pair[0].0 < pair[1].0), "{events:#?}");
    for writer in 0..writers {
        let name = format!("m{writer}");
        let own: Vec<String> = events
            .iter()
            .filter(|(_, event)| event[1] == name)
            .map(|(_, event)| event.to_string())
            .collect();
        let last = changes - 1;
        assert_eq!(own[0], format!("[\"ADDED\",\"{name}\",null]"));
        assert_eq!(own[changes], format!("[\"MODIFIED\",\"{name}\",\"{last}\"]"));
        assert_eq!(own[changes + 1], format!("[\"DELETED\",\"{name}\",\"{last}\"]"));
    }
    let middle = wanted / 2;
    assert_eq!(
        follow(&events[middle].0.to_string(), wanted - middle - 1),
        events[middle + 1..]
    );
}

/// A watch whose definition changes ends without an error, so that its client lists again under the
/// new definition.
#[test]
fn watches_end_when_their_definition_changes() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "changed").0);
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let text = include_str!("../../clients/lamps.json");
    let definition: Value = serde_json::from_str(text).unwrap();
    client.post(DEFINITIONS, &definition).expect(201);
    let lamps = "/apis/house.example.io/v1/lamps";
    insula_e2e::until("lamps are served", || (client.get(lamps).code == 200).then_some(()));
    let watcher = {
        let client = client.clone();
        std::thread::spawn(move || {
            let mut events = Vec::new();
            let begun = std::time::Instant::now();
            client.watch(&format!("{lamps}?watch=true"), |event| {
                events.push(event);
                None::<()>
            });
            (events, begun.elapsed())
        })
    };
    // No client can observe that the watch is open, so the test waits.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let path = format!("{DEFINITIONS}/lamps.house.example.io");
    let names = json!({"spec": {"names": {"shortNames": ["lp", "lamp2"]}}});
    client.merge(&path, &names).expect(200);
    let (events, lasted) = watcher.join().unwrap();
    assert!(lasted < insula_e2e::PATIENCE, "the watch outlived its definition");
    assert_eq!(events, Vec::<Value>::new());
}

/// Requests to read, list, write and create objects succeed while their definition changes
/// repeatedly.
#[test]
fn requests_succeed_while_a_definition_changes() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "changing").0);
    let definition: Value = serde_json::from_str(include_str!("../../clients/lamps.json")).unwrap();
    client.post(DEFINITIONS, &definition).expect(201);
    let lamps = "/apis/house.example.io/v1/namespaces/default/lamps";
    insula_e2e::until("lamps are served", || (client.get(lamps).code == 200).then_some(()));
    let lamp = |name: &str| json!({"apiVersion": "house.example.io/v1", "kind": "Lamp", "metadata": {"name": name}});
    client.post(lamps, &lamp("a")).expect(201);
    let done = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let users: Vec<_> = (0..3)
            .map(|user| {
                let (client, done) = (client.clone(), &done);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        client.get(&format!("{lamps}/a")).expect(200);
                        client.get(lamps).expect(200);
                        client.get("/apis/house.example.io/v1").expect(200);
                        let label = json!({"metadata": {"labels": {format!("by-{user}"): rounds.to_string()}}});
                        client.merge(&format!("{lamps}/a"), &label).expect(200);
                        client.post(lamps, &lamp(&format!("l{user}-{rounds}"))).expect(201);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        for change in 0..12 {
            let field = json!({"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/more",
                "value": {"type": "string", "maxLength": change + 1}});
            let names = json!({"op": "add", "path": "/spec/names/categories", "value": [format!("c{change}")]});
            let patch = json!([field, names]).to_string();
            let path = format!("{DEFINITIONS}/lamps.house.example.io");
            let kind = [("content-type", "application/json-patch+json")];
            client
                .try_send("PATCH", &path, &kind, patch.into())
                .unwrap()
                .expect(200);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        users.into_iter().map(|user| user.join().unwrap()).sum::<usize>()
    });
    assert!(rounds >= 3, "{rounds} rounds are none to speak of");
}

/// An object keeps at most ten managers of updates. The server merges the oldest ones into
/// `ancient-changes`, one per version.
#[test]
fn old_managed_fields_are_merged() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "ancient").0);
    let maps = "/api/v1/namespaces/default/configmaps";
    let start =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "much-written"}, "data": {"first": "v"}});
    client.post(maps, &start).expect(201);
    for i in 0..14 {
        let patch = json!({"data": {format!("k{i:02}"): "v"}});
        let path = format!("{maps}/much-written?fieldManager=writer-{i:02}");
        client.merge(&path, &patch).expect(200);
    }
    let written = client.get(&format!("{maps}/much-written")).expect(200);
    let owners = written["metadata"]["managedFields"].as_array().unwrap();
    let named = |name: &str| owners.iter().find(|owner| owner["manager"] == name);
    assert_eq!(owners.len(), 10, "{owners:?}");
    let ancient = named("ancient-changes").expect("the oldest are summed up");
    for key in ["f:k00", "f:k04"] {
        assert!(ancient["fieldsV1"]["f:data"][key].is_object(), "{ancient}");
    }
    assert!(named("writer-13").is_some() && named("writer-00").is_none());
}

/// Definitions in v1beta1 and their subresources are settings. What was made through that version
/// is served as before while it is off.
#[test]
fn settings_close_v1beta1() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("insula.yaml");
    let set = |settings: &str| std::fs::write(&config, format!("workspaces:\n  homes: true\n  {settings}\n")).unwrap();
    let definitions = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions";
    let definition = |plural: &str, kind: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.gate.example.com")},
            "spec": {"group": "gate.example.com", "version": "v1", "names": {"plural": plural, "kind": kind},
                "subResources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas"}}}})
    };
    set("definitionSubresources: false");
    let server = Server::with_flags(&["--config", config.to_str().unwrap()]);
    let client = server.admin().in_workspace("root");
    let made = client.post(definitions, &definition("locks", "Lock")).expect(201);
    assert_eq!(made["spec"]["subresources"], Value::Null, "{made}");
    until("it is served", || {
        (client.get("/apis/gate.example.com/v1/locks").code == 200).then_some(())
    });
    let documents = client.get("/apis/gate.example.com/v1").expect(200);
    assert_eq!(documents["resources"].as_array().map(Vec::len), Some(1), "{documents}");

    set("definitionsV1beta1: false");
    let server = server.restart();
    let client = server.admin().in_workspace("root");
    assert_eq!(client.get(definitions).code, 404);
    let group = client.get("/apis/apiextensions.k8s.io").expect(200);
    assert_eq!(group["versions"].as_array().map(Vec::len), Some(1), "{group}");
    client.get("/apis/gate.example.com/v1/locks").expect(200);
    let of_v1 = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/locks.gate.example.com";
    assert_eq!(client.get(of_v1).expect(200)["spec"]["preserveUnknownFields"], true);

    set("");
    let server = server.restart();
    let client = server.admin().in_workspace("root");
    let made = client.post(definitions, &definition("gates", "Gate")).expect(201);
    assert_ne!(made["spec"]["subresources"]["scale"], Value::Null, "{made}");
}
