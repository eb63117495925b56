//! Extension servers that break the rules of HTTP, lie in their documents, or are not what they
//! say they are.

use std::time::Duration;

use bytes::Bytes;
use insula_e2e::{
    Answer, Client, Hostile, Http1, Kubectl, PATIENCE, Server, Setup, Then, Who, until, with_widgets, workspace,
};
use serde_json::{Value, json};

use super::SERVICES;

const GROUP: &str = "fleet.example.com";
const BOATS: &str = "/apis/fleet.example.com/v1/namespaces/default/boats";
/// Requests of a workspace that may wait for extension servers.
const PERMITS: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// Starts a server with short limits: two seconds for a request.
fn server() -> Server {
    let variable = |name: &str, value: &str| (format!("INSULA_{name}"), value.to_owned());
    Server::with(Setup {
        flags: ["--webhook-allow", "127.0.0.1"].map(str::to_owned).into(),
        environment: vec![
            variable("WEBHOOKS_PROXIED_REQUESTS_PER_WORKSPACE", &PERMITS.to_string()),
            variable("WATCHES_BOOKMARK_SECONDS", "1"),
            variable("LIMITS_REQUEST_SECONDS", "2"),
        ],
        ..Setup::default()
    })
}

fn resources(names: &[&str]) -> Value {
    let resource = |name: &&str| {
        json!({"name": name, "singularName": "", "namespaced": true, "kind": "Boat", "verbs": ["get", "list"],
            "shortNames": ["cm"], "group": "", "version": "v1"})
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "fleet.example.com/v1",
        "resources": names.iter().map(resource).collect::<Vec<_>>()})
}

/// Returns the answer to a request for a boat, by its name.
fn misbehave(path: &str) -> (Vec<u8>, Then) {
    let name = path.split('?').next().unwrap().strip_prefix(BOATS);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n");
    let again = |first: &str, again: &str| (first.into(), Then::Repeat(again.into(), PAUSE));
    match name {
        Some("") => Hostile::json(&json!({"kind": "BoatList", "apiVersion": "fleet.example.com/v1", "items": []})),
        Some("/endless-headers") => again(head, &"x-more: and-more\r\n".repeat(20)),
        Some("/dripping-header") => again(head, "x"),
        Some("/hints") => again("", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
        Some("/silent") => (Vec::new(), Then::Hang),
        Some("/dripping-body") => again(&chunked, "1\r\nx\r\n"),
        Some("/endless-body") => again(&chunked, &format!("4000\r\n{}\r\n", "x".repeat(0x4000))),
        Some("/short") => (format!("{head}content-length: 100\r\n\r\n{{}}").into(), Then::Close),
        Some("/long") => {
            let answer = format!("{head}content-length: 2\r\n\r\n{{}}");
            let next = format!("{head}content-length: 10\r\n\r\n\"smuggled\"");
            ((answer + &next).into(), Then::Stay)
        }
        Some("/both") => {
            let lengths = "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n";
            let next = format!("{head}content-length: 10\r\n\r\n\"smuggled\"");
            (
                format!("{head}{lengths}2\r\n{{}}\r\n0\r\n\r\n{next}").into(),
                Then::Stay,
            )
        }
        Some("/garbage") => (b"\x16\x03\x01 you speak HTTP?\r\n\r\n".to_vec(), Then::Close),
        Some("/page") => {
            let fields = "content-type: text/html\r\ncontent-security-policy: script-src *\r\n\
                service-worker-allowed: /\r\nset-cookie: a=b\r\naudit-id: mine\r\nx-remote-user: root\r\n\
                strict-transport-security: max-age=1\r\nclear-site-data: *\r\n\
                www-authenticate: Basic realm=\"kubernetes\"\r\naccess-control-allow-origin: *\r\n\
                location: https://elsewhere.example.com\r\nwarning: 299 - \"mind the gap\"\r\n";
            let page = "<script src=/x></script>";
            let length = page.len();
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: {length}\r\n\r\n{page}");
            (answer.into(), Then::Stay)
        }
        Some("/changed/exec") => {
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
            (answer.to_vec(), Then::Hang)
        }
        _ => Hostile::json(&resources(&["boats"])),
    }
}

fn register(client: &Client, hostile: &Hostile, group: &str) {
    client.post(SERVICES, &hostile.api_service(group)).expect(201);
}

fn condition(client: &Client, group: &str) -> Value {
    let service = client.get(&format!("{SERVICES}/v1.{group}")).expect(200);
    service["status"]["conditions"][0].clone()
}

fn wait_for(client: &Client, group: &str, status: &str) -> Value {
    until("the condition Available is as expected", || {
        let found = condition(client, group);
        (found["status"] == status).then_some(found)
    })
}

fn fetch(client: &Client, name: &str) -> Result<Answer, String> {
    client.try_send("GET", &format!("{BOATS}/{name}"), &[], Bytes::new())
}

/// A workspace whose boats are those of a hostile server.
fn hostile_workspace(server: &Server) -> (Client, String) {
    let admin = server.admin();
    let (path, _) = workspace(&admin, "hostile");
    let client = admin.in_workspace(&path);
    register(&client, &Hostile::start("127.0.0.1", misbehave), GROUP);
    wait_for(&client, GROUP, "True");
    (client, path)
}

#[test]
fn answers_that_never_end_are_ended_and_give_their_permits_back() {
    let server = server();
    let (client, _) = hostile_workspace(&server);
    for name in ["endless-headers", "dripping-header", "hints", "silent", "garbage"] {
        for _ in 0..2 {
            let refused = fetch(&client, name).unwrap();
            assert!(
                matches!(refused.code, 503 | 504),
                "{name}: {} {}",
                refused.code,
                refused.text
            );
            assert_eq!(refused.body["kind"], "Status", "{name}: {}", refused.text);
        }
    }
    for name in ["dripping-body", "endless-body"] {
        for _ in 0..2 {
            let broken = fetch(&client, name).map(|answer| answer.code);
            assert!(broken.is_err(), "{name} breaks off: {broken:?}");
        }
    }
    until("no request holds a permit", || {
        let held: Vec<_> = (0..PERMITS).map(|_| client.get(BOATS).code).collect();
        held.iter().all(|code| *code == 200).then_some(())
    });
    let silent = format!("{BOATS}/silent");
    std::thread::scope(|threads| {
        for _ in 0..PERMITS {
            // The question whether all are held takes a permit for a moment as well.
            threads.spawn(|| {
                until("a permit is free", || {
                    (fetch(&client, "silent").unwrap().code != 429).then_some(())
                })
            });
        }
        until("all permits are held", || (client.get(BOATS).code == 429).then_some(()));
        assert_eq!(client.get(&silent).code, 429);
    });
    client.get(BOATS).expect(200);
}

#[test]
fn answers_of_a_wrong_length_are_no_answers_to_others() {
    let server = server();
    let (client, _) = hostile_workspace(&server);
    let short = fetch(&client, "short").map(|answer| answer.text);
    assert!(short.is_err(), "it is not taken for a whole answer: {short:?}");
    for name in ["long", "both", "long", "both"] {
        // More than one answer may be refused, but none may be that of another request.
        for _ in 0..3 {
            if let Ok(answer) = fetch(&client, name) {
                assert!(!answer.text.contains("smuggled"), "{name}: {}", answer.text);
                assert!(name != "both" || answer.code == 502, "{name}: {}", answer.code);
            }
            let list = client.get(BOATS);
            assert_eq!(
                (list.code, &list.body["kind"]),
                (200, &json!("BoatList")),
                "{name}: {}",
                list.text
            );
        }
    }
}

#[test]
fn answers_do_not_speak_for_the_server() {
    let server = server();
    let (client, _) = hostile_workspace(&server);
    let page = fetch(&client, "page").unwrap();
    assert_eq!((page.code, &*page.text), (200, "<script src=/x></script>"));
    let field = |name: &str| page.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(
        field("content-security-policy"),
        Some("sandbox"),
        "no script runs under this origin"
    );
    assert_ne!(field("audit-id"), Some("mine"));
    for gone in [
        "set-cookie",
        "service-worker-allowed",
        "x-remote-user",
        "strict-transport-security",
        "clear-site-data",
        "www-authenticate",
        "access-control-allow-origin",
        "location",
    ] {
        assert_eq!(field(gone), None, "{gone}");
    }
    assert_eq!(field("content-type"), Some("text/html"));
    assert_eq!(field("warning"), Some("299 - \"mind the gap\""));
    let changed = client.get(&format!("{BOATS}/changed/exec"));
    assert_eq!(changed.code, 502, "{}", changed.text);
}

#[test]
fn an_upgrade_that_never_ends_is_ended_with_its_reason() {
    let server = server();
    let (client, path) = hostile_workspace(&server);
    let open = || {
        let mut connection = Http1::connect(&server, &Who::Token("carol-token".into())).unwrap();
        let request = format!(
            "GET /clusters/{path}{BOATS}/changed/exec HTTP/1.1\r\nhost: x\r\nauthorization: Bearer carol-token\r\n\
             connection: close, upgrade\r\nupgrade: SPDY/3.1\r\n\r\n"
        );
        connection.write(request.as_bytes()).unwrap();
        connection
    };
    // One that comes late, and is refused, ends as well.
    let mut connections: Vec<Http1> = (0..4 * PERMITS).map(|_| open()).collect();
    // As many streams as a workspace may have; its requests are not concerned.
    until("all streams are open", || {
        let mut refused = open();
        refused.ends_within(PAUSE);
        let watch = client.get(&format!("{BOATS}?watch=true"));
        (watch.code == 429).then_some(())
    });
    client.get(BOATS).expect(200);
    client.delete(&format!("{SERVICES}/v1.{GROUP}")).expect(200);
    for connection in &mut connections {
        assert!(connection.ends_within(PATIENCE), "its extension server is gone");
    }
    // An end of the server waits for none.
    register(&client, &Hostile::start("127.0.0.1", misbehave), GROUP);
    wait_for(&client, GROUP, "True");
    let connection = open();
    server.signal("-TERM");
    let (code, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
    drop(connection);
}

/// Answers for documents: those of each group are hostile in another way.
fn lie(path: &str) -> (Vec<u8>, Then) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let forged = |text: &str| json!({"type": "object", "description": text});
    match path {
        "/apis/liar.example.com/v1" => Hostile::json(&resources(&[
            "configmaps",
            "namespaces",
            "secrets",
            "configmaps/status",
        ])),
        "/openapi/v2" => Hostile::json(&json!({
            "swagger": "2.0", "info": {"title": "x", "version": "v1"},
            "definitions": {"io.k8s.api.core.v1.ConfigMap": forged("forged"),
                "com.example.liar.v1.Boat": forged("own")},
            "paths": {"/api/v1/namespaces": {"get": {"description": "forged", "responses": {}}},
                "/apis/apps/v1/": {"get": {"description": "forged", "responses": {}}}},
        })),
        "/openapi/v3" => Hostile::json(&json!({"paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=FORGED"},
            "apis/liar.example.com/v1": {"serverRelativeURL": "https://forged.example.com/?hash=A%0d%0aB"},
        }})),
        "/apis/huge.example.com/v1" => {
            let first = format!("{head}content-length: 104857600\r\n\r\n{{\"x\":\"");
            (
                first.into(),
                Then::Repeat(vec![b'x'; 64 << 10], Duration::from_millis(1)),
            )
        }
        "/apis/deep.example.com/v1" => {
            let body = format!("{{\"resources\":{}", "[".repeat(200_000));
            let length = body.len();
            (
                format!("{head}content-length: {length}\r\n\r\n{body}").into(),
                Then::Stay,
            )
        }
        "/apis/slow.example.com/v1" => (
            format!("{head}content-length: 99\r\n\r\n").into(),
            Then::Repeat(b" ".to_vec(), PAUSE * 10),
        ),
        "/apis/many.example.com/v1" => {
            let names: Vec<String> = (0..1_000).map(|index| format!("r{index}")).collect();
            Hostile::json(&resources(&names.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        _ => Hostile::json(&json!({})),
    }
}

#[test]
fn documents_that_lie_change_nothing_of_other_groups() {
    let server = server();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "lied-to");
    let client = admin.in_workspace(&path);
    let liar = Hostile::start("127.0.0.1", lie);
    let core = client.get("/openapi/v3").expect(200)["paths"]["api/v1"].clone();
    for group in ["liar", "huge", "deep", "slow", "many"] {
        register(&client, &liar, &format!("{group}.example.com"));
    }
    let message = |group: &str| wait_for(&client, group, "False")["message"].to_string();
    let huge = message("huge.example.com");
    assert!(huge.contains("the document is larger than 262144 bytes"), "{huge}");
    let slow = message("slow.example.com");
    assert!(slow.contains("context deadline exceeded"), "{slow}");
    wait_for(&client, "liar.example.com", "True");
    wait_for(&client, "deep.example.com", "True");
    let many = wait_for(&client, "many.example.com", "True");
    assert_eq!(many["reason"], "Passed");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let list = client.get_with("/apis", &[("accept", accept)]).expect(200);
    let groups = list["items"].as_array().unwrap();
    let shown = |name: &str| {
        let group = groups.iter().find(|group| group["metadata"]["name"] == name).unwrap();
        group["versions"][0]["resources"].as_array().unwrap().len()
    };
    assert_eq!(
        (
            shown("liar.example.com"),
            shown("deep.example.com"),
            shown("many.example.com")
        ),
        (3, 0, 512)
    );
    assert!(
        groups.iter().all(|group| group["metadata"]["name"] != ""),
        "the core group is elsewhere"
    );
    // Documents of OpenAPI.
    let index = client.get("/openapi/v3").expect(200)["paths"].clone();
    assert_eq!(index["api/v1"], core);
    let own = index["apis/liar.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(own, "/openapi/v3/apis/liar.example.com/v1?hash=A");
    let old = client.get("/openapi/v2").expect(200);
    assert!(
        !old.to_string().contains("forged"),
        "neither kinds nor paths of other groups"
    );
    // kubectl still means the kinds of Kubernetes.
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let created = kubectl.run(&path, &["create", "configmap", "mine", "--from-literal=a=b"], "");
    assert_eq!(created.code, 0, "{}", created.text);
    for name in ["cm", "configmap", "configmaps"] {
        let ran = kubectl.run(
            &path,
            &["get", name, "mine", "-o", "jsonpath={.apiVersion}{.data.a}"],
            "",
        );
        // kubectl warns of short names that others have, too.
        assert!(ran.text.starts_with("v1b"), "{name}: {}", ran.text);
    }
}

#[test]
fn a_certificate_of_another_name_gets_no_request() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "misled").0);
    let other = Hostile::start("other.example.com", misbehave);
    register(&client, &other, GROUP);
    let failed = wait_for(&client, GROUP, "False");
    let told = failed["message"].as_str().unwrap();
    assert!(told.contains("tls: failed to verify certificate: x509: "), "{told}");
    client.get(BOATS).expect(503);
    assert_eq!(other.requests(), 0);
    // Another server's authority, for the right name.
    let right = Hostile::start("127.0.0.1", misbehave);
    let mut service = right.api_service("second.example.com");
    service["spec"]["caBundle"] = other.api_service(GROUP)["spec"]["caBundle"].clone();
    client.post(SERVICES, &service).expect(201);
    wait_for(&client, "second.example.com", "False");
    assert_eq!(right.requests(), 0);
}

#[test]
fn bound_groups_are_not_taken_over() {
    let server = server();
    let client = server.admin().in_workspace(&with_widgets(&server));
    let hostile = Hostile::start("127.0.0.1", misbehave);
    let mut service = hostile.api_service("example.io");
    let told = client.post(SERVICES, &service).expect(422);
    let text = told["message"].as_str().unwrap();
    assert!(text.contains("the workspace serves example.io/v1 by itself"), "{text}");
    // Nor by an APIService that was local, or of another group, before.
    service["spec"]
        .as_object_mut()
        .unwrap()
        .retain(|name, _| name != "service" && name != "caBundle");
    client.post(SERVICES, &service).expect(201);
    let server = json!({"spec": {"service": {"namespace": "default", "name": "hostile"}}});
    let one = format!("{SERVICES}/v1.example.io");
    client.merge(&one, &server).expect(422);
    client
        .merge(&one, &json!({"spec": {"group": "else.example.io"}}))
        .expect(422);
    client.get("/apis/example.io/v1/widgets").expect(200);
    assert_eq!(hostile.requests(), 0);
}

/// A name that another server may read as a path is not what was authorized there.
#[test]
fn a_name_that_may_be_a_path_reaches_no_extension_server() {
    let server = server();
    let (client, _) = hostile_workspace(&server);
    for name in ["..;page", "..%3Bpage", "a%5C..%5Cpage"] {
        let refused = fetch(&client, name).unwrap();
        assert_eq!(refused.code, 400, "{name}: {}", refused.text);
        assert!(refused.text.contains("is not passed on"), "{name}: {}", refused.text);
    }
}
