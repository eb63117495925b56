//! Recorded answers of a real server, replayed against this crate: the causes must be equal, text
//! by text.
//!
//! The recordings are outside of the project (`../shared/golden`); without them the test prints so
//! and passes. Causes of other crates (metadata of whole objects, failing patches, static types of
//! rules) are left out by name below.
#![allow(clippy::print_stdout)]

use insula_api::{FieldError, Json};
use insula_meter::Meter;
use insula_schema as schema;
use schema::Structural;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn scenarios() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/scenarios");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: no recordings at {}", path.display());
    None
}

type Cause = (String, String, String);

struct Scenario {
    steps: Vec<Json>,
    golden: Json,
}

fn load(dir: &Path, name: &str) -> Scenario {
    let text = std::fs::read_to_string(dir.join(format!("{name}.yaml"))).unwrap();
    // Paths of workspaces are known only to the script's runner.
    let text = ["main", "provider", "other"]
        .iter()
        .fold(text, |t, ws| t.replace(&format!("${{ws.{ws}}}"), "root:here"));
    // As Go's reader: `y` and `n` are strings.
    let options = serde_saphyr::options! { strict_booleans: true };
    let script: Json = serde_saphyr::from_str_with_options(&text, options).unwrap();
    let golden = std::fs::read(dir.join(format!("{name}.golden.json"))).unwrap();
    let steps = script["steps"].as_array().unwrap().clone();
    Scenario {
        steps,
        golden: serde_json::from_slice(&golden).unwrap(),
    }
}

/// Returns the recorded causes; `None` if the step has no complete answer.
fn wanted(answer: &Json) -> Option<Vec<Cause>> {
    let code = answer.get("code")?.as_i64()?;
    if code == 200 || code == 201 {
        return Some(Vec::new());
    }
    if code != 422 {
        return None;
    }
    let text = |cause: &Json, name: &str| cause.get(name).and_then(Json::as_str).unwrap_or("").to_owned();
    let causes = answer.pointer("/body/details/causes")?.as_array()?;
    let mut list: Vec<Cause> = causes
        .iter()
        .map(|c| (text(c, "field"), text(c, "reason"), text(c, "message")))
        .collect();
    // The registry checks metadata of the whole object.
    list.retain(|(field, _, message)| {
        !(field.starts_with("metadata.name") && (message.contains("RFC 1123") || message.contains("generateName is")))
            && field != "metadata.resourceVersion"
    });
    list.sort();
    Some(list)
}

fn got(errors: &[FieldError], masked: &[Cause]) -> Vec<Cause> {
    let mut list: Vec<Cause> = errors
        .iter()
        .map(|e| {
            let field = e.field.to_string();
            let reason = e.kind.reason().to_owned();
            // Some recordings leave out messages that print Go's memory.
            let hidden = masked
                .iter()
                .any(|(f, r, m)| *f == field && *r == reason && m.is_empty());
            // The recorder replaced every time by this word.
            let body = e.body().replace("2024-01-01T00:00:00Z", "<time>");
            (field, reason, if hidden { String::new() } else { body })
        })
        .collect();
    list.sort();
    list
}

fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(
                target
                    .as_object_mut()
                    .unwrap()
                    .entry(name.clone())
                    .or_insert(Json::Null),
                value,
            );
        }
    }
}

fn json_patch(target: &mut Json, operations: &Json) -> Option<()> {
    for operation in operations.as_array()? {
        let path = operation["path"].as_str()?;
        let (parent, key) = path.rsplit_once('/')?;
        let value = operation.get("value").cloned().unwrap_or(Json::Null);
        match (operation["op"].as_str()?, target.pointer_mut(parent)?) {
            ("remove", Json::Object(map)) => drop(map.remove(key)?),
            (_, Json::Object(map)) => drop(map.insert(key.to_owned(), value)),
            ("add", Json::Array(list)) if key == "-" => list.push(value),
            ("add", Json::Array(list)) => list.insert(key.parse().ok()?, value),
            ("replace", Json::Array(list)) => *list.get_mut(key.parse::<usize>().ok()?)? = value,
            _ => return None,
        }
    }
    Some(())
}

/// Compares two values; `1` and `1.0` are equal, since this crate does not write numbers.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        // The recorder masked times and versions.
        (_, Json::String(mask)) if mask.starts_with('<') => true,
        _ => a == b,
    }
}

fn body(step: &Json) -> Option<Json> {
    match step.get("body")? {
        Json::String(text) => serde_json::from_str(text).ok(),
        other => Some(other.clone()),
    }
}

#[derive(Default)]
struct Server {
    definition: Json,
    compiled: Structural,
    objects: BTreeMap<String, Json>,
    /// Object that the last request would store.
    last: Json,
    /// Unknown fields of the last request.
    unknown: Vec<String>,
}

impl Server {
    fn install(&mut self, definition: Json) {
        let document = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
        self.compiled = Structural::parse_trusted(document).unwrap();
        self.definition = definition;
    }

    /// Returns the errors of one request and keeps the object that it would store.
    fn answer(&mut self, step: &Json) -> Option<Vec<FieldError>> {
        let (verb, path) = step["request"].as_str()?.split_once(' ')?;
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let dry = query.contains("dryRun");
        let body = body(step)?;
        if path.contains("/customresourcedefinitions") {
            let mut definition = self.definition.clone();
            match step.pointer("/headers/Content-Type").and_then(Json::as_str) {
                Some("application/merge-patch+json") => merge(&mut definition, &body),
                Some("application/json-patch+json") => json_patch(&mut definition, &body)?,
                _ => definition = body,
            }
            self.install(definition);
            return None;
        }
        let is_status = path.ends_with("/status");
        let path = path.trim_end_matches("/status");
        let old = self.objects.get(path.rsplit('/').next()?).cloned();
        let mut object = match (verb, step.pointer("/headers/Content-Type").and_then(Json::as_str)) {
            ("POST", _) => body,
            ("PATCH", Some("application/merge-patch+json")) => {
                let mut object = old.clone()?;
                merge(&mut object, &body);
                object
            }
            ("PATCH", Some("application/json-patch+json")) => {
                let mut object = old.clone()?;
                json_patch(&mut object, &body)?;
                object
            }
            _ => return None,
        };
        self.unknown = schema::prune_report(&object, &self.compiled);
        schema::prune(&mut object, &self.compiled);
        schema::drop_nulls(&mut object, &self.compiled);
        schema::default(&mut object, &self.compiled);
        let has_status = self
            .definition
            .pointer("/spec/versions/0/subresources/status")
            .is_some();
        let errors = match (&old, verb) {
            (Some(old), "PATCH") if is_status => {
                schema::validate_status(&object, old, &self.compiled, &Meter::unbounded()).errors
            }
            (Some(old), "PATCH") => schema::validate_update(&object, old, &self.compiled, &Meter::unbounded()).errors,
            _ => {
                if has_status {
                    object.as_object_mut()?.remove("status");
                }
                schema::validate(&object, &self.compiled, &Meter::unbounded())
            }
        };
        let name = object
            .pointer("/metadata/name")
            .and_then(Json::as_str)
            .unwrap_or("")
            .to_owned();
        if errors.is_empty() && !dry {
            self.objects.insert(name, object.clone());
        }
        self.last = object;
        Some(errors)
    }
}

/// Steps whose answers come from other crates or unsupported features.
const LEFT_OUT: &[(&str, &str)] = &[
    // The registry checks generated names and parameters of requests.
    ("schema-pruning", "unknown-level-of-validation"),
    ("schema-pruning", "merge-patch-strict"),
    ("schema-pruning", "json-patch-strict"),
    ("schema-embedded", "generated-name-is-checked-too"),
    // At run time, formats are plain strings to rules, and sets are lists.
    ("schema-cel-values", "typed-values-hold"),
    ("schema-cel-values", "typed-values-fail"),
    ("schema-cel-values", "joining-sets"),
    ("schema-cel-values", "sets-and-lists"),
];

fn left_out(scenario: &str, step: &str) -> bool {
    LEFT_OUT
        .iter()
        .any(|(s, i)| *s == scenario && (*i == step || *i == "*"))
}

fn compare(name: &str, id: &str, errors: &[FieldError], answer: &Json, failures: &mut Vec<String>) {
    let Some(want) = wanted(answer) else { return };
    let got = got(errors, &want);
    if got != want {
        let missing: Vec<_> = want.iter().filter(|c| !got.contains(c)).collect();
        let extra: Vec<_> = got.iter().filter(|c| !want.contains(c)).collect();
        failures.push(format!("{name} {id}\n  missing {missing:#?}\n  extra {extra:#?}"));
    }
}

#[test]
fn objects_are_judged_as_recorded() {
    let Some(dir) = scenarios() else { return };
    let names = [
        "cel-rules",
        "cel-transitions",
        "cel-values",
        "collections",
        "embedded",
        "formats",
        "junctors",
        "list-types",
        "nulls-defaults",
        "numbers",
        "pruning",
        "ratcheting",
        "strings",
        "types",
    ];
    let mut failures = Vec::new();
    let mut steps = 0;
    for name in names {
        let name = format!("schema-{name}");
        let scenario = load(&dir, &name);
        let mut server = Server::default();
        for step in &scenario.steps {
            let id = step["id"].as_str().unwrap_or("");
            let Some(errors) = server.answer(step) else { continue };
            let Some(answer) = scenario.golden.get(id).filter(|a| !a.is_null()) else {
                continue;
            };
            if left_out(&name, id) {
                continue;
            }
            steps += 1;
            compare(&name, id, &errors, answer, &mut failures);
            if step["request"].as_str().is_some_and(|r| !r.contains("fieldValidation")) {
                let warnings = answer.pointer("/headers/Warning").and_then(Json::as_array);
                let warnings = warnings.into_iter().flatten().filter_map(Json::as_str);
                let unknown =
                    warnings.filter_map(|w| w.strip_prefix("299 - \"unknown field \\\"")?.strip_suffix("\\\"\""));
                let want: Vec<&str> = unknown.collect();
                if answer.get("headers").is_some() && server.unknown != want {
                    failures.push(format!("{name} {id}\n  want {want:?}\n  got  {:?}", server.unknown));
                }
            }
            // The stored object, where the recording has it.
            for (pointer, want) in answer.as_object().unwrap() {
                if let (Some(field), true) = (pointer.strip_prefix("body."), errors.is_empty())
                    && !field.contains(['.', '['])
                {
                    let got = server.last.get(field).unwrap_or(&Json::Null);
                    if !same(got, want) {
                        failures.push(format!("{name} {id} {field}\n  want {want}\n  got  {got}"));
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {steps} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{steps} recorded answers agree");
}

#[test]
fn definitions_are_judged_as_recorded() {
    let Some(dir) = scenarios() else { return };
    let names = [
        "schema-defaults",
        "schema-extensions",
        "schema-forbidden",
        "schema-structural",
        "names-invalid",
        "versions-invalid",
        "subresources-invalid",
        "conversion-invalid",
        "protected-groups",
    ];
    let mut failures = Vec::new();
    let mut steps = 0;
    let families = names
        .iter()
        .map(|n| format!("crd-{n}"))
        .chain(["schema-cel-compile".to_owned(), "schema-cel-cost".to_owned()]);
    for name in families {
        let scenario = load(&dir, &name);
        for step in &scenario.steps {
            let id = step["id"].as_str().unwrap_or("");
            let is_post = step["request"]
                .as_str()
                .is_some_and(|r| r.starts_with("POST") && r.contains("definitions"));
            let (Some(mut definition), true) = (body(step), is_post) else {
                continue;
            };
            let Some(answer) = scenario.golden.get(id).filter(|a| !a.is_null()) else {
                continue;
            };
            if left_out(&name, id) {
                continue;
            }
            steps += 1;
            schema::default_definition(&mut definition);
            let errors = schema::validate_definition(&definition);
            compare(&name, id, &errors, answer, &mut failures);
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {steps} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{steps} recorded answers agree");
}

#[test]
fn schemas_are_published_as_recorded() {
    let Some(dir) = scenarios() else { return };
    let scenario = load(&dir, "crd-openapi-v3");
    let create = scenario.steps.iter().find(|s| s["id"] == "create").unwrap();
    let document = create.pointer("/body/spec/versions/0/schema/openAPIV3Schema").unwrap();
    let recorded = &scenario.golden["schemas"]["body.components"]["schemas"]["com.example.golden.v1.Widget"];
    let mut want = recorded.clone();
    want.as_object_mut().unwrap().remove("x-kubernetes-group-version-kind");
    assert_eq!(schema::openapi_v3(document), want);
}

/// kcp's kinds by their own definitions: accepted objects are accepted here, and objects refused by
/// schema or rule are refused with the same causes.
#[test]
fn kinds_of_kcp_are_judged_as_recorded() {
    let Some(dir) = scenarios() else { return };
    let folder = dir.join("../../testdata/crds/kcp");
    let mut kinds: BTreeMap<(String, String), Structural> = BTreeMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let definition: Json = serde_saphyr::from_str(&text).unwrap();
        let spec = &definition["spec"];
        for version in spec["versions"].as_array().unwrap() {
            let name = format!(
                "{}/{}",
                spec["group"].as_str().unwrap(),
                version["name"].as_str().unwrap()
            );
            let compiled = Structural::parse_trusted(&version["schema"]["openAPIV3Schema"]).unwrap();
            kinds.insert((name, spec["names"]["kind"].as_str().unwrap().to_owned()), compiled);
        }
    }
    let mut failures = Vec::new();
    let mut steps = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".yaml").filter(|n| n.starts_with("kcp-")) else {
            continue;
        };
        let scenario = load(&dir, name);
        for step in &scenario.steps {
            let id = step["id"].as_str().unwrap_or("");
            let (Some(answer), Some(mut object)) = (scenario.golden.get(id), body(step)) else {
                continue;
            };
            let text = |name: &str| object.get(name).and_then(Json::as_str).unwrap_or("").to_owned();
            let Some(compiled) = kinds.get(&(text("apiVersion"), text("kind"))) else {
                continue;
            };
            if !step["request"].as_str().unwrap().starts_with("POST") || left_out(name, id) {
                continue;
            }
            steps += 1;
            schema::prune(&mut object, compiled);
            schema::drop_nulls(&mut object, compiled);
            schema::default(&mut object, compiled);
            object.as_object_mut().unwrap().remove("status");
            compare(
                name,
                id,
                &schema::validate(&object, compiled, &Meter::unbounded()),
                answer,
                &mut failures,
            );
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {steps} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{steps} recorded answers agree");
}
