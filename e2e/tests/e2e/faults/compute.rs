//! Requests that compute for long: each takes turns with others, and ends with its CPU time.

use std::thread;

use insula_e2e::{Client, Server, Setup, Who, runtime, until, workspace, workspace_owned_by};
use insula_proto::{
    admin::v1::{ApplyObjectRequest, object_service_client::ObjectServiceClient},
    value::from_json,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::grpc::{self, client};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SUMS: &str = "/apis/burn.example.io/v1/namespaces/default/sums";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

pub(super) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// A rule that spends all that the rules of an object may.
fn definition() -> Value {
    let list = json!({"type": "array", "maxItems": 600, "items": {"type": "string", "maxLength": 10}});
    let rule = json!({"rule": "self.list.all(a, self.list.all(b, a != b + 'x'))"});
    let spec = json!({"type": "object", "properties": {"list": list}, "x-kubernetes-validations": [rule]});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sums.burn.example.io"},
        "spec": {
            "group": "burn.example.io", "scope": "Namespaced", "names": {"plural": "sums", "kind": "Sum"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn sum(name: usize) -> Value {
    let list: Vec<String> = (0..600).map(|item| format!("i{item}")).collect();
    json!({
        "apiVersion": "burn.example.io/v1", "kind": "Sum", "metadata": {"name": format!("s{name}")},
        "spec": {"list": list},
    })
}

pub(super) fn as_user(server: &Server, user: &str, place: &str) -> Client {
    server.client(Who::Token(format!("{user}-token"))).in_workspace(place)
}

/// Defines sums in a workspace of alice, and a map in one of bob. Returns alice's workspace, and
/// bob in his.
fn burning(server: &Server) -> (String, Client) {
    let (place, _) = workspace_owned_by(server, "alice");
    let alice = as_user(server, "alice", &place);
    let bob = as_user(server, "bob", &workspace_owned_by(server, "bob").0);
    bob.post(MAPS, &map("mine")).expect(201);
    alice.post(DEFINITIONS, &definition()).expect(201);
    until("sums are served", || (alice.get(SUMS).code == 200).then_some(()));
    (place, bob)
}

/// Checks that bob is answered, again and again, while most of a burst computes.
fn assert_answers(bob: &Client, computing: impl Fn() -> usize) {
    for _ in 0..10 {
        bob.get(&format!("{MAPS}/mine")).expect(200);
    }
    let computing = computing();
    assert!(computing > 8, "{computing} of the burst were still computing");
}

/// The rules of a small object ran whole on a thread that answers: sixteen requests kept all of
/// them, and everybody else waited.
#[test]
fn a_burst_of_costly_rules_delays_no_other_tenant() {
    let server = Server::start();
    let (place, bob) = burning(&server);
    let burst: Vec<_> = (0..16)
        .map(|n| {
            let alice = as_user(&server, "alice", &place);
            thread::spawn(move || alice.post(SUMS, &sum(n)).code)
        })
        .collect();
    assert_answers(&bob, || burst.iter().filter(|request| !request.is_finished()).count());
    // Their rules run out of their budget.
    let codes: Vec<u16> = burst.into_iter().map(|request| request.join().unwrap()).collect();
    assert_eq!(codes, [422; 16]);
}

#[test]
fn a_burst_of_costly_calls_delays_no_other_tenant() {
    let server = Server::start();
    let (place, bob) = burning(&server);
    let burst: Vec<_> = (0..16)
        .map(|n| {
            let mut client = client!(ObjectServiceClient<_>, server, Who::Anonymous);
            let mut object = sum(n);
            object["metadata"]["namespace"] = json!("default");
            let applied = ApplyObjectRequest {
                workspace: place.clone(),
                object: Some(from_json(object.as_object().unwrap()).unwrap()),
                field_manager: "burst".to_owned(),
                ..ApplyObjectRequest::default()
            };
            let applied = grpc::as_user("alice-token", applied);
            runtime().spawn(async move { client.apply_object(applied).await.unwrap_err().code() })
        })
        .collect();
    assert_answers(&bob, || burst.iter().filter(|call| !call.is_finished()).count());
    for call in burst {
        assert_eq!(runtime().block_on(call).unwrap(), Code::InvalidArgument);
    }
}

/// Each deletion of a collection may spend what policies may: their sum is bounded by the request.
#[test]
fn a_request_ends_with_its_cpu_time() {
    let server = Server::with(Setup::limits(&[("COMPUTE_SECONDS", "1")]));
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "compute").0);
    let annotations: Value = (0..2_000).map(|n| (format!("example.io/{n}"), json!(""))).collect();
    for n in 0..40 {
        let mut map = map(&format!("map-{n}"));
        map["metadata"]["annotations"] = annotations.clone();
        client.post(MAPS, &map).expect(201);
    }
    let costly = "oldObject.metadata.annotations.all(k, oldObject.metadata.annotations.all(j, j != k + 'x'))";
    let deletions = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"],
    }]});
    for name in ["a", "b"] {
        let validations = vec![json!({"expression": costly}); 10];
        let spec = json!({"failurePolicy": "Ignore", "matchConstraints": deletions, "validations": validations});
        let kind = "ValidatingAdmissionPolicy";
        let api_version = "admissionregistration.k8s.io/v1";
        let policy = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        client
            .post(&format!("{POLICIES}/validatingadmissionpolicies"), &policy)
            .expect(201);
        let binding = json!({
            "apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        client
            .post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &binding)
            .expect(201);
    }
    let refused = client.delete(MAPS).expect(504);
    assert_eq!(refused["reason"], "Timeout", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("limits.computeSeconds"), "{message}");
    // The deletion that it was at did not happen, and those after it neither.
    let left = client.get(MAPS).expect(200)["items"].as_array().unwrap().len();
    assert!((1..=41).contains(&left), "{left}");
}
