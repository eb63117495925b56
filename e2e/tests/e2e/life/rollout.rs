//! Rollout per binding: a tenant whose objects do not fit stays on the previous rules.

use super::{APIS, WIDGETS_V1, WIDGETS_V2, bind, condition, object, offer, publish, rules_below_100, widget};
use insula_e2e::{Client, shared, until, workspace};
use serde_json::{Value, json};

const BINDING: &str = "/apis/apis.kcp.io/v1alpha1/apibindings/widgets";

fn of_size(name: &str, size: usize) -> Value {
    json!({"apiVersion": "life.example.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

/// Waits until the export counts these bindings as moved and held; returns the held ones.
fn counted(provider: &Client, current: usize, held: usize) -> Value {
    until("the export counts its bindings", || {
        let export = provider.get(&format!("{APIS}/apiexports/widgets")).expect(200);
        let rollout = &export["status"]["rollout"];
        let is_it = rollout["current"] == current && rollout["held"] == held;
        is_it.then(|| rollout["heldBindings"].clone())
    })
}

#[test]
fn one_tenant_stays_and_follows_when_its_object_is_corrected() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at_provider = server.admin().in_workspace(&provider);
    publish(&at_provider, "one", "v1");
    let export = object("APIExport", "widgets", &offer("one"));
    at_provider.post(&format!("{APIS}/apiexports"), &export).expect(201);
    let tenants: Vec<(String, Client)> = ["first", "second", "third"]
        .map(|name| {
            let (path, _) = workspace(&server.admin(), name);
            let client = server.admin().in_workspace(&path);
            bind(&client, &provider);
            client.post(WIDGETS_V2, &widget(20)).expect(201);
            (path, client)
        })
        .into();
    let (path, second) = &tenants[1];
    second.post(WIDGETS_V2, &widget(200)).expect(201);

    let one = "one.widgets.life.example.io";
    let rules = format!("{APIS}/apiconversions/{one}");
    at_provider.merge(&rules, &rules_below_100(one)).expect(200);
    let held = counted(&at_provider, 2, 1);
    assert_eq!(held[0]["workspace"], json!(path));
    assert_eq!(held[0]["name"], "widgets");
    let state = condition(second, BINDING, "BindingUpToDate");
    assert_eq!(state["reason"], "RolloutBlocked");
    let message = state["message"].as_str().unwrap();
    assert!(message.contains("e.g. w200: "), "{message}");
    let export = format!("{APIS}/apiexports/widgets");
    assert_eq!(condition(&at_provider, &export, "RolledOut")["status"], "False");

    // The tenant that stays reads and writes by the previous rules, the others by the new ones.
    let kept = second.get(&format!("{WIDGETS_V2}/w200")).expect(200);
    assert_eq!(kept["spec"], json!({"bytes": 200, "note": "n200"}));
    second.post(WIDGETS_V1, &of_size("large", 300)).expect(201);
    for (_, moved) in [&tenants[0], &tenants[2]] {
        assert_eq!(condition(moved, BINDING, "BindingUpToDate")["status"], "True");
        moved.post(WIDGETS_V1, &of_size("large", 300)).expect(422);
        moved.get(&format!("{WIDGETS_V2}/w20")).expect(200);
    }

    // It corrects its objects, and follows by itself.
    for name in ["w200", "large"] {
        let edit = json!({"spec": {"size": 21}});
        second.merge(&format!("{WIDGETS_V1}/{name}"), &edit).expect(200);
    }
    counted(&at_provider, 3, 0);
    assert_eq!(condition(&at_provider, &export, "RolledOut")["status"], "True");
    second.post(WIDGETS_V1, &of_size("larger", 300)).expect(422);
    let note = second.get(&format!("{WIDGETS_V2}/w200")).expect(200);
    assert_eq!(note["spec"], json!({"bytes": 21, "note": "n200"}));
}
