//! Create: preparation, admission, and a commit under guards.

use super::{
    admit::{self, Admission},
    check::{check_not_terminating, check_thawed, check_type},
    commit::{commit_error, next_target},
    options::{WriteOptions, Written},
    strict::{UnknownFields, check_fields},
};
use crate::{
    calls,
    context::{By, Context},
    deps::Deps,
    draft::Draft,
    ended,
    heavy::{self, WriteTurn},
    metadata, prepare,
};
use futures_util::future::BoxFuture;
use insula_access::Target;
use insula_admission::{kinds::Operation, object_limit, policy::WriteBudget, quota, storage_limit};
use insula_api::{Json, Object, ObjectKey, Revision, Verb};
use insula_catalog::{
    ApiVersion, Cause, Error, Named, Origin, Part, Result, ScopeKind, SerializationPoint, ids, object,
};
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use std::{borrow::Cow, sync::Arc};

/// Maximum names tried for a `generateName`.
const NAMES_MAX: usize = 8;

/// The limits that count a new object.
struct Limits {
    quotas: Vec<Entry>,
    /// The object limit of the workspace.
    object_limit: Option<u64>,
}

/// A creation at one state of the store.
struct Attempt<'a> {
    deps: &'a Deps,
    target: &'a Target,
    version: &'a ApiVersion,
    options: &'a WriteOptions<'a>,
    by: By<'a>,
    snapshot: &'a Snapshot,
    budget: &'a WriteBudget,
}

/// A prepared and admitted object.
struct Prepared {
    key: ObjectKey,
    draft: Draft,
    beside: Beside,
}

/// The rest of a creation's transaction.
struct Beside {
    guards: Vec<Guard>,
    /// Quotas that count the object.
    charged: Vec<(Guard, Write)>,
    /// The serialization point of creations under the workspace's object limit.
    limited: Option<SerializationPoint>,
}

/// Creates an object.
///
/// # Errors
/// The body is malformed or invalid, the name is taken, admission or a quota refuses, or the
/// store refuses the commit.
pub fn create<'a>(
    deps: &'a Deps,
    target: &'a Target,
    body: Json,
    options: &'a WriteOptions<'_>,
) -> BoxFuture<'a, Result<Written>> {
    Box::pin(async move {
        let by = By::Update(&options.manager);
        let target = &*calls::attach_for_write(deps, target);
        let budget = &WriteBudget::new(&target.served.meter);
        if target.served.pending_calls.is_none() {
            return create_owned(deps, target, body, options, by, budget).await;
        }
        calls::run_until_resolved(target, || create_owned(deps, target, body.clone(), options, by, budget)).await
    })
}

pub(super) async fn create_owned(
    deps: &Deps,
    target: &Target,
    mut body: Json,
    options: &WriteOptions<'_>,
    by: By<'_>,
    budget: &WriteBudget,
) -> Result<Written> {
    check_type(target, &body)?;
    metadata::drop_shown_labels(&mut body);
    let unknown = check_fields(target, &body, options, UnknownFields::Create)?;
    // Kubernetes' store refuses it, which a dry run does not reach.
    if !options.dry_run {
        check_no_revision(&body).map_err(|refusal| refusal.warned(unknown.clone()))?;
    }
    match create_checked(deps, target, body, by, (options, budget)).await {
        Ok(mut written) => {
            written.warnings = [unknown, written.warnings].concat();
            Ok(written)
        }
        Err(refusal) => Err(refusal.warned(unknown)),
    }
}

async fn create_checked(
    deps: &Deps,
    target: &Target,
    mut body: Json,
    by: By<'_>,
    (options, budget): (&WriteOptions<'_>, &WriteBudget),
) -> Result<Written> {
    let mut warnings = Vec::new();
    let mut target = Cow::Borrowed(target);
    let generated = body["metadata"]["name"].as_str().unwrap_or_default().is_empty();
    let mut spare = (generated || !is_restorable(&target)).then(|| body.clone());
    let mut last = Error::Internal("no attempt was made".into());
    for _ in 0..NAMES_MAX {
        let _turn = turn(deps, &target, options).await;
        heavy::spend(&target.served, options.body_bytes)?;
        let (snapshot, limits, lock) = limits(deps, &target).await;
        let attempt = Attempt {
            deps,
            target: &target,
            version: target.api_version()?,
            options,
            by,
            snapshot: &snapshot,
            budget,
        };
        let Prepared { key, mut draft, beside } = attempt.prepare(&mut body, &mut spare, limits, &mut warnings)?;
        if let Some(found) = snapshot.get(&key) {
            last = name_taken(&target, &found, generated);
            if !generated {
                return Err(last);
            }
            body = spare.clone().unwrap_or_default();
            continue;
        }
        warnings.append(&mut draft.warnings);
        if options.dry_run {
            // The cluster annotation names the object's place, and a dry run stores it nowhere.
            object::unplace(&mut draft.value);
        }
        let (object, shown) = draft.finish(&target.served)?;
        let object = Arc::new(object);
        attempt.check(&key.name, &object)?;
        if options.dry_run {
            return Ok(written(key, object, Revision(0), warnings));
        }
        let mut txn = attempt.transaction(&key, &object, beside)?;
        let ended = ended::by_rules(deps, &snapshot, &target, &key, (None, Some(&object)))?;
        ended.join(deps, &target.served, &mut txn).await?;
        let committed = deps.store.commit(txn).await;
        drop(lock);
        match committed {
            Ok(revision) => {
                let written = written(key, object, revision, warnings);
                deps.cache.keep(&target, &written.entry, shown);
                return Ok(written);
            }
            // The name was taken, or the namespace, the route or the workspace changed: try again.
            Err(CommitError::Conflict { key: changed, .. }) => {
                body = spare.clone().or(shown).unwrap_or_else(|| object.body_value());
                last = target.served.api.modified(&key.name);
                match next_target(deps, target, &changed) {
                    Some(next) => target = next,
                    None => return Err(last),
                }
            }
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(last)
}

/// Waits for the turn of a creation with a large body.
async fn turn<'d>(deps: &'d Deps, target: &Target, options: &WriteOptions<'_>) -> Option<WriteTurn<'d>> {
    let now = deps.store.latest();
    deps.heavy.turn(now, &target.cluster, options.body_bytes).await
}

/// Returns true if the sent body can be restored from the prepared object after a failed attempt,
/// which is rare: from its stored form, or from that in the request's version. All other bodies
/// are copied, because strategies and admission may have changed them.
fn is_restorable(target: &Target) -> bool {
    let served = &target.served;
    let is_stored = served.origin != Origin::System && target.version == served.api.storage_version().name;
    is_stored || prepare::is_shown_as_written(served, &target.version)
}

impl Attempt<'_> {
    /// Prepares and admits the object, which it takes from `body`. Keeps a copy in `spare` if
    /// mutating policies may change it.
    fn prepare(
        &self,
        body: &mut Json,
        spare: &mut Option<Json>,
        limits: Limits,
        warnings: &mut Vec<String>,
    ) -> Result<Prepared> {
        let Attempt {
            deps,
            target,
            version,
            options,
            by,
            snapshot,
            budget,
        } = *self;
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut guards = surroundings(snapshot, target, &name)?;
        // The guard on the workspace is among the others.
        check_thawed(snapshot, target, (&name, Verb::Create), options.user)?;
        let limited = limits
            .object_limit
            .map(|limit| object_limit::settle(&deps.catalog, snapshot, target, &name, limit))
            .transpose()?;
        let context = Context::new(deps, target, version, Part::Main, by);
        let admission = Admission {
            snapshot,
            target,
            options,
            operation: Operation::Create,
            part: Part::Main,
            name: &name,
            old: None,
            budget,
        };
        if let Some(mutations) = admit::mutations(deps, &admission) {
            // Policies change the sent object.
            spare.get_or_insert_with(|| body.clone());
            prepare::complete(&context, body);
            warnings.extend(mutations.apply(body)?);
        }
        let mut draft = prepare::create(&context, std::mem::take(body))?;
        guards.extend(target.hold(snapshot, Some(draft.written_object()))?);
        let key = target.key(draft.value["metadata"]["name"].as_str().unwrap_or_default());
        let admission = Admission {
            name: &key.name,
            ..admission
        };
        warnings.extend(admit::admit(deps, &admission, Some(&mut draft))?);
        let charged = quota::charge(&deps.catalog, snapshot, target, &key.name, limits.quotas)?;
        let beside = Beside {
            guards,
            charged,
            limited,
        };
        Ok(Prepared { key, draft, beside })
    }

    /// Checks what only the finished object shows.
    fn check(&self, name: &str, object: &Object) -> Result<()> {
        let (limits, snapshot, target) = (&self.deps.storage, self.snapshot, self.target);
        target.served.check_answers()?;
        storage_limit::check(limits, snapshot, target, (None, object))?;
        storage_limit::check_owner(limits, snapshot, target, name, self.options.user)
    }

    /// Returns the transaction that creates the object.
    fn transaction(&self, key: &ObjectKey, object: &Arc<Object>, beside: Beside) -> Result<Txn> {
        let Beside {
            mut guards,
            mut charged,
            limited,
        } = beside;
        guards.push(Guard::Absent(key.clone()));
        charged.extend(quota::announced(self.snapshot, self.target, object, None)?);
        charged.extend(limited.map(|limited| limited.written()).transpose()?);
        let (held, others): (Vec<Guard>, Vec<Write>) = charged.into_iter().unzip();
        guards.extend(held);
        let own = Write::Put(key.clone(), object.clone());
        let writes = std::iter::once(own).chain(others).collect();
        Ok(Txn { guards, writes })
    }
}

fn check_no_revision(body: &Json) -> Result<()> {
    match body["metadata"]["resourceVersion"].as_str() {
        None | Some("" | "0") => Ok(()),
        Some(_) => Err(Error::BadRequest(
            "resourceVersion should not be set on objects to be created".into(),
        )),
    }
}

fn name_taken(target: &Target, found: &Entry, generated: bool) -> Error {
    let (resource, name) = (target.served.api.named(), found.key.name.to_string());
    match generated {
        true => Error::NoFreeName { resource, name },
        false => Error::AlreadyExists {
            resource,
            name,
            deleting: found.object.meta.is_deleting(),
        },
    }
}

fn written(key: ObjectKey, object: Arc<Object>, revision: Revision, warnings: Vec<String>) -> Written {
    let created = revision;
    Written {
        entry: Entry {
            key,
            object,
            revision,
            created,
        },
        warnings,
    }
}

/// Returns the snapshot and limits of a creation, under the create lock if a limit applies. Of
/// concurrent creations under one limit all but one would conflict. They therefore wait for the
/// lock and take their snapshot under it.
async fn limits(deps: &Deps, target: &Target) -> (Snapshot, Limits, Option<quota::CreateLock>) {
    let look = || {
        let snapshot = deps.store.latest().charged_to(&target.served.meter);
        let limits = Limits {
            quotas: quota::limiting(&snapshot, target),
            object_limit: object_limit::of_target(deps.objects_per_workspace, &snapshot, target),
        };
        (snapshot, limits)
    };
    let (snapshot, limits) = look();
    let among = match limits.object_limit {
        Some(_) => Some("".into()),
        None => quota::place(target, &limits.quotas),
    };
    let Some(namespace) = among else {
        return (snapshot, limits, None);
    };
    let lock = deps.create_locks.take(&target.cluster, namespace).await;
    let (snapshot, limits) = look();
    (snapshot, limits, Some(lock))
}

/// Returns the guards of a creation: the workspace, the namespace and the resource's route must
/// not change.
fn surroundings(snapshot: &Snapshot, target: &Target, name: &str) -> Result<Vec<Guard>> {
    let api = &target.served.api;
    let mut guards = Vec::new();
    check_not_terminating(target, name, Verb::Create)?;
    if target.served.terminating {
        return Err(api.forbidden(
            name,
            "create not allowed while custom resource definition is terminating",
        ));
    }
    guards.extend(
        target
            .served
            .guard
            .iter()
            .map(|(key, revision)| Guard::At(key.clone(), *revision)),
    );
    if !target.cluster.is_system() {
        guards.push(open_workspace(snapshot, target, name)?);
    }
    if let Some(namespace) = &target.namespace
        && api.scope == ScopeKind::Namespaced
    {
        let key = ObjectKey::cluster_scoped(ids::namespaces(), target.cluster.clone(), namespace);
        let resource = Named {
            group: "".into(),
            resource: "namespaces".into(),
        };
        let Some(found) = snapshot.get(&key) else {
            return Err(Error::NotFound {
                resource,
                name: namespace.to_string(),
            });
        };
        if found.object.meta.is_deleting() {
            return Err(namespace_terminating(target, name, namespace));
        }
        guards.push(Guard::At(key, found.revision));
    }
    Ok(guards)
}

fn open_workspace(snapshot: &Snapshot, target: &Target, name: &str) -> Result<Guard> {
    let key = ids::logical_cluster(&target.cluster);
    match snapshot.get(&key) {
        Some(found) if !found.object.meta.is_deleting() => Ok(Guard::At(key, found.revision)),
        Some(_) => Err(target.served.api.forbidden(
            name,
            format!(
                "unable to create new content in workspace {} because it is being terminated",
                target.cluster
            ),
        )),
        None => Err(target
            .served
            .api
            .forbidden(name, format!("workspace {} does not exist", target.cluster))),
    }
}

fn namespace_terminating(target: &Target, name: &str, namespace: &str) -> Error {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = Cause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".into(),
    };
    Error::Forbidden {
        resource: target.served.api.named(),
        name: name.to_owned(),
        why,
        cause: Some(Box::new(cause)),
    }
}
