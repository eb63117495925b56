//! Metrics as messages of OTLP, read from the text of `/metrics`, so that both have the same names,
//! labels and values.
//!
//! The SDK cannot send them: it has no observable histogram, and its data can be built by itself
//! alone. The messages are those of its exporter.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, metric::Data,
        number_data_point::Value,
    },
};

/// Moments of a reading, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    /// Start of the process, from which counts begin.
    pub(crate) started: u64,
    pub(crate) now: u64,
}

impl Moments {
    /// Returns the moments of a reading now.
    pub(crate) fn since(started: SystemTime) -> Self {
        let nanos = |time: SystemTime| {
            let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
        };
        Moments {
            started: nanos(started),
            now: nanos(SystemTime::now()),
        }
    }
}

/// Converts OpenMetrics text as [`super::Metrics::text`] writes it. Returns the metrics and the
/// number of their points.
pub(crate) fn metrics(text: &str, moments: Moments) -> (Vec<Metric>, u64) {
    let mut reading = Reading {
        moments,
        metrics: Vec::new(),
        points: 0,
    };
    let mut help = "";
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("HELP"), Some(_), Some(text)) => help = text,
                (Some("TYPE"), Some(name), Some(kind)) => reading.begin(name, kind, help),
                (Some("UNIT"), Some(_), Some(unit)) => reading.unit(unit),
                _ => {}
            }
        } else {
            reading.sample(line);
        }
    }
    (reading.metrics, reading.points)
}

struct Reading {
    moments: Moments,
    metrics: Vec<Metric>,
    points: u64,
}

impl Reading {
    /// Begins a family. OpenMetrics names one of counts or of information without the end of the
    /// names of its samples.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let cumulative = AggregationTemporality::Cumulative.into();
        let (end, data) = match kind {
            "counter" => (
                "_total",
                Data::Sum(Sum {
                    data_points: Vec::new(),
                    aggregation_temporality: cumulative,
                    is_monotonic: true,
                }),
            ),
            "histogram" => (
                "",
                Data::Histogram(Histogram {
                    data_points: Vec::new(),
                    aggregation_temporality: cumulative,
                }),
            ),
            "info" => ("_info", Data::Gauge(Gauge::default())),
            _ => ("", Data::Gauge(Gauge::default())),
        };
        self.metrics.push(Metric {
            name: format!("{name}{end}"),
            description: help.trim_end_matches('.').to_owned(),
            data: Some(data),
            ..Metric::default()
        });
    }

    fn unit(&mut self, unit: &str) {
        if let Some(metric) = self.metrics.last_mut() {
            metric.unit = match unit {
                "seconds" => "s",
                "bytes" => "By",
                other => other,
            }
            .to_owned();
        }
    }

    fn sample(&mut self, line: &str) {
        let Some((name, labels, value)) = split(line) else {
            return;
        };
        let moments = self.moments;
        let Some(metric) = self.metrics.last_mut() else { return };
        let Some(data) = &mut metric.data else { return };
        let points = match data {
            Data::Histogram(histogram) => {
                let part = name.strip_prefix(metric.name.as_str()).unwrap_or_default();
                self.points += u64::from(part == "_sum");
                return distribution(&mut histogram.data_points, part, (labels, value), moments);
            }
            Data::Sum(sum) => &mut sum.data_points,
            Data::Gauge(gauge) => &mut gauge.data_points,
            Data::ExponentialHistogram(_) | Data::Summary(_) => return,
        };
        self.points += 1;
        points.push(NumberDataPoint {
            attributes: attributes(labels).0,
            start_time_unix_nano: moments.started,
            time_unix_nano: moments.now,
            value: number(value),
            ..NumberDataPoint::default()
        });
    }
}

/// Adds a sample to the distributions of a family. The samples of a distribution follow each other,
/// and its sum is the first.
fn distribution(points: &mut Vec<HistogramDataPoint>, part: &str, (labels, value): (&str, &str), moments: Moments) {
    let (attributes, bound) = attributes(labels);
    if part == "_sum" {
        points.push(HistogramDataPoint {
            attributes,
            start_time_unix_nano: moments.started,
            time_unix_nano: moments.now,
            sum: value.parse().ok(),
            ..HistogramDataPoint::default()
        });
        return;
    }
    let (Some(point), Ok(count)) = (points.last_mut(), value.parse::<u64>()) else {
        return;
    };
    match (part, bound) {
        ("_count", _) => point.count = count,
        ("_bucket", Some(bound)) => {
            let below: u64 = point.bucket_counts.iter().sum();
            // Buckets are read while others count, so a later one may miss an observation.
            point.bucket_counts.push(count.saturating_sub(below));
            if bound.is_finite() {
                point.explicit_bounds.push(bound);
            }
        }
        _ => {}
    }
}

/// Splits a line into the name of the sample, its labels and its value.
fn split(line: &str) -> Option<(&str, &str, &str)> {
    // Labels may contain spaces; the value is the last word.
    let (series, value) = line.rsplit_once(' ')?;
    match series.split_once('{') {
        Some((name, labels)) => Some((name, labels.strip_suffix('}')?, value)),
        None => Some((series, "", value)),
    }
}

fn number(text: &str) -> Option<Value> {
    match text.parse() {
        Ok(int) => Some(Value::AsInt(int)),
        Err(_) => text.parse().ok().map(Value::AsDouble),
    }
}

/// Reads labels, and the bound of a bucket apart.
fn attributes(labels: &str) -> (Vec<KeyValue>, Option<f64>) {
    let (mut attributes, mut bound) = (Vec::new(), None);
    let mut rest = labels;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, after) = quoted(after);
        match key {
            "le" => bound = value.parse().ok(),
            key => attributes.push(KeyValue {
                key: key.to_owned(),
                value: Some(AnyValue {
                    value: Some(any_value::Value::StringValue(value)),
                }),
                ..KeyValue::default()
            }),
        }
        rest = after.trim_start_matches(',');
    }
    (attributes, bound)
}

/// Reads a value up to its closing quote. Returns it with the rest.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => {}
            },
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::{CallOutcome, Exports, Measured, Metrics, Purpose};
    use insula_api::Verb;
    use insula_edge::port::{RequestKind, ResourceClass};

    const MOMENTS: Moments = Moments { started: 1, now: 2 };

    fn text_of(attribute: &KeyValue) -> (&str, &str) {
        match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(any_value::Value::StringValue(text)) => (&attribute.key, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_registry_is_read_as_it_is() {
        let metrics = Metrics::with_exports("1 \"x\"\\\n2", Exports::default());
        metrics.called(Purpose::Mount, CallOutcome::Answered, Duration::from_micros(700));
        metrics.called(Purpose::Mount, CallOutcome::Answered, Duration::from_secs(3600));
        let kind = RequestKind {
            verb: Some(Verb::Get),
            class: ResourceClass::Local,
            resource: None,
        };
        let request = Measured {
            kind: &kind,
            method: &http::Method::GET,
            check: "",
        };
        metrics.request(request, http::StatusCode::OK, Duration::ZERO);
        let (read, points) = self::metrics(&metrics.text(), MOMENTS);
        let named = |name: &str| read.iter().find(|metric| metric.name == name).expect(name);
        let version = match &named("insula_build_info").data {
            Some(Data::Gauge(gauge)) => &gauge.data_points[0],
            other => panic!("{other:?}"),
        };
        assert_eq!(text_of(&version.attributes[0]), ("version", "1 \"x\"\\\n2"));
        let requests = named("insula_requests_total");
        match &requests.data {
            Some(Data::Sum(sum)) => {
                assert!(sum.is_monotonic);
                let point = &sum.data_points[0];
                assert_eq!(point.value, Some(Value::AsInt(1)));
                assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
                let labels: Vec<_> = point.attributes.iter().map(text_of).collect();
                assert_eq!(labels, [("verb", "Get"), ("class", "Local"), ("code", "Success")]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(requests.description, "Requests answered");
        let calls = named("insula_outbound_request_duration_seconds");
        assert_eq!(calls.unit, "s");
        match &calls.data {
            Some(Data::Histogram(histogram)) => {
                assert_eq!(histogram.data_points.len(), 6);
                let used = |point: &&HistogramDataPoint| point.count > 0;
                let point = histogram.data_points.iter().find(used).expect("a distribution");
                assert_eq!((point.count, point.sum), (2, Some(3_600.000_7)));
                assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                assert_eq!((point.bucket_counts[1], point.bucket_counts.last()), (1, Some(&1)));
                assert_eq!(point.bucket_counts.iter().sum::<u64>(), 2);
            }
            other => panic!("{other:?}"),
        }
        let all = read.iter().map(|metric| match &metric.data {
            Some(Data::Gauge(gauge)) => gauge.data_points.len(),
            Some(Data::Sum(sum)) => sum.data_points.len(),
            Some(Data::Histogram(histogram)) => histogram.data_points.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(all.sum::<usize>() as u64, points);
    }

    #[test]
    fn lines_that_are_no_samples_are_skipped() {
        for text in [
            "",
            "x",
            "# EOF",
            "x{ 1",
            "# TYPE a gauge\nb{c=\"d} 1",
            "# TYPE a histogram\na_bucket 1",
        ] {
            let (read, _) = metrics(text, MOMENTS);
            assert!(read.len() <= 1, "{read:?}");
        }
    }
}
