//! A definition that gets a version before its first rules: a client that writes back what such a
//! version shows would empty the objects, so it waits while objects hold what it lacks, and nothing
//! is lost that is written meanwhile.

use super::{DEFINITIONS, GROUP, NAME, RULES, apply, condition, create, definition, pets, rules, spec, warns};
use insula_e2e::{Client, Server, copy_stored, shared, until, workspace};
use serde_json::{Value, json};

/// Annotation that accepts effects.
const ACCEPTED: &str = "insula.io/accepted-effects";
const WAITS: &str = "served on, until an APIConversion of this name has rules for";

/// Waits until the condition says this of the present generation.
fn rolled_out(client: &Client, status: &str, reason: &str) -> Value {
    until(&format!("RolledOut is {status}: {reason}"), || {
        let held = condition(client, &format!("{DEFINITIONS}/{NAME}"), "RolledOut");
        let present = client.get(&format!("{DEFINITIONS}/{NAME}")).expect(200);
        let is_so = held["status"] == status && held["reason"].as_str().unwrap_or_default() == reason;
        (is_so && held["observedGeneration"] == present["metadata"]["generation"]).then_some(held)
    })
}

/// Writes an object back in a version, just as it was read.
fn write_back(client: &Client, version: &str) {
    let path = format!("{}/a", pets(version));
    let read = client.get(&path).expect(200);
    client.put(&path, &read).expect(200);
}

/// Applies a definition that has to wait, and looks at that from outside.
fn apply_early(client: &Client, early: &Value, version: &str) {
    let answer = apply(client, DEFINITIONS, early);
    let effect = format!("value-hidden:{NAME}/{version}:.spec.first: 1 object");
    assert!(
        answer.code == 200 && warns(&answer, &effect) && warns(&answer, WAITS),
        "{answer:?}"
    );
    // No request sees the version, not even the one behind the answer.
    assert_eq!(client.get(&pets(version)).code, 404);
    let held = rolled_out(client, "False", "RulesNotFound");
    let message = held["message"].to_string();
    assert!(message.contains(WAITS) && message.contains(&effect), "{held}");
    assert_eq!(client.get(&pets(version)).code, 404);
}

fn accepting(mut definition: Value, word: &str) -> Value {
    definition["metadata"]["annotations"] = json!({ACCEPTED: word});
    definition
}

#[test]
fn a_version_that_hides_what_objects_hold_waits_for_the_first_rules() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "first-rules").0);
    let one = definition(&[("v1", &["first"])]);
    let two = definition(&[("v1", &["first"]), ("v2", &["name"])]);
    apply(&client, DEFINITIONS, &one).expect(201);
    create(&client, &json!({"first": "bob"}));
    apply_early(&client, &two, "v2");
    assert_eq!(spec(&client, "v1"), json!({"first": "bob"}));
    // It can be taken back, and come with its rules after it.
    let back = apply(&client, DEFINITIONS, &one);
    assert!(back.code == 200 && !warns(&back, WAITS), "{back:?}");
    rolled_out(&client, "True", "");
    apply_early(&client, &two, "v2");
    client
        .merge(&format!("{}/a", pets("v1")), &json!({"spec": {"first": "eve"}}))
        .expect(200);
    apply(&client, RULES, &rules(&[("first", "v2", "name")])).expect(201);
    assert_eq!(spec(&client, "v2"), json!({"name": "eve"}));
    write_back(&client, "v2");
    assert_eq!(spec(&client, "v1"), json!({"first": "eve"}));
    rolled_out(&client, "True", "");
}

#[test]
fn somebodys_word_or_the_end_of_the_objects_lets_a_version_serve_without_rules() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "no-rules").0);
    let two = || definition(&[("v1", &["first"]), ("v2", &["name"])]);
    let is_served = |why: &str| until(why, || (client.get(&pets("v2")).code == 200).then_some(()));
    apply(&client, DEFINITIONS, &definition(&[("v1", &["first"])])).expect(201);
    create(&client, &json!({"first": "bob"}));
    apply_early(&client, &two(), "v2");
    client.delete(&format!("{}/a", pets("v1"))).expect(200);
    is_served("nothing is hidden any more");
    rolled_out(&client, "True", "");
    apply(&client, DEFINITIONS, &definition(&[("v1", &["first"])])).expect(200);
    create(&client, &json!({"first": "bob"}));
    let few = apply(&client, DEFINITIONS, &accepting(two(), "value-hidden=0"));
    assert!(few.code == 200 && warns(&few, WAITS), "{few:?}");
    rolled_out(&client, "False", "RulesNotFound");
    // The definition is as it was, and the word is another one.
    let other = apply(&client, DEFINITIONS, &accepting(two(), "field-removed"));
    assert!(other.code == 200 && warns(&other, WAITS), "{other:?}");
    let enough = apply(&client, DEFINITIONS, &accepting(two(), "value-hidden=1"));
    assert!(enough.code == 200 && !warns(&enough, WAITS), "{enough:?}");
    is_served("somebody's word counts");
    assert_eq!(spec(&client, "v2"), json!({}));
    // What waited once loses nothing by a client of the new version.
    client
        .merge(&format!("{}/a", pets("v2")), &json!({"spec": {"name": "x"}}))
        .expect(200);
    assert_eq!(spec(&client, "v1"), json!({"first": "bob"}));
}

#[test]
fn a_word_with_the_definition_serves_it_at_once() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "word").0);
    apply(&client, DEFINITIONS, &definition(&[("v1", &["first"])])).expect(201);
    create(&client, &json!({"first": "bob"}));
    let two = definition(&[("v1", &["first"]), ("v2", &["name"])]);
    let word = format!("value-hidden:{NAME}/v2:.spec.first=1");
    let answer = apply(&client, DEFINITIONS, &accepting(two, &word));
    assert!(answer.code == 200 && !warns(&answer, WAITS), "{answer:?}");
    assert_eq!(spec(&client, "v2"), json!({}));
}

/// Only new versions wait: those that were served are served as they were, and what is written
/// through them meanwhile is there when the wait is over, whatever ends it.
#[test]
fn what_is_written_while_a_version_waits_is_kept() {
    let server = shared();
    let admin = server.admin();
    for ending in ["rules", "word", "back"] {
        let client = admin.in_workspace(&workspace(&admin, "meanwhile").0);
        let two = definition(&[("v1", &["first"]), ("v2", &["last"])]);
        let three = definition(&[("v1", &["first"]), ("v2", &["last"]), ("v3", &["name"])]);
        apply(&client, DEFINITIONS, &two).expect(201);
        create(&client, &json!({"first": "bob"}));
        apply_early(&client, &three, "v3");
        client
            .merge(&format!("{}/a", pets("v2")), &json!({"spec": {"last": "roy"}}))
            .expect(200);
        client
            .merge(&format!("{}/a", pets("v1")), &json!({"spec": {"first": "eve"}}))
            .expect(200);
        match ending {
            "rules" => {
                let mut named = rules(&[("first", "v3", "name")]);
                let conversions = named["spec"]["conversions"].as_array_mut().unwrap();
                conversions.push(json!({"from": "v1", "to": "v2", "rules": []}));
                conversions.push(json!({"from": "v2", "to": "v1", "rules": []}));
                apply(&client, RULES, &named).expect(201);
                assert_eq!(spec(&client, "v3"), json!({"name": "eve"}));
            }
            "word" => {
                apply(&client, DEFINITIONS, &accepting(three, "value-hidden=1")).expect(200);
                until("v3 is served", || (client.get(&pets("v3")).code == 200).then_some(()));
                write_back(&client, "v3");
            }
            _ => drop(apply(&client, DEFINITIONS, &two).expect(200)),
        }
        rolled_out(&client, "True", "");
        for version in ["v1", "v2"] {
            write_back(&client, version);
        }
        assert_eq!(spec(&client, "v1"), json!({"first": "eve"}), "{ending}");
        assert_eq!(spec(&client, "v2"), json!({"last": "roy"}), "{ending}");
    }
}

/// Returns how often the controller of definitions has worked on a key.
fn works(server: &Server) -> u64 {
    let metrics = server.admin().get_with("/metrics", &[("accept", "text/plain")]).text;
    let count = metrics.lines().find_map(|line| {
        let rest = line.strip_prefix("workqueue_work_duration_seconds_count")?;
        rest.contains("name=\"crd\"").then(|| rest.rsplit(' ').next().unwrap())
    });
    count.unwrap().parse().unwrap()
}

/// Many objects are looked at in slices, so that other definitions are not held up, and a restart
/// in between changes nothing.
#[test]
fn many_objects_and_a_restart_while_a_version_waits() {
    let server = Server::start();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "many");
    let client = admin.in_workspace(&path);
    apply(&client, DEFINITIONS, &definition(&[("v1", &["first", "last"])])).expect(201);
    create(&client, &json!({"last": "roy"}));
    // The last one in their order has more than the others.
    let last = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Pet", "metadata": {"name": "z"},
        "spec": {"first": "bob"}});
    let server = server.restart_after(|data| copy_stored(data, "pets", 20_000));
    let client = server.admin().in_workspace(&path);
    client.post(&pets("v1"), &last).expect(201);
    let two = definition(&[("v1", &["first", "last"]), ("v2", &["last"])]);
    let before = works(&server);
    let early = apply(&client, DEFINITIONS, &two);
    assert_eq!(early.code, 200, "{early:?}");
    let held = rolled_out(&client, "False", "RulesNotFound");
    let effect = format!("value-hidden:{NAME}/v2:.spec.first: 1 object");
    assert!(held["message"].to_string().contains(&effect), "{held}");
    assert!(works(&server) - before > 20, "slices of a thousand");
    assert_eq!(client.get(&pets("v2")).code, 404);

    let server = server.restart();
    let client = server.admin().in_workspace(&path);
    assert_eq!(client.get(&pets("v2")).code, 404);
    client
        .merge(&format!("{}/z", pets("v1")), &json!({"spec": {"first": null}}))
        .expect(200);
    until("v2 is served", || (client.get(&pets("v2")).code == 200).then_some(()));
    rolled_out(&client, "True", "");
    assert_eq!(spec(&client, "v2"), json!({"last": "roy"}));
}
