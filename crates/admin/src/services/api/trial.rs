//! Trial of schemas and rules on the stored objects of all consumers of an export, a page at a
//! time.

use super::{
    manifests,
    objects::{self, moment, resource_name},
};
use crate::{
    pages::{Page, hash_bytes},
    status::Fault,
};
use insula_access::WorkspaceNames;
use insula_admission::publication::{Effect, Effects, Published, Serving, add_effects, keep_rules, offered};
use insula_api::{
    ClusterName, Json, ObjectKey, ResourceId, Scope, Timestamp, kinds::ApiExport, names::effects::Consent,
};
use insula_catalog::{Api, Catalog, exports::offering};
use insula_conversion::ConvertError;
use insula_meter::Meter;
use insula_proto::admin::v1::{EffectConsent, ErrorReason, ReleaseEffect, UnreadableObject, WorkspaceEffect};
use insula_registry::{Deps, rewrite};
use insula_store::{Entry, Snapshot};
use prost::Message;
use prost_types::Struct;
use std::{collections::BTreeSet, fmt, ops::ControlFlow, sync::Arc};
use tonic::{Code, Status};

/// An API to try, and the objects that it would serve.
pub(in crate::services) struct Trial {
    pub(in crate::services) api: Arc<Api>,
    /// The API that is offered now, for a release in its place.
    pub(in crate::services) before: Option<Arc<Api>>,
    /// True if nothing takes its place.
    pub(in crate::services) is_removed: bool,
    pub(in crate::services) resource: ResourceId,
    /// True for objects of another export, which the caller need not have a right to see: they
    /// count, and are not named.
    pub(in crate::services) is_of_others: bool,
}

/// Outcome for a page of objects.
#[derive(Debug, Default)]
pub(in crate::services) struct Tried {
    pub(in crate::services) failures: Vec<UnreadableObject>,
    pub(in crate::services) examined: i64,
    pub(in crate::services) clusters: BTreeSet<ClusterName>,
    /// Effects of the release on these objects.
    pub(in crate::services) effects: Vec<Effect>,
    /// Token of the next page; empty if there is none.
    pub(in crate::services) next: String,
}

/// Returns the trials of what an export offers.
pub(in crate::services) fn of_offer(
    deps: &Deps,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    export: &Json,
) -> Result<Vec<Trial>, Status> {
    let view: ApiExport = insula_api::kinds::read(export);
    let stored = view.spec.resources.iter().filter(|it| it.storage.r#virtual.is_none());
    let trial = |offered: &insula_api::kinds::ExportedResource| {
        let schema = &offered.schema;
        let api = deps.catalog.stored(snapshot, cluster, schema).ok_or_else(|| {
            Status::failed_precondition(format!(
                "APIResourceSchema {schema}, which is offered, is not there, or does not compile with its rules"
            ))
        })?;
        Ok(Trial {
            resource: objects_of(export, &offered.group, &offered.name),
            api,
            before: None,
            is_removed: false,
            is_of_others: false,
        })
    };
    stored.map(trial).collect()
}

/// Returns the trials of a release that is not published. Where it has no rules, those of before
/// are kept, as a publication keeps them.
pub(in crate::services) fn of_manifests(
    deps: &Deps,
    snapshot: &Snapshot,
    (cluster, export): (&ClusterName, &Json),
    sent: Vec<Struct>,
    meter: &Meter,
) -> Result<Vec<Trial>, Status> {
    let find = |kind: &str, name: &str| Ok::<_, Status>(objects::published(snapshot, cluster, kind, name));
    let trial = |mut published: Published| {
        keep_rules(&find, Some(export), &mut published)?;
        let api = published.compile().map_err(|errors| {
            Status::failed_precondition(format!("{}: {}", published.name(), insula_api::aggregate(&errors)))
        })?;
        Ok::<_, Status>(of_release(deps, snapshot, (cluster, export), &published, Arc::new(api)))
    };
    let mut trials = Vec::new();
    for published in manifests::published("manifests", sent, meter)? {
        trials.extend(trial(published)?);
    }
    Ok(trials)
}

/// Returns the trials of one API of a release: on the objects of its export, and on those of each
/// other export of the workspace that offers the same schema, whose rules change with it.
pub(in crate::services) fn of_release(
    deps: &Deps,
    snapshot: &Snapshot,
    (cluster, export): (&ClusterName, &Json),
    published: &Published,
    api: Arc<Api>,
) -> Vec<Trial> {
    let resource_of = |export: &Json| objects_of(export, &published.group, &published.plural);
    let on = |resource: ResourceId, schema: Option<&str>, is_of_others| Trial {
        resource,
        is_of_others,
        before: schema.and_then(|schema| deps.catalog.stored(snapshot, cluster, schema)),
        api: Arc::clone(&api),
        is_removed: false,
    };
    let own = resource_of(export);
    let mut trials = vec![on(own, offered(export, published).as_deref(), false)];
    let schema = published.name();
    for other in offering(snapshot, cluster, &BTreeSet::from([schema.to_owned()])) {
        let resource = resource_of(&other.object.body_value());
        // Exports may share an identity, and then they share the objects.
        let is_known = trials.iter().any(|trial| trial.resource == resource);
        if !is_known && !resource.identity.is_empty() {
            trials.push(on(resource, Some(schema), true));
        }
    }
    trials
}

/// Returns the trial of a resource that an export offers no longer; `None` if it serves nothing.
pub(in crate::services) fn of_removal(
    deps: &Deps,
    snapshot: &Snapshot,
    (cluster, export): (&ClusterName, &Json),
    (group, plural): (&str, &str),
) -> Option<Trial> {
    let mut offered = objects::items(export, "/spec/resources");
    let offered = offered.find(|it| it["group"] == group && it["name"] == plural)?;
    let api = deps.catalog.stored(snapshot, cluster, offered["schema"].as_str()?)?;
    Some(Trial {
        resource: objects_of(export, group, plural),
        api,
        before: None,
        is_removed: true,
        is_of_others: false,
    })
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trial on {:?}", self.resource)
    }
}

impl Trial {
    /// Returns the effects before any object is examined; `None` for an API that replaces nothing.
    fn effects(&self, meter: &Meter) -> Option<Effects> {
        match (&self.before, self.is_removed) {
            (_, true) => Some(Effects::of_removed(&self.api, meter)),
            (Some(before), false) => Some(Effects::new(before, &self.api, meter)),
            (None, false) => None,
        }
    }
}

/// Returns the refusal of a release for effects that nobody has accepted, each as a detail.
pub(super) fn refusal(open: &[&Effect]) -> Status {
    let lines: Vec<String> = open.iter().map(ToString::to_string).collect();
    let message = format!(
        "this would hurt stored objects: accept it by accepted_effects, or change the release\n{}",
        lines.join("\n")
    );
    let refusal = Fault::new(Code::FailedPrecondition, ErrorReason::WrongState, message);
    let named = |fault: Fault, effect: &&Effect| {
        let id = effect.id();
        let (_, subject) = id.split_once(':').unwrap_or_default();
        fault.violation(effect.kind, subject, &effect.description())
    };
    open.iter().fold(refusal, named).status()
}

/// Returns the message of an effect.
pub(in crate::services) fn effect_message(effect: &Effect) -> ReleaseEffect {
    let count = |objects: usize| i64::try_from(objects).unwrap_or(i64::MAX);
    let of_workspace = |(workspace, objects): (&String, &usize)| WorkspaceEffect {
        workspace: workspace.clone(),
        objects: count(*objects),
    };
    ReleaseEffect {
        id: effect.id(),
        detail: effect.detail.clone(),
        becomes: effect.becomes().into_owned(),
        objects: count(effect.objects),
        examples: effect.named.clone(),
        workspaces: effect.workspaces.iter().map(of_workspace).collect(),
        since_time: Timestamp::parse(&effect.times.since).map(moment),
        last_write_time: Timestamp::parse(&effect.times.written).map(moment),
        consent: consent(effect.consent()).into(),
    }
}

fn consent(consent: Consent) -> EffectConsent {
    match consent {
        Consent::Unneeded => EffectConsent::Unneeded,
        Consent::Needed => EffectConsent::Needed,
        Consent::Impossible => EffectConsent::Impossible,
    }
}

/// Returns the objects of a resource of an export.
pub(in crate::services) fn objects_of(export: &Json, group: &str, plural: &str) -> ResourceId {
    let identity = export["status"]["identityHash"].as_str().unwrap_or_default();
    ResourceId {
        group: group.into(),
        resource: plural.into(),
        identity: identity.into(),
    }
}

/// Returns what selects the objects of a trial, for page tokens: a release is another trial.
pub(in crate::services) fn filter(cluster: &ClusterName, export: &str, manifests: &[Struct]) -> String {
    let release = manifests.iter().flat_map(Message::encode_to_vec);
    format!("{cluster}/{export}/{:016x}", hash_bytes(release))
}

/// The state that trials look at.
#[derive(Clone, Copy)]
pub(in crate::services) struct State<'a> {
    catalog: &'a Catalog,
    snapshot: &'a Snapshot,
    /// Names of workspaces, as the caller sees them.
    names: &'a WorkspaceNames,
}

impl<'a> State<'a> {
    pub(in crate::services) fn new(deps: &'a Deps, snapshot: &'a Snapshot, names: &'a WorkspaceNames) -> Self {
        State {
            catalog: &deps.catalog,
            snapshot,
            names,
        }
    }
}

/// Position in a trial: its index, and the last object before it.
type Position = (usize, Option<ObjectKey>);

/// Tries one page of objects in a version, or for an empty one in every served version.
pub(in crate::services) fn run(
    state: State<'_>,
    trials: &[Trial],
    page: &Page,
    (version, meter): (&str, &Meter),
) -> Result<Tried, Status> {
    let from = position(trials, page.after.as_ref().map_or("", |(_, at)| at))?;
    let (mut tried, next) = walk(state, trials, from, (page.size, version), meter);
    if let Some((index, last)) = next {
        let last = last.as_ref().map(rewrite::position).unwrap_or_default();
        tried.next = page.next(state.snapshot.revision(), &format!("{index}/{last}"));
    }
    Ok(tried)
}

/// Tries some objects from a position on. Returns the position of the next ones, if there are any.
/// Each object is converted once to each version.
pub(super) fn walk(
    State {
        catalog,
        snapshot,
        names,
    }: State<'_>,
    trials: &[Trial],
    (first, mut after): Position,
    (size, version): (usize, &str),
    meter: &Meter,
) -> (Tried, Option<Position>) {
    let (mut tried, mut examined, mut next) = (Tried::default(), 0, None);
    for (index, trial) in trials.iter().enumerate().skip(first) {
        let (mut last, mut is_full) = (after.take(), false);
        let is_first = last.is_none();
        let mut effects = trial.effects(meter);
        let mut serving = Serving::new(catalog, snapshot, trial.resource.clone());
        let scope = Scope::everywhere(trial.resource.clone());
        snapshot.for_each_after(&scope, last.clone().as_ref(), |entry| {
            if examined == size {
                is_full = true;
                return ControlFlow::Break(());
            }
            examined += 1;
            let read = match &mut effects {
                Some(effects) => effects.examine(names, entry, &mut serving),
                None => reads(&trial.api, entry, version, meter),
            };
            if let Err(error) = read {
                tried.clusters.insert(entry.key.cluster.clone());
                tried.failures.push(failure(names, trial, &entry.key, &error));
            }
            last = Some(entry.key.clone());
            ControlFlow::Continue(())
        });
        let effects = effects.map(Effects::finish).unwrap_or_default();
        let shown = effects.into_iter().filter(|effect| is_first || effect.objects > 0);
        let mut shown: Vec<Effect> = shown.collect();
        if trial.is_of_others {
            shown.iter_mut().for_each(|effect| effect.named.clear());
        }
        add_effects(&mut tried.effects, shown);
        if is_full {
            next = Some((index, last));
            break;
        }
    }
    tried.examined = i64::try_from(examined).unwrap_or(i64::MAX);
    (tried, next)
}

/// Returns the resource at which a page begins, and the last object before it.
fn position(trials: &[Trial], token: &str) -> Result<Position, Status> {
    if token.is_empty() {
        return Ok((0, None));
    }
    let parse = || {
        let (index, rest) = token.split_once('/')?;
        let index: usize = index.parse().ok()?;
        let trial = trials.get(index)?;
        match rest {
            "" => Some((index, None)),
            rest => Some((index, Some(rewrite::key_at(trial.resource.clone(), rest)?))),
        }
    };
    parse().ok_or_else(|| Status::invalid_argument("page_token: is none that this server gave out"))
}

fn reads(api: &Api, entry: &Entry, version: &str, meter: &Meter) -> Result<(), ConvertError> {
    match version {
        "" => api.reads(&entry.object, meter),
        version => api.reads_in(&entry.object, [version], meter),
    }
}

fn failure(names: &WorkspaceNames, trial: &Trial, key: &ObjectKey, error: &ConvertError) -> UnreadableObject {
    if trial.is_of_others {
        return UnreadableObject {
            api: resource_name(&trial.resource.group, &trial.resource.resource),
            version: error.to.clone(),
            message: "an object of another export that offers the schema".to_owned(),
            ..UnreadableObject::default()
        };
    }
    UnreadableObject {
        api: resource_name(&trial.resource.group, &trial.resource.resource),
        workspace: names.name(&key.cluster).to_string(),
        cluster: key.cluster.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        version: error.to.clone(),
        field: error.rule.as_ref().map(|rule| rule.source.clone()).unwrap_or_default(),
        message: error.to_string(),
    }
}
