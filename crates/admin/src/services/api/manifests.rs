//! Schemas and rules of a request.

use crate::{
    services::{
        conversion::object,
        positions::{self, Positions},
    },
    status,
};
use insula_admission::publication::{Manifest, Published, Refusal, RulesSource, join_files, publish};
use insula_api::Json;
use insula_catalog::{Api, parts};
use insula_meter::Meter;
use prost_types::Struct;
use tonic::Status;

/// Manifests of one request. Each costs a compilation, and a search for what its rules lose.
const MANIFESTS_MAX: usize = 64;

/// A schema with its rules.
pub(in crate::services) struct Source {
    schema: Json,
    conversion: Option<Json>,
    positions: Positions,
    meter: Meter,
}

impl Source {
    pub(super) fn of_schema(schema: Json, meter: &Meter) -> Self {
        Source {
            positions: Positions::new("", &schema),
            schema,
            conversion: None,
            meter: meter.clone(),
        }
    }

    pub(super) fn is_of(&self, group: &str, plural: &str) -> bool {
        text(&self.schema, "/spec/group") == group && text(&self.schema, "/spec/names/plural") == plural
    }

    pub(super) fn name(&self) -> &str {
        text(&self.schema, "/metadata/name")
    }

    /// Returns true if the schema is that of an object.
    pub(in crate::services) fn describes(&self, object: &Json) -> bool {
        let api_version = text(object, "/apiVersion");
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        text(&self.schema, "/spec/group") == group && text(&self.schema, "/spec/names/kind") == text(object, "/kind")
    }

    pub(in crate::services) fn manifest(&self) -> Manifest<'_> {
        Manifest {
            schema: &self.schema,
            conversion: self.conversion.as_ref(),
            meter: &self.meter,
        }
    }

    pub(in crate::services) fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Compiles the schema with its rules, as the server would serve it.
    pub(in crate::services) fn compiled(&self) -> Result<Api, Status> {
        let compiled = self.manifest().compile();
        compiled.map_err(|errors| positions::refused(&self.positions.violations(&errors)))
    }

    /// Compiles the schema without its rules.
    pub(super) fn compiled_alone(mut self) -> Result<Api, Status> {
        insula_admission::publication::without_rules(&mut self.schema);
        self.conversion = None;
        let compiled = self.manifest().assemble();
        compiled.map_err(|errors| positions::refused(&self.positions.violations(&errors)))
    }
}

/// Returns the text at a JSON pointer, or an empty one.
pub(super) fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// Reads the manifests of a field, and pairs schemas with rules.
pub(in crate::services) fn sources(field: &str, sent: Vec<Struct>, meter: &Meter) -> Result<Vec<Source>, Status> {
    if sent.len() > MANIFESTS_MAX {
        return Err(Status::invalid_argument(format!(
            "{field}: must have at most {MANIFESTS_MAX} items"
        )));
    }
    let (mut sources, mut rules) = (Vec::new(), Vec::new());
    for (index, manifest) in sent.into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        let mut value = object(&field, Some(manifest))?.unwrap_or_default();
        match text(&value, "/kind") {
            kind @ ("APIResourceSchema" | "CustomResourceDefinition") => {
                if kind == "CustomResourceDefinition" {
                    insula_schema::default_definition(&mut value);
                }
                if text(&value, "/spec/names/plural").is_empty() {
                    return Err(Status::invalid_argument(format!(
                        "{field}.spec.names.plural: is required"
                    )));
                }
                sources.push((Positions::new(&field, &value), value, Vec::new()));
            }
            "APIConversion" | "APIConversionRules" => rules.push((field, value)),
            "" => return Err(status::invalid(&format!("{field}.kind"), "is required")),
            kind => {
                return Err(Status::invalid_argument(format!(
                    "{field}.kind: {kind:?} is none of APIResourceSchema, CustomResourceDefinition, APIConversion"
                )));
            }
        }
    }
    for (field, conversion) in rules {
        let name = parts::schema_of(&conversion);
        let schema = sources
            .iter_mut()
            .find(|(_, schema, _)| text(schema, "/metadata/name") == name);
        let Some((positions, _, parts)) = schema else {
            return Err(Status::invalid_argument(format!(
                "{field}: there is no schema {name:?} beside it, which its rules are for"
            )));
        };
        positions.add_rules(text(&conversion, "/metadata/name"), &field);
        parts.push(conversion);
    }
    if sources.is_empty() {
        return Err(Status::invalid_argument(format!(
            "{field}: give an APIResourceSchema or a CustomResourceDefinition"
        )));
    }
    let joined = sources.into_iter().map(|(positions, schema, mut parts)| {
        parts.sort_by_key(|part| text(part, "/metadata/name").to_owned());
        Source {
            schema,
            conversion: join_files(parts),
            positions,
            meter: meter.clone(),
        }
    });
    Ok(joined.collect())
}

/// Plans the publication of manifests. Refuses schemas and rules with wrong fields, but for drafts,
/// which rules that are published may replace.
pub(super) fn published(field: &str, sent: Vec<Struct>, meter: &Meter) -> Result<Vec<Published>, Status> {
    let sources = sources(field, sent, meter)?;
    let (mut planned, mut violations) = (Vec::new(), Vec::new());
    for source in &sources {
        let api = publish(source.manifest());
        let wrong = api.errors.iter().filter_map(|error| match error {
            Refusal::Field(error) => Some(error.clone()),
            Refusal::Whole(_) => None,
        });
        let wrong: Vec<_> = wrong.collect();
        if !matches!(api.rules, RulesSource::Draft(_)) {
            violations.extend(source.positions.violations(&wrong));
        }
        planned.push(api);
    }
    if violations.is_empty() {
        return Ok(planned);
    }
    Err(positions::refused(&violations))
}
