//! The evaluator: walks the tree over borrowed values, charging as it goes.
//!
//! Absence travels as `EvalError::Absent`, because it spreads exactly as an error does: strict operators pass it on,
//! `&&`, `||`, `? :`, `all` and `exists` may absorb it. What differs is here in three places: `has()` and the
//! functions of optionals decide about it, and a list or map literal leaves the entry out.

use crate::activation::{Activation, Binding};
use crate::arithmetic;
use crate::compare;
use crate::cost::{self, Budget};
use crate::error::{EvalError, no_overload};
use crate::functions::{Context, authorizer_value, check_value};
use crate::ir::{Element, Entry, NODE_DEPTH_MAX, Node, Operator, OptionalOr};
use crate::price;
use crate::program::AbsenceMode;
use crate::value::{MapVal, Val};
use serde_json::Value;
use smallvec::SmallVec;
use std::rc::Rc;

pub(crate) type Result<'v> = std::result::Result<Val<'v>, EvalError>;

/// Evaluates `node` with its variables taken from `activation`.
pub(crate) fn run<'v>(
    node: &'v Node,
    variables: &[String],
    mode: AbsenceMode,
    activation: &'v Activation<'_>,
    budget: &mut Budget,
) -> Result<'v> {
    let mut slots = SmallVec::new();
    for name in variables {
        let binding = activation
            .get(name)
            .ok_or_else(|| EvalError::NoSuchAttribute(name.clone()))?;
        slots.push(match binding {
            Binding::Borrowed(value) => Slot::Json(value),
            Binding::Owned(value) => Slot::Json(value),
            Binding::Optional(value) => Slot::Optional(*value),
            Binding::Authorizer(authorizer) => Slot::Made(authorizer_value(*authorizer)),
            Binding::ResourceCheck(authorizer, check) => Slot::Made(check_value(*authorizer, check)),
            Binding::Absent => match mode {
                AbsenceMode::Absent => Slot::Absent,
                AbsenceMode::Error => Slot::Optional(None),
            },
        });
    }
    let mut machine = Machine {
        slots,
        mode,
        locals: SmallVec::new(),
        context: Context::new(budget),
        depth: 0,
    };
    machine.eval(node)
}

enum Slot<'v> {
    Json(&'v Value),
    Optional(Option<&'v Value>),
    Made(Val<'v>),
    Absent,
}

pub(crate) struct Machine<'v, 'm> {
    slots: SmallVec<[Slot<'v>; 4]>,
    pub(crate) mode: AbsenceMode,
    /// Comprehension variables; the tree's `Local`s are places here.
    pub(crate) locals: SmallVec<[Val<'v>; 4]>,
    pub(crate) context: Context<'m>,
    depth: usize,
}

impl<'v> Machine<'v, '_> {
    pub(crate) fn eval(&mut self, node: &'v Node) -> Result<'v> {
        self.depth += 1;
        // The tree is no deeper than that by construction; this holds even if lowering were wrong.
        if self.depth > NODE_DEPTH_MAX * 2 {
            return Err(EvalError::DepthExceeded);
        }
        let result = self.step(node);
        self.depth -= 1;
        result
    }

    fn step(&mut self, node: &'v Node) -> Result<'v> {
        match node {
            Node::Const(constant) => Ok(Val::from_const(constant)),
            Node::Variable(slot) => {
                self.charge(cost::SELECT)?;
                self.variable(*slot)
            }
            Node::Local(index) => {
                self.charge(cost::SELECT)?;
                self.locals.get(*index).cloned().ok_or(EvalError::DepthExceeded)
            }
            Node::Access { base, steps } => self.access(base, steps),
            Node::Has { base, field } => self.has(base, field),
            Node::Not(operand) => {
                self.charge(cost::CALL)?;
                match self.eval(operand)? {
                    Val::Bool(b) => Ok(Val::Bool(!b)),
                    _ => Err(no_overload("!_")),
                }
            }
            Node::Negate(operand) => {
                self.charge(cost::CALL)?;
                arithmetic::negate(&self.eval(operand)?)
            }
            Node::And(terms) => self.logic(terms, false, "_&&_"),
            Node::Or(terms) => self.logic(terms, true, "_||_"),
            Node::Conditional { arms, otherwise } => self.conditional(arms, otherwise),
            Node::Chain { first, rest } => self.chain(first, rest),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Call { function, arguments } => {
                let mut values: SmallVec<[Val<'v>; 4]> = SmallVec::new();
                for argument in arguments {
                    values.push(self.eval(argument)?);
                }
                let result = (function.call)(&mut self.context, &values);
                if !price::is_constant(node) {
                    let made = result.as_ref().unwrap_or(&Val::Null);
                    self.charge(price::call(function.name, &values, made))?;
                }
                result
            }
            Node::Matches {
                target,
                pattern,
                pattern_bytes,
            } => {
                let target = self.eval(target)?;
                let text = target.as_str().ok_or(no_overload("matches"))?;
                self.charge(price::matching(text, *pattern_bytes))?;
                crate::regex::charge(self.context.budget, text, *pattern_bytes)?;
                Ok(Val::Bool(pattern.is_match(text)))
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { init, body } => {
                let init = self.eval(init)?;
                self.with_local(init, body)
            }
            Node::OptionalMap { target, body, flat } => self.optional_map(target, body, *flat),
            Node::OptionalOr {
                target,
                alternative,
                kind,
            } => self.optional_or(target, alternative, *kind),
            Node::OptionalHasValue(target) => {
                self.charge(cost::CALL)?;
                let target = self.optional(target, "hasValue")?;
                Ok(Val::Bool(target.is_some()))
            }
        }
    }

    pub(crate) fn charge(&mut self, units: u64) -> std::result::Result<(), EvalError> {
        self.context.budget.price(units)
    }

    fn variable(&self, slot: usize) -> Result<'v> {
        match self.slots.get(slot) {
            Some(Slot::Json(value)) => Ok(Val::from_json(value)),
            Some(Slot::Optional(value)) => Ok(Val::Optional(value.map(|v| Rc::new(Val::from_json(v))))),
            Some(Slot::Made(value)) => Ok(value.clone()),
            Some(Slot::Absent) | None => Err(EvalError::Absent),
        }
    }

    /// A variable's value if it is an object.
    pub(crate) fn object(&self, slot: usize) -> Option<&'v serde_json::Map<String, Value>> {
        match self.slots.get(slot) {
            Some(Slot::Json(Value::Object(fields))) => Some(fields),
            _ => None,
        }
    }

    pub(crate) fn with_local(&mut self, value: Val<'v>, body: &'v Node) -> Result<'v> {
        self.locals.push(value);
        let result = self.eval(body);
        self.locals.pop();
        result
    }

    /// `&&` and `||`: the deciding value wins over errors and absence on either side; without it the first error.
    fn logic(&mut self, terms: &'v [Node], decides: bool, name: &'static str) -> Result<'v> {
        let mut failure = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(b)) if b == decides => return Ok(Val::Bool(b)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(no_overload(name))),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(Val::Bool(!decides)),
        }
    }

    fn conditional(&mut self, arms: &'v [(Node, Node)], otherwise: &'v Node) -> Result<'v> {
        for (condition, then) in arms {
            match self.eval(condition)? {
                Val::Bool(true) => return self.resolve(then),
                Val::Bool(false) => {}
                _ => return Err(no_overload("_?_:_")),
            }
        }
        self.resolve(otherwise)
    }

    /// A value that is only passed on. cel-go resolves a name or path there as a part of what is around it: for the
    /// price of its fields, but not for that of reading it.
    pub(crate) fn resolve(&mut self, node: &'v Node) -> Result<'v> {
        let value = self.eval(node);
        if matches!(node, Node::Variable(_) | Node::Local(_) | Node::Access { .. }) {
            self.context.budget.refund(cost::SELECT);
        }
        value
    }

    fn chain(&mut self, first: &'v Node, rest: &'v [(Operator, Node)]) -> Result<'v> {
        let mut left = self.eval(first)?;
        for (operator, node) in rest {
            let right = self.eval(node)?;
            if *operator != Operator::In || !price::is_constant_set(node) {
                self.charge(price::operator(*operator, &left, &right))?;
            }
            left = match operator {
                Operator::Equal => Val::Bool(compare::equal(&left, &right, self.context.budget)?),
                Operator::NotEqual => Val::Bool(!compare::equal(&left, &right, self.context.budget)?),
                Operator::In => Val::Bool(compare::contains(&right, &left, self.context.budget)?),
                Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
                    Val::Bool(compare::ordered(*operator, &left, &right, self.context.budget)?)
                }
                Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                    arithmetic::apply(*operator, &left, &right, self.context.budget)?
                }
            };
        }
        Ok(left)
    }

    fn list(&mut self, elements: &'v [Element]) -> Result<'v> {
        if !price::is_constant_list(elements) {
            self.charge(cost::LIST)?;
        }
        self.context.budget.memory(elements.len() * size_of::<Val<'_>>())?;
        let mut items = Vec::with_capacity(elements.len());
        for Element { node, optional } in elements {
            match (self.eval(node), optional) {
                (Err(EvalError::Absent), _) | (Ok(Val::Optional(None)), true) => {}
                (Ok(Val::Optional(Some(inner))), true) => items.push((*inner).clone()),
                (Ok(_), true) => return Err(no_overload("optional list element")),
                (value, _) => items.push(value?),
            }
        }
        Ok(Val::list(items))
    }

    fn map(&mut self, entries: &'v [Entry]) -> Result<'v> {
        if !price::is_constant_map(entries) {
            self.charge(cost::MAP)?;
        }
        self.context.budget.memory(entries.len() * 2 * size_of::<Val<'_>>())?;
        let mut made = Vec::with_capacity(entries.len());
        for Entry { key, value, optional } in entries {
            let key = match self.eval(key) {
                Err(EvalError::Absent) => continue,
                key => key?,
            };
            match (self.eval(value), optional) {
                (Err(EvalError::Absent), _) | (Ok(Val::Optional(None)), true) => {}
                (Ok(Val::Optional(Some(inner))), true) => made.push((key, (*inner).clone())),
                (Ok(_), true) => return Err(no_overload("optional map entry")),
                (value, _) => made.push((key, value?)),
            }
        }
        Ok(Val::Map(Rc::new(MapVal::new(made)?)))
    }

    /// A target of a function of optionals. Where absence is a result, an absent field stands for none, and a
    /// value that is there for itself: `self.a.orValue(b)` means what it says.
    fn optional(
        &mut self,
        target: &'v Node,
        function: &'static str,
    ) -> std::result::Result<Option<Rc<Val<'v>>>, EvalError> {
        match self.eval(target) {
            Ok(Val::Optional(inner)) => Ok(inner),
            Err(EvalError::Absent) => Ok(None),
            Ok(value) if self.mode == AbsenceMode::Absent => Ok(Some(Rc::new(value))),
            Ok(_) => Err(no_overload(function)),
            Err(error) => Err(error),
        }
    }

    /// Not a call, to cel-go: free but for what it evaluates.
    fn optional_or(&mut self, target: &'v Node, alternative: &'v Node, kind: OptionalOr) -> Result<'v> {
        match kind {
            OptionalOr::Value => match self.optional(target, "orValue")? {
                Some(value) => Ok((*value).clone()),
                None => self.eval(alternative),
            },
            OptionalOr::Optional => match self.optional(target, "or")? {
                Some(value) => Ok(Val::Optional(Some(value))),
                None => Ok(Val::Optional(self.optional(alternative, "or")?)),
            },
        }
    }

    /// Priced as the conditional that it stands for in cel-go: `target.hasValue() ? optional.of(body) :
    /// optional.none()`, in which the body's variable is `target.value()`, evaluated anew.
    fn optional_map(&mut self, target: &'v Node, body: &'v Node, flat: bool) -> Result<'v> {
        let name = if flat { "optFlatMap" } else { "optMap" };
        let before = self.context.budget.used();
        let target = self.optional(target, name)?;
        let again = self.context.budget.used() - before;
        self.charge(cost::CALL)?;
        let Some(value) = target else {
            self.charge(cost::CALL)?;
            return Ok(Val::Optional(None));
        };
        self.charge(again + cost::CALL + if flat { 0 } else { cost::CALL })?;
        match (self.with_local((*value).clone(), body)?, flat) {
            (Val::Optional(inner), true) => Ok(Val::Optional(inner)),
            (_, true) => Err(no_overload("optFlatMap")),
            (value, false) => Ok(Val::some(value)),
        }
    }
}
