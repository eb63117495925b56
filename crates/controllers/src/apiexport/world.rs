//! World of the APIExport reconciler: everything that the decision about one export looks at.

use super::compatible::OfferedSchema;
use crate::{loaded::Loaded, write::alive};
use insula_api::{ClusterPath, ObjectKey, Timestamp, kinds::ApiExport, names::well_known::IDENTITY_NAMESPACE};
use insula_catalog::{SerializationPoint, digest, ids, indexes, locate};
use insula_registry::{Deps, Intent};
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;

/// World of an export.
pub(crate) struct World {
    /// The APIExport, if it exists.
    pub(crate) export: Option<Loaded<ApiExport>>,
    /// Guards on the cluster; `None` while the cluster is being deleted.
    pub(crate) alive: Option<Vec<Intent>>,
    /// Path of the cluster.
    pub(crate) path: ClusterPath,
    pub(crate) namespace_key: ObjectKey,
    pub(crate) namespace: Option<Entry>,
    /// Key of the secret that the export names, or that the server creates for it.
    pub(crate) secret_key: ObjectKey,
    pub(crate) secret: Option<Entry>,
    /// An export of another workspace has the identity of the secret.
    pub(crate) taken: bool,
    /// Serialization point of all identities.
    pub(crate) identities: SerializationPoint,
    /// Offered schemas that serve several versions.
    pub(crate) schemas: Vec<OfferedSchema>,
    pub(crate) slice_key: ObjectKey,
    pub(crate) slice: Option<Entry>,
    /// A new random key.
    pub(crate) fresh_key: [u8; 32],
    pub(crate) now: Timestamp,
}

pub(super) fn observe(registry: &Deps, key: &ObjectKey, snapshot: &Snapshot) -> World {
    let cluster = &key.cluster;
    let export = Loaded::<ApiExport>::get(snapshot, key);
    let view = export.as_ref().map(|export| &export.view);
    let reference = view.and_then(|export| export.spec.identity.secret_ref.clone());
    let reference = reference.unwrap_or_default();
    let or = |given: &str, otherwise: &str| {
        if given.is_empty() {
            otherwise.into()
        } else {
            given.into()
        }
    };
    let namespace: std::sync::Arc<str> = or(&reference.namespace, IDENTITY_NAMESPACE);
    let secret_key = ObjectKey {
        resource: ids::secrets(),
        cluster: cluster.clone(),
        namespace: namespace.clone(),
        name: or(&reference.name, &key.name),
    };
    let namespace_key = ObjectKey::cluster_scoped(ids::namespaces(), cluster.clone(), &namespace);
    let slice_key = ObjectKey::cluster_scoped(ids::apiexportendpointslices(), cluster.clone(), &key.name);
    let mut fresh_key = [0; 32];
    registry.rng.fill(&mut fresh_key);
    let secret = snapshot.get(&secret_key);
    let is_new = view.is_some_and(|export| export.status.identity_hash.is_empty());
    World {
        taken: is_new && secret.as_ref().is_some_and(|secret| is_taken(snapshot, key, secret)),
        identities: SerializationPoint::of_identities(snapshot),
        export,
        alive: alive(snapshot, cluster),
        path: locate::path_of(snapshot, cluster),
        namespace: snapshot.get(&namespace_key),
        namespace_key,
        secret,
        secret_key,
        schemas: Vec::new(),
        slice: snapshot.get(&slice_key),
        slice_key,
        fresh_key,
        now: registry.clock.now(),
    }
}

/// Returns true if an export of another workspace has the identity of a secret. Exports of one
/// workspace may share a secret: bindings move from the one to the other with their objects, as in
/// kcp. Called once for each export, before it has an identity.
fn is_taken(snapshot: &Snapshot, key: &ObjectKey, secret: &Entry) -> bool {
    let Some(identity) = digest::identity_of_secret(&secret.object.body_value()) else {
        return false;
    };
    let mut found = false;
    snapshot.for_each_indexed(&indexes::EXPORTS_BY_IDENTITY, &identity, |export| {
        found = export.key.cluster != key.cluster;
        match found {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found
}
