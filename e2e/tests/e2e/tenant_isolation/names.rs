//! Names of workspaces, hosts and tokens that answers and logs must not reveal.

use bytes::Bytes;
use insula_e2e::{Answer, Client, Server, Who, shared, unique, until};
use serde_json::{Value, json};

use super::{
    AUTHORIZATION,
    scene::{MAPS, owned_by},
};

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const TYPES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";

fn user(server: &Server, name: &str) -> Client {
    server.client(Who::Token(format!("{name}-token")))
}

fn map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}})
}

/// Returns an answer without the parts that differ between any two answers.
fn shown(answer: &Answer) -> String {
    let headers = answer.headers.iter();
    let mut headers: Vec<String> = headers
        .filter(|(name, _)| !matches!(name.as_str(), "audit-id" | "date"))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
        .collect();
    headers.sort();
    format!("{} {headers:?} {}", answer.code, answer.text)
}

/// A method, a path below the workspace, and headers.
type Request = (&'static str, String, Vec<(&'static str, &'static str)>);

/// Requests that reach every part of a workspace.
fn requests() -> Vec<Request> {
    let mut all: Vec<Request> = Vec::new();
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
        "/metrics",
        "/healthz",
        "/livez",
        "/readyz",
        "/nothing/here",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default",
        "/api/v1/configmaps?watch=true",
        "/api/v1/configmaps?resourceVersion=1&resourceVersionMatch=Exact",
        "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
    ] {
        all.push(("GET", path.to_owned(), Vec::new()));
    }
    for method in ["POST", "DELETE"] {
        all.push((method, MAPS.to_owned(), Vec::new()));
    }
    for method in ["GET", "PUT", "DELETE"] {
        all.push((method, format!("{MAPS}/map"), Vec::new()));
    }
    let json = ("content-type", "application/apply-patch+yaml");
    all.push(("PATCH", format!("{MAPS}/map?fieldManager=a"), vec![json]));
    let table = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let protobuf = ("accept", "application/vnd.kubernetes.protobuf");
    let lent = ("impersonate-user", "carol");
    let group = ("impersonate-group", "system:masters");
    for headers in [vec![table], vec![protobuf], vec![lent], vec![lent, group]] {
        all.push(("GET", "/api/v1/configmaps".to_owned(), headers.clone()));
        all.push(("GET", "/apis".to_owned(), headers));
    }
    all
}

/// Creates below a workspace a ready child, an inactive one, and a mount that is not ready.
fn create_children(masters: &Client, path: &str) {
    let masters_there = masters.in_workspace(path);
    let child = |name: &str, spec: Value| {
        json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec,
        })
    };
    let reference = json!({"apiVersion": "mounts.example.com/v1", "kind": "Remote", "name": "nothing"});
    masters_there
        .post(WORKSPACES, &child("mount", json!({"mount": {"ref": reference}})))
        .expect(201);
    for name in ["child", "off"] {
        masters_there.post(WORKSPACES, &child(name, json!({}))).expect(201);
        until("the child is ready", || {
            let found = masters_there.get(&format!("{WORKSPACES}/{name}")).expect(200);
            (found["status"]["phase"] == "Ready").then_some(())
        });
    }
    let inactive = json!({"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}});
    let logical = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
    masters
        .in_workspace(&format!("{}:off", path))
        .merge(logical, &inactive)
        .expect(200);
}

/// A caller without access to a workspace gets the same answer whether the workspace exists, does
/// not exist, or is unavailable.
#[test]
fn answers_do_not_reveal_workspaces() {
    let server = shared();
    let masters = server.client(Who::ShardAdmin);
    let there = owned_by(&server, "bob");
    create_children(&masters, &there.path);
    let paths = [
        ("by path", there.path.clone()),
        ("by name", there.cluster.clone()),
        ("a child", format!("{}:child", there.path)),
        ("a mount that is not ready", format!("{}:mount", there.path)),
        ("one that is switched off", format!("{}:off", there.path)),
        ("no such path", format!("root:{}", unique("nosuch"))),
        ("no such child", format!("{}:nosuch", there.path)),
        ("no such child of a name", format!("{}:nosuch", there.cluster)),
        ("no such parent", format!("root:{}:child", unique("nosuch"))),
        ("no such name", "2h3k5n7p9r1t4v6x".to_owned()),
    ];
    let body = Bytes::from(map().to_string());
    for (who, client) in [
        ("alice", user(&server, "alice")),
        ("anonymous", server.client(Who::Anonymous)),
    ] {
        for (method, request, headers) in requests() {
            let ask = |path: &str| {
                let sent = if matches!(method, "GET" | "DELETE") {
                    Bytes::new()
                } else {
                    body.clone()
                };
                let answer = client
                    .try_send(method, &format!("/clusters/{path}{request}"), &headers, sent)
                    .unwrap();
                shown(&answer)
            };
            let want = ask(&paths[0].1);
            for (what, path) in &paths[1..] {
                assert_eq!(ask(path), want, "{who}: {method} {request} {headers:?} {what}");
            }
        }
    }
    // Callers who may read Workspace objects learn which workspaces exist: owners below their own,
    // the platform everywhere.
    for knows in [user(&server, "bob"), user(&server, "dave")] {
        for (name, code) in [("nosuch", 404), ("mount", 503)] {
            let answer = knows.in_workspace(&format!("{}:{name}", there.path)).get("/apis");
            assert_eq!(answer.code, code, "{name}: {}", answer.text);
        }
    }
}

/// Types reveal no more than workspaces do: neither by their names, nor by the types that they
/// extend.
#[test]
fn workspace_types_do_not_reveal_other_workspaces() {
    let server = shared();
    let (mine, theirs) = (owned_by(&server, "alice"), owned_by(&server, "bob"));
    let (alice, bob) = (
        user(&server, "alice").in_workspace(&mine.path),
        user(&server, "bob").in_workspace(&theirs.path),
    );
    let kind = |name: &str, base: Option<(&str, &str)>| {
        let mut kind = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}, "spec": {},
        });
        if let Some((path, name)) = base {
            kind["spec"]["extend"] = json!({"with": [{"path": path, "name": name}]});
        }
        kind
    };
    bob.post(TYPES, &kind("there", Some((&theirs.path, "base"))))
        .expect(201);
    bob.post(TYPES, &kind("base", None)).expect(201);
    let nowhere = format!("root:{}", unique("nosuch"));
    let refusal = |name: &str, path: &str, base: &str| {
        alice.post(TYPES, &kind(name, Some((path, base)))).expect(201);
        let workspace = |kind: Value| {
            json!({
                "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "x"},
                "spec": {"type": kind},
            })
        };
        let extending = alice.post(WORKSPACES, &workspace(json!({"name": name, "path": mine.path})));
        let direct = alice.post(WORKSPACES, &workspace(json!({"name": base, "path": path})));
        [extending, direct].map(|answer| shown(&answer).replace(&format!("{path}:{base}"), "THE-TYPE"))
    };
    let lengthless = |answers: [String; 2]| {
        answers.map(|text| {
            let (before, after) = text.split_once("content-length: ").unwrap();
            format!("{before}{}", after.split_once('"').unwrap().1)
        })
    };
    let there = lengthless(refusal("a", &theirs.path, "there"));
    assert!(there.iter().all(|text| text.starts_with("403")), "{there:?}");
    assert_eq!(lengthless(refusal("b", &theirs.path, "nosuch")), there);
    assert_eq!(lengthless(refusal("c", &nowhere, "nosuch")), there);
}

/// Bindings and endpoint slices report the same for a closed export, a missing export, and an
/// export in a missing workspace.
#[test]
fn bindings_do_not_reveal_exports() {
    let server = shared();
    let (mine, theirs) = (owned_by(&server, "alice"), owned_by(&server, "bob"));
    let (alice, bob) = (
        user(&server, "alice").in_workspace(&mine.path),
        user(&server, "bob").in_workspace(&theirs.path),
    );
    let group = "/apis/apis.kcp.io/v1alpha2";
    let export = |name: &str| {
        json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
        "metadata": {"name": name}, "spec": {}})
    };
    bob.post(&format!("{group}/apiexports"), &export("private")).expect(201);
    alice.post(&format!("{group}/apiexports"), &export("own")).expect(201);
    let binding = |name: &str, path: &str, export: &str| {
        json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": name},
            "spec": {"reference": {"export": {"path": path, "name": export}}},
        })
    };
    alice
        .post(&format!("{group}/apibindings"), &binding("own", &mine.path, "own"))
        .expect(201);
    let nowhere = format!("root:{}", unique("nosuch"));
    let refusals = |path: &str, name: &str| {
        let slice = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice", "metadata": {"name": "x"},
            "spec": {"export": {"path": path, "name": name}},
        });
        let moved = json!({"spec": {"reference": {"export": {"path": path, "name": name}}}});
        let kind = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "x"},
            "spec": {"defaultAPIBindings": [{"path": path, "export": name}]},
        });
        let answers = [
            alice.post(&format!("{group}/apibindings"), &binding("x", path, name)),
            alice.merge(&format!("{group}/apibindings/own"), &moved),
            alice.post("/apis/apis.kcp.io/v1alpha1/apiexportendpointslices", &slice),
            alice.post(TYPES, &kind),
        ];
        // What the caller wrote is repeated, and nothing else.
        let words = |text: &str| text.replace(path, "WORKSPACE").replace(name, "EXPORT");
        answers.map(|answer| (answer.code, words(&answer.text)))
    };
    let closed = refusals(&theirs.path, "private");
    assert_eq!(
        closed.each_ref().map(|(code, _)| *code),
        [403, 422, 403, 403],
        "{closed:?}"
    );
    for (path, name) in [
        (&*theirs.path, "nosuch"),
        (&*theirs.cluster, "private"),
        (&*nowhere, "private"),
    ] {
        assert_eq!(refusals(path, name), closed, "{path}:{name}");
    }
}

/// The error of a webhook call is the same for a name that does not resolve and one that resolves
/// to an internal address.
#[test]
fn webhook_errors_do_not_reveal_host_names() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let alice = user(&server, "alice").in_workspace(&place.path);
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let refusal = |host: &str| {
        let hook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "asks"},
            "webhooks": [{
                "name": "asks.example.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail", "clientConfig": {"url": format!("https://{host}:8443/ask")},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
                }],
            }],
        });
        alice.post(configurations, &hook).expect(201);
        let answer = alice.post(MAPS, &map());
        alice.delete(&format!("{configurations}/asks")).expect(200);
        assert_eq!(answer.code, 500, "{}", answer.text);
        answer.body["message"].as_str().unwrap().replace(host, "THE-HOST")
    };
    let inside = refusal("localhost");
    assert!(
        inside.contains("THE-HOST:8443 is not among the targets that this server may call"),
        "{inside}"
    );
    for host in ["no-such-host.invalid", "127.0.0.1", "10.0.0.1"] {
        assert_eq!(refusal(host), inside, "{host}");
    }
    // The operator's log distinguishes the two.
    let log = until("the operator's log has both", || {
        let log = server.log();
        let has = |text: &str, host: &str| log.lines().any(|line| line.contains(text) && line.contains(host));
        (has("cannot be resolved", "no-such-host.invalid") && has("no allowed address", "localhost")).then_some(log)
    });
    assert!(log.contains("127.0.0.1"), "{log}");
}

/// Logs contain no credentials, not even those that clients put in the wrong place.
#[test]
fn credentials_are_not_recorded() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let secret = |way: &str| format!("s3cret-{way}-{}", std::process::id());
    let list = format!("/clusters/{}{MAPS}", place.path);
    let alice = user(&server, "alice");
    let anonymous = server.client(Who::Anonymous);
    let bearer = format!("Bearer {}", secret("header"));
    let protocol = format!("base64url.bearer.authorization.k8s.io.{}", secret("protocol"));
    let (queries, mut last) = (
        ["access_token", "token", "ACCESS_TOKEN", "acce%73s_token", "id_token"],
        None,
    );
    for (at, key) in queries.iter().enumerate() {
        let path = format!("{list}?limit=1&{key}={}&watch=0", secret(&format!("query{at}")));
        let answer = alice.get(&path);
        assert_eq!(answer.code, 200, "{}", answer.text);
        last = answer.headers.get("audit-id").map(|id| id.to_str().unwrap().to_owned());
    }
    assert_eq!(anonymous.get_with(&list, &[(AUTHORIZATION, &bearer)]).code, 401);
    anonymous
        .over_http1()
        .get_with(&list, &[("sec-websocket-protocol", &protocol)]);
    let file = server.data_dir().join("audit/audit.log");
    let log = until("the last request is in the audit log", || {
        let text = std::fs::read_to_string(&file).ok()?;
        text.contains(last.as_deref().unwrap()).then_some(text)
    });
    let line = log
        .lines()
        .find(|line| line.contains(last.as_deref().unwrap()))
        .unwrap();
    assert!(line.contains("?limit=1&id_token=REDACTED&watch=0"), "{line}");
    let shown = log + &server.log();
    for at in 0..queries.len() {
        let secret = secret(&format!("query{at}"));
        assert!(!shown.contains(&secret), "{secret} is in a log");
    }
    for way in ["header", "protocol"] {
        assert!(!shown.contains(&secret(way)), "the credential of the {way} is in a log");
    }
}
