//! The notation with one rule an entry: `conversions: [{from, to, field, destination}]`.

use insula_e2e::{Client, shared, workspace};
use serde_json::{Value, json};

fn definition(group: &str) -> Value {
    let version = |name: &str, fields: &[&str]| {
        let fields: serde_json::Map<String, Value> = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!({"type": "string"})))
            .collect();
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let versions = [version("v1", &["a", "c", "e"]), version("v2", &["b", "d", "e"])];
    let names = json!({"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"});
    let spec = json!({"group": group, "scope": "Namespaced", "names": names, "versions": versions});
    let metadata = json!({"name": format!("widgets.{group}")});
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Publishes the rules; returns the status code and the message.
fn publish(client: &Client, group: &str, conversions: &Value) -> (u16, String) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(definitions, &definition(group)).expect(201);
    let metadata = json!({"name": format!("widgets.{group}")});
    let spec = json!({"conversions": conversions});
    let rules =
        json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": metadata, "spec": spec});
    let answer = client.post("/apis/apis.kcp.io/v1alpha1/apiconversions", &rules);
    (answer.code, answer.text)
}

#[test]
fn one_rule_an_entry_is_admitted() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "one-rule").0);
    let conversions = json!([
        {"from": "v1", "to": "v2", "field": ".spec.a", "destination": ".spec.b", "description": "a renamed field"},
        {"from": "v1", "to": "v2", "rule": "self.spec.c + '!'", "field": "spec.d"},
        {"from": "v2", "to": "v1", "field": ".spec.b", "destination": ".spec.a"},
    ]);
    let (code, text) = publish(&client, "one.rule.example.io", &conversions);
    assert_eq!(code, 201, "{text}");
    let described = json!([{"from": "v1", "to": "v2", "rules": [
        {"field": ".spec.a", "destination": ".spec.b", "description": "a renamed field"}]}]);
    let (code, text) = publish(&client, "described.rule.example.io", &described);
    assert_eq!(code, 201, "{text}");
    let twice = json!([
        {"from": "v1", "to": "v2", "field": ".spec.a", "destination": ".spec.b"},
        {"from": "v1", "to": "v2", "field": ".spec.c", "destination": ".spec.b"},
    ]);
    let (code, text) = publish(&client, "twice.rule.example.io", &twice);
    assert!(code == 422 && text.contains("writes .spec.b already"), "{code}: {text}");
}
