//! Repair of what wrong rules wrote, as `spec.recompute` of an APIExport asks for.
//!
//! A new text in the field begins a repair of all resources of the export in all workspaces that
//! bind it, a page of objects a transaction, with the progress in `status.recompute`. After a crash
//! it continues from there. The former rules are those that are still stored in the export's
//! workspace: of other schemas, or kept under another name.

use crate::{
    migration::pace::Pace,
    runtime::Reconciler,
    write::{list, text},
};
use insula_api::{Json, ObjectKey, ResourceId, Timestamp};
use insula_catalog::{Api, Served, exports::ExportName, ids};
use insula_registry::{
    Deps, Intent, Plan,
    recompute::{self, Former, Limits, Page, State, Verdict},
    rewrite,
};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// Objects in one transaction.
const BATCH_MAX: usize = 100;
/// Bytes of objects after which a transaction ends.
const BATCH_BYTES_MAX: usize = 512 << 10;
/// Seconds for which a repair waits until the present rules serve all consumers. A consumer whose
/// objects cannot follow stays behind.
const PATIENCE_SECONDS: i64 = 60;

/// Reconciles `spec.recompute` of APIExports.
pub(crate) struct Recomputations {
    registry: Arc<Deps>,
    pace: Pace,
}

/// World of a repair.
pub(crate) struct World {
    /// The export, if a repair is due.
    export: Option<(Entry, Json)>,
    now: Timestamp,
    /// Workspaces that the present rules do not serve yet.
    behind: usize,
    /// True if the repair waits until the present rules serve them.
    waits: bool,
    step: Step,
}

/// The next step of a repair.
enum Step {
    /// A page of the objects of a resource.
    Examine {
        resource: String,
        page: Page,
        /// The resource after this one.
        next: Option<String>,
        /// The first object of the page that is not recomputed, and the reason.
        message: Option<String>,
    },
    /// The rate limit of this second is used up.
    Pause,
    /// There is nothing left to examine.
    End,
}

impl Recomputations {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        Recomputations {
            registry,
            pace: Pace::default(),
        }
    }
}

impl Reconciler for Recomputations {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "recompute"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::apiexports()]
    }

    fn keys(&self, change: &Change, _snapshot: &Snapshot) -> Vec<ObjectKey> {
        let object = change.new.as_ref().map(|object| object.body_value());
        object
            .is_some_and(|export| is_due(&export))
            .then(|| change.key.clone())
            .into_iter()
            .collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let export = snapshot.get(key).filter(|entry| !entry.object.meta.is_deleting());
        let export = export.map(|entry| {
            let value = entry.object.body_value();
            (entry, value)
        });
        let export = export.filter(|(_, value)| is_due(value));
        let now = self.registry.clock.now();
        let (mut behind, mut waits, mut step) = (0, false, Step::End);
        if let Some((_, value)) = &export {
            let name = ExportName {
                cluster: key.cluster.clone(),
                name: key.name.clone(),
            };
            behind = self.behind(&name, value, snapshot);
            waits = behind > 0 && may_wait(value, now);
            if !waits {
                step = self.step(&name, value, snapshot, now);
            }
        }
        World {
            export,
            now,
            behind,
            waits,
            step,
        }
    }

    fn decide(&self, world: &World) -> Plan {
        decide(world)
    }
}

/// Returns true if a repair is requested and not done.
fn is_due(export: &Json) -> bool {
    let (wanted, state) = (text(export, "/spec/recompute"), &export["status"]["recompute"]);
    !wanted.is_empty() && (state["request"] != wanted || state["phase"] != "Done")
}

/// Returns true if a repair has not begun, and was not requested long ago.
fn may_wait(export: &Json, now: Timestamp) -> bool {
    let state = &export["status"]["recompute"];
    if state["request"] != export["spec"]["recompute"] {
        return true;
    }
    let since = Timestamp::parse(text(state, "/startTime")).map_or(PATIENCE_SECONDS, |since| now.since(since));
    state["phase"] == "Waiting" && since < PATIENCE_SECONDS
}

impl Recomputations {
    /// Counts the consumers that other rules serve than those of the schemas on offer.
    fn behind(&self, export: &ExportName, value: &Json, snapshot: &Snapshot) -> usize {
        let offered: Vec<Arc<Api>> = list(value, "/spec/resources")
            .iter()
            .filter_map(|offered| {
                let catalog = &self.registry.catalog;
                catalog.stored(snapshot, &export.cluster, text(offered, "/schema"))
            })
            .collect();
        let is_behind = |cluster: &insula_api::ClusterName| {
            offered.iter().any(|api| {
                let served = self
                    .registry
                    .catalog
                    .resolve(snapshot, cluster, &api.group, &api.names.plural);
                served.is_some_and(|served| export.owns(snapshot, &served) && !has_same_rules(api, &served.api))
            })
        };
        let consumers = export.consumers(snapshot);
        consumers.iter().filter(|cluster| is_behind(cluster)).count()
    }

    /// Examines the next page.
    fn step(&self, export: &ExportName, value: &Json, snapshot: &Snapshot, now: Timestamp) -> Step {
        let mut resources: Vec<String> = list(value, "/spec/resources")
            .iter()
            .map(|offered| format!("{}.{}", text(offered, "/name"), text(offered, "/group")))
            .collect();
        resources.sort_unstable();
        let state = &value["status"]["recompute"];
        let is_same = state["request"] == value["spec"]["recompute"];
        let at = if is_same { text(state, "/resource") } else { "" };
        let mut left = resources.into_iter().skip_while(|resource| resource.as_str() < at);
        let Some(resource) = left.next() else { return Step::End };
        let next = left.next();
        let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
        let catalog = &self.registry.catalog;
        let Some(api) = export
            .resolve(catalog, snapshot, group, plural)
            .filter(|api| export.owns(snapshot, api))
        else {
            let page = Page {
                verdicts: Vec::new(),
                examined: 0,
                next: None,
            };
            return Step::Examine {
                resource,
                page,
                next,
                message: None,
            };
        };
        let after = if resource == at { text(state, "/after") } else { "" };
        let allowed = self.pace.take(BATCH_MAX, now);
        if allowed == 0 {
            return Step::Pause;
        }
        let page = self.page(export, &api, (after, allowed), snapshot);
        self.pace.give_back(allowed.saturating_sub(page.verdicts.len()), now);
        let mut left = page.verdicts.iter().filter(|verdict| !is_repaired(verdict));
        let message = left.next().map(|verdict| message(&resource, verdict));
        Step::Examine {
            resource,
            page,
            next,
            message,
        }
    }

    fn page(&self, export: &ExportName, api: &Served, (after, max): (&str, usize), snapshot: &Snapshot) -> Page {
        let former = Former::new(&self.registry, snapshot, export, Vec::new(), false);
        let after = rewrite::key_at(api.resource_id(), after);
        let limits = Limits {
            after: after.as_ref(),
            objects: max,
            bytes: BATCH_BYTES_MAX,
            to_apply: true,
        };
        recompute::scan(&self.registry, snapshot, api, &former, limits)
    }
}

fn has_same_rules(a: &Api, b: &Api) -> bool {
    let mut versions = a.bundle.versions();
    versions.all(|version| a.bundle.rules_of(version) == b.bundle.rules_of(version))
}

fn is_repaired(verdict: &Verdict) -> bool {
    matches!(
        verdict.state,
        State::Current | State::Differs | State::Kept | State::Recomputed
    )
}

fn message(resource: &str, verdict: &Verdict) -> String {
    let key = &verdict.entry.key;
    let why = match verdict.state {
        State::OtherRules => "its former rules are not known: keep them in an APIConversion of another name",
        State::Unknown => "it does not record its rules",
        _ => verdict.message.as_str(),
    };
    let namespace = if key.namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", key.namespace)
    };
    format!("{resource} {namespace}{} in {}: {why}", key.name, key.cluster)
}

fn decide(world: &World) -> Plan {
    let Some((entry, value)) = &world.export else {
        return Plan::rest();
    };
    let mut value = value.clone();
    let wanted = value["spec"]["recompute"].clone();
    if value["status"]["recompute"]["request"] != wanted {
        if !value["status"].is_object() {
            value["status"] = json!({});
        }
        value["status"]["recompute"] = json!({
            "request": wanted, "phase": "Waiting", "startTime": world.now.to_string(),
            "examined": 0, "recomputed": 0, "kept": 0, "otherRules": 0, "unknown": 0, "failed": 0,
        });
    }
    let state = &mut value["status"]["recompute"];
    if world.waits || matches!(world.step, Step::Pause) {
        let intents = vec![Intent::Update(entry.clone(), value)];
        return Plan {
            intents,
            again_after: Some(1),
        };
    }
    if state["phase"] == "Waiting" && world.behind > 0 {
        state["behind"] = json!(world.behind);
    }
    state["phase"] = json!("Running");
    let mut intents: Vec<Intent> = Vec::new();
    match &world.step {
        Step::End | Step::Pause => end(state),
        Step::Examine {
            resource,
            page,
            next,
            message,
        } => {
            page.verdicts.iter().for_each(|verdict| add(&mut intents, verdict));
            count(state, page);
            if let (Some(message), false) = (message, state["message"].is_string()) {
                state["message"] = json!(message);
            }
            match (&page.next, next) {
                (Some(key), _) => {
                    state["resource"] = json!(resource);
                    state["after"] = json!(rewrite::position(key));
                }
                (None, Some(next)) => {
                    state["resource"] = json!(next);
                    remove(state, "after");
                }
                (None, None) => end(state),
            }
        }
    }
    intents.push(Intent::Update(entry.clone(), value));
    Plan {
        intents,
        again_after: None,
    }
}

fn end(state: &mut Json) {
    state["phase"] = json!("Done");
    remove(state, "resource");
    remove(state, "after");
}

fn remove(state: &mut Json, field: &str) {
    state.as_object_mut().map(|state| state.remove(field));
}

/// Adds the write of one object. Several objects of a workspace need one guard.
fn add(intents: &mut Vec<Intent>, verdict: &Verdict) {
    for intent in verdict.intents() {
        let is_there = |other: &Intent| match (other, &intent) {
            (Intent::Expect(there, _), Intent::Expect(key, _)) => there == key,
            _ => false,
        };
        if !intents.iter().any(is_there) {
            intents.push(intent);
        }
    }
}

fn count(state: &mut Json, page: &Page) {
    let mut add = |field: &str, count: usize| {
        let before = state[field].as_u64().unwrap_or_default();
        state[field] = json!(before.saturating_add(count as u64));
    };
    let of = |wanted: State| page.verdicts.iter().filter(|verdict| verdict.state == wanted).count();
    add("examined", page.examined);
    add("recomputed", of(State::Differs));
    add(
        "kept",
        page.verdicts.iter().filter(|verdict| !verdict.kept.is_empty()).count(),
    );
    add("otherRules", of(State::OtherRules));
    add("unknown", of(State::Unknown));
    add("failed", of(State::Failed));
}
