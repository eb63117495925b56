//! Names of workspaces, as somebody may see them who serves them from elsewhere: the provider of an
//! API in messages about the objects of its tenants.
//!
//! A path says who a tenant is and where it belongs, so only callers learn it who may enter the
//! workspace. Others get the name of the logical cluster, which the virtual workspace of an export
//! shows with each object. Messages that are stored, as conditions are, have readers that nobody
//! knows: they name logical clusters only.

use crate::facts;
use insula_api::{ClusterName, ClusterPath};
use insula_auth::{Attributes, UserInfo, permit};
use insula_catalog::locate;
use insula_store::Snapshot;
use std::{cell::RefCell, collections::HashMap};

/// The names of workspaces for one reader. Each workspace is looked at once.
pub struct WorkspaceNames {
    snapshot: Snapshot,
    reader: UserInfo,
    known: RefCell<HashMap<ClusterName, ClusterPath>>,
}

impl WorkspaceNames {
    /// Returns the names that a user may see in one state.
    pub fn new(snapshot: &Snapshot, reader: &UserInfo) -> Self {
        WorkspaceNames {
            snapshot: snapshot.clone(),
            reader: reader.clone(),
            known: RefCell::default(),
        }
    }

    /// Returns the path of a workspace that the reader may enter, and else the name of its logical
    /// cluster, which is a path as well.
    pub fn name(&self, cluster: &ClusterName) -> ClusterPath {
        let mut known = self.known.borrow_mut();
        if let Some(name) = known.get(cluster) {
            return name.clone();
        }
        let name = match may_enter(&self.snapshot, &self.reader, cluster) {
            true => locate::path_of(&self.snapshot, cluster),
            false => ClusterPath::from(cluster),
        };
        known.insert(cluster.clone(), name.clone());
        name
    }
}

/// Returns true for users whom a workspace lets in when it is available.
pub fn may_enter(snapshot: &Snapshot, user: &UserInfo, cluster: &ClusterName) -> bool {
    let right = Attributes {
        cluster: Some(cluster.clone()),
        ..Attributes::entering()
    };
    permit(user, right, &facts(snapshot, cluster)).is_ok()
}
