//! Cost of rules over schemas without bounds, as published schemas are.

use crate::support::{bundle, object, yaml};
use insula_api::FieldPath;
use insula_conversion::{Budget, Bundle, unmetered_budget};
use insula_meter::Meter;
use serde_json::json;

/// A task without bounds: lists of objects with texts, lists and maps.
fn task(rule: &str) -> Bundle {
    let fields = "{steps: [{name: string, image: string, args: [string], env: [{name: string, value: string}]}], \
                  params: [{name: string, value: string}], labels: {'*': string}, title: string, names: [string], \
                  count: integer}";
    let text = format!(
        "versions: {{v1: {{spec: {fields}}}, v2: {{spec: {fields}}}}}\n\
         rules: {{conversions: [{{from: v1, to: v2, rules: [{rule}]}}]}}"
    );
    bundle(&yaml(&text)).unwrap_or_else(|errors| panic!("{rule}: {errors:#?}"))
}

fn refusal(rule: &str) -> Option<String> {
    let errors = task(rule).over_budget(&FieldPath::new("spec"));
    errors.first().map(ToString::to_string)
}

fn moved(path: &str, to: &str, expression: &str) -> String {
    format!("{{field: '{path}', destination: '{to}', transformation: {expression:?}, mayFail: true}}")
}

#[test]
fn linear_rules_need_no_bounds() {
    for rule in [
        moved("spec.steps[i].image", "spec.steps[].image", "self.lowerAscii()"),
        moved("spec.steps[i].image", "spec.steps[].image", "self.trim() + ':latest'"),
        moved("spec.steps[i].image", "spec.steps[].image", "self.split(':')[0]"),
        moved("spec.steps[i].image", "spec.steps[].image", "self.replace('a', 'b')"),
        moved(
            "spec.steps[i].image",
            "spec.steps[].image",
            "self.contains(':') ? self : self + ':latest'",
        ),
        moved(
            "spec.steps[i].env[j].value",
            "spec.steps[].env[].value",
            "self.upperAscii()",
        ),
        moved("spec.steps", "spec.names", "self.map(s, s.name.lowerAscii() + '!')"),
        moved(
            "spec.steps",
            "spec.count",
            "size(self.filter(s, s.args.exists(a, a == 'x')))",
        ),
        moved("spec.labels", "spec.count", "size(self.map(k, self[k]))"),
        moved(
            "spec.params",
            "spec.title",
            "self.map(p, p.name + '=' + p.value).join(',')",
        ),
    ] {
        assert_eq!(refusal(&rule), None, "{rule}");
    }
}

#[test]
fn rules_that_grow_faster_than_the_object_are_refused() {
    for (rule, bound) in [
        (
            moved(
                "spec.steps",
                "spec.count",
                "size(self.filter(a, self.exists(b, b.name == a.name)))",
            ),
            ".spec.steps has no maxItems",
        ),
        (
            moved(
                "spec.steps[i].image",
                "spec.steps[].image",
                "v1.spec.params.map(p, p.name + self).join(',')",
            ),
            ".spec.steps has no maxItems, .spec.params has no maxItems",
        ),
    ] {
        let why = refusal(&rule).unwrap_or_default();
        let starts = "spec.conversions[0].rules[0].transformation: Invalid value: ";
        assert!(
            why.starts_with(starts) && why.contains("grows faster than its size"),
            "{rule}: {why}"
        );
        assert!(why.contains(bound), "{rule}: {why}");
    }
}

/// An evaluation over a list of 40,000 items costs more than one call in Kubernetes may.
#[test]
fn the_budget_grows_with_the_object() {
    let bundle = task(&moved(
        "spec.steps",
        "spec.names",
        "self.map(s, {'n': s.name}.n.lowerAscii())",
    ));
    let steps: Vec<_> = (0..40_000).map(|i| json!({"name": format!("Step {i}")})).collect();
    let x = object("v1", &json!({"spec": {"steps": steps}}));
    let budget = &mut unmetered_budget();
    let made = bundle.convert(&x, "v2", budget).unwrap();
    assert_eq!(made["spec"]["names"][39_999], "step 39999");
    assert!(budget.used() > 1_000_000, "{}", budget.used());
    let fixed = &mut Budget::new(10_000_000, &Meter::unbounded());
    assert!(
        bundle.convert(&x, "v2", fixed).is_err(),
        "the budget of a call is Kubernetes'"
    );
}

/// The fields that rules beside the hub relate are joined; more than can be are refused, and not
/// left apart without a word.
#[test]
fn rules_beside_the_hub_relate_a_bounded_number_of_fields() {
    let refusal = |fields: usize| {
        let schema = |prefix: &str| -> String { (0..fields).map(|n| format!("{prefix}{n}: string, ")).collect() };
        let rules = |from: &str, to: &str| -> String {
            (0..fields)
                .map(|n| format!("{{field: spec.{from}{n}, destination: spec.{to}{n}}}, "))
                .collect()
        };
        let text = format!(
            "unserved: [v2, v3, v4]\n\
             versions: {{v1: {{spec: {{}}}}, v2: {{spec: {{{}}}}}, v3: {{spec: {{{}}}}}, v4: {{spec: {{{}}}}}}}\n\
             rules: {{conversions: [{{from: v2, to: v3, rules: [{}]}}, {{from: v3, to: v2, rules: [{}]}}, \
             {{from: v3, to: v4, rules: [{}]}}]}}",
            schema("a"),
            schema("b"),
            schema("c"),
            rules("a", "b"),
            rules("b", "a"),
            rules("b", "c"),
        );
        let bundle = bundle(&yaml(&text)).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let errors = bundle.over_budget(&FieldPath::new("spec"));
        errors.first().map(ToString::to_string)
    };
    // Both directions between v2 and v3 relate the same pairs.
    assert_eq!(refusal(256), None);
    assert_eq!(
        refusal(257).unwrap(),
        "spec.conversions: Forbidden: rules between versions other than v1 relate 514 pairs of fields, at most 512 are \
         allowed: write them between those versions and v1"
    );
}
