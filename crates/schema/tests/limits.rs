//! Limits on input of tenants: each hostile input is refused or validated quickly on a small stack.

use insula_api::{FieldPath, Json};
use insula_meter::Meter;
use insula_schema::{SCHEMA_BYTES_MAX, Structural, validate, validate_schema, validate_update};
use serde_json::json;

fn refusal(schema: &Json) -> String {
    match Structural::parse(schema, &FieldPath::new("spec")) {
        Ok(_) => "accepted".to_owned(),
        Err(errors) => errors[0].to_string(),
    }
}

fn nested(keyword: &str, depth: usize) -> Json {
    (0..depth).fold(json!({"type": "string"}), |inner, _| match keyword {
        "items" => json!({"type": "array", "items": inner}),
        "properties" => json!({"type": "object", "properties": {"a": inner}}),
        _ => json!({"type": "string", "allOf": [{"not": inner}]}),
    })
}

#[test]
fn deep_schemas_are_refused_on_a_small_stack() {
    let worker = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(|| {
        for keyword in ["items", "properties", "allOf"] {
            let root = json!({"type": "object", "properties": {"spec": nested(keyword, 300)}});
            assert!(
                refusal(&root).contains("nested at most"),
                "{keyword}: {}",
                refusal(&root)
            );
            // Walks of the deepest accepted schema fit the stack.
            let _ = refusal(&json!({"type": "object", "properties": {"spec": nested(keyword, 95)}}));
        }
        let deepest = json!({"type": "object", "properties": {"spec": nested("properties", 95)}});
        let schema = Structural::parse(&deepest, &FieldPath::root()).unwrap();
        let object = (0..95).fold(json!(1), |inner, _| json!({"a": inner}));
        assert_eq!(
            validate(&json!({"spec": object}), &schema, &Meter::unbounded()).len(),
            1
        );
    });
    worker.unwrap().join().unwrap();
}

#[test]
fn wide_and_long_schemas_are_refused_by_name() {
    let fields: serde_json::Map<String, Json> = (0..210_000)
        .map(|i| (i.to_string(), json!({"type": "string"})))
        .collect();
    let wide = refusal(&json!({"type": "object", "properties": fields}));
    assert!(wide.contains("nodes") || wide.contains("bytes"), "{wide}");
    let long = json!({"type": "object", "description": "x".repeat(SCHEMA_BYTES_MAX)});
    assert!(refusal(&long).contains("bytes"), "{}", refusal(&long));
}

#[test]
fn a_million_errors_are_not_a_million_sentences() {
    let document = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
    }});
    let schema = Structural::parse(&document, &FieldPath::root()).unwrap();
    let list: Vec<Json> = (0..500_000).map(Json::from).collect();
    let set: Vec<Json> = (0..500_000).map(|i| Json::from(i / 2)).collect();
    let errors = validate_schema(&json!({"list": list, "set": set}), &schema, &Meter::unbounded());
    assert!((1000..3000).contains(&errors.len()), "{}", errors.len());
}

#[test]
fn dear_rules_stop() {
    let rule = "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))";
    let document = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}]},
    }});
    let refused = Structural::parse(&document, &FieldPath::root()).unwrap_err();
    assert!(refused[0].to_string().contains("more than 100x"), "{}", refused[0]);
    // Stored before estimates existed: run-time limits apply too.
    let schema = Structural::parse_trusted(&document).unwrap();
    let list: Vec<Json> = (0..1000).map(Json::from).collect();
    let errors = validate(&json!({"list": list}), &schema, &Meter::unbounded());
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("cost"), "{}", errors[0]);
}

/// Returns the errors of a list under `rules` rules, each of about 770,000 units for 331 items.
fn spend(rules: usize, items: usize) -> Vec<String> {
    let rule = json!({"rule": "self.all(a, self.all(b, a + b >= 0))"});
    let document = json!({"type": "object", "properties": {
        "list": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": vec![rule; rules]},
    }});
    let schema = Structural::parse_trusted(&document).unwrap();
    let errors = validate(&json!({"list": vec![1; items]}), &schema, &Meter::unbounded());
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_spend_a_million_each_and_ten_millions_an_object() {
    assert_eq!(
        spend(1, 400),
        [
            "list: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further \
         validation rules will be run due to call cost exceeds limit for rule: self.all(a, self.all(b, a + b >= 0))"
        ]
    );
    assert_eq!(
        spend(14, 331),
        [
            "list: Invalid value: \"array\": validation failed due to running out of cost budget, no further \
         validation rules will be run"
        ]
    );
}

#[test]
fn messages_of_expressions_have_5120_bytes() {
    let document = json!({"type": "object", "properties": {"s": {
        "type": "string", "maxLength": 6000, "x-kubernetes-validations": [{"rule": "self == ''",
            "messageExpression": "self"}],
    }}});
    let schema = Structural::parse(&document, &FieldPath::root()).unwrap();
    let message = |bytes: usize| {
        let errors = validate(&json!({"s": "x".repeat(bytes)}), &schema, &Meter::unbounded());
        errors[0].detail.clone()
    };
    assert_eq!(message(5120), "x".repeat(5120));
    assert_eq!(message(5121), "failed rule: self == ''");
}

#[test]
fn long_keyed_lists_in_opposite_orders_are_correlated() {
    let document = json!({"type": "object", "properties": {"list": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
        "items": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "integer"},
            "n": {"type": "integer", "maximum": 1, "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        }},
    }}});
    let schema = Structural::parse(&document, &FieldPath::root()).unwrap();
    let item = |i: usize, n: usize| json!({"id": i, "n": n});
    let old: Vec<Json> = (0..50_000).map(|i| item(i, 5)).collect();
    let new: Vec<Json> = (0..50_000).rev().map(|i| item(i, if i == 7 { 6 } else { 5 })).collect();
    let outcome = validate_update(
        &json!({"list": new}),
        &json!({"list": old}),
        &schema,
        &Meter::unbounded(),
    );
    let errors: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    let want = "list[49992].n: Invalid value: 6: list[49992].n in body should be less than or equal to 1";
    assert_eq!(errors, [want]);
}

/// Returns a schema with a pattern that makes a state of its own for nearly every byte of the text
/// that is returned with it.
fn costly_pattern() -> (Structural, String) {
    let pattern = json!("^(?:[01]*1[01]{700}$|[01]*0[01]{600}2)");
    let document = json!({"type": "object", "properties": {
        "plain": {"type": "string", "pattern": pattern},
        "not": {"type": "string", "not": {"pattern": pattern}},
        "any": {"type": "string", "anyOf": [{"pattern": pattern}, {"minLength": 1}]},
        "cheap": {"type": "string", "pattern": "^[a-z]*$"},
    }});
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if state >> 63 == 0 { '0' } else { '1' }
    };
    let text = (0..100_000).map(|_| next()).collect();
    (Structural::parse(&document, &FieldPath::root()).unwrap(), text)
}

#[test]
fn a_match_without_work_left_refuses_the_object() {
    let (schema, text) = costly_pattern();
    for field in ["plain", "not", "any"] {
        let errors = validate(&json!({field: text, "cheap": "a"}), &schema, &Meter::unbounded());
        let told: Vec<_> = errors
            .iter()
            .filter(|e| e.detail.contains("100000 bytes need more than"))
            .collect();
        assert_eq!(told.len(), 1, "{field}: {errors:?}");
        assert_eq!(told[0].field.to_string(), field);
        assert!(told[0].to_string().len() < 600, "the text is not repeated");
    }
}

#[test]
fn an_unchanged_text_is_not_matched_again() {
    let (schema, text) = costly_pattern();
    let old = json!({"plain": text, "any": text, "cheap": "a"});
    let new = json!({"plain": text, "any": text, "cheap": "b"});
    assert_eq!(validate_update(&new, &old, &schema, &Meter::unbounded()).errors, []);
    let new = json!({"plain": text, "any": text, "cheap": "1"});
    let errors = validate_update(&new, &old, &schema, &Meter::unbounded()).errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("should match"), "{errors:?}");
}
