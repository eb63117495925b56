//! Condition `VersionsCompatible` of an export: between the served versions of every offered schema
//! no field breaks, or its author wrote rules.
//!
//! The condition is present while an offered schema serves several versions. Without rules nothing
//! is lost, but a reader of one version misses the fields that another one has under another name.

use insula_api::{
    Condition, Json, ObjectKey,
    kinds::{self, ApiExport},
    names::annotations,
};
use insula_catalog::{bundle, ids, parts};
use insula_registry::Deps;
use insula_store::{Entry, Snapshot};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Condition type.
pub(super) const KIND: &str = "VersionsCompatible";
/// Bytes of the message.
const MESSAGE_BYTES_MAX: usize = 8_192;
/// Comparisons that are remembered.
const REMEMBERED_MAX: usize = 1_024;

/// Fields that break between the versions of schemas without rules, by the UID of the schema, which
/// never changes.
#[derive(Default)]
pub(super) struct Comparisons(Mutex<HashMap<String, Arc<[String]>>>);

/// Compatibility of the versions of one offered schema.
#[derive(Debug, Clone)]
pub(crate) struct OfferedSchema {
    /// Name of the schema.
    pub(crate) name: String,
    /// Fields that break.
    pub(crate) breaks: Arc<[String]>,
    /// True if the provider accepts that, by the annotation of the schema.
    pub(crate) accepted: bool,
}

impl Comparisons {
    /// Returns the offered schemas that serve several versions.
    pub(super) fn of_export(&self, registry: &Deps, snapshot: &Snapshot, key: &ObjectKey) -> Vec<OfferedSchema> {
        let Some(export) = snapshot.get(key) else {
            return Vec::new();
        };
        let export: ApiExport = kinds::read(&export.object.body_value());
        let names = export.spec.resources.iter().map(|resource| resource.schema.as_str());
        names
            .filter_map(|name| self.of_schema(registry, snapshot, key, name))
            .collect()
    }

    fn of_schema(&self, registry: &Deps, snapshot: &Snapshot, export: &ObjectKey, name: &str) -> Option<OfferedSchema> {
        let named = |resource| ObjectKey::cluster_scoped(resource, export.cluster.clone(), name);
        let schema = snapshot.get(&named(ids::apiresourceschemas()))?;
        let value = schema.object.body_value();
        let versions = value["spec"]["versions"].as_array()?.iter();
        if versions.filter(|version| version["served"] == true).count() < 2 {
            return None;
        }
        let rules = parts::for_schema(snapshot, &export.cluster, name);
        let breaks = self.compare(registry, (&schema, &value), &rules);
        Some(OfferedSchema {
            name: name.to_owned(),
            breaks,
            accepted: value["metadata"]["annotations"][annotations::ACCEPT_INCOMPATIBLE] == "true",
        })
    }

    fn compare(&self, registry: &Deps, (schema, value): (&Entry, &Json), rules: &[Entry]) -> Arc<[String]> {
        let parts = rules
            .iter()
            .map(|part| format!(" {} {}", part.object.meta.uid, part.revision));
        let uid = format!("{}{}", schema.object.meta.uid, parts.collect::<String>());
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaks) = known().get(&uid) {
            return breaks.clone();
        }
        // A schema that does not compile is the subject of other conditions.
        let rules = parts::join(rules.iter().map(|part| part.object.body_value()).collect());
        let compiled = registry.catalog.compile(&bundle::of_schema(value, rules.as_ref()));
        let breaks = compiled.map(|api| api.bundle.breaks()).unwrap_or_default();
        let breaks: Arc<[String]> = breaks.iter().map(ToString::to_string).collect();
        let mut known = known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(uid, breaks.clone());
        breaks
    }
}

/// Returns the condition, if an offered schema serves several versions.
pub(super) fn condition(schemas: &[OfferedSchema]) -> Option<Condition> {
    let broken: Vec<&OfferedSchema> = schemas.iter().filter(|schema| !schema.breaks.is_empty()).collect();
    if broken.is_empty() {
        return (!schemas.is_empty()).then(|| Condition::holds(KIND));
    }
    let all_accepted = broken.iter().all(|schema| schema.accepted);
    let (reason, severity) = match all_accepted {
        true => ("IncompatibilityAccepted", "Info"),
        false => ("IncompatibleVersions", "Warning"),
    };
    Some(Condition::fails(KIND, reason, message(&broken, all_accepted)).severity(severity))
}

fn message(broken: &[&OfferedSchema], all_accepted: bool) -> String {
    let mut out = "fields break between versions that have no rules".to_owned();
    if !all_accepted {
        out.push_str(&format!(
            ": create an APIConversion with the name of the schema, or set its annotation {}: \"true\"",
            annotations::ACCEPT_INCOMPATIBLE
        ));
    }
    let lines = broken.iter().flat_map(|schema| {
        let head = format!("\n{} ({}):", schema.name, schema.breaks.len());
        std::iter::once(head).chain(schema.breaks.iter().map(|one| format!("\n- {one}")))
    });
    let (mut omitted, mut room) = (0, MESSAGE_BYTES_MAX);
    for line in lines {
        match room.checked_sub(line.len()).filter(|_| omitted == 0) {
            Some(left) => {
                room = left;
                out.push_str(&line);
            }
            None => omitted += 1,
        }
    }
    if omitted > 0 {
        out.push_str(&format!("\nand {omitted} more lines"));
    }
    out
}
