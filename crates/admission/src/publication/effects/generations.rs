//! Effects of a release on all whom the API serves, each by the generation that it is served. A
//! workspace that an object holds, that a rollout has not reached or that waits in its step is
//! served by an older one than is on offer, and what changes for it is what it sees now.

use super::{Effect, Generation, add, names};
use insula_access::WorkspaceNames;
use insula_api::{ClusterName, ResourceId};
use insula_catalog::{Api, Catalog};
use insula_conversion::{ConvertError, LossPolicy};
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// The API that serves the objects of a resource in each workspace.
pub struct Serving<'a> {
    catalog: &'a Catalog,
    snapshot: &'a Snapshot,
    resource: ResourceId,
    /// The workspace of the last object: those of one workspace come one after the other.
    last: Option<(ClusterName, Option<Arc<Api>>)>,
}

impl<'a> Serving<'a> {
    /// Returns what serves the objects of a resource in one state.
    pub fn new(catalog: &'a Catalog, snapshot: &'a Snapshot, resource: ResourceId) -> Self {
        Serving {
            catalog,
            snapshot,
            resource,
            last: None,
        }
    }

    /// Returns the API that serves them in a workspace; `None` if nothing does.
    fn api(&mut self, cluster: &ClusterName) -> Option<&Arc<Api>> {
        if self.last.as_ref().is_none_or(|(known, _)| known != cluster) {
            let (group, plural) = (&self.resource.group, &self.resource.resource);
            let served = self.catalog.resolve(self.snapshot, cluster, group, plural);
            let served = served.filter(|served| served.resource_id() == self.resource);
            self.last = Some((cluster.clone(), served.map(|served| served.api)));
        }
        self.last.as_ref()?.1.as_ref()
    }
}

/// The effects of one API's release, while its objects are examined.
pub struct Effects {
    /// By what serves the workspace of an object; the generation on offer comes first.
    generations: Vec<Generation>,
    /// True for a CustomResourceDefinition of a workspace.
    is_local: bool,
    meter: Meter,
}

impl Effects {
    /// Begins with what schemas and versions alone tell, for a release in the place of the one on
    /// offer.
    pub fn new(before: &Arc<Api>, after: &Arc<Api>, meter: &Meter) -> Self {
        Effects {
            generations: vec![Generation::new(before, after, meter)],
            is_local: false,
            meter: meter.clone(),
        }
    }

    /// Begins for an API that an export offers no longer.
    pub fn of_removed(api: &Arc<Api>, meter: &Meter) -> Self {
        let mut effects = Effects::new(api, api, meter);
        for generation in &mut effects.generations {
            generation.found = vec![Effect::new(names::API_REMOVED, &generation.api, "", "", "")];
            (generation.told, generation.is_removed) = (1, true);
        }
        effects
    }

    /// Says that a CustomResourceDefinition of a workspace changes, and no export.
    #[must_use]
    pub fn of_definition(mut self) -> Self {
        self.is_local = true;
        for generation in &mut self.generations {
            generation.is_unruled = !generation.after.bundle.has_rules();
        }
        self
    }

    /// Examines a stored object, for somebody who may see some names of workspaces.
    ///
    /// # Errors
    /// It cannot be read in every served version of after, or not be stored again: what
    /// [`Api::reads`] tells, for one conversion to each version.
    pub fn examine(
        &mut self,
        names: &WorkspaceNames,
        entry: &Entry,
        serving: &mut Serving<'_>,
    ) -> Result<(), ConvertError> {
        let served = serving.api(&entry.key.cluster);
        let index = served.map_or(0, |served| self.generation(served));
        self.generations[index].examine(names, entry)
    }

    /// Returns the position of a generation that is served.
    fn generation(&mut self, served: &Arc<Api>) -> usize {
        let offer = &self.generations[0];
        let mut known = self.generations.iter();
        let found = known.position(|known| known.before.fingerprint == served.fingerprint);
        match found {
            Some(index) => index,
            // Each object is reached alike.
            None if offer.is_removed => 0,
            None => {
                let mut generation = Generation::new(served, &offer.after, &self.meter);
                generation.offered = Some(Arc::clone(&offer.before));
                generation.is_unruled = offer.is_unruled;
                self.generations.push(generation);
                self.generations.len() - 1
            }
        }
    }

    /// Returns the effects that hurt: those that reach objects, and those of the generation on
    /// offer that hurt clients without any.
    pub fn finish(self) -> Vec<Effect> {
        let mut found: Vec<Effect> = Vec::new();
        for (index, mut generation) in self.generations.into_iter().enumerate() {
            let is_lossy = generation.after.bundle.loss_policy() == LossPolicy::None;
            for effect in &mut generation.found {
                (effect.is_local, effect.is_lossy) = (self.is_local, is_lossy);
            }
            generation.found.retain(|effect| index == 0 || effect.objects > 0);
            match index {
                0 => found = generation.found,
                _ => add(&mut found, generation.found),
            }
        }
        found.sort_by_key(|effect| (std::cmp::Reverse(effect.objects), effect.id()));
        found
    }
}
