//! What is known about one binding.

use super::conflicts::{self, Other};
use crate::{
    content::{Content, Sweep, sweep},
    rollout::{self, Gate, Trial, Verdict},
    write::{alive, list, text, unchanged},
};
use insula_api::{ClusterName, ClusterPath, FieldError, Json, ObjectKey, ResourceId, Scope, Timestamp, names::labels};
use insula_registry::{Api, Intent, Registry, ResourceRoute, admission::bundle, ids, locate};
use insula_store::{Entry, Snapshot};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

/// The world of a binding.
pub(crate) struct World {
    /// The APIBinding, if it still exists.
    pub(crate) binding: Option<(Entry, Json)>,
    /// Guards on the cluster; nothing when it goes away.
    pub(crate) alive: Option<Vec<Intent>>,
    pub(crate) export: Export,
    /// What the export offers, in its order.
    pub(crate) resources: Vec<Resource>,
    /// What is bound and no longer offered; true where objects of it are left.
    pub(crate) dropped: Vec<(Json, bool)>,
    /// Names of other APIs in the cluster.
    pub(crate) others: Vec<Other>,
    /// The claims that the binding has.
    pub(crate) claims: Vec<Entry>,
    /// Its objects, while it is being deleted and leaves them to nobody.
    pub(crate) content: Sweep,
    /// While it is being deleted: another binding of the workspace to the same export, which they
    /// are left to.
    pub(crate) heir: Option<(Entry, Json)>,
    pub(crate) now: Timestamp,
}

/// The export that a binding refers to.
#[derive(Default)]
pub(crate) struct Export {
    /// Where it is, or would be: a cluster's name, or the path as it was written if that leads
    /// nowhere.
    pub(crate) place: String,
    pub(crate) name: String,
    pub(crate) found: Option<(Entry, Json)>,
    /// Guard on it.
    pub(crate) guard: Option<Intent>,
}

/// One resource of an export.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) schema_name: String,
    /// The APIResourceSchema, if there is one.
    pub(crate) schema: Option<(Entry, Json)>,
    /// Guards on schema and conversion.
    pub(crate) guards: Vec<Intent>,
    pub(crate) bundle_key: ObjectKey,
    pub(crate) bundle: Option<Entry>,
    /// The bundle as it should be.
    pub(crate) wanted: Json,
    /// What the bundle compiles to, or why it does not.
    pub(crate) compiled: Result<Arc<Api>, Vec<FieldError>>,
    pub(crate) claim_key: ObjectKey,
    pub(crate) claim: Option<Entry>,
    /// Objects in versions that the schema does not have, by version.
    pub(crate) stranded: BTreeMap<String, usize>,
    /// It is one of the server's own.
    pub(crate) built_in: bool,
    /// Somebody else has the claim.
    pub(crate) lost: bool,
    /// The tenant, or others of the same bundle, are served otherwise now.
    pub(crate) changes: bool,
    /// What a dry run of the change says.
    pub(crate) rollout: Verdict,
}

pub(super) fn observe(registry: &Registry, gate: &Gate, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let now = registry.clock.now();
    let cluster = &key.cluster;
    let binding = snapshot.get(key).map(|entry| {
        let value = entry.object.body_value();
        (entry, value)
    });
    let none = Json::Null;
    let value = binding.as_ref().map_or(&none, |(_, value)| value);
    let deleting = binding
        .as_ref()
        .is_some_and(|(entry, _)| entry.object.meta.is_deleting());
    let all = snapshot.range(&Scope::cluster(ids::claims(), cluster.clone()), None, usize::MAX);
    let claims: Vec<Entry> = all
        .into_iter()
        .filter(|c| c.object.parsed(ResourceRoute::read).binding.as_deref() == Some(&*key.name))
        .collect();
    let mut world = World {
        alive: alive(snapshot, cluster),
        export: Export::default(),
        resources: Vec::new(),
        dropped: Vec::new(),
        others: Vec::new(),
        content: Sweep::default(),
        heir: None,
        claims,
        now,
        binding: None,
    };
    if deleting {
        world.heir = binding
            .as_ref()
            .and_then(|(entry, _)| heir(snapshot, entry, &world.claims));
    }
    if deleting && world.heir.is_none() {
        world.content = sweep(snapshot, &bound_content(value, &world.claims), cluster, None, now);
    } else if binding.is_some() && !deleting {
        world.export = find_export(snapshot, cluster, value);
        if let Some((entry, export)) = &world.export.found {
            let offered = list(export, "/spec/resources")
                .iter()
                .filter(|r| !r["storage"]["virtual"].is_object());
            let look = |wanted| resource(registry, snapshot, cluster, &entry.key.cluster, export, wanted, value);
            world.resources = offered.map(look).collect();
            for resource in &mut world.resources {
                attempt(registry, gate, snapshot, cluster, export, resource);
            }
        }
        world.dropped = dropped(snapshot, cluster, value, &world.resources);
        world.others = conflicts::others(registry, snapshot, key);
    }
    world.binding = binding;
    world
}

/// The first binding of the same workspace to the same export that stays; the export still has the
/// identity that objects are stored under.
fn heir(snapshot: &Snapshot, binding: &Entry, claims: &[Entry]) -> Option<(Entry, Json)> {
    let export = binding.object.meta.label(labels::EXPORT)?;
    let scope = Scope::cluster(ids::apibindings(), binding.key.cluster.clone());
    let mut others = snapshot.range(&scope, None, usize::MAX).into_iter();
    let heir = others.find(|other| {
        let meta = &other.object.meta;
        other.key != binding.key && meta.label(labels::EXPORT) == Some(export) && !meta.is_deleting()
    })?;
    let value = heir.object.body_value();
    let (_, export) = find_export(snapshot, &heir.key.cluster, &value).found?;
    let identity = text(&export, "/status/identityHash");
    let is_its = |claim: &Entry| *claim.object.parsed(ResourceRoute::read).identity == *identity;
    claims.iter().all(is_its).then_some((heir, value))
}

fn find_export(snapshot: &Snapshot, own: &ClusterName, binding: &Json) -> Export {
    let (path, name) = (
        text(binding, "/spec/reference/export/path"),
        text(binding, "/spec/reference/export/name").to_owned(),
    );
    let cluster = match path.is_empty() {
        true => Some(own.clone()),
        false => ClusterPath::parse(path)
            .ok()
            .and_then(|path| locate::locate(snapshot, &path).ok()),
    };
    let Some(cluster) = cluster else {
        return Export {
            place: path.to_owned(),
            name,
            ..Export::default()
        };
    };
    let key = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), &name);
    let found = snapshot.get(&key).filter(|entry| !entry.object.meta.is_deleting());
    Export {
        place: cluster.to_string(),
        name,
        guard: found.as_ref().map(|entry| unchanged(key, Some(entry))),
        found: found.map(|entry| {
            let value = entry.object.body_value();
            (entry, value)
        }),
    }
}

fn resource(
    registry: &Registry,
    snapshot: &Snapshot,
    own: &ClusterName,
    exporter: &ClusterName,
    export: &Json,
    offered: &Json,
    binding: &Json,
) -> Resource {
    let (group, name) = (text(offered, "/group").to_owned(), text(offered, "/name").to_owned());
    let schema_name = text(offered, "/schema").to_owned();
    let schema_key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), exporter.clone(), &schema_name);
    let conversion_key = ObjectKey::cluster_scoped(ids::apiconversions(), exporter.clone(), &schema_name);
    let schema = snapshot.get(&schema_key);
    let conversion = snapshot.get(&conversion_key);
    let guards = vec![
        unchanged(schema_key, schema.as_ref()),
        unchanged(conversion_key, conversion.as_ref()),
    ];
    let schema = schema.map(|entry| {
        let value = entry.object.body_value();
        (entry, value)
    });
    let conversion = conversion.map(|entry| entry.object.body_value());
    let (wanted, compiled) = match &schema {
        Some((_, schema)) => {
            let wanted = bundle::of_schema(schema, conversion.as_ref());
            let present = snapshot.get(&ids::bundle(text(&wanted, "/metadata/name")));
            let compiled = registry
                .catalog
                .successor(&wanted, present.as_ref().map(|present| &*present.object));
            (wanted, compiled)
        }
        None => (Json::Null, Err(Vec::new())),
    };
    let bundle_key = ids::bundle(text(&wanted, "/metadata/name"));
    let claim_key = ids::claim(own, &group, &name);
    let claim = snapshot.get(&claim_key);
    let stranded = match &compiled {
        Ok(api) => stranded(snapshot, own, api, text(export, "/status/identityHash"), binding),
        Err(_) => BTreeMap::new(),
    };
    Resource {
        built_in: registry.catalog.system().get(&group, &name).is_some(),
        schema,
        guards,
        bundle: snapshot.get(&bundle_key),
        bundle_key,
        wanted,
        compiled,
        lost: claim
            .as_ref()
            .is_some_and(|claim| claim.object.parsed(ResourceRoute::read).binding.as_deref() != Some(name_of(binding))),
        changes: false,
        rollout: Verdict::Open,
        claim,
        claim_key,
        stranded,
        group,
        name,
        schema_name,
    }
}

/// Tries what would be served on every stored object of the export's API, where something else is
/// served now.
fn attempt(
    registry: &Registry,
    gate: &Gate,
    snapshot: &Snapshot,
    own: &ClusterName,
    export: &Json,
    resource: &mut Resource,
) {
    let Ok(api) = &resource.compiled else { return };
    let claimed = resource.claim.is_some() && !resource.lost;
    let present = match (&resource.bundle, claimed) {
        (_, true) => registry
            .catalog
            .resolve(snapshot, own, &resource.group, &resource.name)
            .map(|served| served.api),
        (Some(bundle), false) => registry.catalog.compiled(&bundle.object).ok(),
        (None, false) => None,
    };
    resource.changes = present.is_some_and(|present| present.fingerprint != api.fingerprint);
    // An export that says that something is held back has to be told when that ends.
    if resource.changes || rollout::is_blocked(export) {
        let id = ResourceId {
            group: api.group.clone(),
            resource: api.names.plural.clone(),
            identity: text(export, "/status/identityHash").into(),
        };
        // Other rules for the same schema change the bundle, and with it what everybody is served.
        let shared = resource.bundle.as_ref().is_some_and(|bundle| {
            let present = registry.catalog.compiled(&bundle.object);
            present.map_or(true, |present| present.fingerprint != api.fingerprint)
        });
        let trial = Trial {
            api,
            scope: Scope::everywhere(id.clone()),
            next: match shared {
                true => Scope::everywhere(id),
                false => Scope::cluster(id, own.clone()),
            },
        };
        resource.rollout = gate.attempt(&trial, snapshot, registry.clock.now());
    }
}

fn name_of(object: &Json) -> &str {
    text(object, "/metadata/name")
}

/// The entry of a resource in `status.boundResources`.
pub(super) fn bound<'a>(binding: &'a Json, group: &str, name: &str) -> Option<&'a Json> {
    let mut all = list(binding, "/status/boundResources").iter();
    all.find(|bound| text(bound, "/group") == group && text(bound, "/resource") == name)
}

/// Objects are only counted where a version that may hold some is gone.
fn stranded(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    api: &Api,
    identity: &str,
    binding: &Json,
) -> BTreeMap<String, usize> {
    let known: BTreeSet<&str> = api.versions.iter().map(|version| &*version.name).collect();
    let before = bound(binding, &api.group, &api.names.plural).unwrap_or(&Json::Null);
    let stored = list(before, "/storageVersions").iter().filter_map(Json::as_str);
    let mut counts = BTreeMap::new();
    if stored.filter(|version| !known.contains(version)).count() == 0 {
        return counts;
    }
    let resource = ResourceId {
        group: api.group.clone(),
        resource: api.names.plural.clone(),
        identity: identity.into(),
    };
    snapshot.for_each(&Scope::cluster(resource, cluster.clone()), |entry| {
        let version = entry.object.version();
        if !known.contains(version) {
            *counts.entry(version.to_owned()).or_default() += 1;
        }
        ControlFlow::Continue(())
    });
    counts
}

fn dropped(snapshot: &Snapshot, cluster: &ClusterName, binding: &Json, offered: &[Resource]) -> Vec<(Json, bool)> {
    let is_offered = |bound: &Json| {
        offered
            .iter()
            .any(|r| text(bound, "/group") == r.group && text(bound, "/resource") == r.name)
    };
    let dropped = list(binding, "/status/boundResources")
        .iter()
        .filter(|bound| !is_offered(bound));
    let with_use = dropped.map(|bound| {
        let scope = Scope::cluster(resource_id(bound), cluster.clone());
        (bound.clone(), !snapshot.range(&scope, None, 1).is_empty())
    });
    with_use.collect()
}

fn resource_id(bound: &Json) -> ResourceId {
    ResourceId {
        group: text(bound, "/group").into(),
        resource: text(bound, "/resource").into(),
        identity: text(bound, "/schema/identityHash").into(),
    }
}

/// Everything that was ever written under the binding: what its status lists and what its claims
/// route to.
fn bound_content(binding: &Json, claims: &[Entry]) -> Vec<Content> {
    let mut resources: Vec<ResourceId> = list(binding, "/status/boundResources")
        .iter()
        .map(resource_id)
        .collect();
    for claim in claims {
        let Some((plural, group)) = claim.key.name.split_once('.') else {
            continue;
        };
        let group = if group == "core" { "" } else { group };
        let identity = claim.object.parsed(ResourceRoute::read).identity.clone();
        let id = ResourceId {
            group: group.into(),
            resource: plural.into(),
            identity,
        };
        if !resources.contains(&id) {
            resources.push(id);
        }
    }
    resources.into_iter().map(Content::custom).collect()
}
