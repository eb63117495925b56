//! Comprehensions: one pass over a list's elements or a map's entries, without an accumulator value.

use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::eval::{Machine, Result};
use crate::ir::{Fold, FoldKind, Node, Variables};
use crate::value::{MapVal, Val};
use std::rc::Rc;

/// Cost of one round, as cel-go's expansion of the macro has it: the loop's condition and its step, without the body.
const PREDICATE_ROUND: u64 = 4;
const LIST_ROUND: u64 = 2 + cost::LIST;
const MAP_ROUND: u64 = 2 + cost::MAP;

type Unit = std::result::Result<(), EvalError>;

enum Flow {
    Continue,
    Stop,
}

impl<'v> Machine<'v, '_> {
    pub(crate) fn fold(&mut self, fold: &'v Fold) -> Result<'v> {
        let range = self.eval(&fold.range)?;
        match &fold.kind {
            FoldKind::All(predicate) => self.quantifier(fold, &range, predicate, false),
            FoldKind::Exists(predicate) => self.quantifier(fold, &range, predicate, true),
            FoldKind::ExistsOne(predicate) => self.exists_one(fold, &range, predicate),
            FoldKind::List { condition, transform } => {
                self.list_fold(fold, &range, condition.as_ref(), transform.as_ref())
            }
            FoldKind::MapValues { condition, transform } => {
                self.map_fold(fold, &range, condition.as_ref(), transform, Keys::Kept)
            }
            FoldKind::MapEntries { condition, transform } => {
                self.map_fold(fold, &range, condition.as_ref(), transform, Keys::Made)
            }
        }
    }

    /// Calls `body` with the loop's variables on the stack, once a round.
    fn rounds(
        &mut self,
        fold: &'v Fold,
        range: &Val<'v>,
        units: u64,
        mut body: impl FnMut(&mut Self) -> std::result::Result<Flow, EvalError>,
    ) -> Unit {
        let floor = self.locals.len();
        let mut round = |machine: &mut Self, first: Val<'v>, second: Option<Val<'v>>| {
            machine.charge(units)?;
            machine.locals.push(first);
            machine.locals.extend(second);
            let flow = body(machine);
            machine.locals.truncate(floor);
            flow
        };
        if let Some(items) = range.items() {
            for (i, item) in items.iter().enumerate() {
                let (first, second) = match fold.variables {
                    Variables::One => (item, None),
                    Variables::Two => (Val::Int(i64::try_from(i).unwrap_or(i64::MAX)), Some(item)),
                };
                if let Flow::Stop = round(self, first, second)? {
                    break;
                }
            }
            return Ok(());
        }
        let entries = range.entries().ok_or(no_overload("comprehension range"))?;
        self.context.budget.memory(entries.len() * 2 * size_of::<Val<'_>>())?;
        for (key, value) in entries {
            let second = matches!(fold.variables, Variables::Two).then_some(value);
            if let Flow::Stop = round(self, key, second)? {
                break;
            }
        }
        Ok(())
    }

    /// `all` and `exists`: a deciding element wins over errors of others, as in `&&` and `||`.
    fn quantifier(&mut self, fold: &'v Fold, range: &Val<'v>, predicate: &'v Node, decides: bool) -> Result<'v> {
        let mut failure = None;
        let mut decided = false;
        self.rounds(fold, range, PREDICATE_ROUND, |machine| {
            match machine.eval(predicate) {
                Ok(Val::Bool(b)) if b == decides => {
                    decided = true;
                    return Ok(Flow::Stop);
                }
                Ok(Val::Bool(_)) => {}
                Ok(_) => {
                    failure = failure
                        .take()
                        .or(Some(no_overload(if decides { "_||_" } else { "_&&_" })))
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failure = failure.take().or(Some(error)),
            }
            Ok(Flow::Continue)
        })?;
        match failure {
            Some(error) if !decided => Err(error),
            _ => Ok(Val::Bool(decided == decides)),
        }
    }

    fn exists_one(&mut self, fold: &'v Fold, range: &Val<'v>, predicate: &'v Node) -> Result<'v> {
        let mut count = 0_usize;
        self.rounds(fold, range, PREDICATE_ROUND, |machine| {
            count += usize::from(machine.condition(predicate)?);
            Ok(Flow::Continue)
        })?;
        Ok(Val::Bool(count == 1))
    }

    fn condition(&mut self, node: &'v Node) -> std::result::Result<bool, EvalError> {
        match self.eval(node)? {
            Val::Bool(b) => Ok(b),
            _ => Err(no_overload("_?_:_")),
        }
    }

    /// An absent transform leaves its element out, as in the list literal that the macro stands for.
    fn list_fold(
        &mut self,
        fold: &'v Fold,
        range: &Val<'v>,
        condition: Option<&'v Node>,
        transform: Option<&'v Node>,
    ) -> Result<'v> {
        let mut made = Vec::new();
        self.rounds(fold, range, LIST_ROUND, |machine| {
            if let Some(condition) = condition
                && !machine.condition(condition)?
            {
                return Ok(Flow::Continue);
            }
            let item = match transform {
                Some(transform) => machine.eval(transform),
                None => machine.locals.last().cloned().ok_or(EvalError::DepthExceeded),
            };
            match item {
                Err(EvalError::Absent) => {}
                item => {
                    made.push(item?);
                    machine.context.budget.memory(size_of::<Val<'_>>())?;
                }
            }
            Ok(Flow::Continue)
        })?;
        Ok(Val::list(made))
    }

    fn map_fold(
        &mut self,
        fold: &'v Fold,
        range: &Val<'v>,
        condition: Option<&'v Node>,
        transform: &'v Node,
        keys: Keys,
    ) -> Result<'v> {
        let mut made: Vec<(Val<'v>, Val<'v>)> = Vec::new();
        self.rounds(fold, range, MAP_ROUND, |machine| {
            if let Some(condition) = condition
                && !machine.condition(condition)?
            {
                return Ok(Flow::Continue);
            }
            let value = match machine.eval(transform) {
                Err(EvalError::Absent) => return Ok(Flow::Continue),
                value => value?,
            };
            let before = made.len();
            match keys {
                Keys::Kept => {
                    let place = machine.locals.len().checked_sub(2).ok_or(EvalError::DepthExceeded)?;
                    made.push((machine.locals[place].clone(), value));
                }
                Keys::Made => made.extend(value.entries().ok_or(no_overload("transformMapEntry"))?),
            }
            machine
                .context
                .budget
                .memory((made.len() - before) * 2 * size_of::<Val<'_>>())?;
            Ok(Flow::Continue)
        })?;
        Ok(Val::Map(Rc::new(MapVal::new(made)?)))
    }
}

#[derive(Clone, Copy)]
enum Keys {
    Kept,
    Made,
}
