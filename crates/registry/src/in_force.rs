//! The time from a change of a definition or of its conversion rules until requests see it. Without
//! rules that is at once, because the definition itself serves. With rules a reconciler writes the
//! bundle that serves, after it has tried the stored objects.

use crate::Deps;
use futures_util::future::{BoxFuture, select};
use insula_api::{Json, ObjectKey, Scope, condition};
use insula_catalog::{ResourceRoute, bundle, ids, parts};
use insula_meter::Meter;
use insula_store::{Entry, Snapshot};
use std::pin::pin;

/// Returns the wait until a write of a definition or an APIConversion is in force, or has been
/// judged not to fit; `None` for objects of other kinds. The caller sets the time limit, and pays.
pub fn until_in_force<'d>(deps: &'d Deps, key: &'d ObjectKey, request: &'d Meter) -> Option<BoxFuture<'d, ()>> {
    let is_one = key.resource == ids::customresourcedefinitions() || key.resource == ids::apiconversions();
    is_one.then(|| Box::pin(wait(deps, key, request)) as BoxFuture<'d, ()>)
}

async fn wait(deps: &Deps, key: &ObjectKey, request: &Meter) {
    let definitions = ids::customresourcedefinitions();
    while request.check().is_ok() {
        let snapshot = deps.store.latest().charged_to(request);
        let definition = match key.resource == definitions {
            true => key.clone(),
            false => match snapshot.get(key) {
                Some(entry) => {
                    let name = parts::schema_of_stored(&entry.object, &key.name);
                    ObjectKey::cluster_scoped(definitions.clone(), key.cluster.clone(), name)
                }
                None => return,
            },
        };
        if !is_pending(deps, &snapshot, &definition) {
            return;
        }
        let routes = Scope::cluster(ids::resource_routes(), key.cluster.clone());
        let routes = deps.store.watch(routes, snapshot.revision());
        let bundles = deps
            .store
            .watch(Scope::everywhere(ids::bundle("").resource), snapshot.revision());
        let own = Scope::cluster(definitions.clone(), key.cluster.clone());
        let own = deps.store.watch(own, snapshot.revision());
        let (Ok(mut routes), Ok(mut bundles), Ok(mut own)) = (routes, bundles, own) else {
            continue;
        };
        let (routes, bundles) = (pin!(routes.next()), pin!(bundles.next()));
        select(select(routes, bundles), pin!(own.next())).await;
    }
}

/// Returns true while the reconciler of definitions has something to write before a definition and
/// its rules serve as they are stored.
fn is_pending(deps: &Deps, snapshot: &Snapshot, definition: &ObjectKey) -> bool {
    let Some(entry) = snapshot.get(definition) else {
        return false;
    };
    if entry.object.meta.is_deleting() {
        return false;
    }
    let value = entry.object.body_value();
    // A definition that is not served yet becomes so later, with rules and without.
    let Some(route) = snapshot.get(&ids::route_of_definition(&definition.cluster, &value)) else {
        return false;
    };
    let route = route.object.parsed(ResourceRoute::read);
    let serving = route.bundle.as_ref().map(|name| ids::bundle(name));
    let present_of = |wanted: &Json| {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        snapshot.get(&ids::bundle(name))
    };
    let serves = |present: Option<&Entry>, wanted: &Json| {
        let is_same = |present: &Entry| bundle::is_same(&present.object.body_value(), wanted);
        present.is_some_and(|present| serving.as_ref() == Some(&present.key) && is_same(present))
    };
    let Some(rules) = parts::joined(snapshot, &definition.cluster, &definition.name) else {
        return match bundle::kept(snapshot, &route, &value) {
            Some(wanted) => !serves(present_of(&wanted).as_ref(), &wanted) && !waits(&value),
            None => serving.is_some(),
        };
    };
    let wanted = bundle::of_definition(&value, &rules);
    let present = present_of(&wanted);
    let fits = deps.catalog.successor(
        &wanted,
        present.as_ref().map(|present| &*present.object),
        snapshot.meter(),
    );
    match fits {
        Ok(_) => !serves(present.as_ref(), &wanted),
        Err(_) => serving.is_none() && !bundle::has_webhook(&value),
    }
}

/// Returns true for a definition of which the reconciler has said that it waits for rules, in the
/// state in which it is.
fn waits(definition: &Json) -> bool {
    let judged = condition(definition, "RolledOut");
    judged.is_some_and(|judged| {
        judged["status"] == "False" && judged["observedGeneration"] == definition["metadata"]["generation"]
    })
}
