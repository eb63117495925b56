//! Create and update: preparation, admission, and a commit under guards.

use super::admit::{self, Admission};
use super::change::{self, Change};
use super::check::{UnknownFields, check_fields, check_type};
use super::read;
use crate::{
    Deps, calls,
    owners::By,
    prepare::{self, Context},
};
use insula_access::Target;
use insula_admission::{kinds::Operation, object_limit, quota};
use insula_api::{Clock, Json, ObjectKey, Revision, Rng};
use insula_auth::{UserInfo, audit::Record};
use insula_catalog::{Error, Origin, Part, Result, ids, object};
use insula_store::{CommitError, Entry, Guard, Snapshot, Txn, Write};
use std::sync::Arc;

/// Maximum attempts of a write without a revision of the caller's. Each failed attempt is another
/// writer's success, so this many patches of one object may arrive at once.
pub(super) const ATTEMPTS_MAX: usize = 128;
/// Maximum names tried for a `generateName`.
const NAMES_MAX: usize = 8;

/// The treatment of fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drops them silently.
    Ignore,
    /// Drops them with a warning.
    #[default]
    Warn,
    /// Refuses the request.
    Strict,
}

/// The caller of a write, and its options.
#[derive(Debug, Clone)]
pub struct WriteOptions<'a> {
    /// The caller.
    pub user: &'a UserInfo,
    /// True to do everything except the commit.
    pub dry_run: bool,
    /// The treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Duplicate fields that the decoder found in the body.
    pub duplicates: Vec<String>,
    /// The field manager that owns the changed fields (`metadata.managedFields`); `unknown` if
    /// empty.
    pub manager: String,
    /// The audit record for annotations of policies and webhooks.
    pub record: Record,
}

/// The result of a write.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now. A dry run's creation has revision 0.
    pub entry: Entry,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// The limits that count a new object.
struct Limits {
    quotas: Vec<Entry>,
    /// The object limit of the workspace.
    object_limit: Option<u64>,
}

/// Creates an object.
///
/// # Errors
/// The body is malformed or invalid, the name is taken, admission or a quota refuses, or the
/// store refuses the commit.
pub async fn create(deps: &Deps, target: &Target, body: Json, options: &WriteOptions<'_>) -> Result<Written> {
    let by = By::Update(&options.manager);
    let target = &*calls::attach_for_write(deps, target);
    if target.served.questions.is_none() {
        return create_owned(deps, target, body, options, by).await;
    }
    calls::run_until_resolved(target, || create_owned(deps, target, body.clone(), options, by)).await
}

pub(super) async fn create_owned(
    deps: &Deps,
    target: &Target,
    body: Json,
    options: &WriteOptions<'_>,
    by: By<'_>,
) -> Result<Written> {
    check_type(target, &body)?;
    let unknown = check_fields(target, &body, options, UnknownFields::Create)?;
    match create_checked(deps, target, body, options, by).await {
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
    options: &WriteOptions<'_>,
    by: By<'_>,
) -> Result<Written> {
    let mut warnings = Vec::new();
    let generated = body["metadata"]["name"].as_str().unwrap_or_default().is_empty();
    let version = target.api_version()?;
    let user_asked = body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !user_asked.is_empty() && user_asked != "0" {
        return Err(Error::BadRequest(
            "resourceVersion should not be set on objects to be created".into(),
        ));
    }
    let api = &target.served.api;
    // A custom resource in its storage version can be restored from the prepared object after a
    // failed attempt, which is rare. All other bodies are copied, because strategies and
    // admission may have changed them.
    let readable = target.served.origin != Origin::System && version.name == api.storage_version().name;
    let mut spare = (generated || !readable).then(|| body.clone());
    let mut last = Error::Internal("no attempt was made".into());
    for _ in 0..NAMES_MAX {
        let (snapshot, limits, turn) = limits(deps, target).await;
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let mut guards = surroundings(&snapshot, target, name)?;
        let settled = match limits.object_limit {
            Some(limit) => Some(object_limit::settle(&deps.catalog, &snapshot, target, name, limit)?),
            None => None,
        };
        let context = context(deps, target, version, Part::Main, by);
        let named = name.to_owned();
        let admission = Admission {
            snapshot: &snapshot,
            target,
            options,
            operation: Operation::Create,
            part: Part::Main,
            name: &named,
            old: None,
        };
        if let Some(mutations) = admit::mutations(deps, &admission) {
            // Policies change the sent object.
            spare.get_or_insert_with(|| body.clone());
            prepare::complete(&context, &mut body);
            warnings.extend(mutations.apply(&mut body)?);
        }
        let mut draft = prepare::create(&context, std::mem::take(&mut body))?;
        guards.extend(target.hold(&snapshot, Some(draft.held()))?);
        let key = target.key(draft.value["metadata"]["name"].as_str().unwrap_or_default());
        let admission = Admission {
            name: &key.name,
            ..admission
        };
        warnings.extend(admit::admit(deps, &admission, Some(&mut draft))?);
        let mut beside = quota::charge(&deps.catalog, &snapshot, target, &key.name, limits.quotas)?;
        if let Some(found) = snapshot.get(&key) {
            if generated {
                last = Error::NoFreeName {
                    resource: api.named(),
                    name: key.name.to_string(),
                };
                body = spare.clone().unwrap_or_default();
                continue;
            }
            let deleting = found.object.meta.is_deleting();
            return Err(Error::AlreadyExists {
                resource: api.named(),
                name: key.name.to_string(),
                deleting,
            });
        }
        warnings.append(&mut draft.warnings);
        if options.dry_run {
            // The cluster annotation names the object's place, and a dry run stores it nowhere.
            object::unplace(&mut draft.value);
        }
        let (object, shown) = draft.finish(&target.served)?;
        let object = Arc::new(object);
        target.served.check_answers()?;
        if options.dry_run {
            let (revision, created) = (Revision(0), Revision(0));
            return Ok(Written {
                entry: Entry {
                    key,
                    object,
                    revision,
                    created,
                },
                warnings,
            });
        }
        guards.push(Guard::Absent(key.clone()));
        beside.extend(quota::announced(&snapshot, target, &object, None)?);
        if let Some(register) = settled {
            beside.push(register.written()?);
        }
        let (held, others): (Vec<Guard>, Vec<Write>) = beside.into_iter().unzip();
        guards.extend(held);
        let own = Write::Put(key.clone(), object.clone());
        let writes = std::iter::once(own).chain(others).collect();
        let committed = deps.store.commit(Txn { guards, writes }).await;
        drop(turn);
        match committed {
            Ok(revision) => {
                let entry = Entry {
                    key,
                    object,
                    revision,
                    created: revision,
                };
                deps.cache.keep(target, &entry, shown);
                return Ok(Written { entry, warnings });
            }
            // The name was taken, or the namespace, the route or the workspace changed: try
            // again.
            Err(CommitError::Conflict { .. }) => {
                last = api.modified(&key.name);
                body = spare.clone().unwrap_or_else(|| object.body_value());
            }
            Err(error) => return Err(commit_error(error)),
        }
    }
    Err(last)
}

/// Changes an object.
///
/// # Errors
/// The object does not exist, the change is malformed or invalid, the revision conflicts,
/// admission refuses, or the store refuses the commit.
pub async fn update(
    deps: &Deps,
    target: &Target,
    name: &str,
    change: Change<'_>,
    part: Part,
    options: &WriteOptions<'_>,
) -> Result<Written> {
    let target = &*calls::attach_for_write(deps, target);
    calls::run_until_resolved(target, || update_once(deps, target, name, &change, part, options)).await
}

/// Runs an update once. The run is the last one if it leaves no call pending.
async fn update_once(
    deps: &Deps,
    target: &Target,
    name: &str,
    change: &Change<'_>,
    part: Part,
    options: &WriteOptions<'_>,
) -> Result<Written> {
    let mut noted = Vec::new();
    let written = update_noting(deps, target, name, change, part, options, &mut noted).await;
    written.map_err(|refusal| refusal.warned(noted))
}

/// Runs an update and collects in `noted` the warnings to return even if it fails.
async fn update_noting(
    deps: &Deps,
    target: &Target,
    name: &str,
    change: &Change<'_>,
    part: Part,
    options: &WriteOptions<'_>,
    noted: &mut Vec<String>,
) -> Result<Written> {
    let api = &target.served.api;
    // A malformed body is refused before any other check.
    let unknown = match change {
        Change::Replace(new) => {
            check_type(target, new)?;
            check_fields(target, new, options, UnknownFields::Create)?
        }
        Change::Patch(_) | Change::Apply(..) => Vec::new(),
    };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let snapshot = deps.store.latest();
        let old = read::get(deps, &snapshot, target, name)?;
        let admission = Admission {
            snapshot: &snapshot,
            target,
            options,
            operation: Operation::Update,
            part,
            name,
            old: Some(&old),
        };
        noted.clone_from(&unknown);
        let mut draft = change::changed(deps, &admission, &old, change, noted)
            .map_err(|refusal| admit::explained(deps, &admission, refusal))?;
        let held = target.hold(&snapshot, Some(draft.held()))?;
        let mut warnings = noted.clone();
        warnings.extend(admit::admit(deps, &admission, Some(&mut draft))?);
        warnings.append(&mut draft.warnings);
        let is_held = target.served.api.strategy.is_held(&draft.value);
        let (object, shown) = draft.finish(&target.served)?;
        let object = Arc::new(object);
        target.served.check_answers()?;
        let key = old.key.clone();
        let gone = object.meta.is_deleting() && object.meta.finalizers.is_empty() && !is_held;
        if *object == *old.object && !gone {
            return Ok(Written { entry: old, warnings });
        }
        if options.dry_run {
            return Ok(Written {
                entry: Entry { object, ..old },
                warnings,
            });
        }
        let write = if gone {
            Write::Delete(key.clone())
        } else {
            Write::Put(key.clone(), object.clone())
        };
        let mut guards = vec![Guard::At(key.clone(), old.revision)];
        guards.extend(held);
        guards.extend(
            target
                .served
                .guard
                .iter()
                .map(|(key, revision)| Guard::At(key.clone(), *revision)),
        );
        let beside = quota::announced(&snapshot, target, &object, Some(&old.object))?;
        let (held, others): (Vec<Guard>, Vec<Write>) = beside.into_iter().unzip();
        guards.extend(held);
        let writes = std::iter::once(write).chain(others).collect();
        match deps.store.commit(Txn { guards, writes }).await {
            // An object that is gone after its last finalizer returns with its previous
            // revision.
            Ok(revision) => {
                let revision = if gone { old.revision } else { revision };
                let entry = Entry {
                    key,
                    object,
                    revision,
                    created: old.created,
                };
                deps.cache.keep(target, &entry, shown);
                return Ok(Written { entry, warnings });
            }
            Err(CommitError::Conflict { key, .. })
                if attempt < ATTEMPTS_MAX && change.may_retry() && !target.is_routed_by(&key) => {}
            Err(CommitError::Conflict { .. }) => return Err(api.modified(name)),
            Err(error) => return Err(commit_error(error)),
        }
    }
}

pub(super) fn context<'a>(
    deps: &'a Deps,
    target: &'a Target,
    version: &'a insula_catalog::ApiVersion,
    part: Part,
    by: By<'a>,
) -> Context<'a> {
    let (clock, rng): (&dyn Clock, &dyn Rng) = match target.served.questions.as_deref() {
        // All runs of a request see the same time and random numbers, and so make the same
        // object.
        Some(questions) => (questions, questions),
        None => (&*deps.clock, &*deps.rng),
    };
    Context {
        part,
        by,
        served: &target.served,
        version,
        cluster: &target.cluster,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        clock,
        rng,
    }
}

/// Returns the snapshot for a creation and its limits. Creations under one limit would conflict
/// with each other, all but one at a time. They therefore wait for a lock and take their
/// snapshot under it.
async fn limits(deps: &Deps, target: &Target) -> (Snapshot, Limits, Option<quota::CreateLock>) {
    let look = || {
        let snapshot = deps.store.latest();
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
    let turn = deps.create_locks.take(&target.cluster, namespace).await;
    let (snapshot, limits) = look();
    (snapshot, limits, Some(turn))
}

/// Returns the guards of a creation: the workspace, the namespace and the resource's route must
/// not change.
fn surroundings(snapshot: &Snapshot, target: &Target, name: &str) -> Result<Vec<Guard>> {
    let api = &target.served.api;
    let mut guards = Vec::new();
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
        && api.scope == insula_catalog::ScopeKind::Namespaced
    {
        let key = ObjectKey::cluster_scoped(ids::namespaces(), target.cluster.clone(), namespace);
        let resource = insula_catalog::Named {
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
    let cause = insula_catalog::Cause {
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

/// Converts the error of a commit to the error of a verb.
pub(crate) fn commit_error(error: CommitError) -> Error {
    match error {
        CommitError::Conflict { key, .. } => Error::Conflict {
            resource: insula_catalog::Named {
                group: key.resource.group.clone(),
                resource: key.resource.resource.clone(),
            },
            name: key.name.to_string(),
            detail: "the object has been modified; please apply your changes to the latest version and try again"
                .into(),
        },
        CommitError::TooLarge { .. } => Error::TooLarge(error.to_string()),
        CommitError::Full(why) => Error::InsufficientStorage(why),
        CommitError::Unknown(_) | CommitError::Unavailable(_) => Error::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
