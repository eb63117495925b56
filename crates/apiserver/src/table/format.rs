//! Column definitions, and durations in kubectl's form.

use insula_api::{Json, Timestamp};
use serde_json::json;

/// Returns an entry of `columnDefinitions`.
pub(super) fn definition(name: &str, kind: &str, format: &str, text: &str, priority: i64) -> Json {
    json!({"name": name, "type": kind, "format": format, "description": text, "priority": priority})
}

/// Returns the time since a moment in kubectl's form.
pub fn age(moment: &str, now: Timestamp) -> String {
    match Timestamp::parse(moment) {
        Some(then) => human_duration(now.since(then)),
        None => "<invalid>".to_owned(),
    }
}

/// Formats seconds with about two digits of precision: `5s`, `3m20s`, `47h`, `3d2h`, `2y40d`.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, below: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{below}"),
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        // The clock may be a little behind.
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}
