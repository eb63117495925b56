//! Conversion, seen by tenants: kcp's own acceptance test, the laws, every form, every spelling, and what fails.

use std::time::{Duration, Instant};

use insula_e2e::{shared, story, workspace};
use serde_json::json;

stories!("conversion": acceptance, failing, forms, laws, spellings);

/// Expressions that cost other engines minutes or gigabytes are refused, and the server answers others meanwhile.
#[test]
fn bombs_are_refused_in_bounded_time() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "bombs");
    let client = admin.at(&path);
    let schema = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}}});
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": "v1.bombs.example.io"},
        "spec": {"group": "example.io", "scope": "Cluster", "versions": [schema("v1"), schema("v2")],
            "names": {"plural": "bombs", "singular": "bomb", "kind": "Bomb", "listKind": "BombList"}},
    });
    client.post("/apis/apis.kcp.io/v1alpha1/apiresourceschemas", &schema).expect(201);
    let nested = (0..8).fold("self".to_owned(), |inner, i| format!("[1,2,3,4,5,6,7,8,9].map(x{i}, {inner})[0]"));
    for (name, bomb) in [
        ("negations", "!!(!!!!!(!!!!!(!!!!!(!!!true".to_owned()),
        ("parentheses", format!("{}self{}", "(".repeat(50_000), ")".repeat(50_000))),
        ("a sum of a megabyte", format!("self{}", " + self".repeat(140_000))),
        ("a long list", format!("[{}'a'][0]", "'a',".repeat(100_000))),
        ("nested loops", nested),
        ("a pattern", r"self.matches('(.{1,1000}){1000}') ? 'a' : 'b'".to_owned()),
        ("calls", format!("self{}", ".upperAscii()".repeat(50_000))),
    ] {
        let rules = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": "v1.bombs.example.io"},
            "spec": {"conversions": [{"from": "v1", "to": "v2", "rules": [
                {"field": ".spec.a", "destination": ".spec.b", "transformation": bomb}]}]},
        });
        let begun = Instant::now();
        let answer = client.post("/apis/apis.kcp.io/v1alpha1/apiconversions", &rules);
        // Not a measurement: minutes are what these take where nobody counts.
        assert!(begun.elapsed() < Duration::from_secs(20), "{name} took {:?}", begun.elapsed());
        assert_eq!(answer.code, 422, "{name}: {}", answer.text);
        admin.get("/readyz").expect(200);
    }
}

/// Three stories at once share one server and do not see each other.
#[test]
fn tenants_do_not_see_each_other() {
    let tenants: Vec<_> = (0..3).map(|_| std::thread::spawn(|| story("conversion/acceptance"))).collect();
    for tenant in tenants {
        tenant.join().unwrap();
    }
}
