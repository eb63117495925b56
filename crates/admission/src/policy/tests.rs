//! Tests of policies over plain JSON: compilation and evaluation.

use crate::policy::{
    budget::HomeBudget,
    evaluate::{Evaluation, Inputs, Verdict},
};
use insula_api::Json;
use insula_catalog::policies::{
    compile::{CompiledMutation, CompiledPolicy},
    spec::PolicySpec,
    validate,
};
use insula_cel::{Authorize, AuthorizerCheck, AuthorizerDecision, CheckTarget, OBJECT_COST_MAX, ResourceCheck};
use insula_meter::Meter;
use serde_json::json;

/// Allows reading, and nothing else.
#[derive(Debug)]
struct Reader;

impl Authorize for Reader {
    fn check(&self, check: &AuthorizerCheck<'_>) -> AuthorizerDecision {
        let about = match check.target {
            CheckTarget::Path(path) => path.to_owned(),
            CheckTarget::Resource(resource) => resource.resource.clone(),
        };
        AuthorizerDecision {
            allowed: check.verb == "get",
            reason: format!("{} {about}", check.verb),
            error: None,
        }
    }
}

fn compiled(spec: Json) -> CompiledPolicy {
    CompiledPolicy::compile(PolicySpec::read(&json!({"spec": spec})))
}

fn verdict(policy: &CompiledPolicy, object: &Json) -> Verdict {
    with_inputs(object, |inputs| Evaluation::new(policy, inputs).validate())
}

fn with_inputs<T>(object: &Json, run: impl FnOnce(Inputs<'_>) -> T) -> T {
    let resource = ResourceCheck {
        resource: "orders".to_owned(),
        ..ResourceCheck::default()
    };
    let namespace = json!({"metadata": {"name": "default", "labels": {"env": "prod"}, "creationTimestamp": "2026-01-01T00:00:00Z"}});
    run(Inputs {
        object,
        old_object: &Json::Null,
        params: &json!({"data": {"limit": "3"}}),
        request: &json!({"name": "a", "namespace": "default", "operation": "CREATE", "userInfo": {"username": "ann", "groups": ["g"]}, "options": {}}),
        namespace: &namespace,
        authorizer: &Reader,
        request_resource: &resource,
        budget: &HomeBudget::new(&Meter::unbounded()),
    })
}

/// Returns the messages of one validation that is false.
fn messages(spec: Json, object: Json) -> Vec<String> {
    let policy = compiled(spec);
    verdict(&policy, &object)
        .refusals
        .into_iter()
        .map(|refusal| refusal.message)
        .collect()
}

#[test]
fn everything_that_kubernetes_gives_can_be_used() {
    let table = [
        "object.spec.count == 1",
        "oldObject == null",
        "params.data.limit == '3'",
        "request.operation == 'CREATE' && request.userInfo.username == 'ann' && 'g' in request.userInfo.groups",
        "request.namespace == 'default' && !has(request.subResource)",
        "namespaceObject.metadata.labels['env'] == 'prod'",
        "variables.twice == 2 && variables.names == ['a']",
        "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
        "!authorizer.path('/metrics').check('post').allowed()",
        "authorizer.requestResource.check('get').reason() == 'get orders'",
    ];
    for expression in table {
        let got = messages(
            json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "variables": [
                    {"name": "names", "expression": "[object.metadata.name]"},
                    {"name": "twice", "expression": "object.spec.count * 2"},
                ],
                "validations": [{"expression": expression}],
            }),
            json!({"metadata": {"name": "a"}, "spec": {"count": 1}}),
        );
        assert_eq!(got, Vec::<String>::new(), "{expression}");
    }
}

#[test]
fn messages_and_failures() {
    let object = json!({"metadata": {"name": "a"}, "spec": {"count": 5}});
    let table = [
        (
            json!({"expression": "object.spec.count < 5"}),
            "failed expression: object.spec.count < 5",
        ),
        (
            json!({"expression": "object.spec.count < 5", "message": " few "}),
            "few",
        ),
        (
            json!({"expression": "object.spec.count < 5", "message": "few", "messageExpression": "'not ' + string(object.spec.count)"}),
            "not 5",
        ),
        // A message expression that fails or is empty gives way to the message.
        (
            json!({"expression": "object.spec.count < 5", "message": "few", "messageExpression": "object.x.y"}),
            "few",
        ),
        (
            json!({"expression": "object.spec.count < 5", "message": "few", "messageExpression": "'  '"}),
            "few",
        ),
        (
            json!({"expression": "object.spec.x > 1"}),
            "expression 'object.spec.x > 1' resulted in error: no such key: x",
        ),
        (
            json!({"expression": "variables.bad"}),
            "expression 'variables.bad' resulted in error: composited variable \"bad\" fails to evaluate: no such key: nothing",
        ),
    ];
    for (validation, want) in table {
        let spec = json!({
            "variables": [{"name": "bad", "expression": "object.nothing == 1"}],
            "validations": [validation.clone()],
        });
        assert_eq!(messages(spec.clone(), object.clone()), [want], "{validation}");
        let mut ignoring = spec;
        ignoring["failurePolicy"] = json!("Ignore");
        let ignored = want.contains("resulted in error");
        assert_eq!(messages(ignoring, object.clone()).is_empty(), ignored, "{validation}");
    }
}

#[test]
fn conditions_decide_whether_a_policy_is_asked() {
    let table = [
        (vec!["true"], vec!["failed expression: false"]),
        (vec!["true", "false"], vec![]),
        // One that is false outweighs one that fails.
        (vec!["object.x == 1", "false"], vec![]),
        (
            vec!["object.x == 1"],
            vec!["expression 'object.x == 1' resulted in error: no such key: x"],
        ),
    ];
    for (conditions, want) in table {
        let named = conditions
            .iter()
            .enumerate()
            .map(|(i, e)| json!({"name": format!("c{i}"), "expression": e}));
        let spec = json!({"matchConditions": named.collect::<Vec<_>>(), "validations": [{"expression": "false"}]});
        assert_eq!(messages(spec, json!({})), want, "{conditions:?}");
    }
}

#[test]
fn variables_are_evaluated_only_where_they_are_read() {
    let spec = json!({
        "variables": [{"name": "bad", "expression": "object.nothing == 1"}],
        "validations": [{"expression": "true || variables.bad"}, {"expression": "object.spec.count == 1"}],
    });
    assert!(messages(spec, json!({"spec": {"count": 1}})).is_empty());
}

#[test]
fn audit_annotations_are_texts_or_nothing() {
    let policy = compiled(json!({"auditAnnotations": [
        {"key": "name", "valueExpression": "'is ' + object.metadata.name"},
        {"key": "nothing", "valueExpression": "null"},
        {"key": "fails", "valueExpression": "string(object.x)"},
    ]}));
    let got = verdict(&policy, &json!({"metadata": {"name": "a"}}));
    assert_eq!(got.annotations, [("name".to_owned(), "is a".to_owned())]);
    assert_eq!(
        got.annotation_errors,
        ["expression 'string(object.x)' resulted in error: no such key: x"]
    );
}

#[test]
fn mutations_make_patches_and_configurations() {
    let table = [
        (
            "JSONPatch",
            "jsonPatch",
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: string(object.spec.count)}]",
            json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": "1"}]),
        ),
        (
            "ApplyConfiguration",
            "applyConfiguration",
            "Object{spec: Object.spec{count: 2, ?note: optional.none()}}",
            json!({"spec": {"count": 2}}),
        ),
    ];
    for (kind, field, expression, want) in table {
        let policy = compiled(json!({"mutations": [{"patchType": kind, field: {"expression": expression}}]}));
        let (CompiledMutation::JsonPatch(program) | CompiledMutation::ApplyConfiguration(program)) =
            &policy.mutations[0];
        let got = with_inputs(&json!({"spec": {"count": 1}}), |inputs| {
            Evaluation::new(&policy, inputs).value(program, &mut inputs.budget.portion(OBJECT_COST_MAX))
        });
        assert_eq!(got, Ok(want), "{expression}");
    }
}

/// Field and message of everything that is wrong.
fn problems(errors: Vec<insula_api::FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn policies_say_what_is_wrong_with_them() {
    let policy = |change: Json| {
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"], "scope": "*"}]},
            "validations": [{"expression": "true"}],
        }});
        for (field, value) in change.as_object().into_iter().flatten() {
            policy["spec"][field] = value.clone();
        }
        policy
    };
    let table = [
        (json!({}), vec![]),
        (
            json!({"failurePolicy": "Maybe"}),
            vec![r#"spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore""#],
        ),
        (
            json!({"validations": []}),
            vec![
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        ),
        (
            json!({"validations": [{"expression": "object"}]}),
            vec![r#"spec.validations[0].expression: Invalid value: "object": must evaluate to bool but got dyn"#],
        ),
        (
            json!({"variables": [{"name": "in", "expression": "1"}]}),
            vec![r#"spec.variables[0].name: Invalid value: "in": name is not a valid CEL identifier"#],
        ),
        (
            json!({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}),
            vec![
                r#"spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to one of [string null_type] but got int"#,
            ],
        ),
        (
            json!({"paramKind": {"apiVersion": "v1"}}),
            vec!["spec.paramKind.kind: Required value"],
        ),
    ];
    for (change, want) in table {
        assert_eq!(
            problems(validate::validating_policy(&policy(change.clone()))),
            want,
            "{change}"
        );
    }
}

#[test]
fn bindings_say_what_is_wrong_with_them() {
    let table = [
        (json!({"policyName": "p", "validationActions": ["Deny"]}), vec![]),
        (
            json!({"policyName": "p"}),
            vec!["spec.validationActions: Required value: at least one validation action is required"],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {"parameterNotFoundAction": "Deny"}}),
            vec!["spec.paramRef: Required value: one of name or selector must be specified"],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Warn", "Warn"]}),
            vec![r#"spec.validationActions[1]: Duplicate value: "Warn""#],
        ),
    ];
    for (spec, want) in table {
        assert_eq!(
            problems(validate::binding(&json!({"spec": spec}), true)),
            want,
            "{spec}"
        );
    }
}
