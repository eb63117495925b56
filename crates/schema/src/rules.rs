//! Rules on schemas (`x-kubernetes-validations`): compiled with the schema, run over an object within one budget.
//!
//! Rules of an object run before those of its fields. A transition rule (one that reads `oldSelf`) only runs where the
//! old value is known: fields and map entries by name, items of keyed lists by key, items of other lists never. On an
//! update, a rule without `oldSelf` whose value did not change fails as a warning only.

use crate::at::{At, Keys};
use crate::list_type::Correlation;
use crate::node::{Node, Type};
use crate::structural::Structural;
use crate::validate::kind_of;
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_cel::{AbsenceMode, Activation, Budget, EvalError, Outcome, Program};
use std::sync::Arc;

/// Cost of all rules for one object, as in Kubernetes.
pub const RULE_COST_PER_OBJECT_MAX: u64 = insula_cel::OBJECT_COST_MAX;
/// Longer messages are not used, as in Kubernetes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Rules stop after so many errors, as validation does.
const ERRORS_MAX: usize = 1000;

const VARIABLES: [&str; 2] = ["self", "oldSelf"];

/// One rule, compiled.
#[derive(Debug, Clone)]
pub struct Rule {
    program: Arc<Program>,
    message: Box<str>,
    message_program: Option<Arc<Program>>,
    reason: FieldErrorKind,
    field_path: Vec<Segment>,
    reads_old: bool,
    optional_old: bool,
}

/// One step of a rule's `fieldPath`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Field(String),
    Key(String),
}

/// The result of running rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What is refused.
    pub errors: Vec<FieldError>,
    /// What would be refused if it had not been there before.
    pub warnings: Vec<String>,
}

/// Runs every rule of the schema on an object. With `old`, transition rules run too and unchanged values ratchet.
pub fn check(object: &Json, old: Option<&Json>, schema: &Structural, budget: &mut Budget) -> Findings {
    check_value(object, old, schema.root(), budget)
}

/// As [`check`], of a value that stands at `node`.
pub(crate) fn check_value(value: &Json, old: Option<&Json>, node: &Node, budget: &mut Budget) -> Findings {
    let mut run = Run {
        findings: Findings::default(),
        budget,
        exhausted: false,
    };
    run.walk(value, old, node, &At::ROOT);
    run.findings
}

impl Rule {
    /// Compiles a rule. Checks beyond compilation are admission's.
    pub(crate) fn parse(rule: &Json, path: impl Fn() -> FieldPath) -> Result<Rule, FieldError> {
        let text = |name: &str| rule.get(name).and_then(Json::as_str).unwrap_or("");
        let program = Program::compile_with(text("rule"), &VARIABLES, AbsenceMode::Error).map_err(|e| {
            FieldError::invalid_text(&path().child("rule"), go_json(rule), format!("compilation failed: {e}"))
        })?;
        let expression = text("messageExpression");
        let message_program = match expression.trim() {
            "" => None,
            _ => Some(
                Program::compile_with(expression, &VARIABLES, AbsenceMode::Error).map_err(|e| {
                    let why = format!("messageExpression compilation failed: {e}");
                    FieldError::invalid_text(&path().child("messageExpression"), go_json(rule), why)
                })?,
            ),
        };
        Ok(Rule {
            reads_old: program.references().iter().any(|r| r.variable == "oldSelf"),
            program: Arc::new(program),
            message: text("message").into(),
            message_program: message_program.map(Arc::new),
            reason: reason(text("reason")).unwrap_or(FieldErrorKind::Invalid),
            field_path: parse_field_path(text("fieldPath")).unwrap_or_default(),
            optional_old: rule.get("optionalOldSelf").and_then(Json::as_bool).unwrap_or(false),
        })
    }

    /// The expression.
    pub fn source(&self) -> &str {
        self.program.source()
    }

    /// Whether it compares with the value before the write.
    pub fn reads_old(&self) -> bool {
        self.reads_old
    }

    /// What the text of a runtime error shows: the message if there is one.
    fn shown(&self) -> &str {
        if self.message.is_empty() {
            self.source().trim()
        } else {
            &self.message
        }
    }
}

/// The error kind of a rule's `reason`.
pub(crate) fn reason(text: &str) -> Option<FieldErrorKind> {
    match text {
        "" | "FieldValueInvalid" => Some(FieldErrorKind::Invalid),
        "FieldValueForbidden" => Some(FieldErrorKind::Forbidden),
        "FieldValueRequired" => Some(FieldErrorKind::Required),
        "FieldValueDuplicate" => Some(FieldErrorKind::Duplicate),
        _ => None,
    }
}

/// A rule as Go's encoder prints the struct that holds it: what errors of compilation show.
pub(crate) fn go_json(rule: &Json) -> String {
    let text = |name: &str| Json::from(rule.get(name).and_then(Json::as_str).unwrap_or("")).to_string();
    let other = |name: &str| rule.get(name).unwrap_or(&Json::Null).to_string();
    let json = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        other("reason"),
        text("fieldPath"),
        other("optionalOldSelf"),
    );
    json.replace('>', "\\u003e")
        .replace('<', "\\u003c")
        .replace('&', "\\u0026")
}

/// Parses `.a.b`, `.a['key']`. `None` when it is neither; list indices are not allowed.
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

struct Run<'b> {
    findings: Findings,
    budget: &'b mut Budget,
    exhausted: bool,
}

impl Run<'_> {
    fn walk(&mut self, value: &Json, old: Option<&Json>, node: &Node, at: &At<'_>) {
        if !node.below.rules || value.is_null() || self.exhausted || self.findings.errors.len() >= ERRORS_MAX {
            return;
        }
        let old = old.filter(|o| !o.is_null());
        for rule in &node.rules {
            self.rule(rule, value, old, node, at);
            if self.exhausted {
                return;
            }
        }
        match value {
            Json::Object(map) => {
                let old = old.and_then(Json::as_object);
                for (name, child) in map {
                    let before = old.and_then(|o| o.get(name));
                    if let Some(field) = node.property(name) {
                        self.walk(child, before, field, &at.field(name));
                    } else if let Some(values) = node.additional() {
                        self.walk(child, before, values, &at.key(name));
                    }
                }
            }
            Json::Array(list) => {
                let Some(items) = node.items().filter(|i| i.below.rules) else {
                    return;
                };
                let mut old = Correlation::of(old, node);
                for (index, item) in list.iter().enumerate() {
                    self.walk(item, old.find(item), items, &at.index(index));
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Rule, value: &Json, old: Option<&Json>, node: &Node, at: &At<'_>) {
        if rule.reads_old && !rule.optional_old && old.is_none() {
            return;
        }
        let outcome = rule.program.eval(&activation(rule, value, old, node), self.budget);
        let error = match outcome {
            Ok(Outcome::Value(Json::Bool(true))) => return,
            Ok(Outcome::Value(Json::Bool(false))) => self.failed(rule, value, old, node, at),
            Ok(_) => invalid_at(at, value, format!("{} evaluating rule: {}", NOT_BOOL, rule.shown())),
            Err(EvalError::CostExceeded) => {
                self.exhausted = true;
                let why = if self.budget.exhausted() {
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .to_owned()
                } else {
                    format!(
                        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        EvalError::CostExceeded,
                        rule.shown()
                    )
                };
                invalid_at(at, value, why)
            }
            Err(EvalError::NoSuchOverload { .. }) => {
                const WORDS: &str = "call arguments did not match a supported operator, function or macro signature";
                invalid_at(
                    at,
                    value,
                    format!("'no such overload': {WORDS} for rule: {}", rule.shown()),
                )
            }
            Err(error) => invalid_at(at, value, format!("{error} evaluating rule: {}", rule.shown())),
        };
        if !rule.reads_old && !self.exhausted && old == Some(value) {
            self.findings.warnings.push(error.to_string());
        } else {
            self.findings.errors.push(error);
        }
    }

    fn failed(&mut self, rule: &Rule, value: &Json, old: Option<&Json>, node: &Node, at: &At<'_>) -> FieldError {
        let message = rule.message_program.as_ref().and_then(|program| {
            let outcome = program.eval(&activation(rule, value, old, node), self.budget);
            match outcome {
                Ok(Outcome::Value(Json::String(text))) => Some(text),
                _ => None,
            }
        });
        let usable =
            |text: &String| !text.trim().is_empty() && !text.contains(['\n', '\r']) && text.len() <= MESSAGE_BYTES_MAX;
        let detail = match message.filter(usable) {
            Some(text) => text.trim().to_owned(),
            None if !rule.message.is_empty() => rule.message.to_string(),
            None => format!("failed rule: {}", rule.source().trim()),
        };
        let field = rule
            .field_path
            .iter()
            .fold(at.path(Keys::Bracketed), |path, segment| match segment {
                Segment::Field(name) => path.child(name),
                Segment::Key(key) => path.key(key),
            });
        // Objects and lists are not echoed; neither is anything when the error points elsewhere.
        let shown = match value {
            Json::Object(_) | Json::Array(_) => String::new(),
            scalar => scalar.to_string(),
        };
        let mut error = match rule.reason {
            FieldErrorKind::Required => FieldError::required(&field, detail),
            FieldErrorKind::Forbidden => FieldError::forbidden(&field, detail),
            _ => FieldError::invalid_text(&field, shown, detail),
        };
        if rule.reason == FieldErrorKind::Duplicate {
            error.kind = FieldErrorKind::Duplicate;
            error.detail.clear();
        }
        error
    }
}

const NOT_BOOL: &str = "rule did not evaluate to a bool";

/// An error that names the type of the value, not the value.
fn invalid_at(at: &At<'_>, value: &Json, detail: String) -> FieldError {
    FieldError::invalid_text(&at.path(Keys::Bracketed), format!("\"{}\"", kind_of(value)), detail)
}

fn activation<'a>(rule: &Rule, value: &'a Json, old: Option<&'a Json>, node: &Node) -> Activation<'a> {
    let activation = bind(Activation::new(), "self", value, node);
    match old {
        Some(old) if rule.optional_old => activation.with_optional("oldSelf", Some(old)),
        Some(old) => bind(activation, "oldSelf", old, node),
        None if rule.optional_old => activation.with_optional("oldSelf", None),
        None => activation,
    }
}

/// Numbers written without a fraction are still of type double where the schema says `number`.
fn bind<'a>(activation: Activation<'a>, name: &'static str, value: &'a Json, node: &Node) -> Activation<'a> {
    match (node.kind, value) {
        (Some(Type::Number), Json::Number(n)) if n.is_i64() => {
            activation.with_owned(name, Json::from(n.as_f64().unwrap_or_default()))
        }
        _ => activation.with(name, value),
    }
}
