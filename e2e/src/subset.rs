//! Comparison of an answer with an expected part of it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Values captured from earlier answers, by name.
pub type Captures = BTreeMap<String, String>;

/// Compares `got` with an expected part of it.
///
/// Scalars must be equal, maps may have more fields, lists must have the same length. Special
/// strings: `*` matches any present value, `!absent` an absent one, `~part` a string that contains
/// `part`; `<name>` captures the value as `name`. A map expected of a list selects items:
/// `type=Ready` (by a field), `0` (by index), `len` (the length).
pub fn matches(want: &Value, got: Option<&Value>, captures: &mut Captures) -> Result<(), String> {
    compare(want, got, "", captures)
}

fn compare(want: &Value, got: Option<&Value>, path: &str, captures: &mut Captures) -> Result<(), String> {
    let wrong = |got: &Value| Err(format!("{path}: want {want}, got {got}"));
    if want == "!absent" {
        return got.map_or(Ok(()), wrong);
    }
    let Some(got) = got else {
        return Err(format!("{path}: want {want}, got nothing"));
    };
    match (want, got) {
        (Value::String(text), _) => compare_text(text, got, captures).or_else(|()| wrong(got)),
        (Value::Object(fields), Value::Object(found)) => fields
            .iter()
            .try_for_each(|(key, want)| compare(want, found.get(key), &format!("{path}.{key}"), captures)),
        (Value::Object(picks), Value::Array(items)) => picks
            .iter()
            .try_for_each(|(pick, want)| picked(pick, want, items, path, captures)),
        (Value::Array(wants), Value::Array(items)) => {
            if wants.len() != items.len() {
                return Err(format!(
                    "{path}: want {} items, got {}: {got}",
                    wants.len(),
                    items.len()
                ));
            }
            let mut pairs = wants.iter().zip(items).enumerate();
            pairs.try_for_each(|(i, (want, item))| compare(want, Some(item), &format!("{path}[{i}]"), captures))
        }
        (want, got) if want == got => Ok(()),
        (_, got) => wrong(got),
    }
}

fn compare_text(want: &str, got: &Value, captures: &mut Captures) -> Result<(), ()> {
    let text = match got {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some(name) = want.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        captures.insert(name.to_owned(), text);
        return Ok(());
    }
    let fits = match want.strip_prefix('~') {
        Some(part) => text.contains(part),
        None => want == "*" || got == want,
    };
    fits.then_some(()).ok_or(())
}

fn picked(pick: &str, want: &Value, items: &[Value], path: &str, captures: &mut Captures) -> Result<(), String> {
    let path = format!("{path}[{pick}]");
    if pick == "len" {
        return compare(want, Some(&items.len().into()), &path, captures);
    }
    let item = match (pick.split_once('='), pick.parse::<usize>()) {
        (Some((field, value)), _) => items.iter().find(|item| item[field] == value),
        (None, Ok(place)) => items.get(place),
        (None, Err(_)) => return Err(format!("{path}: a list has no such field")),
    };
    compare(want, item, &path, captures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_is_enough_and_a_difference_is_named() {
        let got = json!({"a": 1, "s": "hello", "l": [{"type": "Ready", "status": "True"}, {"type": "Old"}]});
        let mut captures = Captures::new();
        for want in [
            json!({"a": 1}),
            json!({"s": "~ell", "b": "!absent", "l": "*"}),
            json!({"l": {"type=Ready": {"status": "True"}, "len": 2, "1": {"type": "Old"}, "type=New": "!absent"}}),
            json!({"l": [{"type": "Ready"}, {}], "s": "<word>"}),
        ] {
            assert_eq!(matches(&want, Some(&got), &mut captures), Ok(()));
        }
        assert_eq!(captures["word"], "hello");
        for (want, expected) in [
            (json!({"a": 2}), ".a: want 2, got 1"),
            (json!({"a": "!absent"}), ".a: want \"!absent\", got 1"),
            (json!({"b": {}}), ".b: want {}, got nothing"),
            (
                json!({"l": {"type=Ready": {"status": "False"}}}),
                ".l[type=Ready].status: want \"False\", got \"True\"",
            ),
        ] {
            assert_eq!(matches(&want, Some(&got), &mut captures), Err(expected.to_owned()));
        }
        assert!(
            matches(&json!({"l": []}), Some(&got), &mut captures)
                .unwrap_err()
                .starts_with(".l: want 0 items, got 2")
        );
    }
}
