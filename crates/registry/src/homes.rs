//! Events about objects that an earlier program stored: it kept what two versions share twice, and
//! the two could differ. The first write joins them, and an event says which value gave way.

use crate::{
    Deps,
    client::{self, Intent, Plan},
};
use insula_api::ObjectKey;
use insula_catalog::{Served, ids};
use insula_conversion::{Stored, object_budget};
use insula_store::Entry;
use serde_json::json;
use std::sync::Arc;

/// Values that a message names.
const NAMED_MAX: usize = 10;

/// Stores the event for a write that is done, which is answered whether that can be or not.
pub(crate) async fn tell(deps: &Deps, served: &Served, old: &Entry) {
    if let Some(event) = event(deps, served, old) {
        let plan = Plan::new(vec![event]);
        drop(client::commit(deps, &plan).await);
    }
}

/// Returns the event for a write over a stored object, if values of it gave way: in the object's
/// namespace, or in `default` for an object without one.
pub fn event(deps: &Deps, served: &Served, old: &Entry) -> Option<Intent> {
    let object = &old.object;
    object
        .residual()
        .filter(|residual| served.api.bundle.may_replace_values(residual))?;
    let value = object.body_value();
    let stored = Stored {
        value: &value,
        version: object.version(),
        residual: object.residual(),
    };
    let mut replaced = served
        .api
        .bundle
        .replaced_values(stored, &mut object_budget(&served.meter));
    if replaced.is_empty() {
        return None;
    }
    if let Some(more @ 1..) = replaced.len().checked_sub(NAMED_MAX) {
        replaced.truncate(NAMED_MAX);
        replaced.push(format!("{more} more"));
    }
    let (key, now) = (&old.key, deps.clock.now().to_string());
    let namespace: Arc<str> = match &*key.namespace {
        "" => "default".into(),
        _ => key.namespace.clone(),
    };
    let name = format!("{}.{:016x}", key.name, old.revision.0);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": served.api_version(object.version()), "kind": served.names().kind, "name": key.name,
            "namespace": key.namespace, "uid": object.meta.uid.to_string(),
            "resourceVersion": old.revision.0.to_string(),
        },
        "type": "Warning", "reason": "ValueReplaced", "action": "Join",
        "message": format!(
            "versions had different values for what is one value; the one that was written last counts, in place of {}",
            replaced.join(", ")
        ),
        "source": {"component": "insula"}, "reportingComponent": "insula", "reportingInstance": "insula",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let at = ObjectKey {
        namespace,
        ..ObjectKey::cluster_scoped(ids::events(), key.cluster.clone(), &name)
    };
    Some(Intent::Create(at, event))
}
