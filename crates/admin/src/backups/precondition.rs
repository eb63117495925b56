//! Conditions of a restore.

use super::{RESTORE, Tree, installation};
use crate::operations::{Failure, Operations, Record, Running};
use insula_api::ClusterName;
use insula_catalog::ids;
use insula_store::{Snapshot, backup::Header};
use std::sync::Arc;
use tonic::Code;

fn refused(text: impl Into<String>) -> Failure {
    Failure::new(Code::FailedPrecondition, text)
}

/// Checks that a backup is of the installation of a state.
pub(crate) fn of_this_installation(header: &Header, snapshot: &Snapshot) -> Result<(), Failure> {
    if header.installation == installation(snapshot) {
        return Ok(());
    }
    let text = "the backup is of another installation: only the whole can be restored elsewhere, into a new data \
                directory, by `insula backup restore FILE --to DIRECTORY`";
    Err(refused(text))
}

/// Checks that a tree can be restored at a state.
pub(crate) fn check(snapshot: &Snapshot, tree: &Tree, overwrite: bool) -> Result<(), Failure> {
    let path = tree.clusters[&tree.root].as_str();
    if let Some(owner) = &tree.owner {
        let parent = snapshot.get(&ids::logical_cluster(&owner.cluster));
        if parent.is_none_or(|parent| parent.object.meta.is_deleting()) {
            let text = format!("workspace {path}: its parent does not exist: restore the parent, which includes it");
            return Err(refused(text));
        }
        if let Some(known) = snapshot.get(owner)
            && known.object.body_value()["spec"]["cluster"] != tree.root.as_str()
        {
            let text = format!("workspace {path} has been created anew since the backup: delete it first");
            return Err(refused(text));
        }
    }
    if snapshot.get(&ids::logical_cluster(&tree.root)).is_some() && !overwrite {
        return Err(exists(path));
    }
    Ok(())
}

/// Refuses to replace a workspace, or the installation for the path `root`.
pub(crate) fn exists(path: &str) -> Failure {
    refused(match path == ClusterName::root().as_str() {
        true => {
            "a restore of the installation replaces root and all workspaces, and deletes those that the backup lacks: \
             set overwrite; validate_only tells the changes"
                .to_owned()
        }
        false => format!("workspace {path} exists: set overwrite to replace it and all workspaces below it"),
    })
}

/// Checks that no operation reads a backup.
pub(crate) fn is_unused(snapshot: &Snapshot, name: &str) -> Result<(), Failure> {
    let reads = |record: Arc<Record>| record.outcome.is_none() && record.input["name"] == name;
    let known = Operations::list(snapshot);
    match known
        .iter()
        .find(|entry| Record::read(&entry.object).is_some_and(reads))
    {
        None => Ok(()),
        Some(reader) => Err(refused(format!(
            "operation {} reads the backup: wait for its end, or cancel it",
            reader.key.name
        ))),
    }
}

/// Checks that no other restore is in the way: that of the installation is alone. Of two the later
/// one gives way.
pub(crate) fn is_alone(snapshot: &Snapshot, running: &Running) -> Result<(), Failure> {
    let is_whole = |record: &Record| record.input["workspace"] == ClusterName::root().as_str();
    let known = Operations::list(snapshot);
    let own = known.iter().find(|entry| entry.key.name == running.name);
    let own = own.map(|entry| entry.created);
    let in_the_way = known.iter().find(|entry| {
        let record = Record::read(&entry.object);
        let record = record.filter(|record| record.kind == RESTORE && record.outcome.is_none());
        record.is_some_and(|record| {
            own.is_none_or(|own| entry.created < own) && (is_whole(&record) || is_whole(&running.record))
        })
    });
    match in_the_way {
        None => Ok(()),
        Some(other) => Err(refused(format!(
            "operation {} restores: a restore of the installation runs alone; wait for its end",
            other.key.name
        ))),
    }
}
