//! Migration of ThirdPartyResources: a registration and its objects become objects of a
//! CustomResourceDefinition, of a registration of the second generation, or of a bound API.
//!
//! The steps are those of the proposal "Moving ThirdPartyResources to beta": stop the writers, get
//! the data, orphan the objects and delete the registration, create the new definition, recreate
//! the objects, start the writers again. Where the objects stay in the same workspace nothing has
//! to be deleted in between: the registration is replaced in one transaction, and objects keep
//! their UIDs, so that owners and watches stay valid.
//!
//! A [`Migration`] is the only state. [`advance`] takes the next step, or a part of it, in one
//! transaction that writes the record as well.

mod plan;
mod steps;

pub use plan::{Planned, Replacement, begin, plan};
pub use steps::{advance, undo};

use crate::Intent;
use insula_api::{ClusterName, ObjectKey};
use insula_catalog::{Error, Result, locate, registration::Migration};
use insula_store::{Entry, Pinned, Snapshot};

/// Finds the record of a migration.
///
/// # Errors
/// There is no such migration.
fn record(snapshot: &Snapshot, key: &ObjectKey) -> Result<(Entry, Migration)> {
    let entry = snapshot.get(key);
    let found = entry.and_then(|entry| Migration::read(&entry.object).map(|migration| (entry, migration)));
    found.ok_or_else(|| Error::NotFound {
        resource: insula_catalog::Named {
            group: "".into(),
            resource: "migrations".into(),
        },
        name: key.name.to_string(),
    })
}

/// Returns the migrations of a cluster, with their keys.
pub fn list(snapshot: &Snapshot, cluster: &ClusterName) -> Vec<Migration> {
    let scope = insula_api::Scope::cluster(insula_catalog::ids::registration_migrations(), cluster.clone());
    let records = snapshot.range(&scope, None, usize::MAX);
    records
        .iter()
        .filter_map(|record| Migration::read(&record.object))
        .collect()
}

/// Returns the write of a changed record.
fn written(record: Entry, migration: &Migration) -> Intent {
    let mut value = record.object.body_value();
    value["spec"] = migration.write()["spec"].take();
    Intent::Update(record, value)
}

/// Returns the guard against a freeze of the workspace.
///
/// # Errors
/// The workspace is frozen.
fn thawed(snapshot: &Pinned, cluster: &ClusterName) -> Result<Option<Intent>> {
    match insula_catalog::freeze::open(snapshot, cluster) {
        Ok(open) => Ok(open.map(|(key, revision)| Intent::Expect(key, Some(revision)))),
        Err(freeze) => Err(Error::Forbidden {
            resource: insula_catalog::Named {
                group: "".into(),
                resource: "migrations".into(),
            },
            name: String::new(),
            why: freeze.refusal(locate::path_of(snapshot, cluster).as_str()),
            cause: None,
        }),
    }
}

/// Returns a conflict that asks to try again.
fn changed(key: &ObjectKey) -> Error {
    Error::Conflict {
        resource: insula_catalog::Named {
            group: "".into(),
            resource: "migrations".into(),
        },
        name: key.name.to_string(),
        detail: "the objects were written meanwhile; try again".into(),
    }
}
