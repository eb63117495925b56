//! The life of an API's versions. Stored objects migrate to the storage version under concurrent
//! writes and restarts.

mod leaving;
mod names;
mod progress;
mod rollout;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use insula_e2e::{Client, Server, ready_workspace, shared, unique, until, workspace};
use serde_json::{Value, json};

const APIS: &str = "/apis/apis.kcp.io/v1alpha1";
const WIDGETS_V1: &str = "/apis/life.example.io/v1/namespaces/default/widgets";
const WIDGETS_V2: &str = "/apis/life.example.io/v2/namespaces/default/widgets";

fn names() -> Value {
    json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
}

/// Returns versions: `v1` has `size`; `v2` has `bytes`, and a `note` that `v1` lacks. Further
/// versions are like `v2`.
fn versions(names: &[&str], storage: &str) -> Vec<Value> {
    let version = |name: &&str| {
        let fields = match *name {
            "v1" => json!({"size": {"type": "integer"}}),
            _ => json!({"bytes": {"type": "integer"}, "note": {"type": "string"}}),
        };
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": name, "served": true, "storage": *name == storage, "schema": schema})
    };
    names.iter().map(version).collect()
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn publish_versions(provider: &Client, prefix: &str, versions: Vec<Value>) {
    let name = format!("{prefix}.widgets.life.example.io");
    let spec = json!({"group": "life.example.io", "scope": "Namespaced", "names": names(), "versions": versions});
    provider
        .post(
            &format!("{APIS}/apiresourceschemas"),
            &object("APIResourceSchema", &name, &spec),
        )
        .expect(201);
}

fn renames() -> Value {
    let rule = |from: &str, to: &str, a: &str, b: &str| {
        json!({"from": from, "to": to,
        "rules": [{"field": a, "destination": b}]})
    };
    json!({"conversions": [
        rule("v1", "v2", ".spec.size", ".spec.bytes"), rule("v2", "v1", ".spec.bytes", ".spec.size")]})
}

/// Publishes a schema of `v1` and `v2` with rules between them.
fn publish(provider: &Client, prefix: &str, storage: &str) {
    publish_versions(provider, prefix, versions(&["v1", "v2"], storage));
    publish_rules(provider, prefix);
}

fn publish_rules(provider: &Client, prefix: &str) {
    let rules = object(
        "APIConversion",
        &format!("{prefix}.widgets.life.example.io"),
        &renames(),
    );
    provider.post(&format!("{APIS}/apiconversions"), &rules).expect(201);
}

fn offer(prefix: &str) -> Value {
    json!({"latestResourceSchemas": [format!("{prefix}.widgets.life.example.io")]})
}

fn bind(tenant: &Client, provider: &str) {
    let binding = json!({"reference": {"export": {"path": provider, "name": "widgets"}}});
    tenant
        .post(
            &format!("{APIS}/apibindings"),
            &object("APIBinding", "widgets", &binding),
        )
        .expect(201);
    until("it is bound", || (tenant.get(WIDGETS_V1).code == 200).then_some(()));
}

fn widget(i: usize) -> Value {
    json!({"apiVersion": "life.example.io/v2", "kind": "Widget", "metadata": {"name": format!("w{i}")},
        "spec": {"bytes": i, "note": format!("n{i}")}})
}

fn storage_versions(tenant: &Client) -> Value {
    let binding = tenant.get(&format!("{APIS}/apibindings/widgets")).expect(200);
    binding["status"]["boundResources"][0]["storageVersions"].clone()
}

/// Returns everything but the revision, by name.
fn contents(client: &Client, path: &str) -> Vec<Value> {
    let mut list = client.get(path).expect(200);
    let mut items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    for item in &mut items {
        item["metadata"]["resourceVersion"].take();
    }
    items
}

/// Creates widgets from four threads, in the tenants in turn.
fn write_in_parallel(server: &Server, tenants: &[String], objects: usize) {
    let writers: Vec<_> = (0..4)
        .map(|part| {
            let client = server.admin().in_workspace(&tenants[part % 2]);
            std::thread::spawn(move || {
                for i in (part..objects).step_by(4) {
                    client.post(WIDGETS_V2, &widget(i)).expect(201);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn migration_continues_after_kill_9_while_tenants_write() {
    const OBJECTS: usize = 1600;
    let mut server = Server::start();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at_provider = server.admin().in_workspace(&provider);
    publish(&at_provider, "one", "v1");
    publish(&at_provider, "two", "v2");
    at_provider
        .post(
            &format!("{APIS}/apiexports"),
            &object("APIExport", "widgets", &offer("one")),
        )
        .expect(201);
    let tenants: Vec<String> = (0..2).map(|_| workspace(&server.admin(), "tenant").0).collect();
    for tenant in &tenants {
        bind(&server.admin().in_workspace(tenant), &provider);
    }
    write_in_parallel(&server, &tenants, OBJECTS);
    let client = |server: &Server| server.admin().in_workspace(&tenants[0]);
    let before = [WIDGETS_V1, WIDGETS_V2].map(|path| contents(&client(&server), path));
    assert_eq!(storage_versions(&client(&server)), json!(["v1"]));

    at_provider
        .merge(&format!("{APIS}/apiexports/widgets"), &json!({"spec": offer("two")}))
        .expect(200);
    until("the first objects are written", || {
        (storage_versions(&client(&server)) == json!(["v1", "v2"])).then_some(())
    });
    server.kill9();
    server = server.restart();

    // A client writes one object repeatedly through the old version.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (client, stop) = (client(&server), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                last += 1;
                let edit = json!({"spec": {"size": last}});
                client.merge(&format!("{WIDGETS_V1}/w0"), &edit).expect(200);
            }
            last
        })
    };
    for tenant in &tenants {
        until("only the new version is stored", || {
            (storage_versions(&server.admin().in_workspace(tenant)) == json!(["v2"])).then_some(())
        });
    }
    stop.store(true, Ordering::Relaxed);
    let last = writer.join().unwrap();
    let edited = client(&server).get(&format!("{WIDGETS_V2}/w0")).expect(200);
    assert_eq!(edited["spec"], json!({"bytes": last, "note": "n0"}));
    let after = [WIDGETS_V1, WIDGETS_V2].map(|path| contents(&client(&server), path));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.len(), after.len());
        let others = before
            .iter()
            .zip(after)
            .filter(|(old, _)| old["metadata"]["name"] != "w0");
        others.for_each(|(old, new)| assert_eq!(old, new));
    }
}

#[test]
fn a_storage_version_migration_rewrites_a_plain_definition() {
    let server = shared();
    let client = server
        .admin()
        .in_workspace(&ready_workspace(&server.admin(), "root", &unique("plain"), json!({})).0);
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = |storage: &str| {
        let mut versions = versions(&["v2", "v3"], storage);
        for version in &mut versions {
            let schema = version["schema"].take();
            version["schema"] = json!({"openAPIV3Schema": schema});
        }
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.life.example.io"},
            "spec": {"group": "life.example.io", "scope": "Namespaced", "names": names(), "versions": versions}})
    };
    client.post(crds, &definition("v2")).expect(201);
    until("it is served", || (client.get(WIDGETS_V2).code == 200).then_some(()));
    client.post(WIDGETS_V2, &widget(1)).expect(201);
    let at = format!("{crds}/widgets.life.example.io");
    client
        .merge(&at, &json!({"spec": definition("v3")["spec"]}))
        .expect(200);
    let gone = json!({"spec": {"versions": [definition("v3")["spec"]["versions"][1]]}});
    let refused = client.merge(&at, &gone).expect(422);
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("status.storedVersions[0]"),
        "{refused}"
    );

    let requests = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    let request = json!({"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": "to-v3"}, "spec": {"resource": {"group": "life.example.io", "resource": "widgets"}}});
    client.post(requests, &request).expect(201);
    until("it succeeds", || {
        let status = client.get(&format!("{requests}/to-v3")).expect(200)["status"].take();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|c| c["type"] == "Succeeded" && c["status"] == "True")
            .then_some(())
    });
    assert_eq!(client.get(&at).expect(200)["status"]["storedVersions"], json!(["v3"]));
    client.merge(&at, &gone).expect(200);
    let kept = client
        .get(&format!("{}/w1", WIDGETS_V2.replace("v2", "v3")))
        .expect(200);
    assert_eq!(kept["spec"], json!({"bytes": 1, "note": "n1"}));
}

/// Returns rules from `v1` to `v2` that require the value to be below a hundred.
fn rules_below_100(name: &str) -> Value {
    let rule = json!({"field": ".spec.size", "destination": ".spec.bytes",
        "transformation": "self < 100 ? self : [1][self]", "mayFail": true});
    let back = json!({"field": ".spec.bytes", "destination": ".spec.size"});
    object(
        "APIConversion",
        name,
        &json!({"conversions": [{"from": "v1", "to": "v2", "rules": [rule]},
            {"from": "v2", "to": "v1", "rules": [back]}]}),
    )
}

/// Returns the condition of this type, or null.
fn condition(client: &Client, path: &str, kind: &str) -> Value {
    let found = client.get(path).expect(200);
    let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

#[test]
fn rollout_waits_for_stored_objects_that_do_not_convert() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at_provider = server.admin().in_workspace(&provider);
    publish(&at_provider, "one", "v1");
    let mut export = object("APIExport", "widgets", &offer("one"));
    export["spec"]["rollout"] = json!({"strategy": "AllOrNothing"});
    at_provider.post(&format!("{APIS}/apiexports"), &export).expect(201);
    let (tenant, cluster) = workspace(&server.admin(), "tenant");
    let at_tenant = server.admin().in_workspace(&tenant);
    bind(&at_tenant, &provider);
    at_tenant.post(WIDGETS_V2, &widget(200)).expect(201);

    let one = "one.widgets.life.example.io";
    for resource in ["apiresourceschemas", "apiconversions"] {
        let refused = at_provider.delete(&format!("{APIS}/{resource}/{one}")).expect(403);
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("1 object in 1 workspace ({tenant}: 1)")),
            "{message}"
        );
    }
    let only_v3 = json!({"group": "life.example.io", "scope": "Namespaced", "names": names(),
        "versions": versions(&["v3"], "v3")});
    let schema = object("APIResourceSchema", "three.widgets.life.example.io", &only_v3);
    at_provider
        .post(&format!("{APIS}/apiresourceschemas"), &schema)
        .expect(201);
    let at = format!("{APIS}/apiexports/widgets");
    let refused = at_provider.merge(&at, &json!({"spec": offer("three")})).expect(422);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("lacks v1, in which 1 object in 1 workspace ({tenant}: 1)")),
        "{message}"
    );

    // Rules that do not fit the object: reads still succeed; export and binding report it.
    let rules = format!("{APIS}/apiconversions/{one}");
    at_provider.merge(&rules, &rules_below_100(one)).expect(200);
    until("the export says why", || {
        (condition(&at_provider, &at, "RolledOut")["reason"] == "StoredObjectsNotConvertible").then_some(())
    });
    let why = condition(&at_provider, &at, "RolledOut")["message"].clone();
    assert!(
        why.as_str()
            .unwrap()
            .contains(&format!("({cluster}: 1), e.g. default/w200 in {cluster}")),
        "{why}"
    );
    let binding = format!("{APIS}/apibindings/widgets");
    assert_eq!(
        condition(&at_tenant, &binding, "BindingUpToDate")["reason"],
        "RolloutBlocked"
    );
    let kept = at_tenant.get(&format!("{WIDGETS_V2}/w200")).expect(200);
    assert_eq!(kept["spec"], json!({"bytes": 200, "note": "n200"}));

    // Without the object nothing blocks the rules.
    at_tenant.delete(&format!("{WIDGETS_V1}/w200")).expect(200);
    until("the new rules serve", || {
        (condition(&at_provider, &at, "RolledOut")["status"] == "True").then_some(())
    });
    let mut large = widget(200);
    large["apiVersion"] = json!("life.example.io/v1");
    large["spec"] = json!({"size": 200});
    at_tenant.post(WIDGETS_V1, &large).expect(422);
}
