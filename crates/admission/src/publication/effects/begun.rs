//! Versions that a definition without rules begins to serve. One that does not show what stored
//! objects hold takes it away with the first write through it, as in Kubernetes, so it waits for
//! rules or for somebody's word.

use super::{Acceptance, Effect, Generation, differing, is_open, names, stored};
use insula_access::WorkspaceNames;
use insula_api::{Json, Object, ObjectKey, Revision, Scope, names::annotations::ACCEPTED_EFFECTS};
use insula_catalog::Api;
use insula_conversion::{LossPolicy, object_budget};
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// Objects that are examined at a time.
const SLICE: usize = 1_000;

impl Generation {
    /// Looks at what a version that begins to be served shows of an object: a value of the stored
    /// object that it lacks is an effect.
    pub(super) fn begin(
        &mut self,
        (object, value): (&Object, &Json),
        version: &str,
        mut is: Json,
        reached: &mut Vec<usize>,
    ) {
        let (before, after) = (Arc::clone(&self.before), Arc::clone(&self.after));
        let storage = before.bundle.storage();
        let was = before
            .bundle
            .get(stored(object, value), storage, &mut object_budget(&self.meter));
        let schemas = (before.bundle.schema(storage), after.bundle.schema(version));
        let (Ok(mut was), (Some(old), Some(new))) = (was, schemas) else {
            return;
        };
        insula_schema::prune(&mut was, old);
        insula_schema::prune(&mut is, new);
        let hidden = differing(&was, &is, old.root()).into_iter();
        for (kind, path) in hidden.filter(|(kind, _)| *kind == names::VALUE_HIDDEN) {
            let index = self.effect_at(kind, version, &path, "");
            if let Some(index) = index {
                let effect = &mut self.found[index];
                (effect.begins, effect.is_local) = (true, true);
                effect.is_lossy = after.bundle.loss_policy() == LossPolicy::None;
            }
            reached.extend(index);
        }
    }
}

/// The values of stored objects that new versions of a definition without rules do not show, while
/// the objects are examined.
pub struct NewVersions {
    generation: Generation,
    versions: Vec<String>,
    accepted: Vec<Acceptance>,
    /// The first object that one of them does not show whole.
    first: Option<(ObjectKey, Revision)>,
}

impl NewVersions {
    /// Begins to compare what serves a definition now with what is to serve it. `None` if each new
    /// version has the fields that objects are stored with, or if the definition's annotation
    /// accepts whatever is hidden.
    pub fn new((before, after): (&Arc<Api>, &Arc<Api>), definition: &Json, meter: &Meter) -> Option<Self> {
        let accepted = Acceptance::all(definition, &[ACCEPTED_EFFECTS], drop);
        let storage = before.bundle.storage();
        let is_new = |version: &&str| !before.bundle.served().any(|known| known == *version);
        let hides = |version: &&str| !after.bundle.has_shape_of(version, (&before.bundle, storage));
        let new = after.bundle.served().filter(is_new).filter(hides);
        let versions: Vec<String> = new.map(str::to_owned).collect();
        let covers_all = |word: &Acceptance| word.covers(names::VALUE_HIDDEN, u64::MAX);
        if versions.is_empty() || accepted.iter().any(covers_all) {
            return None;
        }
        Some(NewVersions {
            generation: Generation::of_new_versions(before, after, meter),
            versions,
            accepted,
            first: None,
        })
    }

    /// Examines a stored object of the definition.
    fn examine(&mut self, names: &WorkspaceNames, entry: &Entry) {
        let value = entry.object.body_value();
        let (generation, mut reached) = (&mut self.generation, Vec::new());
        for version in &self.versions {
            // Without rules nothing fails.
            if let Ok(shown) = generation.shown(&entry.object, &value, version, &mut None) {
                generation.begin((&entry.object, &value), version, shown, &mut reached);
            }
        }
        if !reached.is_empty() {
            self.first.get_or_insert_with(|| (entry.key.clone(), entry.revision));
            generation.reach(names, entry, &value, reached);
        }
    }

    /// Examines the next objects of a scope, up to a thousand, after a key if one is given. Returns
    /// the key of the last one if there are more.
    pub fn examine_slice(
        &mut self,
        (names, snapshot): (&WorkspaceNames, &Snapshot),
        scope: &Scope,
        after: Option<&ObjectKey>,
    ) -> Option<ObjectKey> {
        let (mut examined, mut last, mut more) = (0, None, false);
        snapshot.for_each_after(scope, after, |entry| {
            more = examined == SLICE;
            if more {
                return ControlFlow::Break(());
            }
            examined += 1;
            self.examine(names, entry);
            last = Some(entry.key.clone());
            ControlFlow::Continue(())
        });
        last.filter(|_| more)
    }

    /// Returns the effect on the most objects that nobody has accepted.
    pub fn open(&self) -> Option<&Effect> {
        let is_open = |effect: &&Effect| is_open(&effect.id(), effect.consent(), effect.objects as u64, &self.accepted);
        let open = self.generation.found.iter().filter(is_open);
        open.max_by_key(|effect| effect.objects)
    }

    /// Returns the first object that a new version does not show whole.
    pub fn first(&self) -> Option<&(ObjectKey, Revision)> {
        self.first.as_ref()
    }

    /// Returns true if a word counts up to a number of objects: then more than the first object
    /// decides.
    pub fn is_counted(&self) -> bool {
        !self.accepted.is_empty()
    }
}

impl Effect {
    /// Returns for what a definition waits whose new version has this effect.
    pub fn waits(&self) -> String {
        format!(
            "what was served before is served on, until an APIConversion of this name has rules for {}, no stored \
             object holds what it does not show, or the annotation {ACCEPTED_EFFECTS}: {}={} accepts that",
            self.version, self.kind, self.objects
        )
    }
}

impl Generation {
    /// Begins without what the schemas tell of other versions.
    fn of_new_versions(before: &Arc<Api>, after: &Arc<Api>, meter: &Meter) -> Self {
        let mut generation = Generation::new(before, after, meter);
        generation.found.clear();
        (generation.told, generation.is_unruled) = (0, true);
        generation
    }
}
