//! Pages of converted lists, which workers of low priority convert: they take no turns with the
//! requests of others, and leave them room.

use super::compute::{DEFINITIONS, MAPS, as_user, map};
use insula_e2e::{Client, Server, until, workspace_owned_by};
use serde_json::{Value, json};
use std::thread;

const ITEMS: usize = 150;
const OBJECTS: usize = 150;

fn pumps(version: &str) -> String {
    format!("/apis/pages.example.io/{version}/namespaces/default/pumps")
}

/// Defines pumps, whose items each of two versions names and shows after a costly look at them.
fn define(at: &Client) {
    let version = |name: &str, field: &str| {
        let text = json!({"type": "string", "maxLength": 10});
        let fields = json!({field: {"type": "array", "maxItems": ITEMS, "items": text}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pumps.pages.example.io"},
        "spec": {
            "group": "pages.example.io", "scope": "Namespaced", "names": {"plural": "pumps", "kind": "Pump"},
            "versions": [version("v1", "items"), version("v2", "list"), version("v3", "all")],
        },
    });
    at.post(DEFINITIONS, &definition).expect(201);
    let directions = [("v2", ".spec.list"), ("v3", ".spec.all")].map(|(to, field)| {
        let look = "self.all(a, self.all(b, a != b + 'x')) ? self : self";
        let there = json!({"field": ".spec.items", "destination": field, "transformation": look});
        let back = json!({"field": field, "destination": ".spec.items"});
        [
            json!({"from": "v1", "to": to, "rules": [there]}),
            json!({"from": to, "to": "v1", "rules": [back]}),
        ]
    });
    let rules = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": "pumps.pages.example.io"},
        "spec": {"conversions": directions.concat()},
    });
    at.post("/apis/apis.kcp.io/v1alpha1/apiconversions", &rules).expect(201);
    until("they are served", || (at.get(&pumps("v2")).code == 200).then_some(()));
}

fn pump(n: usize) -> Value {
    let items: Vec<String> = (0..ITEMS).map(|item| format!("{n}i{item}")).collect();
    json!({"apiVersion": "pages.example.io/v1", "kind": "Pump", "metadata": {"name": format!("p{n}")},
        "spec": {"items": items}})
}

#[test]
fn converted_lists_leave_room_for_neighbours() {
    let server = Server::start();
    let alice = as_user(&server, "alice", &workspace_owned_by(&server, "alice").0);
    let bob = as_user(&server, "bob", &workspace_owned_by(&server, "bob").0);
    bob.post(MAPS, &map("mine")).expect(201);
    [&alice, &bob].into_iter().for_each(define);
    for n in 0..OBJECTS {
        alice.post(&pumps("v1"), &pump(n)).expect(201);
    }
    bob.post(&pumps("v1"), &pump(0)).expect(201);
    let lists: Vec<_> = (0..16)
        .map(|n| {
            let (alice, path) = (alice.clone(), pumps(["v2", "v3"][n % 2]));
            thread::spawn(move || alice.get(&path).expect(200)["items"].as_array().map_or(0, Vec::len))
        })
        .collect();
    let are_in_progress = || lists.iter().filter(|list| !list.is_finished()).count() > 8;
    let mut answered = 0;
    while are_in_progress() {
        bob.get(&format!("{MAPS}/mine")).expect(200);
        // A page waits for the pieces in progress, not for the lists.
        bob.get(&pumps("v2")).expect(200);
        answered += usize::from(are_in_progress());
    }
    assert!(lists.into_iter().all(|list| list.join().unwrap() == OBJECTS));
    assert!(
        answered >= 20,
        "{answered} answers for a neighbour beside nine lists and more"
    );
}
