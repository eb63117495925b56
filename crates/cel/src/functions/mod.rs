//! The functions that expressions may call, by name, style and number of arguments.
//!
//! One table, searched when a program is compiled; evaluation calls through the found entry. Overloads by type are
//! told apart at run time inside each function.

mod convert;
mod lists;
pub(crate) mod quantity;
mod sets;
mod strings;
mod text;
pub(crate) mod time;

use crate::cost::Budget;
use crate::error::{EvalError, no_overload};
use crate::eval::Result;
use crate::value::Val;
use std::fmt;
use std::rc::Rc;

/// What functions may use besides their arguments.
pub(crate) struct Context<'m> {
    pub(crate) budget: &'m mut Budget,
    /// Patterns that are not constants, compiled once an evaluation while they are few.
    patterns: Vec<(String, ::regex::Regex)>,
}

/// Dynamic patterns kept; more are compiled, and paid for, again.
const PATTERNS_KEPT_MAX: usize = 4;
/// Price of compiling a pattern, besides one unit a byte.
const PATTERN_COMPILE_COST: u64 = 2_000;

impl<'m> Context<'m> {
    pub(crate) fn new(budget: &'m mut Budget) -> Self {
        Self {
            budget,
            patterns: Vec::new(),
        }
    }

    fn is_match(&mut self, text: &str, pattern: &str) -> std::result::Result<bool, EvalError> {
        crate::regex::charge(self.budget, text, pattern.len())?;
        if let Some((_, compiled)) = self.patterns.iter().find(|(p, _)| p == pattern) {
            return Ok(compiled.is_match(text));
        }
        self.budget.charge(PATTERN_COMPILE_COST + pattern.len() as u64)?;
        let compiled = crate::regex::compile(pattern).map_err(EvalError::InvalidArgument)?;
        let result = compiled.is_match(text);
        if self.patterns.len() == PATTERNS_KEPT_MAX {
            self.patterns.remove(0);
        }
        self.patterns.push((pattern.to_owned(), compiled));
        Ok(result)
    }
}

type Implementation = for<'v> fn(&mut Context<'_>, &[Val<'v>]) -> Result<'v>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Global,
    Member,
    /// `size(x)` and `x.size()`.
    Both,
}

/// One callable.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    style: Style,
    /// Numbers of arguments, the receiver included.
    arguments: (usize, usize),
    pub(crate) call: Implementation,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn global(name: &'static str, min: usize, max: usize, call: Implementation) -> Function {
    Function {
        name,
        style: Style::Global,
        arguments: (min, max),
        call,
    }
}

const fn member(name: &'static str, min: usize, max: usize, call: Implementation) -> Function {
    Function {
        name,
        style: Style::Member,
        arguments: (min, max),
        call,
    }
}

const fn both(name: &'static str, count: usize, call: Implementation) -> Function {
    Function {
        name,
        style: Style::Both,
        arguments: (count, count),
        call,
    }
}

/// The result of looking a function up.
pub(crate) enum Found {
    Function(&'static Function),
    WrongArguments,
    Nothing,
}

pub(crate) fn find(name: &str, is_member: bool, count: usize) -> Found {
    let mut result = Found::Nothing;
    let tables = [
        CORE,
        strings::FUNCTIONS,
        text::FUNCTIONS,
        lists::FUNCTIONS,
        convert::FUNCTIONS,
        time::FUNCTIONS,
        sets::FUNCTIONS,
        quantity::FUNCTIONS,
    ];
    for function in tables.into_iter().flatten().filter(|f| f.name == name) {
        let style = match function.style {
            Style::Both => true,
            style => (style == Style::Member) == is_member,
        };
        if style && (function.arguments.0..=function.arguments.1).contains(&count) {
            return Found::Function(function);
        }
        result = Found::WrongArguments;
    }
    result
}

/// Names that are types when no variable has them: `type(x) == int`.
pub(crate) fn type_constant(name: &str) -> Option<&'static str> {
    const TYPES: [&str; 13] = [
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "null_type",
        "optional_type",
        "string",
        "type",
        "uint",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
    ];
    TYPES.into_iter().find(|t| *t == name)
}

static CORE: &[Function] = &[
    both("size", 1, size),
    both("matches", 2, matches),
    global("dyn", 1, 1, |_, args| match args {
        [value] => Ok(value.clone()),
        _ => Err(no_overload("dyn")),
    }),
    global("type", 1, 1, |_, args| match args {
        [value] => Ok(Val::Type(value.type_name())),
        _ => Err(no_overload("type")),
    }),
    global("optional.of", 1, 1, |_, args| match args {
        [value] => Ok(Val::some(value.clone())),
        _ => Err(no_overload("optional.of")),
    }),
    global("optional.none", 0, 0, |_, _| Ok(Val::Optional(None))),
    global("optional.ofNonZeroValue", 1, 1, |_, args| match args {
        [value] if is_zero(value) => Ok(Val::Optional(None)),
        [value] => Ok(Val::some(value.clone())),
        _ => Err(no_overload("optional.ofNonZeroValue")),
    }),
    member("value", 1, 1, |_, args| match args {
        [Val::Optional(Some(inner))] => Ok((**inner).clone()),
        [Val::Optional(None)] => Err(crate::error::invalid("optional.none() dereference")),
        _ => Err(no_overload("value")),
    }),
];

fn size<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [value] = args else { return Err(no_overload("size")) };
    if let Some(text) = value.as_str() {
        cx.budget.traverse(text.len())?;
        return integer(text.chars().count());
    }
    match value {
        Val::Bytes(bytes) => integer(bytes.len()),
        _ => match value.items() {
            Some(items) => integer(items.len()),
            None => integer(value.map_len().ok_or(no_overload("size"))?),
        },
    }
}

fn matches<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let (text, pattern) = two_strings(args, "matches")?;
    Ok(Val::Bool(cx.is_match(text, pattern)?))
}

/// The zero value of its type, as `ofNonZeroValue` has it.
fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(b) => !b,
        Val::Int(i) => *i == 0,
        Val::Uint(u) => *u == 0,
        Val::Double(d) => *d == 0.0,
        Val::Duration(nanos) => *nanos == 0,
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::Timestamp(_) | Val::Type(_) | Val::Quantity(_) | Val::Optional(_) => false,
        Val::Str(_) | Val::String(_) | Val::JsonList(_) | Val::List(_) | Val::JsonMap(_) | Val::Map(_) => {
            value.as_str().is_some_and(str::is_empty)
                || value.items().is_some_and(|i| i.len() == 0)
                || value.map_len() == Some(0)
        }
    }
}

/// A length or index as a value.
fn integer<'v>(number: usize) -> Result<'v> {
    i64::try_from(number)
        .map(Val::Int)
        .map_err(|_| EvalError::Overflow("integer"))
}

/// Two text arguments.
fn two_strings<'s>(args: &'s [Val<'_>], function: &'static str) -> std::result::Result<(&'s str, &'s str), EvalError> {
    match args {
        [a, b] => a.as_str().zip(b.as_str()).ok_or(no_overload(function)),
        _ => Err(no_overload(function)),
    }
}

/// Text made by a function, its memory charged.
fn made<'v>(cx: &mut Context<'_>, text: String) -> Result<'v> {
    cx.budget.memory(text.len())?;
    Ok(Val::String(Rc::from(text)))
}
