//! Cost of conversion rules over published schemas, which have no bounds.

use crate::tools::ran;
use insula_e2e::{Client, shared, workspace};
use serde_json::{Value, json};
use std::fs;

/// Ordinary expressions over Tekton's Task: source, destination, expression.
const ORDINARY: [(&str, &str, &str); 10] = [
    ("spec.steps[i].image", "spec.steps[].image", "self.lowerAscii()"),
    ("spec.steps[i].name", "spec.steps[].name", "self.trim()"),
    ("spec.steps[i].script", "spec.steps[].script", "self.replace('a', 'b')"),
    ("spec.steps[i].workingDir", "spec.steps[].workingDir", "'/' + self"),
    (
        "spec.steps[i].timeout",
        "spec.steps[].timeout",
        "self.contains('h') ? self : self + 's'",
    ),
    ("spec.steps[i].args[j]", "spec.steps[].args[]", "self.upperAscii()"),
    ("spec.steps[i].env[j].value", "spec.steps[].env[].value", "self + '!'"),
    (
        "spec.params[i].description",
        "spec.params[].description",
        "self.split(':')[0]",
    ),
    ("spec.sidecars[i].image", "spec.sidecars[].image", "self.lowerAscii()"),
    ("spec.steps", "spec.description", "self.map(s, s.name).join(',')"),
];

fn rules(name: &str, (field, destination, transformation): (&str, &str, &str)) -> Value {
    let rule = json!({"field": field, "destination": destination, "transformation": transformation, "mayFail": true});
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": {"conversions": [{"from": "v1", "to": "v1beta1", "rules": [rule]}]}})
}

#[test]
fn ordinary_expressions_over_a_published_schema_are_affordable() {
    let file = "/work/shared/testdata/real/tekton-task/crd.yaml";
    let Ok(definition) = fs::read_to_string(file) else {
        return;
    };
    for ordinary in ORDINARY {
        let text = format!("{definition}\n---\n{}\n", rules("tasks.tekton.dev", ordinary));
        let (_, out, error) = ran(&["conversion", "test", "--cases", "3", "-f", "-"], &text);
        let all = out + &error;
        assert!(
            !all.contains("estimated cost") && !all.contains("grows faster"),
            "{ordinary:?}\n{all}"
        );
        assert!(all.contains("v1beta1"), "{ordinary:?}\n{all}");
    }
}

fn publish(client: &Client, group: &str, expression: &str) -> (u16, String) {
    let steps = json!({"type": "array", "items": {"type": "object", "properties": {"image": {"type": "string"}}}});
    let fields = json!({"steps": steps, "count": {"type": "integer"}, "names": {"type": "array",
        "items": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let schema = json!({"openAPIV3Schema": schema});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema});
    let names = json!({"kind": "Job", "listKind": "JobList", "plural": "jobs", "singular": "job"});
    let name = format!("jobs.{group}");
    let spec = json!({"group": group, "scope": "Namespaced", "names": names,
        "versions": [version("v1"), version("v1beta1")]});
    let (api, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definition = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec});
    client
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .expect(201);
    let mut rules = rules(&name, ("spec.steps", "spec.names", expression));
    // Both versions have the field that the rule writes.
    rules["spec"]["conversions"][0]["drop"] = json!([".spec.names"]);
    let answer = client.post("/apis/apis.kcp.io/v1alpha1/apiconversions", &rules);
    (answer.code, answer.text)
}

#[test]
fn a_server_admits_linear_rules_and_refuses_quadratic_ones() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "price").0);
    let linear = "self.map(s, s.image.lowerAscii() + '!')";
    let (code, text) = publish(&client, "linear.price.example.io", linear);
    assert_eq!(code, 201, "{text}");
    let quadratic = "self.filter(a, self.exists(b, b.image != a.image)).map(s, s.image)";
    let (code, text) = publish(&client, "quadratic.price.example.io", quadratic);
    assert!(
        code == 422 && text.contains("grows faster than its size"),
        "{code}: {text}"
    );
    assert!(text.contains(".spec.steps has no maxItems"), "{text}");
}
