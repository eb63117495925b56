//! APIConversions: check of the rules against the schema or definition of their name, and the
//! status that tells the outcome for every field.

mod status;
#[cfg(test)]
mod tests;

use crate::{loaded::Loaded, runtime::Reconciler};
use insula_api::{Json, ObjectKey, ResourceId, Timestamp, kinds::ApiConversion};
use insula_catalog::{bundle, ids};
use insula_registry::{Deps, Plan};
use insula_store::{Change, Snapshot};
use status::Outcome;
use std::sync::Arc;

/// Reconciles APIConversions.
pub(crate) struct ApiConversions {
    registry: Arc<Deps>,
}

/// World of a conversion.
pub(crate) struct World {
    conversion: Option<Loaded<ApiConversion>>,
    outcome: Outcome,
    now: Timestamp,
}

impl ApiConversions {
    pub(crate) fn new(registry: Arc<Deps>) -> Self {
        ApiConversions { registry }
    }

    /// Checks the rules. The search for counterexamples is slow, so a result that the status shows
    /// is not searched again, not even after a restart.
    fn outcome(&self, conversion: &ApiConversion, bundle: &Json) -> Outcome {
        let catalog = &self.registry.catalog;
        match catalog.compile(bundle) {
            Err(errors) => Outcome::Wrong(errors),
            Ok(api) if conversion.status.observed == status::observed(&api) => Outcome::Known,
            Ok(api) => {
                let proof = catalog.proof(&api).clone();
                Outcome::Compiled(api, proof)
            }
        }
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

    /// Returns the conversion: rules, schema and definition have the same name.
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
        let conversion = Loaded::<ApiConversion>::get(snapshot, key);
        let rules = conversion.as_ref().map(|conversion| &conversion.value);
        let bundle = match (
            rules,
            find(ids::apiresourceschemas()),
            find(ids::customresourcedefinitions()),
        ) {
            (Some(rules), Some(schema), _) => Some(bundle::of_schema(&schema, Some(rules))),
            (Some(rules), None, Some(definition)) => Some(bundle::of_definition(&definition, rules)),
            _ => None,
        };
        let outcome = match (&conversion, bundle) {
            (Some(conversion), Some(bundle)) => self.outcome(&conversion.view, &bundle),
            _ => Outcome::Wait,
        };
        World {
            conversion,
            outcome,
            now: self.registry.clock.now(),
        }
    }

    fn decide(&self, world: &World) -> Plan {
        let Some(conversion) = &world.conversion else {
            return Plan::rest();
        };
        if conversion.is_deleting() || matches!(world.outcome, Outcome::Known) {
            return Plan::rest();
        }
        let mut value = conversion.value.clone();
        status::write(&mut value, &conversion.entry.key.name, &world.outcome, world.now);
        Plan::new(vec![conversion.update(value)])
    }
}
