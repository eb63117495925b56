//! Units in names and patterns: `timeoutSeconds` and the text `90s`, `diskMiB` and `512Mi`, `share`
//! with a `%`.

use super::Step;
use insula_schema::Node;

/// Unit of a number, as a multiple of the smallest unit of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Multiple of a millisecond.
    Time(i64),
    Bytes(i64),
    /// Thousandths of a core.
    Millicores,
    Percent,
}

use Unit::{Bytes, Millicores, Percent, Time};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Unit suffixes of names; longer ones before their own suffixes.
const NAMES: &[(&str, Unit)] = &[
    ("milliseconds", Time(1)),
    ("millicores", Millicores),
    ("millicpu", Millicores),
    ("millis", Time(1)),
    ("seconds", Time(1_000)),
    ("minutes", Time(MINUTE)),
    ("percentage", Percent),
    ("percent", Percent),
    ("hours", Time(HOUR)),
    ("bytes", Bytes(1)),
    ("secs", Time(1_000)),
    ("mins", Time(MINUTE)),
    ("days", Time(DAY)),
    ("kib", Bytes(1 << 10)),
    ("mib", Bytes(1 << 20)),
    ("gib", Bytes(1 << 30)),
    ("sec", Time(1_000)),
    ("ms", Time(1)),
    ("kb", Bytes(1_000)),
    ("mb", Bytes(1_000_000)),
    ("gb", Bytes(1_000_000_000)),
];

/// Unit suffixes of texts.
const SUFFIXES: &[(&str, Unit)] = &[
    ("ms", Time(1)),
    ("s", Time(1_000)),
    ("m", Time(MINUTE)),
    ("h", Time(HOUR)),
    ("Ki", Bytes(1 << 10)),
    ("Mi", Bytes(1 << 20)),
    ("Gi", Bytes(1 << 30)),
    ("k", Bytes(1_000)),
    ("M", Bytes(1_000_000)),
    ("G", Bytes(1_000_000_000)),
    ("%", Percent),
];

/// Splits a name that ends with a unit into the rest and the unit.
pub(super) fn named(name: &str) -> Option<(&str, Unit)> {
    let lower = name.to_ascii_lowercase();
    let (suffix, unit) = NAMES.iter().find(|(suffix, _)| lower.ends_with(suffix))?;
    let (rest, word) = name.split_at_checked(name.len() - suffix.len())?;
    // `items` is no time: a word begins with a capital, or after a character that is not a letter.
    let begins = word.starts_with(|c: char| c.is_uppercase()) || !rest.ends_with(char::is_alphanumeric);
    let cores = ["cpu", "core"]
        .iter()
        .any(|word| rest.to_ascii_lowercase().contains(word));
    let unit = if cores && *unit == Time(1) { Millicores } else { *unit };
    begins.then_some((rest.trim_end_matches(['_', '-']), unit))
}

/// Returns the unit suffix of a text whose pattern allows only a number before it.
fn suffix(text: &Node) -> Option<(&'static str, Unit)> {
    let pattern = text.pattern()?.strip_prefix('^')?.strip_suffix('$')?;
    let number = |c: char| c.is_ascii_digit() || "[](){}|?+-.,\\d".contains(c);
    let fits = |(suffix, _): &&(&str, Unit)| {
        let before = pattern.strip_suffix(suffix);
        before.is_some_and(|before| before.chars().all(number) && before.ends_with(['}', ')', ']', '+']))
    };
    SUFFIXES.iter().find(fits).copied()
}

/// Returns expressions from a number to a text and back, with a description; `counts` is the
/// number's unit. `None` if nothing tells the unit.
pub(super) fn number_and_text(number: &Node, counts: Option<Unit>, text: &Node) -> Option<(Step, Step, &'static str)> {
    if text.format() == Some("date-time") {
        return Some((
            Step::new("timestamp(self)"),
            Step::new("int(self)"),
            "seconds since 1970 and a time",
        ));
    }
    // In CEL, a text with this format is a duration.
    if let Some((end, unit)) = suffix(text).filter(|_| text.format() != Some("duration")) {
        let (times, by) = match counts {
            Some(counts) => ratio(counts, unit)?,
            None => (1, 1),
        };
        let forth = format!("string({}) + '{end}'", scaled("self", times, by));
        let back = scaled(&format!("int(self.replace('{end}', ''))"), by, times);
        return Some((Step::new(forth), Step::new(back), "a number and a text with its unit"));
    }
    let (forth, back) = match counts? {
        Time(unit) => duration(unit, text, number.maximum().map(|(most, _)| most))?,
        Bytes(unit) => {
            let (end, _) = SUFFIXES
                .iter()
                .find(|(_, other)| *other == Bytes(unit))
                .unwrap_or(&("", Percent));
            let forth = if end.is_empty() {
                "string(self)".to_owned()
            } else {
                format!("string(self) + '{end}'")
            };
            (forth, scaled("quantity(self).asInteger()", 1, unit))
        }
        Millicores => (
            "string(self) + 'm'".to_owned(),
            "self.endsWith('m') ? int(self.replace('m', '')) : int(self) * 1000".to_owned(),
        ),
        Percent => ("string(self) + '%'".to_owned(), "int(self.replace('%', ''))".to_owned()),
    };
    Some((Step::new(forth), Step::new(back), "a number and a quantity"))
}

fn duration(unit: i64, text: &Node, most: Option<f64>) -> Option<(String, String)> {
    let (times, end, getter) = match unit {
        1 => (1, "ms", "getMilliseconds"),
        1_000 => (1, "s", "getSeconds"),
        MINUTE => (1, "m", "getMinutes"),
        HOUR => (1, "h", "getHours"),
        DAY => (24, "h", "getHours"),
        _ => return None,
    };
    let made = format!("string({}) + '{end}'", scaled("self", times, 1));
    // In CEL, a text with this format is a duration.
    let (forth, whole) = match text.format() {
        Some("duration") => (format!("duration({made})"), "self".to_owned()),
        _ => (made, "duration(self)".to_owned()),
    };
    let got = scaled(&format!("{whole}.{getter}()"), 1, times);
    let back = match most {
        Some(most) if times == 1 => format!("{got} > {most} ? {most} : {got}"),
        _ => got,
    };
    Some((forth, back))
}

/// Returns expressions between numbers in different units of one kind.
pub(super) fn numbers(from: Unit, to: Unit) -> Option<(Step, Step)> {
    let (times, by) = ratio(from, to)?;
    (times != by).then(|| {
        (
            Step::new(scaled("self", times, by)),
            Step::new(scaled("self", by, times)),
        )
    })
}

/// Returns the ratio of two units as `(times, divided by)`.
fn ratio(from: Unit, to: Unit) -> Option<(i64, i64)> {
    let (a, b) = match (from, to) {
        (Time(a), Time(b)) | (Bytes(a), Bytes(b)) => (a, b),
        _ => return (from == to).then_some((1, 1)),
    };
    if a % b == 0 {
        Some((a / b, 1))
    } else {
        (b % a == 0).then_some((1, b / a))
    }
}

fn scaled(value: &str, times: i64, by: i64) -> String {
    match (times, by) {
        (1, 1) => value.to_owned(),
        (times, 1) => format!("{value} * {times}"),
        (_, by) => format!("{value} / {by}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_units() {
        for (name, want) in [
            ("timeoutSeconds", Some(("timeout", Time(1_000)))),
            ("diskMiB", Some(("disk", Bytes(1 << 20)))),
            ("cpuMillis", Some(("cpu", Millicores))),
            ("days", Some(("", Time(DAY)))),
            ("retry_ms", Some(("retry", Time(1)))),
            ("items", None),
            ("timeout", None),
        ] {
            assert_eq!(named(name), want, "{name}");
        }
    }
}
