//! The functions of expressions, by name, style and number of arguments.
//!
//! One table, searched when a program is compiled; evaluation calls through the entry. Each
//! function resolves overloads by type at run time.

mod address;
mod authorizer;
mod convert;
mod documents;
mod format;
mod lists;
pub(crate) mod math;
mod opaque;
mod optionals;
mod patterns;
mod quantity;
mod quote;
mod sets;
pub(crate) mod signature;
mod spans;
mod strings;
mod text;
pub(crate) mod time;
mod url;
mod version;
mod yaml;

use crate::cost::Budget;
use crate::error::{EvalError, Overflowing, invalid, no_overload};
use crate::regex::Pattern;
use crate::value::{Result, Val};
use insula_goformat::regexp::Finder;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use authorizer::{authorizer_value, check_value};
pub(crate) use signature::{Overload, is_for_conversion, is_for_patches, overloads};

/// Evaluation state that functions use besides their arguments.
pub(crate) struct Context<'m> {
    pub(crate) budget: &'m mut Budget,
    /// Constant patterns, compiled with the program.
    constants: &'m [Pattern],
    /// Cache of patterns that are not constants, compiled once an evaluation.
    patterns: Vec<Pattern>,
}

/// Dynamic patterns in the cache. Others are compiled, and charged, again.
const PATTERNS_KEPT_MAX: usize = 4;

impl<'m> Context<'m> {
    pub(crate) fn new(budget: &'m mut Budget, constants: &'m [Pattern]) -> Self {
        Self {
            budget,
            constants,
            patterns: Vec::new(),
        }
    }

    /// Returns a compiled pattern, and charges for compiling it.
    fn pattern(&mut self, pattern: &str) -> std::result::Result<Arc<Finder>, EvalError> {
        let mut known = self.constants.iter().chain(&self.patterns);
        if let Some(known) = known.find(|p| *p.text == *pattern) {
            return Ok(known.compiled.clone());
        }
        let compiled = crate::regex::compile_paid(pattern, self.budget)?;
        let compiled = Arc::new(compiled.map_err(|why| invalid(why.to_string()))?);
        if self.patterns.len() == PATTERNS_KEPT_MAX {
            self.patterns.remove(0);
        }
        self.patterns.push(Pattern {
            text: pattern.into(),
            compiled: compiled.clone(),
        });
        Ok(compiled)
    }
}

/// Bytes of one of many texts besides its characters: its allocation, its slot in the list, and its
/// slot in the shorter list that is copied when the list grows.
const PART_BYTES: usize = 4 * size_of::<Val<'_>>();

type Implementation = for<'v> fn(&mut Context<'_>, &[Val<'v>]) -> Result<'v>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Global,
    Member,
    /// `size(x)` and `x.size()`.
    Both,
}

/// A function of expressions.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    style: Style,
    /// Types of arguments and result, one text for each overload; see `signature`.
    signatures: &'static [&'static str],
    pub(crate) call: Implementation,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn function(
    style: Style,
    name: &'static str,
    signatures: &'static [&'static str],
    call: Implementation,
) -> Function {
    Function {
        name,
        style,
        signatures,
        call,
    }
}

const fn global(name: &'static str, signatures: &'static [&'static str], call: Implementation) -> Function {
    function(Style::Global, name, signatures, call)
}

const fn member(name: &'static str, signatures: &'static [&'static str], call: Implementation) -> Function {
    function(Style::Member, name, signatures, call)
}

const fn both(name: &'static str, signatures: &'static [&'static str], call: Implementation) -> Function {
    function(Style::Both, name, signatures, call)
}

/// Returns the tables of all functions.
fn tables() -> [&'static [Function]; 20] {
    [
        CORE,
        optionals::FUNCTIONS,
        strings::FUNCTIONS,
        text::FUNCTIONS,
        lists::FUNCTIONS,
        convert::FUNCTIONS,
        time::FUNCTIONS,
        sets::FUNCTIONS,
        opaque::FUNCTIONS,
        quantity::FUNCTIONS,
        authorizer::FUNCTIONS,
        format::FUNCTIONS,
        address::FUNCTIONS,
        patterns::FUNCTIONS,
        url::FUNCTIONS,
        version::FUNCTIONS,
        math::FUNCTIONS,
        documents::FUNCTIONS,
        yaml::FUNCTIONS,
        spans::FUNCTIONS,
    ]
}

/// Result of a function lookup.
pub(crate) enum Found {
    Function(&'static Function),
    WrongArguments,
    Nothing,
}

/// Finds a function by name, style and number of arguments, the receiver included.
pub(crate) fn find(name: &str, is_member: bool, count: usize) -> Found {
    let count = math::arity(name, count);
    let mut result = Found::Nothing;
    for function in tables().into_iter().flatten().filter(|f| f.name == name) {
        let style = match function.style {
            Style::Both => true,
            style => (style == Style::Member) == is_member,
        };
        let fits = |o: &Overload| o.receiver == is_member && o.arguments.len() == count;
        if style && overloads(name).iter().any(fits) {
            return Found::Function(function);
        }
        result = Found::WrongArguments;
    }
    result
}

/// Returns the type constant of a name that no variable has: `type(x) == int`.
pub(crate) fn type_constant(name: &str) -> Option<&'static str> {
    const TYPES: [&str; 15] = [
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
        "net.IP",
        "net.CIDR",
    ];
    TYPES.into_iter().find(|t| *t == name)
}

/// Returns true for the names of types in messages: those of constants, and `dyn`.
pub fn is_type_name(name: &str) -> bool {
    name == "dyn" || type_constant(name).is_some()
}

/// Returns the error for arguments of wrong types, as cel-go words it: most functions name
/// themselves and the given types, the oldest do not.
#[cold]
pub(crate) fn no_such_overload(name: &'static str, arguments: &[Val<'_>]) -> EvalError {
    let types: Vec<&str> = arguments.iter().map(Val::type_name).collect();
    let call = match (name, types.as_slice()) {
        ("contains" | "startsWith" | "endsWith" | "matches", _) => String::new(),
        ("containsIP", [_, "string"]) | ("sort", ["string"]) => String::new(),
        ("size" | "sort", _) => name.to_owned(),
        (math::GREATEST | math::LEAST, _) => {
            format!("{}({})", math::shown(name).unwrap_or(name), types.join(", "))
        }
        ("flatten", [target, others @ ..]) => format!("{target}.flatten({})", others.join(", ")),
        _ => format!("{name}({})", types.join(", ")),
    };
    EvalError::NoSuchOverload { call: call.into() }
}

static CORE: &[Function] = &[
    both(
        "size",
        &[
            "size_bytes: (bytes) -> int",
            "bytes_size: bytes.() -> int",
            "size_list: (list(A)) -> int",
            "list_size: list(A).() -> int",
            "size_map: (map(A, B)) -> int",
            "map_size: map(A, B).() -> int",
            "size_string: (string) -> int",
            "string_size: string.() -> int",
        ],
        size,
    ),
    global("dyn", &["to_dyn: (A) -> dyn"], |_, args| match args {
        [value] => Ok(value.clone()),
        _ => Err(no_overload("dyn")),
    }),
    global("type", &["type: (A) -> type(A)"], |_, args| match args {
        [value] => Ok(Val::Type(value.type_name())),
        _ => Err(no_overload("type")),
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
            None => integer(value.map_len().ok_or_else(|| no_overload("size"))?),
        },
    }
}

/// Returns a length or index as a value.
fn integer<'v>(number: usize) -> Result<'v> {
    i64::try_from(number)
        .map(Val::Int)
        .map_err(|_| EvalError::Overflow(Overflowing::Int))
}

/// Returns the two text arguments of a function.
fn two_strings<'s>(args: &'s [Val<'_>], function: &'static str) -> std::result::Result<(&'s str, &'s str), EvalError> {
    match args {
        [a, b] => a.as_str().zip(b.as_str()).ok_or_else(|| no_overload(function)),
        _ => Err(no_overload(function)),
    }
}

/// Returns a computed text as a value and charges its memory.
fn made<'v>(cx: &mut Context<'_>, text: String) -> Result<'v> {
    cx.budget.allocation(text.len())?;
    Ok(Val::String(Rc::from(text)))
}
