//! Admission policies that spend all that they may: each had a budget of its own, so that sixty of
//! them stopped the server for all tenants.

use insula_e2e::{Answer, Client, publish_widgets, shared, until, workspace};
use serde_json::{Map, Value, json};

const API: &str = "admissionregistration.k8s.io";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Units of one evaluation at most: the expression below always reaches them.
const EXPENSIVE: &str = "object.metadata.annotations.all(k, object.metadata.annotations.all(j, j != k + 'x'))";
/// A patch that changes nothing.
const NOTHING: &str = "[JSONPatch{op: 'test', path: '/kind', value: object.kind}]";
const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget";

/// Creates a policy of some kind for writes of a resource, and its binding.
fn policy(client: &Client, kind: &str, name: &str, (group, resource): (&str, &str), mut spec: Value) {
    let (plural, version) = match kind {
        "ValidatingAdmissionPolicy" => ("validatingadmissionpolic", "v1"),
        _ => ("mutatingadmissionpolic", "v1"),
    };
    spec["matchConstraints"] = json!({"resourceRules": [{
        "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource],
    }]});
    let api_version = format!("{API}/{version}");
    let made = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    client
        .post(&format!("/apis/{api_version}/{plural}ies"), &made)
        .expect(201);
    let mut binding = json!({
        "apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    if kind == "ValidatingAdmissionPolicy" {
        binding["spec"]["validationActions"] = json!(["Deny"]);
    }
    client
        .post(&format!("/apis/{api_version}/{plural}ybindings"), &binding)
        .expect(201);
}

fn validations(failure_policy: &str, expressions: &[&str]) -> Value {
    let expressions: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
    json!({"failurePolicy": failure_policy, "validations": expressions})
}

/// Returns metadata on which [`EXPENSIVE`] reaches the limit of an evaluation.
fn metadata(name: &str) -> Value {
    let annotation = |i: usize| (format!("example.io/{i}"), json!(""));
    json!({"name": name, "annotations": Map::from_iter((0..2_000).map(annotation))})
}

fn create(client: &Client, name: &str) -> Answer {
    client.post(
        MAPS,
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name)}),
    )
}

#[track_caller]
fn assert_out_of_budget(refused: &Answer, by: &str) {
    assert_eq!(refused.code, 422, "{}", refused.text);
    let message = refused.body["message"].as_str().unwrap();
    let by = format!("ValidatingAdmissionPolicy '{by}' with binding '{by}' denied request: {OUT_OF_BUDGET}");
    assert!(message.contains(&by), "{message}");
}

#[test]
fn validating_policies_of_a_write_share_a_budget() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "policies").0);
    let kind = "ValidatingAdmissionPolicy";
    let maps = ("", "configmaps");
    // As in Kubernetes each may spend ten times what one evaluation may.
    for name in ["a", "b"] {
        policy(&client, kind, name, maps, validations("Ignore", &[EXPENSIVE; 10]));
    }
    // The third is not evaluated any more, which its failure policy ignores; the fourth does not.
    policy(&client, kind, "c", maps, validations("Ignore", &["false"]));
    policy(&client, kind, "d", maps, validations("Fail", &["true"]));
    assert_out_of_budget(&create(&client, "map"), "d");
    // Other writes have their own budget.
    let small = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}});
    let denied = client.post(MAPS, &small);
    assert_eq!(denied.code, 422);
    assert!(
        denied.text.contains("'c' with binding 'c' denied request"),
        "{}",
        denied.text
    );
}

#[test]
fn mutating_policies_and_conditions_spend_the_same_budget() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "policies").0);
    let maps = ("", "configmaps");
    // The conditions of a policy may spend a quarter of what its other expressions may.
    let condition = |i: usize| json!({"name": format!("c{i}"), "expression": EXPENSIVE});
    let conditions: Vec<Value> = (0..3).map(condition).collect();
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": NOTHING}});
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let spec = json!({
            "failurePolicy": "Ignore", "reinvocationPolicy": "Never",
            "matchConditions": conditions, "mutations": [mutation],
        });
        policy(&client, "MutatingAdmissionPolicy", name, maps, spec);
    }
    policy(
        &client,
        "ValidatingAdmissionPolicy",
        "last",
        maps,
        validations("Fail", &["true"]),
    );
    assert_out_of_budget(&create(&client, "map"), "last");
}

/// The policies of a provider hold in the workspaces of tenants, whatever tenants spend.
#[test]
fn no_tenant_spends_the_budget_of_a_provider() {
    let server = shared();
    let admin = server.admin();
    let provider = workspace(&admin, "provider").0;
    let tenant = admin.in_workspace(&workspace(&admin, "tenant").0);
    publish_widgets(&admin.in_workspace(&provider));
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": provider, "name": "widgets"}}}});
    tenant
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    let widgets = "/apis/example.io/v1/namespaces/default/widgets";
    until("widgets are served", || (tenant.get(widgets).code == 200).then_some(()));
    let of = ("example.io", "widgets");
    let short = validations("Ignore", &["size(object.spec.firstName) <= 5"]);
    policy(
        &admin.in_workspace(&provider),
        "ValidatingAdmissionPolicy",
        "short",
        of,
        short,
    );
    let mutation =
        json!({"patchType": "JSONPatch", "jsonPatch": {"expression": format!("{EXPENSIVE} ? {NOTHING} : {NOTHING}")}});
    for i in 0..21 {
        let spec = json!({"failurePolicy": "Ignore", "reinvocationPolicy": "Never", "mutations": [mutation]});
        policy(&tenant, "MutatingAdmissionPolicy", &format!("m{i}"), of, spec);
    }
    policy(
        &tenant,
        "ValidatingAdmissionPolicy",
        "last",
        of,
        validations("Fail", &["true"]),
    );
    let create = |name: &str, first: &str| {
        let spec = json!({"firstName": first});
        let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": metadata(name), "spec": spec});
        tenant.post(widgets, &widget)
    };
    let denied = create("long", "Annabella");
    assert_eq!(denied.code, 422, "{}", denied.text);
    assert!(
        denied.text.contains("'short' with binding 'short' denied request"),
        "{}",
        denied.text
    );
    assert_out_of_budget(&create("fine", "Ann"), "last");
}
