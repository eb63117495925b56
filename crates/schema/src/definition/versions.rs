//! Versions of a definition: names, schemas, subresources, columns, selectable fields.

use super::{MadeAs, list};
use crate::columns;
use crate::keyword::{flag, text};
use crate::names;
use crate::structural::Structural;
use insula_api::{FieldError, FieldPath, Json};
use serde_json::Map;

const DEPRECATION_CHARS_MAX: usize = 256;
const SELECTABLE_FIELDS_MAX: usize = 8;

/// Keywords that the root may have beside a status subresource: those that do not restrict
/// `status`.
const BESIDE_STATUS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Checks all versions, in the order of `validateCustomResourceDefinitionSpec`. Schemas,
/// subresources, columns and selectable fields that all versions share are checked last, at the
/// former top-level fields.
pub(super) fn validate(spec: &Json, made_as: MadeAs, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    let versions = list(spec);
    let at = path.child("versions");
    for (i, version) in versions.iter().enumerate() {
        if made_as != MadeAs::Free && version.pointer("/schema/openAPIV3Schema").is_none_or(Json::is_null) {
            let at = at.index(i).child("schema").child("openAPIV3Schema");
            errors.push(FieldError::required(&at, ""));
        }
    }
    let shared = Shared::from_versions(versions, made_as);
    for (i, version) in versions.iter().enumerate() {
        let at = at.index(i);
        check_name(text(version, "name"), &at.child("name"), errors);
        deprecation(version, &at.child("deprecationWarning"), errors);
        let schema_at = at.child("schema").child("openAPIV3Schema");
        shared.check(false, version, has_status(version), &schema_at, &at, errors);
    }
    let whole = spec.get("versions").unwrap_or(&Json::Null);
    let mut seen: Vec<&str> = versions.iter().map(|v| text(v, "name")).collect();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != versions.len() {
        errors.push(FieldError::invalid(&at, whole, "must contain unique version names"));
    }
    if versions.iter().filter(|v| flag(v, "storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(&at, whole, why));
    }
    if let Some(first) = versions.first().map(|first| text(first, "name"))
        && !first.is_empty()
    {
        check_name(first, &path.child("version"), errors);
    }
    super::names::validate(spec, errors);
    if let Some(first) = versions.first() {
        let beside_status = versions.iter().any(has_status);
        let schema_at = path.child("validation").child("openAPIV3Schema");
        shared.check(true, first, beside_status, &schema_at, &path, errors);
    }
}

fn check_name(name: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let wrong = names::label_1035(name);
    if !wrong.is_empty() {
        errors.push(FieldError::invalid(at, &Json::from(name), wrong.join(",")));
    }
}

/// The parts on which all versions agree.
struct Shared {
    made_as: MadeAs,
    schemas: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn from_versions(versions: &[Json], made_as: MadeAs) -> Shared {
        Shared {
            made_as,
            schemas: hoisted(versions, |v| v.pointer("/schema/openAPIV3Schema")),
            subresources: hoisted(versions, |v| v.get("subresources")),
            columns: hoisted(versions, |v| v.get("additionalPrinterColumns")),
            selectable: hoisted(versions, |v| v.get("selectableFields")),
        }
    }

    /// Checks the parts of a version that are shared, or those that are not.
    fn check(
        &self,
        shared: bool,
        version: &Json,
        beside_status: bool,
        schema_at: &FieldPath,
        at: &FieldPath,
        errors: &mut Vec<FieldError>,
    ) {
        if self.schemas == shared {
            schema(version, self.made_as, beside_status, schema_at, errors);
        }
        let scale = version.pointer("/subresources/scale").filter(|scale| scale.is_object());
        if let Some(scale) = scale.filter(|_| self.subresources == shared) {
            scale_paths(scale, self.made_as, &at.child("subresources").child("scale"), errors);
        }
        let columns = version.get("additionalPrinterColumns");
        if let Some(columns) = columns.filter(|_| self.columns == shared) {
            columns::validate(columns, &at.child("additionalPrinterColumns"), errors);
        }
        if let Some(Json::Array(fields)) = version.get("selectableFields")
            && (self.selectable && self.schemas) == shared
        {
            selectable_fields(fields, version, &at.child("selectableFields"), errors);
        }
    }
}

/// Returns true if all versions agree. An error is then reported once, at the former top-level
/// field.
fn hoisted<'a>(versions: &'a [Json], of: impl Fn(&'a Json) -> Option<&'a Json>) -> bool {
    versions.iter().all(|version| of(version) == of(&versions[0]))
}

fn deprecation(version: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(given @ Json::String(warning)) = version.get("deprecationWarning") else {
        return;
    };
    if !flag(version, "deprecated") {
        errors.push(FieldError::invalid(
            path,
            given,
            "can only be set for deprecated versions",
        ));
    }
    if warning.is_empty() {
        errors.push(FieldError::invalid(path, given, "must not be an empty string"));
    }
    if warning.len() > DEPRECATION_CHARS_MAX {
        let why = format!("must be <= {DEPRECATION_CHARS_MAX} characters long");
        errors.push(FieldError::invalid(path, given, why));
    }
    let odd = |c: char| c.is_control() || c.is_whitespace() && c != ' ';
    if let Some((i, _)) = warning.char_indices().find(|(_, c)| odd(*c)) {
        let why = format!("must only contain printable UTF-8 characters; non-printable character found at index {i}");
        errors.push(FieldError::invalid(path, given, why));
    }
}

fn has_status(version: &Json) -> bool {
    version
        .pointer("/subresources/status")
        .is_some_and(|status| !status.is_null())
}

fn schema(version: &Json, made_as: MadeAs, beside_status: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(schema @ Json::Object(map)) = version.pointer("/schema/openAPIV3Schema") else {
        return;
    };
    if beside_status {
        root_beside_status(schema, map, path, errors);
    }
    let parse = match made_as {
        MadeAs::Free => Structural::parse_any,
        MadeAs::V1 | MadeAs::V1beta1 => Structural::parse,
    };
    if let Err(found) = parse(schema, path) {
        errors.extend(found);
    }
}

fn root_beside_status(schema: &Json, map: &Map<String, Json>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let why =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(&path.child("type"), &Json::from(kind), why));
    }
    let known = |name: &String| BESIDE_STATUS.iter().any(|(allowed, _)| allowed == name);
    if map.keys().any(|name| !known(name)) {
        let names: Vec<&str> = BESIDE_STATUS.iter().map(|(_, name)| *name).collect();
        let why = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(FieldError::invalid(path, schema, why));
    }
}

fn scale_paths(scale: &Json, made_as: MadeAs, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut check = |name: &str, under: &[&str], words: &str| {
        let given = text(scale, name);
        let at = path.child(name);
        if columns::simple_path(given, &at, errors) && !under.iter().any(|prefix| given.starts_with(prefix)) {
            let why = format!("should be a json path under {words}");
            errors.push(FieldError::invalid(&at, &Json::from(given), why));
        }
        if made_as != MadeAs::V1 && given.contains('[') {
            errors.push(FieldError::invalid(
                &at,
                &Json::from(given),
                "array notation is not allowed",
            ));
        }
    };
    check("specReplicasPath", &[".spec."], ".spec");
    if made_as == MadeAs::V1 || !text(scale, "statusReplicasPath").is_empty() {
        check("statusReplicasPath", &[".status."], ".status");
    }
    if !text(scale, "labelSelectorPath").is_empty() {
        check("labelSelectorPath", &[".spec.", ".status."], "either .spec or .status");
    }
}

fn selectable_fields(fields: &[Json], version: &Json, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if !fields.is_empty() && version.pointer("/schema/openAPIV3Schema").is_none_or(Json::is_null) {
        let why = match path.as_str() {
            "spec.selectableFields" => "may only be set when validations.schema is included",
            _ => "may only be set when `version.schema.openAPIV3Schema` is not included",
        };
        return errors.push(FieldError::invalid(path, &Json::from(""), why));
    }
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Json::Null);
    let mut seen: Vec<&str> = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let at = path.index(i).child("jsonPath");
        let given = text(field, "jsonPath");
        if given.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        let mut refuse = |why: &str| errors.push(FieldError::invalid(&at, &Json::from(given), why));
        let leaf = match selected(given, schema) {
            Err(why) => {
                refuse(&format!("is an invalid path: {why}"));
                continue;
            }
            Ok(leaf) => leaf,
        };
        if given.split('.').nth(1) == Some("metadata") {
            refuse("must not point to fields in metadata");
        }
        if !matches!(text(leaf, "type"), "string" | "boolean" | "integer") {
            refuse(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                 formats are allowed.",
            );
        }
        match seen.contains(&given) {
            true => errors.push(FieldError::duplicate(&at, &Json::from(given))),
            false => seen.push(given),
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        errors.push(FieldError::too_many(path, seen.len(), SELECTABLE_FIELDS_MAX));
    }
}

/// Returns the schema of the field at a path such as `.a.b`, without brackets.
fn selected<'a>(path: &str, schema: &'a Json) -> Result<&'a Json, String> {
    let mut at = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix('.') else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            return Err(match rest.starts_with('[') {
                true => "array notation is not allowed".to_owned(),
                false => format!("expected [ or . but got: {}", &rest[..end.max(1)]),
            });
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let (name, after) = after.split_at(after.find(['.', '[', ']']).unwrap_or(after.len()));
        let declared = match at.get("properties").filter(|properties| properties.is_object()) {
            Some(properties) => properties.get(name),
            None => at.get("additionalProperties").filter(|values| values.is_object()),
        };
        at = declared.ok_or("does not refer to a valid field")?;
        rest = after;
    }
    Ok(at)
}
