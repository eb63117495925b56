//! Cost estimates of `fold`, whose accumulator may grow in each round. The macro is ours, so no
//! message of Kubernetes prints these figures.

use super::{Local, Origin, READ, Range, Walk, is_scalar};
use cel::common::ast::ComprehensionExpr;

/// Greatest number of `fold`s within each other: each walks its step three times.
const FOLDS_MAX: usize = 4;
/// Size of an accumulator beside which all sizes that do not depend on it are small.
const FAR: u64 = 1 << 48;

impl<'e> Walk<'e> {
    /// Estimates `fold`: in each round the accumulator is as large as it is at the end.
    pub(super) fn accumulate(&mut self, id: u64, fold: &'e ComprehensionExpr) -> Range {
        let sum = self.cost(&fold.iter_range).plus(self.cost(&fold.accu_init));
        let rounds = self.size_or_any(&fold.iter_range);
        self.folds += 1;
        let size = if is_scalar(&self.ty(&fold.accu_init)) {
            Range::ONE
        } else if self.folds > FOLDS_MAX {
            Range::ANY
        } else {
            self.grown(fold, rounds.max)
        };
        let round = self.round(fold, size).0;
        self.folds -= 1;
        self.set_size(id, Some(size));
        // A round copies the accumulator.
        let round = round.plus(Range::up_to(size.max));
        sum.plus(rounds.times(round)).plus(READ)
    }

    /// Returns the size of the accumulator at the end. Sizes of results are sums and maxima of
    /// sizes, so a step adds the more, the larger the accumulator is. One that adds nothing beyond
    /// sums to a far larger accumulator adds in every round at most what it adds in the first.
    fn grown(&mut self, fold: &'e ComprehensionExpr, rounds: u64) -> Range {
        let start = self.size_or_any(&fold.accu_init).max;
        let first = self.round(fold, Range::up_to(start)).1;
        let later = self.round(fold, Range::up_to(start.saturating_add(FAR))).1;
        if later.saturating_sub(first) > FAR || first >= FAR {
            return Range::ANY;
        }
        if later == first {
            // No round's result depends on the one before.
            return Range::up_to(start.max(first));
        }
        let added = first.saturating_sub(start);
        Range::up_to(start.saturating_add(rounds.saturating_mul(added)))
    }

    /// Returns the cost of a round with an accumulator of this size, and the largest size of its
    /// result.
    fn round(&mut self, fold: &'e ComprehensionExpr, size: Range) -> (Range, u64) {
        let depth = self.locals.len();
        self.locals.push(Local {
            name: &fold.accu_var,
            origin: Origin::Computed,
            size: Some(size),
            contents: None,
        });
        self.iterate_all(fold);
        let cost = self.cost(&fold.loop_step);
        let made = self.size_or_any(&fold.loop_step).max;
        self.locals.truncate(depth);
        (cost, made)
    }
}
