//! APIConversions: check of the rules against the schema or definition of their name, and the
//! status that tells the outcome for every field.

mod status;
#[cfg(test)]
mod tests;

use crate::{loaded::Loaded, runtime::Reconciler};
use insula_api::{FieldPath, Json, ObjectKey, ResourceId, Timestamp, kinds::ApiConversion};
use insula_catalog::{bundle, ids, parts};
use insula_conversion::parse_rules;
use insula_meter::Meter;
use insula_registry::{Deps, Plan};
use insula_store::{Change, Entry, Snapshot};
use serde_json::json;
use status::{Awaited, Outcome, OwnRules};
use std::{collections::BTreeSet, sync::Arc};

/// Reconciles APIConversions.
pub(crate) struct ApiConversions {
    registry: Arc<Deps>,
}

/// World of a conversion.
pub(crate) struct World {
    conversion: Option<Loaded<ApiConversion>>,
    outcome: Outcome,
    /// Name of the schema or definition.
    schema: String,
    /// Rules of each conversion of that schema, if there are several.
    parts: Vec<OwnRules>,
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
                let proof = catalog.proof(&api, &Meter::unbounded()).into_owned();
                Outcome::Compiled(api, proof)
            }
        }
    }

    /// Checks the rules of a definition. One of the two may have come before the other.
    fn outcome_beside(
        &self,
        conversion: &ApiConversion,
        rules: &Json,
        (snapshot, definition): (&Snapshot, &Json),
    ) -> Outcome {
        let parsed = parse_rules(&rules["spec"], &FieldPath::new("spec"));
        let apart = parsed.ok().map(|rules| parts::apart(&rules, definition));
        let Some(apart) = apart else {
            return self.outcome(conversion, &bundle::of_definition(definition, rules));
        };
        if !apart.missing.is_empty() {
            return Outcome::Wait(Awaited::Versions(apart.missing));
        }
        let outcome = self.outcome(conversion, &bundle::of_definition(definition, rules));
        if !matches!(outcome, Outcome::Wrong(_)) {
            return outcome;
        }
        let given_up = parts::given_up(snapshot, definition, apart);
        let later = parts::without_versions(definition, &given_up);
        let fits = || {
            self.registry
                .catalog
                .compile(&bundle::of_definition(&later, rules))
                .is_ok()
        };
        match !given_up.is_empty() && fits() {
            true => Outcome::Wait(Awaited::Removal(given_up)),
            false => outcome,
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

    /// Returns all conversions of the schema: the rules of each are checked with those of the
    /// others.
    fn keys(&self, change: &Change, snapshot: &Snapshot) -> Vec<ObjectKey> {
        let key = &change.key;
        let schemas = match &*key.resource.resource {
            "apiconversions" => parts::schemas_of_change(change),
            _ => BTreeSet::from([key.name.to_string()]),
        };
        let parts = schemas
            .iter()
            .flat_map(|schema| parts::for_schema(snapshot, &key.cluster, schema));
        parts.map(|part| part.key).collect()
    }

    fn observe(&self, key: &ObjectKey, snapshot: &Snapshot) -> World {
        let conversion = Loaded::<ApiConversion>::get(snapshot, key);
        let schema = conversion
            .as_ref()
            .map_or("", |conversion| parts::schema_of(&conversion.value))
            .to_owned();
        let find = |resource| {
            let key = ObjectKey::cluster_scoped(resource, key.cluster.clone(), &schema);
            snapshot.get(&key).map(|entry| entry.object.body_value())
        };
        let parts = parts::for_schema(snapshot, &key.cluster, &schema);
        let rules = parts::join(parts.iter().map(|part| part.object.body_value()).collect());
        let own_rules = |(part, entry): (&Json, &Entry)| OwnRules {
            name: entry.key.name.to_string(),
            rules: parse_rules(&json!({"parts": [part]}), &FieldPath::new("spec")).ok(),
        };
        let joined = rules.as_ref().and_then(|rules| rules["spec"]["parts"].as_array());
        let own: Vec<OwnRules> = joined.into_iter().flatten().zip(&parts).map(own_rules).collect();
        let found = (find(ids::apiresourceschemas()), find(ids::customresourcedefinitions()));
        let outcome = match (&conversion, &rules, &found) {
            (Some(conversion), Some(rules), (Some(schema), _)) => {
                self.outcome(&conversion.view, &bundle::of_schema(schema, Some(rules)))
            }
            (Some(conversion), Some(rules), (None, Some(definition))) => {
                self.outcome_beside(&conversion.view, rules, (snapshot, definition))
            }
            _ => Outcome::Wait(Awaited::Schema),
        };
        World {
            conversion,
            outcome,
            schema,
            parts: own,
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
        let part = status::PartView {
            name: &conversion.entry.key.name,
            schema: &world.schema,
            parts: &world.parts,
        };
        status::write(&mut value, &part, &world.outcome, world.now);
        Plan::new(vec![conversion.update(value)])
    }
}
