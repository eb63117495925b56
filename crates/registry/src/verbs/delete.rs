//! Delete: marks objects that finalizers or their strategy hold, and removes all others.

use super::{
    admit::{self, Admission},
    check::{check_not_terminating, check_thawed},
    commit::{ATTEMPTS_MAX, commit_error},
    options::WriteOptions,
    page::{List, ListOptions},
    read,
};
use crate::{
    built_in_rbac, calls,
    deps::Deps,
    ended, grace,
    metadata::{FOREGROUND, ORPHAN},
    representation::prefetch,
};
use futures_util::future::{BoxFuture, join_all};
use insula_access::Target;
use insula_admission::{kinds::Operation, policy::WriteBudget};
use insula_api::{Json, Object, Revision, Timestamp, Verb};
use insula_catalog::{
    Error, OnDelete, Part, Result, Strategy, ids,
    object::{metadata_of, rewrite},
    stored,
};
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use serde_json::json;
use std::sync::Arc;

/// Maximum concurrent deletions of a collection. Concurrent commits share the disk's flushes.
const DELETIONS_AT_ONCE: usize = 16;

/// The treatment of a deleted object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// The preconditions of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub revision: Option<String>,
}

/// The options of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// The preconditions.
    pub preconditions: Preconditions,
    /// The treatment of dependents. If it is unset, the object's finalizers decide, and without
    /// finalizers the dependents are deleted afterwards.
    pub propagation: Option<Propagation>,
    /// Seconds for which the deletion may be taken back, at most those of the setting. `None` means
    /// the setting. Only workspaces and APIBindings have such a time.
    pub grace_seconds: Option<u64>,
}

/// The outcome of a deletion.
#[derive(Debug)]
pub enum Deleted {
    /// The object is gone; this is how it was.
    Gone(Entry),
    /// The object is marked as deleting; this is how it is now.
    Held(Entry),
}

/// The outcome of a deletion, with warnings.
#[derive(Debug)]
pub struct Deletion {
    /// The outcome.
    pub deleted: Deleted,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// Deletes an object. Needs no conversion by rules, so an object that no version can show can still
/// be deleted. A conversion webhook is called first, as in Kubernetes.
///
/// # Errors
/// The object does not exist, a precondition does not hold, admission refuses, the webhook cannot
/// convert the object, or the store refuses the commit.
pub fn delete<'a>(
    deps: &'a Deps,
    target: &'a Target,
    name: &'a str,
    how: &'a DeleteOptions,
    options: &'a WriteOptions<'_>,
) -> BoxFuture<'a, Result<Deletion>> {
    Box::pin(async move {
        let target = &*calls::attach_for_write(deps, target);
        let budget = &WriteBudget::new(&target.served.meter);
        calls::run_until_resolved(target, || delete_once(deps, target, name, how, options, budget)).await
    })
}

/// Runs a deletion once. Policies may request the object in another version.
async fn delete_once(
    deps: &Deps,
    target: &Target,
    name: &str,
    how: &DeleteOptions,
    options: &WriteOptions<'_>,
    budget: &WriteBudget,
) -> Result<Deletion> {
    check_not_terminating(target, name, Verb::Delete)?;
    for _ in 0..ATTEMPTS_MAX {
        let snapshot = deps.store.latest().charged_to(&target.served.meter);
        let thawed = check_thawed(&snapshot, target, (name, Verb::Delete), options.user)?;
        let old = read::get_stored(deps, &snapshot, target, name)?;
        check_webhook(target, &old)?;
        check_preconditions(target, &how.preconditions, &old)?;
        let admission = Admission {
            snapshot: &snapshot,
            target,
            options,
            operation: Operation::Delete,
            part: Part::Main,
            name,
            old: Some(&old),
            budget,
        };
        let warnings = admit::admit(deps, &admission, None)?;
        target.served.check_answers()?;
        let marked = mark(deps, &snapshot, target, &old, how)?;
        let kept = marked.as_ref().and_then(|object| kept_warning(target, object));
        let warnings = warnings.into_iter().chain(kept).collect();
        let done = |deleted| Ok(Deletion { deleted, warnings });
        if options.dry_run {
            let revision = old.revision;
            return done(outcome(old, marked.map(Arc::new), revision));
        }
        let (write, object) = match marked {
            Some(object) if object == *old.object => return done(Deleted::Held(old)),
            Some(object) => {
                let object = Arc::new(object);
                (Write::Put(old.key.clone(), object.clone()), Some(object))
            }
            None => (Write::Delete(old.key.clone()), None),
        };
        let mut guards = vec![Guard::At(old.key.clone(), old.revision)];
        guards.extend(target.hold(&snapshot, None)?.into_iter().chain(thawed));
        let mut txn = Txn {
            guards,
            writes: vec![write],
        };
        let ended = ended::by_rules(deps, &snapshot, target, &old.key, (Some(&old.object), None))?;
        ended.join(deps, &target.served, &mut txn).await?;
        match deps.store.commit(txn).await {
            Ok(revision) => return done(outcome(old, object, revision)),
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(target.served.api.modified(name))
}

/// Returns the outcome for an object that is marked as deleting at a revision, or that is gone.
fn outcome(old: Entry, marked: Option<Arc<Object>>, revision: Revision) -> Deleted {
    match marked {
        Some(object) => Deleted::Held(Entry {
            object,
            revision,
            ..old
        }),
        None => Deleted::Gone(old),
    }
}

/// Deletes the objects that a list selects. Returns the list as it was, with warnings.
///
/// # Errors
/// The list fails, or a deletion fails for a reason other than an absent object. Earlier
/// deletions stay.
pub fn delete_collection<'a>(
    deps: &'a Deps,
    target: &'a Target,
    list: &'a ListOptions,
    how: &'a DeleteOptions,
    options: &'a WriteOptions<'_>,
) -> BoxFuture<'a, Result<(List, Vec<String>)>> {
    Box::pin(async move {
        check_not_terminating(target, "", Verb::DeleteCollection)?;
        let snapshot = deps.store.latest().charged_to(&target.served.meter);
        check_thawed(&snapshot, target, ("", Verb::DeleteCollection), options.user)?;
        let mut found = read::list(deps, &snapshot, target, list).await?;
        found.entries.retain(|entry| !built_in_rbac::is_one(entry));
        if target.served.api.webhook.is_some() {
            let target = calls::attach(deps, target);
            prefetch(&target, found.entries.iter()).await;
            found
                .entries
                .iter()
                .try_for_each(|entry| check_webhook(&target, entry))?;
        }
        let mut warnings = Vec::new();
        for together in found.entries.chunks(DELETIONS_AT_ONCE) {
            let deletions = together.iter().map(|entry| async {
                let one = target.clone().in_namespace(entry.key.namespace.clone());
                delete(deps, &one, &entry.key.name, how, options).await
            });
            for deleted in join_all(deletions).await {
                match deleted {
                    Ok(deletion) => warnings.extend(deletion.warnings),
                    Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((found, warnings))
    })
}

/// Fails if a webhook cannot convert an object to the request's version. In Kubernetes, a failing
/// webhook fails every verb (kubernetes-crd.md, conversion). The stored version needs no webhook.
/// Controllers delete without this check, so a workspace whose webhook is gone can be deleted.
fn check_webhook(target: &Target, old: &Entry) -> Result<()> {
    match target.served.api.webhook {
        Some(_) => stored::value(&target.served, old, &target.version).map(drop),
        None => Ok(()),
    }
}

fn mark(deps: &Deps, snapshot: &Snapshot, target: &Target, old: &Entry, how: &DeleteOptions) -> Result<Option<Object>> {
    let (strategy, now) = (target.served.api.strategy, deps.clock.now());
    let marked = mark_deleted(&old.object, strategy, how.propagation, now);
    let with_grace = |mut value: Json| {
        if let Some(setting) = grace::setting(deps, snapshot, old) {
            let seconds = (setting, how.grace_seconds);
            grace::set(&mut value, &old.object.meta, seconds, &*deps.clock);
        }
        rewrite(&old.object, &value)
    };
    marked.map(with_grace).transpose()
}

/// Returns the warning for those who delete an APIBinding that stays for a grace period: a client
/// may wait for the end of it.
fn kept_warning(target: &Target, marked: &Object) -> Option<String> {
    let end = marked.meta.deletion_timestamp.filter(|_| marked.meta.deletion_grace)?;
    let name = &marked.meta.name;
    (target.served.resource_id() == ids::apibindings()).then(|| {
        format!(
            "the objects of APIBinding {name:?} are kept until {end}: `insula unbind {name} --undelete` takes the \
             deletion back, and `insula unbind {name} --now` ends the wait"
        )
    })
}

/// Returns the object marked as deleting, or `None` if nothing holds it. Works on the stored JSON
/// in any version.
pub fn mark_deleted(
    old: &Object,
    strategy: &dyn Strategy,
    propagation: Option<Propagation>,
    now: Timestamp,
) -> Option<Json> {
    let mut value = old.body_value();
    let hold = strategy.on_delete(&mut value, now);
    let metadata = metadata_of(&mut value);
    if let Some(propagation) = propagation {
        wait_for_dependents(metadata, propagation);
    }
    let held = metadata.get("finalizers").and_then(Json::as_array);
    if hold == OnDelete::Go && held.is_none_or(Vec::is_empty) {
        return None;
    }
    if !old.meta.is_deleting() {
        let traits = strategy.traits();
        metadata.insert("deletionTimestamp".into(), json!(now.to_string()));
        if !traits.own_deletion {
            metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
        }
        if traits.generation && !traits.own_deletion {
            metadata.insert("generation".into(), json!(old.meta.generation + 1));
        }
    }
    Some(value)
}

/// Sets the finalizer of a propagation policy after the others and removes those of other policies.
fn wait_for_dependents(metadata: &mut serde_json::Map<String, Json>, propagation: Propagation) {
    let own = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    if own.is_none() && !metadata.contains_key("finalizers") {
        return;
    }
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(finalizers) = finalizers.as_array_mut() {
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        finalizers.extend(own.map(|own| json!(own)));
    }
    if metadata["finalizers"].as_array().is_some_and(Vec::is_empty) {
        metadata.remove("finalizers");
    }
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
