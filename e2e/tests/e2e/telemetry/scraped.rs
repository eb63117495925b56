//! The text of `/metrics`, as scrapers of both generations ask for it.

use insula_e2e::{Server, Who};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Checks text as parsers of version 0.0.4 and promtool's linter do: each family has its help and
/// type, once, before its samples, whose names begin with that of the family.
fn assert_prometheus(text: &str) {
    let (mut families, mut help, mut kind) = (Vec::new(), "", "");
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, text] => {
                assert!(!text.is_empty() && !families.contains(&name), "{line}");
                help = name;
                families.push(name);
            }
            ["#", "TYPE", name, of] => {
                assert_eq!(help, name, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
                assert_eq!(name.ends_with("_total"), of == "counter", "{line}");
                kind = of;
            }
            _ => {
                assert!(!line.starts_with('#') && !line.is_empty(), "{line}");
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split_once('{').map_or(series, |(name, _)| name);
                let ends = match kind {
                    "histogram" => &["_bucket", "_sum", "_count"][..],
                    _ => &[""],
                };
                let is_of_family = name.strip_prefix(help).is_some_and(|end| ends.contains(&end));
                assert!(
                    is_of_family && value.parse::<f64>().is_ok(),
                    "{line} is no sample of {help}"
                );
            }
        }
    }
    assert!(families.contains(&"insula_requests_total"), "{families:?}");
    assert!(families.contains(&"insula_build_info"), "{families:?}");
}

#[test]
fn metrics_are_in_the_format_that_a_scraper_prefers() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.client(Who::ShardAdmin);
    admin.get("/version").expect(200);
    for (accept, want) in [
        (None, PROMETHEUS),
        (Some("*/*"), PROMETHEUS),
        (Some("application/json"), PROMETHEUS),
        (
            Some("application/openmetrics-text;q=0.3, text/plain;version=0.0.4;q=0.5"),
            PROMETHEUS,
        ),
        (Some("application/openmetrics-text;version=0.0.1"), PROMETHEUS),
        (
            Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"),
            OPEN_METRICS,
        ),
        (
            Some("text/plain;version=1.0.0, application/openmetrics-text;q=0.1"),
            OPEN_METRICS,
        ),
    ] {
        let headers: Vec<(&str, &str)> = accept.iter().map(|accept| ("accept", *accept)).collect();
        let answer = admin.get_with("/metrics", &headers);
        assert_eq!(answer.code, 200, "{accept:?}: {}", answer.text);
        assert_eq!(answer.headers["content-type"], want, "{accept:?}");
        match want {
            OPEN_METRICS => assert!(answer.text.ends_with("# EOF\n"), "{accept:?}"),
            _ => assert_prometheus(&answer.text),
        }
    }
}
