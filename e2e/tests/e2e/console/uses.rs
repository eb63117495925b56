//! Requests of the console, which are no use of an API's version by the workspace.

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

/// Sends a request by the console, which succeeds.
fn by_console(admin: &Client, (method, path): (&str, &str), kind: &str, body: &Value) {
    let headers = [OWN, ("content-type", kind)];
    let body = match body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let answer = send(admin, method, &format!("/console/api{path}"), &headers, body);
    assert!((200..300).contains(&answer.code), "{method} {path}: {}", answer.text);
}

/// Looks at objects in a version, and changes one, in all the ways of a page.
fn look(server: &Server, tenant: &str, version: &str) {
    let admin = server.admin();
    let of_tenant = format!("/clusters/{tenant}{}", pumps_of(version));
    let by_name = format!("{of_tenant}/looked-at?fieldManager=console");
    let pump =
        json!({"apiVersion": format!("example.io/{version}"), "kind": "Pump", "metadata": {"name": "looked-at"}});
    by_console(&admin, ("PATCH", &by_name), "application/apply-patch+yaml", &pump);
    for path in [&of_tenant, &by_name, &format!("{of_tenant}?watch=1&timeoutSeconds=1")] {
        by_console(&admin, ("GET", path), "application/json", &Value::Null);
    }
    let kind = json!({"workspace": tenant, "apiVersion": format!("example.io/{version}"), "resource": "pumps"});
    let named = json!({"type": kind, "namespace": "default", "name": "looked-at"});
    let list = json!({"type": kind, "namespace": "default"});
    for (call, message) in [("GetObject", &named), ("ListObjects", &list)] {
        by_console(
            &admin,
            ("POST", &format!("{OBJECTS}/{call}")),
            "application/json",
            message,
        );
    }
}

/// An administrator looks by the console at the objects of workspaces that use one version, and at
/// those of a workspace that uses none.
#[test]
fn a_look_by_the_console_is_no_use_of_a_version() {
    let server = shared();
    let pumps: Pumps = pumps(&server, "looked-at", &["v1", "v2"]);
    for tenant in [&pumps.one, &pumps.two] {
        look(&server, &path_of(tenant), "v1");
    }
    // What is noted is stored in order: a use after the looks is there, and they are not.
    pumps.one.get(&pumps_of("v2")).expect(200);
    pumps.wait_for_usage(&[("v1", 0), ("v2", 1)]);
    let consumers = call(
        &server.admin(),
        "/insula.admin.v1.ApiService/ListConsumers",
        &json!({"workspace": pumps.path, "export": "pumps"}).to_string(),
    );
    let rows = consumers.body["consumers"].as_array().unwrap();
    let mut versions: Vec<_> = rows
        .iter()
        .flat_map(|row| row["versions"].as_array().into_iter().flatten())
        .map(|used| used["version"].as_str().unwrap())
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, ["pumps.example.io/v2"], "{}", consumers.text);
    // The same requests of a program are.
    pumps.two.get(&pumps_of("v1")).expect(200);
    pumps.wait_for_usage(&[("v1", 1), ("v2", 1)]);
}
