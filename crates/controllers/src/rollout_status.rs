//! Outcome of a rollout per binding, in the status of the export: the number of bindings that took
//! over the schemas and rules on offer, and the bindings that stay with the reason.
//!
//! An export that never held a binding back, and says nothing about its rollout, gets no such
//! status.

use crate::{
    apibinding::world::find_export,
    loaded::Loaded,
    rollout::{self, Hold},
    rollout_steps,
    runtime::Reconciler,
    write::{sort_conditions, text},
};
use insula_api::{
    ClusterName, Json, Object, ObjectKey, ResourceId, Timestamp, condition,
    kinds::{self, ApiBinding, ApiExport, ApiExportRollout, RolloutState},
};
use insula_catalog::{ResourceRoute, digest, ids, locate};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use std::{collections::HashMap, sync::Arc};

/// Bindings that the status names.
const HELD_MAX: usize = 10;
/// Bytes of the reason of one of them.
const MESSAGE_MAX: usize = 500;
/// Seconds between a change of a binding and the count: one count serves all bindings that change
/// meanwhile.
const SETTLE_SECONDS: u64 = 1;

/// Reconciles the rollout status of exports.
pub(crate) struct RolloutStatus {
    registry: Arc<Deps>,
}

/// World of an export's rollout.
#[derive(Default)]
pub(crate) struct World {
    export: Option<Loaded<ApiExport>>,
    /// Identifier of the release on offer.
    release: String,
    bindings: usize,
    current: usize,
    held: usize,
    /// Bindings that neither moved nor stay, by their step, from the first.
    pending: Vec<usize>,
    /// The first bindings that stay.
    named: Vec<Held>,
    now: Timestamp,
}

/// Binding that stays on the previous generation.
struct Held {
    workspace: String,
    name: String,
    message: String,
}

/// Returns the reason of a binding to stay.
fn reason_to_stay(binding: &Object) -> Option<String> {
    let state = condition(&binding.body_value(), "BindingUpToDate").cloned()?;
    (state["reason"] == "RolloutBlocked").then(|| cut(text(&state, "/message")))
}

/// The release that an export offers.
struct Release<'a> {
    registry: &'a Deps,
    snapshot: &'a Snapshot,
    /// Group, name and fingerprint of each resource that compiles.
    offered: Vec<(String, String, u64)>,
    /// False if a resource has no schema, or one that does not compile.
    is_whole: bool,
    /// Fingerprints of bundles by name.
    bundles: HashMap<Arc<str>, Option<u64>>,
}

impl<'a> Release<'a> {
    fn offered_by(registry: &'a Deps, snapshot: &'a Snapshot, export: &Loaded<ApiExport>) -> Self {
        let mut release = Release {
            registry,
            snapshot,
            offered: Vec::new(),
            is_whole: true,
            bundles: HashMap::new(),
        };
        let stored = export
            .view
            .spec
            .resources
            .iter()
            .filter(|r| r.storage.r#virtual.is_none());
        for resource in stored {
            let cluster = &export.entry.key.cluster;
            match registry.catalog.stored(snapshot, cluster, &resource.schema) {
                Some(api) => {
                    let (group, name) = (resource.group.clone(), resource.name.clone());
                    release.offered.push((group, name, api.fingerprint));
                }
                None => release.is_whole = false,
            }
        }
        release
    }

    fn identifier(&self) -> String {
        let offered = self.offered.iter();
        rollout_steps::release(offered.map(|(group, name, fingerprint)| (&**group, &**name, *fingerprint)))
    }

    /// Returns true if a cluster is served by the release.
    fn serves(&mut self, cluster: &ClusterName) -> bool {
        let (registry, snapshot) = (self.registry, self.snapshot);
        let bundles = &mut self.bundles;
        let mut serves = |(group, name, fingerprint): &(String, String, u64)| {
            let route = snapshot.get(&ids::resource_route(cluster, group, name))?;
            let bundle = route.object.parsed(ResourceRoute::read).bundle.clone()?;
            let served = *bundles.entry(bundle.clone()).or_insert_with(|| {
                let bundle = snapshot.get(&ids::bundle(&bundle))?;
                Some(registry.catalog.compiled(&bundle.object).ok()?.fingerprint)
            });
            (served? == *fingerprint).then_some(())
        };
        self.is_whole && self.offered.iter().all(|offered| serves(offered).is_some())
    }
}

/// Cuts a message at [`MESSAGE_MAX`] bytes.
fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_MAX).rev().find(|end| message.is_char_boundary(*end));
    format!("{}…", &message[..end.unwrap_or_default()])
}

impl RolloutStatus {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        RolloutStatus { registry }
    }
}

impl Reconciler for RolloutStatus {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "rollout"
    }

    fn watches(&self) -> Vec<ResourceId> {
        // A binding may move by its route alone.
        vec![ids::apibindings(), ids::apiexports(), ids::resource_routes()]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        if change.key.resource == ids::apiexports() {
            return change.new.iter().map(|_| change.key.clone()).collect();
        }
        if change.key.resource == ids::resource_routes() {
            let route = change.new.as_ref().map(|route| route.parsed(ResourceRoute::read));
            return route
                .iter()
                .filter_map(|route| Some(route.export.as_ref()?.key()))
                .collect();
        }
        let object = change.new.as_deref().or(change.old.as_ref().map(|old| &*old.object));
        let export = object.and_then(|object| {
            let binding: ApiBinding = kinds::read(&object.body_value());
            find_export(snapshot, &change.key.cluster, &binding).found
        });
        export.into_iter().map(|export| export.entry.key).collect()
    }

    fn settle(&self) -> u64 {
        SETTLE_SECONDS
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let mut world = World {
            export: Loaded::get(snapshot, key),
            now: self.registry.clock.now(),
            ..World::default()
        };
        let Some(export) = &world.export else { return world };
        let label = digest::export_label(&key.cluster, &key.name);
        let registry = &self.registry;
        let bindings = registry.bindings.of_export(&*registry.store, snapshot, &label);
        let bindings = bindings.iter().filter_map(|key| snapshot.get(key));
        let bindings: Vec<Entry> = bindings.filter(|entry| !entry.object.meta.is_deleting()).collect();
        let stays = |entry: &Entry| entry.object.parsed(reason_to_stay);
        world.bindings = bindings.len();
        if !is_shown(&export.view, &export.value) && bindings.iter().all(|entry| stays(entry).is_none()) {
            return world;
        }
        let mut release = Release::offered_by(&self.registry, snapshot, export);
        let rollout = &export.view.spec.rollout;
        world.release = release.identifier();
        world.pending = vec![0; rollout.steps.len() + 1];
        for entry in &bindings {
            let cluster = &entry.key.cluster;
            if let Some(message) = &*stays(entry) {
                world.held += 1;
                if world.named.len() < HELD_MAX {
                    world.named.push(Held {
                        workspace: locate::path_of(snapshot, cluster).to_string(),
                        name: entry.key.name.to_string(),
                        message: message.clone(),
                    });
                }
            } else if release.serves(cluster) {
                world.current += 1;
            } else {
                world.pending[rollout_steps::step_of(rollout, cluster, &entry.object.meta) - 1] += 1;
            }
        }
        world
    }

    fn decide(&self, world: &World) -> Plan {
        decide(world)
    }
}

/// Returns true if the export has a status of its rollout, or asks for one.
fn is_shown(export: &ApiExport, value: &Json) -> bool {
    value["status"]["rollout"].is_object() || export.spec.rollout != ApiExportRollout::default()
}

fn decide(world: &World) -> Plan {
    let Some(export) = world.export.as_ref().filter(|export| !export.is_deleting()) else {
        return Plan::rest();
    };
    let rollout = &export.view.spec.rollout;
    if world.held == 0 && !is_shown(&export.view, &export.value) {
        return Plan::rest();
    }
    let mut value = export.value.clone();
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    let named = world
        .named
        .iter()
        .map(|held| json!({"workspace": held.workspace, "name": held.name, "message": held.message}));
    let named: Vec<Json> = named.collect();
    let mut status = json!({"bindings": world.bindings, "current": world.current, "held": world.held});
    if !named.is_empty() {
        status["heldBindings"] = json!(named);
    }
    let mut again_after = None;
    if !rollout.steps.is_empty() {
        let (state, seconds) = advance(rollout, &export.view.status.rollout, world);
        status["waiting"] = json!(world.pending.iter().sum::<usize>());
        status["steps"] = json!(rollout.steps.len() + 1);
        status["release"] = json!(state.release);
        status["step"] = json!(state.step);
        if !state.step_done_time.is_empty() {
            status["stepDoneTime"] = json!(state.step_done_time);
        }
        again_after = seconds;
    }
    value["status"]["rollout"] = status;
    if !rollout.is_all_or_nothing() {
        rollout::set_rolled_out(&mut value, held_message(world).map(Hold::of_objects), world.now);
    }
    sort_conditions(&mut value);
    let intents = match value == export.value {
        true => Vec::new(),
        false => vec![export.update(value)],
    };
    Plan { intents, again_after }
}

/// Returns the state of a rollout in steps, and the seconds until it may go on by itself. A step
/// ends when each of its bindings has moved or stays; its pause begins then.
fn advance(rollout: &ApiExportRollout, known: &RolloutState, world: &World) -> (RolloutState, Option<u64>) {
    let mut state = RolloutState {
        release: world.release.clone(),
        step: 1,
        step_done_time: String::new(),
    };
    if known.release == world.release {
        state = known.clone();
    }
    let last = rollout.steps.len() + 1;
    state.step = state.step.clamp(1, last);
    loop {
        let is_done = world.pending[..state.step].iter().all(|pending| *pending == 0);
        if !is_done {
            state.step_done_time.clear();
            return (state, None);
        }
        let done = Timestamp::parse(&state.step_done_time).unwrap_or(world.now);
        state.step_done_time = done.to_string();
        if state.step == last || rollout.paused {
            return (state, None);
        }
        let left = rollout.steps[state.step - 1].pause_seconds - world.now.since(done);
        if left > 0 {
            return (state, u64::try_from(left).ok());
        }
        state.step += 1;
        state.step_done_time.clear();
    }
}

/// Returns the message of the export's condition, if bindings stay.
fn held_message(world: &World) -> Option<String> {
    let first = world.named.first()?;
    Some(format!(
        "{} of {} bindings stay on the previous generation, e.g. {} in {}: {}",
        world.held, world.bindings, first.name, first.workspace, first.message
    ))
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE_MAX, RolloutStatus, cut};
    use crate::testing::plan;
    use insula_api::{ClusterName, ObjectKey};
    use insula_catalog::{digest, ids};

    fn export(spec: &str) -> String {
        format!(
            "
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {{name: widgets}}
spec: {spec}
"
        )
    }

    /// Returns a binding of the tenant with this number.
    fn binding(tenant: usize, up_to_date: &str) -> String {
        let label = digest::export_label(&ClusterName::root(), "widgets");
        format!(
            "
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata:
  name: widgets
  annotations: {{kcp.io/cluster: t{tenant:02}}}
  labels: {{internal.apis.kcp.io/export: {label}}}
status: {{conditions: [{{type: BindingUpToDate, {up_to_date}}}]}}
"
        )
    }

    async fn decide(documents: &[String]) -> String {
        let key = ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), "widgets");
        plan(RolloutStatus::new, &key, &documents.join("---")).await
    }

    #[tokio::test]
    async fn the_export_names_ten_bindings_and_counts_all() {
        let held = |i| binding(i, "status: 'False', reason: RolloutBlocked, message: it does not fit");
        let mut world = vec![export("{}")];
        world.extend((0..12).map(held));
        world.push(binding(12, "status: 'True'"));
        let plan = decide(&world).await;
        for line in ["bindings: 13", "current: 1", "held: 12", "12 of 13 bindings stay"] {
            assert!(plan.contains(line), "{line} in {plan}");
        }
        assert_eq!(plan.matches("workspace:").count(), 10, "{plan}");
    }

    #[tokio::test]
    async fn an_export_without_trouble_is_left_alone() {
        let bound = binding(0, "status: 'True'");
        let plain = decide(&[export("{}"), bound.clone()]).await;
        assert!(!plain.contains("rollout"), "{plain}");
        let asked = decide(&[export("{rollout: {strategy: PerBinding}}"), bound]).await;
        assert!(asked.contains("current: 1"), "{asked}");
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let long = "é".repeat(MESSAGE_MAX);
        assert!(cut(&long).len() <= MESSAGE_MAX + '…'.len_utf8());
        assert_eq!(cut("short"), "short");
    }
}
