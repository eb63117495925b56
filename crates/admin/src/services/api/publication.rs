//! `ApiService`: publication, import and retirement, each as a plan of writes.

use super::{
    consumers::count_uses,
    manifests::text,
    objects::{self, check_etag, items},
    trial::{self, Trial},
};
use crate::status::Fault;
use insula_admission::publication::{
    self, Acceptance, Effect, Manifest, Published, Removal, RulesSource, Step, has_same_contents, is_accepted,
    keep_rules, updated,
};
use insula_api::{ClusterName, Json};
use insula_auth::Subject;
use insula_catalog::{exports::bind_grant, parts};
use insula_meter::Meter;
use insula_proto::admin::v1::{ErrorReason, PublishStep, ReleaseEffect, RetirementStep, VersionRemoval};
use insula_registry::Deps;
use insula_store::Snapshot;
use serde_json::json;
use std::sync::Arc;
use tonic::{Code, Status};

/// The action of a step that creates an object.
const CREATE: &str = "create";
/// The action of a step that writes nothing.
pub(super) const UNCHANGED: &str = "unchanged";

/// Options of a publication.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    /// The name of the export; empty for the group of what is published.
    pub(super) export: String,
    pub(super) accept_incompatible: bool,
    /// Rules that are a draft may be put into service.
    pub(super) accept_draft: bool,
    pub(super) confirm_removals: Vec<String>,
    pub(super) accepted_effects: Vec<String>,
    /// The caller may read the consumers' objects, and so their names.
    pub(super) sees_objects: bool,
    pub(super) etag: String,
    /// Nothing is written, so that nothing need be confirmed.
    pub(super) validate_only: bool,
    /// The release that all bindings take over at once; empty for the export's own steps.
    pub(super) at_once: String,
    /// Resources, by group and plural, that the export offers no longer.
    pub(super) withdrawn: Vec<(String, String)>,
    /// Subjects that get the right to bind the export.
    pub(super) bindable_by: Vec<Subject>,
    pub(super) meter: Meter,
}

/// Writes of a publication.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<PublishStep>,
    pub(super) removals: Vec<VersionRemoval>,
    pub(super) effects: Vec<ReleaseEffect>,
    pub(super) notes: Vec<String>,
    /// The objects to create or update, in order; those that have the wanted contents are left out.
    pub(super) writes: Vec<Json>,
    /// The export as it is stored.
    pub(super) existing: Option<Json>,
    /// Effects that the caller or the author of the rules accepts.
    accepted: Vec<Acceptance>,
    /// The trials that its effects come from ([`Plan::judge`]).
    pub(super) trials: Vec<Trial>,
}

/// Plans schemas and rules, without an export.
pub(super) fn import(snapshot: &Snapshot, cluster: &ClusterName, published: &mut [Published]) -> Result<Plan, Status> {
    let find = |kind: &str, name: &str| Ok::<_, Status>(objects::published(snapshot, cluster, kind, name));
    for api in published.iter_mut() {
        keep_rules(&find, None, api)?;
    }
    check(published)?;
    let mut steps = publication::steps(&find, published, None, &Json::Null)?;
    // The last step is the export's.
    steps.pop();
    let objects = published.iter().flat_map(Published::objects);
    Ok(Plan {
        steps: steps.into_iter().map(step).collect(),
        notes: notes(published),
        writes: objects.filter_map(|object| write(snapshot, cluster, &object)).collect(),
        ..Plan::default()
    })
}

/// Plans schemas, rules and the export that offers them. Its effects are computed afterwards.
pub(super) fn publish(
    (registry, snapshot): (&Deps, &Snapshot),
    cluster: &ClusterName,
    mut published: Vec<Published>,
    options: &Options,
) -> Result<Plan, Status> {
    let find = |kind: &str, name: &str| Ok::<_, Status>(objects::published(snapshot, cluster, kind, name));
    let name = export_name(options, &published)?;
    let existing = find("APIExport", &name)?;
    check_etag(&options.etag, ("apiexports", &name), existing.as_ref())?;
    for api in published.iter_mut() {
        keep_rules(&find, existing.as_ref(), api)?;
    }
    let how = "give rules (ConversionService.SuggestRules drafts them), or set accept_incompatible";
    publication::review(&find, &mut published, options.accept_incompatible, how)?;
    if !options.accept_draft && !options.validate_only {
        let how = "give reviewed rules (ConversionService.SuggestRules shows the whole draft, CheckRollout tries it on \
                   the stored objects), or set accept_draft";
        publication::refuse_drafts(&mut published, how);
    }
    check(&published)?;
    let mut export = publication::export(&name, existing.as_ref(), &published);
    publication::withdraw(&mut export, &options.withdrawn);
    let removals_of = |export: Option<&Json>| {
        let mut removals = publication::removals(&find, export, &published)?;
        if let Some(export) = export {
            removals.extend(publication::withdrawals(&find, export, &options.withdrawn)?);
        }
        Ok::<_, Status>(removals)
    };
    let mut removals = removals_of(existing.as_ref())?;
    if let Some(mut counted) = existing.clone().filter(|_| !removals.is_empty()) {
        count_uses(registry, snapshot, cluster, &mut counted);
        removals = removals_of(Some(&counted))?;
    }
    confirm(&removals, options, |_| true, &mut export)?;
    if !options.at_once.is_empty() {
        export["spec"]["rollout"]["atOnce"] = json!(options.at_once);
        export["spec"]["rollout"]["paused"] = json!(false);
    }
    let mut words = accepted(options)?;
    words.extend(published.iter().flat_map(|api| api.accepted.iter().cloned()));
    let trials = trials((registry, snapshot), cluster, existing.as_ref(), &published, options);
    let steps = publication::steps(&find, &published, existing.as_ref(), &export)?;
    // The rights come last, when there is something to bind.
    let rights = bind_grant::objects(&name, &options.bindable_by);
    let right_steps: Vec<PublishStep> = rights
        .iter()
        .map(|right| right_step(&find, right))
        .collect::<Result<_, _>>()?;
    let objects = published.iter().flat_map(Published::objects).chain([export]).collect();
    let objects = publication::with_words(objects, &words);
    let missing = rights
        .iter()
        .zip(&right_steps)
        .filter(|(_, step)| step.action == CREATE);
    let missing = missing.map(|(right, _)| right.clone());
    Ok(Plan {
        steps: steps.into_iter().map(step).chain(right_steps.iter().cloned()).collect(),
        removals: removals.iter().map(removal).collect(),
        trials,
        notes: notes(&published),
        writes: objects
            .iter()
            .filter_map(|object| write(snapshot, cluster, object))
            .chain(missing)
            .collect(),
        existing,
        accepted: words,
        ..Plan::default()
    })
}

/// Plans an object that gives the right to bind. Refuses one of its name that grants something
/// else.
fn right_step(
    find: &impl Fn(&str, &str) -> Result<Option<Json>, Status>,
    wanted: &Json,
) -> Result<PublishStep, Status> {
    let (kind, name) = (text(wanted, "/kind"), text(wanted, "/metadata/name"));
    let action = match find(kind, name)? {
        None => CREATE,
        Some(there) if bind_grant::grants_the_same(&there, wanted) => UNCHANGED,
        Some(there) => {
            let why = format!("bindable_by: {}", bind_grant::other_grant(&there));
            return Err(Status::failed_precondition(why));
        }
    };
    Ok(PublishStep {
        kind: kind.to_owned(),
        name: name.to_owned(),
        action: action.to_owned(),
        details: Vec::new(),
    })
}

/// Returns the trials of a publication on stored objects; none before there is an export.
fn trials(
    (registry, snapshot): (&Deps, &Snapshot),
    cluster: &ClusterName,
    existing: Option<&Json>,
    published: &[Published],
    options: &Options,
) -> Vec<Trial> {
    let Some(export) = existing else { return Vec::new() };
    let trials = |api: &Published| {
        let compiled = api.compile().ok().map(Arc::new);
        let of_release = |compiled| trial::of_release(registry, snapshot, (cluster, export), api, compiled);
        let all = compiled.map(of_release).unwrap_or_default().into_iter();
        all.filter(|trial| trial.before.is_some())
    };
    let withdrawn = options.withdrawn.iter();
    let withdrawn = withdrawn
        .filter_map(|(group, plural)| trial::of_removal(registry, snapshot, (cluster, export), (group, plural)));
    published.iter().flat_map(trials).chain(withdrawn).collect()
}

/// Reads the effects that the caller accepts.
fn accepted(options: &Options) -> Result<Vec<Acceptance>, Status> {
    let accepted = options.accepted_effects.iter().map(|one| Acceptance::parse(one));
    let accepted: Result<Vec<Acceptance>, String> = accepted.collect();
    accepted.map_err(|why| Status::invalid_argument(format!("accepted_effects: {why}")))
}

impl Plan {
    /// Adds the effects on all stored objects. Refuses those that hurt and that nobody has
    /// accepted, unless nothing is written.
    pub(super) fn judge(&mut self, mut effects: Vec<Effect>, options: &Options) -> Result<(), Status> {
        if !options.sees_objects {
            effects.iter_mut().for_each(|effect| effect.named.clear());
        }
        self.effects = effects.iter().map(trial::effect_message).collect();
        let open = publication::unaccepted(&effects, &self.accepted);
        if open.is_empty() || options.validate_only {
            return Ok(());
        }
        Err(trial::refusal(&open))
    }
}

fn export_name(options: &Options, published: &[Published]) -> Result<String, Status> {
    if !options.export.is_empty() {
        return Ok(options.export.clone());
    }
    let mut groups: Vec<&str> = published.iter().map(|api| api.group.as_str()).collect();
    groups.dedup();
    match groups.as_slice() {
        [one] if !one.is_empty() => Ok((*one).to_owned()),
        _ => Err(Status::invalid_argument(format!(
            "export: is required where the manifests have several groups or the core group ({})",
            groups.join(", ")
        ))),
    }
}

/// Refuses what the server would refuse.
fn check(published: &[Published]) -> Result<(), Status> {
    let errors = published.iter().flat_map(|api| {
        let name = api.name();
        api.errors.iter().map(move |error| format!("{name}: {error}"))
    });
    let errors: Vec<String> = errors.collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::failed_precondition(errors.join("\n"))),
    }
}

/// Confirms the named removals in the export. Refuses those that need a confirmation and have none.
pub(super) fn confirm(
    removals: &[Removal],
    options: &Options,
    needs_confirmation: impl Fn(&Removal) -> bool,
    export: &mut Json,
) -> Result<(), Status> {
    let named = |removal: &&Removal| options.confirm_removals.iter().any(|name| removal.is_named(name));
    let is_no_removal = |name: &&String| !removals.iter().any(|removal| removal.is_named(name));
    if let Some(name) = options.confirm_removals.iter().find(is_no_removal) {
        return Err(Status::invalid_argument(format!(
            "confirm_removals: {name:?} is no version that would be removed"
        )));
    }
    let open = removals
        .iter()
        .filter(|removal| !named(removal) && needs_confirmation(removal));
    let open: Vec<String> = open
        .map(|removal| format!("{} ({})", removal.name(), removal.usage()))
        .collect();
    if !open.is_empty() && !options.validate_only {
        return Err(Status::failed_precondition(format!(
            "this would remove {}: confirm it (confirm_removals, or confirm)",
            open.join(", ")
        )));
    }
    publication::confirm(removals.iter().filter(named), export);
    Ok(())
}

fn notes(published: &[Published]) -> Vec<String> {
    let notes = published.iter().flat_map(|api| {
        let name = api.name();
        let guesses: &[String] = match &api.rules {
            RulesSource::Draft(guesses) => guesses,
            RulesSource::Files | RulesSource::Published | RulesSource::Missing => &[],
        };
        let remarks = api.remarks.iter().chain(guesses);
        remarks.map(move |remark| format!("{name}: {remark}"))
    });
    notes.collect()
}

/// Returns the object to write; `None` if the stored one has the wanted contents.
fn write(snapshot: &Snapshot, cluster: &ClusterName, wanted: &Json) -> Option<Json> {
    let there = objects::published(snapshot, cluster, text(wanted, "/kind"), text(wanted, "/metadata/name"));
    match there {
        Some(there) if has_same_contents(&there, wanted) => None,
        Some(there) => Some(updated(there, wanted)),
        None => Some(wanted.clone()),
    }
}

fn step(step: Step) -> PublishStep {
    PublishStep {
        kind: step.kind,
        name: step.name,
        action: step.action.to_owned(),
        details: step.detail,
    }
}

fn removal(removal: &Removal) -> VersionRemoval {
    VersionRemoval {
        version: removal.name(),
        workspaces: removal.tenants.cast_signed(),
        deprecated: removal.deprecated,
        message: removal.usage(),
    }
}

/// A version to retire.
#[derive(Clone)]
pub(super) struct Retirement {
    pub(super) version: String,
    pub(super) step: RetirementStep,
    pub(super) warning: String,
    /// It may be removed although workspaces use it.
    pub(super) confirm: bool,
}

/// Plans the retirement of a version: a new schema with the rules of the present one.
pub(super) fn retire(
    (registry, snapshot): (&Deps, &Snapshot),
    cluster: &ClusterName,
    export: &Json,
    retirement: &Retirement,
    mut options: Options,
) -> Result<Plan, Status> {
    let named = retirement.version.as_str();
    let (resource, version) = named.rsplit_once('/').ok_or_else(|| {
        Status::invalid_argument(format!(
            "version: {named:?} is no version such as widgets.example.io/v1"
        ))
    })?;
    let is_meant = |offered: &&Json| {
        let (group, plural) = (text(offered, "/group"), text(offered, "/name"));
        resource == plural || resource == objects::resource_name(group, plural)
    };
    let offered = items(export, "/spec/resources").find(is_meant).ok_or_else(|| {
        let name = text(export, "/metadata/name");
        no_version(named, format!("APIExport {name:?} offers no {resource}"))
    })?;
    let name = text(offered, "/schema");
    let schema = objects::published(snapshot, cluster, "APIResourceSchema", name).ok_or_else(|| {
        Status::failed_precondition(format!("APIResourceSchema {name}, which is offered, is not there"))
    })?;
    let mut changed = json!({"kind": "APIResourceSchema", "metadata": {}, "spec": schema["spec"]});
    if let Some(annotations) = schema["metadata"].get("annotations") {
        changed["metadata"]["annotations"] = annotations.clone();
    }
    change(&mut changed["spec"], version, retirement)?;
    let mut rules = parts::joined(snapshot, cluster, name);
    if retirement.step == RetirementStep::Remove {
        rules = rules.and_then(|rules| without_version(rules, version));
    }
    let published = vec![publication::publish(Manifest {
        schema: &changed,
        conversion: rules.as_ref(),
        meter: &options.meter,
    })];
    options.accept_incompatible = is_accepted(&schema);
    if retirement.confirm && retirement.step != RetirementStep::Deprecate {
        options.confirm_removals = vec![named.to_owned()];
    }
    publish((registry, snapshot), cluster, published, &options)
}

/// Returns the refusal of a version that is not on offer.
fn no_version(version: &str, problem: String) -> Status {
    Fault::new(Code::NotFound, ErrorReason::NotFound, format!("version: {problem}"))
        .resource("versions.apis.kcp.io", version)
        .status()
}

/// Changes a version in the `spec` of a schema.
fn change(spec: &mut Json, version: &str, retirement: &Retirement) -> Result<(), Status> {
    // The server adds it; a schema of the same name may be stored without it.
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nameValidation");
    }
    let names: Vec<String> = items(spec, "/versions")
        .map(|it| text(it, "/name").to_owned())
        .collect();
    let entries = spec["versions"].as_array_mut();
    let entries = entries.ok_or_else(|| Status::failed_precondition("the schema has no versions"))?;
    let Some(at) = names.iter().position(|name| name == version) else {
        let known = names.join(", ");
        return Err(no_version(
            &retirement.version,
            format!("there is no version {version}; the schema has {known}"),
        ));
    };
    let entry = &mut entries[at];
    if entry["storage"] == true && retirement.step != RetirementStep::Deprecate {
        return Err(Status::failed_precondition(format!(
            "version: objects are stored in {version}: publish a schema that stores another version first"
        )));
    }
    match retirement.step {
        RetirementStep::Unspecified => return Err(Status::invalid_argument("step: is required")),
        RetirementStep::Deprecate => {
            entry["deprecated"] = true.into();
            if !retirement.warning.is_empty() {
                entry["deprecationWarning"] = retirement.warning.as_str().into();
            }
        }
        RetirementStep::StopServing => entry["served"] = false.into(),
        RetirementStep::Remove => drop(entries.remove(at)),
    }
    Ok(())
}

/// Drops the rules of a version; `None` if none are left.
fn without_version(mut rules: Json, version: &str) -> Option<Json> {
    let trim = |spec: &mut Json| {
        let directions = spec["conversions"].as_array_mut()?;
        directions.retain(|it| ["from", "to", "version"].iter().all(|end| it[*end] != version));
        (!directions.is_empty()).then_some(())
    };
    let spec = &mut rules["spec"];
    let is_left = match spec["parts"].as_array_mut() {
        None => trim(spec).is_some(),
        Some(parts) => {
            parts.retain_mut(|part| trim(&mut part["spec"]).is_some());
            !parts.is_empty()
        }
    };
    is_left.then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retirement(step: RetirementStep) -> Retirement {
        Retirement {
            version: "widgets.example.io/v1".to_owned(),
            step,
            warning: "ends in May".to_owned(),
            confirm: false,
        }
    }

    #[test]
    fn a_version_is_deprecated_no_longer_served_or_gone() {
        let spec = json!({"nameValidation": "x", "versions": [
            {"name": "v1", "served": true, "storage": false}, {"name": "v2", "served": true, "storage": true}]});
        let changed = |step, version| {
            let mut spec = spec.clone();
            change(&mut spec, version, &retirement(step)).map(|()| spec["versions"].clone())
        };
        let v2 = &spec["versions"][1];
        let deprecated = json!({"name": "v1", "served": true, "storage": false, "deprecated": true,
            "deprecationWarning": "ends in May"});
        assert_eq!(
            changed(RetirementStep::Deprecate, "v1").unwrap(),
            json!([deprecated, v2])
        );
        let hidden = json!({"name": "v1", "served": false, "storage": false});
        assert_eq!(changed(RetirementStep::StopServing, "v1").unwrap(), json!([hidden, v2]));
        assert_eq!(changed(RetirementStep::Remove, "v1").unwrap(), json!([v2]));
        let stored = changed(RetirementStep::Remove, "v2").unwrap_err();
        assert_eq!(stored.code(), tonic::Code::FailedPrecondition);
        let missing = changed(RetirementStep::Deprecate, "v3").unwrap_err();
        assert_eq!(missing.code(), tonic::Code::NotFound);
    }

    #[test]
    fn rules_of_a_version_go_with_it() {
        let direction = |from: &str, to: &str| json!({"from": from, "to": to});
        let all = json!([direction("v1", "v3"), direction("v3", "v1"), direction("v2", "v3"), {"version": "v1"}]);
        let rules = json!({"spec": {"conversions": all.clone()}});
        let left = without_version(rules.clone(), "v1").unwrap();
        assert_eq!(left["spec"]["conversions"], json!([direction("v2", "v3")]));
        assert_eq!(without_version(left, "v3"), None);
        let several = json!({"spec": {"parts": [
            {"name": "a", "spec": {"conversions": [direction("v1", "v2")]}}, {"name": "b", "spec": rules["spec"]}]}});
        let left = without_version(several, "v1").unwrap();
        assert_eq!(left["spec"]["parts"].as_array().unwrap().len(), 1, "{left}");
    }
}
