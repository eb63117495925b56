//! Reading paths: fields, indexes and `has()`, in which absence and optionals are decided.

use crate::cost;
use crate::error::{EvalError, no_overload};
use crate::eval::{Machine, Result};
use crate::ir::{Field, Node, Step};
use crate::program::AbsenceMode;
use crate::value::Val;
use serde_json::{Map, Value};

impl<'v> Machine<'v, '_> {
    pub(crate) fn access(&mut self, base: &'v Node, steps: &'v [Step]) -> Result<'v> {
        let start = match base {
            Node::Variable(slot) => self.object(*slot),
            Node::Local(index) => match self.locals.get(*index) {
                Some(Val::JsonMap(fields, None)) => Some(*fields),
                _ => None,
            },
            _ => None,
        };
        if let Some(fields) = start {
            return self.walk(fields, steps);
        }
        // A path into a value that was made is a name as well; one into a conditional is a part of it.
        if !matches!(base, Node::Variable(_) | Node::Local(_) | Node::Conditional { .. }) {
            self.charge(cost::SELECT)?;
        }
        match self.eval(base) {
            Ok(value) => self.steps(value, steps),
            Err(EvalError::Absent) => self.absent_step("", steps),
            Err(error) => Err(error),
        }
    }

    /// The common case, `self.spec.name`: from object to object without making a value a step.
    fn walk(&mut self, mut fields: &'v Map<String, Value>, steps: &'v [Step]) -> Result<'v> {
        for (i, step) in steps.iter().enumerate() {
            let walked = cost::SELECT * (i as u64 + 1);
            let Step::Field { field, optional: false } = step else {
                self.charge(walked)?;
                return self.steps(Val::JsonMap(fields, None), &steps[i..]);
            };
            let Some(next) = field.find(fields) else {
                self.charge(walked)?;
                return self.absent_step(&field.name, &steps[i..]);
            };
            match next {
                Value::Object(inner) => fields = inner,
                value => {
                    self.charge(walked + cost::SELECT)?;
                    return self.steps(Val::from_json(value), &steps[i + 1..]);
                }
            }
        }
        self.charge(cost::SELECT * (steps.len() as u64 + 1))?;
        Ok(Val::JsonMap(fields, None))
    }

    fn missing(&self, name: &str) -> EvalError {
        match self.mode {
            AbsenceMode::Absent => EvalError::Absent,
            AbsenceMode::Error => EvalError::NoSuchKey(name.to_owned()),
        }
    }

    /// Nothing was found on the way: with an optional step still to come the result is none.
    fn absent_step(&self, name: &str, steps: &[Step]) -> Result<'v> {
        let optional = steps.iter().any(Step::is_optional);
        if self.mode == AbsenceMode::Absent && optional {
            return Ok(Val::Optional(None));
        }
        Err(self.missing(name))
    }

    fn steps(&mut self, base: Val<'v>, steps: &'v [Step]) -> Result<'v> {
        let mut value = base;
        // Once a step was optional, so is the rest of the chain.
        let mut optional = false;
        for (i, step) in steps.iter().enumerate() {
            if let Val::Optional(inner) = value {
                optional = true;
                match inner {
                    Some(inner) => value = (*inner).clone(),
                    None => return Ok(Val::Optional(None)),
                }
            }
            optional |= step.is_optional();
            let found = match step {
                Step::Field { field, .. } => match value.field_of(field) {
                    None if value.items().is_some() => return Err(no_overload("_[_]")),
                    None if !optional => return self.absent_step(&field.name, &steps[i..]),
                    found => found,
                },
                Step::Index { index, .. } => {
                    let index = self.resolve(index)?;
                    match self.index(&value, &index) {
                        Ok(found) => Some(found),
                        Err(EvalError::NoSuchKey(_) | EvalError::IndexOutOfBounds(_)) if optional => None,
                        Err(EvalError::NoSuchKey(key)) => return self.absent_step(&key, &steps[i..]),
                        Err(error) => return Err(error),
                    }
                }
            };
            match found {
                Some(found) => value = found,
                // What is not there was not read.
                None => return Ok(Val::Optional(None)),
            }
            self.charge(cost::SELECT)?;
        }
        Ok(if optional { Val::some(value) } else { value })
    }

    fn index(&self, value: &Val<'v>, index: &Val<'v>) -> Result<'v> {
        if let Some(items) = value.items() {
            let position = match index {
                Val::Int(i) => *i,
                Val::Uint(u) => i64::try_from(*u).unwrap_or(i64::MAX),
                Val::Double(d) if d.fract() == 0.0 && d.abs() < 9e15 => *d as i64,
                _ => return Err(no_overload("_[_]")),
            };
            return usize::try_from(position)
                .ok()
                .and_then(|p| items.get(p))
                .ok_or(EvalError::IndexOutOfBounds(position));
        }
        let missing = || EvalError::NoSuchKey(crate::value::key_text(index).unwrap_or_default());
        match value {
            Val::JsonMap(..) => {
                let key = index.as_str().ok_or_else(missing)?;
                value.field(key).ok_or_else(missing)
            }
            Val::Map(map) => map.get(index).cloned().ok_or_else(missing),
            _ => Err(no_overload("_[_]")),
        }
    }

    pub(crate) fn has(&mut self, base: &'v Node, field: &'v Field) -> Result<'v> {
        if !matches!(base, Node::Variable(_) | Node::Local(_) | Node::Access { .. }) {
            self.charge(cost::SELECT)?;
        }
        let base = match self.eval(base) {
            Ok(Val::Optional(None)) | Err(EvalError::Absent) => return Ok(Val::Bool(false)),
            Ok(Val::Optional(Some(inner))) => (*inner).clone(),
            other => other?,
        };
        Ok(Val::Bool(base.field_of(field).is_some()))
    }
}

impl Step {
    fn is_optional(&self) -> bool {
        match self {
            Self::Field { optional, .. } | Self::Index { optional, .. } => *optional,
        }
    }
}

impl Field {
    fn find<'v>(&self, fields: &'v serde_json::Map<String, Value>) -> Option<&'v Value> {
        fields.get(&*self.name).or_else(|| fields.get(self.written.as_deref()?))
    }
}

impl<'v> Val<'v> {
    fn field_of(&self, field: &Field) -> Option<Val<'v>> {
        self.field(&field.name)
            .or_else(|| self.field(field.written.as_deref()?))
    }
}
