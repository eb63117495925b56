//! Delete: mark what something still holds, remove the rest.

use super::{
    admit::Admission,
    write::{WriteOptions, commit_error},
};
use crate::{Error, ListOptions, OnDelete, Part, Registry, Result, Target, admission::Operation, before};
use insula_api::{Json, Object};
use insula_store::{CommitError, Entry, Guard, Txn, Write};
use serde_json::json;
use std::sync::Arc;

const ATTEMPTS_MAX: usize = 8;

/// What becomes of objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// They are deleted afterwards.
    #[default]
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// What must hold of the object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub revision: Option<String>,
}

/// How to delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// What must hold.
    pub preconditions: Preconditions,
    /// What becomes of dependents.
    pub propagation: Propagation,
}

/// What DELETE did.
#[derive(Debug)]
pub enum Deleted {
    /// The object is gone; this is how it was.
    Gone(Entry),
    /// Something holds it; this is how it is now.
    Held(Entry),
}

/// What DELETE did, and what its sender should know.
#[derive(Debug)]
pub struct Deletion {
    /// What it did.
    pub deleted: Deleted,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

impl Registry {
    /// Deletes an object. Never converts: an object that no version can show can still be deleted.
    pub async fn delete(
        &self,
        target: &Target,
        name: &str,
        how: &DeleteOptions,
        options: &WriteOptions<'_>,
    ) -> Result<Deletion> {
        for _ in 0..ATTEMPTS_MAX {
            let snapshot = self.store.latest();
            let old = self.get(&snapshot, target, name)?;
            check_preconditions(target, &how.preconditions, &old)?;
            let admission = Admission {
                snapshot: &snapshot,
                target,
                options,
                operation: Operation::Delete,
                part: Part::Main,
                name,
                old: Some(&old),
            };
            let warnings = self.admit(&admission, None)?;
            let done = |deleted| Ok(Deletion { deleted, warnings });
            let marked = self.mark(target, &old, how)?;
            if options.dry_run {
                return done(match marked {
                    Some(object) => Deleted::Held(Entry {
                        object: Arc::new(object),
                        ..old
                    }),
                    None => Deleted::Gone(old),
                });
            }
            let (write, object) = match marked {
                Some(object) if object == *old.object => return done(Deleted::Held(old)),
                Some(object) => {
                    let object = Arc::new(object);
                    (Write::Put(old.key.clone(), object.clone()), Some(object))
                }
                None => (Write::Delete(old.key.clone()), None),
            };
            let guards = vec![Guard::At(old.key.clone(), old.revision)];
            match self
                .store
                .commit(Txn {
                    guards,
                    writes: vec![write],
                })
                .await
            {
                Ok(revision) => {
                    return done(match object {
                        Some(object) => Deleted::Held(Entry {
                            object,
                            revision,
                            ..old
                        }),
                        None => Deleted::Gone(old),
                    });
                }
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(commit_error(error)),
            }
        }
        Err(target.served.api.modified(name))
    }

    /// Deletes what a list selects, and answers with the list as it was and what the sender should know.
    pub async fn delete_collection(
        &self,
        target: &Target,
        list: &ListOptions,
        how: &DeleteOptions,
        options: &WriteOptions<'_>,
    ) -> Result<(super::List, Vec<String>)> {
        let snapshot = self.store.latest();
        let found = self.list(&snapshot, target, list)?;
        let mut warnings = Vec::new();
        for entry in &found.entries {
            let one = Target {
                namespace: Some(entry.key.namespace.clone()),
                ..target.clone()
            };
            match self.delete(&one, &entry.key.name, how, options).await {
                Ok(deletion) => warnings.extend(deletion.warnings),
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((found, warnings))
    }

    /// The object marked as deleting, if anything holds it. Works on the stored JSON, whatever its version.
    fn mark(&self, target: &Target, old: &Entry, how: &DeleteOptions) -> Result<Option<Object>> {
        let now = self.clock.now();
        let mut value = old.object.body_value();
        let hold = target.served.api.strategy.on_delete(&mut value, now);
        if how.propagation == Propagation::Background {
            // Whoever waits for dependents to be let go need not any more.
            let finalizers = before::metadata_of(&mut value)
                .get_mut("finalizers")
                .and_then(Json::as_array_mut);
            finalizers
                .into_iter()
                .for_each(|list| list.retain(|finalizer| finalizer != "orphan"));
        }
        let finalizers = value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if hold == OnDelete::Go && !finalizers {
            return Ok(None);
        }
        let metadata = before::metadata_of(&mut value);
        if !old.object.meta.is_deleting() {
            metadata.insert("deletionTimestamp".into(), json!(now.to_string()));
            let traits = target.served.api.strategy.traits();
            if !traits.own_deletion {
                metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
            }
            if traits.generation && !traits.own_deletion {
                metadata.insert("generation".into(), json!(old.object.meta.generation + 1));
            }
        }
        rewrite(&old.object, &value).map(Some)
    }
}

/// The same object with other JSON in the same version: residual and schema mark stay.
pub(crate) fn rewrite(old: &Object, value: &Json) -> Result<Object> {
    Object::new(value, old.residual().cloned())
        .map(|object| object.written_under(old.schema()))
        .map_err(|error| Error::Internal(error.to_string()))
}

fn check_preconditions(target: &Target, want: &Preconditions, old: &Entry) -> Result<()> {
    let api = &target.served.api;
    let own = api.strategy.traits().own_deletion;
    let subject = if own { api.named() } else { api.kind() };
    let conflict = |detail: String| {
        let name = old.key.name.to_string();
        Err(Error::Conflict {
            resource: subject.clone(),
            name,
            detail,
        })
    };
    let checks = [
        (
            "UID",
            &want.uid,
            old.object.meta.uid.to_string(),
            "The object might have been deleted and then recreated",
        ),
        (
            "ResourceVersion",
            &want.revision,
            old.revision.to_string(),
            "The object might have been modified",
        ),
    ];
    for (field, want, is, guess) in checks {
        match want {
            Some(want) if *want != is && own => {
                return conflict(format!(
                    "Precondition failed: {field} in precondition: {want}, {field} in object meta: {is}"
                ));
            }
            Some(want) if *want != is => {
                return conflict(format!(
                    "the {field} in the precondition ({want}) does not match the {field} in record ({is}). {guess}"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}
