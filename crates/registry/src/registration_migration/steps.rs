//! The steps of a migration. Each is a pure decision over a snapshot, and one transaction.

use super::{changed, plan::freeze, record, thawed, written};
use crate::{Deps, Intent, Plan, commit};
use insula_api::{ClusterName, Json, ObjectKey, ResourceId, Revision, Scope};
use insula_catalog::{
    Error, Origin, ResourceRoute, Result, Served, ids,
    registration::{DefinitionName, Migration, Position, Step},
};
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;

/// Objects that one transaction writes: an object that moves takes two writes.
const WRITTEN_MAX: usize = 50;
/// Objects that one transaction examines.
const EXAMINED_MAX: usize = 5_000;
const ATTEMPTS: usize = 8;

/// Takes the next step, or a part of it, for a request. Returns the migration as it is then; `None`
/// once it has ended.
///
/// # Errors
/// There is no such migration, others write at every attempt, the request has ended, or the store
/// refuses.
pub async fn advance(deps: &Deps, key: &ObjectKey, request: &Meter) -> Result<Option<Migration>> {
    let cluster = &key.cluster;
    for _ in 0..ATTEMPTS {
        let snapshot = latest(deps, request).await?;
        let (entry, mut migration) = record(&snapshot, key)?;
        let mut intents = decide(deps, &snapshot, cluster, &mut migration);
        // A part of the objects that ended early looks like the last one.
        request.check()?;
        let ended = intents.is_none();
        match &mut intents {
            Some(intents) => intents.push(written(entry, &migration)),
            None => intents = Some(thaw(&snapshot, cluster, &migration, entry)),
        }
        let mut intents = intents.unwrap_or_default();
        intents.extend(thawed(&snapshot, cluster)?);
        match commit(deps, &Plan::new(intents)).await {
            Ok(_) => return Ok((!ended).then_some(migration)),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(changed(key))
}

/// Turns a migration back. It goes on with [`advance`] until everything is as it was before.
///
/// # Errors
/// There is no such migration, or others write at every attempt.
pub async fn undo(deps: &Deps, key: &ObjectKey, request: &Meter) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let snapshot = latest(deps, request).await?;
        let (entry, mut migration) = record(&snapshot, key)?;
        if migration.undo {
            return Ok(());
        }
        migration.undo = true;
        migration.next(match migration.step {
            // Nothing was changed yet.
            Step::Export | Step::Replace => Step::Thaw,
            _ => Step::Recreate,
        });
        let mut intents = vec![written(entry, &migration)];
        intents.extend(thawed(&snapshot, &key.cluster)?);
        match commit(deps, &Plan::new(intents)).await {
            Err(Error::Conflict { .. }) => {}
            done => return done.map(drop),
        }
    }
    Err(changed(key))
}

async fn latest(deps: &Deps, request: &Meter) -> Result<Snapshot> {
    let snapshot = deps.store.snapshot(Revision(0)).await;
    let snapshot = snapshot.map_err(|error| Error::Internal(error.to_string()))?;
    Ok(snapshot.charged_to(request))
}

/// Returns the writes of the next part, and moves the record on. `None` at the end.
fn decide(deps: &Deps, snapshot: &Snapshot, cluster: &ClusterName, migration: &mut Migration) -> Option<Vec<Intent>> {
    let (local, bound) = migration.resources();
    let after = if migration.undo { local.clone() } else { bound };
    Some(match migration.step {
        Step::Export => {
            if digest(snapshot, cluster, &local, migration) {
                migration.before = migration.seen;
                migration.next(Step::Replace);
            }
            Vec::new()
        }
        Step::Replace => replace(snapshot, cluster, migration),
        Step::Serve => {
            let served = deps
                .catalog
                .resolve(snapshot, cluster, &migration.group, &migration.plural);
            if served.is_some_and(|served| is_replaced(&served, migration)) {
                migration.next(match migration.undo {
                    false => Step::Recreate,
                    true => Step::Verify,
                });
            }
            Vec::new()
        }
        Step::Recreate if migration.moves() => relocate(snapshot, cluster, migration),
        Step::Recreate => rename(snapshot, cluster, migration),
        Step::Adopt => adopt(deps, snapshot, cluster, migration),
        Step::Verify => {
            if digest(snapshot, cluster, &after, migration) {
                verify(migration);
            }
            Vec::new()
        }
        Step::Thaw => return None,
    })
}

/// Adds objects to the digest. True at the end.
fn digest(snapshot: &Snapshot, cluster: &ClusterName, resource: &ResourceId, migration: &mut Migration) -> bool {
    let part = objects(snapshot, cluster, resource, migration, EXAMINED_MAX);
    part.iter().for_each(|entry| migration.seen.add(&entry.object));
    pass(migration, &part, EXAMINED_MAX)
}

/// Returns the objects behind the record's position.
fn objects(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    resource: &ResourceId,
    migration: &Migration,
    max: usize,
) -> Vec<Entry> {
    let after = migration.position.as_ref().map(|position| position.key(cluster));
    let scope = Scope::cluster(resource.clone(), cluster.clone());
    snapshot.range(&scope, after.as_ref(), max)
}

/// Moves the position behind a part. True if it was the last one.
fn pass(migration: &mut Migration, part: &[Entry], max: usize) -> bool {
    if let Some(last) = part.last() {
        migration.position = Some(Position::for_key(&last.key));
    }
    part.len() < max
}

fn verify(migration: &mut Migration) {
    if migration.seen == migration.before || migration.undo {
        return migration.next(Step::Thaw);
    }
    let (seen, before) = (migration.seen, migration.before);
    migration.next(Step::Verify);
    migration.message = match seen.objects == before.objects {
        true => format!("the objects differ: hash {} became {}", before.hex(), seen.hex()),
        false => format!("{} objects became {}", before.objects, seen.objects),
    };
}

/// Replaces the registration, or puts it back. The objects stay.
fn replace(snapshot: &Snapshot, cluster: &ClusterName, migration: &mut Migration) -> Vec<Intent> {
    let (old, new) = match migration.undo {
        false => (&migration.registration, &migration.replacement),
        true => (&migration.replacement, &migration.registration),
    };
    let mut intents = Vec::new();
    if let Some(old) = definition_key(cluster, old).and_then(|key| snapshot.get(&key)) {
        intents.push(Intent::Delete(old));
    }
    match definition_key(cluster, new) {
        Some(key) => {
            let mut value = new.clone();
            if let Some(metadata) = value["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            intents.push(lead_to(snapshot, cluster, &key, migration));
            intents.push(Intent::Create(key, value));
        }
        // The binding waits for the name.
        None => intents.extend(route(snapshot, cluster, migration).map(Intent::Delete)),
    }
    migration.next(Step::Serve);
    intents
}

/// Returns the key of a definition or registration; `None` for a binding.
fn definition_key(cluster: &ClusterName, object: &Json) -> Option<ObjectKey> {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let group = insula_api::names::group_of(object["apiVersion"].as_str()?).to_owned();
    let kinds = insula_catalog::registration::DefinitionKind::ALL.into_iter();
    let kind = kinds.into_iter().find(|kind| *kind.resource().group == *group)?;
    let name = DefinitionName {
        kind,
        name: text(&object["metadata"]["name"]).into(),
    };
    Some(name.key(cluster))
}

fn route_key(cluster: &ClusterName, migration: &Migration) -> ObjectKey {
    ids::resource_route(cluster, &migration.group, &migration.plural)
}

fn route(snapshot: &Snapshot, cluster: &ClusterName, migration: &Migration) -> Option<Entry> {
    snapshot.get(&route_key(cluster, migration))
}

/// Returns the write that leads the route to another definition.
fn lead_to(snapshot: &Snapshot, cluster: &ClusterName, definition: &ObjectKey, migration: &Migration) -> Intent {
    let (former, new) = &migration.stored;
    let storage = insula_api::names::version_of(if migration.undo { former } else { new });
    let leads = ResourceRoute {
        binding: None,
        export: None,
        definition: DefinitionName::of_key(definition),
        bundle: None,
        identity: "".into(),
        storage: Some(storage.into()),
        closing: false,
        frozen: true,
        marks: Default::default(),
    };
    let key = route_key(cluster, migration);
    let leads = leads.write(&key.name);
    match snapshot.get(&key) {
        None => Intent::Create(key, leads),
        Some(route) => {
            let mut value = route.object.body_value();
            value["spec"] = leads["spec"].clone();
            Intent::Update(route, value)
        }
    }
}

/// Returns true if the resource is served by what the migration leads to.
fn is_replaced(served: &Served, migration: &Migration) -> bool {
    let new = match migration.undo {
        false => &migration.replacement,
        true => &migration.registration,
    };
    match &served.origin {
        Origin::System => false,
        Origin::Bound { binding } => new["metadata"]["name"] == **binding,
        Origin::Local { definition } => {
            let group = insula_api::names::group_of(new["apiVersion"].as_str().unwrap_or_default());
            *definition.kind.resource().group == *group
        }
    }
}

/// Renames the versions of objects that keep their keys.
fn rename(snapshot: &Snapshot, cluster: &ClusterName, migration: &mut Migration) -> Vec<Intent> {
    if !migration.renames() {
        migration.next(Step::Adopt);
        return Vec::new();
    }
    let (local, _) = migration.resources();
    let part = objects(snapshot, cluster, &local, migration, WRITTEN_MAX);
    let writes = part.iter().map(|entry| {
        let renamed = migration.renamed(entry.object.body_value());
        Intent::Update(entry.clone(), renamed)
    });
    let intents = writes.collect();
    if pass(migration, &part, WRITTEN_MAX) {
        migration.next(Step::Adopt);
    }
    intents
}

/// Moves objects to the keys of the bound API, or back. Their UIDs stay.
fn relocate(snapshot: &Snapshot, cluster: &ClusterName, migration: &mut Migration) -> Vec<Intent> {
    let (local, bound) = migration.resources();
    let (from, to) = match migration.undo {
        false => (local, bound),
        true => (bound, local),
    };
    let scope = Scope::cluster(from, cluster.clone());
    let part = snapshot.range(&scope, None, WRITTEN_MAX);
    let mut intents = Vec::new();
    for entry in &part {
        let key = ObjectKey {
            resource: to.clone(),
            ..entry.key.clone()
        };
        intents.push(Intent::Create(key, migration.renamed(entry.object.body_value())));
        intents.push(Intent::Delete(entry.clone()));
    }
    migration.seen.objects += part.len() as u64;
    if part.len() < WRITTEN_MAX {
        migration.next(Step::Adopt);
    }
    intents
}

/// Renames the owners in dependents of any resource of the cluster.
fn adopt(deps: &Deps, snapshot: &Snapshot, cluster: &ClusterName, migration: &mut Migration) -> Vec<Intent> {
    let following = if migration.undo { Step::Replace } else { Step::Verify };
    if !migration.renames() {
        migration.next(following);
        return Vec::new();
    }
    let served = deps.catalog.served(snapshot, cluster);
    let mut resources: Vec<ResourceId> = served.iter().map(Served::resource_id).collect();
    resources.sort_unstable();
    resources.dedup();
    let after = migration.position.as_ref().map(|position| position.key(cluster));
    let (mut intents, mut examined) = (Vec::new(), 0_usize);
    for resource in resources {
        let after = match &after {
            Some(key) if key.resource > resource => continue,
            Some(key) if key.resource == resource => Some(key),
            _ => None,
        };
        let scope = Scope::cluster(resource, cluster.clone());
        let mut last = None;
        snapshot.for_each_after(&scope, after, |entry| {
            if examined == EXAMINED_MAX || intents.len() == WRITTEN_MAX {
                return ControlFlow::Break(());
            }
            examined += 1;
            last = Some(Position::for_key(&entry.key));
            if entry
                .object
                .meta
                .owner_references
                .iter()
                .any(|owner| owner.kind == migration.kind)
            {
                let mut value = entry.object.body_value();
                if migration.adopt(&mut value) {
                    intents.push(Intent::Update(entry.clone(), value));
                }
            }
            ControlFlow::Continue(())
        });
        if last.is_some() {
            migration.position = last;
        }
        if examined == EXAMINED_MAX || intents.len() == WRITTEN_MAX {
            migration.seen.objects += intents.len() as u64;
            return intents;
        }
    }
    migration.next(following);
    intents
}

/// Returns the last writes: the record goes, and clients may write again.
fn thaw(snapshot: &Snapshot, cluster: &ClusterName, migration: &Migration, record: Entry) -> Vec<Intent> {
    let mut intents = vec![Intent::Delete(record)];
    intents.extend(route(snapshot, cluster, migration).map(|route| freeze(&route, false)));
    intents
}
