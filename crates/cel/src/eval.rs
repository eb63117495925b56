//! The evaluator: walks the tree over borrowed values and charges the budget.
//!
//! Absence travels as `EvalError::Absent`, because it spreads exactly as an error does: strict
//! operators pass it on; `&&`, `||`, `? :`, `all` and `exists` may absorb it. It differs from
//! errors in three cases: `has()` tests it, functions of optionals provide for it, and a list or
//! map literal leaves the entry out.

use crate::activation::{Activation, Binding, Found, Programs};
use crate::arithmetic;
use crate::cost::{self, Budget};
use crate::error::{EvalError, invalid, no_overload};
use crate::functions::{self, Context, Function, authorizer_value, check_value};
use crate::ir::Price;
use crate::ir::{Element, Entry, NODE_DEPTH_MAX, Node};
use crate::json;
use crate::price;
use crate::program::{AbsenceMode, Code, Numbers, Program, Variable};
use crate::regex;
use crate::value::{Declared, ListVal, MapVal, Outcome, Result, Val};
use insula_goformat::regexp::Regexp;
use serde_json::{Map, Value};
use smallvec::SmallVec;
use std::rc::Rc;

impl Program {
    /// Evaluates the expression over borrowed values and charges `budget`. The same inputs give the
    /// same outcome and the same cost.
    ///
    /// # Errors
    ///
    /// Fails if the expression has no value for these inputs, or if a limit of `budget` is reached.
    pub fn eval<'a>(
        &'a self,
        activation: &Activation<'a>,
        budget: &mut Budget,
    ) -> std::result::Result<Outcome, EvalError> {
        budget.begin();
        match run(self.code(), activation, budget, 0) {
            Ok(ref value) => json::outcome(value, self.code().mode, budget),
            Err(EvalError::Absent) => Ok(Outcome::Absent),
            Err(error) => Err(error),
        }
    }
}

/// Evaluates a program with the variables of `activation`.
pub(crate) fn run<'v>(code: Code<'v>, activation: &Activation<'v>, budget: &mut Budget, depth: usize) -> Result<'v> {
    // Everything is constructed in its final location: moving a value right after writing it stalls
    // the processor.
    let mut machine = Machine {
        slots: SmallVec::new(),
        activation,
        mode: code.mode,
        numbers: code.numbers,
        locals: SmallVec::new(),
        context: Context::new(budget, code.patterns),
        depth,
    };
    for Variable { name, declared } in code.variables {
        let binding = activation
            .get(name)
            .ok_or_else(|| EvalError::NoSuchAttribute(name.clone().into()))?;
        machine.slots.push(match binding {
            Binding::Borrowed(value) => Slot::Json(value, declared.as_ref()),
            other => slot(other, declared.as_ref(), code.mode),
        });
    }
    machine.eval(code.node)
}

/// Resolves a variable that is not simply borrowed. Kept out of `run`, whose frame every evaluation
/// pays for.
#[inline(never)]
fn slot<'v, 'm>(binding: &'m Binding<'v>, declared: Declared<'v>, mode: AbsenceMode) -> Slot<'v, 'm> {
    match binding {
        Binding::Borrowed(value) => Slot::Json(value, declared),
        Binding::Owned(value) => Slot::Made(Val::owned(value)),
        Binding::Optional(value) => Slot::Made(Val::Optional(value.map(|v| Rc::new(Val::read(v, declared))))),
        Binding::Authorizer(authorizer) => Slot::Made(authorizer_value(*authorizer)),
        Binding::ResourceCheck(of) => Slot::Made(check_value(of.0, &of.1)),
        Binding::Absent => match mode {
            AbsenceMode::Absent => Slot::Absent,
            AbsenceMode::Error => Slot::Made(Val::Optional(None)),
        },
        Binding::Programs(programs) => Slot::Programs(programs),
    }
}

enum Slot<'v, 'm> {
    Json(&'v Value, Declared<'v>),
    Made(Val<'v>),
    Absent,
    Programs(&'m Programs<'v>),
}

pub(crate) struct Machine<'v, 'm> {
    slots: SmallVec<[Slot<'v, 'm>; 3]>,
    activation: &'m Activation<'v>,
    pub(crate) mode: AbsenceMode,
    pub(crate) numbers: Numbers,
    /// Comprehension variables; the tree's `Local`s are indexes here.
    pub(crate) locals: SmallVec<[Val<'v>; 4]>,
    pub(crate) context: Context<'m>,
    depth: usize,
}

/// Turns data that does not fit its declaration into an error, on its first read.
#[inline]
pub(crate) fn fit(value: Val<'_>) -> Result<'_> {
    match value {
        Val::Invalid(message) => Err(invalid((*message).to_owned())),
        value => Ok(value),
    }
}

impl<'v, 'm> Machine<'v, 'm> {
    #[inline]
    pub(crate) fn eval(&mut self, node: &'v Node) -> Result<'v> {
        self.depth += 1;
        // Lowering bounds the depth of the tree; this check holds even if lowering were wrong.
        if self.depth > NODE_DEPTH_MAX * 2 {
            return Err(EvalError::DepthExceeded);
        }
        let result = self.step(node);
        self.depth -= 1;
        result
    }

    /// Evaluates a node. The larger arms are functions that are never inlined, so that a step has a
    /// small frame.
    fn step(&mut self, node: &'v Node) -> Result<'v> {
        match node {
            Node::Const(constant) => Ok(Val::from_const(constant)),
            Node::Variable(slot) => {
                self.charge(cost::SELECT)?;
                self.variable(*slot)
            }
            Node::Local(index) => {
                self.charge(cost::SELECT)?;
                match self.locals.get(*index) {
                    Some(value @ Val::Invalid(_)) => fit(value.clone()),
                    Some(value) => Ok(value.copied()),
                    None => Err(EvalError::DepthExceeded),
                }
            }
            Node::Access { base, steps } => self.access(base, steps),
            Node::Has { base, field } => self.has(base, field),
            Node::Not(operand) => {
                self.charge(cost::CALL)?;
                match self.eval(operand)? {
                    Val::Bool(b) => Ok(Val::Bool(!b)),
                    _ => Err(no_overload("")),
                }
            }
            Node::Negate(operand) => {
                self.charge(cost::CALL)?;
                arithmetic::negate(&self.eval(operand)?)
            }
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Conditional { arms, otherwise } => self.conditional(arms, otherwise),
            Node::Chain { first, rest } => self.chain(first, rest),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) if price::is_constant_map(entries) => self.map(entries),
            Node::Map(entries) => {
                self.charge(cost::MAP)?;
                self.map(entries)
            }
            Node::Object(entries) => {
                self.charge(cost::OBJECT)?;
                self.map(entries)
            }
            Node::Call {
                function,
                arguments,
                price,
            } => self.call(function, arguments, *price),
            Node::Matches {
                target,
                pattern,
                pattern_bytes,
            } => self.matches(target, pattern, *pattern_bytes),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { init, body } => {
                let init = self.eval(init)?;
                self.with_local(init, body)
            }
            Node::OptionalMap {
                target,
                body,
                flat,
                read,
            } => self.optional_map(target, body, *flat, *read),
            Node::OptionalOr {
                target,
                alternative,
                kind,
            } => self.optional_or(target, alternative, *kind),
            Node::OptionalHasValue(target) => self.optional_has_value(target),
        }
    }

    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> std::result::Result<(), EvalError> {
        self.context.budget.price(units)
    }

    fn variable(&self, slot: usize) -> Result<'v> {
        match self.slots.get(slot) {
            Some(Slot::Json(value, declared)) => fit(Val::read(value, *declared)),
            Some(Slot::Made(value)) => Ok(value.clone()),
            Some(Slot::Programs(_)) => Err(no_overload("")),
            Some(Slot::Absent) | None => Err(EvalError::Absent),
        }
    }

    /// Returns the expressions that a variable stands for.
    pub(crate) fn programs(&self, slot: usize) -> Option<&'m Programs<'v>> {
        match self.slots.get(slot) {
            Some(Slot::Programs(programs)) => Some(programs),
            _ => None,
        }
    }

    /// Returns the value of one of the expressions, evaluating it on the first read.
    pub(crate) fn program(&mut self, programs: &Programs<'v>, name: &str) -> Result<'v> {
        let unknown = || EvalError::NoSuchKey(name.to_owned().into());
        let place = programs.named.iter().position(|(n, _)| n == name).ok_or_else(unknown)?;
        let before = programs
            .found
            .borrow_mut()
            .get_mut(place)
            .map(|f| std::mem::replace(f, Found::Running));
        let result = match before {
            Some(Found::Done(result)) => result,
            Some(Found::NotYet) => {
                let code = programs.named[place].1.code();
                // A nested price limit within that of the whole.
                let outer = self.context.budget.open();
                let result = run(code, self.activation, self.context.budget, self.depth);
                self.context.budget.close(outer);
                match result {
                    Err(error) if error.is_limit() || error == EvalError::Absent => Err(error),
                    Err(error) => Err(invalid(format!(
                        "composited variable \"{name}\" fails to evaluate: {error}"
                    ))),
                    value => value,
                }
            }
            Some(Found::Running) | None => return Err(unknown()),
        };
        if let Some(found) = programs.found.borrow_mut().get_mut(place) {
            *found = Found::Done(result.clone());
        }
        result
    }

    /// Returns a variable's value if it is an object without a declaration.
    pub(crate) fn object(&self, slot: usize) -> Option<&'v Map<String, Value>> {
        match self.slots.get(slot) {
            Some(Slot::Json(Value::Object(fields), None)) => Some(fields),
            _ => None,
        }
    }

    pub(crate) fn with_local(&mut self, value: Val<'v>, body: &'v Node) -> Result<'v> {
        self.locals.push(value);
        let result = self.eval(body);
        self.locals.pop();
        result
    }

    #[inline(never)]
    fn matches(&mut self, target: &'v Node, pattern: &Regexp, pattern_bytes: usize) -> Result<'v> {
        let target = self.eval(target)?;
        let text = target.as_str().ok_or(no_overload(""))?;
        self.charge(price::matching(text, pattern_bytes))?;
        let matched = regex::paid(self.context.budget, (text, pattern_bytes), |work| {
            pattern.is_match(text, work)
        })?;
        Ok(Val::Bool(matched))
    }

    #[inline(never)]
    fn call(&mut self, function: &'static Function, arguments: &'v [Node], price: Price) -> Result<'v> {
        match arguments {
            [one] => {
                let one = self.eval(one);
                match &one {
                    Ok(one) => self.apply(function, std::slice::from_ref(one), price),
                    Err(_) => one,
                }
            }
            [one, two] => {
                let both = [self.eval(one)?, self.eval(two)?];
                self.apply(function, &both, price)
            }
            all => {
                let mut values: SmallVec<[Val<'v>; 4]> = SmallVec::new();
                for argument in all {
                    values.push(self.eval(argument)?);
                }
                self.apply(function, &values, price)
            }
        }
    }

    fn apply(&mut self, function: &'static Function, values: &[Val<'v>], price: Price) -> Result<'v> {
        let mut result = (function.call)(&mut self.context, values);
        let made = result.as_ref().unwrap_or(&Val::Null);
        if let Err(error) = self.charge(price.units(values, made)) {
            result = Err(error);
        } else if let Err(EvalError::NoSuchOverload { .. }) = result {
            result = Err(functions::no_such_overload(function.name, values));
        }
        result
    }

    #[inline(never)]
    fn list(&mut self, elements: &'v [Element]) -> Result<'v> {
        if !price::is_constant_list(elements) {
            self.charge(cost::LIST)?;
        }
        self.context
            .budget
            .allocation(elements.len() * size_of::<Val<'_>>() + size_of::<ListVal<'_>>())?;
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

    #[inline(never)]
    fn map(&mut self, entries: &'v [Entry]) -> Result<'v> {
        self.context
            .budget
            .allocation(entries.len() * 2 * size_of::<Val<'_>>() + size_of::<MapVal<'_>>())?;
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
}
