//! Repair of stored objects that were written by rules which were corrected since.
//!
//! An object records, for each version that wrote it, the rules of that time
//! ([`insula_conversion::Written`]). [`examine`] compares them with today's rules and makes the
//! object as today's would have written it, where the former rules are known. [`apply`] stores it,
//! if nobody wrote the object since.

mod owners;

use crate::{
    client::Intent,
    deps::Deps,
    rewrite::{self, ATTEMPTS, Attempt},
};
use insula_api::{ClusterName, Json, Object, ObjectKey, Revision, Scope};
use insula_catalog::{Api, Result, Served, bundle, exports::ExportName, ids, object::metadata_of, parts};
use insula_conversion::{Difference, RULES_UNKNOWN, Recomputed, Step, Stored, Writer};
use insula_store::{Entry, Snapshot};
use owners::FieldOwners;
use serde_json::json;
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, OnceLock},
};

/// Former schemas of a workspace that are searched for the rules of an object.
const FORMER_MAX: usize = 64;

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
    /// The route by which its API is served, and the revision of the route.
    route: Option<(ObjectKey, Revision)>,
}

impl Verdict {
    /// Returns the guards and the write that store the recomputed object; nothing if there is
    /// nothing to store.
    pub fn intents(&self) -> Vec<Intent> {
        let Some(made) = &self.made else { return Vec::new() };
        let route = self.route.iter();
        let mut intents: Vec<Intent> = route
            .map(|(key, revision)| Intent::Expect(key.clone(), Some(*revision)))
            .collect();
        intents.push(Intent::Rewrite(self.entry.clone(), made.clone()));
        intents
    }

    /// Tells that the recomputed object is stored.
    fn stored(&mut self) {
        self.made = None;
        if matches!(self.state, State::Differs | State::Kept) {
            self.state = State::Recomputed;
        }
    }
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
    /// export's workspace with their rules, rules of any other name there, and bundles.
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
    fn for_version(&self, served: &Served, version: &str, rules: u64) -> Option<&Api> {
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
        let rules = parts::joined(snapshot, &export.cluster, &entry.key.name);
        add(&bundle::of_schema(&entry.object.body_value(), rules.as_ref()));
    }
    // Rules under another name are kept for a repair: those of the time of an offered schema.
    let kept = Scope::cluster(ids::apiconversions(), export.cluster.clone());
    let kept = snapshot.range(&kept, None, FORMER_MAX);
    let has_schema = |entry: &&Entry| {
        let schema = parts::schema_of_stored(&entry.object, &entry.key.name);
        entries.iter().any(|known| *known.key.name == *schema)
    };
    for rules in kept.iter().filter(|entry| !has_schema(entry)) {
        let offered = export.spec(snapshot);
        let offers = |schema: &&Entry| {
            offered
                .as_ref()
                .is_some_and(|spec| spec.offers_schema(&schema.key.name))
        };
        for schema in entries.iter().filter(offers).take(FORMER_MAX) {
            add(&bundle::of_schema(
                &schema.object.body_value(),
                Some(&rules.object.body_value()),
            ));
        }
    }
    let bundles = Scope::cluster(ids::bundles(), ClusterName::bound_crds());
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

/// Limits of a page.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// The last object of the page before.
    pub after: Option<&'a ObjectKey>,
    /// Most verdicts.
    pub objects: usize,
    /// Bytes of objects to store after which the page ends.
    pub bytes: usize,
    /// True if the page also has objects of which only the record is to be renewed.
    pub to_apply: bool,
}

/// Examines the stored objects of an API of an export in all workspaces that bind it.
pub fn scan(deps: &Deps, snapshot: &Snapshot, api: &Served, former: &Former, limits: Limits<'_>) -> Page {
    let mut page = Page {
        verdicts: Vec::new(),
        examined: 0,
        next: None,
    };
    let mut bytes = 0;
    let scope = Scope::everywhere(api.resource_id());
    let examined = rewrite::scan(deps, snapshot, &scope, limits.after, |served, entry| {
        if let Some(served) = served {
            let verdict = examine(served, entry, former);
            bytes += verdict.made.as_ref().map_or(0, |made| made.size());
            let is_listed = verdict.state != State::Current || limits.to_apply && verdict.made.is_some();
            page.verdicts.extend(is_listed.then_some(verdict));
        }
        page.verdicts.len() < limits.objects && bytes <= limits.bytes
    });
    (page.examined, page.next) = (examined.objects, examined.next);
    page
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
        route: served.guard.clone(),
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
    let owned = FieldOwners::read(value);
    verdict.writers = writers(served, object, value)?;
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
            let rules = &former.for_version(served, version, *rules)?.bundle;
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
    if owned.is_empty() {
        return Err("it has no metadata.managedFields, so nobody knows which of its fields a client wrote".into());
    }
    let stored = Stored {
        value,
        version: object.version(),
        residual: object.residual(),
    };
    let owns = |version: &str, path: &[Step<'_>]| owned.owns(version, path);
    let made = bundle.recompute(
        stored,
        &known,
        &owns,
        &mut insula_conversion::object_budget(&served.meter),
    );
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
fn writers(served: &Served, object: &Object, value: &Json) -> std::result::Result<Vec<(String, u64)>, String> {
    let bundle = &served.api.bundle;
    let records = insula_conversion::written(object.residual())?;
    let recorded = records
        .iter()
        .map(|(version, written)| (version.clone(), written.rules));
    let owners = bundle.writers_of(value).into_iter();
    let unrecorded = owners.filter(|version| !records.contains_key(*version));
    let unrecorded = unrecorded.map(|version| (version.to_owned(), RULES_UNKNOWN));
    let mut all: Vec<(String, u64)> = recorded.collect();
    all.extend(unrecorded.filter(|(version, _)| bundle.rules_of(version).is_some()));
    all.retain(|(version, rules)| bundle.rules_of(version) != Some(*rules));
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
    rewrite::object(served, &value, made.stored.residual.clone())
}

/// Stores a recomputed object, unless it was written since: then it is examined again.
///
/// # Errors
/// The store refused the commit. A conflict is a failed verdict.
pub async fn apply(deps: &Deps, mut verdict: Verdict, former: &Former) -> Result<Verdict> {
    for _ in 0..ATTEMPTS {
        let intents = verdict.intents();
        if intents.is_empty() {
            return Ok(verdict);
        }
        match rewrite::attempt(deps, &verdict.entry.key.cluster, intents).await? {
            Attempt::Stored => {
                verdict.stored();
                return Ok(verdict);
            }
            Attempt::Refused(why) => {
                verdict.message = why;
                verdict.state = State::Failed;
                return Ok(verdict);
            }
            Attempt::Conflict => {}
        }
        match rewrite::latest(deps, &verdict.entry).await? {
            Some((served, entry)) => verdict = examine(&served, &entry, former),
            // It was deleted meanwhile, or its workspace no longer serves it.
            None => {
                verdict.state = State::Current;
                return Ok(verdict);
            }
        }
    }
    verdict.state = State::Failed;
    verdict.message = format!("it was written by others in {ATTEMPTS} attempts; try again");
    Ok(verdict)
}
