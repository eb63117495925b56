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
    let text = |pointer: &str| value.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let route = ids::resource_route(&definition.cluster, text("/spec/group"), text("/spec/names/plural"));
    // A definition that is not served yet becomes so later, with rules and without.
    let Some(route) = snapshot.get(&route) else {
        return false;
    };
    let route = route.object.parsed(ResourceRoute::read);
    let serving = route.bundle.as_ref();
    let present_of = |wanted: &Json| {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        (
            snapshot.get(&ids::bundle(name)),
            serving.is_some_and(|serving| **serving == *name),
        )
    };
    let Some(rules) = parts::joined(snapshot, &definition.cluster, &definition.name) else {
        let Some(wanted) = bundle::kept(snapshot, &route, &value) else {
            return serving.is_some();
        };
        let (present, is_serving) = present_of(&wanted);
        let serves = |present: Entry| is_serving && bundle::is_same(&present.object.body_value(), &wanted);
        return !present.is_some_and(serves) && !waits(&value);
    };
    let wanted = bundle::of_definition(&value, &rules);
    let (present, is_serving) = present_of(&wanted);
    let fits = deps
        .catalog
        .successor(&wanted, present.as_ref().map(|present| &*present.object));
    match fits {
        Ok(_) => {
            let serves = |present: &Entry| bundle::is_same(&present.object.body_value(), &wanted);
            !is_serving || !present.as_ref().is_some_and(serves)
        }
        Err(_) => serving.is_none() && text("/spec/conversion/strategy") != "Webhook",
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
