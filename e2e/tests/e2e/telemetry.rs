//! Telemetry for operators: metrics with closed labels, ids of requests, logs that name workspace
//! and request.

mod exported;
mod kubernetes_names;
mod scraped;

use std::collections::BTreeSet;

use insula_e2e::{Server, shared, until, workspace};
use serde_json::json;

/// Every value that a tenant can choose, in a request of its own; none of them may become a label.
#[test]
fn metrics_have_closed_labels() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.admin();
    let series = || -> BTreeSet<String> {
        let text = server.admin().get_with("/metrics", &[("accept", "text/plain")]).text;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let play = |n: usize| {
        let (path, _) = workspace(&admin, "metered");
        let client = admin.in_workspace(&path);
        let name = format!("chosen-{n}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let maps = "/api/v1/namespaces/default/configmaps";
        client.post(maps, &map).expect(201);
        client.get(&format!("{maps}/{name}")).expect(200);
        client.get(&format!("{maps}/absent-{n}")).expect(404);
        client.get(&format!("/apis/group-{n}.example.io/v1/things")).expect(404);
        client
            .get_with(maps, &[("user-agent", &format!("agent-{n}"))])
            .expect(200);
        client
            .merge(&format!("{maps}/{name}"), &json!({"data": {"a": "b"}}))
            .expect(200);
        client.delete(&format!("{maps}/{name}")).expect(200);
        client.get(maps).expect(200);
        let call = [("content-type", "application/grpc")];
        for (method, path) in [
            ("POST", format!("/chosen-{n}.Service/Method")),
            ("BREW", maps.to_owned()),
        ] {
            client
                .try_send(method, &path, &call[..usize::from(method == "POST")], Vec::new().into())
                .unwrap();
        }
    };
    play(0);
    // The request for the metrics is counted as well, after its answer.
    series();
    let before = series();
    assert!(
        before.iter().any(|name| name.starts_with("insula_requests_total{")),
        "{before:#?}"
    );
    for n in 1..4 {
        play(n);
    }
    let after = series();
    // Of those that store most there are ten at most.
    let of_storage = |name: &&String| name.contains("_storage_bytes{");
    assert!(after.iter().filter(of_storage).count() <= 20, "{after:#?}");
    let new: Vec<_> = after.difference(&before).filter(|name| !of_storage(name)).collect();
    assert!(new.is_empty(), "{new:#?}");
    let text = server.admin().get("/metrics").text;
    for chosen in ["chosen", "group-", "agent-", "metered", "root:"] {
        assert!(!text.contains(chosen), "{chosen}");
    }
}

#[test]
fn requests_are_counted_by_verb_and_class() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.admin().in_workspace("root");
    let counted = |line: &str| -> u64 {
        let text = server.admin().get("/metrics").text;
        text.lines()
            .find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
            .unwrap_or_default()
    };
    let lists = r#"insula_requests_total{verb="List",class="System",code="Success"}"#;
    let before = counted(lists);
    for _ in 0..3 {
        admin.get("/api/v1/namespaces/default/configmaps").expect(200);
    }
    assert_eq!(counted(lists), before + 3);
    let missing = r#"insula_requests_total{verb="Get",class="System",code="ClientError"}"#;
    let before = counted(missing);
    admin.get("/api/v1/namespaces/default/configmaps/absent").expect(404);
    assert_eq!(counted(missing), before + 1);
}

#[test]
fn every_answer_has_its_own_audit_id() {
    let server = shared();
    let admin = server.admin().in_workspace("root");
    let mut ids = BTreeSet::new();
    for path in ["/api/v1/namespaces", "/apis/nothing/v1/x", "/readyz", "/openapi/v3"] {
        let answer = admin.get_with(path, &[("audit-id", "mine")]);
        let id = answer.headers.get("audit-id").unwrap().to_str().unwrap().to_owned();
        assert_eq!(id.len(), 36, "{id}");
        assert!(ids.insert(id));
    }
}

#[test]
fn log_lines_name_the_request_and_its_workspace() {
    let server = Server::with_flags(&["--store", "memory", "--log-level", "debug"]);
    let admin = server.admin();
    let (path, _) = workspace(&admin, "logged");
    let answer = admin
        .in_workspace(&path)
        .get("/api/v1/namespaces/default/configmaps/absent");
    let id = answer.headers["audit-id"].to_str().unwrap();
    let line = until("the request is logged", || {
        server
            .json_log()
            .into_iter()
            .find(|line| line["message"] == "answered" && line["span"]["id"] == id)
    });
    assert_eq!(
        (&line["span"]["workspace"], &line["span"]["method"]),
        (&json!(path), &json!("GET"))
    );
    assert_eq!(line["code"], 404);
    for line in server.log().lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    }
}

#[test]
fn secrets_and_tokens_are_not_logged() {
    let server = Server::with_flags(&["--store", "memory", "--log-level", "trace"]);
    let client = server
        .client(insula_e2e::Who::Token("carol-token".to_owned()))
        .in_workspace("root");
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"password": "aHVudGVyMg=="}});
    client.post("/api/v1/namespaces/default/secrets", &secret).expect(201);
    let mut bad = secret.clone();
    bad["data"]["password"] = json!({"x": "aHVudGVyMg=="});
    let refused = client.post("/api/v1/namespaces/default/secrets", &bad);
    assert!((400..500).contains(&refused.code), "{}", refused.text);
    let log = server.log();
    for hidden in ["aHVudGVyMg", "hunter2", "carol-token"] {
        assert!(!log.contains(hidden), "{hidden}");
    }
}

/// The gauge was registered and never set, so it reported 0 with watches open.
#[test]
fn open_watches_are_counted() {
    let server = Server::with_flags(&["--store", "memory"]);
    let open = || {
        let text = server.admin().get("/metrics").text;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("insula_watches "))
            .unwrap();
        line.parse::<u64>().unwrap()
    };
    assert_eq!(open(), 0);
    let path = "/api/v1/namespaces?watch=true";
    // On another thread, because this one is inside the runtime that reads the watch.
    let elsewhere = || std::thread::scope(|threads| threads.spawn(open).join().unwrap());
    let counted = server
        .admin()
        .in_workspace("root")
        .watch(path, |_| (elsewhere() == 1).then_some(()));
    assert!(counted.is_some(), "the watch is not counted while it is open");
    until("the watch is counted no more", || (open() == 0).then_some(()));
    let ended = || {
        let text = server.admin().get("/metrics").text;
        let line = "insula_watch_ends_total{reason=\"Client\"} 1";
        text.lines().any(|found| found == line).then_some(())
    };
    until("its end is counted", ended);
}
