//! Operators and their treatment of errors: chains of binary operators, `&&` and `||`, `? :`.

use crate::cost;
use crate::error::no_overload;
use crate::eval::Machine;
use crate::ir::{Link, Node, Overloads};
use crate::operator::Operator;
use crate::operators;
use crate::price;
use crate::program::Numbers;
use crate::value::{Result, Val};

impl<'v> Machine<'v, '_> {
    /// Evaluates `&&` and `||`. The deciding value wins over errors and absence on either side;
    /// without one the first error is the result.
    pub(crate) fn logic(&mut self, terms: &'v [Node], decides: bool) -> Result<'v> {
        let mut failure = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(b)) if b == decides => return Ok(Val::Bool(b)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(no_overload(""))),
                Err(error) if error.is_limit() => return Err(error),
                Err(error) => {
                    self.context.budget.charge(cost::ERROR)?;
                    failure = failure.or(Some(error));
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(Val::Bool(!decides)),
        }
    }

    pub(crate) fn conditional(&mut self, arms: &'v [(Node, Node)], otherwise: &'v Node) -> Result<'v> {
        for (condition, then) in arms {
            match self.eval(condition)? {
                Val::Bool(true) => return self.branch(then),
                Val::Bool(false) => {}
                _ => return Err(no_overload("")),
            }
        }
        self.branch(otherwise)
    }

    /// Evaluates a path that is part of a larger attribute: a branch of `? :` or an index. cel-go
    /// charges its fields, but not its variable.
    pub(crate) fn branch(&mut self, node: &'v Node) -> Result<'v> {
        let result = self.eval(node);
        let part = match node {
            Node::Variable(_) | Node::Local(_) => true,
            Node::Access { base, .. } => !matches!(**base, Node::Conditional { .. }),
            _ => false,
        };
        if part && result.is_ok() {
            self.context.budget.refund(cost::SELECT);
        }
        result
    }

    #[inline(never)]
    pub(crate) fn chain(&mut self, first: &'v Node, rest: &'v [Link]) -> Result<'v> {
        let mut left = self.eval(first);
        let Some((last, links)) = rest.split_last() else {
            return left;
        };
        for link in links {
            left = self.link(&mut left, link);
        }
        self.link(&mut left, last)
    }

    /// Applies one operator to the result so far and leaves its own result in `left`.
    fn link(&mut self, left: &mut Result<'v>, link: &'v Link) -> Result<'v> {
        if is_limit(left) {
            return std::mem::replace(left, Ok(Val::Null));
        }
        // Both sides are evaluated before the error of the first counts. An operator is charged
        // even if an operand is an error.
        let right = self.eval(&link.operand);
        if is_limit(&right) {
            return right;
        }
        match (&*left, &right) {
            (Ok(left), Ok(right)) => self.operate(link, left, right),
            (Err(_), _) => {
                self.charge(cost::CALL)?;
                std::mem::replace(left, Ok(Val::Null))
            }
            (Ok(_), Err(_)) => {
                self.charge(cost::CALL)?;
                right
            }
        }
    }

    fn operate(&mut self, link: &'v Link, left: &Val<'v>, right: &Val<'v>) -> Result<'v> {
        let Link {
            operator,
            operand,
            overloads,
        } = link;
        if let (Val::Int(left), Val::Int(right)) = (left, right) {
            self.charge(cost::CALL)?;
            return operators::of_integers(*operator, *left, *right);
        }
        let looked_up = *operator == Operator::In && *overloads == Overloads::One && price::is_constant_set(operand);
        if !looked_up {
            self.charge(price::operator(*operator, *overloads, left, right))?;
        }
        if self.numbers == Numbers::Typed && mixed(left, right) && operator.is_arithmetic() {
            return Err(no_overload(""));
        }
        operators::apply(*operator, left, right, self.context.budget)
    }
}

fn is_limit(result: &Result<'_>) -> bool {
    matches!(result, Err(error) if error.is_limit())
}

/// Returns true for an integer beside a double.
fn mixed(left: &Val<'_>, right: &Val<'_>) -> bool {
    matches!(
        (left, right),
        (Val::Int(_), Val::Double(_)) | (Val::Double(_), Val::Int(_))
    )
}
