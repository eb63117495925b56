//! APIConversions: whether the rules fit the schema or definition of their name, or still wait for it.

use crate::{runtime::Reconciler, write::sort_conditions};
use insula_api::{Condition, Json, ObjectKey, ResourceId, Timestamp, aggregate, set_condition};
use insula_registry::{Intent, Plan, Registry, admission::bundle, ids};
use insula_store::{Change, Entry, Snapshot};
use std::sync::Arc;

/// Reconciles APIConversions.
pub(crate) struct ApiConversions {
    registry: Arc<Registry>,
}

/// The world of a conversion.
pub(crate) struct World {
    conversion: Option<(Entry, Json)>,
    outcome: Outcome,
    now: Timestamp,
}

/// What the rules are worth.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// They compile against the schema of their name.
    Fit,
    /// There is neither a schema nor a definition of their name.
    Wait,
    /// They do not compile: what is wrong, by field.
    Wrong(String),
}

impl ApiConversions {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        ApiConversions { registry }
    }
}

impl Reconciler for ApiConversions {
    type Key = ObjectKey;
    type World = World;

    fn name(&self) -> &'static str {
        "apiconversion"
    }

    fn watches(&self) -> Vec<ResourceId> {
        vec![
            ids::apiconversions(),
            ids::apiresourceschemas(),
            ids::customresourcedefinitions(),
        ]
    }

    /// All three have the same name.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = ObjectKey {
            resource: ids::apiconversions(),
            ..change.key.clone()
        };
        if snapshot.get(&key).is_some() {
            vec![key]
        } else {
            Vec::new()
        }
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let find = |resource| {
            let key = ObjectKey {
                resource,
                ..key.clone()
            };
            snapshot.get(&key).map(|entry| entry.object.body_value())
        };
        let conversion = snapshot.get(key).map(|entry| {
            let value = entry.object.body_value();
            (entry, value)
        });
        let rules = conversion.as_ref().map(|(_, value)| value);
        let bundle = match (
            rules,
            find(ids::apiresourceschemas()),
            find(ids::customresourcedefinitions()),
        ) {
            (Some(rules), Some(schema), _) => Some(bundle::of_schema(&schema, Some(rules))),
            (Some(rules), None, Some(definition)) => Some(bundle::of_definition(&definition, rules)),
            _ => None,
        };
        let outcome = match bundle.map(|bundle| self.registry.catalog.compile(&bundle)) {
            None => Outcome::Wait,
            Some(Ok(_)) => Outcome::Fit,
            Some(Err(errors)) => Outcome::Wrong(aggregate(&errors)),
        };
        World {
            conversion,
            outcome,
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        let Some((entry, old)) = &world.conversion else {
            return Plan::rest();
        };
        if entry.object.meta.is_deleting() {
            return Plan::rest();
        }
        let name = &entry.key.name;
        let valid = match &world.outcome {
            Outcome::Fit => Condition::holds("Valid"),
            Outcome::Wait => Condition::fails(
                "Valid",
                "SchemaNotFound",
                format!("no APIResourceSchema or CustomResourceDefinition {name:?} in this workspace: create it, or name the conversion like the schema it belongs to"),
            )
            .severity("Info"),
            Outcome::Wrong(why) => Condition::fails("Valid", "InvalidRules", why.clone()),
        };
        let mut value = old.clone();
        set_condition(&mut value, &valid, world.now);
        sort_conditions(&mut value);
        Plan {
            intents: vec![Intent::Update(entry.clone(), value)],
            again_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Rig;
    use insula_api::condition;

    const RULES: &str =
        "{apiVersion: apis.kcp.io/v1alpha1, kind: APIConversion, metadata: {name: today.widgets.example.io},
        spec: {conversions: [{from: v1, to: v2, rules: [{field: .spec.a, destination: .spec.b}]},
                             {from: v2, to: v1, rules: [{field: .spec.b, destination: .spec.a}]}]}}";
    const SCHEMA: &str =
        "{apiVersion: apis.kcp.io/v1alpha1, kind: APIResourceSchema, metadata: {name: today.widgets.example.io},
        spec: {group: example.io, scope: Namespaced,
               names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [
          {name: v1, served: true, storage: true, schema: {type: object, properties: {
            spec: {type: object, properties: {a: {type: string}}}}}},
          {name: v2, served: true, storage: false, schema: {type: object, properties: {
            spec: {type: object, properties: {b: {type: string}}}}}}]}}";

    #[tokio::test]
    async fn rules_wait_for_their_schema_and_say_so() {
        let rig = Rig::new().await;
        let org = rig.workspace("root", "org").await;
        let (group, name) = ("apis.kcp.io/v1alpha1", "today.widgets.example.io");
        rig.create(&org, "apiconversions", RULES).await;
        rig.settle().await;
        let waiting = rig.get(&org, group, "apiconversions", name).expect("stored");
        let valid = condition(&waiting, "Valid").expect("has a status");
        assert_eq!(
            (&valid["status"], &valid["reason"]),
            (&"False".into(), &"SchemaNotFound".into())
        );
        rig.create(&org, "apiresourceschemas", SCHEMA).await;
        rig.settle().await;
        let fits = rig.get(&org, group, "apiconversions", name).expect("stored");
        assert_eq!(condition(&fits, "Valid").expect("has a status")["status"], "True");
    }
}
