//! Lifecycle controllers of workspaces: initializers and terminators, the clusters that wait for
//! them, and their rights there.
//!
//! Whoever acts for one does so under its group. The group's rights are a function of the snapshot:
//! they are those that the type gives, in clusters that wait for it, and end with the write that
//! takes it off the cluster's list.

use crate::workspace_types;
use insula_api::{ClusterName, Json, LabelSelector, kinds::WorkspacePhase};
use insula_auth::{EXTRA_SCOPES, GROUP_AUTHENTICATED, PolicyRule, UserInfo};
use insula_catalog::{
    digest, ids,
    locate::{self, LogicalClusterView},
};
use insula_store::{Guard, Snapshot};
use serde_json::json;
use std::sync::Arc;

/// The group of whoever finishes workspaces for an initializer; its virtual workspace gives it.
pub const INITIALIZER_GROUP: &str = "system:kcp:initializer:";
/// The group of whoever clears workspaces for a terminator.
pub const TERMINATOR_GROUP: &str = "system:kcp:terminator:";

/// Phase of a workspace in which the controller acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecyclePhase {
    /// Before the workspace is Ready.
    Initializing,
    /// Before it goes.
    Terminating,
}

/// One that workspaces wait for: `<cluster of a type>:<name of the type>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleController {
    /// When.
    pub phase: LifecyclePhase,
    /// The cluster that its type is in. A name without one is no type's, and nothing waits for it;
    /// its virtual workspace is empty, as in kcp, for administrators of the platform.
    pub cluster: Option<ClusterName>,
    /// The name of the type.
    pub workspace_type: Arc<str>,
}

impl LifecycleController {
    /// Reads the name of an initializer or terminator. Those of the server itself
    /// (`system:apibindings`) are nobody's.
    pub fn parse(phase: LifecyclePhase, name: &str) -> Option<LifecycleController> {
        let (cluster, workspace_type) = match name.rsplit_once(':') {
            Some(("system", _)) => return None,
            Some((cluster, name)) => (Some(ClusterName::parse(cluster).ok()?), name),
            None => (None, name),
        };
        Some(LifecycleController {
            phase,
            cluster,
            workspace_type: workspace_type.into(),
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("{cluster}:{}", self.workspace_type),
            None => self.workspace_type.to_string(),
        }
    }

    /// The verb on the type that lets somebody act for it.
    pub fn verb(&self) -> &'static str {
        match self.phase {
            LifecyclePhase::Initializing => "initialize",
            LifecyclePhase::Terminating => "terminate",
        }
    }

    /// Returns its name in messages.
    pub fn word(&self) -> &'static str {
        match self.phase {
            LifecyclePhase::Initializing => "initializer",
            LifecyclePhase::Terminating => "terminator",
        }
    }

    /// The service that shows it what waits.
    pub fn service(&self) -> &'static str {
        match self.phase {
            LifecyclePhase::Initializing => "initializingworkspaces",
            LifecyclePhase::Terminating => "terminatingworkspaces",
        }
    }

    /// The labels of the LogicalClusters that wait for it. Those that wait for a terminator have
    /// its label from the beginning, and wait once they are being deleted.
    pub fn labels(&self) -> LabelSelector {
        let prefix = match self.phase {
            LifecyclePhase::Initializing => "initializer.internal.kcp.io/",
            LifecyclePhase::Terminating => "terminator.internal.kcp.io/",
        };
        let (key, value) = digest::lifecycle_label(prefix, &self.name());
        let mut labels = json!({key: value});
        if self.phase == LifecyclePhase::Initializing {
            labels["tenancy.kcp.io/phase"] = json!("Initializing");
        }
        let selector = json!({"matchLabels": labels});
        LabelSelector::from_json(&selector).expect("names and digests are labels")
    }

    /// Returns true if the cluster waits for the controller.
    pub fn is_awaited(&self, snapshot: &Snapshot, cluster: &ClusterName) -> bool {
        locate::logical_cluster(snapshot, cluster).is_some_and(|view| self.is_awaited_in(&view))
    }

    fn is_awaited_in(&self, view: &LogicalClusterView) -> bool {
        let (begun, list) = match self.phase {
            LifecyclePhase::Initializing => (view.phase == WorkspacePhase::Initializing, &view.initializers),
            // The phase follows the deletion in a write of its own.
            LifecyclePhase::Terminating => (view.deleting, &view.terminators),
        };
        begun && list.iter().any(|name| **name == *self.name())
    }

    /// That a cluster still waits for it, as a guard of what is done there.
    pub fn hold(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Option<Guard> {
        let key = ids::logical_cluster(cluster);
        let found = snapshot.get(&key).filter(|_| self.is_awaited(snapshot, cluster))?;
        Some(Guard::At(key, found.revision))
    }

    /// Returns the refusal for a cluster that does not wait for the controller.
    pub fn refusal(&self) -> String {
        format!("{} {:?} cannot access this workspace", self.word(), self.name())
    }

    /// Whoever acts for it, under its group alone: what else they are does not count in others'
    /// workspaces. Names of service accounts mean others there, and so do names that count in some
    /// workspaces only: borrowed ones, and those of a workspace's own issuer, which anybody may
    /// write.
    pub fn stands_for(&self, caller: &UserInfo) -> UserInfo {
        let group = format!("{}{}", self.group(), self.name());
        let name = match caller.name.starts_with("system:") || caller.extra.contains_key(EXTRA_SCOPES) {
            true => group.clone(),
            false => caller.name.clone(),
        };
        UserInfo {
            name,
            uid: caller.uid.clone(),
            groups: vec![group, GROUP_AUTHENTICATED.to_owned()],
            ..UserInfo::default()
        }
    }

    /// As whom it works in a cluster: under its group with the rights that the type gives, or,
    /// where the type gives none, as the workspace's owner, without what the owner is beyond their
    /// name and their own groups.
    pub fn works_as(&self, snapshot: &Snapshot, cluster: &ClusterName, caller: &UserInfo) -> UserInfo {
        match self.rules(snapshot).is_empty() {
            true => owner(snapshot, cluster).unwrap_or_else(|| self.stands_for(caller)),
            false => self.stands_for(caller),
        }
    }

    fn group(&self) -> &'static str {
        match self.phase {
            LifecyclePhase::Initializing => INITIALIZER_GROUP,
            LifecyclePhase::Terminating => TERMINATOR_GROUP,
        }
    }

    fn rules(&self, snapshot: &Snapshot) -> Vec<PolicyRule> {
        let cluster = self.cluster.as_ref();
        let found = cluster.and_then(|cluster| workspace_types::get(snapshot, cluster, &self.workspace_type));
        found.map_or(Vec::new(), |found| match self.phase {
            LifecyclePhase::Initializing => found.view.initializer_rules.clone(),
            LifecyclePhase::Terminating => found.view.terminator_rules.clone(),
        })
    }
}

/// The rules that a user has in a cluster which waits for those that the user's groups stand for.
pub fn rules(snapshot: &Snapshot, cluster: &ClusterName, user: &UserInfo) -> Vec<PolicyRule> {
    let stands_for = |group: &String| {
        let initializer = group.strip_prefix(INITIALIZER_GROUP);
        let terminator = group.strip_prefix(TERMINATOR_GROUP);
        initializer
            .and_then(|name| LifecycleController::parse(LifecyclePhase::Initializing, name))
            .or_else(|| LifecycleController::parse(LifecyclePhase::Terminating, terminator?))
    };
    let duties = user.groups.iter().filter_map(stands_for);
    duties
        .filter(|lifecycle| lifecycle.is_awaited(snapshot, cluster))
        .flat_map(|lifecycle| lifecycle.rules(snapshot))
        .collect()
}

/// The owner of a cluster, for whoever acts as them there. The identity counts in that cluster
/// alone, like every borrowed one (kcp's `WithImpersonationScoping`): elsewhere it is nobody in
/// particular, and binds no export that is the owner's.
fn owner(snapshot: &Snapshot, cluster: &ClusterName) -> Option<UserInfo> {
    let logical = snapshot.get(&ids::logical_cluster(cluster))?.object.body_value();
    let created_by = &logical["spec"]["createdBy"];
    let name = locate::logical_cluster(snapshot, cluster)?.owner.clone()?;
    let groups = created_by["groups"].as_array().into_iter().flatten();
    let own = groups
        .filter_map(Json::as_str)
        .filter(|group| !group.starts_with("system:"));
    Some(UserInfo {
        uid: created_by["uid"].as_str().unwrap_or_default().to_owned(),
        groups: own.map(str::to_owned).chain([GROUP_AUTHENTICATED.to_owned()]).collect(),
        name: name.to_string(),
        extra: [(EXTRA_SCOPES.to_owned(), vec![format!("cluster:{cluster}")])].into(),
    })
}
