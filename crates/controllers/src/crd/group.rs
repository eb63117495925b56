//! Definitions and registrations of one group in one cluster: they share its names.

use super::names::Taken;
use insula_api::{ClusterName, Object, ObjectKey, Scope};
use insula_catalog::{
    Origin, ids,
    registration::{DefinitionKind, DefinitionName},
};
use insula_registry::Deps;
use insula_store::{Change, Entry, Snapshot};
use std::ops::ControlFlow;

/// Returns the definitions and registrations that may want a name that a change makes free, and the
/// changed one itself.
pub(crate) fn concerned(change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
    let name = &*change.key.name;
    let is_definition = DefinitionName::of_key(&change.key).is_some();
    let group = match &change.old {
        Some(old) if is_definition && frees_a_name(&old.object, change.new.as_deref()) => name.split_once('.'),
        _ if change.key.resource == ids::resource_routes() && change.new.is_none() => name.split_once('.'),
        _ => None,
    };
    let mut keys = group.map_or_else(Vec::new, |(_, group)| {
        let found = of_group(snapshot, &change.key.cluster, group).into_iter();
        found.map(|entry| entry.key).collect()
    });
    if is_definition && change.new.is_some() && !keys.contains(&change.key) {
        keys.push(change.key.clone());
    }
    keys
}

/// Returns true if a definition gives up a name that it had or wanted.
fn frees_a_name(old: &Object, new: Option<&Object>) -> bool {
    let names = |object: &Object| {
        let mut names = Taken::default();
        names.add_definition(object, true);
        names
    };
    !names(old).is_within(&new.map(names).unwrap_or_default())
}

/// Returns the names of every other API of the group in the cluster: built in, bound or defined.
/// Names that older definitions wait for count as theirs: definitions that want one name decide
/// independently and at the same time.
pub(crate) fn taken(registry: &Deps, snapshot: &Snapshot, own: &Entry, group: &str) -> Taken {
    let mut taken = Taken::default();
    for other in of_group(snapshot, &own.key.cluster, group) {
        if other.key != own.key {
            taken.add_definition(&other.object, other.created < own.created);
        }
    }
    for served in registry.catalog.served_in(snapshot, &own.key.cluster, group) {
        if !matches!(served.origin, Origin::Local { .. }) {
            taken.add(served.names());
        }
    }
    taken
}

/// Returns the definitions and registrations of a group in a cluster: the group is what follows the
/// first dot of their names. Of others only the name is read.
pub(crate) fn of_group(snapshot: &Snapshot, cluster: &ClusterName, group: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let wanted = |key: &ObjectKey| key.name.split_once('.').is_some_and(|(_, rest)| rest == group);
    for kind in DefinitionKind::ALL {
        let scope = Scope::cluster(kind.resource(), cluster.clone());
        snapshot.for_each_wanted(&scope, wanted, |entry| {
            found.push(entry.clone());
            ControlFlow::Continue(())
        });
    }
    found
}
