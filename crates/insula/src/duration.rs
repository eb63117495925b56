//! Durations as kubectl's flags take them: `30s`, `1m30s`, `500ms`, `0`.

use std::time::Duration;

/// Longest duration that a flag takes: 30 days.
const SECONDS_MAX: f64 = 30.0 * 24.0 * 3600.0;

/// Parses a duration.
///
/// # Errors
/// A number without a unit, an unknown unit, or more than 30 days.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let malformed = || format!("`{text}` is no duration: write it as 30s, 2m or 1h");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(malformed)?;
        let value: f64 = rest[..number].parse().map_err(|_| malformed())?;
        let after = &rest[number..];
        let unit = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        seconds += value
            * match &after[..unit] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(malformed()),
            };
        rest = &after[unit..];
    }
    if seconds > SECONDS_MAX {
        return Err(format!("`{text}` is more than 30 days"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("0", 0),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "5", "s", "5d", "1m5", "-1s", "1..s", "999999h"] {
            parse(text).unwrap_err();
        }
    }
}
