//! Publications that meet other writes of the export between their read and their write.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use insula_e2e::{Hook, Reply, Server, until, workspace};
use serde_json::{Value, json};

use crate::tools::ran;

const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/example.io";

/// Returns a definition with fields of its only version.
fn gears(fields: &[&str]) -> String {
    let fields: serde_json::Map<String, Value> = fields
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"}},
    })
    .to_string()
}

/// Publishes a release while somebody else patches the export before the first write arrives.
/// Returns the exit code and the output.
fn interrupted(patch: &Value) -> (i32, String) {
    let server = Server::with_flags(&["--webhook-allow", "127.0.0.1", "--store", "memory"]);
    let (provider, _) = workspace(&server.admin(), "provider");
    let at = server.admin().in_workspace(&provider);
    let kubeconfig = server.kubeconfig();
    let publish = |definition: &str| {
        let to = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--workspace", &provider];
        let (code, out, error) = ran(
            &[&["export", "publish", "-f", "-", "--apply"], &to[..]].concat(),
            definition,
        );
        (code, out + &error)
    };
    let (code, said) = publish(&gears(&["size"]));
    assert_eq!(code, 0, "{said}");

    let writes = Arc::new(AtomicUsize::new(0));
    let (count, other, patch) = (Arc::clone(&writes), at.clone(), patch.clone());
    let hook = Hook::start(&server, move |_, review| {
        let is_probe = review["request"]["object"]["metadata"]["labels"]["probe"].is_string();
        if !is_probe && count.fetch_add(1, Ordering::SeqCst) == 1 {
            // The patch calls the webhook as well. Its thread may wait, which this one may not.
            let (other, patch) = (other.clone(), patch.clone());
            let patched = std::thread::spawn(move || other.merge(EXPORT, &patch).expect(200));
            patched.join().unwrap();
        }
        Reply::Json(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true},
        }))
    });
    let rule = json!({"apiGroups": ["apis.kcp.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["apiexports"]});
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "interrupts"},
        "webhooks": [{"name": "interrupts.example.io", "clientConfig": hook.client_config("/"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [rule]}],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    at.post(hooks, &configuration).expect(201);
    until("the webhook is called", || {
        at.merge(EXPORT, &json!({"metadata": {"labels": {"probe": "1"}}}))
            .expect(200);
        (!hook.take("/").is_empty()).then_some(())
    });
    at.merge(EXPORT, &json!({"metadata": {"labels": null}})).expect(200);
    assert_eq!(writes.load(Ordering::SeqCst), 1, "the removal of the label");
    publish(&gears(&["size", "teeth"]))
}

#[test]
fn a_write_of_something_else_is_no_obstacle() {
    let (code, said) = interrupted(&json!({"metadata": {"labels": {"team": "gears"}}}));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("updated"), "{said}");
}

#[test]
fn another_publication_is_not_overwritten() {
    let (code, said) = interrupted(&json!({"spec": {"resources": []}}));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("somebody else changed it at the same time"), "{said}");
}
