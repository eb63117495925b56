//! Estimated cost of an API's expressions for one object. As in Kubernetes, only new rules are
//! checked; admitted rules run under the runtime budget.

use super::Bundle;
use crate::convert::Converter;
use crate::plan::{Expression, Fill, LARGEST_OBJECT_COST, Op, Value, factor};
use crate::union::PAIRS_MAX;
use insula_api::{FieldError, FieldPath};
use std::collections::BTreeMap;

/// Cost limit of all expressions of one API for one object: ten of the largest that one may have.
const RULES_COST_MAX: u64 = 10 * LARGEST_OBJECT_COST;
/// Expressions listed in the message about their total cost.
const COSTLIEST_SHOWN: usize = 3;

/// Static analysis of the rules of one direction: their cost, and which may fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// The version converted from.
    pub from: String,
    /// The version converted to.
    pub to: String,
    /// Upper estimate of the cost of its expressions for one object, in CEL cost units.
    pub cost: u64,
    /// Its rules that are not proven to succeed.
    pub may_fail: Vec<MayFail>,
}

/// A rule that is not proven to succeed for every valid object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MayFail {
    /// Path of the rule: `conversions[0].rules[2]`.
    pub rule: String,
    /// The reason why it may fail.
    pub reason: String,
    /// True if the author marked the rule `mayFail`; otherwise its types leave failure open and no
    /// failing object was found.
    pub marked: bool,
}

pub(super) fn total(converters: &BTreeMap<(usize, usize), Converter>) -> u64 {
    let expressions = converters.values().flat_map(Converter::expressions);
    expressions.fold(0, |sum, (_, expression)| sum.saturating_add(expression.cost))
}

impl Bundle {
    /// Returns the analysis of every direction that has rules.
    pub fn outlooks(&self) -> Vec<Outlook> {
        let ruled = self.converters.values().filter(|converter| converter.ruled);
        let outlook = |converter: &Converter| {
            let mut may_fail = Vec::new();
            doubts(converter, &converter.plan.ops, &mut may_fail);
            let costs = converter
                .expressions()
                .into_iter()
                .map(|(_, expression)| expression.cost);
            Outlook {
                from: converter.from.clone(),
                to: converter.to.clone(),
                cost: costs.fold(0, u64::saturating_add),
                may_fail,
            }
        };
        ruled.map(outlook).collect()
    }

    /// Returns an error for each expression over the cost limit, with the bounds that its schema
    /// lacks; if there is none, an error when their sum is over the limit. More pairs of fields
    /// beside the hub than can be joined are over it, too. `path` locates the rules
    /// in error messages (`spec`).
    pub fn over_budget(&self, path: &FieldPath) -> Vec<FieldError> {
        if self.pairs_beside > PAIRS_MAX {
            let hub = &self.versions[self.hub].name;
            let why = format!(
                "rules between versions other than {hub} relate {} pairs of fields, at most {PAIRS_MAX} are allowed: \
                 write them between those versions and {hub}",
                self.pairs_beside
            );
            return vec![FieldError::forbidden(&path.child("conversions"), why)];
        }
        let all = self.converters.values().flat_map(Converter::expressions);
        let errors: Vec<FieldError> = all.filter_map(|(_, e)| e.over_budget.as_deref().cloned()).collect();
        let total = total(&self.converters);
        if !errors.is_empty() || total <= RULES_COST_MAX {
            return errors;
        }
        let of = |converter: &'_ Converter| -> Vec<(u64, String)> {
            let place = |rule: usize| converter.facts.get(rule).map(|facts| facts.computed_at.to_string());
            let costs = converter.expressions().into_iter();
            costs.filter_map(|(rule, e)| Some((e.cost, place(rule)?))).collect()
        };
        let mut costs: Vec<(u64, String)> = self.converters.values().flat_map(of).collect();
        costs.sort_unstable_by(|a, b| b.cmp(a));
        let costliest: Vec<&str> = costs.iter().take(COSTLIEST_SHOWN).map(|(_, place)| &**place).collect();
        vec![FieldError::forbidden(
            &path.child("conversions"),
            format!(
                "estimated cost of all rules exceeds budget by factor of {}: most of it is of {}; simplify them, or \
                 bound what they read by maxItems, maxProperties and maxLength",
                factor(total, RULES_COST_MAX),
                costliest.join(", ")
            ),
        )]
    }
}

fn doubts(converter: &Converter, ops: &[Op], out: &mut Vec<MayFail>) {
    let mut add = |rule: usize, reason: Option<String>| {
        let facts = converter.facts.get(rule);
        out.extend(reason.zip(facts).map(|(reason, facts)| MayFail {
            rule: facts.path.clone(),
            reason,
            marked: facts.may_fail,
        }));
    };
    for op in ops {
        match op {
            Op::Move { .. } | Op::Again { .. } => {}
            Op::Compute { value, rule, .. } => add(*rule, doubt(value)),
            Op::Each(each) => {
                let key = match &each.fill {
                    Fill::Key(key) => expression_doubt(key),
                    Fill::List | Fill::SameKey => None,
                };
                let twice = || each.can_repeat.then(|| "two items may have the same key".to_owned());
                add(each.rule, key.or_else(twice));
            }
        }
    }
    for op in ops {
        if let Op::Each(each) = op {
            doubts(converter, &each.body, out);
        }
    }
}

fn doubt(value: &Value) -> Option<String> {
    match value {
        Value::Constant(_) => None,
        Value::Expression(expression) => expression_doubt(expression),
        Value::Fields(fields) => fields.iter().find_map(|(_, value)| doubt(value)),
        Value::Items(items) => items.iter().find_map(doubt),
    }
}

fn expression_doubt(expression: &Expression) -> Option<String> {
    let why = || match expression.program.fallible() {
        Some(issue) => issue.message.clone(),
        None => "the target may not take its result".to_owned(),
    };
    expression.can_fail().then(why)
}
