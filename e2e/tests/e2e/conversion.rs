//! Conversion, seen by tenants: kcp's own acceptance test, the laws, every form, every spelling, and what fails.

use std::time::{Duration, Instant};

use insula_e2e::{Client, shared, story, until, workspace};
use serde_json::{Value, json};

stories!("conversion": acceptance, change, failing, forms, laws, spellings, weak_points);

const APIS: &str = "/apis/apis.kcp.io/v1alpha1";

/// Kinds of one group have names of their own.
fn kind_of(plural: &str) -> String {
    plural[..1].to_uppercase() + &plural[1..]
}

/// Publishes a kind of its own with one rule, which computes `spec.b` of v2 from `spec.a` of v1. None if the rule is refused.
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
    let names = json!({"plural": plural, "singular": plural, "kind": kind_of(plural), "listKind": format!("{}List", kind_of(plural))});
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

/// Not a measurement: minutes and gigabytes are what these take where nobody counts.
const BOUND: Duration = Duration::from_secs(20);

#[test]
fn expressions_that_are_bombs_to_compile_are_refused() {
    let server = shared();
    let admin = server.admin();
    let client = admin.at(&workspace(&admin, "bombs").0);
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
fn expressions_that_are_bombs_to_run_fail_for_their_object_only() {
    let server = shared();
    let admin = server.admin();
    let client = admin.at(&workspace(&admin, "bombs").0);
    let nested = (0..8).fold("self".to_owned(), |inner, i| {
        format!("[1,2,3,4,5,6,7,8,9].map(x{i}, {inner})[0]")
    });
    let doubled = (0..40).fold("self".to_owned(), |text, _| {
        format!("({text}).replace('a', 'aaaaaaaa')")
    });
    for (name, bomb) in [("nested", nested), ("doubled", doubled)] {
        let begun = Instant::now();
        if publish(&client, name, &bomb).is_some() {
            let object = json!({"apiVersion": "example.io/v1", "kind": kind_of(name), "metadata": {"name": "a"}, "spec": {"a": "aaaa"}});
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

/// Three stories at once share one server and do not see each other.
#[test]
fn tenants_do_not_see_each_other() {
    let tenants: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(|| story("conversion/acceptance")))
        .collect();
    for tenant in tenants {
        tenant.join().unwrap();
    }
}
