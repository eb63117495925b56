//! Drafts and coverage of rules.

use super::{
    apis::{definition, message},
    as_user, channel, origin,
};
use insula_e2e::{Who, runtime, shared, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        GetCoverageRequest, InlineRules, ListConversionFailuresRequest, SuggestRulesRequest,
        conversion_service_client::ConversionServiceClient, get_coverage_request::Source,
    },
    value::to_json,
};
use serde_json::{Value, json};
use tonic::Code;

/// The schema of a definition.
fn schema(definition: &Value) -> Value {
    let mut spec = definition["spec"].clone();
    for version in spec["versions"].as_array_mut().unwrap() {
        version["schema"] = version["schema"]["openAPIV3Schema"].clone();
    }
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "one.boats.grpc.example.io"}, "spec": spec})
}

#[test]
fn rules_are_drafted_and_covered() {
    let server = shared();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let mut renamed = definition(false);
    for (version, field) in [(0, "lengthInMeters"), (1, "metersOfLength")] {
        renamed["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
            json!({field: {"type": "integer", "description": "The length of the boat."}});
    }
    runtime().block_on(async {
        let suggest = SuggestRulesRequest {
            schema: Some(message(&renamed)),
            from_version: "v1".to_owned(),
            to_version: "v2".to_owned(),
            ..SuggestRulesRequest::default()
        };
        let drafted = conversions.suggest_rules(suggest.clone()).await.unwrap().into_inner();
        let draft = &drafted.drafts[0];
        assert_eq!(
            (draft.from.as_str(), draft.to.as_str(), draft.pairs.len()),
            ("v1", "v2", 1),
            "{draft:?}"
        );
        let pair = &draft.pairs[0];
        assert!(
            pair.confidence >= 40 && !pair.reasons.is_empty() && pair.needs_work.is_empty(),
            "{pair:?}"
        );
        assert_eq!(pair.from, [".spec.lengthInMeters"]);
        let unknown = SuggestRulesRequest {
            to_version: "v9".to_owned(),
            ..suggest
        };
        assert_eq!(
            conversions.suggest_rules(unknown).await.unwrap_err().code(),
            Code::InvalidArgument
        );

        // The draft moves the field in both directions.
        let mut rules = to_json(drafted.conversion.clone().unwrap()).unwrap();
        rules["metadata"]["name"] = "one.boats.grpc.example.io".into();
        let inline = InlineRules {
            schema: Some(message(&schema(&renamed))),
            rules: Some(message(&rules.into())),
            ..InlineRules::default()
        };
        let covered = GetCoverageRequest {
            source: Some(Source::Inline(inline)),
        };
        let covered = conversions.get_coverage(covered).await.unwrap().into_inner();
        let moved: Vec<_> = covered
            .directions
            .iter()
            .flat_map(|it| {
                it.fields
                    .iter()
                    .map(|field| (&*it.from, &*field.path, &*field.outcome, field.to.clone()))
            })
            .filter(|(_, path, ..)| path.starts_with(".spec."))
            .collect();
        let (a, b) = (".spec.lengthInMeters", ".spec.metersOfLength");
        let mut wanted = vec![
            ("v1", a, "moved", vec![b.to_owned()]),
            ("v2", b, "moved", vec![a.to_owned()]),
        ];
        wanted.sort();
        let mut moved = moved;
        moved.sort();
        assert_eq!(moved, wanted);
    });
}

#[test]
fn others_rules_are_out_of_reach() {
    let server = shared();
    let (theirs, _) = workspace_owned_by(&server, "alice");
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::Anonymous), origin(&server));
    runtime().block_on(async {
        let suggest = SuggestRulesRequest {
            workspace: theirs.clone(),
            ..SuggestRulesRequest::default()
        };
        let failures = ListConversionFailuresRequest {
            workspace: theirs.clone(),
            export: "boats".to_owned(),
            ..ListConversionFailuresRequest::default()
        };
        let inline = InlineRules {
            workspace: theirs.clone(),
            ..InlineRules::default()
        };
        let covered = GetCoverageRequest {
            source: Some(Source::Inline(inline)),
        };
        for refusal in [
            conversions.suggest_rules(as_user("bob-token", suggest)).await.map(drop),
            conversions
                .list_conversion_failures(as_user("bob-token", failures))
                .await
                .map(drop),
            conversions.get_coverage(as_user("bob-token", covered)).await.map(drop),
        ] {
            assert_eq!(refusal.unwrap_err().code(), Code::PermissionDenied);
        }
    });
}
