//! Compilation of a schema's rules, top down. A node with rules is declared once, and the nodes
//! below it use parts of its declaration. Rules are refused as by Kubernetes, with its messages.

use super::cost::Costs;
use super::{Failure, Rule, declare, go_json};
use crate::declare::{ObjectRole, Step, below, occurrences};
use crate::keyword::text;
use crate::node::{ListType, Node, Type};
use crate::value_path::{Keys, ValuePath, join};
use insula_api::{FieldError, FieldErrorKind, FieldPath, Json};
use insula_cel::Decl;
use std::collections::HashSet;

/// Trust in a schema. Rules of a stored schema, admitted earlier, are no longer refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    New,
    Stored,
}

const RULES: &str = "x-kubernetes-validations";

/// Compiles every rule into its node. Returns the errors of rules. Where `wording` has errors in
/// the attributes of rules, those rules and the rules above them are not reported: their author has
/// enough to correct.
pub(crate) fn compile(
    root: &mut Node,
    schema: &Json,
    path: &FieldPath,
    wording: &[FieldError],
    trust: Trust,
) -> Vec<FieldError> {
    let infix = format!(".{RULES}[");
    let node_path = |error: &FieldError| Some(error.field.as_str().rsplit_once(&infix)?.0.to_owned());
    let mut compiler = Compiler {
        base: path,
        trust,
        misworded: wording.iter().filter_map(node_path).collect(),
        errors: Vec::new(),
        costs: Costs::default(),
    };
    let context = RuleContext {
        decl: None,
        stands: ObjectRole::AsObject,
        most: Some(1),
        lost: None,
    };
    compiler.walk(root, schema, &ValuePath::ROOT, context);
    compiler.errors.extend(compiler.costs.finish(path));
    compiler.errors
}

struct Compiler<'c> {
    base: &'c FieldPath,
    trust: Trust,
    /// Paths of nodes whose rules have errors in messages, reasons or paths.
    misworded: HashSet<String>,
    errors: Vec<FieldError>,
    costs: Costs,
}

/// Facts about a node that follow from the nodes above it.
#[derive(Clone, Copy)]
struct RuleContext<'p> {
    /// The declaration; only below nodes with rules.
    decl: Option<&'p Decl>,
    stands: ObjectRole,
    /// Most values of an object at this node; `None` if only the size of a request limits them.
    most: Option<u64>,
    /// The enclosing list without keys, below which no old values are known.
    lost: Option<&'p FieldPath>,
}

impl Compiler<'_> {
    /// Compiles the rules at and below a node. Returns true if any of them is misworded.
    fn walk(&mut self, node: &mut Node, schema: &Json, at: &ValuePath<'_>, context: RuleContext<'_>) -> bool {
        if !node.below.rules {
            return false;
        }
        let rules = schema
            .get(RULES)
            .and_then(Json::as_array)
            .map_or(&[][..], Vec::as_slice);
        let own = match context.decl {
            None if !rules.is_empty() => declare(node, context.stands),
            known => known.cloned(),
        };
        let factor = factor(node);
        let keyed = matches!(node.list_type, ListType::Map { .. });
        let here = node.items.is_some().then(|| self.path(at));
        let child = |step: Step<'_>, child: &Node| RuleContext {
            decl: own.as_ref().and_then(|decl| below(decl, step)),
            stands: ObjectRole::for_node(child),
            most: context
                .most
                .zip(factor)
                .map(|(most, factor)| most.saturating_mul(factor)),
            lost: match step {
                Step::Items if !keyed => context.lost.or(here.as_ref()),
                _ => context.lost,
            },
        };
        let mut misworded = false;
        if let Some(Json::Object(schemas)) = schema.get("properties") {
            let at = at.field("properties");
            for (name, field) in &mut node.properties {
                let Some(schema) = schemas.get(&**name) else { continue };
                let context = child(Step::Field(name), field);
                misworded |= self.walk(field, schema, &at.key(name), context);
            }
        }
        if let (Some(values), Some(schema)) = (node.additional.as_deref_mut(), schema.get("additionalProperties")) {
            let context = child(Step::Values, values);
            misworded |= self.walk(values, schema, &at.field("additionalProperties"), context);
        }
        if let (Some(items), Some(schema)) = (node.items.as_deref_mut(), schema.get("items")) {
            let context = child(Step::Items, items);
            misworded |= self.walk(items, schema, &at.field("items"), context);
        }
        if !rules.is_empty() {
            misworded |= self.misworded.contains(self.path(at).as_str());
            let failures = self.rules(node, rules, own.as_ref());
            if self.trust == Trust::New && !misworded {
                self.report(node, rules, failures, own.as_ref(), at, context);
            }
        }
        misworded
    }

    /// Compiles the rules of one node. Returns a failure, with its index, for each that does not
    /// compile.
    fn rules(&self, node: &mut Node, rules: &[Json], decl: Option<&Decl>) -> Vec<(usize, Failure)> {
        // Stored rules on values without a type were never refused.
        let anything = Decl::dynamic();
        let decl = decl.unwrap_or(&anything);
        let mut failures = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            if let Some((compiled, failure)) = Rule::parse(rule, node, decl, self.trust) {
                node.rules.push(compiled);
                failures.extend(failure.map(|failure| (i, failure)));
            }
        }
        failures
    }

    /// Reports the failures of one node's rules. Each rule here has an expression: one without is
    /// misworded.
    fn report(
        &mut self,
        node: &Node,
        rules: &[Json],
        failures: Vec<(usize, Failure)>,
        decl: Option<&Decl>,
        at: &ValuePath<'_>,
        context: RuleContext<'_>,
    ) {
        let at = at.field(RULES);
        let Some(decl) = decl else {
            return self.errors.push(undeclared(&self.path(&at)));
        };
        for (i, failure) in failures {
            let path = self.path(&at.index(i).field(failure.field));
            let shown = rules.get(i).map(go_json).unwrap_or_default();
            self.errors.push(FieldError::invalid_text(&path, shown, failure.detail));
        }
        for (i, (rule, compiled)) in rules.iter().zip(&node.rules).enumerate() {
            let at = at.index(i);
            self.price(compiled, decl, &at, context.most);
            self.old_self(rule, compiled, &at, context.lost);
        }
    }

    /// Adds the estimated cost of a rule. Its message is evaluated for one value only: the first
    /// error is enough.
    fn price(&mut self, rule: &Rule, decl: &Decl, at: &ValuePath<'_>, most: Option<u64>) {
        let base = self.base;
        let path = |field: &'static str| move || join(base, &at.field(field).path(Keys::Bracketed));
        let mut errors = Vec::new();
        if let Ok(program) = &rule.program {
            let times = most.unwrap_or_else(|| occurrences(decl));
            let cost = program.estimate().max.saturating_mul(times);
            errors.extend(self.costs.observe("rule", path("rule"), cost));
        }
        if let Some(program) = &rule.message_program {
            let cost = program.estimate().max;
            errors.extend(self.costs.observe("messageExpression", path("messageExpression"), cost));
        }
        self.errors.extend(errors);
    }

    /// Checks the uses of `oldSelf`.
    fn old_self(&mut self, rule: &Json, compiled: &Rule, at: &ValuePath<'_>, lost: Option<&FieldPath>) {
        if let Some(given @ Json::Bool(_)) = rule.get("optionalOldSelf")
            && compiled.program.is_ok()
            && !compiled.reads_old
        {
            let why = "may not be set if oldSelf is not used in rule";
            let path = self.path(&at.field("optionalOldSelf"));
            self.errors.push(FieldError::invalid(&path, given, why));
        }
        if let Some(lost) = lost
            && compiled.reads_old
        {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
            let path = self.path(&at.field("rule"));
            self.errors
                .push(FieldError::invalid(&path, &Json::from(text(rule, "rule")), why));
        }
    }

    fn path(&self, at: &ValuePath<'_>) -> FieldPath {
        join(self.base, &at.path(Keys::Bracketed))
    }
}

/// Returns how many values may be below one value of a node; `None` without a limit.
pub(crate) fn factor(node: &Node) -> Option<u64> {
    let most = match node.kind {
        Some(Type::Object) if node.additional.is_some() => node.max_properties()?,
        Some(Type::Array) => node.max_items()?,
        _ => 1,
    };
    Some(most as u64)
}

fn undeclared(path: &FieldPath) -> FieldError {
    let why = "failed to construct type information for x-kubernetes-validations rules: unable to convert structural \
               schema to CEL declarations";
    let mut error = FieldError::invalid_text(path, "", format!("internal error: {why}"));
    error.kind = FieldErrorKind::Internal;
    error
}
