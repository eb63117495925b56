//! The in-process client of controllers. It stamps metadata and commits a plan as one transaction.
//! Writes of reconcilers are not pruned, defaulted, validated or admitted.

use crate::{deps::Deps, verbs::commit_error};
use futures_util::future::BoxFuture;
use insula_api::{Json, Object, ObjectKey, Revision, Uid};
use insula_catalog::{
    Result, SerializationPoint,
    object::{CLUSTER_ANNOTATION, rewrite},
};
use insula_store::{Entry, Guard, Txn, Write};
use serde_json::json;
use std::sync::Arc;

/// One intended change of a reconciler to one object, in its storage version.
#[derive(Debug, Clone)]
pub enum Intent {
    /// Creates an object that must not exist yet.
    Create(ObjectKey, Json),
    /// Updates an object whose revision must not have changed.
    Update(Entry, Json),
    /// Replaces the stored object, its version and its residual. Its revision must not have
    /// changed.
    Rewrite(Entry, Arc<Object>),
    /// Deletes an object whose revision must not have changed.
    Delete(Entry),
    /// Writes nothing, but requires the given revision (`None`: the object is absent).
    Expect(ObjectKey, Option<Revision>),
    /// Writes a serialization point, so that decisions over the same set of objects conflict.
    Sign(SerializationPoint),
}

/// The decision of a reconciler. All of its intents commit at one revision, or none does.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The intended changes.
    pub intents: Vec<Intent>,
    /// Seconds until the next reconciliation even if nothing changes.
    pub again_after: Option<u64>,
}

impl Plan {
    /// Returns a plan without intents.
    pub fn rest() -> Self {
        Plan::default()
    }

    /// Returns a plan of intents without a later reconciliation.
    pub fn new(intents: Vec<Intent>) -> Self {
        Plan {
            intents,
            again_after: None,
        }
    }

    /// Returns true if the plan writes nothing.
    pub fn is_rest(&self) -> bool {
        self.intents.iter().all(|intent| matches!(intent, Intent::Expect(..)))
    }
}

/// Commits a plan. Updates that change nothing are left out. A plan without any other write
/// commits nothing and returns `None`.
///
/// # Errors
/// A guard failed ([`insula_catalog::Error::Conflict`]: decide again on a fresh snapshot), an
/// object is malformed, or the store refused the commit.
pub fn commit<'a>(deps: &'a Deps, plan: &'a Plan) -> BoxFuture<'a, Result<Option<Revision>>> {
    Box::pin(async move {
        let (mut guards, mut writes) = (Vec::new(), Vec::new());
        for intent in &plan.intents {
            match intent {
                Intent::Create(key, value) => {
                    guards.push(Guard::Absent(key.clone()));
                    writes.push(Write::Put(key.clone(), Arc::new(stamp(deps, key, value.clone())?)));
                }
                Intent::Update(old, value) => {
                    let object = rewrite(&old.object, value)?;
                    if object == *old.object {
                        continue;
                    }
                    guards.push(Guard::At(old.key.clone(), old.revision));
                    let gone = object.meta.is_deleting()
                        && object.meta.finalizers.is_empty()
                        && !is_held(deps, &old.key, value);
                    writes.push(match gone {
                        true => Write::Delete(old.key.clone()),
                        false => Write::Put(old.key.clone(), Arc::new(object)),
                    });
                }
                Intent::Rewrite(old, object) => {
                    if **object == *old.object {
                        continue;
                    }
                    guards.push(Guard::At(old.key.clone(), old.revision));
                    writes.push(Write::Put(old.key.clone(), object.clone()));
                }
                Intent::Delete(old) => {
                    guards.push(Guard::At(old.key.clone(), old.revision));
                    writes.push(Write::Delete(old.key.clone()));
                }
                Intent::Expect(key, None) => guards.push(Guard::Absent(key.clone())),
                Intent::Expect(key, Some(revision)) => guards.push(Guard::At(key.clone(), *revision)),
                Intent::Sign(register) => {
                    let (guard, write) = register.written()?;
                    guards.push(guard);
                    writes.push(write);
                }
            }
        }
        if writes.is_empty() {
            return Ok(None);
        }
        deps.store
            .commit(Txn { guards, writes })
            .await
            .map(Some)
            .map_err(commit_error)
    })
}

/// Returns a new object with the metadata that every object has. Fields that the reconciler set
/// stay, such as a UID that other objects refer to.
pub(crate) fn stamp(deps: &Deps, key: &ObjectKey, mut value: Json) -> Result<Object> {
    let metadata = insula_catalog::object::metadata_of(&mut value);
    metadata.insert("name".into(), json!(&*key.name));
    if !key.namespace.is_empty() {
        metadata.insert("namespace".into(), json!(&*key.namespace));
    }
    metadata
        .entry("uid")
        .or_insert_with(|| json!(Uid::random(&*deps.rng).to_string()));
    metadata
        .entry("creationTimestamp")
        .or_insert_with(|| json!(deps.clock.now().to_string()));
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    annotations[CLUSTER_ANNOTATION] = json!(key.cluster.as_str());
    let served = deps.catalog.system().get(&key.resource.group, &key.resource.resource);
    if served.is_some_and(|served| served.api.strategy.traits().generation) {
        insula_catalog::object::metadata_of(&mut value)
            .entry("generation")
            .or_insert_with(|| json!(1));
    }
    Object::new(&value, None)
        .map(|object| object.written_under(written_under(deps, key)))
        .map_err(|error| insula_catalog::Error::Internal(format!("{key:?}: {error}")))
}

fn is_held(deps: &Deps, key: &ObjectKey, value: &Json) -> bool {
    let served = deps.catalog.system().get(&key.resource.group, &key.resource.resource);
    served.is_some_and(|served| served.api.strategy.is_held(value))
}

/// Returns the schema mark of objects that reconcilers create. They write built-in and internal
/// kinds.
fn written_under(deps: &Deps, key: &ObjectKey) -> u64 {
    let served = deps.catalog.system().get(&key.resource.group, &key.resource.resource);
    served.map_or(0, |served| served.api.fingerprint)
}
