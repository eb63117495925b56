//! `ConversionService`: trying rules without publishing them. The engine is the one that serves.

use crate::door::{Door, Visit};
use insula_api::{FieldError, Json, ObjectKey};
use insula_conversion::Strategy;
use insula_proto::{
    admin::v1::{
        ConvertRequest, ConvertResponse, FieldViolation, InlineRules, StoredRules, ValidateRequest, ValidateResponse,
        conversion_service_server::ConversionService, convert_request::Source,
    },
    value,
};
use insula_registry::{Api, compile, ids};
use prost_types::Struct;
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl ConversionService for Door {
    async fn validate(&self, request: Request<ValidateRequest>) -> Result<Response<ValidateResponse>, Status> {
        let visit = self.enter(&request, "").await?;
        let ValidateRequest { schema, rules } = request.into_inner();
        let schema = object("schema", schema)?.ok_or_else(|| Status::invalid_argument("schema: is required"))?;
        let rules = object("rules", rules)?;
        let proven =
            compiled(&schema, rules.as_ref()).and_then(|api| self.registry.catalog.proof(&Arc::new(api)).clone());
        let violations = match proven {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(violation).collect(),
        };
        Ok(Response::new(ValidateResponse {
            header: visit.header(),
            valid: violations.is_empty(),
            violations,
        }))
    }

    async fn convert(&self, request: Request<ConvertRequest>) -> Result<Response<ConvertResponse>, Status> {
        let workspace = match &request.get_ref().source {
            Some(Source::Stored(stored)) => stored.workspace.as_str(),
            Some(Source::Inline(_)) | None => "",
        };
        let visit = self.enter(&request, workspace).await?;
        let ConvertRequest {
            source,
            object: sent,
            to_version,
        } = request.into_inner();
        let sent = object("object", sent)?.ok_or_else(|| Status::invalid_argument("object: is required"))?;
        let (schema, rules) = match source {
            Some(Source::Inline(InlineRules { schema, rules })) => {
                let schema = object("inline.schema", schema)?;
                let schema = schema.ok_or_else(|| Status::invalid_argument("inline.schema: is required"))?;
                (schema, object("inline.rules", rules)?)
            }
            Some(Source::Stored(stored)) => self.stored(&visit, &stored)?,
            None => return Err(Status::invalid_argument("source: give inline or stored")),
        };
        let api = compiled(&schema, rules.as_ref()).map_err(|errors| {
            Status::failed_precondition(format!("the rules are not valid: {}", insula_api::aggregate(&errors)))
        })?;
        let bundle = &api.bundle;
        if !bundle.versions().any(|version| version == to_version) {
            let known: Vec<&str> = bundle.versions().collect();
            return Err(Status::invalid_argument(format!(
                "to_version: the schema has no version {to_version:?}; it has {}",
                known.join(", ")
            )));
        }
        let mut budget = insula_conversion::object_budget();
        let converted = bundle
            .convert(&sent, &to_version, &mut budget)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let map = converted
            .as_object()
            .ok_or_else(|| Status::internal("a converted object is an object"))?;
        let object = value::from_json(map).map_err(|error| Status::out_of_range(error.to_string()))?;
        Ok(Response::new(ConvertResponse {
            header: visit.header(),
            object: Some(object),
        }))
    }
}

impl Door {
    /// A schema of a workspace, and the rules of its name.
    fn stored(&self, visit: &Visit, stored: &StoredRules) -> Result<(Json, Option<Json>), Status> {
        let (cluster, _) = self.locate(visit, &stored.workspace)?;
        let name = &stored.schema_name;
        self.permit(visit, Some(&cluster), "get", "apis.kcp.io", "apiresourceschemas", name)?;
        self.permit(visit, Some(&cluster), "get", "apis.kcp.io", "apiconversions", name)?;
        let find = |resource| {
            visit
                .snapshot
                .get(&ObjectKey::cluster_scoped(resource, cluster.clone(), name))
        };
        let schema = find(ids::apiresourceschemas()).ok_or_else(|| {
            Status::not_found(format!(
                "apiresourceschemas.apis.kcp.io {name:?} not found in workspace {}",
                stored.workspace
            ))
        })?;
        Ok((
            schema.object.body_value(),
            find(ids::apiconversions()).map(|entry| entry.object.body_value()),
        ))
    }
}

/// An APIResourceSchema with rules, compiled as the binding reconciler does it.
fn compiled(schema: &Json, rules: Option<&Json>) -> Result<Api, Vec<FieldError>> {
    let spec = compile::spec_of_schema(schema);
    let rules = rules.map(|rules| &rules["spec"]);
    let definition = compile::Definition {
        spec: &spec,
        accepted_names: None,
        rules,
        strategy: Strategy::Lossless,
    };
    compile::compile(&definition, None)
}

fn object(field: &str, sent: Option<Struct>) -> Result<Option<Json>, Status> {
    let converted = sent.map(value::to_json).transpose();
    let converted = converted.map_err(|error| Status::invalid_argument(format!("{field}: {error}")))?;
    Ok(converted.map(Json::Object))
}

fn violation(error: &FieldError) -> FieldViolation {
    FieldViolation {
        field: error.field.to_string(),
        reason: error.kind.reason().to_owned(),
        message: error.body(),
    }
}
