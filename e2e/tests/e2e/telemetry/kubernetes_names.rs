//! The metrics under the names of Kubernetes, which dashboards, alerts and kcp's tests read.

use insula_e2e::{Client, Server, Who, until, with_widgets, workspace};
use serde_json::json;

/// Returns the sum of a metric's samples that have all the labels.
fn sum(admin: &Client, name: &str, labels: &[(&str, &str)]) -> u64 {
    let text = admin.get("/metrics").text;
    let start = format!("{name}{{");
    let has = |line: &str| {
        labels
            .iter()
            .all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")))
    };
    let samples = text.lines().filter(|line| line.starts_with(&start) && has(line));
    let numbers = samples.map(|line| line.rsplit_once(' ').unwrap().1);
    numbers.map(|number| number.parse::<u64>().expect(number)).sum()
}

#[test]
fn lists_are_counted_as_served_from_the_watch_cache() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.admin();
    let path = with_widgets(&server);
    let client = admin.in_workspace(&path);
    for (list, group, resource) in [
        ("/api/v1/namespaces/default/secrets?resourceVersion=0", "", "secrets"),
        (
            "/apis/example.io/v1/namespaces/default/widgets",
            "example.io",
            "widgets",
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
        ),
    ] {
        let labels = [("group", group), ("resource", resource), ("index", "")];
        let before = sum(&admin, "apiserver_cache_list_total", &labels);
        for _ in 0..10 {
            client.get(list).expect(200);
        }
        assert_eq!(
            sum(&admin, "apiserver_cache_list_total", &labels),
            before + 10,
            "{list}"
        );
    }
}

#[test]
fn requests_have_kubernetes_labels() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.admin();
    let (path, _) = workspace(&admin, "labelled");
    let client = admin.in_workspace(&path);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    client.post(&format!("{maps}?dryRun=All"), &map).expect(201);
    client.post(maps, &map).expect(201);
    client.post(maps, &map).expect(409);
    client.get("/api/v1/configmaps").expect(200);
    client.get(&format!("{maps}/a/nothing")).expect(404);
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{maps}/a?fieldManager=me&force=true");
    let applied = client.try_send("PATCH", &path, &apply, map.to_string().into());
    applied.unwrap().expect(200);
    admin.get("/readyz").expect(200);
    let all = ("resource", "configmaps");
    for (labels, count) in [
        (
            &[
                all,
                ("verb", "POST"),
                ("dry_run", "All"),
                ("code", "201"),
                ("scope", "resource"),
            ][..],
            1,
        ),
        (
            &[
                all,
                ("verb", "POST"),
                ("dry_run", ""),
                ("code", "201"),
                ("component", "apiserver"),
            ],
            1,
        ),
        (
            &[all, ("verb", "POST"), ("code", "409"), ("group", ""), ("version", "v1")],
            1,
        ),
        (&[all, ("verb", "LIST"), ("scope", "cluster"), ("code", "200")], 1),
        (&[all, ("verb", "APPLY"), ("scope", "resource"), ("code", "200")], 1),
        (&[("subresource", "nothing")], 0),
        (
            &[
                ("subresource", "/readyz"),
                ("verb", "GET"),
                ("component", ""),
                ("code", "200"),
            ],
            1,
        ),
    ] {
        let counted = sum(&admin, "apiserver_request_total", labels);
        assert!(counted >= count && (count > 0 || counted == 0), "{labels:?}: {counted}");
        // The same requests, without the code.
        let timed: Vec<_> = labels.iter().copied().filter(|(label, _)| *label != "code").collect();
        assert!(sum(&admin, "apiserver_request_duration_seconds_count", &timed) >= counted);
    }
    let slowest = [all, ("verb", "POST"), ("le", "60.0")];
    assert!(sum(&admin, "apiserver_request_duration_seconds_bucket", &slowest) >= 3);
    let text = admin.get("/metrics").text;
    for kind in ["mutating", "readOnly"] {
        let line = format!("apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} ");
        assert!(text.contains(&line), "{line}");
    }
}

#[test]
fn objects_are_counted_by_resource() {
    let server = Server::with_flags(&["--store", "memory"]);
    let admin = server.client(Who::ShardAdmin);
    let client = server.admin().in_workspace(&with_widgets(&server));
    let widgets = || {
        let by_name = sum(
            &admin,
            "apiserver_storage_objects",
            &[("resource", "widgets.example.io")],
        );
        let labels = [("group", "example.io"), ("resource", "widgets")];
        assert_eq!(sum(&admin, "apiserver_resource_objects", &labels), by_name);
        by_name
    };
    assert_eq!(widgets(), 0);
    let all = "/apis/example.io/v1/namespaces/default/widgets";
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}});
        client.post(all, &widget).expect(201);
    }
    assert_eq!(widgets(), 2);
    client.delete(&format!("{all}/a")).expect(200);
    until("the object is gone", || (widgets() == 1).then_some(()));
}
