//! The in-process client of controllers: a plan of writes, prepared like any other and committed as
//! one transaction.

use crate::{Registry, verbs};
use insula_api::{Json, Object, ObjectKey, Revision, Uid};
use insula_catalog::{
    Result, SerializationPoint,
    object::{CLUSTER_ANNOTATION, rewrite},
};
use insula_store::{Entry, Guard, Txn, Write};
use serde_json::json;
use std::sync::Arc;

/// One wish of a reconciler about one object, in its storage version.
#[derive(Debug, Clone)]
pub enum Intent {
    /// It must not exist yet.
    Create(ObjectKey, Json),
    /// It is still as it was seen.
    Update(Entry, Json),
    /// It is still as it was seen. The object in the place of the stored one, version and residual
    /// included.
    Rewrite(Entry, Arc<Object>),
    /// It is still as it was seen.
    Delete(Entry),
    /// Nothing is written, but it must still be as it was seen (`None`: absent).
    Expect(ObjectKey, Option<Revision>),
    /// A decision about all that this is the register of.
    Sign(SerializationPoint),
}

/// What a reconciler decided: all of it happens at one revision, or nothing.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The wishes.
    pub intents: Vec<Intent>,
    /// Look again after so many seconds even if nothing happens.
    pub again_after: Option<u64>,
}

impl Plan {
    /// Nothing to do.
    pub fn rest() -> Self {
        Plan::default()
    }

    /// What is to be done now, with nothing to look at again later.
    pub fn of(intents: Vec<Intent>) -> Self {
        Plan {
            intents,
            again_after: None,
        }
    }

    /// Whether it writes nothing.
    pub fn is_rest(&self) -> bool {
        self.intents.iter().all(|intent| matches!(intent, Intent::Expect(..)))
    }
}

impl Registry {
    /// Commits a plan. Updates that change nothing are left out; a plan of nothing else commits
    /// nothing and answers `None`. Conflicts come back as [`insula_catalog::Error::Conflict`]:
    /// decide again on a fresh snapshot.
    pub async fn apply(&self, plan: &Plan) -> Result<Option<Revision>> {
        let (mut guards, mut writes) = (Vec::new(), Vec::new());
        for intent in &plan.intents {
            match intent {
                Intent::Create(key, value) => {
                    guards.push(Guard::Absent(key.clone()));
                    writes.push(Write::Put(key.clone(), Arc::new(self.stamp(key, value.clone())?)));
                }
                Intent::Update(old, value) => {
                    let object = self.restamp(old, value)?;
                    if object == *old.object {
                        continue;
                    }
                    guards.push(Guard::At(old.key.clone(), old.revision));
                    let gone =
                        object.meta.is_deleting() && object.meta.finalizers.is_empty() && !self.held(&old.key, value);
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
        self.store
            .commit(Txn { guards, writes })
            .await
            .map(Some)
            .map_err(verbs::commit_error)
    }

    /// A new object with the metadata that every object has. Fields that the reconciler set (a UID
    /// that others refer to) stay.
    fn stamp(&self, key: &ObjectKey, mut value: Json) -> Result<Object> {
        let metadata = insula_catalog::object::metadata_of(&mut value);
        metadata.insert("name".into(), json!(&*key.name));
        if !key.namespace.is_empty() {
            metadata.insert("namespace".into(), json!(&*key.namespace));
        }
        metadata
            .entry("uid")
            .or_insert_with(|| json!(Uid::random(&*self.rng).to_string()));
        metadata
            .entry("creationTimestamp")
            .or_insert_with(|| json!(self.clock.now().to_string()));
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[CLUSTER_ANNOTATION] = json!(key.cluster.as_str());
        let served = self.catalog.system().get(&key.resource.group, &key.resource.resource);
        if served.is_some_and(|served| served.api.strategy.traits().generation) {
            insula_catalog::object::metadata_of(&mut value)
                .entry("generation")
                .or_insert_with(|| json!(1));
        }
        Object::new(&value, None)
            .map(|object| object.written_under(self.written_under(key)))
            .map_err(|error| insula_catalog::Error::Internal(format!("{key:?}: {error}")))
    }

    /// A changed object: still in the version it was stored in, under the schema mark it had.
    fn restamp(&self, old: &Entry, value: &Json) -> Result<Object> {
        rewrite(&old.object, value)
    }

    fn held(&self, key: &ObjectKey, value: &Json) -> bool {
        let served = self.catalog.system().get(&key.resource.group, &key.resource.resource);
        served.is_some_and(|served| served.api.strategy.is_held(value))
    }

    /// The schema mark of objects that reconcilers make: they write built-in kinds and internal
    /// ones.
    fn written_under(&self, key: &ObjectKey) -> u64 {
        let served = self.catalog.system().get(&key.resource.group, &key.resource.resource);
        served.map_or(0, |served| served.api.fingerprint)
    }
}
