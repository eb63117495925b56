//! Admission of APIResourceSchemas: immutable definitions with names of their own.

use crate::{
    kinds::{
        hidden, release,
        review::{Review, Rules, spaced},
        usage,
    },
    publication::Acceptance,
};
use insula_api::{FieldError, FieldPath, Json};
use insula_catalog::{Result, bundle, exports::offering, parts};
use insula_schema::{undecodable_schema, validate_definition};
use serde_json::json;
use std::collections::BTreeSet;

/// Fields that errors of definitions report at the root if all versions agree, and their paths in a
/// schema.
const MOVED: [(&str, &str); 4] = [
    ("spec.validation", "spec.versions[0].schema"),
    (
        "spec.additionalPrinterColumns",
        "spec.versions[0].additionalPrinterColumns",
    ),
    ("spec.subresources", "spec.versions[0].subresources"),
    ("spec.selectableFields", "spec.versions[0].selectableFields"),
];

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, new, old),
    deletion: review_deletion,
    ..Rules::new("apis.kcp.io", &["apiresourceschemas"])
};

fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    let accepted = hidden::accepted(new, |why| review.warn(why));
    hidden::forget_once(new);
    if let Some(old) = old {
        if new["spec"] == old["spec"] {
            return Ok(());
        }
        let error = FieldError::invalid_text(&FieldPath::new("spec"), "", "is immutable");
        return Err(review.forbid(new, spaced(&[error])));
    }
    let errors = check(new);
    if !errors.is_empty() {
        return Err(review.forbid(new, spaced(&errors)));
    }
    check_rules(review, new)?;
    warn_of_effects(review, new, &accepted);
    Ok(())
}

/// Warns of the effects on stored objects of a schema that is all that its release has. Where
/// fields break between its versions, rules are still to come, and the warnings with them.
fn warn_of_effects(review: &Review<'_>, new: &Json, accepted: &[Acceptance]) {
    let name = text(new, "/metadata/name");
    let rules = parts::joined(review.snapshot, review.cluster, name);
    let compiled = review.catalog.compile(&bundle::of_schema(new, rules.as_ref()));
    if let Some(api) = compiled.ok().filter(|api| api.bundle.breaks().is_empty()) {
        release::warn_of_effects(review, name, &api, accepted);
    }
}

/// Returns the errors of a schema by itself: of its name, its versions and their schemas.
/// Conversion rules are not checked.
pub fn check(schema: &Json) -> Vec<FieldError> {
    let mut errors = check_name(schema);
    // Nothing else can be said of a schema that cannot be read, and it would be read in part.
    let undecodable = undecodable(schema);
    errors.extend(match undecodable.is_empty() {
        true => check_definition(schema),
        false => undecodable,
    });
    errors
}

/// Returns the errors of keywords of a wrong type, as Go's decoder of schemas reports them.
fn undecodable(schema: &Json) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("versions");
    let versions = schema["spec"]["versions"].as_array().into_iter().flatten().enumerate();
    let errors = versions.filter_map(|(i, version)| {
        let why = undecodable_schema(&version["schema"])?;
        Some(FieldError::invalid_text(&at.index(i).child("schema"), "", why))
    });
    errors.collect()
}

/// Refuses to delete a schema that an export offers, or that serves stored objects: the next
/// consumer must find them in the same form.
fn review_deletion(review: &Review<'_>, old: &Json) -> Result<()> {
    let usage = usage::of_schema(review.snapshot, text(old, "/metadata/uid"));
    if usage.is_empty() {
        return match offered_by(review, text(old, "/metadata/name")) {
            Some(export) => Err(review.forbid(
                old,
                format!("APIExport {export:?} offers it: let it offer another schema in its place first"),
            )),
            None => Ok(()),
        };
    }
    let why = format!(
        "it serves {}: let the APIExports offer another schema in its place first",
        usage.message(&review.names())
    );
    Err(review.forbid(old, why))
}

/// Returns the name of an export of the workspace that offers a schema.
fn offered_by(review: &Review<'_>, schema: &str) -> Option<String> {
    let exports = offering(review.snapshot, review.cluster, &BTreeSet::from([schema.to_owned()]));
    let mut staying = exports.iter().filter(|export| !export.object.meta.is_deleting());
    staying.next().map(|export| export.key.name.to_string())
}

fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// Checks that the name is `<prefix>.<plural>.<group>`.
fn check_name(schema: &Json) -> Vec<FieldError> {
    let (name, plural) = (text(schema, "/metadata/name"), text(schema, "/spec/names/plural"));
    let group = text(schema, "/spec/group");
    let suffix = format!(".{plural}.{}", if group.is_empty() { "core" } else { group });
    let at = FieldPath::new("metadata").child("name");
    let why = match name.strip_suffix(&suffix) {
        Some(prefix) if is_label(prefix) => return Vec::new(),
        Some(_) => format!("must match ^[a-z]([-a-z0-9]*[a-z0-9])?$ in front of {suffix}"),
        None => format!("must end in {suffix}"),
    };
    vec![FieldError::invalid(&at, &json!(name), why)]
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(inner)
        && text.chars().all(|c| inner(c) || c == '-')
}

/// Validates a schema by the rules of definitions and reports the paths of schemas.
fn check_definition(schema: &Json) -> Vec<FieldError> {
    let mut spec = bundle::definition_of(&schema["spec"]);
    spec["conversion"] = json!({"strategy": "None"});
    let versions = spec["versions"].as_array().into_iter().flatten();
    let storage: Vec<Json> = versions
        .filter(|v| v["storage"] == true)
        .map(|v| v["name"].clone())
        .collect();
    let group = text(schema, "/spec/group").to_owned();
    let definition = json!({
        "metadata": {"annotations": schema["metadata"]["annotations"]},
        "spec": spec,
        "status": {"storedVersions": storage},
    });
    let mut errors = Vec::new();
    let at = FieldPath::new("spec").child("group");
    if group == "core" {
        errors.push(FieldError::invalid(
            &at,
            &json!(group),
            "must be empty string for the core group",
        ));
    }
    let free = group.is_empty() || group == "core";
    let found = validate_definition(&definition)
        .into_iter()
        .filter(|error| !(error.field.as_str().starts_with("status.") || free && error.field == at));
    let mut found: Vec<FieldError> = found.map(moved).collect();
    // Errors inside a schema are sorted by their text, as in Kubernetes.
    let inside = |error: &FieldError| error.field.as_str().contains("openAPIV3Schema");
    let first = found.iter().position(inside).unwrap_or_default();
    let last = found.iter().rposition(inside).map_or(first, |last| last + 1);
    if found[first..last].iter().all(inside) {
        found[first..last].sort_by_cached_key(ToString::to_string);
    }
    errors.extend(found);
    errors
}

/// Moves an error to the path that schemas use.
fn moved(error: FieldError) -> FieldError {
    let path = error.field.as_str();
    let moved = MOVED
        .iter()
        .find_map(|(from, to)| Some(format!("{to}{}", path.strip_prefix(from)?)));
    match moved {
        Some(path) => FieldError {
            field: FieldPath::new(&path),
            ..error
        },
        None => error,
    }
}

/// Checks that conversion rules in the schema itself convert between its versions. Rules of an
/// APIConversion may come later.
fn check_rules(review: &Review<'_>, schema: &Json) -> Result<()> {
    let invalid = |errors| Err(review.served.api.invalid(text(schema, "/metadata/name"), errors));
    let mut errors = match insula_conversion::rules_in_schema(schema) {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => Vec::new(),
        Err(malformed) => malformed.errors,
    };
    match review
        .catalog
        .prove(&bundle::of_schema(schema, None), &review.served.meter)
    {
        Ok(api) if errors.is_empty() => {
            super::apiconversion::warn_of_rules(review, &api);
            Ok(())
        }
        Ok(_) => invalid(errors),
        Err(found) => {
            // Proving parses the rules again, and finds what is malformed again.
            let found = bundle::point_into_schema(schema, found).into_iter();
            let new: Vec<_> = found.filter(|error| !errors.contains(error)).collect();
            errors.extend(new);
            invalid(errors)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(keyword: &Json) -> Vec<String> {
        let mut spec = json!({"type": "object", "properties": {"n": {"type": "string"}}});
        spec.as_object_mut()
            .expect("a schema")
            .extend(keyword.as_object().expect("a keyword").clone());
        let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
        let schema = json!({"metadata": {"name": "one.widgets.example.io"}, "spec": {"group": "example.io",
            "scope": "Cluster", "names": names, "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"type": "object", "properties": {"spec": spec}}}]}});
        check(&schema).iter().map(ToString::to_string).collect()
    }

    /// In YAML an `n` without quotes is a boolean: a field of this name would not be required.
    #[test]
    fn a_keyword_of_a_wrong_type_is_refused() {
        assert_eq!(errors(&json!({"required": ["n"]})), [""; 0]);
        for wrong in [
            json!({"required": [false]}),
            json!({"required": "n"}),
            json!({"maxProperties": "3"}),
            json!({"nullable": "yes"}),
            json!({"x-kubernetes-validations": {"rule": "true"}}),
        ] {
            let found = errors(&wrong);
            assert!(
                found.len() == 1 && found[0].contains("spec.versions[0].schema: Invalid value"),
                "{wrong}: {found:?}"
            );
        }
    }
}
