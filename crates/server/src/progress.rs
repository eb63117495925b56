//! Progress of a start: one line a step on standard error, for people or machines.

use std::time::Duration;

use crate::config::LogFormat;

/// A completed step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name for machines: `store`, `identity`, `ready`.
    pub name: &'static str,
    /// Description of the step.
    pub what: &'static str,
    /// Its object or location.
    pub detail: String,
    /// Duration of the step; of the whole start for the last step.
    pub took: Duration,
}

/// Callback for completed steps.
pub type Progress<'a> = &'a (dyn Fn(&Step) + Send + Sync);

/// Formats a step as a line.
pub(crate) fn line(step: &Step, format: LogFormat) -> String {
    let Step {
        name,
        what,
        detail,
        took,
    } = step;
    let seconds = took.as_secs_f64();
    match format {
        LogFormat::Human => format!("  ✔ {what:<22} {seconds:>6.2} s   {detail}"),
        LogFormat::Json => {
            let seconds = (seconds * 1e4).round() / 1e4;
            serde_json::json!({"step": name, "what": what, "detail": detail, "seconds": seconds}).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_lines() {
        let took = Duration::from_millis(83);
        let step = Step {
            name: "store",
            what: "store ready",
            detail: "./.insula (0700)".to_owned(),
            took,
        };
        assert_eq!(
            line(&step, LogFormat::Human),
            "  ✔ store ready              0.08 s   ./.insula (0700)"
        );
        let json = r#"{"detail":"./.insula (0700)","seconds":0.083,"step":"store","what":"store ready"}"#;
        assert_eq!(line(&step, LogFormat::Json), json);
    }
}
