//! Runs every expression in `policies/*.yaml`: features of admission policies only, with an
//! authorizer that answers from the table.

use insula_cel::{
    AbsenceMode, Activation, Authorize, AuthorizerCheck, AuthorizerDecision, Budget, CALL_COST_MAX, CheckTarget, Decl,
    Env, Outcome, Program, Type,
};
use insula_meter::Meter;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// An authorizer that answers by the text of the check.
#[derive(Debug)]
struct Table<'a>(&'a Value);

impl Authorize for Table<'_> {
    fn check(&self, check: &AuthorizerCheck<'_>) -> AuthorizerDecision {
        let answer = &self.0[&question(check)];
        let text = |name: &str| answer[name].as_str().map(str::to_owned);
        AuthorizerDecision {
            allowed: answer["allowed"] == true,
            reason: text("reason").unwrap_or_default(),
            error: text("error"),
        }
    }
}

fn question(check: &AuthorizerCheck<'_>) -> String {
    let mut text = match check.service_account {
        Some((namespace, name)) => format!("as {namespace}/{name}: {}", check.verb),
        None => check.verb.to_owned(),
    };
    match check.target {
        CheckTarget::Path(path) => write!(text, " {path}").expect("text"),
        CheckTarget::Resource(of) => {
            write!(text, " {} {}", of.group, of.resource).expect("text");
            for (name, value) in [
                ("subresource", &of.subresource),
                ("namespace", &of.namespace),
                ("name", &of.name),
                ("field", &of.field_selector),
                ("label", &of.label_selector),
            ] {
                if !value.is_empty() {
                    write!(text, " {name}={value}").expect("text");
                }
            }
        }
    }
    text
}

/// Returns the result as one line, and the cost.
fn run(case: &Value) -> (String, u64) {
    let source = case["expr"].as_str().expect("a case has an expr");
    let env = Env::new(AbsenceMode::Error).authorizer().json_patch().with(
        "authorizer",
        Decl::scalar(Type::Opaque("kubernetes.authorization.Authorizer")),
    );
    let program = match Program::compile_in(source, &env) {
        Ok(program) => program,
        Err(error) => return (format!("refused: {}", error.issues[0].message), 0),
    };
    let table = Table(&case["answers"]);
    let activation = Activation::new().with_authorizer("authorizer", &table);
    let mut budget = Budget::new(CALL_COST_MAX, &Meter::unbounded());
    let text = match program.eval(&activation, &mut budget) {
        Ok(Outcome::Value(value)) => format!("= {value}"),
        Ok(Outcome::Absent) => "absent".to_owned(),
        Err(error) => format!("error: {error}"),
    };
    (text, budget.used())
}

#[test]
fn tables_of_policies_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    let (mut cases, mut failures) = (0, String::new());
    for file in std::fs::read_dir(&folder).expect("the data folder") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("a readable table");
        let table: Value = serde_saphyr::from_str(&text).expect("a table in YAML");
        for case in table.as_array().expect("a list of cases") {
            cases += 1;
            let (got, cost) = run(case);
            let want = match (case["error"].as_str(), case["refused"].as_str()) {
                (Some(text), _) => format!("error: {text}"),
                (None, Some(text)) => format!("refused: {text}"),
                (None, None) => format!("= {}", case["want"]),
            };
            if got != want {
                writeln!(failures, "{}\n  want {want}\n  got  {got}", case["expr"]).expect("text");
            }
            if let Some(want) = case["cost"].as_u64()
                && want != cost
            {
                writeln!(failures, "{}: want cost {want}, got {cost}", case["expr"]).expect("text");
            }
        }
    }
    assert!(failures.is_empty(), "of {cases} cases:\n{failures}");
    assert!(cases > 30, "only {cases} cases found");
}
