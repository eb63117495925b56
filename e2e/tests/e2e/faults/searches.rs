//! Searches of conversion rules for counterexamples: each takes turns with others, and ends with
//! the request that brings the rules.

use super::compute::{MAPS, as_user, map};
use crate::{
    grpc::{channel, origin},
    workspaces::cpu_seconds,
};
use insula_e2e::{Client, Server, Setup, Who, begun, runtime, until, workspace_owned_by};
use serde_json::{Value, json};
use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

const APIS: &str = "/apis/apis.kcp.io/v1alpha1";
const VERSIONS: usize = 6;
const FIELDS: usize = 40;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Returns a schema of six versions with many fields, of which each version renames all.
fn schema(name: &str) -> Value {
    let version = |n: usize| {
        let text = json!({"type": "string", "maxLength": 40});
        let fields = (0..FIELDS).map(|field| (format!("f{field}v{n}"), text.clone()));
        let fields = Value::Object(fields.collect());
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        json!({"name": format!("v{n}"), "served": true, "storage": n == 1, "schema": schema})
    };
    let versions: Vec<Value> = (1..=VERSIONS).map(version).collect();
    let names = json!({"plural": "wells", "singular": "well", "kind": "Well", "listKind": "WellList"});
    let spec = json!({"group": "search.example.io", "scope": "Namespaced", "names": names, "versions": versions});
    object("APIResourceSchema", name, &spec)
}

fn publish_schema(at: &Client, name: &str) {
    at.post(&format!("{APIS}/apiresourceschemas"), &schema(name))
        .expect(201);
}

/// Returns the rules of such a schema.
fn rules(name: &str) -> Value {
    let direction = |from: usize, to: usize| {
        let path = |field: usize, version: usize| format!(".spec.f{field}v{version}");
        let rule = |field: usize| json!({"field": path(field, from), "destination": path(field, to)});
        let rules: Vec<Value> = (0..FIELDS).map(rule).collect();
        json!({"from": format!("v{from}"), "to": format!("v{to}"), "rules": rules})
    };
    let both = (2..=VERSIONS).flat_map(|other| [direction(1, other), direction(other, 1)]);
    let conversions: Vec<Value> = both.collect();
    object("APIConversion", name, &json!({"conversions": conversions}))
}

/// Nothing of a search that has ended is a verdict: the rules are not stored, and the next attempt
/// searches anew.
#[test]
fn a_search_ends_with_its_request() {
    let server = Server::with(Setup::limits(&[("COMPUTE_SECONDS", "1")]));
    let (place, _) = workspace_owned_by(&server, "alice");
    let alice = as_user(&server, "alice", &place);
    let name = "one.wells.search.example.io";
    publish_schema(&alice, name);
    for _ in 0..2 {
        let late = alice.post(&format!("{APIS}/apiconversions"), &rules(name)).expect(504);
        assert_eq!(late["reason"], "Timeout", "{late}");
        assert!(
            late["message"].as_str().unwrap().contains("limits.computeSeconds"),
            "{late}"
        );
        alice.get(&format!("{APIS}/apiconversions/{name}")).expect(404);
    }
}

/// Searches held the threads that answer for seconds, or ran beside them without turns and for
/// nobody's account.
#[test]
fn a_burst_of_searches_delays_no_other_tenant() {
    let server = Server::with(Setup::limits(&[("COMPUTE_SECONDS", "2")]));
    let (place, _) = workspace_owned_by(&server, "alice");
    let alice = as_user(&server, "alice", &place);
    let bob = as_user(&server, "bob", &workspace_owned_by(&server, "bob").0);
    bob.post(MAPS, &map("mine")).expect(201);
    let names: Vec<String> = (0..6).map(|n| format!("n{n}.wells.search.example.io")).collect();
    names.iter().for_each(|name| publish_schema(&alice, name));
    let burst: Vec<_> = names
        .into_iter()
        .enumerate()
        .map(|(n, name)| {
            let alice = alice.clone();
            thread::spawn(move || {
                let mut rules = rules(&name);
                // Equal rules are searched once.
                let directions = rules["spec"]["conversions"].as_array_mut().unwrap();
                directions.iter_mut().for_each(|direction| {
                    direction["rules"].as_array_mut().unwrap().truncate(FIELDS - n);
                });
                alice.post(&format!("{APIS}/apiconversions"), &rules).code
            })
        })
        .collect();
    let longest = (0..10).map(|_| {
        let begun = Instant::now();
        bob.get(&format!("{MAPS}/mine")).expect(200);
        begun.elapsed()
    });
    eprintln!("the longest GET beside searches: {:?}", longest.max());
    let searching = burst.iter().filter(|request| !request.is_finished()).count();
    assert!(searching > 3, "{searching} of the burst were still searched");
    for request in burst {
        let code = request.join().unwrap();
        assert!(code == 201 || code == 504, "{code}");
    }
}

/// Begins a request on a connection of its own, and ends the connection while the request is
/// computed: `begin` returns what ends it when dropped.
fn ends_with_its_connection<R>(server: &Server, begin: impl FnOnce() -> R) {
    let begun = cpu_seconds(server.pid());
    let request = begin();
    until("it computes", || {
        (cpu_seconds(server.pid()) - begun > 0.3).then_some(())
    });
    drop(request);
    thread::sleep(Duration::from_millis(300));
    let left = cpu_seconds(server.pid());
    thread::sleep(Duration::from_secs(3));
    let after = cpu_seconds(server.pid()) - left;
    // To its end it takes more than a second.
    assert!(after < 0.5, "{after} s of CPU time when its client had left");
}

/// A request over HTTP/2, the only one of its connection: the connection ends with it.
struct Request(JoinHandle<()>);

impl Request {
    fn begin(server: &Server, path: &str, body: &Value) -> Self {
        let request = http::Request::post(format!("{}{path}", origin(server)))
            .header("authorization", "Bearer alice-token")
            .header("content-type", "application/json")
            .body(tonic::body::Body::new(http_body_util::Full::from(body.to_string())))
            .unwrap();
        let client = channel(server, &Who::Anonymous);
        Request(runtime().spawn(async move { drop(client.request(request).await) }))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        assert!(!self.0.is_finished(), "it computes for longer");
        self.0.abort();
    }
}

/// Over HTTP/2 the task of the request computed, and the task of the connection told it nothing.
/// Over HTTP/1.1 they are one task, which read nothing while it computed.
#[test]
fn a_search_ends_with_its_connection() {
    let server = Server::start();
    let (place, _) = workspace_owned_by(&server, "alice");
    let alice = as_user(&server, "alice", &place);
    let name = "one.wells.search.example.io";
    publish_schema(&alice, name);
    let path = format!("clusters/{place}{APIS}/apiconversions");
    let body = rules(name);
    ends_with_its_connection(&server, || Request::begin(&server, &path, &body));
    ends_with_its_connection(&server, || {
        let body = body.to_string();
        let mut stream = begun(&server, "alice-token", &format!("/{path}"), body.len());
        stream.write_all(body.as_bytes()).unwrap();
        stream.flush().unwrap();
        stream
    });
    alice.get(&format!("{APIS}/apiconversions/{name}")).expect(404);
}

/// Suggestions are tried by the same search, which ran without a meter there.
#[test]
fn suggestions_end_with_their_connection() {
    let server = Server::start();
    let (place, _) = workspace_owned_by(&server, "alice");
    let path = "insula.admin.v1.ConversionService/SuggestRules";
    let body = json!({"workspace": place, "schema": schema("one.wells.search.example.io"), "minConfidence": 1});
    ends_with_its_connection(&server, || Request::begin(&server, path, &body));
}
