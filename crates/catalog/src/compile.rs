//! Compilation of definitions to [`Api`]s.
//!
//! A definition is the `spec` of a CustomResourceDefinition. Bundles, built-in kinds and Insula's
//! own kinds all have that form, so there is one compiler.

use crate::{
    Api, ApiVersion, Builtin, Column, Custom, Names, Scale, ScopeKind, TableColumn, bundle::definition_of,
    webhook::Webhook,
};
use insula_api::{FieldError, FieldPath, Json};
use insula_conversion::{Bundle, RuleSet, VersionSchema};
use insula_schema::{JsonPath, Structural};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};

/// The source of an API.
pub struct Definition<'a> {
    /// `spec` of a CustomResourceDefinition.
    pub spec: &'a Json,
    /// Names that replace those in `spec.names`, e.g. the accepted names. May be partial.
    pub accepted_names: Option<&'a Json>,
    /// Conversion rules, in any of their forms.
    pub rules: Option<&'a Json>,
    /// Policy for fields that a version lacks: `Lossless` keeps the conversion laws, `None` loses
    /// fields as CustomResourceDefinitions do.
    pub strategy: insula_conversion::LossPolicy,
    /// Strict rules for Scale: those of definitions that were made through v1beta1.
    pub strict_scale: bool,
}

/// Returns the first 64 bits of the SHA-256 of a definition.
pub fn fingerprint(definition: &Definition<'_>) -> u64 {
    let mut hash = Sha256::new();
    for part in [Some(definition.spec), definition.accepted_names, definition.rules] {
        hash.update(part.map(Json::to_string).unwrap_or_default().as_bytes());
        hash.update([0]);
    }
    hash.update([matches!(definition.strategy, insula_conversion::LossPolicy::Lossless) as u8]);
    if definition.strict_scale {
        hash.update([1]);
    }
    let digest = hash.finalize();
    let (first, _) = digest.split_first_chunk::<8>().expect("a SHA-256 has 32 bytes");
    u64::from_le_bytes(*first)
}

/// Compiles a definition that admission has accepted.
///
/// # Errors
/// Returns errors with field paths, for the definition's author.
pub fn compile(definition: &Definition<'_>, builtin: Option<&'static Builtin>) -> Result<Api, Vec<FieldError>> {
    let spec = definition.spec;
    let text = |pointer: &str| spec.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let group: Arc<str> = text("/group").into();
    let versions_at = FieldPath::new("spec").child("versions");
    let rules = definition
        .rules
        .map(|rules| insula_conversion::parse_rules(rules, &FieldPath::new("spec")));
    let versions = match compile_versions(definition, &group, builtin, &versions_at) {
        Ok(versions) => versions,
        Err(mut errors) => {
            let malformed = rules.and_then(Result::err).map(|malformed| malformed.errors);
            errors.extend(malformed.unwrap_or_default());
            return Err(errors);
        }
    };
    let mut stored = list(spec, "/versions").iter();
    let Some(storage) = stored.rposition(|version| version["storage"] == true) else {
        return Err(vec![FieldError::invalid_text(
            &versions_at,
            "",
            "must have exactly one version marked as storage version",
        )]);
    };
    // Conversion rules take precedence over a webhook: an API with rules never calls one.
    let webhook = match definition.rules {
        None => Webhook::read(&group, &spec["conversion"]),
        Some(_) => None,
    };
    let with_rules = |rules: Option<&RuleSet>| compile_bundle(&group, &versions, storage, rules, definition.strategy);
    let mut bundle = match rules.transpose() {
        Ok(rules) => with_rules(rules.as_ref())?,
        Err(malformed) => return Err(malformed.with_errors_of(|rest| with_rules(Some(rest)))),
    };
    bundle = bundle.of_kind(spec["names"]["kind"].as_str().unwrap_or_default());
    if let Some(builtin) = builtin {
        bundle = bundle.without_records();
        bundle = bundle.with_code(builtin.code.to_vec(), &FieldPath::new("spec"))?;
    }
    // The rules of built-in kinds are known to fit the budget.
    let over_budget = match builtin.is_some_and(|builtin| !builtin.compiled) {
        false => bundle.over_budget(&FieldPath::new("spec")),
        true => Vec::new(),
    };
    if !over_budget.is_empty() {
        return Err(over_budget);
    }
    Ok(Api {
        names: names(&spec["names"], definition.accepted_names),
        scope: if text("/scope") == "Cluster" {
            ScopeKind::Cluster
        } else {
            ScopeKind::Namespaced
        },
        group,
        versions,
        storage,
        bundle,
        webhook,
        builtin,
        strategy: builtin.map_or(&Custom, |builtin| builtin.strategy),
        path_segment_names: text("/nameValidation") == "PathSegmentName",
        fingerprint: fingerprint(definition),
        proof: OnceLock::new(),
        spelling: OnceLock::new(),
    })
}

fn compile_bundle(
    group: &str,
    versions: &[ApiVersion],
    storage: usize,
    rules: Option<&RuleSet>,
    strategy: insula_conversion::LossPolicy,
) -> Result<Bundle, Vec<FieldError>> {
    let schemas = versions
        .iter()
        .map(|v| VersionSchema {
            name: v.name.to_string(),
            served: v.served,
            schema: v.schema.clone(),
        })
        .collect();
    Bundle::compile(
        group,
        schemas,
        &versions[storage].name,
        rules,
        strategy,
        &FieldPath::new("spec"),
    )
}

/// Compiles all versions. Returns the errors of all that do not compile.
fn compile_versions(
    definition: &Definition<'_>,
    group: &str,
    builtin: Option<&'static Builtin>,
    at: &FieldPath,
) -> Result<Vec<ApiVersion>, Vec<FieldError>> {
    let spec = definition.spec;
    let (mut versions, mut errors) = (Vec::new(), Vec::new());
    let is_struct = builtin.is_some_and(|builtin| builtin.strategy.traits().is_struct);
    let kind = spec.pointer("/names/kind").and_then(Json::as_str).unwrap_or_default();
    for (i, version) in list(spec, "/versions").iter().enumerate() {
        match compile_version(version, kind, group, &at.index(i)) {
            Ok(mut version) => {
                if is_struct {
                    version.schema = Arc::new(Arc::unwrap_or_clone(version.schema).of_struct());
                }
                if builtin.is_some_and(|builtin| !builtin.compiled) {
                    drop_nullable(&mut version.openapi);
                }
                if spec["preserveUnknownFields"] == true {
                    // As in Kubernetes, the schema validates; it neither prunes nor is published.
                    version.schema = Arc::new(Arc::unwrap_or_clone(version.schema).preserving_unknown());
                    version.openapi = any_object();
                }
                if let Some(scale) = &mut version.scale {
                    scale.strict = definition.strict_scale;
                }
                versions.push(version);
            }
            Err(found) => errors.extend(found),
        }
    }
    if errors.is_empty() { Ok(versions) } else { Err(errors) }
}

/// Returns the schema of objects with any fields.
fn any_object() -> Json {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Removes `nullable` from the published schema of a built-in kind. Kubernetes' documents have no
/// such word, and version 2 drops the types of nullable fields.
fn drop_nullable(schema: &mut Json) {
    let Json::Object(map) = schema else { return };
    map.remove("nullable");
    if let Some(Json::Object(fields)) = map.get_mut("properties") {
        fields.values_mut().for_each(drop_nullable);
    }
    for name in ["items", "additionalProperties"] {
        map.get_mut(name).into_iter().for_each(drop_nullable);
    }
}

fn compile_version(version: &Json, kind: &str, group: &str, at: &FieldPath) -> Result<ApiVersion, Vec<FieldError>> {
    let name = version["name"].as_str().unwrap_or_default();
    let openapi = version.pointer("/schema/openAPIV3Schema").cloned();
    let openapi = openapi.unwrap_or_else(any_object);
    let schema = Structural::parse_trusted(&openapi).map_err(|mut errors| {
        for error in &mut errors {
            error.field = FieldPath::new(&format!("{}.{}", at.child("schema"), error.field));
        }
        errors
    })?;
    let status = version.pointer("/subresources/status").is_some_and(Json::is_object);
    let scale = version
        .pointer("/subresources/scale")
        .filter(|s| s.is_object())
        .map(|scale| Scale {
            spec_replicas: string(scale, "specReplicasPath"),
            status_replicas: string(scale, "statusReplicasPath"),
            selector: string(scale, "labelSelectorPath"),
            strict: false,
        });
    let selectable = list(version, "/selectableFields")
        .iter()
        .map(|f| string(f, "jsonPath").trim_start_matches('.').to_owned())
        .collect();
    let deprecated = (version["deprecated"] == true).then(|| {
        let own = string(version, "deprecationWarning");
        if own.is_empty() {
            format!("{group}/{name} {kind} is deprecated")
        } else {
            own
        }
    });
    let name: Arc<str> = name.into();
    let served = version["served"] == true;
    Ok(ApiVersion {
        name,
        served,
        deprecated,
        schema: Arc::new(schema),
        openapi,
        status,
        scale,
        columns: columns(version),
        selectable,
    })
}

/// Returns the printer columns. A definition without any has the age, as in Kubernetes.
fn columns(version: &Json) -> Vec<Column> {
    let given = list(version, "/additionalPrinterColumns").iter();
    let given: Vec<Column> = given.filter_map(column).collect();
    if !given.is_empty() {
        return given;
    }
    let age = &TableColumn::AGE_OF_CUSTOM;
    let age = json!({"name": age.name, "type": age.kind, "description": age.text,
        "jsonPath": ".metadata.creationTimestamp"});
    column(&age).into_iter().collect()
}

/// Returns a printer column, or None if its path does not parse. Kubernetes accepts such a column
/// and leaves it empty.
fn column(column: &Json) -> Option<Column> {
    let json_path = string(column, "jsonPath");
    Some(Column {
        name: string(column, "name"),
        kind: string(column, "type"),
        format: string(column, "format"),
        description: string(column, "description"),
        priority: column["priority"].as_i64().unwrap_or(0),
        path: JsonPath::parse(&json_path).ok()?,
        json_path,
    })
}

fn names(spec: &Json, accepted: Option<&Json>) -> Names {
    let pick = |field: &str| -> &Json {
        match accepted.map(|a| &a[field]) {
            Some(value) if !value.is_null() && value != "" => value,
            _ => &spec[field],
        }
    };
    let text = |field: &str| pick(field).as_str().unwrap_or_default();
    let strings = |value: &Json| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|s| s.as_str().map(str::to_owned))
            .collect()
    };
    let kind = text("kind");
    let or = |given: &str, otherwise: String| if given.is_empty() { otherwise } else { given.to_owned() };
    Names {
        plural: text("plural").into(),
        singular: match accepted {
            // A singular that another resource of the group has is not accepted.
            Some(accepted) => accepted["singular"].as_str().unwrap_or_default().into(),
            None => or(text("singular"), kind.to_lowercase()).into(),
        },
        list_kind: or(text("listKind"), format!("{kind}List")).into(),
        kind: kind.into(),
        // Accepted names contain only the short names that no other resource of the cluster has.
        short_names: strings(accepted.map_or(&spec["shortNames"], |a| &a["shortNames"])),
        categories: strings(&spec["categories"]),
    }
}

fn string(value: &Json, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Json, pointer: &str) -> &'a [Json] {
    value
        .pointer(pointer)
        .and_then(Json::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Returns an APIResourceSchema's `spec` in the form of a definition's `spec`, which nests the
/// schema of a version one level deeper. Omits rules inside the schema (options 1 and 2 of the
/// conversion proposal). See [`insula_conversion::rules_in_schema`].
pub fn spec_of_schema(schema: &Json) -> Json {
    definition_of(&schema["spec"])
}
