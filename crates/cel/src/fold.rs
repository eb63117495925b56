//! Comprehensions: one pass over a list's elements or a map's entries, without an accumulator value.

use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::eval::{Machine, Result};
use crate::ir::{Fold, FoldKind, Node, Variables};
use crate::price;
use crate::value::{MapVal, Val};
use std::rc::Rc;

/// What a loop costs beside the parts that a person writes, as cel-go expands the macro. The condition of `all`
/// (`@not_strictly_false(found)`) and of `exists` (`@not_strictly_false(!found)`), looked at before each round:
const ALL_CONDITION: u64 = 2;
const EXISTS_CONDITION: u64 = 3;
/// `found && …`
const QUANTIFIER_STEP: u64 = 1;
/// `found + 1`
const COUNT_STEP: u64 = 2;
/// `made + […]`, without the list
const LIST_STEP: u64 = 2;
/// `cel.@mapInsert(made, key, …)` and `cel.@mapInsert(made, …)`
const ENTRY_STEP: u64 = 3;
const ENTRIES_STEP: u64 = 2;
/// The result: `found`, `count == 1`, `made`.
const RESULT: u64 = 1;
const COUNT_RESULT: u64 = 2;

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
            machine.context.budget.charge(1)?;
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
        let condition = if decides { EXISTS_CONDITION } else { ALL_CONDITION };
        let mut left = range
            .items()
            .map_or_else(|| range.map_len().unwrap_or(0), |items| items.len());
        self.rounds(fold, range, condition + QUANTIFIER_STEP, |machine| {
            left = left.saturating_sub(1);
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
        // The loop ends where its condition is looked at next.
        let last = if decided && left > 0 { condition } else { 0 };
        self.charge(last + RESULT)?;
        match failure {
            Some(error) if !decided => Err(error),
            _ => Ok(Val::Bool(decided == decides)),
        }
    }

    fn exists_one(&mut self, fold: &'v Fold, range: &Val<'v>, predicate: &'v Node) -> Result<'v> {
        let mut count = 0_usize;
        self.rounds(fold, range, 0, |machine| {
            if machine.condition(predicate)? {
                machine.charge(COUNT_STEP)?;
                count += 1;
            }
            Ok(Flow::Continue)
        })?;
        self.charge(COUNT_RESULT)?;
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
        // A filter keeps the variable, which is read for one.
        let (item, read) = match transform {
            Some(transform) if price::is_constant(transform) => (0, 0),
            Some(_) => (cost::LIST, 0),
            None => (cost::LIST, cost::SELECT),
        };
        self.rounds(fold, range, 0, |machine| {
            if let Some(condition) = condition
                && !machine.condition(condition)?
            {
                return Ok(Flow::Continue);
            }
            machine.charge(LIST_STEP + item + read)?;
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
        self.charge(RESULT)?;
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
        let step = match keys {
            Keys::Kept => ENTRY_STEP,
            Keys::Made => ENTRIES_STEP,
        };
        self.rounds(fold, range, 0, |machine| {
            if let Some(condition) = condition
                && !machine.condition(condition)?
            {
                return Ok(Flow::Continue);
            }
            machine.charge(step)?;
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
        self.charge(RESULT)?;
        Ok(Val::Map(Rc::new(MapVal::new(made)?)))
    }
}

#[derive(Clone, Copy)]
enum Keys {
    Kept,
    Made,
}
