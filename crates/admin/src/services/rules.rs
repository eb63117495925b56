//! `ConversionService`: drafts of rules, coverage of fields, and objects that cannot be read.

use super::{
    api::{
        group_named, required,
        trial::{self, Tried},
    },
    conversion::object,
    positions::{self, Positions},
};
use crate::{
    pages::Page,
    session::{AdminService, Session},
};
use insula_admission::publication::{Draft, Manifest, NoVersions, Side, draft, versions_to_draft, without_rules};
use insula_api::{Json, Revision, Verb};
use insula_catalog::Api;
use insula_conversion::{SURE, field_coverage};
use insula_meter::Meter;
use insula_proto::{
    admin::v1::{
        CoverageDirection, FieldCoverage, ListConversionFailuresRequest, MadeField, RuleDraft, SuggestRulesRequest,
        SuggestedPair,
    },
    value,
};
use prost_types::Struct;
use serde_json::json;
use std::sync::Arc;
use tonic::Status;

/// Drafts rules. Returns the drafts, and an APIConversion with all their rules.
pub(super) fn drafts(request: SuggestRulesRequest, meter: &Meter) -> Result<(Vec<RuleDraft>, Struct), Status> {
    let confidence = match request.min_confidence {
        0 => i32::from(SURE),
        other => other,
    };
    let confidence = u8::try_from(confidence).ok().filter(|percent| *percent <= 100);
    let confidence = confidence.ok_or_else(|| Status::invalid_argument("min_confidence: must be between 0 and 100"))?;
    let (old, name) =
        api("schema", request.schema, meter)?.ok_or_else(|| Status::invalid_argument("schema: is required"))?;
    let (new, name) = match api("new_schema", request.new_schema, meter)? {
        Some((new, name)) => (Some(new), name),
        None => (None, name),
    };
    let named = |version: &str| (!version.is_empty()).then(|| version.to_owned());
    let (from, to) = (named(&request.from_version), named(&request.to_version));
    let pairs =
        versions_to_draft(&old, new.as_ref(), (from.as_deref(), to.as_deref())).map_err(|why| no_versions(&why))?;
    let drafts: Vec<Draft> = pairs
        .iter()
        .map(|(from, to)| draft(confidence, &old.group, (from, to), meter, &mut |_, _| {}))
        .collect();
    let directions = drafts
        .iter()
        .flat_map(|draft| draft.rules["conversions"].as_array().cloned().unwrap_or_default());
    let conversion = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": name},
        "spec": {"conversions": directions.collect::<Json>()},
    });
    let map = conversion.as_object().cloned().unwrap_or_default();
    let conversion = value::from_json(&map).map_err(|error| Status::out_of_range(error.to_string()))?;
    Ok((drafts.into_iter().map(message).collect(), conversion))
}

/// Compiles a schema without its rules. Returns its name, too.
fn api(field: &str, sent: Option<Struct>, meter: &Meter) -> Result<Option<(Api, String)>, Status> {
    let Some(mut schema) = object(field, sent)? else {
        return Ok(None);
    };
    if schema["kind"] == "CustomResourceDefinition" {
        insula_schema::default_definition(&mut schema);
    }
    without_rules(&mut schema);
    let manifest = Manifest {
        schema: &schema,
        conversion: None,
        meter,
    };
    let positions = Positions::new(field, &schema);
    let api = manifest
        .assemble()
        .map_err(|errors| positions::refused(&positions.violations(&errors)))?;
    let name = schema["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(Some((api, name)))
}

fn no_versions(why: &NoVersions) -> Status {
    let schema = |side: &Side| match side {
        Side::Old => "schema",
        Side::New => "new_schema",
    };
    Status::invalid_argument(match why {
        NoVersions::Unknown(Side::Old, name) => format!("from_version: schema has no version {name:?}"),
        NoVersions::Unknown(Side::New, name) => format!("to_version: new_schema has no version {name:?}"),
        NoVersions::NothingNew(side) => format!("to_version: is required: {} has no new version", schema(side)),
        NoVersions::Equal(name) => format!("to_version: {name} is the old version, too"),
    })
}

fn message(draft: Draft) -> RuleDraft {
    let pairs = draft.pairs.into_iter().map(|pair| SuggestedPair {
        from: pair.from,
        to: pair.to,
        confidence: pair.confidence.into(),
        reasons: pair.reasons,
        needs_work: pair.needs_work.unwrap_or_default(),
    });
    RuleDraft {
        from: draft.from,
        to: draft.to,
        pairs: pairs.collect(),
        only_in_from: draft.only_in_from,
        only_in_to: draft.only_in_to,
        refused: draft.refused,
    }
}

/// Returns the outcome of every field in every direction.
pub(super) fn coverage(api: &Api) -> Vec<CoverageDirection> {
    let direction = |of: &insula_conversion::FieldCoverage| CoverageDirection {
        from: of.from.clone(),
        to: of.to.clone(),
        fields: of.fields.iter().map(covered).collect(),
        made: of.made.iter().map(made).collect(),
    };
    field_coverage(&api.bundle).iter().map(direction).collect()
}

fn covered(field: &insula_conversion::CoveredField) -> FieldCoverage {
    FieldCoverage {
        path: field.path.to_string(),
        outcome: field.outcome.word().to_owned(),
        to: field.outcome.destinations().iter().map(ToString::to_string).collect(),
        rules: field.outcome.rules().iter().map(ToString::to_string).collect(),
    }
}

fn made(made: &insula_conversion::Made) -> MadeField {
    MadeField {
        path: made.path.to_string(),
        by: made.by.word().to_owned(),
        rule: made.by.rule().unwrap_or_default().to_owned(),
    }
}

impl AdminService {
    /// Tries a page of the objects of an API by what its export offers.
    pub(super) async fn unreadable(
        &self,
        session: &Session,
        request: ListConversionFailuresRequest,
    ) -> Result<(Tried, Revision), Status> {
        let located = session.export_workspace(&request.workspace, &request.export, Verb::List, "content")?;
        required("group", &request.group)?;
        required("resource", &request.resource)?;
        let (_, export) = session.find_export(&session.snapshot, &located, &request.export)?;
        let filter = [
            located.cluster.as_str(),
            &request.export,
            &request.group,
            &request.resource,
            &request.version,
        ];
        let page = Page::read(session, &filter, request.page_size, &request.page_token)?;
        let snapshot = page.snapshot(session).await?;
        let revision = snapshot.revision();
        let cluster = located.cluster.clone();
        let registry = Arc::clone(&self.api.registry);
        let names = session.names(&snapshot)?;
        let meter = session.caller.work().clone();
        let tried = move || {
            let wanted = trial::objects_of(&export, group_named(&request.group), &request.resource);
            let mut trials = trial::of_offer(&registry, &snapshot, &cluster, &export)?;
            trials.retain(|trial| trial.resource == wanted);
            let trial = trials.first().ok_or_else(|| {
                Status::not_found(format!(
                    "APIExport {:?} offers no {}.{}",
                    request.export, request.resource, request.group
                ))
            })?;
            let version = request.version.as_str();
            if !version.is_empty() && !trial.api.bundle.versions().any(|known| known == version) {
                let known: Vec<&str> = trial.api.bundle.versions().collect();
                return Err(Status::invalid_argument(format!(
                    "version: there is no version {version:?}; there are {}",
                    known.join(", ")
                )));
            }
            let state = trial::State::new(&registry, &snapshot, &names);
            trial::run(state, &trials, &page, (version, &meter))
        };
        Ok((self.run_blocking(session, &located, tried).await?, revision))
    }
}
