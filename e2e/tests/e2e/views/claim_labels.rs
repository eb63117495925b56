//! The label by which providers that were written for kcp find claimed objects: shown to the
//! provider alone, and never stored.

use insula_e2e::{Client, Server, shared, until, workspace};
use serde_json::{Value, json};
use std::sync::Arc;

const PREFIX: &str = "claimed.internal.apis.kcp.io/";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns the label of a claim on an object.
fn label(object: &Value) -> Option<(String, String)> {
    let labels = object["metadata"]["labels"].as_object()?;
    let (key, value) = labels.iter().find(|(key, _)| key.starts_with(PREFIX))?;
    Some((key.clone(), value.as_str().unwrap().to_owned()))
}

/// Creates a provider that claims ConfigMaps with a label, and a tenant that accepts. Returns the
/// server, and the tenant from within and as the provider sees it.
fn claimed() -> (Arc<Server>, Client, Client, Client) {
    let server = shared();
    let admin = server.admin();
    let (provider, cluster) = workspace(&admin, "claims");
    let (tenant, tenant_cluster) = workspace(&admin, "claimed");
    let (at_provider, within) = (admin.in_workspace(&provider), admin.in_workspace(&tenant));
    let claim = json!({"resource": "configmaps", "verbs": ["*"]});
    let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "maps"},
        "spec": {"permissionClaims": [claim]}});
    at_provider
        .post("/apis/apis.kcp.io/v1alpha2/apiexports", &export)
        .expect(201);
    let mut accepted = claim;
    accepted["state"] = json!("Accepted");
    accepted["selector"] = json!({"matchLabels": {"share": "yes"}});
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "maps"},
        "spec": {"reference": {"export": {"path": provider, "name": "maps"}}, "permissionClaims": [accepted]}});
    within
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    let view = format!("/services/apiexport/{cluster}/maps/clusters");
    let seen = admin.below(&format!("{view}/{tenant_cluster}"));
    let everywhere = admin.below(&format!("{view}/*"));
    until("the claim is granted", || (seen.get(MAPS).code == 200).then_some(()));
    (server, within, seen, everywhere)
}

fn map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

#[test]
fn claimed_objects_are_shown_with_the_label_of_kcp() {
    let (_server, within, seen, everywhere) = claimed();
    within.post(MAPS, &map("a", json!({"share": "yes"}))).expect(201);
    within.post(MAPS, &map("own", json!({"share": "no"}))).expect(201);
    let (key, value) = label(&seen.get(&format!("{MAPS}/a")).expect(200)).expect("a label");
    let made = seen.post(MAPS, &map("b", json!({"share": "yes"}))).expect(201);
    assert_eq!(label(&made), Some((key.clone(), value.clone())));
    let selector = |text: &str| text.replace('=', "%3D").replace('/', "%2F").replace('!', "%21");
    let names = |client: &Client, path: &str, text: &str| -> Vec<String> {
        let list = client
            .get(&format!("{path}?labelSelector={}", selector(text)))
            .expect(200);
        let items = list["items"].as_array().unwrap();
        assert!(items.iter().all(|item| label(item).is_some()), "{list}");
        let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    let whole = format!("{key}={value}");
    for (text, want) in [
        (whole.as_str(), &["a", "b"][..]),
        (&key, &["a", "b"]),
        (&format!("{whole},share=no"), &[]),
        (&format!("{key}=other"), &[]),
        (&format!("!{key}"), &[]),
    ] {
        assert_eq!(names(&seen, MAPS, text), want, "{text}");
        assert_eq!(names(&everywhere, "/api/v1/configmaps", text), want, "{text}");
    }
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for accept in [partial, table] {
        let list = seen.get_with(MAPS, &[("accept", accept)]).expect(200);
        let rows = list["items"].as_array().or(list["rows"].as_array()).expect("a list");
        assert!(
            rows.len() == 2 && rows.iter().all(|row| row.to_string().contains(&key)),
            "{list}"
        );
    }
    let first = everywhere.watch(
        &format!("/api/v1/configmaps?watch=true&labelSelector={}", selector(&whole)),
        |event| Some(event["object"].clone()),
    );
    assert_eq!(label(&first.expect("an event")), Some((key, value)));
    let tenants = within.get(MAPS).expect(200);
    assert!(!tenants.to_string().contains(PREFIX), "{tenants}");
}

/// A provider reads an object, changes it and sends it back, with the label that it was shown.
#[test]
fn the_label_is_never_stored() {
    let (_server, within, seen, _) = claimed();
    let path = format!("{MAPS}/a");
    let mut object = seen.post(MAPS, &map("a", json!({"share": "yes"}))).expect(201);
    object["data"] = json!({"a": "b"});
    let updated = seen.put(&path, &object).expect(200);
    assert_eq!(label(&updated), label(&object));
    let (key, _) = label(&object).expect("a label");
    let patched = seen
        .merge(
            &path,
            &json!({"metadata": {"labels": {&*key: "mine"}}, "data": {"c": "d"}}),
        )
        .expect(200);
    assert_eq!(label(&patched), label(&object));
    within
        .merge(
            &path,
            &json!({"metadata": {"labels": {&*key: "theirs"}}, "data": {"e": "f"}}),
        )
        .expect(200);
    let stored = within.get(&path).expect(200);
    assert_eq!(stored["data"], json!({"a": "b", "c": "d", "e": "f"}));
    assert!(!stored.to_string().contains(PREFIX), "{stored}");
    within.delete(&path).expect(200);
}

/// A patch is made of the object as the provider sees it, and an apply owns what is stored.
#[test]
fn patches_see_the_label_and_applies_do_not_own_it() {
    let (_server, within, seen, _) = claimed();
    let path = format!("{MAPS}/a");
    let object = seen.post(MAPS, &map("a", json!({"share": "yes"}))).expect(201);
    let (key, value) = label(&object).expect("a label");
    let pointer = format!("/metadata/labels/{}", key.replace('/', "~1"));
    let patch = |operations: Value| {
        let content = [("content-type", "application/json-patch+json")];
        let body = operations.to_string().into();
        seen.try_send("PATCH", &path, &content, body).expect("an answer")
    };
    let patched = patch(json!([
        {"op": "test", "path": pointer, "value": value},
        {"op": "remove", "path": pointer},
        {"op": "add", "path": "/data", "value": {"a": "b"}},
    ]));
    assert_eq!(label(&patched.expect(200)), label(&object));
    let wrong = patch(json!([{"op": "test", "path": pointer, "value": "another"}]));
    assert_eq!(wrong.code, 422, "{wrong:?}");
    let before = within.get(&path).expect(200);
    // A patch that changes the label alone changes nothing.
    patch(json!([{"op": "replace", "path": pointer, "value": "mine"}])).expect(200);
    assert_eq!(within.get(&path).expect(200), before);

    let mut config = map("a", json!({&*key: value, "share": "yes"}));
    config["data"] = json!({"b": "c"});
    let content = [("content-type", "application/apply-patch+yaml")];
    for name in ["a", "c"] {
        config["metadata"]["name"] = json!(name);
        let query = format!("{MAPS}/{name}?fieldManager=provider&force=true");
        let applied = seen.try_send("PATCH", &query, &content, config.to_string().into());
        let code = if name == "a" { 200 } else { 201 };
        assert_eq!(label(&applied.expect("an answer").expect(code)), label(&object));
        let stored = within.get(&format!("{MAPS}/{name}")).expect(200);
        let owned = stored["metadata"]["managedFields"].to_string();
        assert!(
            owned.contains("f:share") && !stored.to_string().contains(PREFIX),
            "{stored}"
        );
    }
}

#[test]
fn a_collection_is_deleted_by_the_label() {
    let (_server, within, seen, _) = claimed();
    within.post(MAPS, &map("own", json!({"share": "no"}))).expect(201);
    let object = seen.post(MAPS, &map("a", json!({"share": "yes"}))).expect(201);
    let (key, value) = label(&object).expect("a label");
    let names = || -> Vec<String> {
        let list = within.get(MAPS).expect(200);
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let query = |value: &str| format!("{MAPS}?labelSelector={}%3D{value}", key.replace('/', "%2F"));
    seen.delete(&query("other")).expect(200);
    assert!(names().contains(&"a".to_owned()), "{:?}", names());
    let deleted = seen.delete(&query(&value)).expect(200);
    assert_eq!(label(&deleted["items"][0]), label(&object));
    assert!(
        !names().contains(&"a".to_owned()) && names().contains(&"own".to_owned()),
        "{:?}",
        names()
    );
}
