//! Limits on a tenant's requests: their sizes, rates and concurrency. A refusal names the limit.

use std::{
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use insula_e2e::{Answer, Client, Server, Setup, Who, begun, shared, until, with_widgets, workspace};
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(metadata: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn refused(answer: &Answer, code: u16, reason: &str, text: &str) {
    assert_eq!(
        (answer.code, &answer.body["reason"]),
        (code, &json!(reason)),
        "{:.300}",
        answer.text
    );
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(message.contains(text), "{message}");
}

/// Methods of the admin API in JSON: the server reads on there as well.
#[test]
fn calls_in_json_have_limits() {
    let (server, call) = (shared(), "/insula.admin.v1.ConversionService/SuggestRules");
    let kind = [("content-type", "application/json")];
    for megabytes in [4, 9] {
        let body = format!("{{\"workspace\": \"{}\"}}", "a".repeat(megabytes << 20));
        let answer = server.admin().try_send("POST", call, &kind, body.into()).unwrap();
        assert_eq!((answer.code, &answer.body["code"]), (413, &json!("resource_exhausted")));
    }
}

#[test]
fn request_bodies_have_limits() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "limits").0);
    let send = |method: &str, path: &str, kind: &str, body: String| {
        let headers = [("content-type", kind)];
        client.try_send(method, path, &headers, Bytes::from(body)).unwrap()
    };
    let json_type = "application/json";
    // The server reads on, so that the answer comes over the connection and not its end.
    for megabytes in [3, 40] {
        let large = format!("{{\"data\": {{\"a\": \"{}\"}}}}", "a".repeat(megabytes << 20));
        refused(
            &send("POST", MAPS, json_type, large),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        );
    }
    let deep = format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {}1{}}}",
        "{\"a\":".repeat(20_000),
        "}".repeat(20_000)
    );
    refused(&send("POST", MAPS, json_type, deep), 400, "BadRequest", "depth");
    client.post(MAPS, &map(&json!({"name": "a"}))).expect(201);
    let operation = r#"{"op": "add", "path": "/metadata/labels", "value": {}}"#;
    let operations = |count: usize| format!("[{}]", vec![operation; count].join(","));
    let (one, patch) = (format!("{MAPS}/a"), "application/json-patch+json");
    assert_eq!(send("PATCH", &one, patch, operations(10_000)).code, 200);
    refused(
        &send("PATCH", &one, patch, operations(10_001)),
        413,
        "RequestEntityTooLarge",
        "The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
    let rows = [
        (json!({"name": "a".repeat(254)}), "must be no more than 253"),
        (
            json!({"name": "b", "labels": {"a": "b".repeat(64)}}),
            "must be no more than 63",
        ),
        (
            json!({"name": "b", "labels": {"a".repeat(64): "b"}}),
            "must be no more than 63",
        ),
        (
            json!({"name": "b", "annotations": {"a": "b".repeat(256 << 10)}}),
            "262144",
        ),
    ];
    for (metadata, text) in rows {
        refused(&client.post(MAPS, &map(&metadata)), 422, "Invalid", text);
    }
    let data = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"},
        "data": {"a": "b".repeat((1 << 20) + 1)}});
    refused(
        &client.post(MAPS, &data),
        422,
        "Invalid",
        "Too long: may not be more than 1048576 bytes",
    );
}

/// A selector of thousands of values fits the URL. The server refuses excessive headers, and stays
/// up.
#[test]
fn urls_and_headers_have_limits() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "headers").0);
    client
        .post(MAPS, &map(&json!({"name": "a", "labels": {"a": "v4999"}})))
        .expect(201);
    let values: Vec<String> = (0..5000).map(|value| format!("v{value:04}")).collect();
    let path = format!("{MAPS}?labelSelector=a+in+({})", values.join(","));
    let list = client.get(&path).expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let endless = "x".repeat(2 << 20);
    let answer = client.try_send("GET", MAPS, &[("x-endless", &endless)], Bytes::new());
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.code == 431));
    client.get(MAPS).expect(200);
}

/// Begins a request that takes the only permit, and returns the refusal of another request. Begins
/// again when one of the other requests held the permit at that moment.
fn in_flight(
    server: &Server,
    path: &str,
    other: impl Fn() -> Answer,
) -> (StreamOwned<ClientConnection, TcpStream>, Answer) {
    until("carol's request is in flight", || {
        let held = begun(server, "carol-token", path, 9);
        let mut answers = (0..20).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            other()
        });
        let refused = answers.find(busy)?;
        Some((held, refused))
    })
}

fn busy(answer: &Answer) -> bool {
    if answer.code != 429 {
        return false;
    }
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.body["reason"], "TooManyRequests");
    assert_eq!(answer.body["details"]["retryAfterSeconds"], 1);
    true
}

/// One user's requests and watches leave permits for other users. A user over the limit gets a
/// retry delay.
#[test]
fn concurrent_requests_and_watches_have_limits() {
    let limits = ["REQUESTS_IN_FLIGHT_PER_USER", "WATCHES_PER_USER", "REQUEST_SECONDS"];
    let server = Server::with(Setup {
        environment: limits
            .iter()
            .zip(["1", "1", "3"])
            .map(|(name, value)| (format!("INSULA_LIMITS_{name}"), value.to_owned()))
            .collect(),
        ..Setup::default()
    });
    let path = format!("/clusters/root{MAPS}");
    let (carol, dave): (Client, Client) = (
        server.client(Who::Token("carol-token".into())),
        server.client(Who::Token("dave-token".into())),
    );
    let (held, _) = in_flight(&server, &path, || carol.get(&path));
    assert_eq!(dave.get(&path).code, 200, "another user is served");
    // The usual timeout of requests ends a request whose body never comes.
    until("carol's place is free again", || {
        (carol.get(&path).code == 200).then_some(())
    });
    drop(held);

    let watch = format!("{path}?watch=true");
    let open = dave.websocket(&watch, &[]).unwrap();
    assert!(busy(&dave.get(&watch)));
    assert_eq!(
        carol.get(&format!("{watch}&timeoutSeconds=1")).code,
        200,
        "another user watches"
    );
    drop(open);
    let again = format!("{watch}&timeoutSeconds=1");
    until("dave's watch is over", || (dave.get(&again).code == 200).then_some(()));
}

/// All users of one workspace together leave permits for other workspaces.
#[test]
fn a_workspace_has_limits_of_its_own() {
    let limits =
        ["REQUESTS_IN_FLIGHT", "WATCHES"].map(|what| (format!("INSULA_LIMITS_{what}_PER_WORKSPACE"), "1".to_owned()));
    let server = Server::with(Setup {
        environment: limits.into(),
        ..Setup::default()
    });
    let other = workspace(&server.admin(), "other").0;
    let path = |workspace: &str| format!("/clusters/{workspace}{MAPS}");
    let dave = server.client(Who::Token("dave-token".into()));
    let (held, answer) = in_flight(&server, &path("root"), || dave.get(&path("root")));
    let text =
        "Too many requests, please try again later: the workspace has 1 requests being answered, and may have no more";
    assert_eq!(answer.body["message"], text);
    dave.get(&path(&other)).expect(200);
    let stranger = server.client(Who::Token("alice-token".into()));
    assert_eq!(
        stranger.get(&path("root")).code,
        403,
        "who may not enter takes no place, and learns of none"
    );
    drop(held);
    until("carol has gone away", || {
        (dave.get(&path("root")).code == 200).then_some(())
    });

    let watch = |workspace: &str| format!("{}?watch=true&timeoutSeconds=1", path(workspace));
    let carol = server.client(Who::Token("carol-token".into()));
    // The place of the last request is free when its answer was sent, a moment after it was read.
    let open = until("carol watches", || {
        carol.websocket(&format!("{}?watch=true", path("root")), &[]).ok()
    });
    assert!(busy(&dave.get(&watch("root"))));
    dave.get(&watch(&other)).expect(200);
    drop(open);
    until("carol's watch is over", || {
        (dave.get(&watch("root")).code == 200).then_some(())
    });
}

/// A burst may have a second's worth of requests, and then the rate applies. Other users are not
/// slowed down.
#[test]
fn requests_above_the_rate_get_429() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_LIMITS_REQUESTS_PER_SECOND_PER_USER".to_owned(), "20".to_owned())],
        ..Setup::default()
    });
    let path = format!("/clusters/root{MAPS}");
    let (carol, dave) = (
        server.client(Who::Token("carol-token".into())),
        server.client(Who::Token("dave-token".into())),
    );
    let refused = until("carol is too fast", || {
        let mut answers = (0..100).map(|_| carol.get(&path));
        answers.find(busy)
    });
    let text = "Too many requests, please try again later: the user sent 20 requests in a second, and may send no more";
    assert_eq!(refused.body["message"], text);
    dave.get(&path).expect(200);
    std::thread::sleep(std::time::Duration::from_secs(1));
    carol.get(&path).expect(200);
}

/// Returns the CPU time of the low-priority threads, in hundredths of a second.
#[cfg(target_os = "linux")]
fn behind(server: &Server) -> u64 {
    // `pid (name) state …`: after the name, the user time is field 11 and the niceness field 16.
    let name_used_niceness = |stat: String| {
        let (head, rest) = stat.rsplit_once(") ")?;
        let name = head.split_once('(')?.1.to_owned();
        let field = |number: usize| rest.split(' ').nth(number)?.parse::<i64>().ok();
        Some((name, field(11)?, field(16)?))
    };
    let process = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let (_, _, own) = name_used_niceness(process).unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let behind = stats
        .filter_map(name_used_niceness)
        .filter(|(name, ..)| name == "low-priority");
    let used = behind.map(|(_, used, niceness)| {
        // The suite itself may run at another niceness than 0; the maximum is 19.
        assert_eq!(niceness, (own + 5).min(19), "others go first");
        u64::try_from(used).unwrap()
    });
    used.sum()
}

/// A tenant that computes much while other tenants are active moves to the low-priority runtime. No
/// request of either fails.
#[test]
#[cfg(target_os = "linux")]
fn a_flooding_tenant_moves_to_low_priority() {
    let server = Server::start();
    let admin = server.admin();
    let (loud, quiet) = (
        admin.in_workspace(&workspace(&admin, "loud").0),
        admin.in_workspace(&workspace(&admin, "quiet").0),
    );
    for i in 0..60 {
        let data = json!({"a": "b".repeat(10_000)});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")}, "data": data});
        loud.post(MAPS, &object).expect(201);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flood: Vec<_> = (0..3)
        .map(|_| {
            let (loud, stop) = (loud.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let list = loud.get(&format!("{MAPS}?labelSelector=!x")).expect(200);
                    assert!(list["items"].as_array().unwrap().len() >= 60);
                }
            })
        })
        .collect();
    until("the flood is behind", || {
        quiet.get(MAPS).expect(200);
        (behind(&server) > 20).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    flood.into_iter().for_each(|flood| flood.join().unwrap());
    loud.get(MAPS).expect(200);
    quiet.post(MAPS, &map(&json!({"name": "a"}))).expect(201);
}

/// Large conversions run on the low-priority runtime, for any tenant. The kernel counts CPU time in
/// ticks, and threads that are idle end: so the test writes and lists more objects until one list
/// has used a tick or more.
#[test]
#[cfg(target_os = "linux")]
fn large_conversions_run_at_low_priority() {
    let server = Server::start();
    let client = server.admin().in_workspace(&with_widgets(&server));
    let widgets = |version: &str| format!("/apis/example.io/{version}/namespaces/default/widgets");
    let mut written = 0;
    until("a conversion uses the low-priority threads", || {
        for _ in 0..100 {
            let name = format!("w{written}");
            let widget = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name},
                "spec": {"firstName": "a".repeat(20_000)}});
            client.post(&widgets("v1"), &widget).expect(201);
            written += 1;
        }
        let before = behind(&server);
        let list = client.get(&widgets("v2")).expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), written);
        (behind(&server) > before).then_some(())
    });
}

/// A workspace that exceeds its CPU share while other workspaces are active is throttled.
/// Sequential requests are answered; of concurrent requests a part gets a 429. Other workspaces are
/// not throttled, and neither is the workspace when it is alone.
#[test]
fn a_workspaces_cpu_share_is_capped() {
    let server = Server::with(Setup {
        environment: vec![(
            "INSULA_LIMITS_COMPUTE_PERCENT_PER_WORKSPACE".to_owned(),
            "10".to_owned(),
        )],
        ..Setup::default()
    });
    let admin = server.admin();
    let (loud, quiet) = (
        admin.in_workspace(&workspace(&admin, "loud").0),
        admin.in_workspace(&workspace(&admin, "quiet").0),
    );
    // Other workspaces are inactive long after their last request.
    loud.get(MAPS).expect(200);
    std::thread::sleep(std::time::Duration::from_secs(2));
    for i in 0..60 {
        let data = json!({"a": "b".repeat(10_000)});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")}, "data": data});
        loud.post(MAPS, &object).expect(201);
    }
    let refused = Mutex::new(None);
    let load = || {
        let loud = loud.clone();
        let mut answers = (0..100).map_while(|_| {
            let told = refused.lock().unwrap().is_some();
            (!told).then(|| loud.get(&format!("{MAPS}?labelSelector=!x")))
        });
        if let Some(answer) = answers.find(busy) {
            *refused.lock().unwrap() = Some(answer);
        }
    };
    std::thread::scope(|scope| {
        (0..40).for_each(|_| drop(scope.spawn(load)));
        until("somebody has waited too long", || {
            quiet.get(MAPS).expect(200);
            refused.lock().unwrap().is_some().then_some(())
        });
    });
    let refused = refused.into_inner().unwrap().unwrap();
    let text = "Too many requests, please try again later: the workspace used 10 % of the server's cores \
        lately, and may use no more while others ask";
    assert_eq!(refused.body["message"], text);
    until("it has rested", || {
        quiet.get(MAPS).expect(200);
        (loud.get(MAPS).code == 200).then_some(())
    });
}

/// A list page whose revision is compacted gets a 410, with a token to continue from the latest
/// revision.
#[test]
fn an_expired_continue_token_returns_a_new_one() {
    let server = Server::start();
    let maps = |server: &Server| server.admin().in_workspace("root");
    for name in ["a", "b", "c"] {
        maps(&server).post(MAPS, &map(&json!({"name": name}))).expect(201);
    }
    let first = maps(&server).get(&format!("{MAPS}?limit=1")).expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    // A process without the history on disk reads the current state alone.
    maps(&server).post(MAPS, &map(&json!({"name": "d"}))).expect(201);
    let server = server.restart_after(|data| std::fs::remove_file(data.join("store/history")).unwrap());
    let expired = maps(&server).get(&format!("{MAPS}?limit=1&continue={token}"));
    refused(
        &expired,
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result",
    );
    let token = expired.body["metadata"]["continue"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", expired.text));
    let next = maps(&server)
        .get(&format!("{MAPS}?limit=1&continue={token}"))
        .expect(200);
    assert_eq!(next["items"][0]["metadata"]["name"], "b", "{next}");
}

/// The field managers of programs that write once do not make an object grow without limit.
#[test]
fn old_field_managers_are_merged() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "managers").0);
    // As in Kubernetes, an object without managed fields from the start gets none later.
    let mut first = map(&json!({"name": "a"}));
    first["data"] = json!({"key": "v"});
    client.post(MAPS, &first).expect(201);
    let one = format!("{MAPS}/a");
    for n in 0..15 {
        let change = json!({"data": {format!("key-{n}"): "v"}});
        client
            .merge(&format!("{one}?fieldManager=manager-{n}"), &change)
            .expect(200);
    }
    let owned = client.get(&one).expect(200);
    let managers = owned["metadata"]["managedFields"]
        .as_array()
        .unwrap_or_else(|| panic!("{owned}"));
    let ancient = managers
        .iter()
        .filter(|entry| entry["manager"] == "ancient-changes")
        .count();
    assert_eq!((managers.len(), ancient), (10, 1), "{owned}");
}

/// A small body can have as many errors as bytes: of values, and of fields that nobody knows.
#[test]
fn a_refusal_of_many_items_is_bounded() {
    let server = shared();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "errors").0);
    let role = json!({"kind": "Role", "name": "a"});
    let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "a"}, "roleRef": role, "subjects": vec![json!({}); 100_000]});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let refused = client.post(path, &binding).expect(422);
    assert_eq!(refused["details"]["causes"].as_array().map(Vec::len), Some(1000));
    binding["subjects"] = json!([]);
    for number in 0..50_000 {
        binding["metadata"][format!("u{number}")] = json!(1);
        binding[format!("u{number}")] = json!(1);
    }
    let strict = client.post(&format!("{path}?fieldValidation=Strict"), &binding);
    assert_eq!(strict.code, 400, "{}", strict.text.len());
}
