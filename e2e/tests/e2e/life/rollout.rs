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
            let (path, cluster) = workspace(&server.admin(), name);
            let client = server.admin().in_workspace(&path);
            bind(&client, &provider);
            client.post(WIDGETS_V2, &widget(20)).expect(201);
            (cluster, client)
        })
        .into();
    let (cluster, second) = &tenants[1];
    second.post(WIDGETS_V2, &widget(200)).expect(201);

    let one = "one.widgets.life.example.io";
    let rules = format!("{APIS}/apiconversions/{one}");
    at_provider.merge(&rules, &rules_below_100(one)).expect(200);
    let held = counted(&at_provider, 2, 1);
    assert_eq!(held[0]["workspace"], json!(cluster));
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

/// A rollout in steps comes to the bindings with a label first, pauses, and comes to the others
/// when the pause ends.
#[test]
fn bindings_move_in_steps() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "steps");
    let at_provider = server.admin().in_workspace(&provider);
    publish(&at_provider, "one", "v1");
    let export = object("APIExport", "widgets", &offer("one"));
    at_provider.post(&format!("{APIS}/apiexports"), &export).expect(201);
    let tenants = ["early", "late", "later"].map(|name| {
        let client = server.admin().in_workspace(&workspace(&server.admin(), name).0);
        bind(&client, &provider);
        client.post(WIDGETS_V2, &widget(20)).expect(201);
        client
    });
    let ring = json!({"metadata": {"labels": {"releases": "early"}}});
    tenants[0].merge(BINDING, &ring).expect(200);
    let export = format!("{APIS}/apiexports/widgets");
    let with_pause = |seconds: u64| {
        let selector = json!({"matchLabels": {"releases": "early"}});
        let steps = json!([{"selector": selector, "pauseSeconds": seconds}]);
        at_provider
            .merge(&export, &json!({"spec": {"rollout": {"steps": steps}}}))
            .expect(200);
    };
    let state = |wanted: Value| {
        until("the rollout is there", || {
            let rollout = at_provider.get(&export).expect(200)["status"]["rollout"].clone();
            let fields = ["current", "waiting", "step", "steps"].map(|field| rollout[field].clone());
            (json!(fields) == wanted).then_some(rollout)
        })
    };
    let set_paused = |paused: bool| {
        let change = json!({"spec": {"rollout": {"paused": paused}}});
        at_provider.merge(&export, &change).expect(200);
    };
    with_pause(0);
    let first = state(json!([3, 0, 2, 2]));

    with_pause(3600);
    let one = "one.widgets.life.example.io";
    let rules = format!("{APIS}/apiconversions/{one}");
    at_provider.merge(&rules, &rules_below_100(one)).expect(200);
    let second = state(json!([1, 2, 1, 2]));
    assert_ne!(second["release"], first["release"]);
    tenants[0].post(WIDGETS_V1, &of_size("large", 300)).expect(422);
    for late in &tenants[1..] {
        let outcome = condition(late, BINDING, "BindingUpToDate");
        assert_eq!(outcome["reason"], "RolloutWaiting", "{outcome}");
        assert!(
            outcome["message"].as_str().unwrap().contains("step 2 of 2"),
            "{outcome}"
        );
        late.post(WIDGETS_V1, &of_size("large", 300)).expect(201);
        late.delete(&format!("{WIDGETS_V1}/large")).expect(200);
        late.get(&format!("{WIDGETS_V2}/w20")).expect(200);
    }

    // Paused, nothing moves although the pause of the step is over.
    set_paused(true);
    with_pause(0);
    std::thread::sleep(std::time::Duration::from_secs(3));
    state(json!([1, 2, 1, 2]));
    set_paused(false);
    state(json!([3, 0, 2, 2]));
    for tenant in &tenants {
        tenant.post(WIDGETS_V1, &of_size("large", 300)).expect(422);
        until("the binding says so", || {
            (condition(tenant, BINDING, "BindingUpToDate")["status"] == "True").then_some(())
        });
    }
}
