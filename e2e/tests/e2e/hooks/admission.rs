//! Admission webhooks that validate and mutate writes.

use insula_e2e::{Client, Hook, Reply, workspace};
use serde_json::{Value, json};

use super::server;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Allows, refuses or mutates a write, depending on the path.
fn judge(path: &str, review: &Value) -> Reply {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    match path {
        "/label" => {
            let labels = &request["object"]["metadata"]["labels"];
            let patch = match labels["seen"].is_null() {
                true if labels.is_object() => json!([{"op": "add", "path": "/metadata/labels/seen", "value": "1"}]),
                true => json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "1"}}]),
                false => json!([{"op": "replace", "path": "/metadata/labels/seen", "value": "2"}]),
            };
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(insula_e2e::base64(patch.to_string().as_bytes()));
        }
        "/data" => {
            let patch = json!([{"op": "add", "path": "/data", "value": {"made": "by a webhook"}}]);
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(insula_e2e::base64(patch.to_string().as_bytes()));
        }
        "/warn" => response["warnings"] = json!(["mind the gap"]),
        "/deny" => {
            response["allowed"] = json!(false);
            response["status"] = json!({"message": "no such names", "code": 403, "reason": "Forbidden"});
        }
        "/mute" => response["allowed"] = json!(false),
        "/uid" => response["uid"] = json!("another"),
        "/hang" => return Reply::Hang,
        _ => {}
    }
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
}

/// Creates a configuration of one webhook for ConfigMaps, with extra fields. It takes effect at
/// once.
fn configure(at: &Client, mutating: bool, name: &str, client: &Value, more: Value) {
    let mut hook = json!({
        "name": format!("{name}.hooks.example.io"), "clientConfig": client, "sideEffects": "None", "timeoutSeconds": 2,
        "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
    });
    for (field, value) in more.as_object().unwrap() {
        hook[field] = value.clone();
    }
    let (kind, resource) = match mutating {
        true => ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        false => ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    };
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": [hook]});
    at.post(&format!("{ADMISSION}/{resource}"), &configuration).expect(201);
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[test]
fn mutating_webhooks_change_written_objects() {
    let server = server();
    let hook = Hook::start(&server, judge);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    configure(&at, true, "a-label", &hook.client_config("/label"), again);
    let only = json!({"matchConditions": [{"name": "named", "expression": "object.metadata.name == 'b'"}]});
    configure(&at, true, "b-data", &hook.client_config("/data"), only);

    let a = at.post(MAPS, &map("a")).expect(201);
    assert_eq!(a["metadata"]["labels"], json!({"seen": "1"}));
    let asked = hook.take("/label");
    assert_eq!(asked.len(), 1);
    let request = &asked[0]["request"];
    assert_eq!(asked[0]["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(
        request["kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    assert_eq!(request["namespace"], "default");
    assert_eq!(request["object"]["metadata"]["name"], "a");
    assert_eq!(request["oldObject"], Value::Null);
    // A later webhook mutated it, so the first one is reinvoked.
    let b = at.post(MAPS, &map("b")).expect(201);
    assert_eq!(b["metadata"]["labels"], json!({"seen": "2"}));
    assert_eq!(b["data"], json!({"made": "by a webhook"}));
    // An update shows both objects.
    hook.take("/label");
    at.merge(&format!("{MAPS}/a"), &json!({"data": {"x": "y"}})).expect(200);
    let asked = hook.take("/label");
    assert_eq!(asked[0]["request"]["operation"], "UPDATE");
    assert_eq!(
        asked[0]["request"]["oldObject"]["metadata"]["labels"],
        json!({"seen": "1"})
    );
    assert_eq!(asked[0]["request"]["object"]["data"], json!({"x": "y"}));
}

#[test]
fn validating_webhooks_admit_or_refuse_writes() {
    let server = server();
    let hook = Hook::start(&server, judge);
    let (path, _) = workspace(&server.admin(), "hooks");
    let at = server.admin().in_workspace(&path);
    at.post(MAPS, &map("old")).expect(201);
    let address = hook.client_config("")["url"].as_str().unwrap().to_owned();
    let one = |name: &str, path: &str, more: Value| configure(&at, false, name, &hook.client_config(path), more);
    let gone = |name: &str| {
        let resource = format!("{ADMISSION}/validatingwebhookconfigurations/{name}");
        at.delete(&resource).expect(200);
    };
    one("warn", "/warn", json!({}));
    let warned = at.post(MAPS, &map("warned"));
    assert_eq!(warned.code, 201, "{}", warned.text);
    assert_eq!(warned.headers["warning"], "299 - \"mind the gap\"");

    one("deny", "/deny", json!({}));
    let refused = at.post(MAPS, &map("a")).expect(403);
    assert_eq!(
        refused["message"],
        "admission webhook \"deny.hooks.example.io\" denied the request: no such names"
    );
    assert_eq!(refused["reason"], "Forbidden");
    at.get(&format!("{MAPS}/a")).expect(404);
    at.merge(&format!("{MAPS}/old"), &json!({"data": {"a": "b"}}))
        .expect(403);
    at.delete(&format!("{MAPS}/old")).expect(403);
    // Requests that its rules do not match pass.
    let mut free = map("free");
    free["metadata"]["labels"] = json!({"free": "yes"});
    at.post(MAPS, &free).expect(201);
    gone("deny");
    at.merge(&format!("{MAPS}/old"), &json!({"data": {"a": "b"}}))
        .expect(200);

    one("mute", "/mute", json!({}));
    let refused = at.post(MAPS, &map("a")).expect(400);
    assert_eq!(
        refused["message"],
        "admission webhook \"mute.hooks.example.io\" denied the request without explanation"
    );
    gone("mute");

    for (path, why) in [
        (
            "/uid",
            "received invalid webhook response: expected response.uid=".to_owned(),
        ),
        (
            "/hang",
            format!("failed to call webhook: Post \"{address}/hang?timeout=2s\": context deadline exceeded"),
        ),
    ] {
        one("broken", path, json!({}));
        let refused = at.post(MAPS, &map("a")).expect(500);
        let message = refused["message"].as_str().unwrap();
        let want = format!("Internal error occurred: failed calling webhook \"broken.hooks.example.io\": {why}");
        assert!(message.starts_with(&want), "{message}");
        gone("broken");
    }
    // `failurePolicy: Ignore` lets the request pass.
    one("ignored", "/uid", json!({"failurePolicy": "Ignore"}));
    at.post(MAPS, &map("a")).expect(201);
}

/// A provider's webhooks review the objects of its API in every workspace that binds it, and
/// nothing else there. The review names the workspace.
#[test]
fn webhooks_of_a_provider_apply_in_every_consumer() {
    let server = server();
    let hook = Hook::start(&server, judge);
    let admin = server.admin();
    let (offered, _) = workspace(&admin, "provider");
    let (bound, cluster) = workspace(&admin, "tenant");
    let (provider, tenant) = (admin.in_workspace(&offered), admin.in_workspace(&bound));
    insula_e2e::publish_widgets(&provider);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": offered, "name": "widgets"}}}});
    tenant
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    let widgets = "/apis/example.io/v1/namespaces/default/widgets";
    insula_e2e::until("the API", || (tenant.get(widgets).code == 200).then_some(()));
    let widget = |name: &str| json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}});
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]);
    for (name, mutating) in [("label", true), ("deny", false)] {
        let more = json!({"rules": rules});
        configure(
            &provider,
            mutating,
            name,
            &hook.client_config(&format!("/{name}")),
            more,
        );
        match mutating {
            true => {
                let made = tenant.post(widgets, &widget("a")).expect(201);
                assert_eq!(made["metadata"]["labels"], json!({"seen": "1"}));
            }
            false => drop(tenant.post(widgets, &widget("b")).expect(403)),
        }
        let asked = hook.take(&format!("/{name}"));
        let object = &asked[0]["request"]["object"];
        assert_eq!(object["metadata"]["annotations"]["kcp.io/cluster"], json!(cluster));
    }
    tenant.post(MAPS, &map("own")).expect(201);
}
