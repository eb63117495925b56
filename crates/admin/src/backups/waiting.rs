//! Objects whose controllers rested while a restore kept their workspace closed.

use insula_api::{ClusterName, ClusterPath, Scope};
use insula_catalog::{ids, locate};
use insula_store::{Entry, Snapshot};
use std::{collections::BTreeSet, ops::ControlFlow};

/// Returns the objects that controllers decide about anew once some clusters are open: those in
/// them, and bindings elsewhere to exports in them.
pub(super) fn waiting(snapshot: &Snapshot, clusters: &BTreeSet<ClusterName>) -> Vec<Entry> {
    let kinds = [
        ids::apibindings(),
        ids::apiexports(),
        ids::namespaces(),
        ids::customresourcedefinitions(),
        ids::apiservices(),
        ids::workspaces(),
    ];
    let mut found = Vec::new();
    for resource in kinds {
        snapshot.for_each(&Scope::everywhere(resource.clone()), |entry| {
            let is_here = clusters.contains(&entry.key.cluster);
            let is_waiting = match () {
                () if resource == ids::workspaces() => is_here && is_unscheduled(entry),
                () if resource == ids::apibindings() => is_here || binds(snapshot, entry, clusters),
                () => is_here,
            };
            if is_waiting {
                found.push(entry.clone());
            }
            ControlFlow::Continue(())
        });
    }
    found
}

fn is_unscheduled(workspace: &Entry) -> bool {
    workspace.object.body_value()["spec"]["cluster"].is_null()
}

/// Returns true for a binding to an export in some clusters.
fn binds(snapshot: &Snapshot, binding: &Entry, clusters: &BTreeSet<ClusterName>) -> bool {
    let value = binding.object.body_value();
    let path = value["spec"]["reference"]["export"]["path"].as_str();
    let path = path.and_then(|path| ClusterPath::parse(path).ok());
    path.and_then(|path| locate::locate(snapshot, &path).ok())
        .is_some_and(|cluster| clusters.contains(&cluster))
}
