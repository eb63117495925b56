//! Tests that a plan which withholds a field is found by the law, the search and coverage.

use crate::laws::Law;
use crate::proof::{Finding, Search, prove, search};
use crate::{Bundle, FieldOutcome, LossPolicy, VersionSchema, field_coverage, parse_rules};
use insula_api::FieldPath;
use insula_meter::Meter;
use insula_schema::Structural;
use serde_json::{Value as Json, json};

fn version(name: &str, spec: &Json) -> VersionSchema {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    let schema = Structural::parse_trusted(&schema).unwrap().into();
    VersionSchema {
        name: name.to_owned(),
        served: true,
        schema,
    }
}

/// Two versions whose `spec.r` differ in shape, and a rule that reads it.
fn bundle(rule: &Json) -> Bundle {
    let text = json!({"type": "string"});
    let object = |fields: Json| json!({"r": {"type": "object", "properties": fields}, "other": text});
    let v1 = version("v1", &object(json!({"x": text, "name": text})));
    let v2 = version("v2", &object(json!({"group": text, "name": text})));
    let spec = FieldPath::new("spec");
    let rules = json!({"conversions": [{"from": "v1", "to": "v2", "rules": [rule]}]});
    let rules = parse_rules(&rules, &spec).unwrap();
    let policy = LossPolicy::Lossless;
    Bundle::compile("example.io", vec![v1, v2], "v1", Some(&rules), policy, &spec).unwrap()
}

fn outcome(bundle: &Bundle, path: &str) -> FieldOutcome {
    let all = field_coverage(bundle);
    let direction = all.iter().find(|direction| direction.from == "v1").unwrap();
    let field = direction.fields.iter().find(|field| field.path.to_string() == path);
    field.unwrap().outcome.clone()
}

#[test]
fn a_withheld_field_is_found_by_law_search_and_coverage() {
    let rule = json!({"field": ".spec.r", "destination": ".spec.r.group", "transformation": "self.x"});
    let mut bundle = bundle(&rule);
    assert!(prove(&bundle, Search::default(), &Meter::unbounded()).is_ok());
    assert_eq!(outcome(&bundle, ".spec.r.name"), FieldOutcome::Carried);
    // A plan as if the rule used up all that it reads.
    let plan = &mut bundle.converters.get_mut(&(0, 1)).unwrap().plan;
    plan.fields = std::mem::take(&mut plan.fields).without(&["spec"]);
    assert_eq!(outcome(&bundle, ".spec.r.name"), FieldOutcome::Withheld);
    assert!(matches!(outcome(&bundle, ".spec.r.x"), FieldOutcome::Computed { .. }));
    let found = search(&bundle, Search::default()).unwrap_err();
    assert!(
        matches!(&found.finding, Finding::Breaks(broken) if broken.law == Law::Carried),
        "{found}"
    );
    let errors = prove(&bundle, Search::default(), &Meter::unbounded()).unwrap_err();
    assert!(
        errors.iter().any(|error| error.to_string().contains(".spec.r.name")),
        "{errors:?}"
    );
}

#[test]
fn fields_that_rules_move_or_write_may_differ() {
    for rule in [
        json!({"field": ".spec.r.name", "destination": ".spec.r.group"}),
        json!({"field": ".spec.r.x", "destination": ".spec.r.name"}),
        json!({"from": "v1.spec.other", "to": "spec.r.name"}),
    ] {
        let bundle = bundle(&rule);
        // Two values for one field: the author must say which one counts.
        let findings = prove(&bundle, Search::default(), &Meter::unbounded())
            .err()
            .unwrap_or_default();
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(
            texts.iter().all(|text| text.contains("its value would be hidden")),
            "{rule}: {texts:?}"
        );
        assert_ne!(outcome(&bundle, ".spec.r.name"), FieldOutcome::Withheld, "{rule}");
    }
}
