//! Requests of the console, and which of them are a use of an API's version by the workspace.

use super::*;
use crate::retirement::{Pumps, pumps, pumps_of};

const OBJECTS: &str = "/insula.admin.v1.ObjectService";

/// Returns the path of a tenant's workspace.
fn path_of(tenant: &Client) -> String {
    let cluster = tenant
        .get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
        .expect(200);
    cluster["metadata"]["annotations"]["kcp.io/path"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Sends a request by the console, which succeeds. Without a cookie, it has the client's
/// certificate.
fn by_console(client: &Client, cookie: &str, (method, path): (&str, &str), kind: &str, body: &Value) {
    let mut headers = vec![OWN, ("content-type", kind)];
    headers.extend((!cookie.is_empty()).then_some(("cookie", cookie)));
    let body = match body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let answer = send(client, method, &format!("/console/api{path}"), &headers, body);
    assert!((200..300).contains(&answer.code), "{method} {path}: {}", answer.text);
}

/// Looks at objects in a version, in all the ways of a page.
fn look(client: &Client, cookie: &str, tenant: &str, version: &str) {
    let of_tenant = format!("/clusters/{tenant}{}", pumps_of(version));
    let by_name = format!("{of_tenant}/looked-at");
    for path in [&of_tenant, &by_name, &format!("{of_tenant}?watch=1&timeoutSeconds=1")] {
        by_console(client, cookie, ("GET", path), "application/json", &Value::Null);
    }
    let kind = json!({"workspace": tenant, "apiVersion": format!("example.io/{version}"), "resource": "pumps"});
    let named = json!({"type": kind, "namespace": "default", "name": "looked-at"});
    let list = json!({"type": kind, "namespace": "default"});
    for (call, message) in [("GetObject", &named), ("ListObjects", &list)] {
        let path = format!("{OBJECTS}/{call}");
        by_console(client, cookie, ("POST", &path), "application/json", message);
    }
}

/// Returns the versions that tenants use, with their workspaces.
fn used(server: &Server, pumps: &Pumps) -> Vec<(String, String)> {
    let consumers = call(
        &server.admin(),
        "/insula.admin.v1.ApiService/ListConsumers",
        &json!({"workspace": pumps.path, "export": "pumps"}).to_string(),
    );
    let mut used = Vec::new();
    for row in consumers.body["consumers"].as_array().unwrap() {
        let workspace = row["workspace"].as_str().unwrap();
        for version in row["versions"].as_array().into_iter().flatten() {
            used.push((version["version"].as_str().unwrap().to_owned(), workspace.to_owned()));
        }
    }
    used.sort_unstable();
    used
}

/// A viewer looks by the console at objects of workspaces that use another version, and changes one
/// in the end.
#[test]
fn a_look_by_the_console_is_no_use_of_a_version() {
    let server = shared();
    let pumps: Pumps = pumps(&server, "looked-at", &["v1", "v2"]);
    let (one, two) = (path_of(&pumps.one), path_of(&pumps.two));
    let pump = |version: &str| {
        let api_version = format!("example.io/{version}");
        json!({"apiVersion": api_version, "kind": "Pump", "metadata": {"name": "looked-at"}})
    };
    for tenant in [&pumps.one, &pumps.two] {
        tenant.post(&pumps_of("v2"), &pump("v2")).expect(201);
    }
    let anybody = server.client(Who::Anonymous);
    let carol = sign_in(&anybody, "carol-token");
    for tenant in [&one, &two] {
        look(&anybody, &carol, tenant, "v1");
    }
    // What is noted is stored in order: the write after the looks is there, and they are not.
    let path = format!("/clusters/{two}{}/looked-at?fieldManager=console", pumps_of("v1"));
    by_console(
        &anybody,
        &carol,
        ("PATCH", &path),
        "application/apply-patch+yaml",
        &pump("v1"),
    );
    pumps.wait_for_usage(&[("v1", 1), ("v2", 2)]);
    let of = |version: &str, workspace: &str| (format!("pumps.example.io/{version}"), workspace.to_owned());
    let mut want = vec![of("v1", &two), of("v2", &one), of("v2", &two)];
    want.sort_unstable();
    assert_eq!(used(&server, &pumps), want);
}

/// Any program can send requests as a page does: without a session they count.
#[test]
fn a_program_hides_no_use_behind_the_console() {
    let server = shared();
    let pumps: Pumps = pumps(&server, "posing", &["v1", "v2"]);
    let one = path_of(&pumps.one);
    pumps
        .one
        .post(
            &pumps_of("v2"),
            &json!({"apiVersion": "example.io/v2", "kind": "Pump", "metadata": {"name": "looked-at"}}),
        )
        .expect(201);
    look(&server.admin(), "", &one, "v1");
    pumps.wait_for_usage(&[("v1", 1), ("v2", 1)]);
}
