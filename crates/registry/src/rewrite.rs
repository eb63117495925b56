//! Rewrites of the stored objects of an API in all workspaces that bind it, or in one: page by
//! page, and each object only if nobody wrote it since.

use crate::{
    client::{Intent, Plan, commit},
    deps::Deps,
};
use insula_api::{ClusterName, Json, Object, ObjectKey, ResourceId, Revision, Scope};
use insula_catalog::{Error, Origin, Result, Served, freeze, ids};
use insula_meter::ServerWork;
use insula_store::{Entry, Snapshot};
use std::{collections::HashMap, ops::ControlFlow};

/// Objects examined for one page.
const EXAMINED_MAX: usize = 500;
/// Attempts to write an object that others write at the same time.
pub(crate) const ATTEMPTS: usize = 3;

/// Writes the position of an object among those of its resource.
pub fn position(key: &ObjectKey) -> String {
    format!("{}/{}/{}", key.cluster, key.namespace, key.name)
}

/// Returns the key at a position; `None` for a text that is none.
pub fn key_at(resource: ResourceId, position: &str) -> Option<ObjectKey> {
    let mut parts = position.splitn(3, '/');
    let mut next = || parts.next();
    let (cluster, namespace, name) = (next()?, next()?, next()?);
    Some(ObjectKey {
        namespace: namespace.into(),
        ..ObjectKey::cluster_scoped(resource, ClusterName::parse(cluster).ok()?, name)
    })
}

/// The objects that a page examined.
pub(crate) struct Examined {
    pub(crate) objects: usize,
    /// The last of them, if there are more.
    pub(crate) next: Option<ObjectKey>,
}

/// Examines the stored objects of a scope after a key, each with the API that serves it in its
/// workspace, if one does. The page ends at 500 objects, or when `each` returns false.
pub(crate) fn scan(
    deps: &Deps,
    snapshot: &Snapshot,
    scope: &Scope,
    after: Option<&ObjectKey>,
    mut each: impl FnMut(Option<&Served>, &Entry) -> bool,
) -> Examined {
    let mut examined = Examined { objects: 0, next: None };
    let mut served_in: HashMap<_, Option<Served>> = HashMap::new();
    let (mut is_full, mut last) = (false, None);
    snapshot.for_each_after(scope, after, |entry| {
        if is_full || examined.objects == EXAMINED_MAX {
            examined.next = last.take();
            return ControlFlow::Break(());
        }
        examined.objects += 1;
        last = Some(entry.key.clone());
        let served = served_in
            .entry(entry.key.cluster.clone())
            .or_insert_with(|| serving(deps, snapshot, entry));
        is_full = !each(served.as_ref(), entry);
        ControlFlow::Continue(())
    });
    examined
}

/// Returns the API that serves an object in its cluster today; `None` if the object goes with it. A
/// binding in the grace period of its deletion may come back with its objects.
fn serving(deps: &Deps, snapshot: &Snapshot, entry: &Entry) -> Option<Served> {
    let ResourceId {
        group,
        resource,
        identity,
    } = &entry.key.resource;
    let served = deps.catalog.resolve(snapshot, &entry.key.cluster, group, resource)?;
    let is_kept = match &served.origin {
        Origin::Bound { binding } => {
            let key = ObjectKey::cluster_scoped(ids::apibindings(), entry.key.cluster.clone(), binding);
            snapshot.get(&key).is_some_and(|it| it.object.meta.awaits_deletion())
        }
        Origin::Local { .. } | Origin::System => false,
    };
    (served.identity == *identity && (is_kept || !served.terminating)).then_some(served)
}

/// Returns an object to store, in its version.
///
/// # Errors
/// The value is no object of the API; the text says why.
pub(crate) fn object(served: &Served, value: &Json, residual: Option<Vec<u8>>) -> std::result::Result<Object, String> {
    let mut shown = value.clone();
    let version = value["apiVersion"].as_str().map_or("", insula_api::names::version_of);
    if let Some(schema) = served.api.bundle.schema(version) {
        insula_schema::prune(&mut shown, schema);
        insula_schema::default(&mut shown, schema);
    }
    // Readers default and prune an object without the mark of its schema.
    let mark = if shown == *value { served.api.fingerprint } else { 0 };
    Object::new(value, residual.map(Into::into))
        .map(|object| object.written_under(mark))
        .map_err(|error| error.to_string())
}

/// Result of an attempt to store an object.
pub(crate) enum Attempt {
    Stored,
    /// Somebody wrote it, or what serves it changed.
    Conflict,
    /// Its workspace takes no writes; the text says why.
    Refused(String),
}

/// Commits the write of an object of a cluster, unless that is frozen.
///
/// # Errors
/// The store refused the commit, and not because of a conflict.
pub(crate) async fn attempt(deps: &Deps, cluster: &ClusterName, mut intents: Vec<Intent>) -> Result<Attempt> {
    match freeze::open(&deps.store.latest(), cluster) {
        Ok(open) => intents.extend(open.map(|(key, revision)| Intent::Expect(key, Some(revision)))),
        Err(freeze) => return Ok(Attempt::Refused(freeze.refusal_from_outside(cluster))),
    }
    match commit(deps, &Plan::new(intents)).await {
        Ok(_) => Ok(Attempt::Stored),
        Err(Error::Conflict { .. }) => Ok(Attempt::Conflict),
        Err(error) => Err(error),
    }
}

/// Returns an object as it is stored now, and the API that serves it; `None` if either is gone.
///
/// # Errors
/// The store cannot be read.
pub(crate) async fn latest(deps: &Deps, entry: &Entry) -> Result<Option<(Served, Entry)>> {
    let snapshot = deps.store.snapshot(Revision(0)).await;
    let snapshot = snapshot.map_err(|error| Error::Internal(error.to_string()))?;
    let snapshot = snapshot.for_server(ServerWork::Migration);
    let served = serving(deps, &snapshot, entry);
    Ok(served.zip(snapshot.get(&entry.key)))
}
