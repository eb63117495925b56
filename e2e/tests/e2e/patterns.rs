//! Regular expressions of schemas and of rules: Go's verdicts about both, and the price of a match.
//! The table of patterns is `../shared/testdata/patterns.tsv`; without it its tests print the
//! reason and pass.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use insula_e2e::{Client, Server, shared, until, workspace};
use serde_json::{Map, Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Patterns of one definition.
const GROUP: usize = 80;

/// A row of the table.
struct Row {
    pattern: String,
    /// Go's error.
    error: Option<String>,
    /// Texts, and true for those that match.
    texts: Vec<(String, bool)>,
}

fn table() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/testdata/patterns.tsv");
    let Ok(table) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no patterns at {}", path.display());
        return Vec::new();
    };
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let text = |column: &str| serde_json::from_str::<String>(column).unwrap();
        let texts = columns[2..].chunks_exact(2).filter(|pair| !pair[0].is_empty());
        Row {
            pattern: text(columns[0]),
            error: (columns[1] != "ok").then(|| text(columns[1])),
            texts: texts.map(|pair| (text(pair[0]), pair[1] == "true")).collect(),
        }
    };
    table.lines().skip(1).map(row).collect()
}

/// The two keywords that take a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keyword {
    Schema,
    Rule,
}

impl Keyword {
    fn property(self, pattern: &str) -> Value {
        match self {
            Keyword::Schema => json!({"type": "string", "pattern": pattern}),
            Keyword::Rule => {
                let rule = format!("self.matches({})", json!(pattern));
                json!({"type": "string", "maxLength": 5_000, "x-kubernetes-validations": [{"rule": rule}]})
            }
        }
    }
}

/// Returns a definition whose objects have these fields in `spec`.
fn definition(plural: &str, fields: &Value) -> Value {
    let spec = json!({"type": "object", "properties": fields});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    let names = json!({"plural": plural, "kind": plural[..1].to_uppercase() + &plural[1..]});
    let spec = json!({"group": "patterns.example.io", "scope": "Cluster", "names": names, "versions": versions});
    let metadata = json!({"name": format!("{plural}.patterns.example.io")});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata,
        "spec": spec})
}

fn path(plural: &str) -> String {
    format!("/apis/patterns.example.io/v1/{plural}")
}

fn object(plural: &str, name: &str, spec: &Value) -> Value {
    let kind = plural[..1].to_uppercase() + &plural[1..];
    json!({"apiVersion": "patterns.example.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn defined(client: &Client, plural: &str, fields: &Value) {
    client.post(DEFINITIONS, &definition(plural, fields)).expect(201);
    until("the definition is served", || {
        (client.get(&path(plural)).code == 200).then_some(())
    });
}

/// Returns a client of a workspace of its own, and the server, which ends with its last user.
fn tenant(name: &str) -> (Arc<Server>, Client) {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, name).0);
    (server, client)
}

fn causes(refused: &Value) -> &[Value] {
    refused["details"]["causes"].as_array().map_or(&[], Vec::as_slice)
}

/// Defines the accepted patterns and sends their texts: refused are those that do not match.
fn matched_as_in_go(keyword: Keyword, name: &str) {
    let rows: Vec<Row> = table().into_iter().filter(|row| row.error.is_none()).collect();
    if rows.is_empty() {
        return;
    }
    let (_server, client) = tenant(name);
    for (group, rows) in rows.chunks(GROUP).enumerate() {
        let plural = format!("texts{group}s");
        let fields: Map<String, Value> = rows
            .iter()
            .enumerate()
            .map(|(i, row)| (format!("p{i}"), keyword.property(&row.pattern)))
            .collect();
        defined(&client, &plural, &fields.into());
        for column in 0..3 {
            let texts = || {
                rows.iter()
                    .enumerate()
                    .filter_map(|(i, row)| Some((i, row.texts.get(column)?)))
            };
            let spec: Map<String, Value> = texts().map(|(i, (text, _))| (format!("p{i}"), json!(text))).collect();
            let want: BTreeSet<String> = texts()
                .filter(|(_, (_, matched))| !matched)
                .map(|(i, _)| format!("spec.p{i}"))
                .collect();
            let answer = client.post(&path(&plural), &object(&plural, &format!("o{column}"), &spec.into()));
            let got: BTreeSet<String> = causes(&answer.body)
                .iter()
                .map(|cause| cause["field"].as_str().unwrap().to_owned())
                .collect();
            let shown: Vec<_> = got.symmetric_difference(&want).collect();
            assert!(
                shown.is_empty(),
                "{keyword:?}, column {column}: {shown:?} in {:#}",
                answer.body
            );
            assert_eq!(answer.code, if want.is_empty() { 201 } else { 422 });
        }
    }
}

#[test]
fn patterns_of_schemas_match_as_in_go() {
    matched_as_in_go(Keyword::Schema, "patterns-schema");
}

#[test]
fn patterns_of_rules_match_as_in_go() {
    matched_as_in_go(Keyword::Rule, "patterns-rule");
}

#[test]
fn patterns_are_refused_in_the_words_of_go() {
    let rows: Vec<Row> = table().into_iter().filter(|row| row.error.is_some()).collect();
    if rows.is_empty() {
        return;
    }
    let (_server, client) = tenant("patterns-refused");
    for keyword in [Keyword::Schema, Keyword::Rule] {
        let fields: Map<String, Value> = rows
            .iter()
            .enumerate()
            .map(|(i, row)| (format!("p{i}"), keyword.property(&row.pattern)))
            .collect();
        let refused = client
            .post(DEFINITIONS, &definition("refuseds", &fields.into()))
            .expect(422);
        for (i, row) in rows.iter().enumerate() {
            let (below, want) = match keyword {
                Keyword::Schema => ("pattern", row.error.as_deref().unwrap()),
                // Of a constant, Kubernetes tells no more.
                Keyword::Rule => ("x-kubernetes-validations[0].rule", "invalid matches argument"),
            };
            let field = format!("properties[p{i}].{below}");
            let told = causes(&refused).iter().any(|cause| {
                cause["field"].as_str().is_some_and(|f| f.ends_with(&field))
                    && cause["message"].as_str().is_some_and(|message| message.contains(want))
            });
            assert!(told, "{keyword:?} {}: want {field}: {want} in {refused:#}", row.pattern);
        }
    }
}

#[test]
fn schemas_and_rules_refuse_the_same_repetitions() {
    let (_server, client) = tenant("patterns-repeated");
    for (keyword, want) in [
        (Keyword::Schema, "error parsing regexp: invalid repeat count: `{50}`"),
        (Keyword::Rule, "invalid matches argument"),
    ] {
        let fields = json!({"t": keyword.property("^(a{50}){50}$")});
        let refused = client.post(DEFINITIONS, &definition("repeats", &fields)).expect(422);
        assert!(refused["message"].as_str().unwrap().contains(want), "{refused:#}");
    }
}

/// Returns a pattern whose automaton has a state of its own for nearly every byte of a random text.
fn costly() -> String {
    let branches: Vec<String> = (0..20).map(|i| format!("[01]*{}[01]{{{}}}2", i % 2, 300 + i)).collect();
    format!("^(?:[01]*1[01]{{700}}$|{})", branches.join("|"))
}

/// Returns a text of zeros and ones without a pattern.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { '0' } else { '1' }
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn a_match_beyond_its_price_is_refused_with_the_field() {
    let (_server, client) = tenant("patterns-price");
    let pattern = costly();
    let fields = json!({
        "plain": {"type": "string", "pattern": &pattern},
        "any": {"type": "string", "anyOf": [{"minLength": 5_000_000}, {"pattern": &pattern}]},
        "not": {"type": "string", "not": {"pattern": &pattern}},
        "rule": {"type": "string", "maxLength": 40_000, "x-kubernetes-validations":
            [{"rule": format!("!self.matches('{pattern}')")}]},
        "cheap": {"type": "string", "pattern": "^[0-9]*$"},
        "list": {"type": "array", "items": {"type": "string", "pattern": &pattern}},
    });
    defined(&client, "prices", &fields);
    let long = noise(2_000_000);
    for field in ["plain", "any", "not"] {
        let refused = client
            .post(&path("prices"), &object("prices", "dear", &json!({field: long})))
            .expect(422);
        let told = causes(&refused).iter().any(|cause| {
            let message = cause["message"].as_str().unwrap();
            cause["field"] == *format!("spec.{field}")
                && ["2000000 bytes", "30000000 units", "maxLength"]
                    .iter()
                    .all(|part| message.contains(part))
        });
        assert!(told, "{field}: {:#}", refused["details"]["causes"]);
        assert_eq!(refused["reason"], "Invalid");
        assert!(refused.to_string().len() < 100_000, "the text is not repeated");
    }
    let many: Vec<String> = (0..1_000).map(|i| noise(1_000 + i)).collect();
    let refused = client
        .post(&path("prices"), &object("prices", "many", &json!({"list": many})))
        .expect(422);
    assert!(
        refused.to_string().contains("30000000 units"),
        "one price for all of an object"
    );
    let refused = client
        .post(
            &path("prices"),
            &object("prices", "rule", &json!({"rule": noise(40_000)})),
        )
        .expect(422);
    assert!(refused.to_string().contains("cost exceeds limit"), "{refused:#}");
    let accepted = json!({"cheap": noise(1_000_000)});
    client
        .post(&path("prices"), &object("prices", "fair", &accepted))
        .expect(201);
}
