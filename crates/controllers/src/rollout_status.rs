//! Outcome of a rollout per binding, in the status of the export: the number of bindings that took
//! over the schemas and rules on offer, and the bindings that stay with the reason.
//!
//! An export that never held a binding back, and says nothing about its rollout, gets no such
//! status.

use crate::{
    apibinding::world::find_export,
    loaded::Loaded,
    rollout,
    runtime::Reconciler,
    write::{sort_conditions, text},
};
use insula_api::{
    Json, Object, ObjectKey, ResourceId, Scope, Timestamp, condition,
    kinds::{self, ApiBinding, ApiExport},
    names::labels,
};
use insula_catalog::{digest, ids, locate};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use serde_json::json;
use std::{ops::ControlFlow, sync::Arc};

/// Bindings that the status names.
const HELD_MAX: usize = 10;
/// Bytes of the reason of one of them.
const MESSAGE_MAX: usize = 500;
/// Seconds between a change of a binding and the count: one count serves all bindings that change
/// meanwhile.
const SETTLE_SECONDS: u64 = 1;

/// Reconciles the rollout status of exports.
pub(crate) struct RolloutStatus {
    registry: Arc<Deps>,
}

/// World of an export's rollout.
#[derive(Default)]
pub(crate) struct World {
    export: Option<Loaded<ApiExport>>,
    bindings: usize,
    current: usize,
    held: usize,
    /// The first bindings that stay.
    named: Vec<Held>,
    now: Timestamp,
}

/// Binding that stays on the previous generation.
struct Held {
    workspace: String,
    name: String,
    message: String,
}

/// State of one binding, parsed once for each of its revisions.
struct Binding {
    /// Names of the schemas that serve it, by group and resource.
    schemas: Vec<(String, String, String)>,
    up_to_date: bool,
    /// Reason to stay.
    held: Option<String>,
}

impl Binding {
    fn read(object: &Object) -> Binding {
        let value = object.body_value();
        let view: ApiBinding = kinds::read(&value);
        let state = condition(&value, "BindingUpToDate").cloned().unwrap_or_default();
        let bound = view.status.bound_resources.into_iter();
        Binding {
            schemas: bound
                .map(|bound| (bound.group, bound.resource, bound.schema.name))
                .collect(),
            up_to_date: state["status"] == "True",
            held: (state["reason"] == "RolloutBlocked").then(|| cut(text(&state, "/message"))),
        }
    }

    /// Returns true if it serves every resource of the export by the schema on offer.
    fn is_current(&self, export: &ApiExport) -> bool {
        let mut offered = export.spec.resources.iter();
        let has = |group: &str, name: &str, schema: &str| {
            let mut all = self.schemas.iter();
            all.any(|(g, n, s)| (&**g, &**n, &**s) == (group, name, schema))
        };
        self.up_to_date && offered.all(|r| r.storage.r#virtual.is_some() || has(&r.group, &r.name, &r.schema))
    }
}

/// Cuts a message at [`MESSAGE_MAX`] bytes.
fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let end = (0..=MESSAGE_MAX).rev().find(|end| message.is_char_boundary(*end));
    format!("{}…", &message[..end.unwrap_or_default()])
}

impl RolloutStatus {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        RolloutStatus { registry }
    }
}

impl Reconciler for RolloutStatus {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "rollout"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![ids::apibindings(), ids::apiexports()]
    }

    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        if change.key.resource == ids::apiexports() {
            return change.new.iter().map(|_| change.key.clone()).collect();
        }
        let object = change.new.as_deref().or(change.old.as_ref().map(|old| &*old.object));
        let export = object.and_then(|object| {
            let binding: ApiBinding = kinds::read(&object.body_value());
            find_export(snapshot, &change.key.cluster, &binding).found
        });
        export.into_iter().map(|export| export.entry.key).collect()
    }

    fn settle(&self) -> u64 {
        SETTLE_SECONDS
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let mut world = World {
            export: Loaded::get(snapshot, key),
            now: self.registry.clock.now(),
            ..World::default()
        };
        let Some(export) = &world.export else { return world };
        let label = digest::export_label(&key.cluster, &key.name);
        snapshot.for_each(&Scope::everywhere(ids::apibindings()), |entry| {
            let meta = &entry.object.meta;
            if meta.label(labels::EXPORT) != Some(&label) || meta.is_deleting() {
                return ControlFlow::Continue(());
            }
            let binding = entry.object.parsed(Binding::read);
            world.bindings += 1;
            world.current += usize::from(binding.is_current(&export.view));
            if let Some(message) = &binding.held {
                world.held += 1;
                if world.named.len() < HELD_MAX {
                    world.named.push(Held {
                        workspace: locate::path_of(snapshot, &entry.key.cluster).to_string(),
                        name: entry.key.name.to_string(),
                        message: message.clone(),
                    });
                }
            }
            ControlFlow::Continue(())
        });
        world
    }

    fn decide(&self, world: &World) -> Plan {
        decide(world)
    }
}

fn decide(world: &World) -> Plan {
    let Some(export) = world.export.as_ref().filter(|export| !export.is_deleting()) else {
        return Plan::rest();
    };
    let rollout = &export.view.spec.rollout;
    let shown = export.value["status"]["rollout"].is_object();
    if world.held == 0 && !shown && rollout.strategy.is_empty() {
        return Plan::rest();
    }
    let mut value = export.value.clone();
    if !value["status"].is_object() {
        value["status"] = json!({});
    }
    let named = world
        .named
        .iter()
        .map(|held| json!({"workspace": held.workspace, "name": held.name, "message": held.message}));
    let named: Vec<Json> = named.collect();
    let mut status = json!({"bindings": world.bindings, "current": world.current, "held": world.held});
    if !named.is_empty() {
        status["heldBindings"] = json!(named);
    }
    value["status"]["rollout"] = status;
    if !rollout.is_all_or_nothing() {
        rollout::set_rolled_out(&mut value, held_message(world), world.now);
    }
    sort_conditions(&mut value);
    if value == export.value {
        return Plan::rest();
    }
    Plan::new(vec![export.update(value)])
}

/// Returns the message of the export's condition, if bindings stay.
fn held_message(world: &World) -> Option<String> {
    let first = world.named.first()?;
    Some(format!(
        "{} of {} bindings stay on the previous generation, e.g. {} in {}: {}",
        world.held, world.bindings, first.name, first.workspace, first.message
    ))
}

#[cfg(test)]
mod tests {
    use super::{MESSAGE_MAX, RolloutStatus, cut};
    use crate::testing::plan;
    use insula_api::{ClusterName, ObjectKey};
    use insula_catalog::{digest, ids};

    fn export(spec: &str) -> String {
        format!(
            "
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {{name: widgets}}
spec: {spec}
"
        )
    }

    /// Returns a binding of the tenant with this number.
    fn binding(tenant: usize, up_to_date: &str) -> String {
        let label = digest::export_label(&ClusterName::root(), "widgets");
        format!(
            "
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata:
  name: widgets
  annotations: {{kcp.io/cluster: t{tenant:02}}}
  labels: {{internal.apis.kcp.io/export: {label}}}
status: {{conditions: [{{type: BindingUpToDate, {up_to_date}}}]}}
"
        )
    }

    async fn decide(documents: &[String]) -> String {
        let key = ObjectKey::cluster_scoped(ids::apiexports(), ClusterName::root(), "widgets");
        plan(RolloutStatus::new, &key, &documents.join("---")).await
    }

    #[tokio::test]
    async fn the_export_names_ten_bindings_and_counts_all() {
        let held = |i| binding(i, "status: 'False', reason: RolloutBlocked, message: it does not fit");
        let mut world = vec![export("{}")];
        world.extend((0..12).map(held));
        world.push(binding(12, "status: 'True'"));
        let plan = decide(&world).await;
        for line in ["bindings: 13", "current: 1", "held: 12", "12 of 13 bindings stay"] {
            assert!(plan.contains(line), "{line} in {plan}");
        }
        assert_eq!(plan.matches("workspace:").count(), 10, "{plan}");
    }

    #[tokio::test]
    async fn an_export_without_trouble_is_left_alone() {
        let bound = binding(0, "status: 'True'");
        let plain = decide(&[export("{}"), bound.clone()]).await;
        assert!(!plain.contains("rollout"), "{plain}");
        let asked = decide(&[export("{rollout: {strategy: PerBinding}}"), bound]).await;
        assert!(asked.contains("current: 1"), "{asked}");
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let long = "é".repeat(MESSAGE_MAX);
        assert!(cut(&long).len() <= MESSAGE_MAX + '…'.len_utf8());
        assert_eq!(cut("short"), "short");
    }
}
