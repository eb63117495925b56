//! Operands of estimated calls, and the costs that operators and libraries share.

use super::origin::Origin;
use super::{Contents, Range, Walk};
use crate::types::Type;
use cel::common::ast::IdedExpr;

/// Cost of reading or comparing a character of a text, in units.
pub(super) const CHARACTER: f64 = 0.1;
/// Cost factor of a character of a regular expression: about four make a state.
pub(super) const PATTERN_CHARACTER: f64 = 0.25;

/// An estimated operand. The target, if there is one, is the first operand.
pub(super) struct Operand<'e> {
    pub(super) expr: &'e IdedExpr,
    pub(super) ty: Type,
    pub(super) origin: Origin,
    pub(super) size: Option<Range>,
}

impl Operand<'_> {
    pub(super) fn size(&self) -> Range {
        self.size.unwrap_or(Range::ANY)
    }

    pub(super) fn contents(&self, walk: &Walk<'_>) -> Option<Contents> {
        walk.contents(self.expr)
    }
}

/// Estimated cost of a call without its operands, and the size of its result if the function
/// determines it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

impl Call {
    pub(super) const ONE: Call = Call::costs(Range::ONE);

    pub(super) const fn costs(cost: Range) -> Call {
        Call { cost, size: None }
    }

    pub(super) const fn makes(cost: Range, size: Range) -> Call {
        Call { cost, size: Some(size) }
    }

    /// Returns the union of two estimates, for a call whose overload the types leave open.
    pub(super) fn or(self, other: Call) -> Call {
        let size = match (self.size, other.size) {
            (Some(one), Some(two)) => Some(one.or(two)),
            (one, two) => one.or(two),
        };
        Call {
            cost: self.cost.or(other.cost),
            size,
        }
    }
}

/// Estimates a match: the size of the text times that of the pattern, each at least one.
pub(super) fn matching(text: Range, pattern: Range) -> Range {
    text.plus(Range::ONE)
        .scaled(CHARACTER)
        .times(pattern.scaled(PATTERN_CHARACTER))
}
