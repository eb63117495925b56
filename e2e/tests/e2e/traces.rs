//! Traces and metrics at a collector: continued from the client, through the server, to webhooks.

mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, Weak},
};

use insula_e2e::{
    Answer, Client, Collector, Hook, Reply, Server, Setup, Span, Who, publish_widgets, runtime, shared_as, until,
    with_widgets, workspace,
};
use insula_proto::admin::v1::{
    GetInfoRequest, GetWorkspaceRequest, SetLogLevelRequest, cluster_service_client::ClusterServiceClient,
    maintenance_service_client::MaintenanceServiceClient, workspace_service_client::WorkspaceServiceClient,
};
use serde_json::{Value, json};
use tonic::{Code, Request, metadata::MetadataValue};

use crate::grpc;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The client's span in all traces here.
const PARENT: &str = "b7ad6b7169203331";
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn with_collector(url: &str, more: &[(&str, &str)]) -> Server {
    let mut environment = vec![("INSULA_TELEMETRY_METRICS_SECONDS".to_owned(), "1".to_owned())];
    environment.extend(
        more.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    let flags = [
        "--otlp-endpoint",
        url,
        "--webhook-allow",
        "127.0.0.1",
        "--store",
        "memory",
    ];
    Server::with(Setup {
        flags: flags.map(str::to_owned).to_vec(),
        environment,
        ..Setup::default()
    })
}

/// A server that exports to a collector, for all tests here. The last test that holds it ends it.
fn traced() -> Arc<(Collector, Server)> {
    static SHARED: Mutex<Weak<(Collector, Server)>> = Mutex::new(Weak::new());
    shared_as(&SHARED, || {
        let collector = Collector::start();
        let more = [
            ("INSULA_LOG_LEVEL", "debug"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ];
        let server = with_collector(collector.url(), &more);
        (collector, server)
    })
}

/// Returns the id of a new trace.
fn new_trace() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!(
        "{:032x}",
        (0xabcd << 64) | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))
    )
}

fn send(client: &Client, method: &str, path: &str, trace: &str, flags: &str, body: &Value) -> Answer {
    let parent = format!("00-{trace}-{PARENT}-{flags}");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "vendor=x")];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    client.try_send(method, path, &headers, body.into()).unwrap()
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

fn root(spans: &[Span]) -> Option<&Span> {
    spans.iter().find(|span| span.parent == PARENT)
}

/// Checks that every span but the root has a parent among the spans, within whose time it begins.
fn check_tree(spans: &[Span]) {
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|span| (&*span.id, span)).collect();
    assert_eq!(by_id.len(), spans.len(), "ids are unique");
    for span in spans.iter().filter(|span| span.parent != PARENT) {
        let parent = by_id
            .get(&*span.parent)
            .unwrap_or_else(|| panic!("{span:#?} has no parent"));
        assert!(
            parent.time.0 <= span.time.0 && span.time.0 <= span.time.1,
            "{parent:#?} {span:#?}"
        );
    }
}

fn hooked(hook: &Hook, client: &Client) {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "traced"},
        "webhooks": [{
            "name": "traced.example.io", "clientConfig": hook.client_config("/allow"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    client.post(path, &configuration).expect(201);
}

fn allow(path: &str, review: &Value) -> Reply {
    let uid = &review["request"]["uid"];
    Reply::Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": path == "/allow"},
    }))
}

#[test]
fn a_request_continues_its_trace_to_the_webhooks() {
    let both = traced();
    let (collector, server) = &*both;
    let (path, _) = workspace(&server.admin(), "traced");
    let client = server.admin().in_workspace(&path);
    let hook = Hook::start(server, allow);
    hooked(&hook, &client);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "secret-name"}});
    let trace = new_trace();
    let answer = send(&client, "POST", MAPS, &trace, "01", &map);
    let id = answer.headers["audit-id"].to_str().unwrap().to_owned();
    answer.expect(201);
    let spans = collector.trace_until(&trace, |spans| root(spans).is_some());
    check_tree(&spans);
    let request = root(&spans).unwrap();
    let route = "/clusters/{cluster}/api/{version}/namespaces/{namespace}/{resource}";
    assert_eq!((&*request.name, request.kind), (&*format!("POST {route}"), SERVER));
    for (key, want) in [
        ("http.request.method", "POST"),
        ("http.route", route),
        ("http.response.status_code", "201"),
        ("insula.verb", "create"),
        ("insula.request.id", &id),
    ] {
        assert_eq!(
            request.attributes.get(key).map(String::as_str),
            Some(want),
            "{key}: {request:#?}"
        );
    }
    assert_eq!((&*request.state, request.is_error), ("vendor=x", false));
    for name in ["authenticate", "authorize", "registry"] {
        assert_eq!(named(&spans, name).parent, request.id, "{name}");
    }
    let registry = named(&spans, "registry");
    assert_eq!(registry.attributes["insula.class"], "system");
    let commit = named(&spans, "store commit");
    assert_eq!(
        (&*commit.parent, &*commit.attributes["insula.outcome"]),
        (&*registry.id, "committed")
    );
    let call = named(&spans, "outbound");
    assert_eq!(
        (&*call.parent, call.kind, call.is_error),
        (&*registry.id, CLIENT, false)
    );
    assert_eq!(call.attributes["insula.purpose"], "webhook");
    assert_eq!(call.attributes["http.response.status_code"], "200");
    assert_eq!(call.attributes["server.address"], "127.0.0.1");
    // The webhook continues the trace below the span of its call.
    let headers = hook.headers("/allow");
    let seen = headers.iter().map(|headers| headers["traceparent"].to_str().unwrap());
    assert_eq!(seen.collect::<Vec<_>>(), [format!("00-{trace}-{}-01", call.id)]);
    assert_eq!(headers[0]["tracestate"], "vendor=x");
    let text = format!("{spans:?}");
    for hidden in ["secret-name", "default", "/allow"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "insula");
    assert_eq!(resource["deployment.environment.name"], "test");
    let line = until("the log names the trace", || {
        let lines = server.json_log().into_iter();
        lines
            .into_iter()
            .find(|line| line["message"] == "answered" && line["span"]["id"] == *id)
    });
    assert_eq!(line["span"]["trace_id"], *trace);
}

#[test]
fn traces_that_the_client_does_not_record_are_only_passed_on() {
    let both = traced();
    let (collector, server) = &*both;
    let (path, _) = workspace(&server.admin(), "unsampled");
    let client = server.admin().in_workspace(&path);
    let hook = Hook::start(server, allow);
    hooked(&hook, &client);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (unsampled, sampled) = (new_trace(), new_trace());
    send(&client, "POST", MAPS, &unsampled, "00", &map).expect(201);
    // A malformed parent is none: a trace begins here.
    send(&client, "GET", MAPS, "xyz", "01", &Value::Null).expect(200);
    send(&client, "GET", MAPS, &sampled, "01", &Value::Null).expect(200);
    let spans = collector.trace_until(&sampled, |spans| root(spans).is_some());
    assert!(spans.iter().any(|span| span.name == "store range"), "{spans:#?}");
    assert!(collector.trace(&unsampled).is_empty());
    let headers = hook.headers("/allow");
    let parent = headers[0]["traceparent"].to_str().unwrap();
    assert!(
        parent.starts_with(&format!("00-{unsampled}-")) && parent.ends_with("-00"),
        "{parent}"
    );
}

#[test]
fn failures_of_the_server_are_errors_and_those_of_clients_are_not() {
    let both = traced();
    let (collector, server) = &*both;
    let (path, _) = workspace(&server.admin(), "failing");
    let client = server.admin().in_workspace(&path);
    let hook = Hook::start(server, |_, _| Reply::Elsewhere(500, String::new()));
    let absent = new_trace();
    send(&client, "GET", &format!("{MAPS}/absent"), &absent, "01", &Value::Null).expect(404);
    hooked(&hook, &client);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let failed = new_trace();
    let answer = send(&client, "POST", MAPS, &failed, "01", &map);
    assert_eq!(answer.code, 500, "{}", answer.text);
    let spans = collector.trace_until(&absent, |spans| root(spans).is_some());
    assert!(spans.iter().all(|span| !span.is_error), "{spans:#?}");
    let spans = collector.trace_until(&failed, |spans| root(spans).is_some());
    let call = named(&spans, "outbound");
    assert!(root(&spans).unwrap().is_error && call.is_error, "{spans:#?}");
    assert_eq!(call.attributes["http.response.status_code"], "500");
}

#[test]
fn conversions_are_spans() {
    let both = traced();
    let (collector, server) = &*both;
    let client = server.admin().in_workspace(&with_widgets(server));
    let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"firstName": "x"}});
    let widgets = "/apis/example.io/v1/namespaces/default/widgets";
    client.post(widgets, &widget).expect(201);
    let trace = new_trace();
    send(
        &client,
        "GET",
        "/apis/example.io/v2/widgets",
        &trace,
        "01",
        &Value::Null,
    )
    .expect(200);
    let spans = collector.trace_until(&trace, |spans| root(spans).is_some());
    check_tree(&spans);
    let (convert, registry) = (named(&spans, "convert"), named(&spans, "registry"));
    assert_eq!(
        (&*convert.parent, &*convert.attributes["insula.objects"]),
        (&*registry.id, "1")
    );
    assert_eq!(registry.attributes["insula.class"], "bound");
    let text = server.admin().get("/metrics").text;
    let line = "insula_conversions_total{resource=\"widgets.example.io\"} ";
    assert!(text.contains(line), "{text}");
}

fn call_with<T>(token: &str, trace: &str, message: T) -> Request<T> {
    let mut request = grpc::as_user(token, message);
    let parent: MetadataValue<_> = format!("00-{trace}-{PARENT}-01").parse().unwrap();
    request.metadata_mut().insert("traceparent", parent);
    request
}

#[test]
fn grpc_calls_are_spans_with_their_status() {
    let both = traced();
    let (collector, server) = &*both;
    let (answered, refused, unknown) = (new_trace(), new_trace(), new_trace());
    runtime().block_on(async {
        let channel = || grpc::channel(server, &Who::Anonymous);
        let mut clusters = ClusterServiceClient::with_origin(channel(), grpc::origin(server));
        let info = call_with("dave-token", &answered, GetInfoRequest::default());
        clusters.get_info(info).await.unwrap();
        let mut workspaces = WorkspaceServiceClient::with_origin(channel(), grpc::origin(server));
        let get = GetWorkspaceRequest {
            workspace: "root:secret-name".to_owned(),
        };
        let status = workspaces
            .get_workspace(call_with("bob-token", &refused, get))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
    });
    let headers = [
        ("content-type", "application/grpc"),
        ("traceparent", &*format!("00-{unknown}-{PARENT}-01")),
    ];
    let admin = server.admin();
    admin
        .try_send("POST", "/secret-name.Service/Method", &headers, Vec::new().into())
        .unwrap();
    for (trace, service, method, code, is_error) in [
        (answered, "insula.admin.v1.ClusterService", "GetInfo", "0", false),
        (refused, "insula.admin.v1.WorkspaceService", "GetWorkspace", "7", false),
        (unknown, "_OTHER", "_OTHER", "12", true),
    ] {
        let spans = collector.trace_until(&trace, |spans| root(spans).is_some());
        check_tree(&spans);
        let call = root(&spans).unwrap();
        assert_eq!((&*call.name, call.kind), (&*format!("{service}/{method}"), SERVER));
        for (key, want) in [
            ("rpc.system", "grpc"),
            ("rpc.service", service),
            ("rpc.method", method),
            ("rpc.grpc.status_code", code),
        ] {
            assert_eq!(
                call.attributes.get(key).map(String::as_str),
                Some(want),
                "{key}: {call:#?}"
            );
        }
        assert_eq!(call.is_error, is_error, "{call:#?}");
        assert!(!format!("{spans:?}").contains("secret-name"), "{spans:#?}");
        assert_eq!(named(&spans, "authenticate").parent, call.id);
    }
}

/// One registry, two exporters: names, types, labels and units are the same.
#[test]
fn the_collector_gets_the_metrics_of_the_endpoint() {
    let both = traced();
    let (collector, server) = &*both;
    publish_widgets(&server.admin().in_workspace(&workspace(&server.admin(), "metered").0));
    let sent = collector.next_metrics();
    let text = server.admin().get("/metrics").text;
    let types: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| {
            let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
            Some((name.to_owned(), kind.to_owned()))
        })
        .collect();
    let exported: BTreeMap<String, String> = sent
        .iter()
        .map(|(name, metric)| (name.clone(), metric.kind.to_owned()))
        .collect();
    assert_eq!(exported, types);
    for (name, metric) in &sent {
        let unit = match name.strip_suffix("_total").unwrap_or(name) {
            name if name.ends_with("_seconds") => "s",
            name if name.ends_with("_bytes") => "By",
            _ => "",
        };
        assert_eq!(metric.unit, unit, "{name}");
        for point in &metric.points {
            let labels = point.labels.iter().map(|(label, value)| format!("{label}=\"{value}\""));
            let labels: BTreeSet<String> = labels.collect();
            let is_shown = text.lines().any(|line| {
                let line = line.strip_prefix(name.as_str()).unwrap_or_default();
                let line = line.strip_prefix("_count").unwrap_or(line);
                labels.iter().all(|label| line.contains(label)) && line.starts_with(['{', ' '])
            });
            assert!(is_shown, "{name}{labels:?}");
        }
    }
    let commits = &sent["insula_commit_duration_seconds"].points;
    let committed = commits
        .iter()
        .find(|point| point.labels["outcome"] == "Committed")
        .unwrap();
    assert!(committed.value > 1.0 && committed.buckets.iter().sum::<u64>() as f64 == committed.value);
    assert!(sent["process_resident_memory_bytes"].points[0].value > 1e6);
    let depths = &sent["workqueue_depth"].points;
    assert!(
        depths.iter().any(|point| point.labels["name"] == "apibinding"),
        "{depths:?}"
    );
}

/// Collectors behind a gateway ask for a credential.
#[test]
fn spans_and_metrics_carry_the_headers_of_the_environment() {
    let collector = Collector::start();
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a,authorization=Bearer%20secret");
    let server = with_collector(collector.url(), &[headers]);
    let trace = new_trace();
    send(&server.admin(), "GET", "/readyz", &trace, "01", &Value::Null);
    collector.trace_until(&trace, |spans| root(spans).is_some());
    collector.next_metrics();
    assert_eq!(
        collector.credentials(),
        ["Bearer secret"; 2].map(|one| Some(one.to_owned()))
    );
}

/// The level of the log is that of its lines alone, also after a change.
#[test]
fn traces_do_not_depend_on_the_level_of_the_log() {
    let collector = Collector::start();
    let server = with_collector(collector.url(), &[("INSULA_LOG_LEVEL", "error")]);
    let client = server.admin().in_workspace("root");
    let recorded = || {
        let trace = new_trace();
        send(&client, "GET", MAPS, &trace, "01", &Value::Null).expect(200);
        let spans = collector.trace_until(&trace, |spans| root(spans).is_some());
        check_tree(&spans);
        assert_eq!(named(&spans, "authenticate").parent, root(&spans).unwrap().id);
        trace
    };
    recorded();
    assert!(!server.log().contains("answered"), "{}", server.log());
    let level = SetLogLevelRequest {
        level: "debug".to_owned(),
        ..SetLogLevelRequest::default()
    };
    let channel = grpc::channel(&server, &Who::KcpAdmin);
    let mut maintenance = MaintenanceServiceClient::with_origin(channel, grpc::origin(&server));
    runtime().block_on(maintenance.set_log_level(level)).unwrap();
    let trace = recorded();
    let line = until("the log has lines of requests", || {
        let mut lines = server.json_log().into_iter();
        lines.find(|line| line["message"] == "answered" && line["span"]["trace_id"] == *trace)
    });
    // Spans of traces are no context of log lines.
    assert_eq!(line["span"]["name"], "request");
}

/// Without a collector the server records nothing, and webhooks continue the client's trace.
#[test]
fn without_a_collector_the_clients_trace_is_passed_on() {
    let server = Server::with_flags(&[
        "--store",
        "memory",
        "--webhook-allow",
        "127.0.0.1",
        "--log-level",
        "debug",
    ]);
    let (path, _) = workspace(&server.admin(), "passed");
    let client = server.admin().in_workspace(&path);
    let hook = Hook::start(&server, allow);
    hooked(&hook, &client);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let trace = new_trace();
    let answer = send(&client, "POST", MAPS, &trace, "01", &map);
    let id = answer.headers["audit-id"].to_str().unwrap().to_owned();
    answer.expect(201);
    client
        .merge(&format!("{MAPS}/a"), &json!({"data": {"b": "c"}}))
        .expect(200);
    let parents: Vec<_> = hook
        .headers("/allow")
        .iter()
        .map(|headers| headers.get("traceparent").cloned())
        .collect();
    let parent = format!("00-{trace}-{PARENT}-01");
    assert_eq!(parents, [Some(parent.parse().unwrap()), None]);
    let line = until("the log names the trace", || {
        let mut lines = server.json_log().into_iter();
        lines.find(|line| line["message"] == "answered" && line["span"]["id"] == *id)
    });
    assert_eq!(line["span"]["trace_id"], *trace);
}
