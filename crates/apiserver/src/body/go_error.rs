//! Errors of `serde_json` in the words of Go's `encoding/json`, which clients know.

/// Returns the number of an error about a number that no float can hold: the parser stops within or
/// behind it.
pub(super) fn number_beyond(error: &serde_json::Error, bytes: &[u8]) -> Option<String> {
    if !error.to_string().starts_with("number out of range") {
        return None;
    }
    let of_number = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let stop = offset_of(bytes, error.line(), error.column()).min(bytes.len());
    let (before, after) = bytes.split_at(stop);
    let begin = stop - before.iter().rev().take_while(of_number).count();
    let end = stop + after.iter().take_while(of_number).count();
    Some(String::from_utf8_lossy(&bytes[begin..end]).into_owned())
}

/// Returns a `serde_json` error in the words of Go's `encoding/json`.
pub(super) fn go_json_error(error: &serde_json::Error, bytes: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    if error.is_data() {
        return text;
    }
    let offset = offset_of(bytes, error.line(), error.column());
    let Some(character) = character_at(bytes, offset) else {
        return text;
    };
    let place = [
        ("trailing characters", "after top-level value"),
        ("expected value", "looking for beginning of value"),
        ("trailing comma", "looking for beginning of value"),
        ("key must be a string", "looking for beginning of object key string"),
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
    ];
    match place.iter().find(|(ours, _)| text.starts_with(ours)) {
        Some((_, go)) => format!("invalid character {character} {go}"),
        None if text.starts_with("recursion limit") => "exceeded max depth".to_owned(),
        None => text,
    }
}

/// Returns the byte index of a `serde_json` position (line and column from 1, the column in bytes).
fn offset_of(bytes: &[u8], line: usize, column: usize) -> usize {
    let start = match line {
        0 | 1 => 0,
        _ => bytes
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b'\n')
            .nth(line - 2)
            .map_or(0, |(at, _)| at + 1),
    };
    start + column.saturating_sub(1)
}

fn character_at(bytes: &[u8], offset: usize) -> Option<String> {
    let rest = bytes.get(offset..)?;
    let text = String::from_utf8_lossy(&rest[..rest.len().min(4)]);
    let first = text.chars().next()?;
    Some(if first == '\'' {
        r"'\''".to_owned()
    } else {
        format!("'{}'", first.escape_debug())
    })
}
