//! Bounds of sizes that Kubernetes' estimate leaves open. Used only where absence is a result, in
//! conversion rules: their estimates appear in no message of Kubernetes, and they often join texts
//! of numbers.

use super::operand::Operand;
use super::origin::Step;
use super::{Container, Range, Walk, contents};
use crate::program::AbsenceMode;
use crate::types::Type;
use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

/// Size of the text of a number, boolean, duration or timestamp; the longest is
/// `9999-12-31T23:59:59.999999999+14:00`.
const SCALAR_TEXT: Range = Range { min: 1, max: 35 };

impl Walk<'_> {
    /// Returns the size of a call's result where the function does not determine it. Records the
    /// origin of optional values and the sizes of the parts of texts.
    pub(super) fn closer(&mut self, id: u64, name: &str, operands: &[Operand<'_>]) -> Option<Range> {
        if self.env.mode != AbsenceMode::Absent {
            return None;
        }
        match (name, operands) {
            ("string", [of]) => text_of(of),
            ("durations.format", [_]) => Some(SCALAR_TEXT),
            ("split", [text, ..]) => {
                let piece = Range::up_to(text.size().max);
                self.set_contents(id, Some(contents(Container::List, Range::ONE, piece)));
                None
            }
            (operators::OPT_SELECT, [of, field]) => {
                let origin = of.origin.step(self.env, Step::Field(literal(field.expr)?));
                let size = origin.size();
                self.origins.insert(id, origin);
                size
            }
            (operators::OPT_INDEX, [of, _]) => match of.contents(self) {
                Some(contents) => Some(contents.value),
                None => {
                    let origin = of.origin.step(self.env, Step::Values);
                    let size = origin.size();
                    self.origins.insert(id, origin);
                    size
                }
            },
            ("orValue" | "or", [one, other]) => Some(one.size().or(other.size())),
            ("optional.of" | "value", [of]) => of.size,
            ("optional.none", []) => Some(Range::ZERO),
            // Types are compared in one step.
            ("type", [_]) => Some(Range::ONE),
            _ => None,
        }
    }
}

fn text_of(of: &Operand<'_>) -> Option<Range> {
    match &of.ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => Some(SCALAR_TEXT),
        Type::String => of.size,
        Type::Dyn => of.size.map(|text| text.or(SCALAR_TEXT)),
        _ => None,
    }
}

fn literal(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{AbsenceMode, Decl, Env, Field, ListKind, Program, Type};

    fn text(most: u64) -> Decl {
        Decl::scalar(Type::String).bounded(Some(most), 2)
    }

    fn most(source: &str, mode: AbsenceMode) -> u64 {
        let field = |name: &str, decl: Decl| Field {
            name: name.into(),
            written: name.into(),
            decl,
        };
        let fields = vec![
            field("n", Decl::scalar(Type::Int).bounded(Some(0), 1)),
            field("t", text(100)),
            field("list", Decl::list(text(10), ListKind::Atomic).bounded(Some(5), 2)),
            field("any", Decl::dynamic().bounded(Some(50), 1)),
        ];
        let env = Env::new(mode).with("self", Decl::object("self", fields));
        Program::compile_in(source, &env).unwrap().estimate().max
    }

    /// The cost of joining a text shows its estimated size: a unit for every ten characters of the
    /// longest.
    #[test]
    fn texts_that_expressions_make_have_a_size() {
        for (source, most_here) in [
            ("string(self.n) + 's'", 7),
            ("string(self.t) + 's'", 14),
            ("string(self.any) + 's'", 13),
            ("self.t.split(':')[0] + 's'", 34),
            ("self.t.split(':').map(x, x + 's')", 2433),
            ("self.?t.orValue('') + 's'", 14),
            ("self.list[?1].orValue('') + 's'", 6),
            ("self.list[?1].orValue('') + string(self.n) + 's'", 17),
            ("type(self.any) == string", 5),
        ] {
            assert_eq!(most(source, AbsenceMode::Absent), most_here, "{source}");
        }
        // Kubernetes leaves the size open, and so do validation rules here.
        assert!(most("string(self.n) + 's'", AbsenceMode::Error) > u64::MAX / 100);
    }
}
