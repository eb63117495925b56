//! Regular expression functions: `matches`, `find`, `findAll`.

use super::{Context, Function, PART_BYTES, both, made, member, two_strings};
use crate::error::{EvalError, invalid, no_overload};
use crate::regex;
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
            let (sizes, pattern) = ((text, pattern.len()), cx.pattern(pattern).map_err(shown_as(""))?);
            let matched = regex::paid(cx.budget, sizes, |work| pattern.regexp().is_match(text, work))?;
            Ok(Val::Bool(matched))
        },
    ),
    member("find", &["string_find_string: string.(string) -> string"], |cx, a| {
        let (text, pattern) = two_strings(a, "find")?;
        let (sizes, pattern) = (
            (text, pattern.len()),
            cx.pattern(pattern).map_err(shown_as("Illegal regex: "))?,
        );
        let found = regex::paid(cx.budget, sizes, |work| pattern.find_at(text, 0, work))?;
        let found = found.and_then(|range| text.get(range)).unwrap_or("");
        made(cx, found.to_owned())
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
    let (bytes, pattern) = (pattern.len(), cx.pattern(pattern).map_err(shown_as("Illegal regex: "))?);
    let mut found: Vec<Val<'v>> = Vec::new();
    let (mut from, mut last_end) = (0, None);
    while found.len() < limit {
        let rest = text.get(from..).unwrap_or("");
        let next = regex::paid(cx.budget, (rest, bytes), |work| pattern.find_at(text, from, work))?;
        let Some(range) = next else { break };
        // Go skips an empty match right after another match.
        if range.is_empty() && last_end == Some(range.start) {
            let Some(skipped) = rest.chars().next() else { break };
            from += skipped.len_utf8();
            continue;
        }
        (from, last_end) = (range.end, Some(range.end));
        cx.budget.memory(range.len() + PART_BYTES)?;
        found.push(Val::string(text.get(range).unwrap_or("")));
    }
    Ok(Val::list(found))
}
