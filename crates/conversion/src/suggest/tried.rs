//! Trial of suggestions by the checks of admission: compilation, and the search for a
//! counterexample.

use super::{Suggestion, Suggestions};
use crate::bundle::{Bundle, LossPolicy, VersionSchema};
use crate::proof::{Search, prove};
use crate::rules::parse_rules;
use insula_api::{FieldError, FieldPath};

/// Most trials. Each marks a rule or leaves a suggestion out, so that the loop ends anyway; a draft
/// that needs more is useless.
const TRIES_MAX: usize = 64;

impl Suggestions {
    /// Checks the suggestions as admission would. Marks rules that fail for some objects as
    /// `mayFail`; leaves out refused suggestions and records the reason in [`Suggestion::work`].
    /// Returns the errors that no suggestion causes, mostly required fields without a source.
    pub fn try_out(
        &mut self,
        group: &str,
        (old, new): (&VersionSchema, &VersionSchema),
        how: Search,
    ) -> Vec<FieldError> {
        let asked = |suggestions: &Suggestions| {
            let spec = FieldPath::new("spec");
            let rules = suggestions.rules(&old.name, &new.name);
            let versions = vec![old.clone(), new.clone()];
            parse_rules(&rules, &spec)
                .and_then(|rules| {
                    Bundle::compile(group, versions, &old.name, Some(&rules), LossPolicy::Lossless, &spec)
                })
                .and_then(|bundle| prove(&bundle, how))
        };
        for _ in 0..TRIES_MAX {
            let Err(errors) = asked(self) else {
                return Vec::new();
            };
            // Leaving one out renumbers the rules behind it: one at a time.
            let marked = errors.iter().filter(|error| self.blame(error, mark)).count();
            if marked == 0 && !errors.iter().any(|error| self.blame(error, leave_out)) {
                return errors;
            }
        }
        Vec::new()
    }

    /// Applies `how` to the rule that the error is about; returns true if that changed the
    /// suggestion.
    fn blame(&mut self, error: &FieldError, how: fn(&mut Suggestion, (usize, usize), &FieldError) -> bool) -> bool {
        let path = error.field.to_string();
        let index = |after: &str| -> Option<usize> {
            let digits = path.split_once(after)?.1.split_once(']')?.0;
            digits.parse().ok()
        };
        let (Some(direction), Some(rule)) = (index("conversions["), index(".rules[")) else {
            return false;
        };
        let mut before = 0;
        for pair in self.pairs.iter_mut().filter(|pair| pair.work.is_none()) {
            let count = if direction == 0 {
                pair.forth.len()
            } else {
                pair.back.len()
            };
            if rule < before + count {
                return how(pair, (direction, rule - before), error);
            }
            before += count;
        }
        false
    }
}

fn mark(pair: &mut Suggestion, (direction, rule): (usize, usize), error: &FieldError) -> bool {
    let guesses = if direction == 0 {
        &mut pair.forth
    } else {
        &mut pair.back
    };
    let guess = guesses
        .get_mut(rule)
        .filter(|guess| !guess.may_fail && error.detail.contains("mayFail"));
    guess.is_some_and(|guess| {
        guess.may_fail = true;
        true
    })
}

fn leave_out(pair: &mut Suggestion, _: (usize, usize), error: &FieldError) -> bool {
    pair.work = Some(error.to_string());
    true
}
