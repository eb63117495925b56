//! What is known about one definition.

use super::names::{Taken, settled};
use crate::{
    content::{Content, Sweep, sweep},
    rollout::{Gate, Trial, Verdict},
    write::{alive, list, text},
};
use insula_api::{ClusterName, Json, ObjectKey, ResourceId, Scope, Timestamp};
use insula_registry::{Intent, Origin, Registry, ResourceRoute, admission::bundle, ids};
use insula_store::{Entry, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

/// The world of a definition.
pub(crate) struct World {
    /// The definition, if it still exists.
    pub(crate) definition: Option<(Entry, Json)>,
    /// Guards on the cluster; nothing when it goes away.
    pub(crate) alive: Option<Vec<Intent>>,
    /// The names that others of its group have; nothing when its own are settled.
    pub(crate) taken: Taken,
    pub(crate) claim_key: ObjectKey,
    pub(crate) claim: Option<Entry>,
    /// The bundle that it is served from, if an APIConversion gives it rules that compile.
    pub(crate) bundle: Option<WantedBundle>,
    /// The storage version that it names.
    pub(crate) storage: Option<Arc<str>>,
    /// There are rules, and they do not fit: what is served stays as it is.
    pub(crate) rules_broken: bool,
    /// Its instances, while it is being deleted.
    pub(crate) instances: Sweep,
    pub(crate) now: Timestamp,
}

/// A bundle as it should be and as it is.
pub(crate) struct WantedBundle {
    pub(crate) key: ObjectKey,
    pub(crate) value: Json,
    pub(crate) present: Option<Entry>,
    /// Guard on the APIConversion.
    pub(crate) conversion: Intent,
    /// What a dry run says, where something else is served now.
    pub(crate) rollout: Verdict,
}

pub(super) fn observe(registry: &Registry, gate: &Gate, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let cluster = &key.cluster;
    let definition = snapshot.get(key).map(|entry| {
        let value = entry.object.body_value();
        (entry, value)
    });
    let none = Json::Null;
    let spec = definition.as_ref().map_or(&none, |(_, value)| &value["spec"]);
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let claim_key = ids::claim(cluster, group, plural);
    let deleting = definition
        .as_ref()
        .is_some_and(|(entry, _)| entry.object.meta.is_deleting());
    let instances = match deleting {
        true => {
            let contents = [Content::custom(ResourceId::local(group, plural))];
            sweep(snapshot, &contents, cluster, None, now)
        }
        false => Sweep::default(),
    };
    let bundle = match &definition {
        Some((_, value)) if !deleting => wanted_bundle(registry, gate, snapshot, key, value),
        _ => Ok(None),
    };
    let (bundle, rules_broken) = match bundle {
        Ok(bundle) => (bundle, false),
        Err(Broken) => (None, true),
    };
    World {
        taken: match &definition {
            Some((entry, value)) if !settled(value) => taken(registry, snapshot, entry, group),
            _ => Taken::default(),
        },
        alive: alive(snapshot, cluster),
        claim: snapshot.get(&claim_key),
        claim_key,
        bundle,
        storage: storage_version(spec).map(Into::into),
        rules_broken,
        instances,
        definition,
        now,
    }
}

/// The version of a definition's `spec` that objects are stored in.
pub(crate) fn storage_version(spec: &Json) -> Option<&str> {
    let stored = list(spec, "/versions")
        .iter()
        .find(|version| version["storage"] == true)?;
    stored["name"].as_str()
}

/// Rules that do not compile. Admission refuses them, but it may have looked at another definition.
struct Broken;

fn wanted_bundle(
    registry: &Registry,
    gate: &Gate,
    snapshot: &Snapshot,
    key: &ObjectKey,
    definition: &Json,
) -> Result<Option<WantedBundle>, Broken> {
    let conversion_key = ObjectKey::cluster_scoped(ids::apiconversions(), key.cluster.clone(), &key.name);
    let Some(conversion) = snapshot.get(&conversion_key) else {
        return Ok(None);
    };
    let value = bundle::of_definition(definition, &conversion.object.body_value());
    let bundle_key = ids::bundle(text(&value, "/metadata/name"));
    let present = snapshot.get(&bundle_key);
    let api = registry
        .catalog
        .successor(&value, present.as_ref().map(|present| &*present.object))
        .map_err(|_| Broken)?;
    let served = registry
        .catalog
        .resolve(snapshot, &key.cluster, &api.group, &api.names.plural);
    let rollout = match served {
        Some(served) if served.api.fingerprint != api.fingerprint => {
            let scope = Scope::cluster(served.resource_id(), key.cluster.clone());
            let trial = Trial {
                api: &api,
                next: scope.clone(),
                scope,
            };
            gate.attempt(&trial, snapshot, registry.clock.now())
        }
        _ => Verdict::Open,
    };
    Ok(Some(WantedBundle {
        present,
        conversion: Intent::Expect(conversion_key, Some(conversion.revision)),
        key: bundle_key,
        value,
        rollout,
    }))
}

/// Names of every other API of the group in the cluster, built in, bound or defined. What older
/// definitions wait for is theirs, too: of several that want a name, each one decides for itself,
/// and at the same time.
fn taken(registry: &Registry, snapshot: &Snapshot, own: &Entry, group: &str) -> Taken {
    let mut taken = Taken::default();
    for other in of_group(snapshot, &own.key.cluster, group) {
        if other.key.name != own.key.name {
            taken.add_definition(&other.object, other.created < own.created);
        }
    }
    for served in registry.catalog.served_in(snapshot, &own.key.cluster, group) {
        if !matches!(served.origin, Origin::Local { .. }) {
            taken.add(served.names());
        }
    }
    taken
}

/// The definitions of a group in a cluster: names are `<plural>.<group>`. Of others no more than
/// the name is looked at.
pub(super) fn of_group(snapshot: &Snapshot, cluster: &ClusterName, group: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let scope = Scope::cluster(ids::customresourcedefinitions(), cluster.clone());
    let wanted = |key: &ObjectKey| key.name.split_once('.').is_some_and(|(_, rest)| rest == group);
    snapshot.for_each_wanted(&scope, wanted, |entry| {
        found.push(entry.clone());
        ControlFlow::Continue(())
    });
    found
}

/// Whether a claim is the definition's own.
pub(super) fn is_own(claim: &Entry, definition: &str) -> bool {
    claim.object.parsed(ResourceRoute::read).definition.as_deref() == Some(definition)
}
