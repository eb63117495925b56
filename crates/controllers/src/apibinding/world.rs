//! World of the APIBinding reconciler: everything that the decision about one binding looks at.

use super::served::{self, ServedApi};
use crate::{
    content::{Content, Sweep, sweep},
    loaded::Loaded,
    rollout::{self, Gate, Trial, Verdict},
    rollout_steps::{self, StepState},
    write::{alive, text, unchanged},
};
use insula_api::{
    ClusterName, ClusterPath, FieldError, Json, ObjectKey, ResourceId, Scope, Timestamp,
    kinds::{ApiBinding, ApiBindingStatus, ApiExport, BoundResource, ExportedResource},
    names::labels,
};
use insula_catalog::{
    Api, ResourceRoute, bundle,
    exports::{ExportName, release_id},
    ids, locate, parts,
    registration::Migration,
};
use insula_meter::Meter;
use insula_registry::{Deps, Intent};
use insula_store::{Entry, Snapshot};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

/// World of a binding.
pub(crate) struct World {
    /// The APIBinding, if it exists.
    pub(crate) binding: Option<Loaded<ApiBinding>>,
    /// Guards on the cluster; `None` while the cluster is being deleted.
    pub(crate) alive: Option<Vec<Intent>>,
    pub(crate) export: Export,
    /// Resources that the export offers, in its order.
    pub(crate) resources: Vec<Resource>,
    /// Bound resources that the export no longer offers.
    pub(crate) dropped: Vec<Dropped>,
    /// Other APIs in the cluster.
    pub(crate) others: Vec<ServedApi>,
    /// Routes of resource names to the binding.
    pub(crate) routes: Vec<Entry>,
    /// Objects of the binding, while it is being deleted and has no successor.
    pub(crate) content: Sweep,
    /// Takes over names and objects of this binding while it is being deleted.
    pub(crate) successor: Option<Successor>,
    /// Identifier of the release on offer; empty without an export.
    pub(crate) release: String,
    /// Permission to take over the release on offer.
    pub(crate) step: StepState,
    pub(crate) now: Timestamp,
}

/// Another binding of a workspace to the same export, or to one that has the same identity and
/// offers a resource of the same name.
pub(crate) struct Successor {
    pub(crate) binding: Loaded<ApiBinding>,
    pub(crate) export: ExportName,
}

/// Export that a binding refers to.
#[derive(Default)]
pub(crate) struct Export {
    /// Flat name of its cluster, or the path as it is written if that leads nowhere.
    pub(crate) location: String,
    pub(crate) name: String,
    pub(crate) found: Option<Loaded<ApiExport>>,
    /// Guard on it.
    pub(crate) guard: Option<Intent>,
}

/// Bound resource that the export no longer offers.
pub(crate) struct Dropped {
    pub(crate) bound: BoundResource,
    /// Objects of it exist.
    pub(crate) in_use: bool,
}

/// API that a bundle compiles to, or the errors.
type Compiled = Result<Arc<Api>, Vec<FieldError>>;

/// Resource of an export.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) schema_name: String,
    /// UID of the APIResourceSchema, if that exists.
    pub(crate) schema_uid: Option<String>,
    /// Guards on schema and conversion.
    pub(crate) guards: Vec<Intent>,
    pub(crate) bundle_key: ObjectKey,
    pub(crate) bundle: Option<Entry>,
    /// The bundle as it should be.
    pub(crate) wanted: Json,
    /// The API that the wanted bundle compiles to, or the errors.
    pub(crate) compiled: Compiled,
    /// Fingerprint of the wanted bundle, if it compiles; also if its proof fails.
    pub(crate) fingerprint: Option<u64>,
    pub(crate) route_key: ObjectKey,
    pub(crate) route: Option<Entry>,
    /// Number of objects in versions that the schema lacks, by version.
    pub(crate) stranded: BTreeMap<String, usize>,
    /// The name is one of the server's own APIs.
    pub(crate) built_in: bool,
    /// The route of the name leads to another API.
    pub(crate) route_is_taken: bool,
    /// A migration makes the objects of a registration objects of this API.
    pub(crate) frozen: bool,
    /// The tenant is served by another generation now.
    pub(crate) changes_service: bool,
    /// Result of a dry run of that change.
    pub(crate) rollout: Verdict,
}

pub(super) fn observe(registry: &Deps, gate: &Gate, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let cluster = &key.cluster;
    let mut world = World {
        alive: alive(snapshot, cluster),
        export: Export::default(),
        resources: Vec::new(),
        dropped: Vec::new(),
        others: Vec::new(),
        content: Sweep::default(),
        successor: None,
        routes: routes(snapshot, key),
        release: String::new(),
        step: StepState::Open,
        now: registry.clock.now(),
        binding: None,
    };
    let Some(binding) = Loaded::<ApiBinding>::get(snapshot, key) else {
        return world;
    };
    let status = &binding.view.status;
    if binding.is_deleting() {
        world.successor = successor(snapshot, &binding.entry, &world.routes);
        if world.successor.is_none() {
            let contents = bound_content(status, &world.routes);
            world.content = sweep(snapshot, &contents, cluster, None, world.now);
        }
    } else {
        world.export = find_export(snapshot, cluster, &binding.view);
        if let Some(export) = &world.export.found {
            let offer = OfferedExport {
                registry,
                snapshot,
                export,
                binding: &binding,
            };
            let resources = export.view.spec.resources.iter();
            let resources = resources.filter(|offered| offered.storage.r#virtual.is_none());
            world.resources = resources.map(|offered| offer.resource(offered)).collect();
            let offered = world.resources.iter();
            let offered = offered.filter_map(|it| Some((&*it.group, &*it.name, it.fingerprint?)));
            world.release = release_id(offered);
            world.step = rollout_steps::step_state(&export.view, &world.release, cluster, &binding.entry.object.meta);
            for resource in &mut world.resources {
                offer.try_out(gate, resource, &world.step);
            }
        }
        world.dropped = dropped(snapshot, cluster, status, &world.resources);
        world.others = served::others(registry, snapshot, key);
    }
    world.binding = Some(binding);
    world
}

/// Returns the routes of a cluster that lead to a binding.
fn routes(snapshot: &Snapshot, binding: &ObjectKey) -> Vec<Entry> {
    let all = snapshot.range(
        &Scope::cluster(ids::resource_routes(), binding.cluster.clone()),
        None,
        usize::MAX,
    );
    let leads_to = |entry: &Entry| entry.object.parsed(ResourceRoute::read).binding.as_deref() == Some(&*binding.name);
    all.into_iter().filter(leads_to).collect()
}

/// Finds the binding that takes over from one that is being deleted: one to the same export, or
/// else to another export of the same identity. Objects are stored under that identity.
fn successor(snapshot: &Snapshot, binding: &Entry, routes: &[Entry]) -> Option<Successor> {
    let own = binding.object.meta.label(labels::EXPORT);
    let scope = Scope::cluster(ids::apibindings(), binding.key.cluster.clone());
    let others = snapshot.range(&scope, None, usize::MAX).into_iter();
    let others = others.filter(|other| other.key != binding.key && !other.object.meta.is_deleting());
    let is_same = |other: &Entry| own.is_some() && other.object.meta.label(labels::EXPORT) == own;
    let (same, different): (Vec<Entry>, Vec<Entry>) = others.partition(is_same);
    same.into_iter()
        .map(|other| (other, true))
        .chain(different.into_iter().map(|other| (other, false)))
        .find_map(|(other, same)| takes_over(snapshot, other, routes, same))
}

fn takes_over(snapshot: &Snapshot, other: Entry, routes: &[Entry], same_export: bool) -> Option<Successor> {
    let binding = Loaded::<ApiBinding>::from_entry(other);
    let cluster = &binding.entry.key.cluster;
    let export = find_export(snapshot, cluster, &binding.view).found?;
    let identity = &*export.view.status.identity_hash;
    let has_it = |route: &Entry| *route.object.parsed(ResourceRoute::read).identity == *identity;
    let offers = |route: &Entry| {
        let mut offered = export.view.spec.resources.iter();
        offered.any(|offered| ids::resource_route(cluster, &offered.group, &offered.name) == route.key)
    };
    let fits = routes.iter().all(has_it) && (same_export || routes.iter().any(offers));
    let key = &export.entry.key;
    let export = ExportName {
        cluster: key.cluster.clone(),
        name: key.name.clone(),
    };
    fits.then_some(Successor { binding, export })
}

pub(crate) fn find_export(snapshot: &Snapshot, own: &ClusterName, binding: &ApiBinding) -> Export {
    let reference = &binding.spec.reference.export;
    let name = reference.name.clone();
    let cluster = match reference.path.is_empty() {
        true => Some(own.clone()),
        false => ClusterPath::parse(&reference.path)
            .ok()
            .and_then(|path| locate::locate(snapshot, &path).ok()),
    };
    let Some(cluster) = cluster else {
        return Export {
            location: reference.path.clone(),
            name,
            ..Export::default()
        };
    };
    let key = ObjectKey::cluster_scoped(ids::apiexports(), cluster.clone(), &name);
    let found = Loaded::get(snapshot, &key).filter(|export: &Loaded<ApiExport>| !export.is_deleting());
    Export {
        location: cluster.to_string(),
        name,
        guard: found.as_ref().map(|export| unchanged(key, Some(&export.entry))),
        found,
    }
}

/// Export as one binding sees it.
struct OfferedExport<'a> {
    registry: &'a Deps,
    snapshot: &'a Snapshot,
    export: &'a Loaded<ApiExport>,
    binding: &'a Loaded<ApiBinding>,
}

impl OfferedExport<'_> {
    /// Observes one resource of the export.
    fn resource(&self, offered: &ExportedResource) -> Resource {
        let OfferedExport { registry, snapshot, .. } = self;
        let (group, name) = (offered.group.clone(), offered.name.clone());
        let provider = &self.export.entry.key.cluster;
        let beside_export = |id| ObjectKey::cluster_scoped(id, provider.clone(), &offered.schema);
        let schema_key = beside_export(ids::apiresourceschemas());
        let schema = snapshot.get(&schema_key);
        let parts = parts::for_schema(snapshot, provider, &offered.schema);
        let mut guards = vec![unchanged(schema_key, schema.as_ref())];
        guards.extend(parts.iter().map(|part| unchanged(part.key.clone(), Some(part))));
        let named = beside_export(ids::apiconversions());
        if !parts.iter().any(|part| part.key == named) {
            guards.push(unchanged(named.clone(), snapshot.get(&named).as_ref()));
        }
        let binding = &self.binding.entry.key;
        let route_key = ids::resource_route(&binding.cluster, &group, &name);
        let route = snapshot.get(&route_key);
        let (wanted, fingerprint, compiled) = match &schema {
            Some(schema) => {
                let conversion = parts::join(parts.iter().map(|part| part.object.body_value()).collect());
                let wanted = bundle::of_schema(&schema.object.body_value(), conversion.as_ref());
                self.generation(wanted, route.as_ref())
            }
            None => (Json::Null, None, Err(Vec::new())),
        };
        let bundle_key = ids::bundle(text(&wanted, "/metadata/name"));
        Resource {
            built_in: registry.catalog.system().get(&group, &name).is_some(),
            schema_uid: schema.map(|schema| schema.object.meta.uid.to_string()),
            guards,
            bundle: snapshot.get(&bundle_key),
            bundle_key,
            wanted,
            stranded: compiled
                .as_ref()
                .map_or_else(|_| BTreeMap::new(), |api| self.stranded(api)),
            compiled,
            fingerprint,
            route_is_taken: route.as_ref().is_some_and(|route| {
                route.object.parsed(ResourceRoute::read).binding.as_deref() != Some(&*binding.name)
            }),
            frozen: snapshot.get(&Migration::key(&binding.cluster, &group, &name)).is_some(),
            changes_service: false,
            rollout: Verdict::Open,
            route,
            route_key,
            group,
            name,
            schema_name: offered.schema.clone(),
        }
    }

    /// Names a wanted bundle, and compiles it. A bundle keeps its schema and rules as long as it
    /// exists: other rules get a bundle of their own, so that each binding moves by its route
    /// alone. A bundle that was proved once is not proved again.
    fn generation(&self, mut wanted: Json, route: Option<&Entry>) -> (Json, Option<u64>, Compiled) {
        let OfferedExport { registry, snapshot, .. } = self;
        let api = match registry.catalog.compile(&wanted) {
            Ok(api) => api,
            Err(errors) => return (wanted, None, Err(errors)),
        };
        let fingerprint = api.fingerprint;
        let uid = text(&wanted, "/metadata/name").to_owned();
        let routed = route.and_then(|route| route.object.parsed(ResourceRoute::read).bundle.clone());
        let routed = routed.filter(|name| ids::is_bundle_of(name, &uid));
        let generation = ids::bundle_generation(&uid, api.fingerprint);
        let serves_it = |name: &&str| {
            let present = snapshot.get(&ids::bundle(name));
            let present = present.and_then(|present| registry.catalog.compiled(&present.object).ok());
            present.is_some_and(|present| present.fingerprint == api.fingerprint)
        };
        let known = [routed.as_deref().unwrap_or(&uid), &uid, &generation];
        let known = known.into_iter().find(serves_it);
        let (name, compiled) = match known {
            Some(name) => (name, Ok(api)),
            None if snapshot.get(&ids::bundle(&uid)).is_none() => {
                (&*uid, registry.catalog.prove(&wanted, &Meter::unbounded()))
            }
            None => (&*generation, registry.catalog.prove(&wanted, &Meter::unbounded())),
        };
        wanted["metadata"]["name"] = name.into();
        (wanted, Some(fingerprint), compiled)
    }

    fn resource_id(&self, api: &Api) -> ResourceId {
        ResourceId {
            group: api.group.clone(),
            resource: api.names.plural.clone(),
            identity: self.export.view.status.identity_hash.as_str().into(),
        }
    }

    /// Counts objects in versions that the schema lacks. Walks objects only if the binding's status
    /// names such a version.
    fn stranded(&self, api: &Api) -> BTreeMap<String, usize> {
        let known: BTreeSet<&str> = api.versions.iter().map(|version| &*version.name).collect();
        let bound = self.binding.view.status.bound(&api.group, &api.names.plural);
        let mut stored = bound.into_iter().flat_map(|bound| &bound.storage_versions);
        let mut counts = BTreeMap::new();
        if stored.all(|version| known.contains(version.as_str())) {
            return counts;
        }
        let scope = Scope::cluster(self.resource_id(api), self.binding.entry.key.cluster.clone());
        self.snapshot.for_each(&scope, |entry| {
            let version = entry.object.version();
            if !known.contains(version) {
                *counts.entry(version.to_owned()).or_default() += 1;
            }
            ControlFlow::Continue(())
        });
        counts
    }

    /// Tries a change of the served API on the stored objects of the tenant, or of all tenants if
    /// the export wants one outcome for all.
    fn try_out(&self, gate: &Gate, resource: &mut Resource, step: &StepState) {
        let Ok(api) = &resource.compiled else { return };
        let OfferedExport { registry, snapshot, .. } = self;
        let cluster = &self.binding.entry.key.cluster;
        let is_routed = resource.route.is_some() && !resource.route_is_taken;
        let present = is_routed.then(|| {
            let catalog = &registry.catalog;
            catalog.resolve(snapshot, cluster, &resource.group, &resource.name)
        });
        let present = present.flatten().map(|served| served.api);
        resource.changes_service = present.is_some_and(|present| present.fingerprint != api.fingerprint);
        let all = self.export.view.spec.rollout.is_all_or_nothing();
        // The condition of an export that says it is blocked must be updated when that ends.
        let is_tried = resource.changes_service || all && rollout::is_blocked(&self.export.value);
        if !is_tried || *step != StepState::Open {
            return;
        }
        let id = self.resource_id(api);
        let next = Scope::cluster(id.clone(), cluster.clone());
        let scope = if all { Scope::everywhere(id) } else { next.clone() };
        let trial = Trial { api, scope, next };
        resource.rollout = gate.attempt(&trial, snapshot, registry.clock.now());
    }
}

/// Returns the bound resources that are no longer on offer.
fn dropped(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    status: &ApiBindingStatus,
    offered: &[Resource],
) -> Vec<Dropped> {
    let is_offered = |bound: &BoundResource| {
        let mut offered = offered.iter();
        offered.any(|resource| bound.group == resource.group && bound.resource == resource.name)
    };
    let dropped = status.bound_resources.iter().filter(|bound| !is_offered(bound));
    let with_use = dropped.map(|bound| {
        let scope = Scope::cluster(bound.id(), cluster.clone());
        Dropped {
            in_use: !snapshot.range(&scope, None, 1).is_empty(),
            bound: bound.clone(),
        }
    });
    with_use.collect()
}

/// Returns everything that was ever written under the binding: the resources in its status, and
/// those of its routes.
fn bound_content(status: &ApiBindingStatus, routes: &[Entry]) -> Vec<Content> {
    let mut resources: Vec<ResourceId> = status.bound_resources.iter().map(BoundResource::id).collect();
    for route in routes {
        let Some((plural, group)) = route.key.name.split_once('.') else {
            continue;
        };
        let group = if group == "core" { "" } else { group };
        let identity = route.object.parsed(ResourceRoute::read).identity.clone();
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
