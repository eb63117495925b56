//! Evaluation of paths: fields, indexes and `has()`, with absence and optionals.

use crate::cost;
use crate::error::{EvalError, invalid};
use crate::eval::{Machine, fit};
use crate::ir::{Field, Node, Step};
use crate::program::AbsenceMode;
use crate::typed;
use crate::value::{Result, Val, key_text};
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
        if let (Node::Variable(slot), [Step::Field { field, .. }, rest @ ..]) = (base, steps)
            && let Some(programs) = self.programs(*slot)
        {
            self.charge(cost::SELECT * 2)?;
            let value = self.program(programs, &field.name)?;
            return self.steps(value, rest);
        }
        // A path on a computed value is an attribute too, with the price of a variable.
        if !matches!(base, Node::Variable(_) | Node::Local(_) | Node::Conditional { .. }) {
            self.charge(cost::SELECT)?;
        }
        match self.eval(base) {
            Ok(value) => self.steps(value, steps),
            Err(EvalError::Absent) => self.absent_step("", steps),
            Err(error) => Err(error),
        }
    }

    /// Fast path for undeclared values such as `self.spec.name`: walks from object to object
    /// without making a value for each step.
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
                    return match &steps[i + 1..] {
                        [] => Ok(Val::from_json(value)),
                        rest => self.steps(Val::from_json(value), rest),
                    };
                }
            }
        }
        self.charge(cost::SELECT * (steps.len() as u64 + 1))?;
        Ok(Val::JsonMap(fields, None))
    }

    fn missing(&self, name: &str) -> EvalError {
        match self.mode {
            AbsenceMode::Absent => EvalError::Absent,
            AbsenceMode::Error => EvalError::NoSuchKey(name.to_owned().into()),
        }
    }

    /// Returns the result for a missing field: none if an optional step follows.
    fn absent_step(&self, name: &str, steps: &[Step]) -> Result<'v> {
        let optional = steps.iter().any(Step::is_optional);
        if self.mode == AbsenceMode::Absent && optional {
            return Ok(Val::Optional(None));
        }
        Err(self.missing(name))
    }

    fn steps(&mut self, base: Val<'v>, steps: &'v [Step]) -> Result<'v> {
        let mut value = base;
        // One optional step makes the rest of the chain optional.
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
                    None if value.items().is_some() => return Err(not_an_index(&Val::Str(&field.name))),
                    None if !optional => return self.absent_step(&field.name, &steps[i..]),
                    found => found,
                },
                Step::Index { index, .. } => {
                    // A path as an index is a part of the path around it.
                    let index = self.branch(index)?;
                    match self.index(&value, &index) {
                        Ok(found) => Some(found),
                        Err(EvalError::NoSuchKey(_) | EvalError::IndexOutOfBounds(_)) if optional => None,
                        Err(EvalError::NoSuchKey(key)) => return self.absent_step(&key, &steps[i..]),
                        Err(error) => return Err(error),
                    }
                }
            };
            match found {
                Some(found) => value = fit(found)?,
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
                _ => return Err(not_an_index(index)),
            };
            return usize::try_from(position)
                .ok()
                .and_then(|p| items.get(p))
                .ok_or(EvalError::IndexOutOfBounds(position));
        }
        let missing = || EvalError::NoSuchKey(key_text(index).unwrap_or_default().into());
        match value {
            Val::JsonMap(..) => {
                let key = index.as_str().ok_or_else(missing)?;
                value.field(key).ok_or_else(missing)
            }
            Val::Map(map) => map.get(index).cloned().ok_or_else(missing),
            // A value that is no container has no keys.
            _ => Err(missing()),
        }
    }

    pub(crate) fn has(&mut self, base: &'v Node, field: &'v Field) -> Result<'v> {
        if let Node::Variable(slot) = base
            && let Some(programs) = self.programs(*slot)
        {
            self.charge(cost::SELECT)?;
            return Ok(Val::Bool(programs.named.iter().any(|(name, _)| *name == *field.name)));
        }
        // `has()` costs the price of its base.
        self.context.budget.charge(cost::ITEM)?;
        let computed = !matches!(base, Node::Variable(_) | Node::Local(_) | Node::Access { .. });
        let base = match self.eval(base) {
            Ok(Val::Optional(None)) | Err(EvalError::Absent) => return Ok(Val::Bool(false)),
            Ok(Val::Optional(Some(inner))) => (*inner).clone(),
            other => other?,
        };
        if computed {
            self.charge(cost::SELECT)?;
        }
        match base.field_of(field) {
            Some(found) => fit(found).map(|_| Val::Bool(true)),
            None if base.items().is_some() => Err(not_an_index(&Val::Str(&field.name))),
            None => Ok(Val::Bool(false)),
        }
    }
}

/// Returns the error for an index of a list that is no whole number.
fn not_an_index(index: &Val<'_>) -> EvalError {
    match index {
        Val::Double(d) => invalid(format!("unsupported index value {d} in list")),
        _ => invalid(format!("unsupported index type '{}' in list", index.type_name())),
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
    fn find<'v>(&self, fields: &'v Map<String, Value>) -> Option<&'v Value> {
        fields.get(&*self.name).or_else(|| fields.get(self.written.as_deref()?))
    }
}

impl<'v> Val<'v> {
    fn field_of(&self, field: &Field) -> Option<Val<'v>> {
        match self {
            Val::JsonMap(fields, None) => field.find(fields).map(Val::from_json),
            // Only declared properties have escapes, map keys do not.
            Val::JsonMap(fields, Some(decl)) if typed::is_map(decl) => {
                typed::field(fields, field.written.as_deref().unwrap_or(&field.name), decl)
            }
            Val::JsonMap(fields, Some(decl)) => typed::field(fields, &field.name, decl),
            Val::Map(_) => self
                .field(&field.name)
                .or_else(|| self.field(field.written.as_deref()?)),
            _ => None,
        }
    }
}
