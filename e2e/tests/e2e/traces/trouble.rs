//! Collectors that hang or are away.

use std::time::{Duration, Instant};

use insula_e2e::{Client, Collector, Server, until, unused_port};
use serde_json::Value;

use super::{MAPS, new_trace, root, send, with_collector};

fn exported(server: &Server, signal: &str, outcome: &str) -> u64 {
    let text = server.admin().get("/metrics").text;
    let name = format!("insula_otlp_exported_total{{signal=\"{signal}\",outcome=\"{outcome}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

/// A collector that takes messages and never answers delays no request, and takes no more memory
/// than the queue.
#[test]
fn a_collector_that_hangs_costs_spans_and_nothing_else() {
    let collector = Collector::hanging();
    let server = with_collector(collector.url(), &[]);
    let clients: Vec<Client> = (0..4).map(|_| server.admin().in_workspace("root")).collect();
    // Four spans a request: more than the queue and the message in flight hold.
    std::thread::scope(|threads| {
        for client in &clients {
            threads.spawn(|| (0..400).for_each(|_| drop(client.get(MAPS).expect(200))));
        }
    });
    let queued = 400 * 4 * 4 - exported(&server, "Spans", "Dropped");
    assert!(exported(&server, "Spans", "Dropped") > 0);
    assert!(queued < 10_000, "{queued}");
    assert_eq!(exported(&server, "Spans", "Sent"), 0);
    until("what hangs is given up", || {
        let failed = [
            exported(&server, "Spans", "Failed"),
            exported(&server, "Metrics", "Failed"),
        ];
        (failed[0] > 0 && failed[1] > 0).then_some(())
    });
    let begun = Instant::now();
    assert_eq!(server.admin().get("/readyz").text, "ok");
    server.signal("-TERM");
    let (code, output) = server.wait();
    assert_eq!(code, Some(0), "{output}");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[test]
fn a_collector_that_is_away_is_tried_again_when_it_is_back() {
    let port = unused_port();
    let server = with_collector(&format!("http://127.0.0.1:{port}"), &[]);
    assert_eq!(server.admin().get("/readyz").text, "ok");
    let failed = || exported(&server, "Metrics", "Failed");
    until("the export fails", || (failed() > 0).then_some(()));
    let once = failed();
    until("the export fails again", || (failed() > once).then_some(()));
    // One line says that exports fail, and one that they work again.
    let lines = |level: &str, message: &str| {
        let of_metrics = |line: &Value| {
            line["level"] == level
                && line["signal"] == "metrics"
                && line["message"].as_str().is_some_and(|text| text.starts_with(message))
        };
        server.json_log().iter().filter(|line| of_metrics(line)).count()
    };
    assert_eq!(lines("WARN", "exports do not reach the collector"), 1);
    let collector = Collector::start_at(port);
    assert!(collector.next_metrics().contains_key("process_uptime_seconds"));
    let trace = new_trace();
    send(&server.admin(), "GET", "/readyz", &trace, "01", &Value::Null);
    let spans = collector.trace_until(&trace, |spans| root(spans).is_some());
    assert_eq!(spans[0].name, "GET /readyz");
    assert!(exported(&server, "Spans", "Sent") > 0);
    until("the log says so", || {
        (lines("INFO", "exports reach the collector again") == 1).then_some(())
    });
    assert_eq!(lines("WARN", "exports do not reach the collector"), 1);
}
