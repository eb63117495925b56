//! The metrics that a running server exports, against those that the alerts, the dashboard and the
//! documentation name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use insula_e2e::{Client, Server, until, with_widgets};
use serde_json::{Value, json};

/// Values of the label `code`, whose series begin with the first answer of a class.
const CODES: [&str; 4] = ["Success", "Redirect", "ClientError", "ServerError"];

/// A metric as `/metrics` has it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    /// Values by label.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Returns `/metrics` as OpenMetrics text.
fn open_metrics(client: &Client) -> String {
    client
        .get_with("/metrics", &[("accept", "application/openmetrics-text")])
        .text
}

/// Reads OpenMetrics text. Names are those of samples; a distribution has its plain name.
fn parse(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let (mut help, mut name) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1.trim_end_matches('.').to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (base, kind) = rest.split_once(' ').unwrap();
            name = match kind {
                "counter" => format!("{base}_total"),
                "info" => format!("{base}_info"),
                _ => base.to_owned(),
            };
            let metric = Metric {
                kind: kind.to_owned(),
                help: help.clone(),
                ..Metric::default()
            };
            assert!(metrics.insert(name.clone(), metric).is_none(), "{name} comes twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&name), "{line} is not of {name}");
            let metric = metrics.get_mut(&name).unwrap();
            for (label, value) in matchers(line) {
                if label != "le" {
                    metric.labels.entry(label).or_default().insert(value);
                }
            }
        }
    }
    metrics
}

/// Returns the labels of the first braces of a text, with their values.
fn matchers(text: &str) -> Vec<(String, String)> {
    let Some((_, rest)) = text.split_once('{') else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut rest = rest;
    while let Some((label, after)) = rest.split_once('"') {
        let name = label.trim_start_matches([',', ' ']).trim_end_matches(['=', '~', '!']);
        let (value, after) = after.split_once('"').unwrap();
        found.push((name.to_owned(), value.to_owned()));
        rest = after;
        if rest.starts_with('}') {
            break;
        }
    }
    found
}

/// Checks that an expression names only metrics, labels and values that the server exports. Panics
/// with what it does not.
fn check(expression: &str, metrics: &BTreeMap<String, Metric>, used: &mut BTreeSet<String>) {
    let mut labels: BTreeSet<&str> = BTreeSet::from(["le"]);
    let mut groups = Vec::new();
    let mut rest = expression;
    let mut last = "";
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '(' || c == '[' || c == '"') {
        rest = &rest[start..];
        if let Some(inner) = rest.strip_prefix('[') {
            rest = inner.split_once(']').unwrap().1;
            continue;
        }
        if let Some(inner) = rest.strip_prefix('(') {
            rest = inner;
            if matches!(last, "by" | "without" | "on" | "ignoring") {
                let (list, after) = inner.split_once(')').unwrap();
                groups.extend(list.split(',').map(str::trim));
                rest = after;
            }
            last = "";
            continue;
        }
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        (last, rest) = (word, after);
        // Functions and keywords, and the exponent of a number.
        let follows = rest.trim_start();
        let is_function = ["(", "by (", "without ("].iter().any(|next| follows.starts_with(next));
        if is_function || matches!(word, "and" | "or" | "unless" | "e6") {
            continue;
        }
        let (name, metric) =
            find(word, metrics).unwrap_or_else(|| panic!("{expression}: the server exports no {word}"));
        used.insert(name.to_owned());
        labels.extend(metric.labels.keys().map(String::as_str));
        if rest.starts_with('{') {
            for (label, value) in matchers(rest) {
                check_matcher(expression, metric, (&label, &value));
            }
            rest = rest.split_once('}').unwrap().1;
        }
    }
    for group in groups {
        assert!(
            labels.contains(group),
            "{expression}: no metric in it has the label {group}"
        );
    }
}

fn check_matcher(expression: &str, metric: &Metric, (label, value): (&str, &str)) {
    let known = metric
        .labels
        .get(label)
        .unwrap_or_else(|| panic!("{expression}: no label {label}"));
    for part in value.split('|') {
        assert!(
            known.contains(part) || label == "code" && CODES.contains(&part),
            "{expression}: {label} has no value {part}: {known:?}"
        );
    }
}

/// Finds the metric of a sample's name.
fn find<'a>(word: &str, metrics: &'a BTreeMap<String, Metric>) -> Option<(&'a str, &'a Metric)> {
    let (name, metric) = match metrics.get_key_value(word) {
        Some(found) if found.1.kind != "histogram" => found,
        _ => {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| word.strip_suffix(end))?;
            metrics
                .get_key_value(base)
                .filter(|found| found.1.kind == "histogram")?
        }
    };
    Some((name, metric))
}

/// Returns every `expr` of a document.
fn expressions(document: &Value, found: &mut Vec<String>) {
    match document {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name == "expr") {
                    Some(expression) => found.push(expression.to_owned()),
                    None => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

fn table(metrics: &BTreeMap<String, Metric>) -> String {
    let row = |(name, metric): (&String, &Metric)| {
        let labels = metric.labels.keys().map(|label| format!("`{label}`"));
        let labels: Vec<String> = labels.collect();
        format!(
            "| `{name}` | {} | {} | {} |\n",
            metric.kind,
            labels.join(", "),
            metric.help
        )
    };
    metrics.iter().map(row).collect()
}

/// A server on which every metric has a series.
fn scraped() -> BTreeMap<String, Metric> {
    let server = Server::start();
    let admin = server.admin();
    let path = with_widgets(&server);
    let client = admin.in_workspace(&path);
    let rollout = json!({"spec": {"rollout": {"strategy": "AllOrNothing"}}});
    client
        .merge("/apis/apis.kcp.io/v1alpha2/apiexports/widgets", &rollout)
        .expect(200);
    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"}});
    client
        .post("/apis/example.io/v1/namespaces/default/widgets", &widget)
        .expect(201);
    client.get("/apis/example.io/v2/widgets").expect(200);
    let watched = client.watch("/api/v1/namespaces?watch=true", Some);
    assert!(watched.is_some());
    until("the status of the export is counted", || {
        let text = open_metrics(&admin);
        let shown = [
            "insula_rollout_bindings{",
            "insula_api_version_last_use_timestamp_seconds{",
        ];
        shown.iter().all(|name| text.contains(name)).then(|| parse(&text))
    })
}

#[test]
fn alerts_dashboard_and_documentation_name_what_the_server_exports() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(repository.join(path)).unwrap();
    let metrics = scraped();
    let without_help: Vec<_> = metrics.iter().filter(|(_, metric)| metric.help.is_empty()).collect();
    assert!(without_help.is_empty(), "{without_help:?}");
    let mut used = BTreeSet::new();
    let alerts: Value = serde_saphyr::from_str(&read("config/telemetry/alerts.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("config/telemetry/dashboard.json")).unwrap();
    for document in [&alerts, &dashboard] {
        let mut found = Vec::new();
        expressions(document, &mut found);
        assert!(found.len() > 15, "{found:?}");
        found
            .iter()
            .for_each(|expression| check(expression, &metrics, &mut used));
    }
    for rule in alerts["groups"][0]["rules"].as_array().unwrap() {
        assert!(
            rule["annotations"]["summary"].is_string() && rule["labels"]["severity"].is_string(),
            "{rule}"
        );
    }
    let documentation = read("docs/telemetry.md");
    let (_, listed) = documentation
        .split_once("| name | type | labels | |\n|---|---|---|---|\n")
        .unwrap();
    let wanted = table(&metrics);
    assert!(listed == wanted, "docs/telemetry.md has to list:\n{wanted}");
}

#[test]
fn expressions_are_checked() {
    let text = "# HELP a A.\n# TYPE a counter\na_total{x=\"1\",y=\"p\"} 1\n\
                # HELP h H.\n# TYPE h histogram\nh_bucket{z=\"2\",le=\"1.0\"} 0\nh_sum{z=\"2\"} 0\n\
                h_count{z=\"2\"} 0\n# EOF\n";
    let metrics = parse(text);
    for good in [
        "rate(a_total[5m]) > 400e6",
        "sum by (x, y) (rate(a_total{x=\"1\",y!=\"p\"}[5m])) / sum(a_total) > 0.5",
        "histogram_quantile(0.99, sum by (le, z) (rate(h_bucket[$__rate_interval]))) and h_count == 1",
    ] {
        check(good, &metrics, &mut BTreeSet::new());
    }
    for bad in [
        "rate(b_total[5m])",
        "rate(a[5m])",
        "h > 1",
        "sum by (q) (a_total)",
        "a_total{z=\"2\"}",
        "a_total{x=\"2\"}",
        "a_total{x=~\"1|3\"}",
        "rate(a_bucket[5m])",
    ] {
        let checked = std::panic::catch_unwind(|| check(bad, &metrics, &mut BTreeSet::new()));
        assert!(checked.is_err(), "{bad}");
    }
}
