//! Kubernetes' quantity functions: `quantity('1.5Gi')`.

use super::opaque::{opaque, text_argument};
use super::{Context, Function, global, member};
use crate::amount::{DIGITS_MAX, Quantity};
use crate::error::{EvalError, invalid, no_overload};
use crate::opaque::Opaque;
use crate::value::{Result, Val};

pub(super) static FUNCTIONS: &[Function] = &[
    global(
        "quantity",
        &["string_to_quantity: (string) -> kubernetes.Quantity"],
        |cx, a| {
            let quantity = Quantity::parse(text_argument(cx, a, "quantity")?).map_err(invalid)?;
            made(cx, quantity)
        },
    ),
    global("isQuantity", &["is_quantity_string: (string) -> bool"], |cx, a| {
        Ok(Val::Bool(Quantity::parse(text_argument(cx, a, "isQuantity")?).is_ok()))
    }),
    global("sign", &["quantity_sign: (kubernetes.Quantity) -> int"], |_, a| {
        Ok(Val::Int(one(a, "sign")?.sign() as i64))
    }),
    member(
        "isInteger",
        &["quantity_is_integer: kubernetes.Quantity.() -> bool"],
        |_, a| Ok(Val::Bool(one(a, "isInteger")?.integer().is_some())),
    ),
    member(
        "asInteger",
        &["quantity_get_int: kubernetes.Quantity.() -> int"],
        |_, a| {
            let integer = one(a, "asInteger")?.integer();
            integer
                .map(Val::Int)
                .ok_or_else(|| invalid("cannot convert value to integer"))
        },
    ),
    member(
        "asApproximateFloat",
        &["quantity_get_float: kubernetes.Quantity.() -> double"],
        |_, a| Ok(Val::Double(one(a, "asApproximateFloat")?.to_f64())),
    ),
    member(
        "add",
        &[
            "quantity_add: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
            "quantity_add_int: kubernetes.Quantity.(int) -> kubernetes.Quantity",
        ],
        |cx, a| {
            let (a, b) = operands(a, "add")?;
            sum(cx, &a, &b)
        },
    ),
    member(
        "sub",
        &[
            "quantity_sub: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
            "quantity_sub_int: kubernetes.Quantity.(int) -> kubernetes.Quantity",
        ],
        |cx, a| {
            let (a, b) = operands(a, "sub")?;
            sum(cx, &a, &b.negated())
        },
    ),
];

/// Returns a quantity as a value, charged by its digits.
fn made<'v>(cx: &mut Context<'_>, quantity: Quantity) -> Result<'v> {
    let digits = quantity.digits();
    cx.budget.traverse(digits)?;
    cx.budget.memory(digits)?;
    opaque(cx, Opaque::Quantity(quantity))
}

fn sum<'v>(cx: &mut Context<'_>, a: &Quantity, b: &Quantity) -> Result<'v> {
    let sum = a.plus(b);
    made(
        cx,
        sum.ok_or_else(|| invalid(format!("a sum of quantities exceeds {DIGITS_MAX} digits")))?,
    )
}

fn one<'s>(args: &'s [Val<'_>], name: &'static str) -> std::result::Result<&'s Quantity, EvalError> {
    match args {
        [Val::Opaque(value)] => match &**value {
            Opaque::Quantity(quantity) => Ok(quantity),
            _ => Err(no_overload(name)),
        },
        _ => Err(no_overload(name)),
    }
}

fn operands(args: &[Val<'_>], name: &'static str) -> std::result::Result<(Quantity, Quantity), EvalError> {
    match args {
        [_, Val::Int(integer)] => Ok((one(&args[..1], name)?.clone(), Quantity::of_integer(*integer))),
        [_, _] => Ok((one(&args[..1], name)?.clone(), one(&args[1..], name)?.clone())),
        _ => Err(no_overload(name)),
    }
}
