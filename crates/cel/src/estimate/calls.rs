//! Cost estimates of calls: operators and standard functions. Those of the libraries are in
//! [`super::library`].

use super::operand::{CHARACTER, Call, Operand, matching};
use super::origin::Step;
use super::{Range, Walk};
use crate::types::Type;
use cel::common::ast::{CallExpr, IdedExpr, operators};

impl<'e> Walk<'e> {
    pub(super) fn call(&mut self, expr: &'e IdedExpr, call: &'e CallExpr) -> Range {
        let target = call.target.as_deref();
        // A target may be the first part of the function's name instead of a value.
        let (name, target) = match self.checked.name(expr.id) {
            Some(name) => (name, target.filter(|_| name == call.func_name)),
            None => (call.func_name.as_str(), target),
        };
        let mut costs = Vec::with_capacity(call.args.len() + 1);
        let mut operands = Vec::with_capacity(call.args.len() + 1);
        for operand in target.into_iter().chain(&call.args) {
            costs.push(self.cost(operand));
            operands.push(Operand {
                expr: operand,
                ty: self.ty(operand),
                origin: self.origin(operand),
                size: self.size(operand).or(self.env.largest.map(Range::up_to)),
            });
        }
        let sum = costs.iter().fold(Range::ZERO, |sum, cost| sum.plus(*cost));
        match (name, costs.as_slice()) {
            ("dyn", [cost]) => {
                self.alike(expr.id, operands[0].expr);
                return cost.plus(Range::ONE);
            }
            // The first operand may decide the result.
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [first, ..]) => {
                self.set_size(expr.id, Some(Range::ONE));
                let min = first.min;
                return Range { min, max: sum.max };
            }
            (operators::CONDITIONAL, [condition, then, otherwise]) => {
                self.conditional(expr.id, &operands);
                return condition.plus(then.or(*otherwise));
            }
            (operators::INDEX, _) => {
                self.index(expr, &operands);
                return sum.plus(Range::ONE);
            }
            _ => {}
        }
        if name == operators::ADD {
            self.joined(expr.id, &operands);
        }
        let priced = super::library::call(self, name, target.is_some(), &operands)
            .unwrap_or_else(|| standard(name, target.is_some(), &operands));
        let closer = self.closer(expr.id, name, &operands);
        let size = priced.size.or(closer).or_else(|| self.size(expr));
        self.set_size(expr.id, size.or_else(|| self.computed(&operands)));
        sum.plus(priced.cost)
    }

    /// Returns the size of a computed value where the environment bounds unknown sizes: that of its
    /// operands together.
    fn computed(&self, operands: &[Operand<'_>]) -> Option<Range> {
        let sizes = operands.iter().map(Operand::size);
        let sum = sizes.fold(Range::ZERO, Range::plus);
        self.env.largest.map(|_| Range::up_to(sum.max))
    }

    fn conditional(&mut self, id: u64, operands: &[Operand<'_>]) {
        let [_, then, otherwise] = operands else { return };
        self.set_size(id, Some(then.size().or(otherwise.size())));
        let both = then.contents(self).zip(otherwise.contents(self));
        self.set_contents(id, both.map(|(one, two)| one.or(two)));
    }

    fn index(&mut self, expr: &IdedExpr, operands: &[Operand<'_>]) {
        let Some(container) = operands.first() else { return };
        // An index into an optional is priced like any other function.
        if matches!(container.ty, Type::Optional(_)) {
            return;
        }
        self.origins
            .insert(expr.id, container.origin.step(self.env, Step::Values));
        let size = container.contents(self).map(|c| c.value);
        self.set_size(expr.id, size.or_else(|| self.size(expr)));
    }

    fn joined(&mut self, id: u64, operands: &[Operand<'_>]) {
        if let [left, right] = operands {
            let both = left.contents(self).zip(right.contents(self));
            self.set_contents(id, both.map(|(one, two)| one.or(two)));
        }
    }
}

/// Answer that an operand's type gives to a question about types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Yes,
    No,
    Perhaps,
}

impl Is {
    fn matching(ty: &Type, test: impl Fn(&Type) -> bool) -> Is {
        match ty {
            Type::Dyn | Type::Param(_) => Is::Perhaps,
            ty if test(ty) => Is::Yes,
            _ => Is::No,
        }
    }

    fn text(ty: &Type) -> Is {
        Is::matching(ty, |ty| matches!(ty, Type::String | Type::Bytes))
    }

    /// Combines the answers of two operands of one type.
    fn both(self, other: Is) -> Is {
        match (self, other) {
            (Is::Perhaps, known) | (known, _) => known,
        }
    }

    fn choose(self, yes: Call, no: Call) -> Call {
        match self {
            Is::Yes => yes,
            Is::No => no,
            Is::Perhaps => yes.or(no),
        }
    }
}

fn standard(name: &str, has_target: bool, operands: &[Operand<'_>]) -> Call {
    match (name, operands) {
        ("startsWith" | "endsWith", [_, part]) => Call::costs(part.size().scaled(CHARACTER)),
        // The global form is another overload, whose price does not depend on sizes.
        ("matches", [text, pattern]) if has_target => Call::costs(matching(text.size(), pattern.size())),
        ("contains", [text, part]) => Call::costs(text.size().scaled(CHARACTER).times(part.size().scaled(CHARACTER))),
        ("format", [text, _]) => Call::costs(text.size().scaled(CHARACTER)),
        ("strings.quote", [text]) => {
            let size = text.size().times(Range { min: 1, max: 2 }).plus(Range::exactly(2));
            Call::makes(text.size().scaled(CHARACTER), size)
        }
        ("bytes", [text]) => {
            let size = text.size();
            let made = Call::makes(size.scaled(CHARACTER), size.times(Range { min: 1, max: 4 }));
            Is::matching(&text.ty, |ty| *ty == Type::String).choose(made, Call::ONE)
        }
        ("string", [bytes]) => {
            let Range { min, max } = bytes.size();
            let made = Call::makes(bytes.size().scaled(CHARACTER), Range { min: min / 4, max });
            Is::matching(&bytes.ty, |ty| *ty == Type::Bytes).choose(made, Call::ONE)
        }
        (operators::IN, [_, container]) => Is::matching(&container.ty, |ty| matches!(ty, Type::List(_)))
            .choose(Call::costs(container.size()), Call::ONE),
        (operators::ADD, [left, right]) => add(left, right),
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => compared(left.size(), right.size()),
        (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [left, right]) => {
            Is::text(&left.ty)
                .both(Is::text(&right.ty))
                .choose(compared(left.size(), right.size()), Call::ONE)
        }
        _ => Call::ONE,
    }
}

/// Estimates a comparison of two values, which ends with the shorter one.
fn compared(left: Range, right: Range) -> Call {
    let max = left.max.min(right.max);
    let min = max.min(1);
    Call::costs(Range { min, max }.scaled(CHARACTER))
}

/// Estimates `+`: texts are copied, lists are joined without copying.
fn add(left: &Operand<'_>, right: &Operand<'_>) -> Call {
    let size = left.size().plus(right.size());
    let text = Call::makes(size.scaled(CHARACTER), size);
    let list = Call::makes(Range::ONE, size);
    let is_list = |ty: &Type| Is::matching(ty, |ty| matches!(ty, Type::List(_)));
    let other = is_list(&left.ty).both(is_list(&right.ty)).choose(list, Call::ONE);
    Is::text(&left.ty).both(Is::text(&right.ty)).choose(text, other)
}
