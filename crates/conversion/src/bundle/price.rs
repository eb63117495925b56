//! What the expressions of an API may cost for one object, by estimate. Like Kubernetes, this is asked of what is new:
//! rules that were admitted run under the budgets of run time.

use super::Bundle;
use crate::convert::Converter;
use crate::plan::factor;
use insula_api::{FieldError, FieldPath};
use std::collections::BTreeMap;

/// What all expressions of one API may cost for one object: Kubernetes' limit for a schema.
const RULES_COST_MAX: u64 = 100_000_000;
/// Expressions that a message about all of them names.
const DEAREST_SHOWN: usize = 3;

pub(super) fn total(converters: &BTreeMap<(usize, usize), Converter>) -> u64 {
    let expressions = converters.values().flat_map(Converter::expressions);
    expressions.fold(0, |sum, (_, expression)| sum.saturating_add(expression.cost))
}

impl Bundle {
    /// Every expression that may cost too much, with the bounds that its schema lacks; else whether all of them together
    /// do. `path` is where the rules stand (`spec`).
    pub fn too_dear(&self, path: &FieldPath) -> Vec<FieldError> {
        let all = self.converters.values().flat_map(Converter::expressions);
        let errors: Vec<FieldError> = all.filter_map(|(_, e)| e.too_dear.as_deref().cloned()).collect();
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
        costs.sort_by(|a, b| b.cmp(a));
        let dearest: Vec<&str> = costs.iter().take(DEAREST_SHOWN).map(|(_, place)| &**place).collect();
        vec![FieldError::forbidden(
            &path.child("conversions"),
            format!(
                "estimated cost of all rules exceeds budget by factor of {}: most of it is of {}; simplify them, or \
                 bound what they read by maxItems, maxProperties and maxLength",
                factor(total, RULES_COST_MAX),
                dearest.join(", ")
            ),
        )]
    }
}
