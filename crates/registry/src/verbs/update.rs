//! Update: replacement, patch or apply of a stored object, and a commit under guards.

use super::{
    admit::{self, Admission},
    change::{self, Change},
    check::{check_not_terminating, check_thawed, check_type, is_about_others},
    commit::{ATTEMPTS_MAX, commit_error, next_target},
    options::{WriteOptions, Written},
    read,
    strict::{UnknownFields, check_fields},
};
use crate::{
    calls,
    deps::Deps,
    ended,
    heavy::{self, WriteTurn},
    homes, unruled,
    uses::store_uses,
};
use futures_util::future::BoxFuture;
use insula_access::Target;
use insula_admission::{kinds::Operation, policy::WriteBudget, quota, storage_limit};
use insula_api::{Json, Object, Revision};
use insula_catalog::{Part, Result, ids};
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use std::{borrow::Cow, sync::Arc};

/// A changed and admitted object.
struct Changed {
    object: Arc<Object>,
    /// Its form in the request's version, if that differs.
    shown: Option<Json>,
    /// True if the change removes the last finalizer of a deleted object.
    gone: bool,
    /// The guard of a view scope's right to the object.
    right: Option<Guard>,
    warnings: Vec<String>,
}

/// Changes an object.
///
/// # Errors
/// The object does not exist, the change is malformed or invalid, the revision conflicts,
/// admission refuses, or the store refuses the commit.
pub fn update<'a>(
    deps: &'a Deps,
    target: &'a Target,
    name: &'a str,
    change: Change<'a>,
    part: Part,
    options: &'a WriteOptions<'_>,
) -> BoxFuture<'a, Result<Written>> {
    Box::pin(async move {
        let target = &*calls::attach_for_write(deps, target);
        if part == Part::Main && target.served.resource_id() == ids::apiexports() {
            // A version that goes with this change may be in use since a moment.
            store_uses(deps).await;
        }
        let budget = &WriteBudget::new(&target.served.meter);
        calls::run_until_resolved(target, || {
            update_once(deps, target, name, (&change, part), options, budget)
        })
        .await
    })
}

/// Runs an update once. The run is the last one if it leaves no call pending.
async fn update_once(
    deps: &Deps,
    target: &Target,
    name: &str,
    change: (&Change<'_>, Part),
    options: &WriteOptions<'_>,
    budget: &WriteBudget,
) -> Result<Written> {
    let mut noted = Vec::new();
    let written = update_noting(deps, target, name, change, (options, budget), &mut noted).await;
    written.map_err(|refusal| refusal.warned(noted))
}

/// Runs an update and collects in `noted` the warnings to return even if it fails.
async fn update_noting(
    deps: &Deps,
    target: &Target,
    name: &str,
    (change, part): (&Change<'_>, Part),
    (options, budget): (&WriteOptions<'_>, &WriteBudget),
    noted: &mut Vec<String>,
) -> Result<Written> {
    let unknown = check_body(target, change, options)?;
    let mut target = Cow::Borrowed(target);
    let mut attempt = 0;
    loop {
        attempt += 1;
        check_not_terminating(&target, name, change.verb())?;
        let _turn = turn(deps, &target, name, options).await;
        let snapshot = deps.store.latest().charged_to(&target.served.meter);
        let thawed = check_thawed(&snapshot, &target, (name, change.verb()), options.user)?;
        let old = read::get_stored(deps, &snapshot, &target, name)?;
        let admission = Admission {
            snapshot: &snapshot,
            target: &target,
            options,
            operation: Operation::Update,
            part,
            name,
            old: Some(&old),
            budget,
        };
        noted.clone_from(&unknown);
        heavy::spend(&target.served, options.body_bytes + old.object.body_len())?;
        let changed = prepare(deps, &admission, &old, change, noted)?;
        let (object, gone) = (changed.object.clone(), changed.gone);
        if *object == *old.object && !gone {
            return Ok(Written {
                entry: old,
                warnings: changed.warnings,
            });
        }
        if !gone {
            storage_limit::check(&deps.storage, &snapshot, &target, (Some(&old.object), &object))?;
        }
        if options.dry_run {
            return Ok(Written {
                entry: Entry { object, ..old },
                warnings: changed.warnings,
            });
        }
        let txn = transaction(&snapshot, &target, &old, &changed, thawed)?;
        match commit(deps, &snapshot, &target, (&old, &object), txn).await? {
            // An object that is gone after its last finalizer returns with its previous revision.
            Ok(revision) => {
                let revision = if gone { old.revision } else { revision };
                return Ok(done(deps, &target, (old, revision), changed).await);
            }
            Err(CommitError::Conflict { key, .. }) => {
                let refusal = target.served.api.modified(name);
                let again = attempt < ATTEMPTS_MAX && (change.may_retry() || is_about_others(&target, &key));
                match next_target(deps, target, &key).filter(|_| again) {
                    Some(next) => target = next,
                    None => return Err(refusal),
                }
            }
            Err(error) => return Err(commit_error(error)),
        }
    }
}

/// Commits an update, with what it changes of other objects.
async fn commit(
    deps: &Deps,
    snapshot: &Snapshot,
    target: &Target,
    (old, new): (&Entry, &Object),
    mut txn: Txn,
) -> Result<std::result::Result<Revision, CommitError>> {
    if let Some(conflict) = unruled::join(deps, snapshot, target, (old, new), &mut txn).await? {
        return Ok(Err(conflict));
    }
    let ended = ended::by_rules(deps, snapshot, target, &old.key, (Some(&old.object), Some(new)))?;
    ended.join(deps, &target.served, &mut txn).await?;
    Ok(deps.store.commit(txn).await)
}

/// Waits for the turn of an update of a large object, or with a large body.
async fn turn<'d>(deps: &'d Deps, target: &Target, name: &str, options: &WriteOptions<'_>) -> Option<WriteTurn<'d>> {
    let now = deps.store.latest();
    let present = now.get(&target.key(name)).map_or(0, |old| old.object.body_len());
    let bytes = options.body_bytes + present;
    deps.heavy.turn(now, &target.cluster, bytes).await
}

/// Returns the answer to a change that is committed at a revision.
async fn done(deps: &Deps, target: &Target, (old, revision): (Entry, Revision), changed: Changed) -> Written {
    let entry = Entry {
        object: changed.object,
        revision,
        key: old.key.clone(),
        created: old.created,
    };
    deps.cache.keep(target, &entry, changed.shown);
    homes::tell(deps, &target.served, &old).await;
    Written {
        entry,
        warnings: changed.warnings,
    }
}

/// Refuses a malformed body before any other check. Returns warnings of unknown fields.
fn check_body(target: &Target, change: &Change<'_>, options: &WriteOptions<'_>) -> Result<Vec<String>> {
    match change {
        Change::Replace(new) => {
            check_type(target, new)?;
            check_fields(target, new, options, UnknownFields::Create)
        }
        Change::Patch(_) | Change::Apply(..) => Ok(Vec::new()),
    }
}

/// Changes the old object and admits the result.
fn prepare(
    deps: &Deps,
    admission: &Admission<'_>,
    old: &Entry,
    change: &Change<'_>,
    noted: &mut Vec<String>,
) -> Result<Changed> {
    let Admission { snapshot, target, .. } = *admission;
    let mut draft = change::changed(deps, admission, old, change, noted)
        .map_err(|refusal| admit::explained(deps, admission, refusal))?;
    let right = target.hold(snapshot, Some(draft.written_object()))?;
    let mut warnings = noted.clone();
    warnings.extend(admit::admit(deps, admission, Some(&mut draft))?);
    warnings.append(&mut draft.warnings);
    ended::by_export(deps, admission, old, &mut draft);
    let is_held = target.served.api.strategy.is_held(&draft.value);
    let (object, shown) = draft.finish(&target.served)?;
    target.served.check_answers()?;
    Ok(Changed {
        gone: object.meta.is_deleting() && object.meta.finalizers.is_empty() && !is_held,
        object: Arc::new(object),
        shown,
        right,
        warnings,
    })
}

/// Returns the transaction of an update: the object must not have changed, nor the route and the
/// right that it was found by. `thawed` guards against a freeze.
fn transaction(
    snapshot: &Snapshot,
    target: &Target,
    old: &Entry,
    changed: &Changed,
    thawed: Option<Guard>,
) -> Result<Txn> {
    let (key, object) = (old.key.clone(), changed.object.clone());
    let mut guards = vec![Guard::At(key.clone(), old.revision)];
    guards.extend(thawed);
    guards.extend(changed.right.clone());
    let route = target.served.guard.as_ref();
    guards.extend(route.map(|(key, revision)| Guard::At(key.clone(), *revision)));
    let beside = quota::announced(snapshot, target, &object, Some(&old.object))?;
    let (held, others): (Vec<Guard>, Vec<Write>) = beside.into_iter().unzip();
    guards.extend(held);
    let write = match changed.gone {
        true => Write::Delete(key),
        false => Write::Put(key, object),
    };
    let writes = std::iter::once(write).chain(others).collect();
    Ok(Txn { guards, writes })
}
