//! Evaluation of rules over an object.
//!
//! Rules of an object run before those of its fields. A transition rule (one that reads `oldSelf`)
//! runs only where the old value is known: fields and map entries by name, items of keyed lists by
//! key, items of other lists never. On an update, a rule without `oldSelf` that fails for an
//! unchanged value gives a warning; where the old value is unknown, the enclosing list decides if
//! the value counts as unchanged. A rule that cannot be evaluated gives a warning as well, also if
//! only fields changed that it does not read: it failed in the same way before, and as an error it
//! would lock the object, with its labels, finalizers and status. Kubernetes refuses such writes.
//! Limits are never ratcheted: where they end an evaluation, rules remain that did not run.

use super::{Findings, Rule, Segment};
use crate::list_type::Correlation;
use crate::node::{Node, Type};
use crate::ratchet::changed_beside;
use crate::validate::kind_of;
use crate::value_path::{Keys, ValuePath};
use insula_api::{FieldError, FieldErrorKind, Json};
use insula_cel::{Activation, Budget, EvalError, Outcome};
use std::cell::OnceCell;

/// Bytes of a message. Longer messages are not used, as in Kubernetes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// Errors after which rules stop, as validation does.
const ERRORS_MAX: usize = 1000;

/// Treatment of rules that compare with the old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transitions {
    Run,
    Skip,
}

/// Runs the rules on a value of `node`, as [`super::check`] does on an object.
pub(crate) fn check_value(value: &Json, old: Option<&Json>, node: &Node, budget: &mut Budget) -> Findings {
    check_rules(value, old, node, (budget, Transitions::Run))
}

pub(super) fn check_rules(
    value: &Json,
    old: Option<&Json>,
    node: &Node,
    (budget, transitions): (&mut Budget, Transitions),
) -> Findings {
    let mut run = Run {
        findings: Findings::default(),
        budget,
        transitions,
        exhausted: false,
    };
    let pair = old.map(|old| Pair::new(value, old));
    let before = Before {
        old,
        pair: pair.as_ref(),
        known: old.is_some(),
    };
    run.walk(value, node, before, &ValuePath::ROOT);
    run.findings
}

/// A value and its old value.
struct Pair<'a> {
    new: &'a Json,
    old: &'a Json,
    equal: OnceCell<bool>,
}

impl<'a> Pair<'a> {
    fn new(new: &'a Json, old: &'a Json) -> Pair<'a> {
        let equal = OnceCell::new();
        Pair { new, old, equal }
    }

    fn unchanged(&self) -> bool {
        *self.equal.get_or_init(|| self.new == self.old)
    }
}

/// Knowledge about a value's old value.
#[derive(Clone, Copy)]
struct Before<'p, 'a> {
    /// The old value.
    old: Option<&'a Json>,
    /// The value with its old value, or those of the nearest enclosing value that has one.
    pair: Option<&'p Pair<'a>>,
    /// True if `pair` is the value's own.
    known: bool,
}

impl<'p, 'a> Before<'p, 'a> {
    /// Returns the knowledge about a value below.
    fn below<'q>(self, old: Option<&'a Json>, own: Option<&'q Pair<'a>>) -> Before<'q, 'a>
    where
        'p: 'q,
    {
        Before {
            old,
            pair: own.or(self.pair),
            known: own.is_some(),
        }
    }

    fn unchanged(&self) -> bool {
        self.pair.is_some_and(Pair::unchanged)
    }

    /// Returns true if only the metadata or status of a whole object changed, and nothing that a
    /// rule of the whole object reads: else one that is false would lock labels and finalizers.
    fn same_but_metadata(&self, rule: &Rule, value: &Json) -> bool {
        self.old.is_some_and(|old| changed_beside(value, old).is_some()) && self.same_inputs(rule, value)
    }

    /// Returns true if a rule gives the same result as before: its value did not change, or no
    /// field that it reads. Transition rules compare, so that each of their results is new.
    fn same_inputs(&self, rule: &Rule, value: &Json) -> bool {
        let Ok(program) = &rule.program else { return false };
        let same = |old: &Json| program.references().iter().all(|read| same_at(value, old, &read.path));
        !rule.reads_old && (self.unchanged() || self.old.is_some_and(same))
    }
}

/// Returns true if two values are equal at a path, or at the last object or list on the way.
fn same_at(new: &Json, old: &Json, path: &[String]) -> bool {
    match (path.split_first(), new, old) {
        (Some((name, rest)), Json::Object(new), Json::Object(old)) => match (new.get(name), old.get(name)) {
            (Some(new), Some(old)) => same_at(new, old, rest),
            (new, old) => new == old,
        },
        _ => new == old,
    }
}

struct Run<'b> {
    findings: Findings,
    budget: &'b mut Budget,
    transitions: Transitions,
    exhausted: bool,
}

impl Run<'_> {
    fn walk<'a>(&mut self, value: &'a Json, node: &Node, before: Before<'_, 'a>, at: &ValuePath<'_>) {
        if !node.below.rules || value.is_null() || self.exhausted || self.findings.errors.len() >= ERRORS_MAX {
            return;
        }
        for rule in &node.rules {
            self.rule(rule, value, node, before, at);
            if self.exhausted {
                return;
            }
        }
        match value {
            Json::Object(map) => {
                let olds = before.old.and_then(Json::as_object);
                for (name, child) in map {
                    let (below, at) = match (node.property(name), node.additional()) {
                        (Some(field), _) => (field, at.field(name)),
                        (None, Some(values)) => (values, at.key(name)),
                        (None, None) => continue,
                    };
                    self.child(child, below, before, olds.and_then(|o| o.get(name)), &at);
                }
            }
            Json::Array(list) => {
                let Some(items) = node.items().filter(|i| i.below.rules) else {
                    return;
                };
                let mut olds = Correlation::new(before.old, node);
                for (index, item) in list.iter().enumerate() {
                    self.child(item, items, before, olds.find(item), &at.index(index));
                }
            }
            _ => {}
        }
    }

    fn child<'a>(
        &mut self,
        value: &'a Json,
        node: &Node,
        parent: Before<'_, 'a>,
        old: Option<&'a Json>,
        at: &ValuePath<'_>,
    ) {
        let own = old.filter(|_| parent.known).map(|old| Pair::new(value, old));
        self.walk(value, node, parent.below(old, own.as_ref()), at);
    }

    fn rule(&mut self, rule: &Rule, value: &Json, node: &Node, before: Before<'_, '_>, at: &ValuePath<'_>) {
        let old = before.old.filter(|o| !o.is_null());
        let is_skipped = self.transitions == Transitions::Skip || !rule.optional_old && old.is_none();
        if rule.reads_old && is_skipped {
            return;
        }
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => {
                let why = format!("rule compile error: {why}");
                return self.findings.errors.push(type_at(at, value, why));
            }
        };
        let (error, ratchets) = match program.eval(&activation(rule, value, old, node), self.budget) {
            Ok(Outcome::Value(Json::Bool(true))) => return,
            Ok(Outcome::Value(Json::Bool(false))) => {
                let ratchets =
                    !rule.reads_old && (before.unchanged() || at.is_root() && before.same_but_metadata(rule, value));
                let error = self.failed(rule, value, old, node, at).unwrap_or_else(|limit| {
                    // The rules that follow have the rest of the budget.
                    self.exhausted = !ratchets;
                    limit
                });
                (error, ratchets)
            }
            Err(EvalError::CostExceeded) => {
                self.exhausted = true;
                (type_at(at, value, out_of_cost(rule, self.budget)), false)
            }
            Ok(_) => {
                let why = format!("{NOT_BOOL} evaluating rule: {}", rule.shown());
                (type_at(at, value, why), before.same_inputs(rule, value))
            }
            Err(EvalError::NoSuchOverload { .. }) => {
                const WORDS: &str = "call arguments did not match a supported operator, function or macro signature";
                let why = format!("'no such overload': {WORDS} for rule: {}", rule.shown());
                (type_at(at, value, why), before.same_inputs(rule, value))
            }
            Err(error) => {
                let why = format!("{error} evaluating rule: {}", rule.shown());
                let ratchets = !error.is_limit() && before.same_inputs(rule, value);
                (type_at(at, value, why), ratchets)
            }
        };
        match ratchets {
            true => self.findings.warnings.push(error.to_string()),
            false => self.findings.errors.push(error),
        }
    }

    /// Returns the error of a rule that does not hold.
    ///
    /// # Errors
    ///
    /// The error of its message, which exceeds a limit.
    fn failed(
        &mut self,
        rule: &Rule,
        value: &Json,
        old: Option<&Json>,
        node: &Node,
        at: &ValuePath<'_>,
    ) -> Result<FieldError, FieldError> {
        let detail = match self.message(rule, value, old, node) {
            Ok(Some(text)) => text,
            Ok(None) if rule.message.is_empty() => format!("failed rule: {}", rule.source().trim()),
            Ok(None) => rule.message.trim().to_owned(),
            Err(why) => return Err(type_at(at, value, why)),
        };
        let place = at.path(Keys::Bracketed);
        let field = rule.field_path.iter().fold(place, |path, step| match step {
            Segment::Field(name) => path.child(name),
            Segment::Key(key) => path.key(key),
        });
        // Objects and lists are not echoed, nor is any value when the error points elsewhere.
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
        Ok(error)
    }

    /// Evaluates the rule's `messageExpression`. `None` if there is none or its result is unusable.
    ///
    /// # Errors
    ///
    /// Fails if the budget is used up.
    fn message(
        &mut self,
        rule: &Rule,
        value: &Json,
        old: Option<&Json>,
        node: &Node,
    ) -> Result<Option<String>, String> {
        let Some(program) = &rule.message_program else {
            return Ok(None);
        };
        let text = match program.eval(&activation(rule, value, old, node), self.budget) {
            Ok(Outcome::Value(Json::String(text))) => text,
            Err(EvalError::CostExceeded) if self.budget.exhausted() => {
                let why = "messageExpression evaluation failed due to running out of cost budget, no further \
                           validation rules will be run";
                return Err(why.to_owned());
            }
            Err(EvalError::CostExceeded) => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    Json::from(program.source())
                ));
            }
            _ => return Ok(None),
        };
        let text = text.trim();
        let usable = !text.is_empty() && !text.contains('\n') && text.len() <= MESSAGE_BYTES_MAX;
        Ok(usable.then(|| text.to_owned()))
    }
}

/// Returns the text for a rule that exceeds the object's budget, or the limit of one rule.
fn out_of_cost(rule: &Rule, budget: &Budget) -> String {
    if budget.exhausted() {
        return "validation failed due to running out of cost budget, no further validation rules will be run"
            .to_owned();
    }
    format!(
        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
        EvalError::CostExceeded,
        rule.shown()
    )
}

const NOT_BOOL: &str = "rule did not evaluate to a bool";

/// Returns an error with the type of the value instead of the value.
fn type_at(at: &ValuePath<'_>, value: &Json, detail: String) -> FieldError {
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

/// Binds a value. Numbers without a fraction are of type double where the schema says `number`.
fn bind<'a>(activation: Activation<'a>, name: &'static str, value: &'a Json, node: &Node) -> Activation<'a> {
    match (node.kind, value) {
        (Some(Type::Number), Json::Number(n)) if n.is_i64() => {
            activation.with_owned(name, Json::from(n.as_f64().unwrap_or_default()))
        }
        _ => activation.with(name, value),
    }
}
