//! Evaluation of a policy's programs on one request. It is pure and metered, and evaluates each
//! variable at most once, when an expression reads it.

use super::budget::{HomeBudget, Portion};
use insula_api::Json;
use insula_catalog::policies::compile::{CompiledPolicy, Expression, NamedExpression};
use insula_cel::{Activation, Authorize, EvalError, OBJECT_COST_MAX, Outcome, ResourceCheck};
use serde_json::Map;
use std::collections::BTreeMap;

/// Cost limit of all conditions of a policy, as in Kubernetes
/// (`RuntimeCELCostBudgetMatchConditions`).
const CONDITIONS_COST_MAX: u64 = OBJECT_COST_MAX / 4;
/// Size limit for results of message expressions; longer ones are ignored, as in Kubernetes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Inputs of expressions; absent ones are null.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) object: &'a Json,
    pub(crate) old_object: &'a Json,
    pub(crate) params: &'a Json,
    pub(crate) request: &'a Json,
    pub(crate) namespace: &'a Json,
    pub(crate) authorizer: &'a dyn Authorize,
    /// Resource of the request, for `authorizer.requestResource`.
    pub(crate) request_resource: &'a ResourceCheck,
    /// Budget of the write, which all evaluations for the same workspace share.
    pub(crate) budget: &'a HomeBudget,
}

/// Failure of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The cost budget is exhausted, so evaluation ends.
    OutOfBudget,
    /// Message for the sender.
    Error(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::OutOfBudget => f.write_str(OUT_OF_BUDGET),
            Failure::Error(text) => f.write_str(text),
        }
    }
}

/// Result of a policy's conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    Holds,
    Fails,
    /// A condition failed to evaluate, and the policy does not ignore failures.
    Error(String),
}

/// Refusal by a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Index of the validation.
    pub(crate) index: usize,
    /// Reason that the policy names, or `Invalid`.
    pub(crate) reason: Option<String>,
    pub(crate) message: String,
}

/// Result of a policy for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) refusals: Vec<Refusal>,
    /// Notes for the audit log.
    pub(crate) annotations: Vec<(String, String)>,
    /// Errors of audit annotations: they refuse the write, whatever the binding's actions are.
    pub(crate) annotation_errors: Vec<String>,
}

/// One policy on one request, with the values of its variables.
pub(crate) struct Evaluation<'a> {
    policy: &'a CompiledPolicy,
    inputs: Inputs<'a>,
    /// Values of the variables that were read so far.
    variables: Json,
    /// Names of the evaluated variables, with the errors of those that failed.
    known: BTreeMap<&'a str, Result<(), String>>,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(policy: &'a CompiledPolicy, inputs: Inputs<'a>) -> Self {
        Evaluation {
            policy,
            inputs,
            variables: Json::Object(Map::new()),
            known: BTreeMap::new(),
        }
    }

    /// Evaluates an expression.
    pub(crate) fn value(&mut self, expression: &'a Expression, budget: &mut Portion<'_>) -> Result<Json, Failure> {
        if budget.cel.exhausted() {
            return Err(Failure::OutOfBudget);
        }
        let program = expression
            .program
            .as_ref()
            .map_err(|why| Failure::Error(format!("compilation error: {why}")))?;
        for reference in program.references().iter().filter(|r| r.variable == "variables") {
            self.read_variables(reference.path.first().map(String::as_str), budget)?;
        }
        let inputs = self.inputs;
        let activation = Activation::new()
            .with("object", inputs.object)
            .with("oldObject", inputs.old_object)
            .with("params", inputs.params)
            .with("request", inputs.request)
            .with("namespaceObject", inputs.namespace)
            .with("variables", &self.variables)
            .with_authorizer("authorizer", inputs.authorizer)
            .with_resource_check(
                "authorizer.requestResource",
                inputs.authorizer,
                inputs.request_resource.clone(),
            );
        match program.eval(&activation, &mut budget.cel) {
            Ok(Outcome::Value(value)) => Ok(value),
            Ok(Outcome::Absent) => Ok(Json::Null),
            Err(EvalError::CostExceeded) if budget.cel.exhausted() => Err(Failure::OutOfBudget),
            Err(error) => {
                let why = self.explain(&error);
                let source = &expression.source;
                Err(Failure::Error(format!(
                    "expression '{source}' resulted in error: {why}"
                )))
            }
        }
    }

    /// Evaluates a variable that is about to be read, or all of them.
    fn read_variables(&mut self, name: Option<&str>, budget: &mut Portion<'_>) -> Result<(), Failure> {
        let policy = self.policy;
        let wanted = policy
            .variables
            .iter()
            .filter(|variable| name.is_none_or(|name| variable.name == name));
        for variable in wanted {
            if self.known.contains_key(variable.name.as_str()) {
                continue;
            }
            // Variables use only those before them; this one counts as known while it is evaluated,
            // all the same.
            self.known.insert(&variable.name, Ok(()));
            match self.value(&variable.expression, budget) {
                Ok(value) => self.variables[&variable.name] = value,
                Err(Failure::OutOfBudget) => return Err(Failure::OutOfBudget),
                Err(Failure::Error(why)) => {
                    self.known
                        .insert(&variable.name, Err(self.plain(&variable.expression, why)));
                }
            }
        }
        Ok(())
    }

    /// Returns a variable's error without the prefix about its expression.
    fn plain(&self, expression: &Expression, why: String) -> String {
        let prefix = format!("expression '{}' resulted in error: ", expression.source);
        match why.strip_prefix(&prefix) {
            Some(rest) => format!("evaluate: {rest}"),
            None => format!("compile: {}", why.trim_start_matches("compilation error: ")),
        }
    }

    /// Formats an error. A missing variable is reported with the error that it failed with.
    fn explain(&self, error: &EvalError) -> String {
        if let EvalError::NoSuchKey(key) = error
            && let Some(Err(why)) = self.known.get(&**key)
        {
            return format!("composited variable {key:?} fails to {why}");
        }
        error.to_string()
    }

    /// Evaluates the conditions of the policy. A false condition outweighs errors of the others.
    pub(crate) fn conditions(&mut self) -> Condition {
        let policy = self.policy;
        let mut budget = self.inputs.budget.portion(CONDITIONS_COST_MAX);
        let mut errors = Vec::new();
        for NamedExpression { expression, .. } in &policy.conditions {
            match self.value(expression, &mut budget) {
                Ok(Json::Bool(true)) => {}
                Ok(_) => return Condition::Fails,
                Err(failure @ Failure::OutOfBudget) => {
                    errors = vec![failure.to_string()];
                    break;
                }
                Err(Failure::Error(why)) => errors.push(why),
            }
        }
        match errors.as_slice() {
            [] => Condition::Holds,
            _ if policy.spec.ignores_failure() => Condition::Fails,
            [error] => Condition::Error(error.clone()),
            errors => Condition::Error(format!("[{}]", errors.join(", "))),
        }
    }

    /// Evaluates a ValidatingAdmissionPolicy on the request.
    pub(crate) fn validate(&mut self) -> Verdict {
        let policy = self.policy;
        match self.conditions() {
            Condition::Holds => {}
            Condition::Fails => return Verdict::default(),
            Condition::Error(message) => return Verdict::refuse(message),
        }
        let mut budget = self.inputs.budget.portion(OBJECT_COST_MAX);
        let mut failed = Vec::new();
        for (index, validation) in policy.validations.iter().enumerate() {
            match self.value(&validation.expression, &mut budget) {
                Ok(Json::Bool(true)) => {}
                Ok(_) => failed.push((index, None)),
                Err(Failure::OutOfBudget) if policy.spec.ignores_failure() => return Verdict::default(),
                Err(Failure::OutOfBudget) => return Verdict::refuse(OUT_OF_BUDGET.to_owned()),
                Err(Failure::Error(_)) if policy.spec.ignores_failure() => {}
                Err(Failure::Error(message)) => failed.push((index, Some(message))),
            }
        }
        let refusals = failed.into_iter().filter_map(|(index, error)| {
            let (reason, message) = match error {
                Some(message) => (None, message),
                None => self.message(index, &mut budget)?,
            };
            Some(Refusal { index, reason, message })
        });
        let refusals = refusals.collect();
        drop(budget);
        let (annotations, annotation_errors) = self.annotations();
        Verdict {
            refusals,
            annotations,
            annotation_errors,
        }
    }

    /// Returns the reason and message of a false validation, or `None` if the message cannot be
    /// evaluated and failures are ignored.
    fn message(&mut self, index: usize, budget: &mut Portion<'_>) -> Option<(Option<String>, String)> {
        let policy = self.policy;
        let validation = &policy.validations[index];
        let mut message = String::new();
        if let Some(expression) = &validation.message_expression {
            match self.value(expression, budget) {
                Ok(Json::String(text)) => message = text.trim().to_owned(),
                Ok(_) => {}
                Err(Failure::OutOfBudget) if policy.spec.ignores_failure() => return None,
                Err(failure @ Failure::OutOfBudget) => {
                    return Some((None, format!("failed messageExpression: {failure}")));
                }
                Err(Failure::Error(error)) => tracing::debug!(%error, "a message expression failed"),
            }
        }
        if message.len() > MESSAGE_BYTES_MAX || message.contains('\n') {
            message.clear();
        }
        if message.is_empty() {
            message.clone_from(&validation.message);
        }
        if message.is_empty() {
            message = format!("failed expression: {}", validation.expression.source.trim());
        }
        Some((validation.reason.clone(), message))
    }

    fn annotations(&mut self) -> (Vec<(String, String)>, Vec<String>) {
        let policy = self.policy;
        let mut budget = self.inputs.budget.portion(OBJECT_COST_MAX);
        let (mut notes, mut errors) = (Vec::new(), Vec::new());
        for NamedExpression { name, expression } in &policy.audit_annotations {
            match self.value(expression, &mut budget) {
                Ok(Json::String(text)) if !text.trim().is_empty() => notes.push((name.clone(), text.trim().to_owned())),
                Ok(_) => {}
                Err(_) if policy.spec.ignores_failure() => {}
                Err(failure) => errors.push(failure.to_string()),
            }
        }
        (notes, errors)
    }
}

impl Verdict {
    /// Returns the verdict of a policy that the write cannot pay for.
    pub(crate) fn out_of_budget(policy: &CompiledPolicy) -> Verdict {
        match policy.spec.ignores_failure() {
            true => Verdict::default(),
            false => Verdict::refuse(OUT_OF_BUDGET.to_owned()),
        }
    }

    fn refuse(message: String) -> Verdict {
        let refusal = Refusal {
            index: 0,
            reason: None,
            message,
        };
        Verdict {
            refusals: vec![refusal],
            ..Verdict::default()
        }
    }
}
