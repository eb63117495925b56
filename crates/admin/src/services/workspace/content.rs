//! Content of workspaces: what goes with one that is deleted, and what is left in it.

use super::{describe, listing, right};
use crate::session::Session;
use insula_api::{ClusterName, ClusterPath, ResourceId, Scope, Verb, names::groups};
use insula_catalog::ids;
use insula_proto::admin::v1::{ObjectCount, Workspace};
use insula_registry::Deps;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

/// Workspaces that are counted.
const WORKSPACES_MAX: i64 = 1000;
/// Paths that are named.
const PATHS_MAX: usize = 100;
/// Resources whose objects are counted.
const RESOURCES_MAX: usize = 500;

/// The content of a workspace and of those below it.
#[derive(Default)]
pub(super) struct Content {
    pub(super) workspaces: i64,
    /// Paths of the first workspaces, parents first.
    pub(super) paths: Vec<String>,
    objects: BTreeMap<ResourceId, usize>,
    /// Workspaces whose objects the caller may not list. Their children are left out, too, unless
    /// the caller may list these.
    pub(super) hidden: i64,
    /// True if there is more than was counted.
    pub(super) truncated: bool,
}

impl Content {
    /// Counts the content of a workspace and of those below it.
    pub(super) fn below(registry: &Deps, session: &Session, first: &Workspace) -> Content {
        let mut content = Content::default();
        let mut left = vec![first.clone()];
        while let Some(workspace) = left.pop() {
            if content.workspaces == WORKSPACES_MAX {
                content.truncated = true;
                break;
            }
            content.workspaces += 1;
            if content.paths.len() < PATHS_MAX {
                content.paths.push(workspace.path.clone());
            }
            // A workspace without a cluster has no content.
            let (Ok(cluster), Ok(path)) = (
                ClusterName::parse(&workspace.cluster),
                ClusterPath::parse(&workspace.path),
            ) else {
                continue;
            };
            content.add(registry, session, &cluster);
            if session.caller.permit(&session.snapshot, &cluster, listing()).is_err() {
                continue;
            }
            let scope = Scope::cluster(ids::workspaces(), cluster);
            let mut children = Vec::new();
            let room = usize::try_from(WORKSPACES_MAX).unwrap_or(usize::MAX);
            session.snapshot.for_each(&scope, |entry| {
                children.push(describe(entry, &path));
                match left.len() + children.len() > room {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            left.extend(children.into_iter().rev());
        }
        content
    }

    /// Counts the content of one cluster, if the caller may list everything there.
    pub(super) fn add(&mut self, registry: &Deps, session: &Session, cluster: &ClusterName) {
        let everything = right(Verb::List, "*", "*", "");
        if session.caller.permit(&session.snapshot, cluster, everything).is_err() {
            self.hidden += 1;
            return;
        }
        // Some resources have an alias in another group.
        let served = registry.catalog.served(&session.snapshot, cluster);
        let ids: BTreeSet<ResourceId> = served.iter().map(|served| served.resource_id()).collect();
        for id in ids {
            if *id.group == *groups::CORE && &*id.resource == "logicalclusters" {
                continue;
            }
            let scope = Scope::cluster(id.clone(), cluster.clone());
            match session.snapshot.count(&scope) {
                0 => {}
                count if self.objects.contains_key(&id) || self.objects.len() < RESOURCES_MAX => {
                    *self.objects.entry(id).or_default() += count;
                }
                _ => self.truncated = true,
            }
        }
    }

    /// Returns the counts by resource.
    pub(super) fn counts(&self) -> Vec<ObjectCount> {
        let counts = self.objects.iter().map(|(id, count)| ObjectCount {
            resource: id.qualified(),
            count: i64::try_from(*count).unwrap_or(i64::MAX),
        });
        counts.collect()
    }
}
