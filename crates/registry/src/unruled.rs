//! A definition without rules that waits: it begins to serve a version that does not show what
//! stored objects hold. The write of such a definition moves its route, in one transaction, to a
//! bundle of what was served before, so that no request sees the version. Its reconciler takes the
//! route back when it waits no longer.

use crate::{client::stamp, deps::Deps, verbs::commit_error};
use insula_access::Target;
use insula_admission::publication::hidden_by_new_versions;
use insula_api::{Json, Object, ObjectKey, Scope};
use insula_catalog::{ResourceRoute, Result, bundle, ids, object::rewrite, parts, registration::DefinitionName};
use insula_meter::Meter;
use insula_store::{Entry, Guard, Snapshot, Txn, Write};
use serde_json::json;
use std::sync::Arc;

/// Returns why a definition waits: the first effect of a version that it begins to serve. `None`
/// for one that has rules, and for one that nothing serves yet.
pub fn waits_for_rules(deps: &Deps, snapshot: &Snapshot, key: &ObjectKey, definition: &Json) -> Option<String> {
    if parts::joined(snapshot, &key.cluster, &key.name).is_some() {
        return None;
    }
    let text = |pointer: &str| definition.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let served = deps.catalog.resolve(snapshot, &key.cluster, group, plural)?;
    let scope = Scope::cluster(served.resource_id(), key.cluster.clone());
    let at = (&deps.catalog, snapshot);
    let hidden = hidden_by_new_versions(at, &served, &scope, definition, &Meter::unbounded());
    hidden.first().map(ToString::to_string)
}

/// Adds to the write of a definition that begins to wait the route to what is served. The bundle is
/// stored before it: both together may be larger than a transaction.
pub(crate) async fn join(
    deps: &Deps,
    snapshot: &Snapshot,
    target: &Target,
    (old, new): (&Entry, &Object),
    txn: &mut Txn,
) -> Result<()> {
    if target.served.resource_id() != ids::customresourcedefinitions() || new.meta.is_deleting() {
        return Ok(());
    }
    let (before, after) = (old.object.body_value(), new.body_value());
    if before["spec"] == after["spec"] {
        return Ok(());
    }
    let text = |pointer: &str| after.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let route = ids::resource_route(&old.key.cluster, text("/spec/group"), text("/spec/names/plural"));
    let Some(route) = snapshot.get(&route) else {
        return Ok(());
    };
    let present = route.object.parsed(ResourceRoute::read);
    let is_own = present.definition.is_some() && present.definition == DefinitionName::of_key(&old.key);
    // What a bundle serves stays until the reconciler changes it.
    if !is_own || present.bundle.is_some() || waits_for_rules(deps, snapshot, &old.key, &after).is_none() {
        return Ok(());
    }
    let (bundle, guard) = keep(deps, snapshot, &before).await?;
    let mut value = route.object.body_value();
    value["spec"]["bundle"] = json!(bundle);
    let object = Arc::new(rewrite(&route.object, &value)?);
    txn.guards.extend([guard, Guard::At(route.key.clone(), route.revision)]);
    txn.writes.push(Write::Put(route.key, object));
    Ok(())
}

/// Stores the bundle of a definition without rules. Returns its name, and the guard that it is
/// there.
async fn keep(deps: &Deps, snapshot: &Snapshot, definition: &Json) -> Result<(String, Guard)> {
    let wanted = bundle::of_definition(definition, &json!({"spec": *bundle::NO_RULES}));
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = ids::bundle(&name);
    let (guard, object) = match snapshot.get(&key) {
        None => (Guard::Absent(key.clone()), stamp(deps, &key, wanted)?),
        Some(present) => {
            let value = bundle::updated(present.object.body_value(), &wanted);
            (
                Guard::At(key.clone(), present.revision),
                rewrite(&present.object, &value)?,
            )
        }
    };
    let txn = Txn {
        guards: vec![guard],
        writes: vec![Write::Put(key.clone(), Arc::new(object))],
    };
    let revision = deps.store.commit(txn).await.map_err(commit_error)?;
    Ok((name, Guard::At(key, revision)))
}
