//! The two texts of `/metrics`: Prometheus' own format, which every scraper reads, and OpenMetrics
//! for those that ask for it.
//!
//! ```text
//! OpenMetrics 1.0                    Prometheus 0.0.4
//! # HELP a Calls.                    # HELP a_total Calls.
//! # TYPE a counter                   # TYPE a_total counter
//! a_total 1                          a_total 1
//! # HELP b_seconds Time.             # HELP b_seconds Time.
//! # TYPE b_seconds histogram         # TYPE b_seconds histogram
//! # UNIT b_seconds seconds
//! # TYPE c info                      # TYPE c_info gauge
//! # EOF
//! ```

use insula_apiserver::negotiate;

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    /// Chooses by the `Accept` header. Only a client that names OpenMetrics gets it, and none is
    /// refused: scrapers send ranges that nobody serves.
    pub(crate) fn preferred_by(accept: Option<&str>) -> Self {
        let served = |kind: &str, version: Option<&str>| match (kind, version) {
            ("application/openmetrics-text", None | Some("1.0.0")) => Some(Self::OpenMetrics),
            ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Some(Self::Prometheus),
            _ => None,
        };
        negotiate::preferred(accept, served).unwrap_or(Self::Prometheus)
    }

    /// Returns the type of the text.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns metrics, which are OpenMetrics text without exemplars, in the format.
    pub(crate) fn write(self, metrics: String) -> String {
        match self {
            Self::Prometheus => prometheus(&metrics),
            Self::OpenMetrics => metrics,
        }
    }
}

/// Converts the comments. Those name families by the names of their samples in Prometheus' format.
fn prometheus(metrics: &str) -> String {
    let mut text = String::with_capacity(metrics.len());
    let mut help = None;
    for line in metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.extend([line, "\n"]);
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(_), words) => help = words,
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (end, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some(help) = help.take() {
                    text.extend(["# HELP ", name, end, " ", help, "\n"]);
                }
                text.extend(["# TYPE ", name, end, " ", kind, "\n"]);
            }
            // Units are in the names, and the end of the text is the end of the answer.
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_prefer_it() {
        use Format::{OpenMetrics, Prometheus};
        let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;\
                       q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, want) in [
            (None, Prometheus),
            (Some(""), Prometheus),
            (Some("*/*"), Prometheus),
            (Some("application/json, */*"), Prometheus),
            (Some("application/json"), Prometheus),
            (Some("no type"), Prometheus),
            (Some("text/html"), Prometheus),
            (Some(scraper), OpenMetrics),
            (Some("application/openmetrics-text"), OpenMetrics),
            (
                Some("application/openmetrics-text; version=\"1.0.0\"; charset=utf-8"),
                OpenMetrics,
            ),
            (Some("application/openmetrics-text;version=0.0.1"), Prometheus),
            (Some("application/openmetrics-text;q=0, */*"), Prometheus),
            (Some("application/openmetrics-text;q=0.2, text/plain;q=0.9"), Prometheus),
            (
                Some("text/plain;version=1.0.0, application/openmetrics-text;q=0.1"),
                OpenMetrics,
            ),
            (Some("*/*, application/openmetrics-text"), OpenMetrics),
            (Some("text/plain, application/openmetrics-text"), Prometheus),
        ] {
            assert_eq!(Format::preferred_by(accept), want, "{accept:?}");
        }
    }

    #[test]
    fn comments_name_the_samples() {
        let metrics = "# HELP a Calls.\n# TYPE a counter\na_total{x=\"# EOF\"} 1\n# HELP b_seconds Time.\n\
                       # TYPE b_seconds histogram\n# UNIT b_seconds seconds\nb_seconds_sum 0.0\n# TYPE c info\n\
                       c_info{v=\"1\"} 1\n# HELP d \n# TYPE d unknown\nd 1\n# EOF\n";
        let want = "# HELP a_total Calls.\n# TYPE a_total counter\na_total{x=\"# EOF\"} 1\n# HELP b_seconds Time.\n\
                    # TYPE b_seconds histogram\nb_seconds_sum 0.0\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n\
                    # HELP d \n# TYPE d untyped\nd 1\n";
        assert_eq!(Format::Prometheus.write(metrics.to_owned()), want);
        assert_eq!(Format::OpenMetrics.write(metrics.to_owned()), metrics);
    }
}
