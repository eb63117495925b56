//! Optional values: operations that evaluate lazily or test absence, and so are no functions.

use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::eval::Machine;
use crate::functions;
use crate::ir::{Node, OptionalOr};
use crate::program::AbsenceMode;
use crate::value::{Result, Val};
use std::rc::Rc;

impl<'v> Machine<'v, '_> {
    /// Evaluates the target of a function of optionals. Where absence is a result, an absent field
    /// counts as none, and a plain value as present: `self.a.orValue(b)` works on plain fields.
    pub(crate) fn optional(&mut self, target: &'v Node) -> std::result::Result<Target<'v>, EvalError> {
        match self.eval(target) {
            Ok(Val::Optional(inner)) => Ok(Target::Optional(inner)),
            Err(EvalError::Absent) => Ok(Target::Optional(None)),
            Ok(value) if self.mode == AbsenceMode::Absent => Ok(Target::Optional(Some(Rc::new(value)))),
            Ok(value) => Ok(Target::Other(value)),
            Err(error) => Err(error),
        }
    }

    /// Evaluates `or` and `orValue`. cel-go does not count them as calls: they are free but for
    /// what they evaluate. A value that is no optional counts as present.
    #[inline(never)]
    pub(crate) fn optional_or(&mut self, target: &'v Node, alternative: &'v Node, kind: OptionalOr) -> Result<'v> {
        match kind {
            OptionalOr::Value => match self.optional(target)? {
                Target::Optional(Some(value)) => Ok((*value).clone()),
                Target::Optional(None) => self.eval(alternative),
                Target::Other(value) => Ok(value),
            },
            OptionalOr::Optional => match self.optional(target)? {
                Target::Optional(None) => self.optional(alternative).map(Target::into_value),
                some => Ok(some.into_value()),
            },
        }
    }

    /// Evaluates `hasValue`.
    #[inline(never)]
    pub(crate) fn optional_has_value(&mut self, target: &'v Node) -> Result<'v> {
        self.charge(cost::CALL)?;
        match self.optional(target)? {
            Target::Optional(value) => Ok(Val::Bool(value.is_some())),
            Target::Other(value) => Err(not_optional(&value)),
        }
    }

    /// Evaluates `optMap` and `optFlatMap`. Priced as cel-go's expansion: `target.hasValue() ?
    /// optional.of(body) : optional.none()`, in which the body's variable is `target.value()`,
    /// evaluated again.
    #[inline(never)]
    pub(crate) fn optional_map(&mut self, target: &'v Node, body: &'v Node, flat: bool, read: bool) -> Result<'v> {
        let before = self.context.budget.used();
        let target = match self.optional(target)? {
            Target::Optional(value) => value,
            Target::Other(value) => return Err(not_optional(&value)),
        };
        let again = self.context.budget.used() - before;
        self.charge(cost::CALL)?;
        let Some(value) = target else {
            self.charge(cost::CALL)?;
            return Ok(Val::Optional(None));
        };
        self.charge(if read { again + cost::CALL } else { 0 } + if flat { 0 } else { cost::CALL })?;
        match (self.with_local((*value).clone(), body)?, flat) {
            (Val::Optional(inner), true) => Ok(Val::Optional(inner)),
            (value, true) if self.mode == AbsenceMode::Error => Ok(value),
            (_, true) => Err(no_overload("optFlatMap")),
            (value, false) => Ok(Val::some(value)),
        }
    }
}

/// Target of a function of optionals.
pub(crate) enum Target<'v> {
    Optional(Option<Rc<Val<'v>>>),
    /// A value of another type, unknown to the checker.
    Other(Val<'v>),
}

impl<'v> Target<'v> {
    fn into_value(self) -> Val<'v> {
        match self {
            Target::Optional(value) => Val::Optional(value),
            Target::Other(value) => value,
        }
    }
}

/// Returns the error for a target that is no optional. It names `hasValue`, which every expansion
/// calls first.
fn not_optional(value: &Val<'_>) -> EvalError {
    functions::no_such_overload("hasValue", std::slice::from_ref(value))
}
