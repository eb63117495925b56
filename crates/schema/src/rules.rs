//! Rules on schemas (`x-kubernetes-validations`): compiled with the schema against the declarations
//! of their nodes, with estimated costs, and run over an object within one budget.

mod compile;
mod cost;
mod run;

use crate::declare::{ObjectRole, declaration};
use crate::keyword::text;
use crate::node::Node;
use crate::rule::Segment;
use crate::structural::Structural;
use insula_api::{FieldErrorKind, Json};
use insula_cel::{AbsenceMode, Budget, Decl, Env, Program, Type};
use insula_meter::Meter;
use std::sync::Arc;

pub(crate) use compile::{Trust, compile, factor};
pub(crate) use cost::RULE_COST_MAX;

pub use crate::rule::Rule;

/// Cost units of all rules for one object, as in Kubernetes.
pub const RULE_COST_PER_OBJECT_MAX: u64 = insula_cel::OBJECT_COST_MAX;

/// Result of running rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Errors for which the write is refused.
    pub errors: Vec<insula_api::FieldError>,
    /// Errors of values that did not change, which become warnings.
    pub warnings: Vec<String>,
}

/// Runs every rule of the schema on an object. With `old`, transition rules run too, and errors of
/// unchanged values become warnings.
pub fn check(object: &Json, old: Option<&Json>, schema: &Structural, budget: &mut Budget) -> Findings {
    run::check_value(object, old, schema.root(), budget)
}

/// Runs the rules as [`check`] does on an update, but for transition rules.
pub(crate) fn check_without_transitions(object: &Json, old: &Json, schema: &Structural, meter: &Meter) -> Findings {
    let mut budget = Budget::new(RULE_COST_PER_OBJECT_MAX, meter);
    run::check_rules(object, Some(old), schema.root(), (&mut budget, Transitions::Skip))
}

use run::Transitions;
pub(crate) use run::check_value;

/// Compile error of a rule.
#[derive(Debug)]
struct Failure {
    /// Field of the rule with the error.
    field: &'static str,
    detail: String,
}

/// Required type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Bool,
    String,
}

impl Rule {
    /// Compiles a rule of a schema against the declaration of its node. `None` for a rule without
    /// an expression.
    fn parse(rule: &Json, node: &Node, decl: &Decl, trust: Trust) -> Option<(Rule, Option<Failure>)> {
        let source = text(rule, "rule");
        if source.trim().is_empty() {
            return None;
        }
        let optional_old = rule.get("optionalOldSelf").and_then(Json::as_bool).unwrap_or(false);
        let env = Env::new(AbsenceMode::Error).with("self", decl.clone());
        let env = match optional_old {
            true => env.with_optional("oldSelf", decl.clone()),
            false => env.with("oldSelf", decl.clone()),
        };
        let mut failure = None;
        let program = expression(source, &env, Want::Bool, trust).map_err(|detail| {
            let shown = detail.as_str().into();
            failure = Some(Failure { field: "rule", detail });
            shown
        });
        let words = text(rule, "messageExpression");
        let mut message_program = None;
        if failure.is_none() && !words.trim().is_empty() {
            match expression(words, &env, Want::String, trust) {
                Ok(program) => message_program = Some(program),
                Err(detail) => {
                    failure = Some(Failure {
                        field: "messageExpression",
                        detail: match detail.strip_prefix("program ") {
                            Some(detail) => format!("messageExpression {detail}"),
                            None if detail.starts_with("compilation failed: ") => format!("messageExpression {detail}"),
                            None => detail,
                        },
                    })
                }
            }
        }
        let reads = |p: &Arc<Program>| p.references().iter().any(|r| r.variable == "oldSelf");
        let rule = Rule {
            source: source.into(),
            reads_old: program.as_ref().is_ok_and(reads),
            program,
            message: text(rule, "message").into(),
            message_program,
            reason: reason(text(rule, "reason")).unwrap_or(FieldErrorKind::Invalid),
            field_path: resolve(parse_field_path(text(rule, "fieldPath")).unwrap_or_default(), node),
            optional_old,
        };
        Some((rule, failure))
    }
}

/// Compiles one expression. A stored expression with type errors was accepted once: it runs without
/// types.
fn expression(source: &str, env: &Env, want: Want, trust: Trust) -> Result<Arc<Program>, String> {
    let error = match Program::compile_in(source, env) {
        Ok(program) if fits(program.result(), want) => return Ok(Arc::new(program)),
        Ok(_) => match want {
            Want::Bool => "cel expression must evaluate to a bool".to_owned(),
            Want::String => "messageExpression must evaluate to a string".to_owned(),
        },
        Err(error) => error.refusal(),
    };
    match trust {
        Trust::New => Err(error),
        Trust::Stored => Program::compile_with(source, &["self", "oldSelf"], AbsenceMode::Error)
            .map(Arc::new)
            .map_err(|_| error),
    }
}

fn fits(given: &Type, want: Want) -> bool {
    match want {
        Want::Bool => *given == Type::Bool,
        Want::String => *given == Type::String,
    }
}

/// Returns the error kind of a rule's `reason`.
pub(crate) fn reason(text: &str) -> Option<FieldErrorKind> {
    match text {
        "" | "FieldValueInvalid" => Some(FieldErrorKind::Invalid),
        "FieldValueForbidden" => Some(FieldErrorKind::Forbidden),
        "FieldValueRequired" => Some(FieldErrorKind::Required),
        "FieldValueDuplicate" => Some(FieldErrorKind::Duplicate),
        _ => None,
    }
}

/// Renders a rule as Go's encoder prints its struct, for compile errors.
fn go_json(rule: &Json) -> String {
    let string = |name: &str| Json::from(text(rule, name)).to_string();
    let other = |name: &str| rule.get(name).unwrap_or(&Json::Null).to_string();
    let json = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        string("rule"),
        string("message"),
        string("messageExpression"),
        other("reason"),
        string("fieldPath"),
        other("optionalOldSelf"),
    );
    json.replace('>', "\\u003e")
        .replace('<', "\\u003c")
        .replace('&', "\\u0026")
}

/// Parses `.a.b` and `.a['key']`; `None` for other texts. List indices are not allowed.
pub(crate) fn parse_field_path(path: &str) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("['") {
            let (key, after) = after.split_once("']")?;
            segments.push(Segment::Key(key.replace("\\'", "'")));
            rest = after;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let mut chars = name.chars();
            let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
                return None;
            }
            segments.push(Segment::Field(name.to_owned()));
            rest = after;
        }
    }
    Some(segments)
}

/// Resolves steps in either notation: a field where the schema has fields, a key otherwise.
fn resolve(path: Vec<Segment>, node: &Node) -> Vec<Segment> {
    let mut at = Some(node);
    let steps = path.into_iter().map(|step| {
        let (Segment::Field(name) | Segment::Key(name)) = step;
        let named = at.is_none_or(|node| node.additional().is_none() || node.property(&name).is_some());
        at = at.and_then(|node| node.child(&name));
        if named {
            Segment::Field(name)
        } else {
            Segment::Key(name)
        }
    });
    steps.collect()
}

/// Returns the declaration of a node with rules, with the type name of messages.
fn declare(node: &Node, stands: ObjectRole) -> Option<Decl> {
    declaration(node, stands, "selfType")
}
