//! A row of the table, and the checks of every refusal.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use insula_e2e::until;
use serde_json::{Value, json};

use super::{
    admin,
    routes::{ROUTES, Route, RoutedRequest},
    scene::{OWNER, SECRET, Scene},
};

/// A request that is refused.
pub(super) struct Row<'a> {
    pub(super) number: u8,
    pub(super) actor: &'a str,
    /// `METHOD path`; `{mine}` and `{theirs}` are the workspaces.
    pub(super) request: &'a str,
    pub(super) headers: Vec<(&'a str, &'a str)>,
    /// Body in place of a ConfigMap; names of workspaces as in the path.
    pub(super) body: Option<Value>,
    pub(super) expect: &'a [u16],
}

pub(super) fn row<'a>(number: u8, actor: &'a str, request: &'a str, expect: &'a [u16]) -> Row<'a> {
    Row {
        number,
        actor,
        request,
        headers: Vec::new(),
        body: None,
        expect,
    }
}

pub(super) fn with<'a>(row: Row<'a>, headers: &[(&'a str, &'a str)]) -> Row<'a> {
    Row {
        headers: headers.to_vec(),
        ..row
    }
}

pub(super) fn sends<'a>(row: Row<'a>, body: Value) -> Row<'a> {
    Row {
        body: Some(body),
        ..row
    }
}

impl Row<'_> {
    /// Returns true for a refusal because of the user, not because of the request.
    pub(super) fn is_closed(&self) -> bool {
        self.expect.iter().all(|code| matches!(code, 401 | 403))
    }
}

/// A refusal: the request, its audit id and its status code.
struct Refused {
    what: String,
    id: Option<String>,
    code: u16,
}

/// Sends all rows by all routes.
pub(super) fn refuse(scene: &Scene, rows: &[Row<'_>]) {
    let before = scene.settle();
    let (mut refused, mut sent) = (Vec::new(), BTreeSet::new());
    for row in rows {
        for route in ROUTES {
            let Some(request) = route.request(scene, row) else {
                continue;
            };
            // Through the console, the session alone is the credential.
            let clients = scene.clients_of(if route == Route::Console { "anon" } else { row.actor });
            for i in route.versions(sent.len()) {
                let (version, client) = (["HTTP/2", "HTTP/1.1"][*i], &clients[*i]);
                let (method, _) = row.request.split_once(' ').unwrap();
                let what = format!(
                    "row {}: {route:?} {version} {} {method} {} {:?} {:?}",
                    row.number, row.actor, request.path, row.headers, row.body
                );
                // Rows may differ in their names of workspaces alone.
                if sent.insert(what.clone()) {
                    refused.push(send(scene, row, route, &request, client, what));
                }
            }
        }
    }
    admin::refuse(scene, rows);
    assert_eq!(scene.settle(), before, "what is refused changes nothing");
    assert_audited(scene, &refused);
}

fn send(
    scene: &Scene,
    row: &Row<'_>,
    route: Route,
    request: &RoutedRequest,
    client: &insula_e2e::Client,
    what: String,
) -> Refused {
    let (method, _) = row.request.split_once(' ').unwrap();
    let mut headers = [&row.headers, route.headers()].concat();
    let session = scene.session(row.actor).filter(|_| route == Route::Console);
    if let Some(cookie) = &session {
        headers.extend([("insula-console", "1"), ("cookie", cookie.as_str())]);
    }
    let is_patch = method == "PATCH";
    if is_patch && headers.iter().all(|(name, _)| *name != "content-type") {
        headers.push(("content-type", "application/merge-patch+json"));
    }
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forced", "labels": {"a": "b"}}});
    let body = match is_patch || matches!(method, "POST" | "PUT") {
        true => Bytes::from(route.named(scene, &row.body.as_ref().unwrap_or(&map).to_string())),
        false => Bytes::new(),
    };
    let answer = client
        .try_send(method, &request.path, &headers, body)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        request.expect.contains(&answer.code),
        "{what}: {}\n{}",
        answer.code,
        answer.text
    );
    let unnamed = match route.is_by_path() {
        true => &scene.theirs.cluster,
        false => &scene.theirs.path,
    };
    tells_nothing(&what, &format!("{}{:?}", answer.text, answer.headers), unnamed);
    Refused {
        what,
        id: answer.headers.get("audit-id").map(|id| id.to_str().unwrap().to_owned()),
        code: answer.code,
    }
}

/// Checks that an answer contains none of the other tenant's data, except names from the request
/// itself.
pub(super) fn tells_nothing(what: &str, shown: &str, unnamed: &str) {
    for foreign in [SECRET, OWNER, unnamed] {
        assert!(!shown.contains(foreign), "{what}: {foreign} in {shown}");
    }
}

/// Checks that each refusal is in the audit log, with its code and reason.
fn assert_audited(scene: &Scene, refused: &[Refused]) {
    let file = scene.server.data_dir().join("audit/audit.log");
    let events = until("the refusals are in the audit log", || {
        let text = std::fs::read_to_string(&file).ok()?;
        let events: HashMap<String, Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|event| Some((event["auditID"].as_str()?.to_owned(), event)))
            .collect();
        let is_there = |refused: &Refused| refused.id.as_ref().is_none_or(|id| events.contains_key(id));
        refused.iter().all(is_there).then_some(events)
    });
    for Refused { what, id, code } in refused {
        let id = id.as_ref().unwrap_or_else(|| panic!("{what}: no audit-id"));
        let event = &events[id];
        assert_eq!(event["responseStatus"]["code"], *code, "{what}: {event}");
        let notes = &event["annotations"];
        let why =
            ["insula.io/reason", "authorization.k8s.io/reason"].map(|key| notes[key].as_str().unwrap_or_default());
        // The answer explains an invalid request to its sender. Only the operator learns the reason
        // of a denied one.
        let is_told = !matches!(code, 401 | 403);
        assert!(is_told || why.iter().any(|why| !why.is_empty()), "{what}: {event}");
    }
}
