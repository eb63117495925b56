//! Validation of constant formats against the types of their arguments: `'%d'.format(['a'])`.

use super::{Checked, Wrong};
use crate::types::Type;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

const SHOWN: &str = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";

/// Returns the first problem of a `format` call whose format is a constant and whose arguments are
/// a list literal.
pub(super) fn validate(node: u64, call: &CallExpr, checked: &Checked) -> Option<Wrong> {
    let Some(Expr::Literal(LiteralValue::String(text))) = call.target.as_deref().map(|t| &t.expr) else {
        return None;
    };
    let [
        IdedExpr {
            expr: Expr::List(list), ..
        },
    ] = call.args.as_slice()
    else {
        return None;
    };
    let arguments = list.elements.as_slice();
    match clauses(text.inner(), arguments, checked) {
        Err(mistake) => Some(Wrong {
            node: mistake.argument.unwrap_or(node),
            message: mistake.message,
        }),
        Ok(used) if arguments.len() > used => Some(Wrong {
            node,
            message: format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                arguments.len()
            ),
        }),
        Ok(_) => None,
    }
}

/// A problem of a clause or of its argument.
struct Mistake {
    argument: Option<u64>,
    message: String,
}

impl From<String> for Mistake {
    fn from(message: String) -> Self {
        Mistake {
            argument: None,
            message,
        }
    }
}

/// Checks each clause with its argument. Returns the number of clauses.
fn clauses(text: &str, arguments: &[IdedExpr], checked: &Checked) -> Result<usize, Mistake> {
    let mut used = 0;
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        rest = &rest[at + 1..];
        if let [b'%', after @ ..] = rest {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err("unexpected end of string".to_owned().into());
        }
        let Some(argument) = arguments.get(used) else {
            return Err(format!("index {used} out of range").into());
        };
        used += 1;
        let (clause, after) =
            clause(rest).map_err(|message| format!("could not parse formatting clause: {message}"))?;
        rest = after;
        fits(clause, argument, checked)?;
    }
    Ok(used)
}

/// Returns the letter of a clause, behind its precision, and the text after it.
fn clause(text: &[u8]) -> Result<(u8, &[u8]), String> {
    let mut rest = text;
    if let [b'.', digits @ ..] = text {
        let end = digits
            .iter()
            .position(|b| !b.is_ascii_digit())
            .ok_or("error while parsing precision: could not find end of precision specifier")?;
        let digits_text = String::from_utf8_lossy(&digits[..end]);
        if digits_text.parse::<i64>().is_err() {
            let why = if end == 0 {
                "invalid syntax"
            } else {
                "value out of range"
            };
            return Err(format!(
                "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing \
                \"{digits_text}\": {why}"
            ));
        }
        rest = &digits[end..];
    }
    match rest {
        [
            letter @ (b's' | b'd' | b'f' | b'e' | b'b' | b'x' | b'X' | b'o'),
            after @ ..,
        ] => Ok((*letter, after)),
        // One byte of a longer character is shown as the character of that number, as in cel-go.
        [other, ..] => Err(format!("unrecognized formatting clause \"{}\"", char::from(*other))),
        [] => Err("unexpected end of string".to_owned()),
    }
}

fn fits(clause: u8, argument: &IdedExpr, checked: &Checked) -> Result<(), Mistake> {
    if clause == b's' {
        return shows(argument, checked);
    }
    let ty = checked.ty(argument.id);
    let (fits, takes) = match clause {
        b'd' => (
            matches!(ty, Type::Int | Type::Uint),
            "decimal clause can only be used on integers",
        ),
        b'o' => (
            matches!(ty, Type::Int | Type::Uint),
            "octal clause can only be used on integers",
        ),
        b'f' => (
            matches!(ty, Type::Double | Type::String),
            "fixed-point clause can only be used on doubles",
        ),
        b'e' => (
            matches!(ty, Type::Double | Type::String),
            "scientific clause can only be used on doubles",
        ),
        b'b' => (
            matches!(ty, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        _ => (
            matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
    };
    if fits || *ty == Type::Dyn {
        return Ok(());
    }
    Err(given(argument.id, takes, ty))
}

/// Checks that `%s` can show a value, including the parts of a literal.
fn shows(argument: &IdedExpr, checked: &Checked) -> Result<(), Mistake> {
    let ty = checked.ty(argument.id);
    if matches!(ty, Type::Optional(_) | Type::Opaque(_) | Type::Object(_)) {
        return Err(given(
            argument.id,
            &format!("string clause can only be used on {SHOWN}"),
            ty,
        ));
    }
    match &argument.expr {
        Expr::List(list) => list.elements.iter().try_for_each(|e| shows(e, checked)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                shows(&entry.key, checked)?;
                shows(&entry.value, checked)
            }
            EntryExpr::StructField(_) => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn given(argument: u64, takes: &str, ty: &Type) -> Mistake {
    Mistake {
        argument: Some(argument),
        message: format!("error during formatting: {takes}, was given {}", ty.runtime_name()),
    }
}
