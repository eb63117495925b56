//! Definitions, schemas and rules in requests: what they are tried with, and where they are wrong.

use super::{
    apis::{Scene, boats, definition, message, rules},
    bad_fields, channel, origin, reason,
};
use insula_e2e::{Who, runtime, shared};
use insula_proto::{
    admin::v1::{
        CheckRolloutRequest, ConvertRequest, DiffApiRequest, GetCoverageRequest, ImportDefinitionsRequest, InlineRules,
        PublishApiRequest, RecomputeRequest, SuggestRulesRequest, ValidateRequest,
        conversion_service_client::ConversionServiceClient, convert_request::Source as ConvertFrom,
        get_coverage_request::Source as CoverageOf,
    },
    value::{Struct, to_json},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

/// Rules one of which reads a field that v1 does not have.
fn wrong_rules() -> Value {
    let mut wrong = rules(false);
    wrong["spec"]["conversions"][0]["rules"][0]["field"] = ".spec.none".into();
    wrong
}

/// A definition with a type that does not exist.
fn wrong_definition() -> Value {
    let mut wrong = definition(false);
    let kind = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/title/type";
    *wrong.pointer_mut(kind).unwrap() = "strang".into();
    wrong
}

fn schema(definition: &Value) -> Value {
    let mut spec = definition["spec"].clone();
    for version in spec["versions"].as_array_mut().unwrap() {
        version["schema"] = version["schema"]["openAPIV3Schema"].clone();
    }
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": "one.boats.grpc.example.io"}, "spec": spec})
}

/// A definition of another API, without rules.
fn cars() -> Value {
    let mut cars = definition(false);
    cars["metadata"]["name"] = "cars.grpc.example.io".into();
    cars["spec"]["names"] = json!({"plural": "cars", "singular": "car", "kind": "Car", "listKind": "CarList"});
    cars["spec"]["versions"].as_array_mut().unwrap().remove(0);
    cars
}

fn boat() -> Value {
    json!({"apiVersion": "grpc.example.io/v1", "kind": "Boat", "metadata": {"name": "a"}, "spec": {"name": "Ada"}})
}

fn of_manifests(manifests: Vec<Struct>) -> InlineRules {
    InlineRules {
        manifests,
        ..InlineRules::default()
    }
}

fn pair(schema: &Value, rules: &Value) -> InlineRules {
    InlineRules {
        schema: Some(message(schema)),
        rules: Some(message(rules)),
        ..InlineRules::default()
    }
}

fn conversion(inline: InlineRules, object: &Value) -> ConvertRequest {
    ConvertRequest {
        source: Some(ConvertFrom::Inline(inline)),
        object: Some(message(object)),
        to_version: "v2".to_owned(),
    }
}

fn coverage(inline: InlineRules) -> GetCoverageRequest {
    GetCoverageRequest {
        source: Some(CoverageOf::Inline(inline)),
    }
}

fn assert_field(refusal: &Status, field: &str, problem: &str) {
    assert_eq!(
        (refusal.code(), &*reason(refusal)),
        (Code::InvalidArgument, "INVALID_FIELD"),
        "{refusal:?}"
    );
    assert_eq!(bad_fields(refusal)[0], field, "{refusal:?}");
    assert!(refusal.message().contains(problem), "{refusal:?}");
}

const NO_FIELD: &str = "there is no field .spec.none in v1";
const NO_TYPE: &str = "\"strang\"";

#[test]
fn conversions_are_tried_with_definitions() {
    let server = shared();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let all = || [boats(false), vec![message(&cars())]].concat();
    runtime().block_on(async {
        let validate = |manifests| ValidateRequest {
            manifests,
            ..ValidateRequest::default()
        };
        let verdict = conversions.validate(validate(all())).await.unwrap().into_inner();
        assert!(verdict.valid && verdict.violations.is_empty(), "{verdict:?}");
        let wrong = vec![message(&cars()), message(&wrong_rules()), message(&definition(false))];
        let verdict = conversions.validate(validate(wrong)).await.unwrap().into_inner();
        let violation = &verdict.violations[0];
        assert_eq!(
            violation.field, "manifests[1].spec.conversions[0].rules[0].field",
            "{verdict:?}"
        );
        assert!(!verdict.valid && violation.message.contains(NO_FIELD), "{verdict:?}");

        // The schema of the object is found among several.
        let several = [vec![message(&cars())], boats(false)].concat();
        let converted = conversions.convert(conversion(of_manifests(several), &boat())).await;
        let converted = to_json(converted.unwrap().into_inner().object.unwrap()).unwrap();
        assert_eq!(converted["spec"], json!({"title": "Ada"}));
        let mut named = rules(false);
        named["metadata"]["name"] = "one.boats.grpc.example.io".into();
        let inline = of_manifests(vec![message(&schema(&definition(false))), message(&named)]);
        conversions.convert(conversion(inline, &boat())).await.unwrap();

        let covered = conversions.get_coverage(coverage(of_manifests(boats(false)))).await;
        let directions = covered.unwrap().into_inner().directions;
        assert_eq!(directions.len(), 2, "{directions:?}");
        let moved = directions[0].fields.iter().find(|field| field.path == ".spec.name");
        assert_eq!(moved.map(|field| &*field.outcome), Some("moved"), "{directions:?}");
    });
}

#[test]
fn manifests_that_do_not_fit_a_request_are_refused() {
    let server = shared();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    let several = || of_manifests(vec![message(&definition(false)), message(&cars())]);
    let both = InlineRules {
        manifests: boats(false),
        ..pair(&schema(&definition(false)), &rules(false))
    };
    let mut plane = boat();
    plane["kind"] = "Plane".into();
    runtime().block_on(async {
        let refusal = conversions.get_coverage(coverage(several())).await.unwrap_err();
        assert_field(&refusal, "inline.manifests", "must have one schema, and has 2");
        let refusal = conversions.convert(conversion(several(), &plane)).await.unwrap_err();
        assert_field(&refusal, "object.kind", "Boat");
        let refusal = conversions.get_coverage(coverage(both)).await.unwrap_err();
        assert_field(&refusal, "inline.schema", "must be absent with manifests");
        let alone = of_manifests(vec![message(&rules(false))]);
        let refusal = conversions.get_coverage(coverage(alone)).await.unwrap_err();
        assert_eq!(bad_fields(&refusal), ["inline.manifests[0]"], "{refusal:?}");
    });
}

/// Field of a rule in an APIConversion.
const RULE: &str = "spec.conversions[0].rules[0].field";
/// Field of a type in a definition.
const TYPE: &str = "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[title].type";

fn wrong_manifests() -> Vec<Struct> {
    vec![message(&definition(false)), message(&wrong_rules())]
}

#[test]
fn wrong_rules_are_refused_with_their_field() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let mut conversions = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
    runtime().block_on(async {
        let inline = || pair(&schema(&definition(false)), &wrong_rules());
        let refusal = conversions.convert(conversion(inline(), &boat())).await.unwrap_err();
        assert_field(&refusal, &format!("inline.rules.{RULE}"), NO_FIELD);
        let refusal = conversions.get_coverage(coverage(inline())).await.unwrap_err();
        assert_field(&refusal, &format!("inline.rules.{RULE}"), NO_FIELD);
        let refusal = conversions
            .get_coverage(coverage(of_manifests(wrong_manifests())))
            .await;
        assert_field(&refusal.unwrap_err(), &format!("inline.manifests[1].{RULE}"), NO_FIELD);
        let wrong_schema = pair(&schema(&wrong_definition()), &rules(false));
        let refusal = conversions.get_coverage(coverage(wrong_schema)).await.unwrap_err();
        let field = format!("inline.schema.{}", TYPE.replace(".openAPIV3Schema", ""));
        assert_field(&refusal, &field, NO_TYPE);
        let suggest = SuggestRulesRequest {
            schema: Some(message(&wrong_definition())),
            ..SuggestRulesRequest::default()
        };
        let refusal = conversions.suggest_rules(suggest).await.unwrap_err();
        assert_field(&refusal, &format!("schema.{TYPE}"), NO_TYPE);
        let recompute = RecomputeRequest {
            workspace: scene.provider.clone(),
            export: "boats".to_owned(),
            group: "grpc.example.io".to_owned(),
            resource: "boats".to_owned(),
            former_rules: vec![message(&rules(false)), message(&wrong_rules())],
            ..RecomputeRequest::default()
        };
        let refusal = conversions.recompute(recompute).await.unwrap_err();
        assert_field(&refusal, &format!("former_rules[1].{RULE}"), NO_FIELD);
    });
}

#[test]
fn wrong_manifests_are_refused_with_their_field() {
    let server = shared();
    let scene = Scene::new(&server);
    scene.publish_and_bind();
    let mut apis = scene.apis.clone();
    let workspace = || scene.provider.clone();
    runtime().block_on(async {
        let publish = scene.publication(wrong_manifests());
        let refusal = apis.publish_api(publish).await.unwrap_err();
        assert_field(&refusal, &format!("manifests[1].{RULE}"), NO_FIELD);
        let publish = PublishApiRequest {
            validate_only: true,
            ..scene.publication(vec![message(&cars()), message(&wrong_definition())])
        };
        let refusal = apis.publish_api(publish).await.unwrap_err();
        assert_field(&refusal, &format!("manifests[1].{TYPE}"), NO_TYPE);
        let import = ImportDefinitionsRequest {
            workspace: workspace(),
            definitions: wrong_manifests(),
            ..ImportDefinitionsRequest::default()
        };
        let refusal = apis.import_definitions(import).await.unwrap_err();
        assert_field(&refusal, &format!("definitions[1].{RULE}"), NO_FIELD);
        let check = CheckRolloutRequest {
            workspace: workspace(),
            export: "boats".to_owned(),
            manifests: wrong_manifests(),
            ..CheckRolloutRequest::default()
        };
        let refusal = apis.check_rollout(check).await.unwrap_err();
        assert_field(&refusal, &format!("manifests[1].{RULE}"), NO_FIELD);
        let diff = DiffApiRequest {
            workspace: workspace(),
            manifests: vec![message(&wrong_definition())],
            export: "boats".to_owned(),
            ..DiffApiRequest::default()
        };
        let refusal = apis.diff_api(diff).await.unwrap_err();
        assert_field(&refusal, &format!("manifests[0].{TYPE}"), NO_TYPE);
    });
}
