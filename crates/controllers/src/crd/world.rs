//! World of the CustomResourceDefinition reconciler: everything that the decision about one
//! definition looks at.

use super::{
    group::taken,
    names::{Taken, are_accepted},
    unruled,
};
use crate::{
    content::{Content, Sweep, sweep},
    rollout::{Gate, Trial, Verdict},
    write::{alive, list, text},
};
use insula_api::{FieldError, Json, ObjectKey, ResourceId, Scope, Timestamp, aggregate};
use insula_catalog::{ResourceRoute, bundle, ids, parts, registration::DefinitionName};
use insula_registry::{Deps, Intent};
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// World of a definition.
pub(crate) struct World {
    /// The definition, if it exists.
    pub(crate) definition: Option<(Entry, Json)>,
    /// Guards on the cluster; `None` while the cluster is being deleted.
    pub(crate) alive: Option<Vec<Intent>>,
    /// Names of other APIs of its group; empty once its own names are accepted.
    pub(crate) taken: Taken,
    pub(crate) route_key: ObjectKey,
    pub(crate) route: Option<Entry>,
    /// Bundle that serves it, if an APIConversion gives it rules that compile.
    pub(crate) bundle: Option<WantedBundle>,
    /// Its storage version.
    pub(crate) storage: Option<Arc<str>>,
    /// The rules do not fit the definition, or are missing: the present API stays in service.
    pub(crate) misfit: Option<Misfit>,
    /// Its instances, while it is being deleted.
    pub(crate) instances: Sweep,
    pub(crate) now: Timestamp,
}

/// Rules and a definition that do not fit each other: one of them came before the other.
pub(crate) struct Misfit {
    pub(crate) message: String,
    /// True if what is served is this very definition.
    pub(crate) in_force: bool,
    /// True if stored objects need rules, which a change of them may end.
    pub(crate) is_of_objects: bool,
}

/// Bundle in its wanted and its present state.
pub(crate) struct WantedBundle {
    pub(crate) key: ObjectKey,
    pub(crate) value: Json,
    pub(crate) present: Option<Entry>,
    /// Guard on the APIConversion.
    pub(crate) conversions: Vec<Intent>,
    /// Result of a dry run, if another generation is in service.
    pub(crate) rollout: Verdict,
}

pub(super) fn observe(registry: &Deps, gate: &Gate, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let cluster = &key.cluster;
    let definition = snapshot.get(key).map(|entry| {
        let value = entry.object.body_value();
        (entry, value)
    });
    let none = Json::Null;
    let spec = definition.as_ref().map_or(&none, |(_, value)| &value["spec"]);
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let route_key = ids::resource_route(cluster, group, plural);
    let deleting = definition
        .as_ref()
        .is_some_and(|(entry, _)| entry.object.meta.is_deleting());
    let route = snapshot.get(&route_key);
    // A registration may have the name: then its objects are not the definition's.
    let is_foreign = route.as_ref().is_some_and(|route| !is_own(route, key));
    let instances = match deleting && !is_foreign {
        true => {
            let contents = [Content::custom(ResourceId::local(group, plural))];
            sweep(snapshot, &contents, cluster, None, now)
        }
        false => Sweep::default(),
    };
    let wanted = match &definition {
        Some((_, value)) if !deleting => wanted_bundle(registry, gate, snapshot, key, value),
        _ => Ok(None),
    };
    let (bundle, misfit) = match (wanted, &definition) {
        (Err(errors), Some((_, definition))) => wait(snapshot, definition, route.as_ref(), &errors),
        (Ok(None), Some((entry, definition))) if !deleting => {
            unruled::observe((registry, gate), snapshot, (&entry.key, definition), route.as_ref())
        }
        (wanted, _) => (wanted.unwrap_or_default(), None),
    };
    World {
        taken: match &definition {
            Some((entry, value)) if !are_accepted(value) => taken(registry, snapshot, entry, group),
            _ => Taken::default(),
        },
        alive: alive(snapshot, cluster),
        route,
        route_key,
        bundle,
        storage: storage_version(spec).map(Into::into),
        misfit,
        instances,
        definition,
        now,
    }
}

/// Returns the version of a definition's `spec` that objects are stored in.
pub(crate) fn storage_version(spec: &Json) -> Option<&str> {
    let stored = list(spec, "/versions")
        .iter()
        .find(|version| version["storage"] == true)?;
    stored["name"].as_str()
}

/// Returns what serves a definition while its rules do not fit it: the bundle that serves it now. A
/// definition that is served without a bundle gets one without rules, so that what is served stays
/// when the definition changes.
fn wait(
    snapshot: &Snapshot,
    definition: &Json,
    route: Option<&Entry>,
    errors: &[FieldError],
) -> (Option<WantedBundle>, Option<Misfit>) {
    let misfit = |in_force| {
        Some(Misfit {
            message: format!(
                "what was served before is served on, until the APIConversion of this name fits: {}",
                aggregate(errors)
            ),
            in_force,
            is_of_objects: false,
        })
    };
    let Some(route) = route else {
        return (None, misfit(false));
    };
    let route = route.object.parsed(ResourceRoute::read);
    if let Some(name) = &route.bundle {
        let present = snapshot.get(&ids::bundle(name));
        let serves = |bundle: Entry| bundle.object.body_value()["spec"] == definition["spec"];
        return (None, misfit(present.is_some_and(serves)));
    }
    if bundle::has_webhook(definition) {
        return (None, misfit(true));
    }
    let bundle = WantedBundle::without_rules(snapshot, bundle::without_rules(definition), Verdict::Open);
    (Some(bundle), misfit(true))
}

impl WantedBundle {
    /// Returns the bundle of a definition that has no rules in force.
    pub(super) fn without_rules(snapshot: &Snapshot, value: Json, rollout: Verdict) -> Self {
        let key = ids::bundle(text(&value, "/metadata/name"));
        WantedBundle {
            present: snapshot.get(&key),
            key,
            value,
            conversions: Vec::new(),
            rollout,
        }
    }
}

fn wanted_bundle(
    registry: &Deps,
    gate: &Gate,
    snapshot: &Snapshot,
    key: &ObjectKey,
    definition: &Json,
) -> Result<Option<WantedBundle>, Vec<FieldError>> {
    let parts = parts::for_schema(snapshot, &key.cluster, &key.name);
    let Some(rules) = parts::join(parts.iter().map(|part| part.object.body_value()).collect()) else {
        return Ok(None);
    };
    let value = bundle::of_definition(definition, &rules);
    let bundle_key = ids::bundle(text(&value, "/metadata/name"));
    let present = snapshot.get(&bundle_key);
    let api = registry.catalog.successor(
        &value,
        present.as_ref().map(|present| &*present.object),
        snapshot.meter(),
    )?;
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
        conversions: parts
            .iter()
            .map(|part| Intent::Expect(part.key.clone(), Some(part.revision)))
            .collect(),
        key: bundle_key,
        value,
        rollout,
    }))
}

/// Returns true for the route of a definition or registration.
pub(crate) fn is_own(route: &Entry, definition: &ObjectKey) -> bool {
    let route = route.object.parsed(ResourceRoute::read);
    route.definition.is_some() && route.definition == DefinitionName::of_key(definition)
}
