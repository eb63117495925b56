//! A definition without rules that begins to serve a version which does not show what stored
//! objects hold. The write of such a definition moves its route, in one transaction, to a bundle of
//! what was served before, so that no request sees the version. From then on its reconciler decides
//! what the bundle serves, after it has looked at all objects.

use crate::{client::stamp, deps::Deps, verbs::commit_error};
use insula_access::{Target, WorkspaceNames};
use insula_admission::publication::NewVersions;
use insula_api::{Json, Object, Scope};
use insula_auth::UserInfo;
use insula_catalog::{ResourceRoute, Result, bundle, ids, object::rewrite, parts, registration::DefinitionName};
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use serde_json::json;
use std::sync::Arc;

/// Adds to the write of a definition that has to wait the route to what is served now. The bundle
/// is stored before it: both together may be larger than a transaction. Returns the conflict with
/// another write of that bundle.
pub(crate) async fn join(
    deps: &Deps,
    snapshot: &Snapshot,
    target: &Target,
    (old, new): (&Entry, &Object),
    txn: &mut Txn,
) -> Result<Option<CommitError>> {
    if target.served.resource_id() != ids::customresourcedefinitions() || new.meta.is_deleting() {
        return Ok(None);
    }
    let (before, after) = (old.object.body_value(), new.body_value());
    let Some(route) = waiting(deps, snapshot, target, old, (&before, &after)) else {
        return Ok(None);
    };
    let (bundle, guard) = match keep(deps, snapshot, &before).await? {
        Ok(kept) => kept,
        Err(conflict) => return Ok(Some(conflict)),
    };
    let mut value = route.object.body_value();
    value["spec"]["bundle"] = json!(bundle);
    let object = Arc::new(rewrite(&route.object, &value)?);
    txn.guards.extend([guard, Guard::At(route.key.clone(), route.revision)]);
    txn.writes.push(Write::Put(route.key, object));
    Ok(None)
}

/// Returns the route of a definition that serves itself and has to wait from now on.
fn waiting(
    deps: &Deps,
    snapshot: &Snapshot,
    target: &Target,
    old: &Entry,
    (before, after): (&Json, &Json),
) -> Option<Entry> {
    let cluster = &old.key.cluster;
    let is_plain = |definition: &Json| !bundle::has_webhook(definition);
    if before["spec"] == after["spec"] || !is_plain(before) || !is_plain(after) {
        return None;
    }
    let route = snapshot.get(&ids::route_of_definition(cluster, after))?;
    let present = route.object.parsed(ResourceRoute::read);
    let is_own = present.definition.is_some() && present.definition == DefinitionName::of_key(&old.key);
    // What a bundle serves stays until the reconciler changes it.
    if !is_own || present.bundle.is_some() || parts::joined(snapshot, cluster, &old.key.name).is_some() {
        return None;
    }
    let next = deps.catalog.compile(after).ok()?;
    let served = deps
        .catalog
        .resolve(snapshot, cluster, &next.group, &next.names.plural)?;
    let mut versions = NewVersions::new((&served.api, &next), after, &target.served.meter)?;
    let scope = Scope::cluster(served.resource_id(), cluster.clone());
    // The effects are not shown.
    let names = WorkspaceNames::new(snapshot, &UserInfo::default());
    // Where there are more objects, the reconciler looks at them all, and the definition waits.
    let more = versions.examine_slice((&names, snapshot), &scope, None);
    (more.is_some() || versions.open().is_some()).then_some(route)
}

/// Stores the bundle of a definition without rules. Returns its name and the guard that it is
/// there, or the conflict with another write of it.
async fn keep(
    deps: &Deps,
    snapshot: &Snapshot,
    definition: &Json,
) -> Result<std::result::Result<(String, Guard), CommitError>> {
    let wanted = bundle::without_rules(definition);
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = ids::bundle(&name);
    let (guard, object) = match snapshot.get(&key) {
        None => (Guard::Absent(key.clone()), stamp(deps, &key, wanted)?),
        Some(present) => {
            let value = bundle::updated(present.object.body_value(), &wanted);
            let guard = Guard::At(key.clone(), present.revision);
            (guard, rewrite(&present.object, &value)?)
        }
    };
    let txn = Txn {
        guards: vec![guard],
        writes: vec![Write::Put(key.clone(), Arc::new(object))],
    };
    match deps.store.commit(txn).await {
        Ok(revision) => Ok(Ok((name, Guard::At(key, revision)))),
        Err(conflict @ CommitError::Conflict { .. }) => Ok(Err(conflict)),
        Err(error) => Err(commit_error(error)),
    }
}
