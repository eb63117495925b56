//! `ConversionService`: validation and trial of conversion rules that are not published, with the
//! engine that serves.

use super::{
    api::{not_found, required},
    rules,
};
use crate::{
    session::{AdminService, Located, Session, right},
    status,
};
use insula_api::{FieldError, Json, ObjectKey, names::groups};
use insula_catalog::{Api, compile, ids, parts};
use insula_conversion::{Cause, LossPolicy};
use insula_proto::{
    admin::v1::{
        ConvertRequest, ConvertResponse, FieldViolation, GetCoverageRequest, GetCoverageResponse, InlineRules,
        ListConversionFailuresRequest, ListConversionFailuresResponse, RecomputeRequest, RecomputeResponse,
        StoredRules, SuggestRulesRequest, SuggestRulesResponse, ValidateRequest, ValidateResponse,
        conversion_service_server::ConversionService, convert_request, get_coverage_request,
    },
    value,
};
use prost_types::Struct;
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl ConversionService for AdminService {
    async fn validate(&self, request: Request<ValidateRequest>) -> Result<Response<ValidateResponse>, Status> {
        let session = self.begin(&request).await?;
        let ValidateRequest {
            schema,
            rules,
            workspace,
        } = request.into_inner();
        let located = session.locate_trial(&workspace, rules.is_some())?;
        let registry = Arc::clone(&self.api.registry);
        let verdict = move || {
            let schema = object("schema", schema)?.ok_or_else(|| Status::invalid_argument("schema: is required"))?;
            let rules = object("rules", rules)?;
            are_of_kind("", &schema, rules.as_ref())?;
            let proven =
                compiled(&schema, rules.as_ref()).and_then(|api| registry.catalog.proof(&Arc::new(api)).clone());
            Ok(match proven {
                Ok(proven) => (Vec::new(), proven.misfits.iter().map(ToString::to_string).collect()),
                Err(errors) => (errors.iter().map(violation).collect(), Vec::new()),
            })
        };
        let (violations, warnings): (Vec<FieldViolation>, _) = self.run_blocking(&session, &located, verdict).await?;
        Ok(Response::new(ValidateResponse {
            header: session.header(),
            valid: violations.is_empty(),
            violations,
            warnings,
        }))
    }

    async fn convert(&self, request: Request<ConvertRequest>) -> Result<Response<ConvertResponse>, Status> {
        let session = self.begin(&request).await?;
        let ConvertRequest {
            source,
            object: sent,
            to_version,
        } = request.into_inner();
        let (located, source) = match source {
            Some(convert_request::Source::Inline(inline)) => session.inline(inline)?,
            Some(convert_request::Source::Stored(stored)) => session.source_of(&stored)?,
            None => return Err(Status::invalid_argument("source: give inline or stored")),
        };
        let converted = move || {
            let sent = object("object", sent)?.ok_or_else(|| Status::invalid_argument("object: is required"))?;
            let (schema, rules) = source.read()?;
            convert(&schema, rules.as_ref(), &sent, &to_version)
        };
        let object = self.run_blocking(&session, &located, converted).await?;
        Ok(Response::new(ConvertResponse {
            header: session.header(),
            object: Some(object),
        }))
    }

    async fn recompute(&self, request: Request<RecomputeRequest>) -> Result<Response<RecomputeResponse>, Status> {
        let session = self.begin(&request).await?;
        let answer = self.recomputed_once(&session, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn suggest_rules(
        &self,
        request: Request<SuggestRulesRequest>,
    ) -> Result<Response<SuggestRulesResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.locate_trial(&request.workspace, false)?;
        let drafts = move || rules::drafts(request);
        let (drafts, conversion) = self.run_blocking(&session, &located, drafts).await?;
        Ok(Response::new(SuggestRulesResponse {
            header: session.header(),
            conversion: Some(conversion),
            drafts,
        }))
    }

    async fn get_coverage(
        &self,
        request: Request<GetCoverageRequest>,
    ) -> Result<Response<GetCoverageResponse>, Status> {
        let session = self.begin(&request).await?;
        let (located, source) = match request.into_inner().source {
            Some(get_coverage_request::Source::Inline(inline)) => session.inline(inline)?,
            Some(get_coverage_request::Source::Stored(stored)) => session.source_of(&stored)?,
            None => return Err(Status::invalid_argument("source: give inline or stored")),
        };
        let covered = move || {
            let (schema, rules) = source.read()?;
            rules::coverage(&schema, rules.as_ref())
        };
        let directions = self.run_blocking(&session, &located, covered).await?;
        Ok(Response::new(GetCoverageResponse {
            header: session.header(),
            directions,
        }))
    }

    async fn list_conversion_failures(
        &self,
        request: Request<ListConversionFailuresRequest>,
    ) -> Result<Response<ListConversionFailuresResponse>, Status> {
        let session = self.begin(&request).await?;
        let (tried, revision) = self.unreadable(&session, request.into_inner()).await?;
        Ok(Response::new(ListConversionFailuresResponse {
            header: session.header_at(revision),
            failures: tried.failures,
            examined: tried.examined,
            next_page_token: tried.next,
        }))
    }
}

/// Kinds of objects with rules.
pub(super) const RULES: [(&str, &str); 2] = [
    ("APIConversion", "apis.kcp.io/v1alpha1"),
    ("APIConversionRules", "apis.kcp.dev/v1alpha1"),
];

/// Refuses an object that is of none of some kinds. One with a `spec` need not name its kind.
pub(super) fn of_kind(field: &str, object: &Json, kinds: &[(&str, &str)]) -> Result<(), Status> {
    let has_spec = object["spec"].is_object();
    let says = |key: &str, text: &str| object[key].is_null() && has_spec || object[key] == *text;
    if kinds
        .iter()
        .any(|(kind, version)| says("kind", kind) && says("apiVersion", version))
    {
        return Ok(());
    }
    let names: Vec<String> = kinds
        .iter()
        .map(|(kind, version)| format!("{kind} of {version}"))
        .collect();
    Err(status::invalid(
        field,
        format!("must be of kind {}", names.join(" or ")),
    ))
}

/// Refuses a schema and rules that are of other kinds.
fn are_of_kind(parent: &str, schema: &Json, rules: Option<&Json>) -> Result<(), Status> {
    of_kind(
        &format!("{parent}schema"),
        schema,
        &[("APIResourceSchema", "apis.kcp.io/v1alpha1")],
    )?;
    rules.map_or(Ok(()), |rules| of_kind(&format!("{parent}rules"), rules, &RULES))
}

/// Schema and rules of a request.
enum Source {
    Inline(InlineRules),
    Stored(Json, Option<Json>),
}

impl Source {
    fn read(self) -> Result<(Json, Option<Json>), Status> {
        match self {
            Source::Inline(InlineRules { schema, rules, .. }) => {
                let schema = object("inline.schema", schema)?;
                let schema = schema.ok_or_else(|| Status::invalid_argument("inline.schema: is required"))?;
                let rules = object("inline.rules", rules)?;
                are_of_kind("inline.", &schema, rules.as_ref())?;
                Ok((schema, rules))
            }
            Source::Stored(schema, rules) => Ok((schema, rules)),
        }
    }
}

impl AdminService {
    /// Runs work that takes long on the worker pool, charged to a workspace, in a span of the
    /// request.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        session: &Session,
        located: &Located,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let entered = self.enter(session, &located.cluster).await?;
        let span = tracing::info_span!("conversion");
        let work = move || span.in_scope(work);
        let done = entered.run(self.workers.run(&located.cluster, work)).await;
        done.unwrap_or_else(|| Err(Status::unavailable("the server is shutting down")))
    }
}

impl Session {
    /// Finds the workspace in which a schema is tried. A trial costs as much as the creation, and
    /// takes the same right.
    pub(super) fn locate_trial(&self, workspace: &str, with_rules: bool) -> Result<Located, Status> {
        let workspace = if workspace.is_empty() { "root" } else { workspace };
        let create = |resource| right("create", groups::APIS, resource, "");
        let located = self.locate(workspace, &create("apiresourceschemas"))?;
        if with_rules {
            self.permit(&located.cluster, create("apiconversions"))?;
        }
        Ok(located)
    }

    fn inline(&self, inline: InlineRules) -> Result<(Located, Source), Status> {
        let located = self.locate_trial(&inline.workspace, inline.rules.is_some())?;
        Ok((located, Source::Inline(inline)))
    }

    fn source_of(&self, stored: &StoredRules) -> Result<(Located, Source), Status> {
        let (located, schema, rules) = self.stored(stored)?;
        Ok((located, Source::Stored(schema, rules)))
    }

    /// Reads a schema of a workspace, and the rules of its name.
    fn stored(&self, stored: &StoredRules) -> Result<(Located, Json, Option<Json>), Status> {
        let name = &stored.schema_name;
        required("stored.workspace", &stored.workspace)?;
        required("stored.schema_name", name)?;
        let get = |resource| right("get", groups::APIS, resource, name);
        let located = self.locate_field("stored.workspace", &stored.workspace, &get("apiresourceschemas"))?;
        self.permit(&located.cluster, get("apiconversions"))?;
        let find = |resource| {
            let key = ObjectKey::cluster_scoped(resource, located.cluster.clone(), name);
            self.snapshot.get(&key)
        };
        let schema = find(ids::apiresourceschemas());
        let schema = schema.ok_or_else(|| not_found("apiresourceschemas", name, &located.path))?;
        let rules = parts::joined(&self.snapshot, &located.cluster, name);
        Ok((located, schema.object.body_value(), rules))
    }
}

fn convert(schema: &Json, rules: Option<&Json>, sent: &Json, to_version: &str) -> Result<Struct, Status> {
    let api = compiled(schema, rules).map_err(|errors| {
        Status::failed_precondition(format!("the rules are not valid: {}", insula_api::aggregate(&errors)))
    })?;
    let bundle = &api.bundle;
    is_of(&api, sent)?;
    if !bundle.versions().any(|version| version == to_version) {
        let known: Vec<&str> = bundle.versions().collect();
        let known = known.join(", ");
        let problem = match to_version {
            "" => format!("is required; the schema has {known}"),
            version => format!("the schema has no version {version:?}; it has {known}"),
        };
        return Err(status::invalid("to_version", problem));
    }
    let mut budget = insula_conversion::object_budget();
    let converted = bundle
        .convert(sent, to_version, &mut budget)
        .map_err(|error| match error.cause {
            Cause::Budget(_) => Status::resource_exhausted(error.to_string()),
            _ => Status::failed_precondition(error.to_string()),
        })?;
    let map = converted
        .as_object()
        .ok_or_else(|| Status::internal("a converted object is an object"))?;
    value::from_json(map).map_err(|error| Status::out_of_range(error.to_string()))
}

/// Refuses an object of another API, or in a version that the schema does not have.
fn is_of(api: &Api, object: &Json) -> Result<(), Status> {
    let known = api.bundle.versions().map(|version| match &*api.group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    });
    let known: Vec<String> = known.collect();
    let kind = &*api.names.kind;
    for (field, is_it, wanted) in [
        (
            "apiVersion",
            known.iter().any(|known| object["apiVersion"] == **known),
            known.join(" or "),
        ),
        ("kind", object["kind"] == *kind, kind.to_owned()),
    ] {
        let problem = match object[field].as_str() {
            _ if is_it => continue,
            None | Some("") => format!("is required: {wanted}"),
            Some(other) => format!("is {other:?}; the schema is of {wanted}"),
        };
        return Err(status::invalid(&format!("object.{field}"), problem));
    }
    Ok(())
}

/// Compiles an APIResourceSchema with rules, as the binding reconciler does.
pub(super) fn compiled(schema: &Json, rules: Option<&Json>) -> Result<Api, Vec<FieldError>> {
    let spec = compile::spec_of_schema(schema);
    let rules = rules.map(|rules| &rules["spec"]);
    let definition = compile::Definition {
        spec: &spec,
        accepted_names: None,
        rules,
        strategy: LossPolicy::Lossless,
        strict_scale: false,
    };
    compile::compile(&definition, None)
}

pub(super) fn object(field: &str, sent: Option<Struct>) -> Result<Option<Json>, Status> {
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
