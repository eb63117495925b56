//! Plan of a publication: a schema named by its content, its rules, and the export that offers it.

use super::{Acceptance, Find, Manifest, Pair, compatible::list, resource_of, text};
use insula_api::{
    FieldError, Json,
    names::{
        annotations::{ACCEPTED_EFFECTS, ACCEPTED_ONCE},
        labels,
    },
};
use insula_catalog::{Api, digest, parts};
use insula_conversion::{Path, SURE, VersionSchema, proof::Search, suggest};
use insula_meter::Meter;
use serde_json::{Map, json};
use std::fmt;

/// Bytes of a label's value (Kubernetes).
const LABEL_BYTES_MAX: usize = 63;

/// An API that is ready to be exported.
#[derive(Debug)]
pub struct Published {
    /// Group of its resource.
    pub group: String,
    /// Plural of its resource.
    pub plural: String,
    /// The APIResourceSchema.
    pub schema: Json,
    /// The APIConversion, or several joined ones.
    pub conversion: Option<Json>,
    /// The APIConversions to write; `None` makes them of `conversion`.
    pub written_rules: Option<Vec<Json>>,
    /// The source of its rules.
    pub rules: RulesSource,
    /// Effects that are accepted: those of the rules' annotation at first.
    pub accepted: Vec<Acceptance>,
    /// Remarks for the author.
    pub remarks: Vec<String>,
    /// Errors for which the server would refuse the API.
    pub errors: Vec<Refusal>,
    /// The payer of its compilations.
    pub meter: Meter,
}

/// A reason for which the server would refuse an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A field of the schema or of its rules is wrong.
    Field(FieldError),
    /// The API as a whole cannot be served, or nobody has accepted it.
    Whole(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Field(error) => error.fmt(formatter),
            Refusal::Whole(text) => formatter.write_str(text),
        }
    }
}

/// The source of an API's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesSource {
    /// The author's files.
    Files,
    /// The rules of the schema that is published already, or offered now.
    Published,
    /// A draft in place of a conversion webhook, not accepted by anybody: its guesses, a line each.
    Draft(Vec<String>),
    /// Nothing: the API has no rules.
    Missing,
}

/// Fields of a version that definitions and schemas share. `schema` is one level higher in a
/// schema.
const KEPT: [&str; 8] = [
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
];

impl Published {
    /// Returns the name of the schema.
    pub fn name(&self) -> &str {
        text(&self.schema, "/metadata/name")
    }

    /// Returns the entry of the export.
    pub fn resource(&self) -> Json {
        json!({"group": self.group, "name": self.plural, "schema": self.name(), "storage": {"crd": {}}})
    }

    /// Compiles the schema and its rules, as the server does.
    ///
    /// # Errors
    /// The errors for which the server refuses them.
    pub fn compile(&self) -> Result<Api, Vec<FieldError>> {
        let manifest = Manifest {
            schema: &self.schema,
            conversion: self.conversion.as_ref(),
            meter: &self.meter,
        };
        manifest.compile()
    }

    /// Returns true if the files contain no rules: the rules are a draft, or missing.
    pub fn is_unwritten(&self) -> bool {
        match self.rules {
            RulesSource::Draft(_) | RulesSource::Missing => true,
            RulesSource::Files | RulesSource::Published => false,
        }
    }

    /// Replaces a draft by the published rules, if they fit: their author may have changed them.
    fn adopt(&mut self, conversion: &Json) -> bool {
        let draft = self.conversion.replace(named(conversion, self.name()));
        let fits = self.compile().is_ok();
        if !fits {
            self.conversion = draft;
        } else {
            self.rules = RulesSource::Published;
            self.errors.clear();
            self.remarks = vec![format!("keeps the rules of {}", text(conversion, "/metadata/name"))];
        }
        fits
    }

    /// Returns the schema and its rules. Rules from several objects stay several, each with a name
    /// after that of the schema, and with the label that names it.
    pub fn objects(&self) -> Vec<Json> {
        let mut objects = vec![self.schema.clone()];
        if let Some(rules) = &self.written_rules {
            objects.extend(rules.iter().cloned());
            return objects;
        }
        let Some(conversion) = &self.conversion else {
            return objects;
        };
        match conversion["spec"]["parts"].as_array() {
            None => objects.push(conversion.clone()),
            Some(parts) => objects.extend(parts.iter().map(|part| {
                let name = format!("{}.{}", self.name(), text(part, "/name"));
                let mut labels = Map::new();
                labels.insert(labels::SCHEMA[0].to_owned(), json!(self.name()));
                json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
                    "metadata": {"name": name, "labels": labels}, "spec": part["spec"]})
            })),
        }
        objects
    }
}

/// Adds the words for effects to the objects that publish an API: each counts for the next write
/// alone.
pub fn with_words(mut objects: Vec<Json>, accepted: &[Acceptance]) -> Vec<Json> {
    let words: Vec<String> = accepted.iter().map(Acceptance::text).collect();
    let is_judged = |object: &&mut Json| !words.is_empty() && resource_of(text(object, "/kind")).is_some();
    for object in objects.iter_mut().filter(is_judged) {
        object["metadata"]["annotations"][ACCEPTED_ONCE] = json!(words.join(","));
    }
    objects
}

/// Plans one API: the schema, its rules (from the files, or a draft in place of a webhook), and
/// their errors.
pub fn publish(manifest: Manifest<'_>) -> Published {
    let definition = manifest.schema;
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let spec = if manifest.is_definition() {
        spec(definition)
    } else {
        definition["spec"].clone()
    };
    // Names begin with a letter, and digests may not.
    let digest = digest::identity(spec.to_string().as_bytes());
    let suffix = if group.is_empty() { "core" } else { group };
    let name = format!("h{}.{plural}.{suffix}", &digest[..8]);
    let mut metadata = json!({"name": name});
    // Kubernetes and the server require this annotation for groups of Kubernetes.
    if let Some(approved) = definition["metadata"]["annotations"].get("api-approved.kubernetes.io") {
        metadata["annotations"] = json!({"api-approved.kubernetes.io": approved});
    }
    let schema =
        json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": metadata, "spec": spec});
    let mut remarks = Vec::new();
    let mut rules = match manifest.conversion {
        Some(_) => RulesSource::Files,
        None => RulesSource::Missing,
    };
    let mut conversion = manifest.conversion.map(|conversion| named(conversion, &name));
    if conversion.is_none() && text(definition, "/spec/conversion/strategy") == "Webhook" {
        let alone = Manifest {
            schema: &schema,
            conversion: None,
            meter: manifest.meter,
        };
        match alone.assemble() {
            Ok(api) => {
                if let Some((draft, guesses)) = draft(&api, &name, manifest.meter, &mut remarks) {
                    (conversion, rules) = (Some(draft), RulesSource::Draft(guesses));
                }
            }
            Err(errors) => remarks.push(insula_api::aggregate(&errors)),
        }
    }
    let published = Manifest {
        schema: &schema,
        conversion: conversion.as_ref(),
        meter: manifest.meter,
    };
    let errors = published.compile().err().unwrap_or_default();
    let mut errors: Vec<Refusal> = errors.into_iter().map(Refusal::Field).collect();
    let joined = conversion
        .as_ref()
        .is_some_and(|rules| rules["spec"].get("parts").is_some());
    if joined && name.len() > LABEL_BYTES_MAX {
        errors.push(Refusal::Whole(format!(
            "the rules are in several APIConversions, which name their schema in a label, but {name:?} has more than \
             {LABEL_BYTES_MAX} characters: put the rules into one APIConversion"
        )));
    }
    let accepted = accepted(manifest, &mut errors);
    Published {
        group: group.to_owned(),
        plural: plural.to_owned(),
        schema,
        conversion,
        written_rules: None,
        accepted,
        rules,
        remarks,
        errors,
        meter: manifest.meter.clone(),
    }
}

/// Returns the words of the annotations in the files.
fn accepted(manifest: Manifest<'_>, errors: &mut Vec<Refusal>) -> Vec<Acceptance> {
    let files = [Some(manifest.schema), manifest.conversion].into_iter().flatten();
    files
        .flat_map(|file| Acceptance::all(file, &[ACCEPTED_EFFECTS], |why| errors.push(Refusal::Whole(why))))
        .collect()
}

/// Joins the rules of a schema from several files, with the words of all of them.
pub fn join_files(parts: Vec<Json>) -> Option<Json> {
    let words = |part: &Json| {
        part["metadata"]["annotations"][ACCEPTED_EFFECTS]
            .as_str()
            .map(str::to_owned)
    };
    let words: Vec<String> = parts.iter().filter_map(words).collect();
    let mut joined = parts::join(parts)?;
    if !words.is_empty() {
        joined["metadata"]["annotations"][ACCEPTED_EFFECTS] = json!(words.join(","));
    }
    Some(joined)
}

/// Converts the `spec` of a definition to that of a schema: without conversion, and with the
/// schemas of versions one level higher.
fn spec(definition: &Json) -> Json {
    let spec = &definition["spec"];
    let mut out = Map::new();
    for field in ["group", "names", "scope"] {
        out.insert(field.to_owned(), spec[field].clone());
    }
    let version = |version: &Json| {
        let mut kept = Map::new();
        for field in KEPT {
            if let Some(value) = version.get(field) {
                kept.insert(field.to_owned(), value.clone());
            }
        }
        let schema = version.pointer("/schema/openAPIV3Schema").cloned();
        kept.insert("schema".to_owned(), schema.unwrap_or_else(|| json!({"type": "object"})));
        Json::Object(kept)
    };
    let versions = spec["versions"].as_array().into_iter().flatten();
    out.insert("versions".to_owned(), versions.map(version).collect());
    Json::Object(out)
}

/// Returns the rules under the name of the schema.
fn named(conversion: &Json, name: &str) -> Json {
    let mut out = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": conversion["spec"],
    });
    if text(conversion, "/apiVersion").starts_with("apis.kcp.dev/") {
        out["apiVersion"] = conversion["apiVersion"].clone();
        out["kind"] = conversion["kind"].clone();
    }
    out
}

/// Drafts rules between the stored version and each other one, as far as they can be guessed.
/// Fields without a counterpart are under `preserve`, so that the author notices them. Returns the
/// rules, and its guesses as lines.
fn draft(api: &Api, name: &str, meter: &Meter, remarks: &mut Vec<String>) -> Option<(Json, Vec<String>)> {
    let stored = api.bundle.storage();
    let old = version(api, stored)?;
    let (mut conversions, mut guesses) = (Vec::new(), Vec::new());
    for other in api.bundle.versions().filter(|version| *version != stored) {
        let new = version(api, other)?;
        let mut found = suggest(&old, &new, meter).ok()?;
        found.retain_confident(SURE);
        // Other errors show when the author publishes the draft.
        found.try_out(&api.group, (&old, &new), (Search::default(), meter), &mut |_| {});
        let (left_out, guessed): (Vec<_>, Vec<_>) = found.pairs.iter().partition(|pair| pair.work.is_some());
        let mut rules = found.rules();
        let both = [
            (
                &found.only_old,
                left_out.iter().flat_map(|pair| &pair.old).collect::<Vec<_>>(),
            ),
            (&found.only_new, left_out.iter().flat_map(|pair| &pair.new).collect()),
        ];
        for (index, (alone, unfinished)) in both.iter().enumerate() {
            let paths: Vec<String> = alone
                .iter()
                .chain(unfinished.iter().copied())
                .map(ToString::to_string)
                .collect();
            if !paths.is_empty() {
                rules["conversions"][index]["preserve"] = json!(paths);
            }
        }
        let alone = found.only_old.len() + found.only_new.len();
        let refused = match left_out.len() {
            0 => String::new(),
            count => format!(", {count} left out that would be refused"),
        };
        remarks.push(format!(
            "a draft in place of the webhook, {stored} and {other}: {} rules guessed, {alone} fields without a \
             counterpart{refused}",
            guessed.len()
        ));
        guesses.extend(guessed.iter().map(|pair| Pair::new(pair).line((stored, other))));
        guesses.extend(left_out.iter().map(|pair| {
            let why = pair.work.as_deref().unwrap_or_default();
            format!(
                "{} is left out, both are preserved: {why}",
                Pair::new(pair).line((stored, other))
            )
        }));
        let preserved = |version: &str, path: &Path| format!("{version} {path} is preserved, without a counterpart");
        guesses.extend(found.only_old.iter().map(|path| preserved(stored, path)));
        guesses.extend(found.only_new.iter().map(|path| preserved(other, path)));
        conversions.extend(rules["conversions"].as_array().into_iter().flatten().cloned());
    }
    let conversion = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": {"conversions": conversions},
    });
    (!conversions_are_empty(&conversion)).then_some((conversion, guesses))
}

fn version(api: &Api, name: &str) -> Option<VersionSchema> {
    let version = api.versions.iter().find(|version| *version.name == *name)?;
    Some(VersionSchema {
        name: name.to_owned(),
        served: true,
        schema: version.schema.clone(),
    })
}

fn conversions_are_empty(conversion: &Json) -> bool {
    conversion["spec"]["conversions"].as_array().is_none_or(Vec::is_empty)
}

/// Returns the existing export with these APIs added: other resources and fields stay.
pub fn export(name: &str, existing: Option<&Json>, published: &[Published]) -> Json {
    let mut resources: Vec<Json> = existing
        .and_then(|export| export["spec"]["resources"].as_array().cloned())
        .unwrap_or_default();
    for api in published {
        let entry = api.resource();
        let same = |other: &&mut Json| other["group"] == entry["group"] && other["name"] == entry["name"];
        match resources.iter_mut().find(same) {
            Some(other) => other["schema"] = entry["schema"].clone(),
            None => resources.push(entry),
        }
    }
    let mut export = existing.cloned().unwrap_or_else(
        || json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}}),
    );
    export["spec"]["resources"] = Json::Array(resources);
    export
}

/// Takes resources, by group and plural, out of an export.
pub fn withdraw(export: &mut Json, withdrawn: &[(String, String)]) {
    if let Some(resources) = export["spec"]["resources"].as_array_mut() {
        let is_meant =
            |it: &Json, group: &str, plural: &str| text(it, "/group") == group && text(it, "/name") == plural;
        resources.retain(|it| !withdrawn.iter().any(|(group, plural)| is_meant(it, group, plural)));
    }
}

/// Returns the name of the schema that an export offers for this API now.
pub fn offered(export: &Json, api: &Published) -> Option<String> {
    let entry = api.resource();
    let mut resources = export["spec"]["resources"].as_array().into_iter().flatten();
    let same = resources.find(|other| other["group"] == entry["group"] && other["name"] == entry["name"])?;
    same["schema"].as_str().map(str::to_owned)
}

/// Keeps stored rules instead of a draft: those under the new name, or under the name of the schema
/// that is offered now. A stored draft that the export does not offer stays a draft: an import, or
/// a publication that ended half-way, stored it, and nobody has accepted it.
///
/// # Errors
/// Stored rules cannot be read.
pub fn keep_rules<E>(find: Find<'_, E>, existing: Option<&Json>, api: &mut Published) -> Result<(), E> {
    if !api.is_unwritten() {
        return Ok(());
    }
    let (new, offered) = (api.name().to_owned(), existing.and_then(|export| offered(export, api)));
    let in_service = offered.as_ref() == Some(&new);
    for name in [Some(new), offered].into_iter().flatten() {
        let Some(rules) = find("APIConversion", &name)? else {
            continue;
        };
        let is_draft = matches!(&api.rules, RulesSource::Draft(_))
            && name == api.name()
            && api
                .conversion
                .as_ref()
                .is_some_and(|draft| draft["spec"] == rules["spec"]);
        if is_draft && !in_service {
            continue;
        }
        if api.adopt(&rules) {
            break;
        }
    }
    Ok(())
}

/// Adds an error to every API whose rules are a draft that nobody has accepted, with its guesses.
/// `how` names the caller's ways to review and to accept it.
pub fn refuse_drafts(published: &mut [Published], how: &str) {
    for api in published {
        let RulesSource::Draft(guesses) = &api.rules else {
            continue;
        };
        let mut error = format!("its rules are a draft, guessed in place of a conversion webhook: {how}");
        list(&mut error, guesses);
        api.errors.push(Refusal::Whole(error));
    }
}
