//! Drafts and coverage of rules.

use super::{
    apis::{definition, message},
    as_user, bad_fields, channel, origin,
};
use insula_e2e::{Who, runtime, shared, workspace_owned_by};
use insula_proto::{
    admin::v1::{
        ConvertRequest, GetCoverageRequest, InlineRules, ListConversionFailuresRequest, RecomputeRequest, StoredRules,
        SuggestRulesRequest, ValidateRequest, conversion_service_client::ConversionServiceClient, convert_request,
        get_coverage_request::Source,
    },
    value::to_json,
};
use serde_json::{Value, json};
use std::path::Path;
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

fn boat(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "spec": {"name": "a"}})
}

fn stored(workspace: &str, schema_name: &str) -> convert_request::Source {
    let (workspace, schema_name) = (workspace.to_owned(), schema_name.to_owned());
    convert_request::Source::Stored(StoredRules { workspace, schema_name })
}

/// Everything that is no schema and no rules is refused by its field, as are missing names.
#[test]
fn schemas_of_other_kinds_are_refused() {
    let server = shared();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    runtime().block_on(async {
        for (schema, rules, field) in [
            (json!({}), None, "schema"),
            (boat("grpc.example.io/v1", "Boat"), None, "schema"),
            (schema(&definition(false)), Some(json!({"a": 1})), "rules"),
        ] {
            let request = ValidateRequest {
                schema: Some(message(&schema)),
                rules: rules.as_ref().map(message),
                ..ValidateRequest::default()
            };
            let refusal = conversions.validate(request).await.unwrap_err();
            assert_eq!(
                (refusal.code(), bad_fields(&refusal)),
                (Code::InvalidArgument, vec![field.to_owned()])
            );
        }
        let unnamed = ListConversionFailuresRequest {
            export: "boats".to_owned(),
            resource: "boats".to_owned(),
            ..ListConversionFailuresRequest::default()
        };
        let refusal = conversions.list_conversion_failures(unnamed).await.unwrap_err();
        assert_eq!(
            (refusal.code(), bad_fields(&refusal)),
            (Code::InvalidArgument, vec!["group".to_owned()])
        );
        for (source, field) in [
            (stored("root", ""), "stored.schema_name"),
            (stored("", "a"), "stored.workspace"),
        ] {
            let request = ConvertRequest {
                source: Some(source),
                ..ConvertRequest::default()
            };
            let refusal = conversions.convert(request).await.unwrap_err();
            assert_eq!(
                (refusal.code(), bad_fields(&refusal)),
                (Code::InvalidArgument, vec![field.to_owned()])
            );
        }
    });
}

/// The cost of a conversion is that of its expressions: a move costs nothing.
#[test]
fn conversions_say_what_they_cost() {
    let server = shared();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let mut cost = |sample: &str, to_version: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/samples/conversions");
        let read = |file: &str| -> Value {
            let text = std::fs::read_to_string(folder.join(sample).join(file)).unwrap();
            serde_saphyr::from_str(&text).unwrap()
        };
        let inline = InlineRules {
            manifests: vec![message(&read("schema.yaml")), message(&read("rules.yaml"))],
            ..InlineRules::default()
        };
        let request = ConvertRequest {
            source: Some(convert_request::Source::Inline(inline)),
            object: Some(message(&read("object-v1.yaml"))),
            to_version: to_version.to_owned(),
        };
        let converted = runtime().block_on(conversions.convert(request)).unwrap().into_inner();
        (converted.cost, converted.cost_limit)
    };
    assert_eq!(cost("field-to-field", "v2"), (0, 10_000_000));
    let (used, limit) = cost("computed", "v2");
    assert!(0 < used && used < 100 && limit == 10_000_000, "{used} of {limit}");
}

/// An object of another API, in another version, or no object at all is named by its field.
#[test]
fn objects_of_other_kinds_are_refused() {
    let server = shared();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let inline = InlineRules {
        schema: Some(message(&schema(&definition(false)))),
        rules: Some(message(&super::apis::rules(false))),
        ..InlineRules::default()
    };
    let convert = |object: &Value, to_version: &str| ConvertRequest {
        source: Some(convert_request::Source::Inline(inline.clone())),
        object: Some(message(object)),
        to_version: to_version.to_owned(),
    };
    let v1 = boat("grpc.example.io/v1", "Boat");
    runtime().block_on(async {
        let converted = conversions.convert(convert(&v1, "v2")).await.unwrap().into_inner();
        let converted = to_json(converted.object.unwrap()).unwrap();
        assert_eq!(
            (&converted["apiVersion"], &converted["spec"]["title"]),
            (&json!("grpc.example.io/v2"), &json!("a"))
        );
        for (request, field, problem) in [
            (
                convert(&boat("v1", "Pod"), "v2"),
                "object.apiVersion",
                "grpc.example.io/v1",
            ),
            (
                convert(&boat("other.io/v1", "Boat"), "v2"),
                "object.apiVersion",
                "other.io/v1",
            ),
            (
                convert(&boat("grpc.example.io/v9", "Boat"), "v2"),
                "object.apiVersion",
                "grpc.example.io/v2",
            ),
            (convert(&boat("", "Boat"), "v2"), "object.apiVersion", "is required"),
            (convert(&json!({}), "v2"), "object.apiVersion", "is required"),
            (convert(&boat("grpc.example.io/v1", "Pod"), "v2"), "object.kind", "Boat"),
            (
                convert(&boat("grpc.example.io/v1", ""), "v2"),
                "object.kind",
                "is required",
            ),
            (convert(&v1, ""), "to_version", "is required; the schema has v1, v2"),
            (convert(&v1, "v9"), "to_version", "no version \"v9\"; it has v1, v2"),
        ] {
            let refusal = conversions.convert(request).await.unwrap_err();
            assert_eq!(
                (refusal.code(), bad_fields(&refusal)),
                (Code::InvalidArgument, vec![field.to_owned()]),
                "{refusal:?}"
            );
            assert!(refusal.message().contains(problem), "{field}: {refusal}");
        }
    });
}

/// The core group has a name in requests: an empty group is a missing one.
#[test]
fn apis_of_the_core_group_are_named() {
    let server = shared();
    let (provider, _) = insula_e2e::workspace(&server.admin(), "core-provider");
    let mut core = schema(&definition(false));
    core["metadata"]["name"] = "one.boats.core".into();
    core["spec"]["group"] = "".into();
    let at = server.admin().in_workspace(&provider);
    let [schemas, exports] =
        ["v1alpha1/apiresourceschemas", "v1alpha2/apiexports"].map(|resource| format!("/apis/apis.kcp.io/{resource}"));
    at.post(&schemas, &core).expect(201);
    let export = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "boats"},
        "spec": {"resources": [{"group": "", "name": "boats", "schema": "one.boats.core", "storage": {"crd": {}}}]}});
    at.post(&exports, &export).expect(201);
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let failures = ListConversionFailuresRequest {
        workspace: provider,
        export: "boats".to_owned(),
        group: "core".to_owned(),
        resource: "boats".to_owned(),
        ..ListConversionFailuresRequest::default()
    };
    let listed = runtime().block_on(conversions.list_conversion_failures(failures));
    assert_eq!(listed.unwrap().into_inner().examined, 0);
}

/// Former rules are rules.
#[test]
fn former_rules_of_another_kind_are_refused() {
    let server = shared();
    let scene = super::apis::Scene::new(&server);
    scene.publish_and_bind();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let recompute = |former: &Value| RecomputeRequest {
        workspace: scene.provider.clone(),
        export: "boats".to_owned(),
        group: "grpc.example.io".to_owned(),
        resource: "boats".to_owned(),
        former_rules: vec![message(former)],
        ..RecomputeRequest::default()
    };
    runtime().block_on(async {
        let refusal = conversions.recompute(recompute(&json!({"a": 1}))).await.unwrap_err();
        let field = vec!["former_rules[0]".to_owned()];
        assert_eq!((refusal.code(), bad_fields(&refusal)), (Code::InvalidArgument, field));
        conversions
            .recompute(recompute(&super::apis::rules(false)))
            .await
            .unwrap();
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
