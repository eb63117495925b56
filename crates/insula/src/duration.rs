//! Durations as kubectl's flags take them: `30s`, `1m30s`, `500ms`, `0`.

use std::time::Duration;

use jiff::SignedDuration;

/// Longest duration that a flag takes: 30 days.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Parses a duration.
///
/// # Errors
/// A number without a unit, an unknown unit, or more than 30 days.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let parsed = text.parse::<SignedDuration>().ok();
    let duration = parsed.and_then(|duration| Duration::try_from(duration).ok());
    match duration {
        None => Err(format!("`{text}` is no duration: write it as 30s, 2m or 1h")),
        Some(long) if long > DURATION_MAX => Err(format!("`{text}` is more than 30 days")),
        Some(duration) => Ok(duration),
    }
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
