//! Operations that must never need a conversion, on objects that no rule can convert. Earlier
//! versions of the server admitted such objects. Also the requests that succeed while a bundle is
//! missing.

use std::time::Duration;

use insula_e2e::{Answer, Client, Kubectl, Server, edit_stored, until, workspace};
use serde_json::{Value, json};

const APIS: &str = "/apis/apis.kcp.io/v1alpha1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn engines(version: &str, namespace: &str) -> String {
    format!("/apis/example.io/{version}/namespaces/{namespace}/engines")
}

/// Publishes engines in this workspace and binds them. Their size is a text in `v1` and a number of
/// liters in `v2`.
fn engines_in(client: &Client) {
    let version = |name: &str, fields: Value| {
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
    };
    let there =
        json!({"field": ".spec.size", "destination": ".spec.liters", "transformation": "int(self)", "mayFail": true});
    let back = json!({"field": ".spec.liters", "destination": ".spec.size", "transformation": "string(self)"});
    let name = "v1.engines.example.io";
    for (resource, kind, name, spec) in [
        (
            "apiresourceschemas",
            "APIResourceSchema",
            name,
            json!({"group": "example.io", "scope": "Namespaced",
                "names": {"plural": "engines", "singular": "engine", "kind": "Engine", "listKind": "EngineList"},
                "versions": [version("v1", json!({"size": {"type": "string"}})),
                    version("v2", json!({"liters": {"type": "integer"}}))]}),
        ),
        (
            "apiconversions",
            "APIConversion",
            name,
            json!({"conversions": [{"from": "v1", "to": "v2", "rules": [there]},
                {"from": "v2", "to": "v1", "rules": [back]}]}),
        ),
        (
            "apiexports",
            "APIExport",
            "engines",
            json!({"latestResourceSchemas": [name]}),
        ),
        (
            "apibindings",
            "APIBinding",
            "engines",
            json!({"reference": {"export": {"name": "engines"}}}),
        ),
    ] {
        let object =
            json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        client.post(&format!("{APIS}/{resource}"), &object).expect(201);
    }
    until("engines are served", || {
        (client.get(&engines("v1", "default")).code == 200).then_some(())
    });
}

fn engine(client: &Client, namespace: &str, metadata: Value) {
    let object = json!({"apiVersion": "example.io/v1", "kind": "Engine", "metadata": metadata, "spec": {"size": "1"}});
    client.post(&engines("v1", namespace), &object).expect(201);
}

/// Checks for a 500 with the object and the rule.
#[track_caller]
fn cannot_be_shown(answer: Answer) {
    let status = answer.expect(500);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot be shown as v2"), "{message}");
    assert!(message.contains("conversions[0].rules[0]"), "{message}");
}

/// Creates two workspaces with objects that `v2` can no longer show. The test deletes one of them.
fn with_unreadable_objects() -> (Server, String, String) {
    let server = Server::start();
    let admin = server.admin();
    let (own, doomed) = (workspace(&admin, "own").0, workspace(&admin, "doomed").0);
    let client = admin.in_workspace(&own);
    for path in [&own, &doomed] {
        engines_in(&admin.in_workspace(path));
        engine(&admin.in_workspace(path), "default", json!({"name": "plain"}));
    }
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "default"}});
    let owner = client.post(MAPS, &owner).expect(201);
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    engine(&client, "default", json!({"name": "owned", "ownerReferences": owners}));
    for name in ["held-v1", "held-v2"] {
        engine(
            &client,
            "default",
            json!({"name": name, "finalizers": ["example.io/hold"]}),
        );
    }
    for name in ["one", "two"] {
        engine(&client, "default", json!({"name": name, "labels": {"together": "yes"}}));
    }
    engine(&client, "default", json!({"name": "repaired"}));
    engine(&client, "default", json!({"name": "by-kubectl"}));
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    client.post("/api/v1/namespaces", &team).expect(201);
    engine(&client, "team", json!({"name": "inside"}));
    let server = server.restart_after(|data| {
        let spoilt = edit_stored(data, "engines", |engine| engine["spec"]["size"] = json!("large"));
        assert_eq!(spoilt, 10);
    });
    until("engines are served again", || {
        (server.admin().in_workspace(&own).get(&engines("v1", "default")).code == 200).then_some(())
    });
    (server, own, doomed)
}

#[test]
fn unconvertible_objects_are_changed_by_their_metadata() {
    let (server, own, doomed) = with_unreadable_objects();
    let client = server.admin().in_workspace(&own);
    let (v1, v2) = (engines("v1", "default"), engines("v2", "default"));

    // The failure concerns the object itself, and lists that contain it.
    cannot_be_shown(client.get(&format!("{v2}/plain")));
    cannot_be_shown(client.get(&v2));
    let shown = client.get(&format!("{v1}/plain")).expect(200);
    assert_eq!(shown["spec"]["size"], "large");

    metadata_is_read(&client, &v2);
    metadata_is_written(&client, &v2);

    // Finalizers can be removed through either version.
    for (name, path) in [("held-v1", &v1), ("held-v2", &v2)] {
        let held = client.delete(&format!("{v2}/{name}")).expect(200);
        assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
        let release = json!({"metadata": {"finalizers": null}});
        client.merge(&format!("{path}/{name}"), &release).expect(200);
        client.get(&format!("{v1}/{name}")).expect(404);
    }

    // Deletion: of one, of several, of an owner, of the namespace, of the workspace.
    client.delete(&format!("{v2}/plain")).expect(200);
    client.get(&format!("{v1}/plain")).expect(404);
    let gone = client.delete(&format!("{v2}?labelSelector=together%3Dyes")).expect(200);
    assert_eq!(gone["items"].as_array().map(Vec::len), Some(2), "{gone}");
    client.get(&format!("{v1}/two")).expect(404);
    client.delete(&format!("{MAPS}/owner")).expect(200);
    client.delete("/api/v1/namespaces/team").expect(200);
    let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    let name = doomed.trim_start_matches("root:");
    let root = server.admin().in_workspace("root");
    root.delete(&format!("{workspaces}/{name}")).expect(200);
    for (what, client, path) in [
        ("the owned one is gone", &client, format!("{v1}/owned")),
        ("the namespace is gone", &client, "/api/v1/namespaces/team".to_owned()),
        ("the workspace is gone", &root, format!("{workspaces}/{name}")),
    ] {
        until(what, || (client.get(&path).code == 404).then_some(()));
    }

    // A write that every version can show repairs the object.
    cannot_be_shown(client.merge(&format!("{v2}/repaired"), &json!({"spec": {"liters": 3}})));
    client
        .merge(&format!("{v1}/repaired"), &json!({"spec": {"size": "huge"}}))
        .expect(422);
    client
        .merge(&format!("{v1}/repaired"), &json!({"spec": {"size": "4"}}))
        .expect(200);
    let right = client.get(&format!("{v2}/repaired")).expect(200);
    assert_eq!(right["spec"], json!({"liters": 4}));

    if let Some(kubectl) = Kubectl::for_server(&server) {
        let ran = kubectl.run(
            &own,
            &["delete", "engines.v2.example.io", "by-kubectl", "--timeout=20s"],
            "",
        );
        assert_eq!(ran.code, 0, "{}", ran.text);
    }
    client.delete(&format!("{v2}/by-kubectl"));
    assert_eq!(client.get(&v2).expect(200)["items"].as_array().map(Vec::len), Some(1));
}

/// Reads `PartialObjectMetadata` of one object, of a list and of a watch.
fn metadata_is_read(client: &Client, v2: &str) {
    let one = client
        .get_with(&format!("{v2}/plain"), &[("accept", METADATA)])
        .expect(200);
    assert_eq!(
        (&one["kind"], &one["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("plain"))
    );
    let many = client.get_with(v2, &[("accept", METADATA_LIST)]).expect(200);
    assert_eq!(many["items"].as_array().map(Vec::len), Some(8), "{many}");
    let watch =
        format!("{v2}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    let mut seen = 0;
    let headers = [("accept", METADATA)];
    client.watch_with(Duration::from_secs(10), &watch, &headers, &mut |event| {
        assert_eq!(event["object"]["kind"], "PartialObjectMetadata", "{event}");
        seen += usize::from(event["type"] == "ADDED");
        (event["type"] == "BOOKMARK").then_some(())
    });
    assert_eq!(seen, 8);
    // A watch of whole objects ends at the first object that cannot be converted.
    let end = client.watch(&watch, Some).unwrap_or_default();
    assert_eq!(
        (&end["type"], &end["object"]["code"]),
        (&json!("ERROR"), &json!(500)),
        "{end}"
    );
}

/// Patches only metadata, through the version that cannot show the rest.
fn metadata_is_written(client: &Client, v2: &str) {
    let at = format!("{v2}/plain");
    let marked = client
        .merge(&at, &json!({"metadata": {"labels": {"seen": "yes"}}}))
        .expect(200);
    assert_eq!(marked["kind"], "PartialObjectMetadata", "{marked}");
    assert_eq!(marked["metadata"]["labels"]["seen"], "yes");
    let patch = json!([{"op": "add", "path": "/metadata/annotations/note", "value": "kept"}]);
    let json_patch = [("content-type", "application/json-patch+json")];
    let noted = client
        .try_send("PATCH", &at, &json_patch, patch.to_string().into())
        .unwrap()
        .expect(200);
    assert_eq!(noted["metadata"]["annotations"]["note"], "kept", "{noted}");
    cannot_be_shown(client.merge(
        &at,
        &json!({"metadata": {"labels": {"seen": "no"}}, "spec": {"liters": 2}}),
    ));
    let fixed = json!({"metadata": {"labels": {"not a key!": "x"}}});
    client.merge(&at, &fixed).expect(422);
    let old = json!({"metadata": {"resourceVersion": "1", "labels": {"seen": "no"}}});
    client.merge(&at, &old).expect(409);
    let shown = client.get(&at.replace("v2", "v1")).expect(200);
    assert_eq!(shown["spec"], json!({"size": "large"}));
    assert_eq!(shown["metadata"]["labels"], json!({"seen": "yes"}));
}

#[test]
fn a_missing_bundle_is_restored_before_objects_are_served() {
    let server = Server::start();
    let (own, _) = workspace(&server.admin(), "own");
    engines_in(&server.admin().in_workspace(&own));
    engine(&server.admin().in_workspace(&own), "default", json!({"name": "plain"}));
    let server = server.restart_after(|data| {
        let gone = edit_stored(data, "bundles", |bundle| *bundle = Value::Null);
        assert_eq!(gone, 1);
    });
    let client = server.admin().in_workspace(&own);
    let shown = until("engines are served again", || {
        let answer = client.get(&format!("{}/plain", engines("v2", "default")));
        assert!(matches!(answer.code, 200 | 404), "{}", answer.text);
        (answer.code == 200).then_some(answer.body)
    });
    assert_eq!(shown["spec"], json!({"liters": 1}));
}
