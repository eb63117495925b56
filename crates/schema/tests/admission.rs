//! Refused definitions, and definitions accepted with a warning (`data/definitions.yaml`).
//!
//! Each row changes a plain definition of widgets: `schema` is merged into the schema of `v1`,
//! `spec` into its spec, `definition` into the whole. A row with `new` is an update to `new`.
//! `errors` lists all errors in order; `…` stands for the rest of a long text.

use insula_api::Json;
use insula_schema::{
    default_definition, definition_warnings, validate_definition, validate_definition_status,
    validate_definition_update,
};
use serde_json::json;

fn plain() -> Json {
    json!({"metadata": {"name": "widgets.example.io"}, "spec": {
        "group": "example.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

/// Applies a merge patch (RFC 7396).
fn merge(into: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        patch.clone_into(into);
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        match value {
            Json::Null => drop(into.as_object_mut().unwrap().remove(key)),
            value => merge(&mut into[key], value),
        }
    }
}

fn changed(mut definition: Json, row: &Json) -> Json {
    if let Some(schema) = row.get("schema") {
        merge(
            &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            schema,
        );
    }
    if let Some(version) = row.get("version") {
        merge(&mut definition["spec"]["versions"][0], version);
    }
    if let Some(spec) = row.get("spec") {
        merge(&mut definition["spec"], spec);
    }
    if let Some(whole) = row.get("definition") {
        merge(&mut definition, whole);
    }
    default_definition(&mut definition);
    definition
}

fn fits(want: &str, got: &str) -> bool {
    match want.split_once('…') {
        Some((begin, end)) => got.starts_with(begin) && got.ends_with(end),
        None => want == got,
    }
}

#[test]
fn definitions_are_judged() {
    let rows: Vec<Json> = serde_saphyr::from_str(include_str!("data/definitions.yaml")).unwrap();
    let mut wrong = Vec::new();
    for row in &rows {
        let what = row["what"].as_str().unwrap();
        let definition = changed(plain(), row);
        let (errors, judged) = match (row.get("new"), row.get("status")) {
            (Some(new), _) => {
                let new = changed(definition.clone(), new);
                (validate_definition_update(&new, &definition), new)
            }
            (None, Some(_)) => (validate_definition_status(&definition), definition),
            (None, None) => (validate_definition(&definition), definition),
        };
        let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let want: Vec<&str> = row["errors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        if got.len() != want.len() || !want.iter().zip(&got).all(|(want, got)| fits(want, got)) {
            wrong.push(format!("{what}:\n  want {want:#?}\n  got {got:#?}"));
        }
        if let Some(warnings) = row.get("warnings") {
            assert_eq!(json!(definition_warnings(&judged)), *warnings, "{what}");
        }
        if let Some(part) = row.get("becomes") {
            let mut whole = judged.clone();
            merge(&mut whole, part);
            assert_eq!(whole, judged, "{what}");
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}
