//! The schemas behind the bindings of a cluster: for those who may read its bindings, wherever the
//! schemas are.

use crate::{exports::offer::Binding, ids};
use insula_api::{ClusterName, Object, ObjectKey, Scope};
use insula_store::Snapshot;
use std::{collections::BTreeSet, ops::ControlFlow};

/// Where the schemas are that the bindings of a cluster name.
pub fn schemas_behind(snapshot: &Snapshot, consumer: &ClusterName) -> BTreeSet<ObjectKey> {
    let mut found = BTreeSet::new();
    let bindings = Scope::cluster(ids::apibindings(), consumer.clone());
    snapshot.for_each(&bindings, |binding| {
        found.extend(schemas_of(&binding.object));
        ControlFlow::Continue(())
    });
    found
}

/// The same of one binding.
pub fn schemas_of(binding: &Object) -> BTreeSet<ObjectKey> {
    let said = binding.parsed(Binding::read);
    let Ok(cluster) = ClusterName::parse(&said.cluster) else {
        return BTreeSet::new();
    };
    let key = |name: &String| ObjectKey::cluster_scoped(ids::apiresourceschemas(), cluster.clone(), name);
    said.schemas.iter().map(key).collect()
}
