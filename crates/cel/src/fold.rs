//! Comprehensions: one pass over a list's elements or a map's entries. Only `fold` has an
//! accumulator value.

use crate::cost;
use crate::error::{EvalError, invalid, no_overload};
use crate::eval::{Machine, fit};
use crate::ir::{Fold, FoldKind, Node, Variables};
use crate::items::Items;
use crate::price;
use crate::value::{MapVal, Repeated, Result, Val};
use std::rc::Rc;

// Costs, in units, of the loops that cel-go expands the macros to, without the written parts.
/// `@not_strictly_false(@result)`, the condition of `all`.
const ALL_CHECK: u64 = 2;
/// `@not_strictly_false(!@result)`, the condition of `exists`.
const EXISTS_CHECK: u64 = 3;
/// `@result` in a step or as the result.
const ACCUMULATOR: u64 = 1;
/// `@result + 1`, `@result + [...]`, for each taken element.
const TAKEN: u64 = 2;
/// `@result == 1`.
const COUNT_RESULT: u64 = 2;
/// `cel.@mapInsert(@result, key, ...)`.
const INSERTED: u64 = 3;
/// `cel.@mapInsert(@result, ...)`.
const MERGED: u64 = 2;

/// Elements reserved at once for the result of a map over a list; short results need not grow.
const ROOM_MAX: usize = 64;

type Unit = std::result::Result<(), EvalError>;

enum Flow {
    Continue,
    Stop,
}

impl<'v> Machine<'v, '_> {
    #[inline(never)]
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
            FoldKind::Accumulate { init, step } => self.accumulate(fold, &range, init, step),
        }
    }

    /// Evaluates `fold`. An absent step makes the whole absent, as in any expression.
    fn accumulate(&mut self, fold: &'v Fold, range: &Val<'v>, init: &'v Node, step: &'v Node) -> Result<'v> {
        let start = self.eval(init)?;
        let place = self.locals.len();
        self.locals.push(start);
        // The bytes that were charged while the accumulator was made.
        let mut charged = 0;
        let done = self.rounds(fold, range, |machine| {
            let known = machine.context.budget.charged_bytes();
            let next = machine.eval(step)?;
            let for_next = machine.context.budget.charged_bytes().saturating_sub(known);
            if let Some(accumulator) = machine.locals.get_mut(place) {
                let before = std::mem::replace(accumulator, next);
                // Otherwise the memory of a growing text would count as the square of its length.
                let freed = freed_with(&before).min(std::mem::replace(&mut charged, for_next));
                machine.context.budget.release(freed);
            }
            Ok(Flow::Continue)
        });
        let result = self.locals.pop();
        done?;
        self.charge(ACCUMULATOR)?;
        result.ok_or(EvalError::DepthExceeded)
    }

    /// Calls `body` once a round with the loop's variables on the stack.
    fn rounds(
        &mut self,
        fold: &'v Fold,
        range: &Val<'v>,
        mut body: impl FnMut(&mut Self) -> std::result::Result<Flow, EvalError>,
    ) -> Unit {
        let floor = self.locals.len();
        let count = match fold.variables {
            Variables::One => 1,
            Variables::Two => 2,
        };
        self.locals.resize(floor + count, Val::Null);
        let done = match range.items() {
            Some(items) => self.over_items(fold.variables, items, floor, &mut body),
            None => self.over_entries(fold.variables, range, floor, &mut body),
        };
        self.locals.truncate(floor);
        done
    }

    fn over_items(
        &mut self,
        variables: Variables,
        items: Items<'_, 'v>,
        floor: usize,
        body: &mut impl FnMut(&mut Self) -> std::result::Result<Flow, EvalError>,
    ) -> Unit {
        let place = match variables {
            Variables::One => floor,
            Variables::Two => floor + 1,
        };
        let mut items = items.iter();
        let mut index = 0;
        while let Some(local) = self.locals.get_mut(place) {
            if !items.next_into(local) {
                break;
            }
            if place > floor {
                self.set_local(floor, Val::Int(index));
                index += 1;
            }
            self.context.budget.round()?;
            if let Flow::Stop = body(self)? {
                break;
            }
        }
        Ok(())
    }

    fn over_entries(
        &mut self,
        variables: Variables,
        range: &Val<'v>,
        floor: usize,
        body: &mut impl FnMut(&mut Self) -> std::result::Result<Flow, EvalError>,
    ) -> Unit {
        let entries = range.entries().ok_or_else(|| not_iterable(range, variables))?;
        self.context.budget.memory(entries.len() * 2 * size_of::<Val<'_>>())?;
        for (key, value) in entries {
            self.context.budget.round()?;
            self.set_local(floor, key);
            if let Variables::Two = variables {
                self.set_local(floor + 1, value);
            }
            if let Flow::Stop = body(self)? {
                break;
            }
        }
        Ok(())
    }

    fn set_local(&mut self, place: usize, value: Val<'v>) {
        if let Some(local) = self.locals.get_mut(place) {
            *local = value;
        }
    }

    /// Evaluates `all` and `exists`. A deciding element wins over errors of others, as in `&&` and
    /// `||`.
    fn quantifier(&mut self, fold: &'v Fold, range: &Val<'v>, predicate: &'v Node, decides: bool) -> Result<'v> {
        let check = if decides { EXISTS_CHECK } else { ALL_CHECK };
        let mut failure = None;
        let mut decided = false;
        self.rounds(fold, range, |machine| {
            machine.charge(check)?;
            // The step before has decided; this round only checks the condition.
            if decided {
                return Ok(Flow::Stop);
            }
            machine.charge(ACCUMULATOR)?;
            match machine.eval(predicate) {
                Ok(Val::Bool(b)) if b == decides => {
                    decided = true;
                }
                Ok(Val::Bool(_)) => {}
                Ok(_) => failure = failure.take().or(Some(no_overload(""))),
                Err(error) if error.is_limit() => return Err(error),
                Err(error) => {
                    machine.context.budget.charge(cost::ERROR)?;
                    failure = failure.take().or(Some(error));
                }
            }
            Ok(Flow::Continue)
        })?;
        self.charge(ACCUMULATOR)?;
        match failure {
            Some(error) if !decided => Err(error),
            _ => Ok(Val::Bool(decided == decides)),
        }
    }

    fn exists_one(&mut self, fold: &'v Fold, range: &Val<'v>, predicate: &'v Node) -> Result<'v> {
        let mut count = 0_usize;
        self.rounds(fold, range, |machine| {
            if machine.condition(predicate)? {
                machine.charge(TAKEN)?;
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
            _ => Err(no_overload("")),
        }
    }

    /// Evaluates `map` and `filter`. An absent transform leaves its element out, as in the list
    /// literal that the macro stands for.
    fn list_fold(
        &mut self,
        fold: &'v Fold,
        range: &Val<'v>,
        condition: Option<&'v Node>,
        transform: Option<&'v Node>,
    ) -> Result<'v> {
        let room = match condition {
            None => range.items().map_or(0, Items::len).min(ROOM_MAX),
            Some(_) => 0,
        };
        let mut made = Vec::with_capacity(room);
        // `[x]` is built each round, `[1]` is a constant.
        let round = match transform {
            Some(transform) if price::is_constant(transform) => TAKEN,
            Some(_) => TAKEN + cost::LIST,
            None => TAKEN + cost::LIST + cost::SELECT,
        };
        self.rounds(fold, range, |machine| {
            if let Some(condition) = condition
                && !machine.condition(condition)?
            {
                return Ok(Flow::Continue);
            }
            machine.charge(round)?;
            let item = match transform {
                Some(transform) => machine.eval(transform),
                None => machine
                    .locals
                    .last()
                    .cloned()
                    .ok_or(EvalError::DepthExceeded)
                    .and_then(fit),
            };
            match item {
                Ok(item) => {
                    machine.context.budget.memory(size_of::<Val<'_>>())?;
                    made.push(item);
                }
                Err(EvalError::Absent) => {}
                Err(error) => return Err(error),
            }
            Ok(Flow::Continue)
        })?;
        self.charge(ACCUMULATOR)?;
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
        let round = match keys {
            Keys::Kept => INSERTED,
            Keys::Made => MERGED,
        };
        self.rounds(fold, range, |machine| {
            if let Some(condition) = condition
                && !machine.condition(condition)?
            {
                return Ok(Flow::Continue);
            }
            machine.charge(round)?;
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
                Keys::Made => {
                    let no_map = || invalid(format!("no such overload: cel.@mapInsert(map, {})", value.type_name()));
                    made.extend(value.entries().ok_or_else(no_map)?);
                }
            }
            machine
                .context
                .budget
                .memory((made.len() - before) * 2 * size_of::<Val<'_>>())?;
            Ok(Flow::Continue)
        })?;
        self.charge(ACCUMULATOR)?;
        match MapVal::new(made) {
            Ok(map) => Ok(Val::Map(Rc::new(map))),
            Err(Repeated::Key(key)) => Err(invalid(format!("insert failed: key {key} already exists"))),
            Err(Repeated::NotAKey) => Err(invalid("unsupported key type")),
        }
    }
}

/// Returns the bytes that are free when a value goes, without those of its parts.
fn freed_with(value: &Val<'_>) -> usize {
    match value {
        Val::String(text) if Rc::strong_count(text) == 1 => text.len(),
        Val::List(list) if Rc::strong_count(list) == 1 => size_of_val(&*list.items),
        _ => 0,
    }
}

#[derive(Clone, Copy)]
enum Keys {
    Kept,
    Made,
}

/// Returns the error for a range that is no list or map, with the type names of cel-go's library.
fn not_iterable(range: &Val<'_>, variables: Variables) -> EvalError {
    let name = match range {
        Val::Null => "types.Null",
        Val::Bool(_) => "types.Bool",
        Val::Int(_) => "types.Int",
        Val::Uint(_) => "types.Uint",
        Val::Double(_) => "types.Double",
        Val::Str(_) | Val::String(_) => "types.String",
        Val::Bytes(_) => "types.Bytes",
        Val::Timestamp(_) => "types.Timestamp",
        Val::Duration(_) => "types.Duration",
        Val::Optional(_) => "*types.Optional",
        other => other.type_name(),
    };
    invalid(match variables {
        Variables::One => format!("got '{name}', expected iterable type"),
        Variables::Two => format!("unsupported comprehension range type: {name}"),
    })
}
