//! Usage of an API by stored objects: their number in each workspace, and the versions they are
//! stored in. A refusal to remove a version, a schema or conversion rules lists the usage.

use insula_access::WorkspaceNames;
use insula_api::{ClusterName, Object, ResourceId, Scope, counted};
use insula_catalog::{ResourceRoute, ids, indexes};
use insula_store::{Entry, Snapshot};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

/// Number of workspaces that a refusal names.
const NAMED_MAX: usize = 5;

/// Number of objects by workspace.
#[derive(Debug, Default)]
pub(super) struct Usage {
    objects: BTreeMap<ClusterName, usize>,
    /// Versions that the objects are stored in.
    pub(super) versions: BTreeSet<String>,
}

impl Usage {
    /// Counts the objects that satisfy `is_meant` behind those of the routes that satisfy `is_one`.
    pub(super) fn routed(
        snapshot: &Snapshot,
        routes: Vec<Entry>,
        is_one: impl Fn(&ResourceRoute) -> bool,
        is_meant: impl Fn(&Object) -> bool,
    ) -> Self {
        let mut usage = Usage::default();
        for route in routes {
            let said = route.object.parsed(ResourceRoute::read);
            if is_one(&said)
                && let Some((plural, group)) = route.key.name.split_once('.')
            {
                let resource = ResourceId {
                    group: if group == "core" { "" } else { group }.into(),
                    resource: plural.into(),
                    identity: said.identity.clone(),
                };
                usage.count(snapshot, &route.key.cluster, resource, &is_meant);
            }
        }
        usage
    }

    /// Counts the objects of a CustomResourceDefinition that satisfy `is_meant`, if its route
    /// satisfies `is_one`.
    pub(super) fn of_definition(
        (snapshot, cluster): (&Snapshot, &ClusterName),
        name: &str,
        is_one: impl Fn(&ResourceRoute) -> bool,
        is_meant: impl Fn(&Object) -> bool,
    ) -> Self {
        let scope = Scope::cluster(ids::resource_routes(), cluster.clone());
        let is_its = |route: &ResourceRoute| {
            let definition = route.definition.as_ref();
            definition.is_some_and(|found| found.is_custom_resource(name)) && is_one(route)
        };
        Usage::routed(snapshot, snapshot.range(&scope, None, usize::MAX), is_its, is_meant)
    }

    fn count(
        &mut self,
        snapshot: &Snapshot,
        cluster: &ClusterName,
        resource: ResourceId,
        is_meant: impl Fn(&Object) -> bool,
    ) {
        snapshot.for_each(&Scope::cluster(resource, cluster.clone()), |entry| {
            if is_meant(&entry.object) {
                self.add(cluster);
                if !self.versions.contains(entry.object.version()) {
                    self.versions.insert(entry.object.version().to_owned());
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Counts an object of a workspace.
    pub(super) fn add(&mut self, cluster: &ClusterName) {
        *self.objects.entry(cluster.clone()).or_default() += 1;
    }

    /// Returns the number of objects.
    pub(super) fn total(&self) -> usize {
        self.objects.values().sum()
    }

    /// Returns true if no object was counted.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Formats the usage: `3 objects in 2 workspaces (root:bob: 2, root:eve: 1)`.
    pub(super) fn message(&self, names: &WorkspaceNames) -> String {
        let total = self.total();
        let mut by_count: Vec<(&ClusterName, &usize)> = self.objects.iter().collect();
        by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named = by_count
            .iter()
            .take(NAMED_MAX)
            .map(|(cluster, count)| format!("{}: {count}", names.name(cluster)));
        let mut named: Vec<String> = named.collect();
        if by_count.len() > NAMED_MAX {
            named.push("…".to_owned());
        }
        format!(
            "{} in {} ({})",
            counted(total, "object"),
            counted(by_count.len(), "workspace"),
            named.join(", ")
        )
    }
}

/// Counts the objects that the bundles of a schema serve.
pub(super) fn of_schema(snapshot: &Snapshot, uid: &str) -> Usage {
    let routes = snapshot.indexed(&indexes::ROUTES_BY_SCHEMA, uid);
    Usage::routed(snapshot, routes, |_| true, |_| true)
}
