//! One search reports every faulty rule and field, each with its smallest object.

use crate::support::yaml;
use insula_api::FieldPath;
use insula_conversion::proof::{Search, prove};
use insula_conversion::{Bundle, LossPolicy, VersionSchema, parse_rules};
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::{Value as Json, json};

fn compile(rules: &Json) -> Result<Bundle, Vec<insula_api::FieldError>> {
    let schema = |fields: Json| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        Structural::parse(&schema, &FieldPath::new("schema")).unwrap().into()
    };
    let text = || json!({"type": "string"});
    let version = |name: &str, fields: Json| VersionSchema {
        name: name.to_owned(),
        served: true,
        schema: schema(fields),
    };
    let versions = vec![
        version("v1", json!({"a": text(), "b": text(), "c": text(), "d": text()})),
        version(
            "v2",
            json!({"p": {"type": "integer"}, "q": {"type": "integer"}, "r": text(), "s": text()}),
        ),
    ];
    let at = FieldPath::new("spec");
    let compiled = |rules: &_| Bundle::compile("example.io", versions, "v1", Some(rules), LossPolicy::Lossless, &at);
    match parse_rules(rules, &at) {
        Ok(rules) => compiled(&rules),
        Err(malformed) => Err(malformed.with_errors_of(compiled)),
    }
}

fn fields(errors: &[insula_api::FieldError]) -> Vec<&str> {
    errors.iter().map(|error| error.field.as_str()).collect()
}

#[test]
fn every_rule_that_does_not_compile_is_named() {
    let rules = yaml(
        "conversions:
        - from: v1
          to: v2
          rules:
          - {field: .spec.a, destination: .spec.p, transformation: 'self +'}
          - {field: .spec.b, destination: .spec.q, transformation: size(self) > 1}
          - {field: .spec.x, destination: .spec.r}
        - from: v2
          to: v1
          rules:
          - {from: v2.spec.nothing, to: .spec.d}",
    );
    let errors = compile(&rules).unwrap_err();
    let wanted = [
        "spec.conversions[0].rules[0].transformation",
        "spec.conversions[0].rules[1].transformation",
        "spec.conversions[0].rules[2].field",
        "spec.conversions[1].rules[0].from",
    ];
    assert_eq!(fields(&errors), wanted, "{errors:#?}");
}

#[test]
fn malformed_rules_and_unknown_versions_hide_no_other_error() {
    let rules = yaml(
        "
        validation: Refuse
        conversions:
        - from: v1
          to: v2
          rules:
          - {field: .spec.a, destination: .spec.p, transformation: 'self +'}
          - {field: 'spec..b', destination: .spec.q}
          - {field: .spec.x, destination: .spec.r}
          - {field: .spec.d, destination: .spec.s, colour: red}
        - {from: v1, to: v9, field: .spec.a, destination: .spec.p}
        - {from: v2, to: v1, field: .spec.nothing, destination: .spec.d}",
    );
    let errors = compile(&rules).unwrap_err();
    let wanted = [
        "spec.conversions[0].rules[1].field",
        "spec.conversions[0].rules[3].colour",
        "spec.conversions[1].to",
        "spec.conversions[0].rules[0].transformation",
        "spec.conversions[0].rules[2].field",
        "spec.conversions[2].field",
    ];
    assert_eq!(fields(&errors), wanted, "{errors:#?}");
}

#[test]
fn every_rule_that_fails_and_every_field_that_breaks_a_law_is_shown() {
    let rules = yaml(
        "conversions:
        - from: v1
          to: v2
          rules:
          - {field: .spec.a, destination: .spec.p, transformation: int(self)}
          - {field: .spec.b, destination: .spec.q, transformation: 'int(self.substring(1))'}
        - from: v2
          to: v1
          rules:
          - {field: .spec.p, destination: .spec.a, transformation: string(self)}
          - {field: .spec.q, destination: .spec.b, transformation: \"'n' + string(self)\"}",
    );
    let errors = prove(&compile(&rules).unwrap(), Search::default(), &Meter::unbounded()).unwrap_err();
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for rule in ["rules[0].transformation", "rules[1].transformation"] {
        let found = shown.iter().find(|text| text.contains(rule));
        let found = found.unwrap_or_else(|| panic!("{rule}: {shown:#?}"));
        assert!(found.contains("fails for a valid object of v1"), "{found}");
        assert!(found.contains("optional.none()"), "{found}");
    }
}
