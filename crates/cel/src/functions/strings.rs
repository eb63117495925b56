//! String functions: the standard ones and the extension's. Positions count code points.

use super::quote::quoted;
use super::{Context, Function, PART_BYTES, global, integer, made, member, two_strings};
use crate::error::{EvalError, invalid, no_overload};
use crate::value::{Result, Val};

pub(super) static FUNCTIONS: &[Function] = &[
    member("contains", &["contains_string: string.(string) -> bool"], |cx, a| {
        test(cx, a, "contains", |s, p| s.contains(p))
    }),
    member(
        "startsWith",
        &["starts_with_string: string.(string) -> bool"],
        |cx, a| test(cx, a, "startsWith", |s, p| s.starts_with(p)),
    ),
    member("endsWith", &["ends_with_string: string.(string) -> bool"], |cx, a| {
        test(cx, a, "endsWith", |s, p| s.ends_with(p))
    }),
    member("lowerAscii", &["string_lower_ascii: string.() -> string"], |cx, a| {
        map(cx, a, "lowerAscii", |s| s.to_ascii_lowercase())
    }),
    member("upperAscii", &["string_upper_ascii: string.() -> string"], |cx, a| {
        map(cx, a, "upperAscii", |s| s.to_ascii_uppercase())
    }),
    member("trim", &["string_trim: string.() -> string"], |cx, a| {
        map(cx, a, "trim", |s| s.trim().to_owned())
    }),
    member("charAt", &["string_char_at_int: string.(int) -> string"], char_at),
    member(
        "substring",
        &[
            "string_substring_int: string.(int) -> string",
            "string_substring_int_int: string.(int, int) -> string",
        ],
        substring,
    ),
    member(
        "split",
        &[
            "string_split_string: string.(string) -> list(string)",
            "string_split_string_int: string.(string, int) -> list(string)",
        ],
        split,
    ),
    member(
        "join",
        &[
            "list_join: list(string).() -> string",
            "list_join_string: list(string).(string) -> string",
        ],
        join,
    ),
    member(
        "replace",
        &[
            "string_replace_string_string: string.(string, string) -> string",
            "string_replace_string_string_int: string.(string, string, int) -> string",
        ],
        replace,
    ),
    global(
        "jsonpatch.escapeKey",
        &["string_jsonpatch_escapeKey_string: (string) -> string"],
        |cx, a| {
            map(cx, a, "jsonpatch.escapeKey", |s| {
                s.replace('~', "~0").replace('/', "~1")
            })
        },
    ),
    global("strings.quote", &["strings_quote: (string) -> string"], |cx, a| {
        map(cx, a, "strings.quote", quoted)
    }),
];

fn test<'v>(
    cx: &mut Context<'_>,
    args: &[Val<'v>],
    name: &'static str,
    holds: impl Fn(&str, &str) -> bool,
) -> Result<'v> {
    let (text, part) = two_strings(args, name)?;
    // The library's search is linear in the sum of both lengths; `contains` may have to read both.
    cx.budget.traverse(if name == "contains" {
        text.len() + part.len()
    } else {
        part.len()
    })?;
    Ok(Val::Bool(holds(text, part)))
}

fn map<'v>(cx: &mut Context<'_>, args: &[Val<'v>], name: &'static str, change: impl Fn(&str) -> String) -> Result<'v> {
    let [value] = args else { return Err(no_overload(name)) };
    let text = value.as_str().ok_or_else(|| no_overload(name))?;
    cx.budget.traverse(text.len())?;
    made(cx, change(text))
}

fn char_at<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [text, Val::Int(index)] = args else {
        return Err(no_overload("charAt"));
    };
    let text = text.as_str().ok_or_else(|| no_overload("charAt"))?;
    cx.budget.traverse(text.len())?;
    let position = usize::try_from(*index).map_err(|_| out_of_range(*index))?;
    match text.chars().nth(position) {
        Some(c) => made(cx, c.to_string()),
        // The position after the last character gives the empty string, as in cel-go.
        None if text.chars().count() == position => Ok(Val::Str("")),
        None => Err(out_of_range(*index)),
    }
}

fn out_of_range(index: i64) -> EvalError {
    invalid(format!("index out of range: {index}"))
}

/// Returns the byte offset of a code point, or of the end.
pub(super) fn offset(text: &str, position: i64) -> std::result::Result<usize, EvalError> {
    let wanted = usize::try_from(position).map_err(|_| out_of_range(position))?;
    let ends = std::iter::once(text.len());
    text.char_indices()
        .map(|(i, _)| i)
        .chain(ends)
        .nth(wanted)
        .ok_or(out_of_range(position))
}

fn substring<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [text, Val::Int(start), rest @ ..] = args else {
        return Err(no_overload("substring"));
    };
    let text = text.as_str().ok_or_else(|| no_overload("substring"))?;
    cx.budget.traverse(text.len())?;
    let (from, to) = match rest {
        [] => (offset(text, *start)?, text.len()),
        [Val::Int(end)] if start > end => {
            return Err(invalid(format!("invalid substring range. start: {start}, end: {end}")));
        }
        [Val::Int(end)] => (offset(text, *start)?, offset(text, *end)?),
        _ => return Err(no_overload("substring")),
    };
    made(cx, text.get(from..to).unwrap_or_default().to_owned())
}

fn split<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [text, separator, rest @ ..] = args else {
        return Err(no_overload("split"));
    };
    let (text, separator) = text
        .as_str()
        .zip(separator.as_str())
        .ok_or_else(|| no_overload("split"))?;
    let limit = match rest {
        [] => usize::MAX,
        [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return Err(no_overload("split")),
    };
    cx.budget.traverse(text.len())?;
    if limit == 0 {
        return Ok(Val::list(Vec::new()));
    }
    let mut parts: Vec<Val<'v>> = Vec::new();
    let mut push = |part: &str| {
        cx.budget.memory(part.len() + PART_BYTES)?;
        parts.push(Val::string(part));
        Ok::<(), EvalError>(())
    };
    if separator.is_empty() {
        let mut rest = text;
        for _ in 1..limit {
            let Some(c) = rest.chars().next() else { break };
            push(&rest[..c.len_utf8()])?;
            rest = &rest[c.len_utf8()..];
        }
        if !rest.is_empty() {
            push(rest)?;
        }
    } else {
        for part in text.splitn(limit, separator) {
            push(part)?;
        }
    }
    Ok(Val::list(parts))
}

fn join<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [list, rest @ ..] = args else {
        return Err(no_overload("join"));
    };
    let items = list.items().ok_or_else(|| no_overload("join"))?;
    let separator = match rest {
        [] => "",
        [separator] => separator.as_str().ok_or_else(|| no_overload("join"))?,
        _ => return Err(no_overload("join")),
    };
    // Charged before joining: a growing text takes up to three times its size.
    let mut bytes = 0;
    for (i, item) in items.iter().enumerate() {
        let item = item.as_str().ok_or_else(|| no_overload("join"))?;
        let separator = if i == 0 { "" } else { separator };
        cx.budget.charge(1)?;
        cx.budget.traverse(item.len() + separator.len())?;
        cx.budget.memory(item.len() + separator.len())?;
        bytes += item.len() + separator.len();
    }
    let mut text = String::with_capacity(bytes);
    for (i, item) in items.iter().enumerate() {
        text.push_str(if i == 0 { "" } else { separator });
        text.push_str(item.as_str().unwrap_or_default());
    }
    made(cx, text)
}

fn replace<'v>(cx: &mut Context<'_>, args: &[Val<'v>]) -> Result<'v> {
    let [text, old, new, rest @ ..] = args else {
        return Err(no_overload("replace"));
    };
    let (Some(text), Some(old), Some(new)) = (text.as_str(), old.as_str(), new.as_str()) else {
        return Err(no_overload("replace"));
    };
    let limit = match rest {
        [] => usize::MAX,
        [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return Err(no_overload("replace")),
    };
    cx.budget.traverse(text.len())?;
    // The replacements are counted and charged first: many long replacements in a long text would
    // exhaust memory.
    let count = text.matches(old).count().min(limit);
    let bytes = text.len().saturating_add(count.saturating_mul(new.len()));
    cx.budget.traverse(bytes)?;
    cx.budget.memory(bytes)?;
    Ok(Val::string(text.replacen(old, new, count)))
}

/// Evaluates `indexOf` and `lastIndexOf` of strings, for the functions of the same name of lists.
pub(super) fn index_of<'v>(cx: &mut Context<'_>, text: &str, part: &str, from: Option<i64>, last: bool) -> Result<'v> {
    cx.budget.traverse(text.len() + part.len())?;
    if let Some(from) = from {
        // The empty text is found at every position.
        if part.is_empty() {
            return Ok(Val::Int(from));
        }
        if from < 0 {
            return Err(out_of_range(from));
        }
    }
    let start = match from {
        None => None,
        Some(from) => match offset(text, from) {
            Ok(start) if start < text.len() => Some(start),
            _ => return Ok(Val::Int(-1)),
        },
    };
    let found = match (last, start) {
        (false, start) => {
            let start = start.unwrap_or(0);
            text[start..].find(part).map(|i| i + start)
        }
        (true, None) => text.rfind(part),
        (true, Some(start)) => {
            // Only matches that begin at or before `start`.
            let end = (start + part.len()).min(text.len());
            let end = (end..=text.len())
                .find(|i| text.is_char_boundary(*i))
                .unwrap_or(text.len());
            text[..end].rfind(part).filter(|i| *i <= start)
        }
    };
    match found {
        Some(byte) => integer(text[..byte].chars().count()),
        None => Ok(Val::Int(-1)),
    }
}
