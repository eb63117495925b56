//! Records of the rules by which an object was written, one for each version other than the
//! storage version that wrote it.
//!
//! A write in the storage version passes no rule and has no record. The storage version has one
//! where it wrote by other rules than those that made it the storage version. A record lies in the
//! stored residual under the name of no version, in a form that a reader without records takes for
//! a patch without entries:
//!
//! ```text
//! {"": {"fields": {}, "written": {"v1": "<rules>[ <changed>]"}, "own": {…}}, "v2": …}
//! ```
//!
//! The fields that a version had for itself ([`super::own`]) stand beside the records.

use super::Bundle;
use super::own::OwnFields;
use super::stored::Write;
use crate::residual::Patch;
use crate::trace::Inputs;
use insula_api::Json;
use serde_json::Map;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The key of the records among the residuals; no version has this name.
const KEY: &str = "";
/// Beginning of a residual with records.
const PREFIX: &[u8] = br#"{"":{"fields":{},"written":{"#;
/// End of a residual that holds nothing but records.
const END: &[u8] = b"}}}";
/// The key of the fields that versions had for themselves, beside the records.
const OWN: &str = "own";
/// Fingerprint of rules that are not known.
pub const RULES_UNKNOWN: u64 = 0;

/// The rules by which an object was written through one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Fingerprint of the rules between this version and the storage version, both ways;
    /// [`RULES_UNKNOWN`] for an object that was written through it before records were kept.
    pub rules: u64,
    /// Fields that were written by other rules since.
    pub(crate) changed: Changed,
}

/// Records by version.
pub(crate) type Records = BTreeMap<String, Written>;

/// A Bloom filter of fields, 16 bytes. It may contain a field that was not inserted, and so errs
/// on the side of leaving fields alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changed(u128);

impl Changed {
    /// Contains every field.
    pub(crate) const ALL: Changed = Changed(u128::MAX);

    fn bit(version: &str, path: &str) -> u128 {
        let hash = Sha256::new().chain_update(version).chain_update([0]).chain_update(path);
        let first = hash.finalize().first().copied().unwrap_or_default();
        1 << (first % 128)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn insert(&mut self, version: &str, path: &str) {
        self.0 |= Self::bit(version, path);
    }

    /// Returns true if the field or its top-level field was inserted.
    pub(crate) fn contains(self, version: &str, path: &str) -> bool {
        let top = path.split('.').next().unwrap_or_default();
        !self.is_empty() && [path, top].iter().any(|path| self.0 & Self::bit(version, path) != 0)
    }
}

/// Returns true if a residual holds nothing but records: then the object alone shows every version.
pub(super) fn is_alone(residual: &[u8]) -> bool {
    let rest = residual.strip_prefix(PREFIX).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'}') == rest.len().checked_sub(END.len()) && rest.ends_with(END)
}

/// Returns the records in a stored residual: versions with the rules by which they wrote the
/// object.
///
/// # Errors
/// The residual is malformed.
pub fn written(residual: Option<&[u8]>) -> Result<BTreeMap<String, Written>, String> {
    let Some(residual) = residual.filter(|residual| residual.starts_with(PREFIX)) else {
        return Ok(Records::new());
    };
    let all: Json = serde_json::from_slice(residual).map_err(|error| error.to_string())?;
    records(all.get(KEY))
}

/// Reads the records out of what stands beside the residuals.
pub(super) fn records(beside: Option<&Json>) -> Result<Records, String> {
    let records = beside.and_then(|beside| beside["written"].as_object());
    records
        .into_iter()
        .flatten()
        .map(|(version, record)| {
            let record = record.as_str().and_then(read).ok_or("a record is malformed")?;
            Ok((version.clone(), record))
        })
        .collect()
}

fn read(text: &str) -> Option<Written> {
    let (rules, changed) = text.split_once(' ').unwrap_or((text, "0"));
    Some(Written {
        rules: u64::from_str_radix(rules, 16).ok()?,
        changed: Changed(u128::from_str_radix(changed, 16).ok()?),
    })
}

/// Reads the fields that versions had for themselves; `None` if an earlier program stored the
/// object.
///
/// # Errors
/// They are malformed.
pub(super) fn own(beside: Option<&Json>) -> Result<Option<OwnFields>, String> {
    let own = beside.and_then(|beside| beside.get(OWN));
    let own = own.map(|own| serde_json::from_value(own.clone()));
    own.transpose().map_err(|error| format!("{OWN}: {error}"))
}

/// Adds the records to encoded residuals, and the fields that versions have for themselves.
pub(super) fn encode(residual: Option<Vec<u8>>, records: &Records, own: Option<&OwnFields>) -> Option<Vec<u8>> {
    let own = own.filter(|_| residual.is_some());
    if records.is_empty() && own.is_none() {
        return residual;
    }
    let mut out = PREFIX.to_vec();
    for (n, (version, record)) in records.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        // Names of versions are DNS labels: nothing in them has to be escaped.
        out.extend(format!("{comma}\"{version}\":\"{:016x}", record.rules).bytes());
        if !record.changed.is_empty() {
            out.extend(format!(" {:032x}", record.changed.0).bytes());
        }
        out.push(b'"');
    }
    out.extend_from_slice(END);
    if let Some(own) = own {
        out.truncate(out.len() - 2);
        out.extend(format!(",\"{OWN}\":{}}}}}", serde_json::json!(own)).bytes());
    }
    if let Some(residual) = residual {
        out.pop();
        out.push(b',');
        out.extend_from_slice(residual.get(1..).unwrap_or_default());
    }
    Some(out)
}

/// Returns the fingerprint of the rules, both ways, between each two versions that have some;
/// `paths` names the conversions from one version to another.
pub(super) fn rules_between(
    versions: usize,
    fingerprints: &BTreeMap<(usize, usize), u64>,
    paths: impl Fn(usize, usize) -> Vec<(usize, usize)>,
) -> BTreeMap<(usize, usize), u64> {
    let pairs = (0..versions).flat_map(|a| (0..versions).map(move |b| (a, b)));
    let between = |(a, b)| {
        let (mut hash, mut ruled) = (Inputs::default(), false);
        for known in [paths(a, b), paths(b, a)]
            .concat()
            .iter()
            .map(|pair| fingerprints.get(pair))
        {
            ruled |= known.is_some();
            hash.word(known.copied().unwrap_or_default());
        }
        ruled.then(|| ((a, b), hash.finish()))
    };
    pairs.filter(|(a, b)| a != b).filter_map(between).collect()
}

impl Write<'_, '_> {
    /// Records the rules of this write. A record of other rules stays: fields that this write did
    /// not change are still as they made them.
    pub(super) fn record(&mut self) {
        let (bundle, root) = (self.bundle, self.root);
        let Some(writer) = self.writer.filter(|_| bundle.records_rules) else {
            return;
        };
        let name = |version: usize| bundle.versions[version].name.as_str();
        if let Some(rules) = bundle.rules_to(writer, root) {
            let before = self.old.as_ref().map(|old| &*old.raw);
            let unknown = before.is_some_and(|raw| bundle.writers_of(raw).contains(name(writer)));
            let rules = if unknown { RULES_UNKNOWN } else { rules };
            let record = Written {
                rules,
                ..Written::default()
            };
            self.records.entry(name(writer).to_owned()).or_insert(record);
        }
        let Some(old) = &mut self.old else { return };
        for (version, record) in &mut self.records {
            let Ok(at) = bundle.index(version) else { continue };
            // Every write is one in the storage version.
            let writes = at == writer || at == root;
            let concerned = writes || old.residuals.get(version) != self.residuals.get(version);
            if bundle.rules_to(at, root) == Some(record.rules) || !concerned {
                continue;
            }
            let seen = old.make(at, self.budget).is_ok().then(|| old.view(at));
            let edit = seen.zip(self.views.get(&at));
            let edit = edit.map(|(before, after)| Edit { before, after });
            if writes {
                let (before, after) = (old.view(root), &self.views[&root]);
                record.overwritten(name(root), &Edit { before, after });
                edit.iter().for_each(|edit| record.overwritten(version, edit));
            }
            let patches = [old.residuals.get(version), self.residuals.get(version)];
            record.rewritten((version, name(root)), edit.as_ref(), patches);
        }
    }
}

impl Bundle {
    /// Makes a bundle whose objects do not record the rules that wrote them.
    #[must_use]
    pub fn without_records(mut self) -> Bundle {
        self.records_rules = false;
        self
    }

    /// Returns the fingerprint of the rules by which writes through `version` are stored in the
    /// storage version; `None` if they pass no rule.
    pub fn rules_of(&self, version: &str) -> Option<u64> {
        self.rules_to(self.index(version).ok()?, self.storage)
    }

    /// Returns the fingerprint of the rules between two versions, both ways; `None` if there are
    /// none.
    pub fn rules_between(&self, version: &str, other: &str) -> Option<u64> {
        let pair = (self.index(version).ok()?, self.index(other).ok()?);
        self.rules.get(&pair).copied()
    }

    /// Returns the fingerprint of the rules between two versions, both ways; `None` if there are
    /// none or objects do not record them.
    pub(super) fn rules_to(&self, version: usize, root: usize) -> Option<u64> {
        self.rules.get(&(version, root)).copied().filter(|_| self.records_rules)
    }

    /// Returns the records of an object whose storage version changes from `root`. Nothing tells
    /// later which of its fields were written by which rules, unless these are today's.
    pub(super) fn moved_records(&self, old: &Records, root: usize) -> Records {
        let mut records = old.clone();
        // It is stored as its writers see it from now on, if they wrote by the rules that move it.
        let mover = self.rules_to(self.storage, root);
        records.retain(|version, record| version != self.storage() || mover != Some(record.rules));
        for (version, record) in &mut records {
            let Ok(version) = self.index(version) else { continue };
            if version == self.storage {
                continue;
            }
            match self.rules_to(version, self.storage) {
                Some(rules) if self.rules_to(version, root) == Some(record.rules) && record.changed.is_empty() => {
                    record.rules = rules;
                }
                _ => record.changed = Changed::ALL,
            }
        }
        // What the former storage version wrote passes the rules now; unless it wrote by others
        // before it became the storage version.
        if let Some(rules) = self.rules_to(root, self.storage) {
            let changed = Changed::default();
            let name = self.versions[root].name.clone();
            records.entry(name).or_insert(Written { rules, changed });
        }
        records
    }
}

/// A write as its records see it: an object before and after it.
pub(super) struct Edit<'a> {
    pub(super) before: &'a Json,
    pub(super) after: &'a Json,
}

impl Written {
    /// Records that a write through the version itself, by other rules, changed fields.
    pub(super) fn overwritten(&mut self, version: &str, edit: &Edit<'_>) {
        changed_paths(edit, &mut |path| self.changed.insert(version, path));
    }

    /// Compares the residuals of the version before and after a write by other rules. An entry
    /// that changed although its field did not has another guard: what the writer saw is no longer
    /// known.
    pub(super) fn rewritten(
        &mut self,
        (version, root): (&str, &str),
        edit: Option<&Edit<'_>>,
        [old, new]: [Option<&Patch>; 2],
    ) {
        if old == new {
            return;
        }
        let mut fields = Vec::new();
        if let Some(edit) = edit {
            changed_paths(edit, &mut |path| fields.push(path.to_owned()));
        }
        let is_edited = |path: &str| {
            let mut fields = fields.iter().map(String::as_str);
            fields.any(|field| path == field || is_below(path, field) || is_below(field, path))
        };
        let mut lost = Vec::new();
        changed_entries(old, new, String::new(), &mut |path| {
            if !is_edited(path) {
                lost.push(path.split('.').next().unwrap_or_default().to_owned());
            }
        });
        for top in lost {
            if top != "status" {
                self.changed = Changed::ALL;
                return;
            }
            self.changed.insert(version, &top);
            self.changed.insert(root, &top);
        }
    }
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.'))
}

/// Visits the fields in which two objects differ, as paths with dots; a list is one field.
fn changed_paths(edit: &Edit<'_>, visit: &mut impl FnMut(&str)) {
    walk(Some(edit.before), Some(edit.after), "", visit);
}

fn walk(before: Option<&Json>, after: Option<&Json>, path: &str, visit: &mut impl FnMut(&str)) {
    if before == after {
        return;
    }
    let maps = [before.and_then(Json::as_object), after.and_then(Json::as_object)];
    if !path.is_empty() && maps.iter().any(Option::is_none) {
        visit(path);
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in maps.into_iter().flatten().flat_map(Map::keys) {
        let ours = match path {
            "" => !matches!(name.as_str(), "apiVersion" | "kind"),
            "metadata" => matches!(name.as_str(), "labels" | "annotations"),
            _ => true,
        };
        if ours && seen.insert(name) {
            let below = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let [before, after] = [before, after].map(|value| value.and_then(|value| value.get(name)));
            walk(before, after, &below, visit);
        }
    }
}

fn changed_entries(old: Option<&Patch>, new: Option<&Patch>, path: String, visit: &mut impl FnMut(&str)) {
    if old == new {
        return;
    }
    let fields = |patch: Option<&Patch>| match patch {
        Some(Patch::Fields(fields)) => Some(fields.clone()),
        None => Some(BTreeMap::new()),
        Some(_) => None,
    };
    let (Some(old), Some(new)) = (fields(old), fields(new)) else {
        return visit(&path);
    };
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        changed_entries(old.get(name), new.get(name), below, visit);
    }
}

impl Bundle {
    /// Returns the versions, by `metadata.managedFields`, through which clients wrote fields of an
    /// object that rules may read or make. Other metadata passes no rule.
    pub fn writers_of<'a>(&self, object: &'a Json) -> std::collections::BTreeSet<&'a str> {
        let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let is_ruled = |fields: &Json| {
            let mut fields = fields.as_object().into_iter().flatten();
            fields.any(|(field, below)| {
                let metadata = ["f:labels", "f:annotations"];
                field != "f:metadata" || self.rules_see_metadata && metadata.iter().any(|f| below.get(f).is_some())
            })
        };
        let managers = managers.filter(|manager| is_ruled(&manager["fieldsV1"]));
        let versions = managers.filter_map(|manager| manager["apiVersion"].as_str());
        versions.map(insula_api::names::version_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn edit<'a>(before: &'a Json, after: &'a Json) -> Edit<'a> {
        Edit { before, after }
    }

    #[test]
    fn records_round_trip_beside_residuals() {
        let mut records = Records::from([(
            "v1".to_owned(),
            Written {
                rules: 7,
                ..Written::default()
            },
        )]);
        let own = OwnFields::from([("v2".to_owned(), vec![".spec.f".to_owned()])]);
        for residual in [None, Some(br#"{"v2":{"set":"}"}}"#.to_vec())] {
            let stored = encode(residual.clone(), &records, Some(&own));
            let stored = stored.as_deref();
            assert_eq!(written(stored), Ok(records.clone()));
            assert_eq!(stored.is_some_and(is_alone), residual.is_none());
            let beside = crate::residual::decode(stored).unwrap().1;
            assert_eq!(super::own(beside.as_ref()), Ok(residual.is_some().then(|| own.clone())));
            let patches = crate::residual::decode(stored).map(|(patches, _)| patches.len());
            assert_eq!(patches, Ok(usize::from(residual.is_some())));
            records
                .values_mut()
                .for_each(|record| record.changed.insert("v1", "spec.size"));
        }
        assert_eq!(encode(None, &Records::new(), Some(&own)), None);
        assert!(!is_alone(b"{}") && !is_alone(b"") && !is_alone(br#"{"v2":{"set":1}}"#));
        assert!(written(Some(br#"{"":{"fields":{},"written":{"v1":"x"}}}"#)).is_err());
    }

    #[test]
    fn a_filter_contains_what_was_changed() {
        let mut record = Written::default();
        let (before, after) = (
            json!({"apiVersion": "a", "spec": {"size": 1, "list": [1]}}),
            json!({"apiVersion": "b", "spec": {"size": 2, "list": [2], "new": {"deep": 1}}}),
        );
        record.overwritten("v1", &edit(&before, &after));
        for path in ["spec.size", "spec.list", "spec.new", "spec.new.deep"] {
            assert!(record.changed.contains("v1", path), "{path}");
        }
        assert!(!record.changed.contains("v1", "spec.colour") && !record.changed.contains("v2", "spec.size"));
    }

    #[test]
    fn an_entry_of_an_unchanged_field_that_changes_hides_what_was_seen() {
        let patch = |guard| Patch::Set {
            value: json!("5Gi"),
            guard: Some(guard),
        };
        let within = |top: &str, guard| {
            let spec = Patch::Fields(BTreeMap::from([("size".to_owned(), patch(guard))]));
            Patch::Fields(BTreeMap::from([(top.to_owned(), spec)]))
        };
        let versions = ("v1", "v2");
        let mut record = Written::default();
        record.rewritten(versions, None, [Some(&within("status", 1)), Some(&within("status", 2))]);
        assert!(record.changed.contains("v1", "status.size") && !record.changed.contains("v1", "spec.size"));
        record.rewritten(versions, None, [Some(&within("spec", 1)), Some(&within("spec", 2))]);
        assert_eq!(record.changed, Changed::ALL);
        let mut edited = Written::default();
        let (before, after) = (json!({"spec": {"size": "5Gi"}}), json!({"spec": {"size": "6Gi"}}));
        let edit = edit(&before, &after);
        edited.rewritten(versions, Some(&edit), [Some(&within("spec", 1)), None]);
        assert!(edited.changed.is_empty());
    }
}
