//! Optional values: what evaluates lazily, or is asked of what may be absent, and so is no
//! function.

use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::eval::{Machine, Result};
use crate::functions;
use crate::ir::{Node, OptionalOr};
use crate::program::AbsenceMode;
use crate::value::Val;
use std::rc::Rc;

impl<'v> Machine<'v, '_> {
    /// A target of a function of optionals. Where absence is a result, an absent field stands for
    /// none, and a value that is there for itself: `self.a.orValue(b)` means what it says.
    pub(crate) fn optional(&mut self, target: &'v Node) -> std::result::Result<Target<'v>, EvalError> {
        match self.eval(target) {
            Ok(Val::Optional(inner)) => Ok(Target::Optional(inner)),
            Err(EvalError::Absent) => Ok(Target::Optional(None)),
            Ok(value) if self.mode == AbsenceMode::Absent => Ok(Target::Optional(Some(Rc::new(value)))),
            Ok(value) => Ok(Target::Other(value)),
            Err(error) => Err(error),
        }
    }

    /// Not a call, to cel-go: free but for what it evaluates. What is no optional stands for
    /// itself.
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

    /// Priced as the conditional that it stands for in cel-go:
    /// `target.hasValue() ? optional.of(body) : optional.none()`, in which the body's variable is
    /// `target.value()`, evaluated anew.
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

/// What a function of optionals is asked of.
pub(crate) enum Target<'v> {
    Optional(Option<Rc<Val<'v>>>),
    /// A value of another type, which the checker could not see.
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

/// Whatever the function, `hasValue` is what its expansion asks first.
pub(crate) fn not_optional(value: &Val<'_>) -> EvalError {
    functions::no_such_overload("hasValue", std::slice::from_ref(value))
}
