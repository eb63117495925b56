//! Schemas and rules of `ConversionService`: in the request, as a pair or as manifests, or stored
//! in a workspace.

use super::{RULES, compiled, is_of, object};
use crate::{
    services::{
        api::{manifests, not_found, required},
        positions::{self, Positions},
    },
    session::{Located, Session, right},
    status,
};
use insula_api::{Json, ObjectKey, Verb, names::groups};
use insula_catalog::{Api, ids, parts};
use insula_meter::Meter;
use insula_proto::admin::v1::{InlineRules, StoredRules, ValidateRequest};
use prost_types::Struct;
use tonic::Status;

/// Source of schemas and rules.
pub(super) enum Source {
    Inline(InlineRules),
    Stored(String, Json, Option<Json>),
}

/// A schema with its rules, which are not compiled yet.
pub(super) enum Candidate {
    Pair(Pair),
    Manifest(manifests::Source),
    Stored(String, Json, Option<Json>),
}

/// A schema and rules of two fields.
pub(super) struct Pair {
    pub(super) schema: Json,
    pub(super) rules: Option<Json>,
    pub(super) positions: Positions,
}

impl Pair {
    /// Reads the two fields, which are below a parent such as `inline.`.
    pub(super) fn read(parent: &str, schema: Option<Struct>, rules: Option<Struct>) -> Result<Self, Status> {
        let (schema_field, rules_field) = (format!("{parent}schema"), format!("{parent}rules"));
        let schema = object(&schema_field, schema)?;
        let schema = schema.ok_or_else(|| status::invalid(&schema_field, "is required, or manifests"))?;
        let rules = object(&rules_field, rules)?;
        super::of_kind(&schema_field, &schema, &[("APIResourceSchema", "apis.kcp.io/v1alpha1")])?;
        let mut positions = Positions::new(&schema_field, &schema);
        if let Some(rules) = &rules {
            super::of_kind(&rules_field, rules, &RULES)?;
            positions.add_rules("", &rules_field);
        }
        Ok(Pair {
            schema,
            rules,
            positions,
        })
    }
}

/// Refuses manifests beside a schema or rules.
pub(super) fn check_alone(parent: &str, schema: Option<&Struct>, rules: Option<&Struct>) -> Result<(), Status> {
    match (schema, rules) {
        (None, None) => Ok(()),
        (Some(_), _) => Err(status::invalid(
            &format!("{parent}schema"),
            "must be absent with manifests",
        )),
        (None, Some(_)) => Err(status::invalid(
            &format!("{parent}rules"),
            "must be absent with manifests",
        )),
    }
}

impl Candidate {
    /// Compiles the schema with its rules.
    pub(super) fn compile(&self) -> Result<Api, Status> {
        match self {
            Candidate::Pair(pair) => compiled(&pair.schema, pair.rules.as_ref())
                .map_err(|errors| positions::refused(&pair.positions.violations(&errors))),
            Candidate::Manifest(source) => source.compiled(),
            Candidate::Stored(name, schema, rules) => {
                compiled(schema, rules.as_ref()).map_err(|errors| positions::unusable(name, &errors))
            }
        }
    }
}

impl Source {
    fn read(self, meter: &Meter) -> Result<Vec<Candidate>, Status> {
        match self {
            Source::Inline(inline) if inline.manifests.is_empty() => {
                let pair = Pair::read("inline.", inline.schema, inline.rules)?;
                Ok(vec![Candidate::Pair(pair)])
            }
            Source::Inline(inline) => {
                check_alone("inline.", inline.schema.as_ref(), inline.rules.as_ref())?;
                let sources = manifests::sources("inline.manifests", inline.manifests, meter)?;
                Ok(sources.into_iter().map(Candidate::Manifest).collect())
            }
            Source::Stored(name, schema, rules) => Ok(vec![Candidate::Stored(name, schema, rules)]),
        }
    }

    /// Compiles the API of the source, which must be one.
    pub(super) fn compile_one(self, meter: &Meter) -> Result<Api, Status> {
        match self.read(meter)?.as_slice() {
            [one] => one.compile(),
            several => {
                let text = format!("must have one schema, and has {}", several.len());
                Err(status::invalid("inline.manifests", text))
            }
        }
    }

    /// Compiles the API of an object.
    pub(super) fn compile_for(self, sent: &Json, meter: &Meter) -> Result<Api, Status> {
        let candidates = self.read(meter)?;
        let describes = |candidate: &&Candidate| match candidate {
            Candidate::Manifest(source) => source.describes(sent),
            Candidate::Pair(_) | Candidate::Stored(..) => true,
        };
        // Where no schema is the object's, the first one says what it is of.
        let found = candidates.iter().find(describes).or(candidates.first());
        let found = found.ok_or_else(|| status::invalid("inline.manifests", "is required"))?;
        let api = found.compile()?;
        is_of(&api, sent)?;
        Ok(api)
    }
}

/// Returns true for rules outside of their schema.
fn has_rules(manifests: &[Struct]) -> bool {
    let kind = |manifest: &Struct| {
        let kind = manifest.fields.get("kind").and_then(|kind| kind.kind.as_ref());
        matches!(kind, Some(prost_types::value::Kind::StringValue(kind)) if kind.starts_with("APIConversion"))
    };
    manifests.iter().any(kind)
}

impl Session {
    /// Finds the workspace in which the schemas of a request are validated.
    pub(super) fn validated_in(&self, request: &ValidateRequest) -> Result<Located, Status> {
        let with_rules = request.rules.is_some() || has_rules(&request.manifests);
        self.locate_trial(&request.workspace, with_rules)
    }

    pub(super) fn inline(&self, inline: InlineRules) -> Result<(Located, Source), Status> {
        let with_rules = inline.rules.is_some() || has_rules(&inline.manifests);
        let located = self.locate_trial(&inline.workspace, with_rules)?;
        Ok((located, Source::Inline(inline)))
    }

    /// Reads a schema of a workspace, and the rules of its name.
    pub(super) fn source_of(&self, stored: &StoredRules) -> Result<(Located, Source), Status> {
        let name = &stored.schema_name;
        required("stored.workspace", &stored.workspace)?;
        required("stored.schema_name", name)?;
        let get = |resource| right(Verb::Get, groups::APIS, resource, name);
        let located = self.locate_field("stored.workspace", &stored.workspace, &get("apiresourceschemas"))?;
        self.permit(&located.cluster, get("apiconversions"))?;
        let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), located.cluster.clone(), name);
        let schema = self.snapshot.get(&key);
        let schema = schema.ok_or_else(|| not_found("apiresourceschemas", name, &located.path))?;
        let rules = parts::joined(&self.snapshot, &located.cluster, name);
        let source = Source::Stored(name.clone(), schema.object.body_value(), rules);
        Ok((located, source))
    }
}
