//! Indexes of the store by which no request and no event walks over the objects of all tenants.

use crate::{
    ResourceRoute, digest,
    exports::{ExportName, ExportView, bind_request::BindRequest, offer::Binding},
    ids,
    locate::LogicalClusterView,
    version_uses::UseRecord,
};
use insula_api::{ClusterName, Object, ObjectKey, names::labels};
use insula_store::{Entry, Index, Snapshot};
use std::{collections::BTreeSet, ops::ControlFlow};

/// Passes a value on.
type Each<'a> = &'a mut dyn FnMut(&str);

/// Bindings by the digest of their export ([`labels::EXPORT`]).
pub static BINDINGS_BY_EXPORT: Index = Index {
    resource: ids::apibindings,
    values: |_: &ObjectKey, binding: &Object, each: Each<'_>| {
        binding.meta.label(labels::EXPORT).into_iter().for_each(each)
    },
};

/// Routes by the name of the bundle that serves them.
pub static ROUTES_BY_BUNDLE: Index = Index {
    resource: ids::resource_routes,
    values: |_: &ObjectKey, route: &Object, each: Each<'_>| {
        let route = route.parsed(ResourceRoute::read);
        route.bundle.iter().for_each(|bundle| each(bundle));
    },
};

/// Routes by the UID of the schema or definition that their bundle was made from.
pub static ROUTES_BY_SCHEMA: Index = Index {
    resource: ids::resource_routes,
    values: |_: &ObjectKey, route: &Object, each: Each<'_>| {
        let route = route.parsed(ResourceRoute::read);
        route
            .bundle
            .iter()
            .for_each(|bundle| each(ids::schema_of_bundle(bundle)));
    },
};

/// Routes by their name, which is that of the resource with its group.
pub static ROUTES_BY_NAME: Index = Index {
    resource: ids::resource_routes,
    values: |key: &ObjectKey, _: &Object, each: Each<'_>| each(&key.name),
};

/// APIExports by their identity.
pub static EXPORTS_BY_IDENTITY: Index = Index {
    resource: ids::apiexports,
    values: |_: &ObjectKey, export: &Object, each: Each<'_>| {
        let view = export.parsed(ExportView::read);
        let identity = &*view.offer.identity;
        if !identity.is_empty() {
            each(identity);
        }
    },
};

/// Records of used versions by the export whose API they are about.
pub static VERSION_USES_BY_EXPORT: Index = Index {
    resource: ids::version_uses,
    values: |_: &ObjectKey, record: &Object, each: Each<'_>| {
        if let Some(record) = record.parsed(UseRecord::read).as_ref() {
            each(&record.export.label());
        }
    },
};

/// Requests to bind by the logical cluster from which they were made.
pub static BIND_REQUESTS_BY_CLUSTER: Index = Index {
    resource: ids::apibindrequests,
    values: |_: &ObjectKey, request: &Object, each: Each<'_>| each(&request.parsed(BindRequest::read).cluster),
};

/// Requests to bind by the user who made them.
pub static BIND_REQUESTS_BY_USER: Index = Index {
    resource: ids::apibindrequests,
    values: |_: &ObjectKey, request: &Object, each: Each<'_>| each(&request.parsed(BindRequest::read).user),
};

/// Workspaces without a phase, by the empty text: no shard has taken them.
pub static WORKSPACES_WITHOUT_PHASE: Index = Index {
    resource: ids::workspaces,
    values: |_: &ObjectKey, workspace: &Object, each: Each<'_>| {
        if workspace.meta.label(labels::PHASE).is_none() {
            each("");
        }
    },
};

/// LogicalClusters by the type of their workspace, `<path of the type>:<name of the type>`.
pub static LOGICALCLUSTERS_BY_TYPE: Index = Index {
    resource: ids::logicalclusters,
    values: |_: &ObjectKey, cluster: &Object, each: Each<'_>| {
        let view = cluster.parsed(|object| LogicalClusterView::read(&object.body_value()));
        each(&view.workspace_type);
    },
};

/// Returns true if a bundle serves a resource of a cluster.
pub fn is_routed(snapshot: &Snapshot, bundle: &str) -> bool {
    snapshot.has_indexed(&ROUTES_BY_BUNDLE, bundle)
}

impl ExportName {
    /// Shows the bindings whose label says that they are to the export, after a key, to a function
    /// until it breaks off, in the order of their keys.
    pub fn for_each_binding_after(
        &self,
        snapshot: &Snapshot,
        after: Option<&ObjectKey>,
        show: impl FnMut(&Entry) -> ControlFlow<()>,
    ) {
        snapshot.for_each_indexed_after((&BINDINGS_BY_EXPORT, &self.label()), after, show);
    }

    /// Returns the bindings whose label says that they are to the export, in the order of their
    /// keys.
    pub fn bindings(&self, snapshot: &Snapshot) -> Vec<Entry> {
        snapshot.indexed(&BINDINGS_BY_EXPORT, &self.label())
    }

    /// Returns true if a binding is to the export.
    pub fn is_bound(&self, snapshot: &Snapshot) -> bool {
        snapshot.has_indexed(&BINDINGS_BY_EXPORT, &self.label())
    }

    /// Shows the clusters that bind the export to a function until it breaks off, in the order of
    /// their names; a cluster with two bindings comes twice.
    pub fn for_each_consumer(&self, snapshot: &Snapshot, mut show: impl FnMut(&ClusterName) -> ControlFlow<()>) {
        self.for_each_binding_after(snapshot, None, |entry| {
            match self.is_bound_by(&entry.object.parsed(Binding::read)) {
                true => show(&entry.key.cluster),
                false => ControlFlow::Continue(()),
            }
        });
    }

    /// Returns the clusters that bind the export.
    pub fn consumers(&self, snapshot: &Snapshot) -> BTreeSet<ClusterName> {
        let mut found = BTreeSet::new();
        self.for_each_consumer(snapshot, |cluster| {
            found.insert(cluster.clone());
            ControlFlow::Continue(())
        });
        found
    }

    /// Returns the value by which indexes know the export.
    pub(crate) fn label(&self) -> String {
        digest::export_label(&self.cluster, &self.name)
    }
}
