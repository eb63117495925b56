//! APIConversions of one schema: the object of the schema's name, and those that name the schema in
//! a label, for rule sets that are too large for one object.

use crate::ids;
use insula_api::{ClusterName, FieldError, FieldPath, Json, Object, Scope, names::labels};
use insula_conversion::{RuleSet, parse_rules};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::{collections::BTreeSet, ops::ControlFlow};

/// Maximum number of APIConversions of one schema.
pub const PARTS_MAX: usize = 32;

/// Returns the name of the schema or definition that an APIConversion belongs to: that of its
/// label, else its own.
pub fn schema_of(conversion: &Json) -> &str {
    let metadata = &conversion["metadata"];
    let labelled = labels::SCHEMA
        .iter()
        .find_map(|label| metadata["labels"][*label].as_str());
    labelled.or(metadata["name"].as_str()).unwrap_or_default()
}

/// Returns the name of the schema of a stored APIConversion.
pub fn schema_of_stored<'o>(object: &'o Object, name: &'o str) -> &'o str {
    let labelled = labels::SCHEMA.iter().find_map(|label| object.meta.label(label));
    labelled.unwrap_or(name)
}

/// Returns the schemas that a change of an APIConversion concerns: that of before and that of
/// after.
pub fn schemas_of_change(change: &Change) -> BTreeSet<String> {
    let objects = change.old.iter().map(|old| &*old.object).chain(change.new.as_deref());
    objects
        .map(|object| schema_of_stored(object, &change.key.name).to_owned())
        .collect()
}

/// Returns the schemas that a change of an APIResourceSchema or of an APIConversion concerns.
pub fn schemas_of(change: &Change) -> BTreeSet<String> {
    match change.key.resource == ids::apiconversions() {
        true => schemas_of_change(change),
        false => BTreeSet::from([change.key.name.to_string()]),
    }
}

/// Returns the APIConversions of a schema or definition, by name.
pub fn for_schema(snapshot: &Snapshot, cluster: &ClusterName, schema: &str) -> Vec<Entry> {
    let mut parts = Vec::new();
    snapshot.for_each(&Scope::cluster(ids::apiconversions(), cluster.clone()), |entry| {
        if schema_of_stored(&entry.object, &entry.key.name) == schema {
            parts.push(entry.clone());
        }
        ControlFlow::Continue(())
    });
    parts.sort_unstable_by(|a, b| a.key.name.cmp(&b.key.name));
    parts
}

/// Joins the rules of a schema, sorted by name. One object is left as it is; several become
/// `{spec: {parts: [{name, spec}, …]}}`.
pub fn join(mut parts: Vec<Json>) -> Option<Json> {
    if parts.len() < 2 {
        return parts.pop();
    }
    let part = |conversion: &Json| json!({"name": conversion["metadata"]["name"], "spec": conversion["spec"]});
    Some(json!({"spec": {"parts": parts.iter().map(part).collect::<Json>()}}))
}

/// Returns the joined rules of a schema, as they are stored.
pub fn joined(snapshot: &Snapshot, cluster: &ClusterName, schema: &str) -> Option<Json> {
    let parts = for_schema(snapshot, cluster, schema);
    join(parts.iter().map(|part| part.object.body_value()).collect())
}

/// Versions by which rules and a definition differ: one of the two came before the other.
pub struct Apart {
    /// Versions that the rules name and the definition lacks.
    pub missing: Vec<String>,
    /// Versions that the definition has and the rules do not name. One of the same shape needs no
    /// rules.
    pub unnamed: Vec<String>,
}

/// Returns the versions by which rules and a definition differ.
pub fn apart(rules: &RuleSet, definition: &Json) -> Apart {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let known: Vec<&str> = versions.filter_map(|version| version["name"].as_str()).collect();
    let named = rules.named_versions();
    let beside = |all: &[&str], others: &[&str]| {
        let beside = all.iter().filter(|version| !others.contains(version));
        beside.map(|version| (*version).to_owned()).collect()
    };
    Apart {
        missing: beside(&named, &known),
        unnamed: beside(&known, &named),
    }
}

/// Returns the versions that the rules in force name which serve a definition; none if it is served
/// without rules.
fn ruled_versions(snapshot: &Snapshot, definition: &Json) -> Vec<String> {
    let uid = definition["metadata"]["uid"].as_str().unwrap_or_default();
    let Some(bundle) = snapshot.get(&ids::bundle(uid)) else {
        return Vec::new();
    };
    let rules = parse_rules(&bundle.object.body_value()["rules"], &FieldPath::new("rules"));
    let named = |rules: RuleSet| rules.named_versions().into_iter().map(str::to_owned).collect();
    rules.map(named).unwrap_or_default()
}

/// Returns the versions that a definition has, that the rules in force name and that others do no
/// longer.
pub fn given_up(snapshot: &Snapshot, definition: &Json, apart: Apart) -> Vec<String> {
    let ruled = ruled_versions(snapshot, definition);
    let unnamed = apart.unnamed.into_iter();
    unnamed.filter(|version| ruled.contains(version)).collect()
}

/// Returns a definition as it is once it has no longer these versions, which rules may wait for.
pub fn without_versions(definition: &Json, gone: &[String]) -> Json {
    let mut definition = definition.clone();
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.retain(|version| !gone.iter().any(|gone| version["name"] == **gone));
    }
    definition
}

/// Returns the errors of joined rules for the author of one of the objects: its own are at their
/// fields, those of others say where they are.
pub fn errors_for(name: &str, errors: Vec<FieldError>) -> Vec<FieldError> {
    let placed = errors.into_iter().map(|error| match split(error.field.as_str()) {
        Some((part, path)) if part == name => FieldError {
            field: FieldPath::new(path),
            ..error
        },
        Some((part, path)) => FieldError {
            field: FieldPath::new("spec"),
            detail: format!("{path} of APIConversion {part:?}: {}", error.detail),
            ..error
        },
        None => error,
    });
    placed.collect()
}

/// Splits the path of an error, or the name of a rule, of joined rules into the object's name and
/// the path inside of it.
pub fn split(path: &str) -> Option<(&str, &str)> {
    let (part, rest) = path.split_once(':')?;
    let is_rule = rest.starts_with("spec") || rest.starts_with("conversions[");
    is_rule.then_some((part, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_of_either_group_names_the_schema() {
        let conversion = |labels: Json| json!({"metadata": {"name": "own", "labels": labels}});
        for (labels, schema) in [
            (json!({}), "own"),
            (json!({"apis.kcp.dev/apiresourceschema": "rev1"}), "rev1"),
            (json!({"apis.kcp.io/apiresourceschema": "rev2"}), "rev2"),
            (json!({"other": "rev3"}), "own"),
        ] {
            assert_eq!(schema_of(&conversion(labels)), schema);
        }
    }

    #[test]
    fn one_object_is_not_changed_and_several_are_joined() {
        let part = |name: &str| json!({"metadata": {"name": name}, "spec": {"conversions": [name]}});
        assert_eq!(join(vec![]), None);
        assert_eq!(join(vec![part("a")]), Some(part("a")));
        assert_eq!(
            join(vec![part("a"), part("b")]),
            Some(json!({"spec": {"parts": [
                {"name": "a", "spec": {"conversions": ["a"]}}, {"name": "b", "spec": {"conversions": ["b"]}}]}}))
        );
    }

    #[test]
    fn errors_are_at_the_fields_of_the_object_that_was_sent() {
        let error = |field: &str| FieldError::required(&FieldPath::new(field), "x");
        let errors = vec![
            error("a:spec.conversions[0].to"),
            error("b:spec.hub"),
            error("spec.conversions"),
        ];
        let shown: Vec<String> = errors_for("a", errors).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "spec.conversions[0].to: Required value: x",
                "spec: Required value: spec.hub of APIConversion \"b\": x",
                "spec.conversions: Required value: x"
            ]
        );
    }
}
