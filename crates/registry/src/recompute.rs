//! Repair of stored objects that were written by rules which were corrected since.
//!
//! An object records, for each version that wrote it, the rules of that time
//! ([`insula_conversion::Written`]). [`examine`] compares them with today's rules and makes the
//! object as today's would have written it, where the former rules are known. [`apply`] stores it,
//! if nobody wrote the object since.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_api::{Json, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_catalog::{Api, Error, Result, Served, bundle, exports::ExportName, ids, object::metadata_of};
use insula_conversion::{Difference, RULES_UNKNOWN, Recomputed, Step, Stored, Writer};
use insula_store::{Entry, Snapshot};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

/// Objects examined for one page.
const EXAMINED_MAX: usize = 500;
/// Bytes of objects to write that one page may hold.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Former schemas of a workspace that are searched for the rules of an object.
const FORMER_MAX: usize = 64;
/// Attempts to write an object that others write at the same time.
const ATTEMPTS: usize = 3;

/// State of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Today's rules would make the same.
    Current,
    /// Today's rules would make other values.
    Differs,
    /// Today's rules would make other values only of fields that were written since.
    Kept,
    /// It was written by rules that are not known here.
    OtherRules,
    /// It was written before objects recorded their rules.
    Unknown,
    /// It cannot be recomputed; the message says why.
    Failed,
    /// It was recomputed.
    Recomputed,
}

/// Result for one object.
#[derive(Debug)]
pub struct Verdict {
    /// The object as it is stored.
    pub entry: Entry,
    /// Its state.
    pub state: State,
    /// The versions that wrote it by other rules, with the fingerprints of these.
    pub writers: Vec<(String, u64)>,
    /// The fields that change.
    pub changes: Vec<Difference>,
    /// The fields that stay because they were written since.
    pub kept: Vec<Difference>,
    /// The reason of a failure.
    pub message: String,
    /// The object to store, with a record of today's rules.
    made: Option<Arc<Object>>,
}

/// The former rules of one API.
pub struct Former {
    given: Vec<Arc<Api>>,
    /// True if objects of unknown rules count as written by the given ones.
    assume: bool,
    found: OnceLock<Vec<Arc<Api>>>,
    find: Box<dyn Fn() -> Vec<Arc<Api>> + Send + Sync>,
}

/// Examined objects, and the last of them if there are more.
pub struct Page {
    /// Those that are not current.
    pub verdicts: Vec<Verdict>,
    /// Number of objects examined.
    pub examined: usize,
    /// The key after which the next page begins.
    pub next: Option<ObjectKey>,
}

impl Former {
    /// Returns the rules that were given, and those that are still stored: the schemas of the
    /// export's workspace with their rules, and the bundles of these.
    pub fn new(
        deps: &Arc<Deps>,
        snapshot: &Snapshot,
        export: &ExportName,
        given: Vec<Arc<Api>>,
        assume: bool,
    ) -> Former {
        let (deps, snapshot, export) = (deps.clone(), snapshot.clone(), export.clone());
        Former {
            given,
            assume,
            found: OnceLock::new(),
            find: Box::new(move || stored_rules(&deps, &snapshot, &export)),
        }
    }

    /// Returns the rules with a fingerprint for writes through a version of an API.
    fn of(&self, served: &Served, version: &str, rules: u64) -> Option<&Api> {
        if rules == RULES_UNKNOWN {
            return self.given.first().filter(|_| self.assume).map(|api| &**api);
        }
        let is_it = |api: &&Arc<Api>| {
            api.group == served.api.group
                && api.names.plural == served.api.names.plural
                && api.bundle.rules_of(version) == Some(rules)
        };
        let known = self.given.iter().find(is_it);
        known
            .or_else(|| self.found.get_or_init(&self.find).iter().find(is_it))
            .map(|api| &**api)
    }
}

fn stored_rules(deps: &Deps, snapshot: &Snapshot, export: &ExportName) -> Vec<Arc<Api>> {
    let mut found = Vec::new();
    let mut add = |bundle: &Json| found.extend(deps.catalog.compile(bundle).ok());
    let schemas = Scope::cluster(ids::apiresourceschemas(), export.cluster.clone());
    let mut entries = snapshot.range(&schemas, None, usize::MAX);
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.created));
    for entry in entries.iter().take(FORMER_MAX) {
        let rules = ObjectKey::cluster_scoped(ids::apiconversions(), export.cluster.clone(), &entry.key.name);
        let rules = snapshot.get(&rules).map(|rules| rules.object.body_value());
        add(&bundle::of_schema(&entry.object.body_value(), rules.as_ref()));
    }
    let bundles = Scope::cluster(ids::bundles(), insula_api::ClusterName::bound_crds());
    let mut count = 0;
    snapshot.for_each(&bundles, |entry| {
        let value = entry.object.body_value();
        if value["metadata"]["annotations"]["apis.kcp.io/schema-cluster"] == *export.cluster.as_str() {
            count += 1;
            add(&value);
        }
        match count < FORMER_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    found
}

/// Compiles a former APIConversion with the schema that it was written for, or else with
/// `schema`, the one on offer.
///
/// # Errors
/// The errors of rules that do not compile with the schema.
pub fn compile(deps: &Deps, schema: &Json, rules: &Json) -> std::result::Result<Arc<Api>, Vec<insula_api::FieldError>> {
    deps.catalog.compile(&bundle::of_schema(schema, Some(rules)))
}

/// Examines the stored objects of an API of an export in all workspaces that bind it, after a key.
/// With `to_apply`, the page also has objects of which only the record is to be renewed.
pub fn scan(
    deps: &Deps,
    snapshot: &Snapshot,
    api: &Served,
    former: &Former,
    (after, max, to_apply): (Option<&ObjectKey>, usize, bool),
) -> Page {
    let mut page = Page {
        verdicts: Vec::new(),
        examined: 0,
        next: None,
    };
    let mut served_in: HashMap<_, Option<Served>> = HashMap::new();
    let (mut bytes, mut last) = (0, None);
    snapshot.for_each_after(&Scope::everywhere(api.resource_id()), after, |entry| {
        if page.examined == EXAMINED_MAX || page.verdicts.len() >= max || bytes > PAGE_BYTES_MAX {
            page.next = last.take();
            return ControlFlow::Break(());
        }
        page.examined += 1;
        last = Some(entry.key.clone());
        let served = served_in
            .entry(entry.key.cluster.clone())
            .or_insert_with(|| serving(deps, snapshot, entry));
        if let Some(served) = served {
            let verdict = examine(served, entry, former);
            bytes += verdict.made.as_ref().map_or(0, |made| made.size());
            let is_listed = verdict.state != State::Current || to_apply && verdict.made.is_some();
            page.verdicts.extend(is_listed.then_some(verdict));
        }
        ControlFlow::Continue(())
    });
    page
}

/// Returns the API that serves an object in its cluster today.
fn serving(deps: &Deps, snapshot: &Snapshot, entry: &Entry) -> Option<Served> {
    let ResourceId {
        group,
        resource,
        identity,
    } = &entry.key.resource;
    let served = deps.catalog.resolve(snapshot, &entry.key.cluster, group, resource)?;
    (served.identity == *identity && !served.terminating).then_some(served)
}

/// Compares the rules that wrote an object with today's.
pub fn examine(served: &Served, entry: &Entry, former: &Former) -> Verdict {
    let mut verdict = Verdict {
        entry: entry.clone(),
        state: State::Current,
        writers: Vec::new(),
        changes: Vec::new(),
        kept: Vec::new(),
        message: String::new(),
        made: None,
    };
    let value = entry.object.body_value();
    if let Err(message) = judge(served, &value, former, &mut verdict) {
        verdict.state = State::Failed;
        verdict.message = message;
    }
    verdict
}

fn judge(served: &Served, value: &Json, former: &Former, verdict: &mut Verdict) -> std::result::Result<(), String> {
    let (bundle, entry) = (&served.api.bundle, verdict.entry.clone());
    let object = &entry.object;
    let owned = Owned::read(value);
    verdict.writers = writers(served, object, &owned)?;
    if verdict.writers.is_empty() {
        return Ok(());
    }
    if object.version() != bundle.storage() {
        let (version, storage) = (object.version(), bundle.storage());
        return Err(format!(
            "it is stored in {version}; wait until it is stored in {storage}"
        ));
    }
    let known: Vec<Writer<'_>> = verdict
        .writers
        .iter()
        .filter_map(|(version, rules)| {
            let rules = &former.of(served, version, *rules)?.bundle;
            Some(Writer { version, rules })
        })
        .collect();
    let all_known = known.len() == verdict.writers.len();
    let unresolved = match verdict.writers.iter().all(|(_, rules)| *rules == RULES_UNKNOWN) {
        true => State::Unknown,
        false => State::OtherRules,
    };
    if known.is_empty() {
        verdict.state = unresolved;
        return Ok(());
    }
    if owned.0.is_empty() {
        return Err("it has no metadata.managedFields, so nobody knows which of its fields a client wrote".into());
    }
    let stored = Stored {
        value,
        version: object.version(),
        residual: object.residual(),
    };
    let owns = |version: &str, path: &[Step<'_>]| owned.owns(version, path);
    let made = bundle.recompute(stored, &known, &owns, &mut insula_conversion::object_budget());
    let made = made.map_err(|error| error.to_string())?;
    verdict.state = match (made.changes.is_empty(), made.kept.is_empty()) {
        (false, _) => State::Differs,
        (true, _) if !all_known => unresolved,
        (true, false) => State::Kept,
        (true, true) => State::Current,
    };
    // Where nothing differs, the object still comes to record today's rules.
    verdict.made = Some(Arc::new(to_store(served, value, &made)?));
    verdict.changes = made.changes;
    verdict.kept = made.kept;
    Ok(())
}

/// Returns the versions that wrote an object by other rules than today's.
fn writers(served: &Served, object: &Object, owned: &Owned) -> std::result::Result<Vec<(String, u64)>, String> {
    let bundle = &served.api.bundle;
    let records = insula_conversion::written(object.residual())?;
    let recorded = records
        .iter()
        .map(|(version, written)| (version.clone(), written.rules));
    let unrecorded = owned.0.keys().filter(|version| !records.contains_key(*version));
    let unrecorded = unrecorded.map(|version| (version.clone(), RULES_UNKNOWN));
    let mut all: Vec<(String, u64)> = recorded.collect();
    all.extend(unrecorded.filter(|(version, _)| bundle.rules_of(version).is_some()));
    all.retain(|(version, rules)| *version != bundle.storage() && bundle.rules_of(version) != Some(*rules));
    Ok(all)
}

/// Returns the recomputed object in its stored form. A change beside metadata and status is a new
/// generation, so that controllers act on it.
fn to_store(served: &Served, old: &Json, made: &Recomputed) -> std::result::Result<Object, String> {
    let mut value = made.stored.value.clone();
    let storage = served.api.storage_version();
    let counts = |field: &str| field != "metadata" && !(field == "status" && storage.status);
    let fields = |object: &Json| -> BTreeMap<String, Json> {
        let map = object.as_object().into_iter().flatten();
        map.filter(|(field, _)| counts(field))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect()
    };
    if fields(old) != fields(&value)
        && let Some(generation) = old["metadata"]["generation"].as_i64()
    {
        metadata_of(&mut value).insert("generation".into(), json!(generation + 1));
    }
    let mut shown = value.clone();
    insula_schema::default(&mut shown, &storage.schema);
    // Readers default what the stored object lacks.
    let schema = if shown == value { served.api.fingerprint } else { 0 };
    Object::new(&value, made.stored.residual.clone().map(Into::into))
        .map(|object| object.written_under(schema))
        .map_err(|error| error.to_string())
}

/// Stores a recomputed object, unless it was written since: then it is examined again.
///
/// # Errors
/// The store refused the commit. A conflict is a failed verdict.
pub async fn apply(deps: &Deps, mut verdict: Verdict, former: &Former) -> Result<Verdict> {
    for _ in 0..ATTEMPTS {
        let Some(made) = verdict.made.take() else {
            return Ok(verdict);
        };
        let snapshot = deps
            .store
            .snapshot(Revision(0))
            .await
            .map_err(|error| Error::Internal(error.to_string()))?;
        let key = verdict.entry.key.clone();
        let Some(served) = serving(deps, &snapshot, &verdict.entry) else {
            verdict.state = State::Failed;
            verdict.message = "its API is no longer served in its workspace".to_owned();
            return Ok(verdict);
        };
        let guard = served
            .guard
            .iter()
            .map(|(key, revision)| Intent::Expect(key.clone(), Some(*revision)));
        let mut intents: Vec<Intent> = guard.collect();
        intents.push(Intent::Rewrite(verdict.entry.clone(), made));
        match commit(deps, &Plan::new(intents)).await {
            Ok(_) => {
                if matches!(verdict.state, State::Differs | State::Kept) {
                    verdict.state = State::Recomputed;
                }
                return Ok(verdict);
            }
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        let snapshot = deps
            .store
            .snapshot(Revision(0))
            .await
            .map_err(|error| Error::Internal(error.to_string()))?;
        match (snapshot.get(&key), serving(deps, &snapshot, &verdict.entry)) {
            (Some(entry), Some(served)) => verdict = examine(&served, &entry, former),
            // It was deleted meanwhile.
            _ => {
                verdict.state = State::Current;
                return Ok(verdict);
            }
        }
    }
    verdict.state = State::Failed;
    verdict.message = format!("it was written by others in {ATTEMPTS} attempts; try again");
    Ok(verdict)
}

/// The owned fields of an object by version, as lists of `fieldsV1`.
struct Owned(BTreeMap<String, Vec<Json>>);

impl Owned {
    fn read(value: &Json) -> Owned {
        let mut owned: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        for manager in value["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let version = manager["apiVersion"].as_str().unwrap_or_default();
            let version = version.rsplit('/').next().unwrap_or_default().to_owned();
            owned.entry(version).or_default().push(manager["fieldsV1"].clone());
        }
        Owned(owned)
    }

    fn owns(&self, version: &str, path: &[Step<'_>]) -> bool {
        self.0
            .get(version)
            .is_some_and(|sets| sets.iter().any(|set| contains(set, path)))
    }
}

/// Returns true if a set in the form of `fieldsV1` has members at, above or below a path.
fn contains(set: &Json, path: &[Step<'_>]) -> bool {
    let mut here = set;
    for (depth, step) in path.iter().enumerate() {
        let Some(below) = here.as_object() else { return false };
        if below.is_empty() {
            return depth > 0;
        }
        let next = match step {
            Step::Field(name) => below.get(&format!("f:{name}")),
            Step::Item(index, item) => {
                let mut items = below.iter();
                items
                    .find(|(element, _)| is_item(element, *index, item))
                    .map(|(_, below)| below)
            }
        };
        match next {
            Some(next) => here = next,
            None => return false,
        }
    }
    !path.is_empty()
}

fn is_item(element: &str, index: usize, item: &Json) -> bool {
    match element.split_once(':') {
        Some(("k", keys)) => serde_json::from_str::<serde_json::Map<String, Json>>(keys)
            .is_ok_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value))),
        Some(("v", value)) => serde_json::from_str::<Json>(value).is_ok_and(|value| value == *item),
        Some(("i", at)) => at.parse() == Ok(index),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_a_path_are_found() {
        let set = json!({"f:spec": {"f:size": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:note": {}}},
            "f:tags": {"v:\"a\"": {}}, "f:atomic": {}}});
        let field = Step::Field;
        let (http, other) = (json!({"port": 80, "note": "x"}), json!({"port": 81}));
        let (a, b) = (json!("a"), json!("b"));
        let rows: [(&[Step<'_>], bool); 10] = [
            (&[field("spec"), field("size")], true),
            (&[field("spec"), field("color")], false),
            (&[field("spec"), field("atomic"), field("deep")], true),
            (
                &[field("spec"), field("ports"), Step::Item(0, &http), field("note")],
                true,
            ),
            (
                &[field("spec"), field("ports"), Step::Item(0, &http), field("name")],
                false,
            ),
            (&[field("spec"), field("ports"), Step::Item(0, &other)], false),
            (&[field("spec"), field("tags"), Step::Item(3, &a)], true),
            (&[field("spec"), field("tags"), Step::Item(3, &b)], false),
            (&[field("spec")], true),
            (&[field("status")], false),
        ];
        for (path, wanted) in rows {
            assert_eq!(contains(&set, path), wanted, "{path:?}");
        }
        assert!(!contains(&json!({}), &[field("spec")]));
    }
}
