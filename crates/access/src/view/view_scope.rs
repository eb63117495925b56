//! View scope of a verb: a cluster from within, one cluster through an export, or all clusters.

use crate::{
    Target,
    lifecycle::{LifecycleController, LifecyclePhase},
    roles::RolesAt,
};
use insula_api::{ClusterName, Json, LabelSelector, Object, ObjectKey, Resources, Scope, ShownLabel, Verb};
use insula_auth::{Attributes, ClusterFacts, UserInfo};
use insula_catalog::{
    Catalog, Origin, Served,
    exports::{AccessRequest, Denied, ExportName, Grant, schemas_behind},
    ids,
};
use insula_store::{Entry, Guard, Snapshot};
use parking_lot::RwLock;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// View scope of a target.
#[derive(Debug, Clone, Default)]
pub enum ViewScope {
    /// The cluster from within: everything.
    #[default]
    Within,
    /// The cluster through an export.
    ViaExport(ViaExport),
    /// All clusters at once: to look at only.
    AllClusters(Arc<AllClusters>),
    /// The cluster from within, for one that it waits for.
    For(LifecycleController),
}

/// Access through an export: by whom, and to do what.
#[derive(Debug, Clone)]
pub struct ViaExport {
    /// The export.
    pub export: ExportName,
    /// The verb; `None` for a method that has none.
    pub verb: Option<Verb>,
    /// The caller, as the maximal permission policy of a claimed API judges them.
    pub user: Arc<UserInfo>,
    /// The request, as that policy judges it. Its cluster is replaced by each that is looked at.
    pub asked: Arc<Attributes>,
    /// The label that objects of a claimed API are shown with. It says what the claim says at the
    /// moment of the request.
    pub label: Option<Arc<ShownLabel>>,
}

impl ViaExport {
    /// Returns the caller's grant in a cluster: that of the export's provider, less what the
    /// maximal permission policy of a claimed API denies.
    ///
    /// # Errors
    /// The cluster does not let them, or the policy does not.
    pub fn right(
        &self,
        snapshot: &Snapshot,
        cluster: &ClusterName,
        access_request: AccessRequest<'_>,
    ) -> Result<Grant, Denied> {
        let right = self.export.right(snapshot, cluster, access_request)?;
        match self.is_left(&right, snapshot, cluster) {
            true => Ok(right),
            false => Err(Denied::Policy),
        }
    }

    /// Returns true for rights that no maximal permission policy takes away.
    pub fn is_left(&self, right: &Grant, snapshot: &Snapshot, cluster: &ClusterName) -> bool {
        if !right.is_to_anothers() {
            return true;
        }
        let asked = Attributes {
            cluster: Some(cluster.clone()),
            ..(*self.asked).clone()
        };
        let facts = ClusterFacts {
            cluster: Some(cluster.clone()),
            roles: Some(Arc::new(RolesAt::new(snapshot, cluster))),
            ..ClusterFacts::default()
        };
        insula_auth::leaves_to(&self.user, &asked, &facts)
    }
}

/// An object that a write brings, which a grant may complete with labels.
pub struct WrittenObject<'a> {
    /// The object in its storage version.
    pub stored: &'a mut Json,
    /// The object in the version of the request, where readers of that version get it as written.
    pub shown: Option<&'a mut Json>,
}

/// Reader of many clusters.
#[derive(Debug, Clone, Default)]
pub enum By {
    /// Whoever may look everywhere.
    #[default]
    Everybody,
    /// An export's provider, where it is let.
    Provider(ViaExport),
    /// A cluster that looks for the schemas behind its bindings.
    Consumer(ClusterName),
}

/// Exporters whose resources of one name a reader of many clusters sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exporters {
    /// The one that the target names.
    #[default]
    One,
    /// All, and definitions of workspaces: their objects have different schemas, so that only
    /// metadata can be shown.
    All,
}

/// All clusters, or those that somebody may look into.
#[derive(Debug, Default)]
pub struct AllClusters {
    /// The reader.
    pub by: By,
    /// Labels that objects must have to be seen.
    pub labels: LabelSelector,
    /// Only objects that are being deleted are seen.
    pub deleting: bool,
    /// The exporters whose resources are seen.
    pub exporters: Exporters,
    /// Clusters that serve another generation of the API than the target. All others, which serve
    /// the same, are not listed.
    others: RwLock<BTreeMap<ClusterName, Served>>,
}

impl AllClusters {
    /// All clusters that let a provider look.
    pub fn consumers(through: ViaExport) -> ViewScope {
        ViewScope::AllClusters(Arc::new(AllClusters {
            by: By::Provider(through),
            ..AllClusters::default()
        }))
    }

    /// The schemas behind the bindings of a cluster.
    pub fn schemas_of(consumer: ClusterName) -> ViewScope {
        ViewScope::AllClusters(Arc::new(AllClusters {
            by: By::Consumer(consumer),
            ..AllClusters::default()
        }))
    }

    /// All clusters, and in them the objects with some labels.
    pub fn everywhere(labels: LabelSelector) -> ViewScope {
        ViewScope::AllClusters(Arc::new(AllClusters {
            labels,
            ..AllClusters::default()
        }))
    }

    /// All clusters, and in them the metadata of all resources with the target's name.
    pub fn of_all_exporters() -> ViewScope {
        ViewScope::AllClusters(Arc::new(AllClusters {
            exporters: Exporters::All,
            ..AllClusters::default()
        }))
    }

    /// All clusters, and in them the LogicalClusters that wait for a lifecycle controller.
    pub fn waiting_for(lifecycle: &LifecycleController) -> ViewScope {
        ViewScope::AllClusters(Arc::new(AllClusters {
            labels: lifecycle.labels(),
            deleting: lifecycle.phase == LifecyclePhase::Terminating,
            ..AllClusters::default()
        }))
    }

    /// Learns what a cluster serves.
    fn prefetch_cluster(&self, catalog: &Catalog, snapshot: &Snapshot, target: &Target, cluster: &ClusterName) {
        let (served, api) = (&target.served, &target.served.api);
        if served.origin == Origin::System {
            return;
        }
        let found = catalog
            .resolve(snapshot, cluster, &api.group, &api.names.plural)
            .filter(|found| found.identity == served.identity && found.api.fingerprint != api.fingerprint)
            // If the version is not served there, the target's schema shows it.
            .filter(|found| found.served_versions().any(|version| version.name == target.version));
        match found {
            Some(found) => drop(self.others.write().insert(cluster.clone(), found)),
            None if self.others.read().contains_key(cluster) => drop(self.others.write().remove(cluster)),
            None => {}
        }
    }
}

impl Target {
    /// Returns the access that the target needs through an export.
    pub fn access_request<'a>(&'a self, through: &'a ViaExport) -> AccessRequest<'a> {
        AccessRequest {
            group: &self.served.api.group,
            resource: &self.served.api.names.plural,
            verb: through.verb,
        }
    }

    /// Returns true if the view scope is all clusters.
    #[inline]
    pub fn is_across(&self) -> bool {
        matches!(self.view_scope, ViewScope::AllClusters(_))
    }

    /// Returns the label that objects are shown with.
    fn label(&self) -> Option<&ShownLabel> {
        let through = match &self.view_scope {
            ViewScope::ViaExport(through) => through,
            ViewScope::AllClusters(across) => match &across.by {
                By::Provider(through) => through,
                By::Everybody | By::Consumer(_) => return None,
            },
            ViewScope::Within | ViewScope::For(_) => return None,
        };
        through.label.as_deref()
    }

    /// Sets the label that objects are shown with.
    pub fn show_label(&self, object: &mut Json) {
        if let Some(label) = self.label() {
            label.set(object);
        }
    }

    /// Sets the same label in the text of an object that `out` ends with and that begins at
    /// `begin`.
    pub fn write_label(&self, out: &mut Vec<u8>, begin: usize) {
        if let Some(label) = self.label() {
            label.write(out, begin);
        }
    }

    /// Appends the stored text of an object as the target shows it.
    pub fn write_stored(&self, entry: &Entry, out: &mut Vec<u8>) {
        let metadata = out.len() + entry.object.metadata_at();
        entry.object.write_to(entry.revision, out);
        if let Some(label) = self.label() {
            label.write_at(out, metadata);
        }
    }

    /// Returns a selector of objects as they are shown as one of stored objects.
    pub fn stored_selector<'s>(&self, shown: &'s LabelSelector) -> Cow<'s, LabelSelector> {
        self.label()
            .map_or(Cow::Borrowed(shown), |label| label.stored_selector(shown))
    }

    /// Returns true for a target that is every resource of its name.
    #[inline]
    pub fn is_of_all_exporters(&self) -> bool {
        matches!(&self.view_scope, ViewScope::AllClusters(across) if across.exporters == Exporters::All)
    }

    /// The API that shows an object: what its own cluster serves.
    #[inline]
    pub fn serving(&self, key: &ObjectKey) -> Cow<'_, Served> {
        if let ViewScope::AllClusters(across) = &self.view_scope
            && let Some(served) = across.others.read().get(&key.cluster)
        {
            return Cow::Owned(served.clone());
        }
        Cow::Borrowed(&self.served)
    }

    /// The target as an object's own cluster serves it.
    #[inline]
    pub fn generation(&self, key: &ObjectKey) -> Cow<'_, Target> {
        match self.serving(key) {
            Cow::Borrowed(_) => Cow::Borrowed(self),
            Cow::Owned(served) => Cow::Owned(self.clone().served_as(served)),
        }
    }

    /// Returns the ranges of keys that are read, in order. Objects of an export's own API are one
    /// range of keys across all tenants. Objects of claimed APIs are read in one range for each
    /// consumer; `consumers` returns the clusters that bind an export.
    pub fn ranges(
        &self,
        snapshot: &Snapshot,
        consumers: impl FnOnce(&ExportName) -> BTreeSet<ClusterName>,
    ) -> Vec<Scope> {
        let resource = self.served.resource_id();
        let ViewScope::AllClusters(across) = &self.view_scope else {
            return vec![self.scope()];
        };
        let in_clusters = |clusters: BTreeSet<ClusterName>| {
            let scope = |cluster| Scope {
                resources: Resources::One(resource.clone()),
                cluster: Some(cluster),
                namespace: self.namespace.clone(),
            };
            clusters.into_iter().map(scope).collect()
        };
        match &across.by {
            By::Provider(through)
                if self.served.origin == Origin::System || !through.export.owns(snapshot, &self.served) =>
            {
                in_clusters(consumers(&through.export))
            }
            By::Consumer(consumer) => {
                let schemas = schemas_behind(snapshot, consumer).into_iter();
                in_clusters(schemas.map(|schema| schema.cluster).collect())
            }
            By::Everybody | By::Provider(_) => vec![self.scope()],
        }
    }

    /// Returns the guard of a write's commit, and keeps the object within the grant of the writer.
    pub fn hold(&self, snapshot: &Snapshot, draft: Option<WrittenObject<'_>>) -> insula_catalog::Result<Option<Guard>> {
        let through = match &self.view_scope {
            ViewScope::Within => return Ok(None),
            ViewScope::For(lifecycle) => {
                let guard = lifecycle.hold(snapshot, &self.cluster);
                return guard
                    .map(Some)
                    .ok_or_else(|| self.served.api.forbidden("", lifecycle.refusal()));
            }
            ViewScope::ViaExport(through) => through,
            ViewScope::AllClusters(_) => return Err(insula_catalog::Error::MethodNotAllowed),
        };
        let forbidden = |name: &str, why: &str| self.served.api.forbidden(name, why);
        let right = through.right(snapshot, &self.cluster, self.access_request(through));
        let right = right.map_err(|denied| forbidden("", denied.why()))?;
        if let Some(draft) = draft {
            let binds = self.served.resource_id() == ids::apibindings();
            if binds && through.export.is_named_by(snapshot, &self.cluster, draft.stored) {
                let why = "whoever provides an export cannot bind it for others, nor answer its permission claims";
                return Err(forbidden("", why));
            }
            for shown in std::iter::once(draft.stored).chain(draft.shown) {
                let kept = right.keep(shown);
                kept.map_err(|why| forbidden(shown["metadata"]["name"].as_str().unwrap_or_default(), &why))?;
            }
        }
        Ok(Some(right.guard()))
    }

    /// Returns the visibility filter for a snapshot.
    pub fn looking<'a>(&'a self, catalog: &'a Catalog, snapshot: &'a Snapshot) -> VisibilityFilter<'a> {
        VisibilityFilter {
            target: self,
            catalog,
            snapshot,
            last: None,
            schemas: match &self.view_scope {
                ViewScope::AllClusters(across) => match &across.by {
                    By::Consumer(consumer) => schemas_behind(snapshot, consumer),
                    By::Everybody | By::Provider(_) => BTreeSet::new(),
                },
                ViewScope::Within | ViewScope::ViaExport(_) | ViewScope::For(_) => BTreeSet::new(),
            },
        }
    }
}

/// Filter for the objects that a target shows. Objects come cluster by cluster, so the last grant
/// is cached.
pub struct VisibilityFilter<'a> {
    target: &'a Target,
    catalog: &'a Catalog,
    snapshot: &'a Snapshot,
    last: Option<(ClusterName, Option<Grant>)>,
    /// Schemas that a consumer may see.
    schemas: BTreeSet<ObjectKey>,
}

impl VisibilityFilter<'_> {
    /// Returns true if the object is visible.
    pub fn sees(&mut self, key: &ObjectKey, object: &Object) -> bool {
        let target = self.target;
        let through = match &target.view_scope {
            ViewScope::Within | ViewScope::For(_) => return true,
            ViewScope::ViaExport(through) => through,
            ViewScope::AllClusters(across) => {
                // System clusters are the server's own, whoever looks.
                if key.cluster.is_system()
                    || target
                        .namespace
                        .as_ref()
                        .is_some_and(|namespace| *namespace != key.namespace)
                    || across.deleting && !object.meta.is_deleting()
                    || !across.labels.matches(&object.meta.labels)
                {
                    return false;
                }
                match &across.by {
                    By::Provider(through) => through,
                    By::Consumer(_) => return self.schemas.contains(key),
                    By::Everybody => {
                        if self.last.as_ref().is_none_or(|(last, _)| *last != key.cluster) {
                            across.prefetch_cluster(self.catalog, self.snapshot, target, &key.cluster);
                            self.last = Some((key.cluster.clone(), None));
                        }
                        return true;
                    }
                }
            }
        };
        if self.last.as_ref().is_none_or(|(last, _)| *last != key.cluster) {
            let right = through.right(self.snapshot, &key.cluster, target.access_request(through));
            let right = right
                .ok()
                .filter(|right| *right.identity(&target.served.identity) == *target.served.identity);
            if let (Some(_), ViewScope::AllClusters(across)) = (&right, &target.view_scope) {
                across.prefetch_cluster(self.catalog, self.snapshot, target, &key.cluster);
            }
            self.last = Some((key.cluster.clone(), right));
        }
        let right = self.last.as_ref().and_then(|(_, right)| right.as_ref());
        right.is_some_and(|right| right.covers(object))
    }

    /// The same for an entry.
    #[inline]
    pub fn sees_entry(&mut self, entry: &Entry) -> bool {
        self.sees(&entry.key, &entry.object)
    }

    /// Returns true for an object of an older state that may be shown in this one, too: what it was
    /// then may be seen today, and so may what it is today. One that is gone is shown to those who
    /// would see it if it came back.
    pub fn still_sees(&mut self, key: &ObjectKey, old: &Object) -> bool {
        if matches!(self.target.view_scope, ViewScope::Within | ViewScope::For(_)) {
            return true;
        }
        self.sees(key, old)
            && match self.snapshot.get(key) {
                Some(present) => self.sees(key, &present.object),
                None => !self.is_of_waiting(),
            }
    }

    /// Returns true where labels of objects say who may look at them: what is gone waits for
    /// nobody.
    fn is_of_waiting(&self) -> bool {
        matches!(&self.target.view_scope, ViewScope::AllClusters(across) if !across.labels.is_empty())
    }
}
