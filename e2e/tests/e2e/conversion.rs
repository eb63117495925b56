//! Conversion, seen by tenants: kcp's own acceptance test, the round-trip laws, every form, every
//! spelling, and the failures.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use insula_e2e::{Client, run_script, shared, until, with_widgets, workspace};
use serde_json::{Value, json};

// One test for each script of `e2e/scripts/conversion`.
include!(concat!(env!("OUT_DIR"), "/conversion.rs"));

const APIS: &str = "/apis/apis.kcp.io/v1alpha1";

/// Kinds of one group have names of their own.
fn kind_of(plural: &str) -> String {
    plural[..1].to_uppercase() + &plural[1..]
}

/// Publishes a kind with one rule, which computes `spec.b` of v2 from `spec.a` of v1. Returns None
/// if the rule is refused.
fn publish(client: &Client, plural: &str, transformation: &str) -> Option<()> {
    let fields = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    let versions = ["v1", "v2"].map(|v| json!({"name": v, "served": true, "storage": v == "v1", "schema": schema}));
    let name = format!("v1.{plural}.example.io");
    let create = |resource: &str, kind: &str, name: &str, spec: Value| {
        let object =
            json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        client.post(&format!("{APIS}/{resource}"), &object)
    };
    let names = json!({"plural": plural, "singular": plural, "kind": kind_of(plural),
        "listKind": format!("{}List", kind_of(plural))});
    let spec = json!({"group": "example.io", "scope": "Cluster", "versions": versions, "names": names});
    create("apiresourceschemas", "APIResourceSchema", &name, spec).expect(201);
    let rule = json!({"field": ".spec.a", "destination": ".spec.b", "transformation": transformation});
    let rules = create(
        "apiconversions",
        "APIConversion",
        &name,
        json!({"conversions": [{"from": "v1", "to": "v2", "rules": [rule]}]}),
    );
    match rules.code {
        201 => {}
        422 => return None,
        other => panic!("{other}: {}", rules.text),
    }
    create(
        "apiexports",
        "APIExport",
        plural,
        json!({"latestResourceSchemas": [name]}),
    )
    .expect(201);
    create(
        "apibindings",
        "APIBinding",
        plural,
        json!({"reference": {"export": {"name": plural}}}),
    )
    .expect(201);
    until("it is served", || {
        (client.get(&format!("/apis/example.io/v1/{plural}")).code == 200).then_some(())
    });
    Some(())
}

/// A generous bound, not a measurement: without limits these take minutes and gigabytes.
const BOUND: Duration = Duration::from_secs(20);

#[test]
fn expressions_too_costly_to_compile_are_refused() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "bombs").0);
    for (name, bomb) in [
        ("negations", "!!(!!!!!(!!!!!(!!!!!(!!!true".to_owned()),
        (
            "parentheses",
            format!("{}self{}", "(".repeat(50_000), ")".repeat(50_000)),
        ),
        ("sums", format!("self{}", " + self".repeat(140_000))),
        ("lists", format!("[{}'a'][0]", "'a',".repeat(100_000))),
        ("patterns", r"self.matches('(.{1,1000}){1000}') ? 'a' : 'b'".to_owned()),
        ("calls", format!("self{}", ".upperAscii()".repeat(50_000))),
    ] {
        let begun = Instant::now();
        assert_eq!(publish(&client, name, &bomb), None, "{name}");
        assert!(begun.elapsed() < BOUND, "{name} took {:?}", begun.elapsed());
        admin.get("/readyz").expect(200);
    }
}

#[test]
fn expressions_too_costly_to_run_fail_for_their_object_only() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "bombs").0);
    let nested = (0..8).fold("self".to_owned(), |inner, i| {
        format!("[1,2,3,4,5,6,7,8,9].map(x{i}, {inner})[0]")
    });
    let doubled = (0..40).fold("self".to_owned(), |text, _| {
        format!("({text}).replace('a', 'aaaaaaaa')")
    });
    for (name, bomb) in [("nested", nested), ("doubled", doubled)] {
        let begun = Instant::now();
        if publish(&client, name, &bomb).is_some() {
            let object = json!({"apiVersion": "example.io/v1", "kind": kind_of(name), "metadata": {"name": "a"},
                "spec": {"a": "aaaa"}});
            let written = client.post(&format!("/apis/example.io/v1/{name}"), &object).code;
            let read = client.get(&format!("/apis/example.io/v2/{name}/a")).code;
            assert!(written >= 400 || read >= 400, "{name}: {written}, {read}");
            if written == 201 {
                client.delete(&format!("/apis/example.io/v2/{name}/a")).expect(200);
            }
        }
        assert!(begun.elapsed() < BOUND, "{name} took {:?}", begun.elapsed());
        admin.get("/readyz").expect(200);
    }
}

/// Three scripts at once share one server and do not see each other.
#[test]
fn tenants_do_not_see_each_other() {
    let tenants: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(|| run_script("conversion/acceptance")))
        .collect();
    for tenant in tenants {
        tenant.join().unwrap();
    }
}

/// Publishes one generation of an API for the load test: its own name of the field in v2, and a
/// mark that its rule sets.
fn generation(client: &Client, schema: &str, field: &str, mark: &str) {
    let fields = |name: &str| {
        json!({"type": "object",
        "properties": {"spec": {"type": "object", "properties": {name: {"type": "string"}}}}})
    };
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
        "schema": fields(field)})
    };
    let schema_spec = json!({
        "group": "example.io", "scope": "Cluster", "versions": [version("v1", "text"), version("v2", field)],
        "names": {"plural": "swaps", "singular": "swap", "kind": "Swap", "listKind": "SwapList"},
    });
    let there = json!({"field": ".spec.text", "destination": format!(".spec.{field}"),
        "transformation": format!("self + '{mark}'")});
    let back = json!({"field": format!(".spec.{field}"), "destination": ".spec.text",
        "transformation": format!("self.replace('{mark}', '')")});
    let rules = json!({"conversions": [
        {"from": "v1", "to": "v2", "rules": [there]}, {"from": "v2", "to": "v1", "rules": [back]},
    ]});
    for (resource, kind, spec) in [
        ("apiresourceschemas", "APIResourceSchema", schema_spec),
        ("apiconversions", "APIConversion", rules),
    ] {
        let object =
            json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": schema}, "spec": spec});
        client.post(&format!("{APIS}/{resource}"), &object).expect(201);
    }
}

/// Ends the load on drop, also when the test fails.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";

fn swaps_export(schema: &str) -> Value {
    let resource = json!({"name": "swaps", "group": "example.io", "schema": schema, "storage": {"crd": {}}});
    json!({"spec": {"resources": [resource]}})
}

fn swaps(version: &str) -> String {
    format!("/apis/example.io/{version}/swaps")
}

/// Publishes and binds the first of two generations of an API, and creates objects of it.
fn serve_swaps(client: &Client, objects: usize) {
    generation(client, "one.swaps.example.io", "a", "A");
    generation(client, "two.swaps.example.io", "b", "B");
    let mut first = swaps_export("one.swaps.example.io");
    first["apiVersion"] = json!("apis.kcp.io/v1alpha2");
    first["kind"] = json!("APIExport");
    first["metadata"] = json!({"name": "swaps"});
    client.post(EXPORTS, &first).expect(201);
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "swaps"},
        "spec": {"reference": {"export": {"name": "swaps"}}}});
    client
        .post("/apis/apis.kcp.io/v1alpha2/apibindings", &binding)
        .expect(201);
    until("it is served", || (client.get(&swaps("v1")).code == 200).then_some(()));
    for n in 0..objects {
        let object = json!({"apiVersion": "example.io/v1", "kind": "Swap", "metadata": {"name": format!("s{n}")},
            "spec": {"text": "0"}});
        client.post(&swaps("v1"), &object).expect(201);
    }
}

/// Checks that an object in v2 has one generation's field with that generation's mark.
fn assert_one_generation(shown: &Value) {
    let text = |field: &str| shown["spec"][field].as_str().unwrap_or_default().to_owned();
    let (a, b) = (text("a"), text("b"));
    let fits = a.ends_with('A') && b.is_empty() || a.is_empty() && (b.ends_with('B') || b.ends_with('C'));
    assert!(fits, "{shown}");
}

/// Changes only the rules of the second generation: its mark becomes `C`.
fn change_mark(client: &Client) {
    let mark = json!({"field": ".spec.text", "destination": ".spec.b", "transformation": "self + 'C'"});
    let back = json!({"field": ".spec.b", "destination": ".spec.text", "transformation": "self.replace('C', '')"});
    let rules = json!({"spec": {"conversions": [
        {"from": "v1", "to": "v2", "rules": [mark]}, {"from": "v2", "to": "v1", "rules": [back]},
    ]}});
    client
        .merge(&format!("{APIS}/apiconversions/two.swaps.example.io"), &rules)
        .expect(200);
}

/// Reads and writes in two versions while the API's schema and rules change repeatedly. A reader of
/// v2 gets a field of one generation with the mark of that generation's rule, or, where only the
/// rules changed, one of its two marks.
#[test]
fn rules_and_schema_change_together_under_load() {
    const OBJECTS: usize = 5;
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "swaps").0);
    serve_swaps(&client, OBJECTS);
    let over = AtomicBool::new(false);
    let (reads, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _end = Sets(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let list = client.get(&swaps("v2")).expect(200);
                list["items"].as_array().unwrap().iter().for_each(assert_one_generation);
                assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        for (version, seed) in [("v1", 0), ("v2", 1)] {
            let (client, over, writes) = (&client, &over, &writes);
            scope.spawn(move || {
                let mut n = seed;
                while !over.load(Ordering::Relaxed) {
                    n += 1;
                    let object = format!("{}/s{}", swaps(version), n % OBJECTS);
                    let patch = match version {
                        "v1" => json!({"spec": {"text": n.to_string()}}),
                        _ => json!({"metadata": {"labels": {"n": n.to_string()}}}),
                    };
                    let answer = client.merge(&object, &patch);
                    // A write routed by a previous route gets a 409, and may be sent again.
                    assert!(matches!(answer.code, 200 | 409), "{}: {}", answer.code, answer.text);
                    if version == "v2" && answer.code == 200 {
                        assert_one_generation(&answer.expect(200));
                    }
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A busy machine completes few requests in six rounds.
        let few = || reads.load(Ordering::Relaxed) <= 10 || writes.load(Ordering::Relaxed) <= 10;
        for round in 0..60 {
            if round >= 6 && !few() {
                break;
            }
            let (schema, field) = [("one.swaps.example.io", "a"), ("two.swaps.example.io", "b")][(round + 1) % 2];
            client
                .merge(&format!("{EXPORTS}/swaps"), &swaps_export(schema))
                .expect(200);
            if round == 2 {
                change_mark(&client);
            }
            until("the new generation serves", || {
                let shown = client.get(&format!("{}/s0", swaps("v2"))).expect(200);
                shown["spec"].get(field).is_some().then_some(())
            });
        }
    });
    let (reads, writes) = (reads.into_inner(), writes.into_inner());
    assert!(reads > 10 && writes > 10, "{reads} reads, {writes} writes");
}

/// Enough objects that several tasks share their conversion. Concurrent lists, a table and the
/// initial events of a watch contain all of them, in order.
#[test]
fn parallel_conversion_keeps_lists_and_watches_complete_and_ordered() {
    let server = shared();
    let client = server.admin().in_workspace(&with_widgets(&server));
    let name = |i: usize| format!("w-{i:03}");
    let first = |i: usize| format!("{i} {}", "all work and no play ".repeat(200));
    let (v1, v2) = ["v1", "v2"]
        .map(|version| format!("/apis/example.io/{version}/namespaces/default/widgets"))
        .into();
    for i in 0..60 {
        let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name(i)},
            "spec": {"firstName": first(i)}});
        client.post(&v1, &widget).expect(201);
    }
    let check = |i: usize, object: &Value| {
        assert_eq!(object["metadata"]["name"], *name(i));
        assert_eq!(object["apiVersion"], "example.io/v2");
        assert_eq!(object["spec"], json!({"name": {"first": first(i)}}));
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let list = client.get(&v2).expect(200);
                let items = list["items"].as_array().unwrap();
                assert_eq!(items.len(), 60);
                items.iter().enumerate().for_each(|(i, object)| check(i, object));
            });
        }
    });
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = client.get_with(&v2, &table).expect(200);
    let rows = table["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["cells"][0].clone());
    assert_eq!(
        rows.collect::<Vec<_>>(),
        (0..60).map(|i| json!(name(i))).collect::<Vec<_>>()
    );
    let mut seen = 0;
    let events =
        format!("{v2}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    client.watch(&events, |event| {
        check(seen, &event["object"]);
        seen += 1;
        (seen == 60).then_some(())
    });
    assert_eq!(seen, 60);
}
