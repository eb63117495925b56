//! Tables of schemas with rules (`data/rules.yaml`): errors of admission, and errors of the rules.

use insula_api::{FieldPath, Json};
use insula_meter::Meter;
use insula_schema::{Structural, validate, validate_definition, validate_definition_update, validate_update};

fn strings(row: &Json, name: &str) -> Vec<String> {
    let list = row.get(name).and_then(Json::as_array).into_iter().flatten();
    let mut list: Vec<String> = list.map(|s| s.as_str().unwrap().to_owned()).collect();
    list.sort();
    list
}

fn sorted<T: ToString>(list: &[T]) -> Vec<String> {
    let mut list: Vec<String> = list.iter().map(ToString::to_string).collect();
    list.sort();
    list
}

fn rows() -> Vec<Json> {
    let tables = [include_str!("data/rules.yaml"), include_str!("data/rule_limits.yaml")];
    let rows = tables.into_iter().flat_map(|table| {
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options::<Vec<Json>>(table, options).unwrap()
    });
    rows.collect()
}

#[test]
fn tables() {
    for row in rows() {
        let name = row["name"].as_str().unwrap();
        let schema = match Structural::parse(&row["schema"], &FieldPath::new("s")) {
            Err(errors) => {
                assert_eq!(sorted(&errors), strings(&row, "refused"), "{name}");
                continue;
            }
            Ok(schema) => schema,
        };
        assert!(row.get("refused").is_none(), "{name}: accepted");
        for case in row["cases"].as_array().unwrap() {
            let (errors, warnings) = match case.get("old") {
                Some(old) => {
                    let outcome = validate_update(&case["object"], old, &schema, &Meter::unbounded());
                    (outcome.errors, outcome.warnings)
                }
                None => (validate(&case["object"], &schema, &Meter::unbounded()), Vec::new()),
            };
            assert_eq!(sorted(&errors), strings(case, "errors"), "{name}: {case}");
            assert_eq!(sorted(&warnings), strings(case, "warnings"), "{name}: {case}");
        }
    }
}

/// Stored schemas stay usable when admission becomes stricter. A rule that no longer compiles
/// refuses every value.
#[test]
fn stored_schemas_compile_always() {
    for row in rows() {
        Structural::parse_trusted(&row["schema"]).unwrap();
    }
    let document = serde_json::json!({"type": "object", "properties": {
        "typed": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == 'text' || self > 0"}]},
        "broken": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >", "message": "grows"}]},
    }});
    let schema = Structural::parse_trusted(&document).unwrap();
    assert!(validate(&serde_json::json!({"typed": 1}), &schema, &Meter::unbounded()).is_empty());
    assert_eq!(
        validate(&serde_json::json!({"typed": 0}), &schema, &Meter::unbounded()).len(),
        1
    );
    let errors = validate(&serde_json::json!({"broken": 1}), &schema, &Meter::unbounded());
    assert!(
        errors[0]
            .to_string()
            .contains("rule compile error: compilation failed: ERROR"),
        "{}",
        errors[0]
    );
}

/// A definition whose rules would be refused today can still be changed in other fields and
/// versions; new rules are checked.
#[test]
fn unchanged_rules_are_not_newly_refused() {
    let version = |name: &str, rules: &[&str]| {
        let rules: Vec<Json> = rules.iter().map(|rule| serde_json::json!({"rule": rule})).collect();
        serde_json::json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {name: {"type": "string"},
            "spec": {"type": "object", "x-kubernetes-validations": rules}}}}})
    };
    let definition = |versions: Vec<Json>| {
        let names = serde_json::json!({"plural": "tries", "singular": "try", "kind": "Try", "listKind": "TryList"});
        serde_json::json!({
            "metadata": {"name": "tries.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": names, "conversion": {"strategy": "None"},
                "versions": versions},
        })
    };
    let old = definition(vec![version("v1", &["nothing > 1"])]);
    assert_eq!(validate_definition(&old).len(), 1);
    let moved = definition(vec![version("v2", &["true"]), version("v1", &["nothing > 1"])]);
    assert_eq!(validate_definition(&moved).len(), 1);
    assert_eq!(sorted(&validate_definition_update(&moved, &old)), [""; 0]);
    let changed = definition(vec![version("v1", &["nothing > 2"])]);
    let errors = sorted(&validate_definition_update(&changed, &old));
    assert!(
        errors.len() == 1 && errors[0].contains("undeclared reference to 'nothing'"),
        "{errors:?}"
    );
}

/// The message of a rule that fails for an unchanged value may exceed its limit: that is a warning,
/// and the rules that follow still run.
#[test]
fn a_message_that_costs_too_much_locks_no_unchanged_value() {
    let message = "string(self.all(x, self.all(y, self.all(z, x + y + z >= 0))))";
    let rules = serde_json::json!([
        {"rule": "size(self) < 9", "messageExpression": message},
        {"rule": "self.all(x, x != 7)", "message": "no seven"},
    ]);
    let items = serde_json::json!({"type": "integer"});
    let list = serde_json::json!({"type": "array", "items": items, "x-kubernetes-validations": rules});
    let document = serde_json::json!({"type": "object", "properties": {"l": list}});
    let schema = Structural::parse_trusted(&document).unwrap();
    let object = |last: i64| serde_json::json!({"l": (100..300).chain([last]).collect::<Vec<i64>>()});
    let errors = sorted(&validate(&object(7), &schema, &Meter::unbounded()));
    let limit = "call cost exceeds limit for messageExpression";
    assert!(errors.len() == 1 && errors[0].contains(limit), "{errors:?}");
    let outcome = validate_update(&object(7), &object(7), &schema, &Meter::unbounded());
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    let warned = |text: &str| outcome.warnings.iter().any(|warning| warning.contains(text));
    assert!(warned(limit) && warned("no seven"), "{outcome:?}");
    let changed = validate_update(&object(7), &object(8), &schema, &Meter::unbounded());
    assert!(changed.errors.len() == 1, "{changed:?}");
}

/// A rule of the whole object that is false refuses changes of what it may judge, and not labels,
/// finalizers or a status that it does not read.
#[test]
fn a_false_rule_of_the_object_locks_no_metadata() {
    let text = serde_json::json!({"type": "string"});
    let fields = serde_json::json!({"type": "object", "properties": {"a": text, "b": text}});
    let rules = serde_json::json!([{"rule": "self.spec.a == 'x'"}]);
    let document = serde_json::json!({"type": "object", "x-kubernetes-validations": rules, "properties":
        {"metadata": {"type": "object"}, "spec": fields, "status": fields}});
    let schema = Structural::parse_trusted(&document).unwrap();
    let object = |label: &str, b: &str, status: &str| {
        serde_json::json!({"apiVersion": "example.com/v1", "kind": "Try", "metadata": {"labels": {"l": label}},
            "spec": {"a": "y", "b": b}, "status": {"a": status}})
    };
    let old = object("one", "one", "one");
    let errors = |new: &Json| validate_update(new, &old, &schema, &Meter::unbounded()).errors.len();
    let warned = validate_update(&object("two", "one", "two"), &old, &schema, &Meter::unbounded()).warnings;
    assert_eq!(errors(&object("two", "one", "two")), 0);
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!(errors(&object("two", "two", "one")), 1);
    let judged = serde_json::json!([{"rule": "self.spec.a == self.status.a"}]);
    let mut document = document.clone();
    document["x-kubernetes-validations"] = judged;
    let schema = Structural::parse_trusted(&document).unwrap();
    assert_eq!(
        validate_update(&object("one", "one", "two"), &old, &schema, &Meter::unbounded())
            .errors
            .len(),
        1
    );
}

/// A required field that an object lacks, and alternatives that it fails, refuse no change of its
/// metadata; the alternatives may read the status.
#[test]
fn errors_of_an_unchanged_object_lock_no_metadata() {
    let text = serde_json::json!({"type": "string"});
    let fields = serde_json::json!({"type": "object", "properties": {"a": text}});
    let any_of = serde_json::json!([{"required": ["spec"]}, {"required": ["other"]}]);
    let document = serde_json::json!({"type": "object", "required": ["spec"], "anyOf": any_of,
        "properties": {"metadata": {"type": "object"}, "spec": fields, "status": fields, "other": fields}});
    let schema = Structural::parse_trusted(&document).unwrap();
    let object =
        |label: &str, status: &str| serde_json::json!({"metadata": {"labels": {"l": label}}, "status": {"a": status}});
    let old = object("one", "one");
    let errors = |new: &Json| sorted(&validate_update(new, &old, &schema, &Meter::unbounded()).errors);
    assert_eq!(errors(&object("two", "one")), [""; 0]);
    let mut touched = object("two", "one");
    touched["other"] = serde_json::json!({"a": 1});
    assert_eq!(errors(&touched).len(), 2, "{:?}", errors(&touched));
    let written = errors(&object("one", "two"));
    assert!(written.iter().all(|error| !error.contains("Required")), "{written:?}");
    assert_eq!(written.len(), 1, "{written:?}");
}
