//! Tables of schemas and objects (`data/objects.yaml`), and properties of generated ones.

use insula_api::Json;
use insula_meter::Meter;
use insula_schema::{Structural, default, drop_nulls, prune, prune_report, validate, validate_schema, validate_update};
use proptest::prelude::*;
use serde_json::json;

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list
}

fn strings(row: &Json, name: &str) -> Vec<String> {
    row.get(name)
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .map(|s| s.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn tables() {
    let text = include_str!("data/objects.yaml");
    let options = serde_saphyr::options! { strict_booleans: true };
    let rows: Vec<Json> = serde_saphyr::from_str_with_options(text, options).unwrap();
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let schema =
            Structural::parse(&row["schema"], &"schema".into_path()).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let mut object = row["object"].clone();
        assert_eq!(prune_report(&object, &schema), strings(&row, "unknown"), "{name}");
        prune(&mut object, &schema);
        drop_nulls(&mut object, &schema);
        default(&mut object, &schema);
        assert_eq!(&object, row.get("keeps").unwrap_or(&row["object"]), "{name}");
        let (errors, warnings) = match row.get("old") {
            Some(old) => {
                let outcome = validate_update(&object, old, &schema, &Meter::unbounded());
                (outcome.errors, outcome.warnings)
            }
            None => (validate(&object, &schema, &Meter::unbounded()), Vec::new()),
        };
        let errors = sorted(errors.iter().map(ToString::to_string).collect());
        assert_eq!(errors, sorted(strings(&row, "errors")), "{name}");
        assert_eq!(warnings, strings(&row, "warnings"), "{name}");
    }
}

#[test]
fn formats_accept_and_refuse_these_texts() {
    let options = serde_saphyr::options! { strict_booleans: true };
    let text = include_str!("data/formats.yaml");
    let rows: Vec<Json> = serde_saphyr::from_str_with_options(text, options).unwrap();
    for row in rows {
        let format = &row["format"];
        let schema = json!({"type": "object", "properties": {"text": {"type": "string", "format": format}}});
        let schema = Structural::parse(&schema, &"schema".into_path()).unwrap();
        for (list, valid) in [("valid", true), ("invalid", false)] {
            for text in strings(&row, list) {
                let errors = validate(&json!({"text": text}), &schema, &Meter::unbounded());
                assert_eq!(errors.is_empty(), valid, "{format}: {text:?}: {errors:?}");
            }
        }
    }
}

trait IntoPath {
    fn into_path(self) -> insula_api::FieldPath;
}

impl IntoPath for &str {
    fn into_path(self) -> insula_api::FieldPath {
        insula_api::FieldPath::new(self)
    }
}

/// Generates structural schemas, three levels deep, of keywords that mean the same in JSON Schema.
fn any_schema() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        (0usize..3, 0usize..5)
            .prop_map(|(min, more)| json!({"type": "string", "minLength": min, "maxLength": min + more})),
        prop::sample::select(vec!["^a", "b$", "^[ab]+$", "c"]).prop_map(|p| json!({"type": "string", "pattern": p})),
        Just(json!({"type": "string", "enum": ["a", "b"]})),
        (-3i64..3, 0i64..5).prop_map(|(min, more)| json!({"type": "integer", "minimum": min, "maximum": min + more})),
        (1i64..4).prop_map(|n| json!({"type": "integer", "multipleOf": n})),
        Just(json!({"type": "number"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "string", "anyOf": [{"minLength": 2}, {"enum": ["a"]}]})),
        Just(json!({"type": "integer", "oneOf": [{"minimum": 0}, {"multipleOf": 2}]})),
        Just(json!({"type": "integer", "not": {"enum": [1]}, "allOf": [{"maximum": 3}]})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            (prop::collection::btree_map("[a-d]", inner.clone(), 1..4), any::<bool>()).prop_map(|(fields, needed)| {
                let required: Vec<&String> = fields.keys().take(usize::from(needed)).collect();
                json!({"type": "object", "properties": fields, "required": required})
            }),
            (inner.clone(), 0usize..3)
                .prop_map(|(v, max)| json!({"type": "object", "additionalProperties": v, "maxProperties": max})),
            (inner, 0usize..2, 0usize..3).prop_map(
                |(items, min, more)| json!({"type": "array", "items": items, "minItems": min, "maxItems": min + more})
            ),
        ]
    })
}

fn any_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        "[a-c]{0,4}".prop_map(Json::from),
        (-5i64..8).prop_map(Json::from),
        any::<bool>().prop_map(Json::from),
        prop::sample::select(vec![0.5, 2.0, -1.25]).prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::btree_map("[a-e]", inner.clone(), 0..4).prop_map(|m| json!(m)),
            prop::collection::vec(inner, 0..4).prop_map(Json::from),
        ]
    })
}

/// Returns a value that follows the schema's types, so that the comparison covers more than wrong
/// types.
fn guided(schema: &Json, noise: &Json, depth: usize) -> Json {
    let text = |name: &str| schema.get(name).and_then(Json::as_str).unwrap_or("");
    match text("type") {
        "object" if depth < 5 => {
            let fields = schema.get("properties").and_then(Json::as_object);
            let entries = fields
                .into_iter()
                .flatten()
                .map(|(n, s)| (n.clone(), guided(s, noise, depth + 1)));
            let mut map: serde_json::Map<String, Json> = entries.collect();
            if let Some(values @ Json::Object(_)) = schema.get("additionalProperties") {
                map.insert("k".to_owned(), guided(values, noise, depth + 1));
            }
            Json::Object(map)
        }
        "array" if depth < 5 => json!([guided(&schema["items"], noise, depth + 1)]),
        "string" => match noise {
            Json::String(_) => noise.clone(),
            _ => json!("ab"),
        },
        "integer" | "number" => match noise {
            Json::Number(_) => noise.clone(),
            _ => json!(2),
        },
        _ => json!(true),
    }
}

fn rooted(schema: &Json) -> Json {
    json!({"type": "object", "properties": {"spec": schema}})
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pruning_twice_is_pruning_once(schema in any_schema(), value in any_value()) {
        let schema = Structural::parse_trusted(&rooted(&schema)).unwrap();
        let mut once = json!({"spec": value});
        prune(&mut once, &schema);
        prop_assert!(prune_report(&once, &schema).is_empty());
        let mut twice = once.clone();
        prune(&mut twice, &schema);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in any_schema(), value in any_value(), fallback in any_value()) {
        let mut document = rooted(&schema);
        document["properties"]["other"] = json!({"type": "object", "default": {}, "properties": {"x": schema}});
        document["properties"]["other"]["properties"]["x"]["default"] = fallback;
        let schema = Structural::parse_trusted(&document).unwrap();
        let mut once = json!({"spec": value});
        default(&mut once, &schema);
        let mut twice = once.clone();
        default(&mut twice, &schema);
        prop_assert_eq!(once, twice);
    }

    /// Another validator agrees on validity. Left out because they differ: formats (ours are
    /// Kubernetes'), boolean exclusive bounds (draft 4), nullable, and everything `x-kubernetes-*`.
    #[test]
    fn another_validator_agrees(schema in any_schema(), value in any_value(), noise in any_value()) {
        let document = rooted(&schema);
        let ours = Structural::parse_trusted(&document).unwrap();
        let theirs = jsonschema::draft7::new(&document).unwrap();
        for value in [value, guided(&schema, &noise, 0)] {
            let object = json!({"spec": value});
            let found = validate_schema(&object, &ours, &Meter::unbounded());
            prop_assert_eq!(found.is_empty(), theirs.is_valid(&object), "{} {}: {:?}", document, object, found);
        }
    }

    /// The schema never refuses an update without changes.
    #[test]
    fn nothing_changed_nothing_refused(schema in any_schema(), value in any_value()) {
        let schema = Structural::parse_trusted(&rooted(&schema)).unwrap();
        let object = json!({"spec": value});
        prop_assert!(validate_update(&object, &object, &schema, &Meter::unbounded()).errors.is_empty());
    }

    /// A schema fits itself, and admission never panics on any input.
    #[test]
    fn admission_is_total(schema in any_schema(), noise in any_value()) {
        let parsed = Structural::parse_trusted(&rooted(&schema)).unwrap();
        prop_assert!(parsed.root().fits(parsed.root()));
        let path = insula_api::FieldPath::root();
        let _ = Structural::parse(&noise, &path);
        let _ = Structural::parse(&json!({"type": "object", "properties": noise}), &path);
        let _ = insula_schema::validate_definition(&json!({"spec": noise}));
    }
}
