//! Validation and trial of rules that are not published.

use super::{channel, origin};
use insula_e2e::{Who, runtime, shared};
use insula_proto::{
    admin::v1::{
        ConvertRequest, InlineRules, ValidateRequest, conversion_service_client::ConversionServiceClient,
        convert_request::Source,
    },
    value::{from_json, to_json},
};
use serde_json::{Value, json};

fn widgets() -> (Value, Value) {
    let text = json!({"type": "string", "maxLength": 100});
    let version = |name: &str, spec: Value| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}}}})
    };
    let schema = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": "v1.widgets.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", json!({"firstName": text})),
                version("v2", json!({"name": {"type": "object", "properties": {"first": text}}}))]},
    });
    let rule = |from: &str, to: &str, a: &str, b: &str| {
        json!({"from": from, "to": to,
        "rules": [{"field": a, "destination": b}]})
    };
    let rules = json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion", "metadata": {"name": "v1.widgets.example.io"},
        "spec": {"conversions": [
            rule("v1", "v2", ".spec.firstName", ".spec.name.first"),
            rule("v2", "v1", ".spec.name.first", ".spec.firstName")]},
    });
    (schema, rules)
}

#[test]
fn unpublished_rules_are_validated_and_run() {
    let server = shared();
    let (schema, rules) = widgets();
    let message = |value: &Value| Some(from_json(value.as_object().unwrap()).unwrap());
    let mut wrong = rules.clone();
    wrong["spec"]["conversions"][0]["rules"][0]["destination"] = ".spec.nothing".into();
    let mut tight = schema.clone();
    let bound = "/spec/versions/1/schema/properties/spec/properties/name/properties/first/maxLength";
    *tight.pointer_mut(bound).unwrap() = 3.into();
    // Schema, rules, what a violation is about, what a warning is about.
    let cases = [
        (&schema, &rules, None, None),
        (&schema, &wrong, Some("spec.conversions[0].rules[0]"), None),
        (&tight, &rules, None, Some("spec.name.first")),
    ];
    runtime().block_on(async {
        let mut client = ConversionServiceClient::with_origin(channel(&server, &Who::KcpAdmin), origin(&server));
        for (schema, rules, violation, warning) in cases {
            let request = ValidateRequest {
                schema: message(schema),
                rules: message(rules),
                ..ValidateRequest::default()
            };
            let verdict = client.validate(request).await.unwrap().into_inner();
            assert_eq!(verdict.valid, violation.is_none(), "{verdict:?}");
            let field = verdict.violations.first().map(|violation| violation.field.as_str());
            assert!(field.is_some() == violation.is_some(), "{verdict:?}");
            assert!(
                field.unwrap_or_default().starts_with(violation.unwrap_or_default()),
                "{verdict:?}"
            );
            assert_eq!(verdict.warnings.len(), usize::from(warning.is_some()), "{verdict:?}");
            assert!(
                verdict
                    .warnings
                    .iter()
                    .all(|text| text.contains(warning.unwrap_or_default())),
                "{verdict:?}"
            );
        }
        let object = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"firstName": "Bob"}});
        let inline = InlineRules {
            schema: message(&schema),
            rules: message(&rules),
            ..InlineRules::default()
        };
        let convert = ConvertRequest {
            object: message(&object),
            to_version: "v2".to_owned(),
            source: Some(Source::Inline(inline)),
        };
        let converted = client.convert(convert).await.unwrap().into_inner().object.unwrap();
        let converted = to_json(converted).unwrap();
        assert_eq!(
            (&converted["apiVersion"], &converted["spec"]),
            (&json!("example.io/v2"), &json!({"name": {"first": "Bob"}}))
        );
    });
}
