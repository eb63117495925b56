//! Regular expression functions: `matches`, `find`, `findAll`.

use super::{Context, Function, PART_BYTES, both, made, member, two_strings};
use crate::error::{EvalError, invalid, no_overload};
use crate::value::{Result, Val};

pub(super) static FUNCTIONS: &[Function] = &[
    both(
        "matches",
        &[
            "matches: (string, string) -> bool",
            "matches_string: string.(string) -> bool",
        ],
        |cx, a| {
            let (text, pattern) = two_strings(a, "matches")?;
            let pattern = cx.pattern(text, pattern).map_err(shown_as(""))?;
            Ok(Val::Bool(pattern.is_match(text)))
        },
    ),
    member("find", &["string_find_string: string.(string) -> string"], |cx, a| {
        let (text, pattern) = two_strings(a, "find")?;
        let pattern = cx.pattern(text, pattern).map_err(shown_as("Illegal regex: "))?;
        made(cx, pattern.find(text).map_or("", |m| m.as_str()).to_owned())
    }),
    member(
        "findAll",
        &[
            "string_find_all_string: string.(string) -> list(string)",
            "string_find_all_string_int: string.(string, int) -> list(string)",
        ],
        find_all,
    ),
];

/// Adds a prefix to the errors of a pattern and leaves others alone.
fn shown_as(prefix: &'static str) -> impl Fn(EvalError) -> EvalError {
    move |error| match error {
        EvalError::InvalidArgument(text) => invalid(format!("{prefix}{text}")),
        error => error,
    }
}

fn find_all<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let (text, limit) = match args {
        [_, _] => (args, usize::MAX),
        // A negative limit means no limit.
        [_, _, Val::Int(limit)] => (&args[..2], usize::try_from(*limit).unwrap_or(usize::MAX)),
        _ => return Err(no_overload("findAll")),
    };
    let (text, pattern) = two_strings(text, "findAll")?;
    let pattern = cx.pattern(text, pattern).map_err(shown_as("Illegal regex: "))?;
    let mut found: Vec<Val<'v>> = Vec::new();
    let mut last_end = None;
    for matched in pattern.find_iter(text) {
        if found.len() >= limit {
            break;
        }
        // Go skips an empty match right after another match.
        if matched.is_empty() && last_end == Some(matched.start()) {
            continue;
        }
        last_end = Some(matched.end());
        cx.budget.memory(matched.len() + PART_BYTES)?;
        found.push(Val::string(matched.as_str()));
    }
    Ok(Val::list(found))
}
