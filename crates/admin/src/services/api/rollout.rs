//! `ApiService`: pause, continuation and end of rollouts.

use super::{
    consumers::count_uses,
    manifests::text,
    objects::{self, items},
    publication::{Options, confirm},
};
use insula_admission::publication::{Published, RulesSource, removals};
use insula_api::{
    ClusterName, Json, ObjectKey,
    kinds::{self, ApiExport},
};
use insula_catalog::{
    exports::{ExportName, offer::Binding, release_on_offer},
    ids,
};
use insula_proto::admin::v1::{OfferedResource, Rollout};
use insula_registry::Deps;
use insula_store::Snapshot;
use serde_json::json;
use std::ops::ControlFlow;
use tonic::Status;

/// Reason of a rollout that has come to all bindings.
const COMPLETE: &str = "Complete";
/// Reason of a rollout that goes on.
const PROGRESSING: &str = "Progressing";
/// Message of a rollout that the status does not tell yet.
const NOT_COUNTED: &str = "its bindings are not counted yet";

/// A change of a rollout by its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Pause,
    Resume {
        /// Go on with the release on offer, whatever number of bindings stays.
        with_held: bool,
    },
}

/// Returns the export with a paused, or a continued, rollout; `None` if it is that already.
pub(super) fn controlled(export: &Json, control: Control) -> Option<Json> {
    let mut new = export.clone();
    let rollout = &mut new["spec"]["rollout"];
    if !rollout.is_object() {
        *rollout = json!({});
    }
    let pause = control == Control::Pause;
    if (rollout["paused"] == true) != pause {
        rollout["paused"] = pause.into();
    }
    let release = &export["status"]["rollout"]["release"];
    if control == (Control::Resume { with_held: true }) && release.is_string() {
        rollout["withHeld"] = release.clone();
    }
    let is_same = export["spec"]["rollout"] == new["spec"]["rollout"] || new["spec"]["rollout"] == json!({});
    (!is_same).then_some(new)
}

/// Returns the export with the schemas of before its release, and these schemas.
pub(super) fn aborted(
    registry: &Deps,
    snapshot: &Snapshot,
    export: &ExportName,
    value: &Json,
    options: &Options,
) -> Result<(Json, Vec<OfferedResource>), Status> {
    let mut new = value.clone();
    let bound = schemas_before(snapshot, export, value);
    let mut restored = Vec::new();
    let mut replaced: Vec<Published> = Vec::new();
    for offered in new["spec"]["resources"].as_array_mut().into_iter().flatten() {
        let (group, resource) = (text(offered, "/group").to_owned(), text(offered, "/name").to_owned());
        let former = bound.iter().find(|it| it.group == group && it.resource == resource);
        let Some(former) = former else { continue };
        offered["schema"] = former.schema.as_str().into();
        restored.push(former.clone());
        let schema = objects::published(snapshot, &export.cluster, "APIResourceSchema", &former.schema);
        replaced.extend(schema.map(|schema| Published {
            group,
            plural: resource,
            schema,
            conversion: None,
            written_rules: None,
            rules: RulesSource::Published,
            accepted: Vec::new(),
            remarks: Vec::new(),
            errors: Vec::new(),
            meter: options.meter.clone(),
        }));
    }
    if restored.is_empty() {
        return Err(Status::failed_precondition(format!(
            "APIExport {:?}: no binding is bound to schemas of before the release: take rules back, and what all \
             bindings have taken over, by RollbackRelease (insula export rollback)",
            export.name
        )));
    }
    let offered: ApiExport = kinds::read(&new);
    let release = release_on_offer(&registry.catalog, snapshot, &export.cluster, &offered.spec.resources);
    if let Some(rollout) = new["spec"]["rollout"].as_object_mut() {
        rollout.remove("paused");
        // Bindings that moved go back at once. The steps are those of the next release.
        if rollout.contains_key("steps") {
            rollout.insert("atOnce".to_owned(), release.into());
        }
    }
    let find = |kind: &str, name: &str| Ok::<_, Status>(objects::published(snapshot, &export.cluster, kind, name));
    let mut counted = value.clone();
    count_uses(registry, snapshot, &export.cluster, &mut counted);
    let removals = removals(&find, Some(&counted), &replaced)?;
    // The server, too, asks for a confirmation only of versions in use.
    confirm(&removals, options, |removal| removal.tenants > 0, &mut new)?;
    Ok((new, restored))
}

/// Returns, for each offered resource, the latest other schema to which a binding is bound.
fn schemas_before(snapshot: &Snapshot, export: &ExportName, value: &Json) -> Vec<OfferedResource> {
    let offered = objects::offered(value);
    let created = |name: &str| {
        let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), export.cluster.clone(), name);
        Some(snapshot.get(&key)?.created)
    };
    let mut found: Vec<OfferedResource> = Vec::new();
    for_each_binding(snapshot, export, None, |_, binding| {
        // A deleted binding follows no release.
        if !binding["metadata"]["deletionTimestamp"].is_null() {
            return ControlFlow::Continue(());
        }
        for bound in objects::bound(binding) {
            let is_same = |it: &&OfferedResource| it.group == bound.group && it.resource == bound.resource;
            let differs = offered
                .iter()
                .find(is_same)
                .is_some_and(|now| now.schema != bound.schema);
            if !differs || created(&bound.schema).is_none() {
                continue;
            }
            match found.iter_mut().find(|it| is_same(&&**it)) {
                None => found.push(bound),
                Some(known) if created(&known.schema) < created(&bound.schema) => *known = bound,
                Some(_) => {}
            }
        }
        ControlFlow::Continue(())
    });
    found
}

/// Calls a function with each binding of an export after a key, those in the grace period of their
/// deletion included. Other bindings cost nothing.
pub(super) fn for_each_binding(
    snapshot: &Snapshot,
    export: &ExportName,
    after: Option<&ObjectKey>,
    mut each: impl FnMut(&ObjectKey, &Json) -> ControlFlow<()>,
) {
    export.for_each_binding_after(snapshot, after, |entry| {
        let meta = &entry.object.meta;
        let is_there = !meta.is_deleting() || meta.awaits_deletion();
        match is_there && export.is_bound_by(&entry.object.parsed(Binding::read)) {
            true => each(&entry.key, &entry.object.body_value()),
            false => ControlFlow::Continue(()),
        }
    });
}

/// Returns true if the status of an export's rollout was made of its present spec.
fn is_observed(export: &Json) -> bool {
    let observed = objects::items(export, "/status/rollout/observed");
    let mut own = observed.filter(|it| it["kind"] == "APIExport");
    own.all(|it| it["generation"] == export["metadata"]["generation"])
}

/// Corrects the rollout of an export whose status is about another release than the one on offer,
/// or about another spec: none of its bindings is known to have moved. An export that nobody binds
/// has no such status.
pub(super) fn correct(
    registry: &Deps,
    snapshot: &Snapshot,
    cluster: &ClusterName,
    value: &Json,
    rollout: &mut Rollout,
) {
    let view: ApiExport = kinds::read(value);
    let release = release_on_offer(&registry.catalog, snapshot, cluster, &view.spec.resources);
    if rollout.release == release {
        // The same schemas and rules, by a policy that the status knows nothing of.
        if !is_observed(value) {
            PROGRESSING.clone_into(&mut rollout.reason);
            NOT_COUNTED.clone_into(&mut rollout.message);
        }
        return;
    }
    let export = ExportName::new(cluster, text(value, "/metadata/name"));
    let (reason, message) = match export.is_bound(snapshot) {
        true => (PROGRESSING, NOT_COUNTED),
        false => (COMPLETE, ""),
    };
    *rollout = Rollout {
        release,
        reason: reason.to_owned(),
        message: message.to_owned(),
        waiting: rollout.bindings,
        strategy: rollout.strategy.clone(),
        paused: rollout.paused,
        bindings: rollout.bindings,
        unbound: rollout.unbound,
        step: rollout.step.min(1),
        steps: rollout.steps,
        history: rollout.history.clone(),
        max_held: rollout.max_held.clone(),
        ..Rollout::default()
    };
}

/// Returns the condition by which a binding says that it serves what is on offer, and the message.
pub(super) fn up_to_date(binding: &Json) -> (bool, String) {
    let condition = items(binding, "/status/conditions").find(|it| it["type"] == "BindingUpToDate");
    match condition {
        Some(condition) => (condition["status"] == "True", text(condition, "/message").to_owned()),
        None => (false, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_changes_nothing_else() {
        let resume = Control::Resume { with_held: false };
        let export = json!({"spec": {"resources": []}});
        let paused = controlled(&export, Control::Pause).unwrap();
        assert_eq!(paused["spec"], json!({"resources": [], "rollout": {"paused": true}}));
        assert_eq!(controlled(&paused, Control::Pause), None);
        let stepped = json!({"spec": {"rollout": {"paused": true, "steps": [{"percentage": 5}]}}});
        let resumed = controlled(&stepped, resume).unwrap();
        assert_eq!(
            resumed["spec"]["rollout"],
            json!({"paused": false, "steps": [{"percentage": 5}]})
        );
        assert_eq!(controlled(&export, resume), None);
    }

    #[test]
    fn held_bindings_are_accepted_for_one_release() {
        let with_held = Control::Resume { with_held: true };
        let export = json!({"spec": {}, "status": {"rollout": {"release": "r2"}}});
        let resumed = controlled(&export, with_held).unwrap();
        assert_eq!(resumed["spec"]["rollout"], json!({"withHeld": "r2"}));
        assert_eq!(controlled(&resumed, with_held), None);
    }
}
