//! `ConversionService`: validation and trial of conversion rules that are not published, with the
//! engine that serves.

mod source;

use self::source::{Pair, check_alone};
use super::{api::manifests, positions::violation_of_object, rules};
use crate::{
    session::{AdminService, Located, Session, right},
    status,
};
use insula_api::{FieldError, Json, Verb, names::groups};
use insula_catalog::{Api, Error, compile};
use insula_conversion::{Cause, LossPolicy};
use insula_meter::Meter;
use insula_pipeline::Refusal;
use insula_proto::{
    admin::v1::{
        ConvertRequest, ConvertResponse, FieldViolation, GetCoverageRequest, GetCoverageResponse,
        ListConversionFailuresRequest, ListConversionFailuresResponse, RecomputeRequest, RecomputeResponse,
        SuggestRulesRequest, SuggestRulesResponse, ValidateRequest, ValidateResponse,
        conversion_service_server::ConversionService, convert_request, get_coverage_request,
    },
    value,
};
use insula_registry::Deps;
use prost_types::Struct;
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl ConversionService for AdminService {
    async fn validate(&self, request: Request<ValidateRequest>) -> Result<Response<ValidateResponse>, Status> {
        let session = self.begin(&request).await?;
        let request = request.into_inner();
        let located = session.validated_in(&request)?;
        let (registry, meter) = (Arc::clone(&self.api.registry), session.caller.work().clone());
        let verdict = move || match request.manifests.is_empty() {
            true => {
                let pair = Pair::read("", request.schema, request.rules)?;
                let proven = compiled(&pair.schema, pair.rules.as_ref());
                // The fields of these violations are those of the object that they are about.
                Ok(proof((&registry, &meter), proven, |errors| {
                    errors.iter().map(violation_of_object).collect()
                }))
            }
            false => {
                check_alone("", request.schema.as_ref(), request.rules.as_ref())?;
                let sources = manifests::sources("manifests", request.manifests, &meter)?;
                let (mut violations, mut warnings) = (Vec::new(), Vec::new());
                for source in &sources {
                    let fields = |errors: &[FieldError]| source.positions().violations(errors);
                    let verdict = proof((&registry, &meter), source.manifest().compile(), fields);
                    violations.extend(verdict.0);
                    warnings.extend(verdict.1);
                }
                Ok((violations, warnings))
            }
        };
        let (violations, warnings): Verdict = self.run_blocking(&session, &located, verdict).await?;
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
        let meter = session.caller.work().clone();
        let converted = move || {
            let sent = object("object", sent)?.ok_or_else(|| Status::invalid_argument("object: is required"))?;
            convert(&source.compile_for(&sent, &meter)?, &sent, &to_version, &meter)
        };
        let answer = self.run_blocking(&session, &located, converted).await?;
        Ok(Response::new(ConvertResponse {
            header: session.header(),
            ..answer
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
        let meter = session.caller.work().clone();
        let drafts = move || rules::drafts(request, &meter);
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
        let meter = session.caller.work().clone();
        let covered = move || Ok(rules::coverage(&source.compile_one(&meter)?));
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

/// Violations and warnings.
type Verdict = (Vec<FieldViolation>, Vec<String>);

/// Tries what an API loses, and returns the violations of one that is wrong.
fn proof(
    (registry, meter): (&Deps, &Meter),
    compiled: Result<Api, Vec<FieldError>>,
    violations: impl Fn(&[FieldError]) -> Vec<FieldViolation>,
) -> Verdict {
    match compiled.and_then(|api| registry.catalog.proof(&Arc::new(api), meter).into_owned()) {
        Ok(proven) => (Vec::new(), proven.misfits.iter().map(ToString::to_string).collect()),
        Err(errors) => (violations(&errors), Vec::new()),
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
        let (span, meter) = (tracing::info_span!("conversion"), session.caller.work().clone());
        let work = move || {
            let done = span.in_scope(work);
            // Of work that has ended nothing is a verdict.
            let is_whole = meter.check().map_err(|ended| Refusal::Verb(Error::Ended(ended)));
            is_whole.map_err(|ended| status::refused(&ended)).and(done)
        };
        let done = entered.run(self.workers.run(&located.cluster, work)).await;
        done.unwrap_or_else(|| Err(Status::unavailable("the server is shutting down")))
    }
}

impl Session {
    /// Finds the workspace in which a schema is tried. A trial costs as much as the creation, and
    /// takes the same right.
    pub(super) fn locate_trial(&self, workspace: &str, with_rules: bool) -> Result<Located, Status> {
        let workspace = if workspace.is_empty() { "root" } else { workspace };
        let create = |resource| right(Verb::Create, groups::APIS, resource, "");
        let located = self.locate(workspace, &create("apiresourceschemas"))?;
        if with_rules {
            self.permit(&located.cluster, create("apiconversions"))?;
        }
        Ok(located)
    }
}

fn convert(api: &Api, sent: &Json, to_version: &str, meter: &Meter) -> Result<ConvertResponse, Status> {
    let bundle = &api.bundle;
    if !bundle.versions().any(|version| version == to_version) {
        let known: Vec<&str> = bundle.versions().collect();
        let known = known.join(", ");
        let problem = match to_version {
            "" => format!("is required; the schema has {known}"),
            version => format!("the schema has no version {version:?}; it has {known}"),
        };
        return Err(status::invalid("to_version", problem));
    }
    let mut budget = insula_conversion::object_budget(meter);
    let converted = bundle
        .convert(sent, to_version, &mut budget)
        .map_err(|error| match error.cause {
            Cause::Budget(_) => Status::resource_exhausted(error.to_string()),
            _ => Status::failed_precondition(error.to_string()),
        })?;
    let map = converted
        .as_object()
        .ok_or_else(|| Status::internal("a converted object is an object"))?;
    let object = value::from_json(map).map_err(|error| Status::out_of_range(error.to_string()))?;
    let units = |units: u64| i64::try_from(units).unwrap_or(i64::MAX);
    Ok(ConvertResponse {
        header: None,
        object: Some(object),
        cost: units(budget.used()),
        cost_limit: units(budget.limit()),
    })
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
