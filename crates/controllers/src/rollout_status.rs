//! Rollout of the release that an export offers, in the status of the export: the schemas and rules
//! that it consists of, the number of bindings that took it over, and the bindings that stay with
//! the reason. A binding serves the release if its routes lead there; one that stays says in
//! `status.release` behind which release, and what it says of another one is not counted.

mod decide;
mod release;

use crate::{
    apibinding::world::find_export, loaded::Loaded, rollout::OF_OTHERS, rollout_steps, runtime::Reconciler, write::text,
};
use insula_api::{
    ClusterName, Object, ObjectKey, ResourceId, Timestamp, condition,
    kinds::{self, ApiBinding, ApiExport, ApiExportRollout},
};
use insula_catalog::{
    ResourceRoute,
    exports::{ExportName, offering},
    ids, parts,
};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Entry, Snapshot};
use release::{Fingerprints, Release};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Bindings that the status names.
const HELD_MAX: usize = 10;
/// Bytes of the reason of one of them.
const MESSAGE_MAX: usize = 500;
/// Seconds between a change of a binding and the count: one count serves all bindings that change
/// meanwhile.
const SETTLE_SECONDS: u64 = 1;
/// Bindings for each of which a second passes between two counts: to count takes about a
/// microsecond a binding, and its writes should not take a core.
const BINDINGS_PER_SECOND: usize = 20_000;
/// Exports whose last count and release are remembered.
const COUNTS_MAX: usize = 4096;

/// Reconciles the rollout status of exports.
pub(crate) struct RolloutStatus {
    registry: Arc<Deps>,
    /// Time of the last count, of exports with many bindings.
    counted: Mutex<HashMap<ObjectKey, Timestamp>>,
    /// The last release of each export, and the revisions that it was read from. To read it takes
    /// as long as to compile all its schemas.
    releases: Mutex<HashMap<ObjectKey, (u64, Arc<Release>)>>,
}

/// World of an export's rollout.
#[derive(Default)]
pub(crate) struct World {
    export: Option<Loaded<ApiExport>>,
    /// The release on offer.
    release: Arc<Release>,
    bindings: usize,
    current: usize,
    held: usize,
    /// Bindings that were never served.
    unbound: usize,
    /// Bindings that neither moved nor stay, by their step, from the first.
    pending: Vec<usize>,
    /// The first bindings that stay.
    named: Vec<Held>,
    /// Seconds until the bindings are counted again, if that is too early now.
    later: Option<u64>,
    now: Timestamp,
}

/// Binding that stays on the previous release.
struct Held {
    /// Logical cluster of the binding. The provider need not know its path.
    workspace: ClusterName,
    name: String,
    message: String,
    /// True if its own objects are the reason.
    is_cause: bool,
}

/// The fields of a binding that say where it stands.
struct Judged {
    /// It was served once.
    is_served: bool,
    /// The release that it stays behind.
    release: String,
    /// It serves what it was offered.
    is_up_to_date: bool,
    /// The reason to stay.
    stays: Option<String>,
}

impl Judged {
    fn read(binding: &Object) -> Self {
        let value = binding.body_value();
        let is_true = |kind| condition(&value, kind).is_some_and(|condition| condition["status"] == "True");
        let state = condition(&value, "BindingUpToDate").cloned().unwrap_or_default();
        let stays = matches!(
            text(&state, "/reason"),
            "RolloutBlocked" | "NamingConflicts" | "APIResourceSchemaInvalid"
        );
        Judged {
            is_served: is_true("InitialBindingCompleted"),
            release: text(&value, "/status/release").to_owned(),
            is_up_to_date: state["status"] == "True",
            stays: stays.then(|| cut(text(&state, "/message"))),
        }
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

impl World {
    /// Counts one binding.
    fn count(&mut self, looked: (&Deps, &Snapshot), known: &mut Fingerprints, entry: &Entry) {
        let Some(export) = &self.export else { return };
        let judged = entry.object.parsed(Judged::read);
        let cluster = &entry.key.cluster;
        self.bindings += 1;
        if !judged.is_served {
            self.unbound += 1;
        } else if judged.is_up_to_date && self.release.serves(looked, known, cluster) {
            self.current += 1;
        } else if let (true, Some(message)) = (judged.release == self.release.id, &judged.stays) {
            self.held += 1;
            let is_cause = !message.starts_with(OF_OTHERS);
            if let Some(at) = self.place(is_cause) {
                let held = Held {
                    workspace: cluster.clone(),
                    name: entry.key.name.to_string(),
                    message: message.clone(),
                    is_cause,
                };
                self.named.insert(at, held);
                self.named.truncate(HELD_MAX);
            }
        } else {
            let rollout = &export.view.spec.rollout;
            let step = rollout_steps::step_of(rollout, cluster, &entry.object.meta);
            self.pending[step - 1] += 1;
        }
    }
}

impl World {
    /// Returns the place of a binding that stays among those that are named; `None` if there are
    /// enough. Those with the reason in their own objects come first: where all move or none,
    /// others stay with them.
    fn place(&self, is_cause: bool) -> Option<usize> {
        let causes = self.named.iter().take_while(|known| known.is_cause).count();
        let at = if is_cause { causes } else { self.named.len() };
        (at < HELD_MAX).then_some(at)
    }
}

impl RolloutStatus {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        RolloutStatus {
            registry,
            counted: Mutex::default(),
            releases: Mutex::default(),
        }
    }

    /// Returns the release that an export offers.
    fn release(&self, snapshot: &Snapshot, export: &Loaded<ApiExport>) -> Arc<Release> {
        let (key, revisions) = (&export.entry.key, release::revisions(snapshot, export));
        let known = |releases: &HashMap<ObjectKey, (u64, Arc<Release>)>| {
            let (at, release) = releases.get(key)?;
            (*at == revisions).then(|| release.clone())
        };
        let lock = || self.releases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(release) = known(&lock()) {
            return release;
        }
        let release = Arc::new(Release::offered_by(&self.registry, snapshot, export));
        let mut releases = lock();
        if releases.len() > COUNTS_MAX {
            releases.clear();
        }
        releases.insert(key.clone(), (revisions, release.clone()));
        release
    }

    /// Returns the seconds until the bindings of an export may be counted again; `None` for now.
    fn too_early(&self, key: &ObjectKey, bindings: usize, now: Timestamp) -> Option<u64> {
        let pause = bindings / BINDINGS_PER_SECOND;
        if pause == 0 {
            return None;
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() > COUNTS_MAX {
            counted.clear();
        }
        let since = counted
            .get(key)
            .map(|last| now.since(*last))
            .and_then(|s| u64::try_from(s).ok());
        match since {
            Some(since) if since < pause as u64 => Some(pause as u64 - since),
            _ => {
                counted.insert(key.clone(), now);
                None
            }
        }
    }
}

impl Reconciler for RolloutStatus {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "rollout"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apibindings(),
            ids::apiexports(),
            ids::apiresourceschemas(),
            ids::apiconversions(),
            // A binding may move by its route alone.
            ids::resource_routes(),
        ]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        match &*key.resource.resource {
            "apiexports" => change.new.iter().map(|_| key.clone()).collect(),
            ids::RESOURCE_ROUTES => {
                let route = change.new.as_ref().map(|route| route.parsed(ResourceRoute::read));
                let export = route.iter().filter_map(|route| Some(route.export.as_ref()?.key()));
                export.collect()
            }
            "apiresourceschemas" | "apiconversions" => {
                let exports = offering(snapshot, &key.cluster, &parts::schemas_of(change));
                exports.into_iter().map(|export| export.key).collect()
            }
            _ => {
                let object = change.new.as_deref().or(change.old.as_ref().map(|old| &*old.object));
                let export = object.and_then(|object| {
                    let binding: ApiBinding = kinds::read(&object.body_value());
                    find_export(snapshot, &key.cluster, &binding).found
                });
                export.into_iter().map(|export| export.entry.key).collect()
            }
        }
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
        let registry = &self.registry;
        let bindings = ExportName::new(&key.cluster, &key.name).bindings(snapshot);
        // An export that nobody binds has no rollout, unless it had or wants one.
        if bindings.is_empty() && !is_shown(&export.view) {
            world.export = None;
            return world;
        }
        world.release = self.release(snapshot, export);
        world.pending = vec![0; export.view.spec.rollout.steps.len() + 1];
        // The first look at a release is never too early: it opens the first step.
        if world.release.id == export.view.status.rollout.release {
            world.later = self.too_early(key, bindings.len(), world.now);
        }
        if world.later.is_none() {
            let mut known = Fingerprints::default();
            for entry in &bindings {
                if !entry.object.meta.is_deleting() {
                    world.count((registry, snapshot), &mut known, entry);
                }
            }
        }
        world
    }

    fn decide(&self, world: &World) -> Plan {
        decide::decide(world)
    }
}

/// Returns true if an export has a status of its rollout, or asks for one.
fn is_shown(export: &ApiExport) -> bool {
    !export.status.rollout.release.is_empty() || export.spec.rollout != ApiExportRollout::default()
}

#[cfg(test)]
mod tests;
