//! Trial of suggestions by the checks of admission: compilation, and the search for a
//! counterexample.

use super::{Guess, Suggestion, Suggestions};
use crate::bundle::{Bundle, LossPolicy, VersionSchema};
use crate::proof::{Search, Searched, prove};
use crate::rules::parse_rules;
use insula_api::{FieldError, FieldPath};
use insula_meter::Meter;

/// Maximum number of trials. Each marks rules or leaves suggestions out, so that the loop ends
/// anyway; a draft that needs more is useless.
const TRIES_MAX: usize = 16;

/// A rule: its direction, and its position there.
type RuleIndex = (usize, usize);

impl Suggestions {
    /// Checks the suggestions as admission would. Marks rules that fail for some objects as
    /// `mayFail`; leaves out refused suggestions, and those only, and records the reason in
    /// [`Suggestion::work`]. Returns the errors that no suggestion causes, mostly required fields
    /// without a source. `progress` hears of each trial. A meter pays for them; once it has ended,
    /// what is left is no draft.
    pub fn try_out(
        &mut self,
        group: &str,
        (old, new): (&VersionSchema, &VersionSchema),
        (how, meter): (Search, &Meter),
        progress: &mut dyn FnMut(usize),
    ) -> Vec<FieldError> {
        for trial in 1..=TRIES_MAX {
            progress(trial);
            let Err(errors) = self.tried(group, (old, new), (how, meter)) else {
                return Vec::new();
            };
            let blame = |error| {
                let place = place(error)?;
                Some((self.pair_of(place)?, place, error))
            };
            let blamed: Vec<(usize, RuleIndex, &FieldError)> = errors.iter().filter_map(blame).collect();
            let mut marked = false;
            for (pair, at, error) in &blamed {
                marked |= self.mark(*pair, *at, error);
            }
            if marked {
                continue;
            }
            for (pair, _, error) in &blamed {
                self.pairs[*pair].work.get_or_insert_with(|| error.detail.clone());
            }
            if blamed.is_empty() {
                return errors;
            }
        }
        self.tried(group, (old, new), (how, meter)).err().unwrap_or_default()
    }

    fn tried(
        &self,
        group: &str,
        (old, new): (&VersionSchema, &VersionSchema),
        (how, meter): (Search, &Meter),
    ) -> Result<Searched, Vec<FieldError>> {
        let spec = FieldPath::new("spec");
        let rules = parse_rules(&self.rules(), &spec)?;
        let versions = vec![old.clone(), new.clone()];
        let bundle = Bundle::compile(group, versions, &old.name, Some(&rules), LossPolicy::Lossless, &spec)?;
        prove(&bundle, how, meter)
    }

    /// Returns the pair that has a rule.
    fn pair_of(&self, (direction, rule): RuleIndex) -> Option<usize> {
        let mut before = 0;
        let fit = self.pairs.iter().enumerate().filter(|(_, pair)| pair.work.is_none());
        for (at, pair) in fit {
            before += pair.guesses(direction).len();
            if rule < before {
                return Some(at);
            }
        }
        None
    }

    /// Marks a rule as one that may fail, if the error asks for that.
    fn mark(&mut self, pair: usize, (direction, rule): RuleIndex, error: &FieldError) -> bool {
        let fit = self.pairs[..pair].iter().filter(|pair| pair.work.is_none());
        let before: usize = fit.map(|pair| pair.guesses(direction).len()).sum();
        let pair = &mut self.pairs[pair];
        let guesses = if direction == 0 {
            &mut pair.forth
        } else {
            &mut pair.back
        };
        let asked = error.detail.contains("mayFail");
        let guess = guesses.get_mut(rule - before).filter(|guess| asked && !guess.may_fail);
        guess.is_some_and(|guess| {
            guess.may_fail = true;
            true
        })
    }
}

impl Suggestion {
    fn guesses(&self, direction: usize) -> &[Guess] {
        if direction == 0 { &self.forth } else { &self.back }
    }
}

/// Returns the rule that an error is about.
fn place(error: &FieldError) -> Option<RuleIndex> {
    let path = error.field.to_string();
    let index = |after: &str| -> Option<usize> {
        let digits = path.split_once(after)?.1.split_once(']')?.0;
        digits.parse().ok()
    };
    Some((index("conversions[")?, index(".rules[")?))
}
