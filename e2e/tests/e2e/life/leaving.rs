//! Versions that leave: the reasons that delay them, and the managed fields of their users.

use super::{
    APIS, WIDGETS_V1, WIDGETS_V2, bind, names, object, offer, publish, publish_rules, publish_versions,
    rules_below_100, storage_versions, versions,
};
use insula_e2e::{Answer, Client, Server, edit_stored, shared, until, workspace};
use serde_json::{Value, json};

/// Returns a patch of a definition's versions.
fn definition_versions(storage: &str, names: &[&str]) -> Value {
    let mut versions = versions(names, storage);
    for version in &mut versions {
        let schema = version["schema"].take();
        version["schema"] = json!({"openAPIV3Schema": schema});
    }
    json!({"spec": {"versions": versions}})
}

/// Returns a definition of v1, the storage version, and v2.
fn definition() -> Value {
    let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.life.example.io"},
        "spec": {"group": "life.example.io", "scope": "Namespaced", "names": names()}});
    definition["spec"]["versions"] = definition_versions("v1", &["v1", "v2"])["spec"]["versions"].take();
    definition
}

#[test]
fn a_version_of_a_definition_stays_while_objects_are_stored_in_it() {
    let server = Server::start();
    let (path, _) = workspace(&server.admin(), "stays");
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = definition();
    let client = server.admin().in_workspace(&path);
    client.post(crds, &definition).expect(201);
    client
        .post(
            &format!("{APIS}/apiconversions"),
            &rules_below_100("widgets.life.example.io"),
        )
        .expect(201);
    let object = json!({"apiVersion": "life.example.io/v1", "kind": "Widget", "metadata": {"name": "large"},
        "spec": {"size": 20}});
    until("it is written", || {
        (client.post(WIDGETS_V1, &object).code == 201).then_some(())
    });
    until("its rules serve", || {
        (client.get(&format!("{WIDGETS_V2}/large")).expect(200)["spec"]["bytes"] == 20).then_some(())
    });

    // The object is as an earlier server admitted it: it cannot be written in v2.
    let server = server.restart_after(|data| {
        let spoilt = edit_stored(data, "widgets", |widget| widget["spec"]["size"] = json!(200));
        assert_eq!(spoilt, 1);
    });
    let client = server.admin().in_workspace(&path);
    let at = format!("{crds}/widgets.life.example.io");
    client.merge(&at, &definition_versions("v2", &["v1", "v2"])).expect(200);
    let gone = definition_versions("v2", &["v2"]);
    let refused = client.merge(&at, &gone).expect(422);
    let message = refused["details"]["causes"][0]["message"].as_str().unwrap_or_default();
    let in_kubernetes_words = "Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, \
        and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes \
        v1 from status.storedVersions";
    let ours =
        format!("; still to be written anew: 1 object in 1 workspace ({path}: 1), see the condition StorageMigrating");
    assert_eq!(message, format!("{in_kubernetes_words}{ours}"));

    // A repaired object is migrated, and the version may be removed.
    client
        .merge(&format!("{WIDGETS_V1}/large"), &json!({"spec": {"size": 20}}))
        .expect(200);
    let rules = format!("{APIS}/apiconversions/widgets.life.example.io");
    until("only v2 is stored", || {
        (client.get(&at).expect(200)["status"]["storedVersions"] == json!(["v2"])).then_some(())
    });
    // When a version is no longer served, its managed fields move to v2.
    let mut retired = definition_versions("v2", &["v1", "v2"]);
    retired["spec"]["versions"][0]["served"] = json!(false);
    let owned_in = |version: &str| {
        let owners = owners(&client, "large");
        !owners.is_empty() && owners.iter().all(|(_, owned_in, _)| owned_in.ends_with(version))
    };
    assert!(owned_in("/v1"));
    client.merge(&at, &retired).expect(200);
    until("owners are told in v2", || owned_in("/v2").then_some(()));
    // Rules of a removed version go with it.
    client.merge(&rules, &json!({"spec": {"conversions": []}})).expect(200);
    client.merge(&at, &gone).expect(200);
    until("v2 is served", || {
        let kept = client.get(&format!("{WIDGETS_V2}/large"));
        (kept.code == 200 && kept.body["spec"] == json!({"bytes": 20})).then_some(())
    });
    until("v1 is not", || (client.get(WIDGETS_V1).code == 404).then_some(()));
}

/// Applies (server-side apply) through a version.
fn apply(client: &Client, path: &str, manager: &str, spec: &Value) -> Answer {
    let version = if path == WIDGETS_V1 { "v1" } else { "v2" };
    let config = json!({"apiVersion": format!("life.example.io/{version}"), "kind": "Widget",
        "metadata": {"name": "a"}, "spec": spec});
    let path = format!("{path}/a?fieldManager={manager}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    client
        .try_send("PATCH", &path, &headers, config.to_string().into())
        .unwrap()
}

/// Returns manager, version and fields of each managed fields entry.
fn owners(client: &Client, name: &str) -> Vec<(String, String, String)> {
    let object = client.get(&format!("{WIDGETS_V2}/{name}")).expect(200);
    let all = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut owners: Vec<_> = all
        .iter()
        .map(|owner| {
            let version = text(&owner["apiVersion"]);
            (text(&owner["manager"]), version, owner["fieldsV1"].to_string())
        })
        .collect();
    owners.sort();
    owners
}

/// Creates a provider whose v1 leaves: it is no longer stored in `two`, not served in `three`, and
/// removed in `four`.
fn leaving(server: &Server) -> (Client, String) {
    let (provider, _) = workspace(&server.admin(), "provider");
    let client = server.admin().in_workspace(&provider);
    publish(&client, "one", "v1");
    publish(&client, "two", "v2");
    publish_versions(&client, "three", {
        let mut retired = versions(&["v1", "v2"], "v2");
        retired[0]["served"] = json!(false);
        retired
    });
    publish_rules(&client, "three");
    publish_versions(&client, "four", versions(&["v2"], "v2"));
    let export = object("APIExport", "widgets", &offer("one"));
    client.post(&format!("{APIS}/apiexports"), &export).expect(201);
    (client, provider)
}

/// Managed fields of two appliers of one widget, each in its version, while v1 leaves. In steps,
/// the fields of `old` stay its own; at once, they lose their owner.
#[test]
fn managed_fields_move_when_their_version_is_removed() {
    let server = shared();
    for (last, stays) in [("three", true), ("four", false)] {
        let (provider, path) = leaving(&server);
        let tenant = server.admin().in_workspace(&workspace(&server.admin(), "tenant").0);
        bind(&tenant, &path);
        apply(&tenant, WIDGETS_V1, "old", &json!({"size": 1})).expect(201);
        apply(&tenant, WIDGETS_V2, "new", &json!({"note": "n"})).expect(200);
        let offers = |prefix: &str| {
            let at = format!("{APIS}/apiexports/widgets");
            // The removal of v1 is confirmed: whether its use is recorded yet depends on the time.
            let confirmed = json!({"insula.io/confirm-removal": "two.widgets.life.example.io/v1"});
            let change = json!({"metadata": {"annotations": confirmed}, "spec": offer(prefix)});
            provider.merge(&at, &change).expect(200);
        };
        let owner = |manager: &str, version: &str, field: &str| {
            let fields = format!(r#"{{"f:spec":{{"f:{field}":{{}}}}}}"#);
            (manager.to_owned(), format!("life.example.io/{version}"), fields)
        };

        // v1 is served: an applier through it finds its own fields.
        offers("two");
        until("all is stored in v2", || {
            (storage_versions(&tenant) == json!(["v2"])).then_some(())
        });
        let new = owner("new", "v2", "note");
        assert_eq!(owners(&tenant, "a"), [new.clone(), owner("old", "v1", "size")]);

        offers(last);
        let mut want = vec![new];
        want.extend(stays.then(|| owner("old", "v2", "bytes")));
        until("nobody owns anything in v1", || {
            (owners(&tenant, "a") == want).then_some(())
        });
        let kept = tenant.get(&format!("{WIDGETS_V2}/a")).expect(200);
        assert_eq!(kept["spec"], json!({"bytes": 1, "note": "n"}));

        // An owned field causes a conflict for other appliers; a field without an owner is free.
        let other = apply(&tenant, WIDGETS_V2, "other", &json!({"bytes": 5}));
        let size = if stays {
            let cause = other.expect(409)["details"]["causes"][0].take();
            assert_eq!(cause["field"], ".spec.bytes");
            assert!(
                cause["message"].as_str().unwrap_or_default().contains("\"old\""),
                "{cause}"
            );
            2
        } else {
            other.expect(200);
            5
        };
        let mine = apply(&tenant, WIDGETS_V2, "old", &json!({"bytes": size})).expect(200);
        assert_eq!(mine["spec"], json!({"bytes": size, "note": "n"}));
        // A field that its applier omits is removed, unless another manager owns it.
        let given_up = apply(&tenant, WIDGETS_V2, "old", &json!({})).expect(200);
        let want = if stays {
            json!({"note": "n"})
        } else {
            json!({"bytes": 5, "note": "n"})
        };
        assert_eq!(given_up["spec"], want);
    }
}
