//! The APIs of an export's virtual workspace: the offered resources, the claimed resources and the
//! bindings to the export.

use crate::{
    Api, Catalog, Origin, Served, bundle, digest,
    exports::{
        Denied, ExportName, ExportView, Grant, is_identity_of,
        offer::{ExportOffer, Offered, Terms},
    },
    ids, indexes,
};
use insula_api::{ClusterName, ObjectKey, Scope, ShownLabel};
use insula_store::{Entry, Pinned, Snapshot};
use std::{ops::ControlFlow, sync::Arc};

impl ExportName {
    /// Returns all resources of the virtual workspace, including those that the provider may only
    /// read.
    pub fn served(&self, catalog: &Catalog, snapshot: &Snapshot) -> Vec<Served> {
        let Some(spec) = self.spec(snapshot) else {
            return Vec::new();
        };
        let offer = &spec.offer;
        let bindings = catalog.system().get("apis.kcp.io", "apibindings");
        let bindings = bindings.map(|served| served.charged_to(snapshot.meter()));
        let own = offer
            .resources
            .iter()
            .filter_map(|offered| self.offered(catalog, snapshot, offer, offered));
        let claims = offer.claims.iter();
        let covered = claims.flat_map(|claim| claim.covered().map(move |named| (claim, named)));
        let claimed = covered.filter_map(|(claim, named)| match claim.identity.as_str() {
            "" => {
                let system = catalog.system().get(named.0, named.1);
                system.map(|served| served.charged_to(snapshot.meter()))
            }
            identity => of_identity(catalog, snapshot, named, identity),
        });
        let mut all: Vec<Served> = Vec::new();
        for served in own.chain(claimed).chain(bindings) {
            let same =
                |known: &Served| known.group() == served.group() && known.names().plural == served.names().plural;
            if !all.iter().any(same) {
                all.push(served);
            }
        }
        all
    }

    /// Returns true if the provider may only read the resource: APIBindings without a permission
    /// claim on them.
    pub fn only_reads(&self, snapshot: &Snapshot, served: &Served) -> bool {
        let (group, plural) = (&*served.api.group, &*served.api.names.plural);
        let claimed = |offer: &ExportOffer| {
            let claims = &offer.claims;
            claims
                .iter()
                .any(|claim| claim.group == group && claim.resource == plural)
        };
        group == "apis.kcp.io"
            && plural == "apibindings"
            && !self.spec(snapshot).is_some_and(|spec| claimed(&spec.offer))
    }

    /// Resolves a resource of the virtual workspace across all clusters.
    pub fn resolve(&self, catalog: &Catalog, snapshot: &Snapshot, group: &str, plural: &str) -> Option<Served> {
        let mut all = self.served(catalog, snapshot).into_iter();
        all.find(|served| **served.group() == *group && *served.names().plural == *plural)
    }

    /// Resolves a resource in one cluster, or returns None if the cluster does not serve it.
    ///
    /// # Errors
    /// The cluster serves another API by this name than the one that the grant covers.
    pub fn resolve_in(
        &self,
        (catalog, snapshot): (&Catalog, &Snapshot),
        cluster: &ClusterName,
        (group, plural): (&str, &str),
        right: &Grant,
    ) -> Result<Option<Served>, Denied> {
        let Some(served) = catalog.resolve(snapshot, cluster, group, plural) else {
            return Ok(None);
        };
        let spec = self.spec(snapshot);
        let meant = right.identity(spec.as_ref().map_or("", |spec| &spec.offer.identity));
        match &served.origin {
            Origin::System if meant.is_empty() => Ok(Some(served)),
            Origin::Bound { .. } if !meant.is_empty() && *served.identity == *meant => Ok(Some(served)),
            Origin::System | Origin::Bound { .. } | Origin::Local { .. } => Err(Denied::NoReason),
        }
    }

    /// Returns true for an API with the export's own identity.
    pub fn owns(&self, snapshot: &Pinned, served: &Served) -> bool {
        let spec = self.spec(snapshot);
        spec.is_some_and(|spec| !spec.offer.identity.is_empty() && *spec.offer.identity == *served.identity)
    }

    /// Returns the label of the objects of a claimed API, as the export's provider sees them. The
    /// export's own API has none, and bindings have a label of their own.
    pub fn claim_label(&self, snapshot: &Snapshot, served: &Served) -> Option<ShownLabel> {
        let id = served.resource_id();
        if id == ids::apibindings() || self.owns(snapshot, served) {
            return None;
        }
        let spec = self.spec(snapshot)?;
        // Built-in kinds may be claimed with the identity of an export of `root`.
        let is_meant = |claim: &&Terms| {
            claim.covers(&id.group, &id.resource) && (id.identity.is_empty() || *claim.identity == *id.identity)
        };
        let claim = spec.offer.claims.iter().find(is_meant)?;
        let named = (&*claim.group, &*claim.resource, &*claim.identity);
        Some(digest::claim_label(&self.cluster, &self.name, named))
    }

    fn offered(
        &self,
        catalog: &Catalog,
        snapshot: &Snapshot,
        offer: &ExportOffer,
        offered: &Offered,
    ) -> Option<Served> {
        let api = self.api(catalog, snapshot, &offered.schema)?;
        let is_it = *api.group == *offered.group && *api.names.plural == *offered.resource;
        is_it.then(|| Served {
            identity: offer.identity.as_str().into(),
            origin: Origin::Bound {
                binding: self.name.clone(),
            },
            meter: snapshot.meter().clone(),
            ..Served::system(api)
        })
    }

    /// Returns the API of one of the export's schemas. Uses the bundle that serves the consumers;
    /// before the first binding, compiles the schema itself.
    fn api(&self, catalog: &Catalog, snapshot: &Snapshot, schema: &str) -> Option<Arc<Api>> {
        let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), self.cluster.clone(), schema);
        let schema = snapshot.get(&key)?;
        if let Some(bundle) = bundle_of(snapshot, &schema.object.meta.uid.to_string()) {
            return catalog.compiled(&bundle.object).ok();
        }
        let compiled = schema
            .object
            .parsed(|schema| catalog.compile(&bundle::of_schema(&schema.body_value(), None)).ok());
        Option::clone(&compiled)
    }
}

/// Returns the bundle of a schema that serves tenants. While several generations of its rules do,
/// returns the oldest: every stored object fits it, also those of tenants that were held back.
fn bundle_of(snapshot: &Snapshot, uid: &str) -> Option<Entry> {
    let mut all: Vec<Entry> = snapshot.get(&ids::bundle(uid)).into_iter().collect();
    let scope = Scope::cluster(ids::bundles(), ClusterName::bound_crds());
    snapshot.for_each_after(&scope, Some(&ids::bundle(uid)), |entry| {
        if !ids::is_bundle_of(&entry.key.name, uid) {
            return ControlFlow::Break(());
        }
        all.push(entry.clone());
        ControlFlow::Continue(())
    });
    all.sort_by_key(|bundle| bundle.revision);
    let oldest = match &*all {
        [] | [_] => None,
        _ => all.iter().find(|bundle| indexes::is_routed(snapshot, &bundle.key.name)),
    };
    oldest.or(all.first()).cloned()
}

/// Returns a resource of the export that has the given identity. The exports in `root` that kcp
/// offers built-in kinds by stand for these kinds.
fn of_identity(
    catalog: &Catalog,
    snapshot: &Snapshot,
    (group, plural): (&str, &str),
    identity: &str,
) -> Option<Served> {
    if is_identity_of(snapshot, (group, plural), identity) {
        let system = catalog.system().get(group, plural);
        return system.map(|served| served.charged_to(snapshot.meter()));
    }
    let mut found = None;
    snapshot.for_each_indexed(&indexes::EXPORTS_BY_IDENTITY, identity, |entry| {
        let spec = entry.object.parsed(ExportView::read);
        let offer = &spec.offer;
        let export = ExportName {
            cluster: entry.key.cluster.clone(),
            name: entry.key.name.clone(),
        };
        let mut resources = offer.resources.iter();
        let offered = resources.find(|offered| offered.group == group && offered.resource == plural);
        found = offered.and_then(|offered| export.offered(catalog, snapshot, offer, offered));
        match found {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    found
}
