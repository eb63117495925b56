//! APIResourceSchemas that the bindings of a cluster reference, in any cluster. A caller who may
//! read the bindings may read these schemas.

use crate::{exports::offer::Binding, ids};
use insula_api::{ClusterName, Object, ObjectKey, Scope};
use insula_store::Snapshot;
use std::{collections::BTreeSet, ops::ControlFlow};

/// Returns the keys of the schemas that a cluster's bindings reference.
pub fn schemas_behind(snapshot: &Snapshot, consumer: &ClusterName) -> BTreeSet<ObjectKey> {
    let mut found = BTreeSet::new();
    let bindings = Scope::cluster(ids::apibindings(), consumer.clone());
    snapshot.for_each(&bindings, |binding| {
        found.extend(schemas_of(&binding.object));
        ControlFlow::Continue(())
    });
    found
}

/// Returns the keys of the schemas that one binding references.
pub fn schemas_of(binding: &Object) -> BTreeSet<ObjectKey> {
    let said = binding.parsed(Binding::read);
    let Ok(cluster) = ClusterName::parse(&said.cluster) else {
        return BTreeSet::new();
    };
    let key = |name: &String| ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), name);
    said.schemas.iter().map(key).collect()
}
