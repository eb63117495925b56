//! Binary operators by name, and cel-go's errors for unsupported operands.

use crate::error::{EvalError, no_overload};
use crate::value::Val;

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    /// Returns the operator of a call in the parser's tree.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "_+_" => Self::Add,
            "_-_" => Self::Subtract,
            "_*_" => Self::Multiply,
            "_/_" => Self::Divide,
            "_%_" => Self::Modulo,
            "_==_" => Self::Equal,
            "_!=_" => Self::NotEqual,
            "_<_" => Self::Less,
            "_<=_" => Self::LessOrEqual,
            "_>_" => Self::Greater,
            "_>=_" => Self::GreaterOrEqual,
            "@in" => Self::In,
            _ => return None,
        })
    }

    /// Returns true for `+ - * / %`.
    pub(crate) fn is_arithmetic(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Modulo
        )
    }

    /// Returns cel-go's name of the operator in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessOrEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterOrEqual => "_>=_",
            Self::In => "@in",
        }
    }
}

/// Returns the error of an unsupported operand. cel-go names the operator only if the left
/// operand's type has neither such an operator nor functions of its own.
pub(crate) fn unsupported(operator: Operator, left: &Val<'_>) -> EvalError {
    let known = match left {
        Val::Str(_) | Val::String(_) | Val::Timestamp(_) | Val::Duration(_) => true,
        Val::Int(_) | Val::Uint(_) => true,
        Val::Double(_) => operator != Operator::Modulo,
        Val::Bytes(_) => operator == Operator::Add || compares(operator),
        Val::Bool(_) => compares(operator),
        Val::List(_) | Val::JsonList(..) => operator == Operator::Add,
        _ => false,
    };
    no_overload(if known { "" } else { operator.name() })
}

fn compares(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
    )
}
