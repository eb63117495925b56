//! The web console: its pages in a browser, its sessions under attack, and the JSON of the admin
//! API.

use bytes::Bytes;
use insula_e2e::{Answer, Client, Server, Setup, Who, check_console, check_large_console, shared, shots, workspace};
use serde_json::{Value, json};

mod login;
mod uses;

const OWN: (&str, &str) = ("insula-console", "1");
const REVIEW: &str = "/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TREE: &str = "/insula.admin.v1.WorkspaceService/TreeWorkspaces";
const LIST: &str = "/insula.admin.v1.WorkspaceService/ListWorkspaces";
const CREATE: &str = "/insula.admin.v1.WorkspaceService/CreateWorkspace";

fn review() -> Bytes {
    Bytes::from(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string())
}

fn send(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
    client.try_send(method, path, headers, body).unwrap()
}

/// Signs in with a token. Returns the cookie.
fn sign_in(client: &Client, token: &str) -> String {
    let bearer = format!("Bearer {token}");
    let answer = send(
        client,
        "POST",
        "/console/session",
        &[OWN, ("authorization", &bearer)],
        Bytes::new(),
    );
    assert_eq!(answer.code, 201, "{}", answer.text);
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(!cookie.contains(token), "{cookie}");
    assert!(
        cookie.starts_with("__Host-") && cookie.ends_with("; Path=/; HttpOnly; Secure; SameSite=Strict"),
        "{cookie}"
    );
    cookie.split(';').next().unwrap().to_owned()
}

/// Returns the user whom the server sees behind a cookie.
fn user(client: &Client, cookie: &str) -> Value {
    let path = format!("/console/api{REVIEW}");
    let answer = send(client, "POST", &path, &[OWN, ("cookie", cookie)], review());
    assert_eq!(answer.code, 201, "{}", answer.text);
    answer.body["status"]["userInfo"]["username"].clone()
}

fn user_client(server: &Server, user: &str) -> Client {
    server.client(Who::Token(format!("{user}-token")))
}

/// Calls a method of the admin API in JSON.
fn call(client: &Client, path: &str, body: &str) -> Answer {
    let headers = [("content-type", "application/json")];
    send(client, "POST", path, &headers, Bytes::from(body.to_owned()))
}

#[test]
fn the_console_works_in_a_browser() {
    // Metering is off in other tests; a page shows it.
    let metered = ("INSULA_WORKSPACES_METERING_SECONDS".to_owned(), "60".to_owned());
    let server = Server::with(Setup {
        environment: vec![metered],
        ..Setup::default()
    });
    let shots = shots();
    match check_console(&server, &shots) {
        Ok(output) => eprintln!("{output}screenshots: {}", shots.display()),
        Err(missing) => eprintln!("\n*** skipped: the console in a browser: {missing}\n"),
    }
}

#[test]
fn the_console_holds_ten_thousand_workspaces() {
    let server = Server::start();
    match check_large_console(&server, &shots()) {
        Ok(output) => eprintln!("{output}"),
        Err(missing) => eprintln!("\n*** skipped: the console with many workspaces: {missing}\n"),
    }
}

#[test]
fn a_session_makes_the_requests_of_its_viewer() {
    let server = shared();
    for anybody in [
        server.client(Who::Anonymous),
        server.client(Who::Anonymous).over_http1(),
    ] {
        let (alice, carol) = (sign_in(&anybody, "alice-token"), sign_in(&anybody, "carol-token"));
        assert_eq!(user(&anybody, &alice), "alice");
        assert_eq!(user(&anybody, &carol), "carol");
        let maps = "/console/api/clusters/root/api/v1/namespaces/default/configmaps";
        let code = |cookie: &str| send(&anybody, "GET", maps, &[OWN, ("cookie", cookie)], Bytes::new()).code;
        assert_eq!((code(&alice), code(&carol)), (403, 200));
        // A browser does not send what a page of another origin cannot set.
        assert_eq!(
            send(&anybody, "GET", maps, &[("cookie", &carol)], Bytes::new()).code,
            403
        );
        let ended = send(
            &anybody,
            "DELETE",
            "/console/session",
            &[OWN, ("cookie", &alice)],
            Bytes::new(),
        );
        let cookie = ended.headers["set-cookie"].to_str().unwrap();
        assert!(ended.code == 204 && cookie.contains("Max-Age=0"), "{cookie}");
    }
    // A client certificate needs no session, and the rest of the API takes no cookie.
    let admin = server.client(Who::KcpAdmin);
    assert_eq!(user(&admin, "a=b"), "kcp-admin");
    let anybody = server.client(Who::Anonymous);
    let carol = sign_in(&anybody, "carol-token");
    let headers = [OWN, ("cookie", carol.as_str())];
    assert_eq!(
        send(
            &anybody,
            "GET",
            "/clusters/root/api/v1/namespaces",
            &headers,
            Bytes::new()
        )
        .code,
        403
    );
}

/// Every way to make the server take a request for that of somebody else.
#[test]
fn forged_sessions_are_refused() {
    let server = shared();
    let anybody = server.client(Who::Anonymous);
    let carol = sign_in(&anybody, "carol-token");
    let path = "/console/api/clusters/root/api/v1/namespaces/default/configmaps";
    let (name, value) = carol.split_once('=').unwrap();
    let cut = &carol[..carol.len() - 2];
    let turned: String = value.chars().rev().collect();
    let big = format!("{name}={}", "A".repeat(6_000));
    for cookie in [
        cut,
        &format!("{name}="),
        &format!("{name}=carol-token"),
        &format!("{name}={turned}"),
        &format!("{carol}; {carol}"),
        &format!("{name}=fixed; {carol}"),
        &big,
    ] {
        let answer = send(&anybody, "GET", path, &[OWN, ("cookie", cookie)], Bytes::new());
        assert_eq!(answer.code, 401, "{cookie}: {}", answer.text);
        assert!(answer.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    }
    for header in [
        ("authorization", "Bearer alice-token"),
        ("impersonate-user", "dave"),
        ("impersonate-group", "system:masters"),
        ("x-remote-user", "dave"),
        ("origin", "https://evil.example.com"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let headers = [OWN, ("cookie", carol.as_str()), header];
        assert_eq!(
            send(&anybody, "GET", path, &headers, Bytes::new()).code,
            403,
            "{header:?}"
        );
    }
}

/// Paths that lead elsewhere, or back.
#[test]
fn a_session_opens_no_other_path() {
    let server = shared();
    let anybody = server.client(Who::Anonymous);
    let carol = sign_in(&anybody, "carol-token");
    for path in [
        "/console/api/../clusters/root/api/v1/namespaces",
        "/console/api/%2e%2e/clusters/root/api/v1/namespaces",
        "/console/api/console/api/clusters/root/api/v1/namespaces",
        "/console/api//clusters/root/api/v1/namespaces",
        "/console/../console/api/clusters/root/api/v1/namespaces",
        "/Console/api/clusters/root/api/v1/namespaces",
    ] {
        let answer = send(&anybody, "GET", path, &[OWN, ("cookie", &carol)], Bytes::new());
        assert!(
            answer.code != 200 || answer.text.starts_with("<!doctype html>"),
            "{path}: {}",
            answer.text
        );
    }
}

#[test]
fn a_token_that_is_none_begins_no_session() {
    let server = shared();
    let anybody = server.client(Who::Anonymous);
    for token in [
        "",
        "Bearer nobody",
        "Basic YWxpY2U6eA==",
        "Bearer alice-token, Bearer carol-token",
    ] {
        let headers = [OWN, ("authorization", token)];
        let answer = send(&anybody, "POST", "/console/session", &headers, Bytes::new());
        assert_eq!(answer.code, 401, "{token}: {}", answer.text);
        assert_eq!(answer.headers.get("set-cookie"), None, "{token}");
    }
    let without = send(
        &anybody,
        "POST",
        "/console/session",
        &[("authorization", "Bearer carol-token")],
        Bytes::new(),
    );
    assert_eq!((without.code, without.headers.get("set-cookie")), (403, None));
}

/// A session is no right of its own: it ends with its token.
#[test]
fn a_revoked_token_ends_its_sessions() {
    let server = shared();
    let (admin, anybody) = (server.admin(), server.client(Who::Anonymous));
    let (path, _) = workspace(&admin, "console");
    let there = admin.in_workspace(&path);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}});
    there.post(accounts, &account).expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = there.post(&format!("{accounts}/viewer/token"), &request).expect(201);
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let session = format!("/console/session?workspace={path}");
    let begun = send(
        &anybody,
        "POST",
        &session,
        &[OWN, ("authorization", &bearer)],
        Bytes::new(),
    );
    assert_eq!(begun.code, 201, "{}", begun.text);
    let cookie = begun.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let reviews = format!("/console/api/clusters/{path}/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let code = || send(&anybody, "POST", &reviews, &[OWN, ("cookie", cookie)], review()).code;
    assert_eq!(code(), 201);
    assert_eq!(there.delete(&format!("{accounts}/viewer")).code, 200);
    assert_eq!(code(), 401);
}

#[test]
fn pages_run_nothing_that_is_not_the_server_s() {
    let server = shared();
    let anybody = server.client(Who::Anonymous);
    for path in [
        "/console",
        "/console/workspaces/root:a",
        "/console/assets/console.js",
        "/console/assets/console.css",
    ] {
        let answer = anybody.get(path);
        assert_eq!(answer.code, 200, "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers.get("set-cookie"), None);
    }
    assert_eq!(anybody.get("/console/assets/other.js").code, 404);
    assert_eq!(send(&anybody, "POST", "/console", &[], Bytes::new()).code, 405);
}

/// A refusal, a session or an object of the API is no page, and a browser is told so.
#[test]
fn every_answer_of_the_console_has_the_policy_of_its_pages() {
    let server = shared();
    let anybody = server.client(Who::Anonymous);
    let carol = sign_in(&anybody, "carol-token");
    let session = &[OWN, ("cookie", carol.as_str())];
    for (method, path, headers, code) in [
        ("GET", "/console/assets/other.js", &[][..], 404),
        ("POST", "/console", &[], 405),
        ("GET", "/console/session", &[OWN], 200),
        ("POST", "/console/session", &[OWN], 401),
        ("DELETE", "/console/session", session, 204),
        ("GET", "/console/api/version", &[], 403),
        ("GET", "/console/api/version", session, 200),
        ("GET", "/console/api/clusters/root/api/v1/namespaces", session, 200),
        ("GET", "/console/api/clusters/root/api/v1/namespaces/none", session, 404),
        ("POST", &format!("/console/api{LIST}"), session, 404),
    ] {
        let answer = send(&anybody, method, path, headers, Bytes::new());
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.text);
        let policy = answer.headers.get("content-security-policy").expect(path);
        let policy = policy.to_str().unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
    }
    // The same paths of the API, without the console, answer as ever.
    let version = anybody.get("/version");
    assert_eq!(version.headers.get("content-security-policy"), None);
}

#[test]
fn the_console_can_be_off() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_CONSOLE".to_owned(), "never".to_owned())],
        ..Setup::default()
    });
    let alice = server.client(Who::Token("alice-token".to_owned()));
    for (method, path) in [
        ("GET", "/console"),
        ("POST", "/console/session"),
        ("GET", "/console/api/clusters/root/api"),
    ] {
        assert_eq!(
            send(&alice, method, path, &[OWN], Bytes::new()).code,
            403,
            "{method} {path}"
        );
    }
}

/// Methods of the admin API take JSON: the same call as over gRPC, with its rights.
#[test]
fn the_admin_api_takes_json() {
    let server = shared();
    let carol = user_client(&server, "carol");
    let (path, _) = workspace(&server.admin(), "console");
    let list = call(&carol, LIST, r#"{"parent": "root", "pageSize": 1}"#);
    assert_eq!(list.code, 200, "{}", list.text);
    assert_eq!(list.body["workspaces"].as_array().unwrap().len(), 1, "{}", list.text);
    assert!(list.body["header"]["revision"].is_u64() && list.headers.contains_key("x-request-id"));
    // A stream is a line for each message.
    let tree = call(&carol, TREE, &json!({"root": path}).to_string());
    let lines: Vec<Value> = tree
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["workspace"]["path"], path.as_str(), "{}", tree.text);
}

#[test]
fn calls_in_json_have_the_rights_and_limits_of_calls() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "console");
    let (alice, carol) = (user_client(&server, "alice"), user_client(&server, "carol"));
    let refused = call(&alice, LIST, &json!({"parent": path}).to_string());
    assert_eq!(
        (refused.code, refused.body["code"].as_str()),
        (403, Some("permission_denied")),
        "{}",
        refused.text
    );
    let streamed = call(&alice, TREE, &json!({"root": path}).to_string());
    assert_eq!(streamed.code, 403, "{}", streamed.text);
    let anybody = call(&server.client(Who::Anonymous), LIST, "{}");
    assert!(matches!(anybody.code, 401 | 403), "{}", anybody.text);
    let nested = format!(r#"{{"labels": {}}}"#, "[".repeat(5_000));
    for wrong in [
        "{",
        "[]",
        "1",
        r#"{"parents": "a"}"#,
        r#"{"pageSize": "x"}"#,
        "{}{}",
        &nested,
    ] {
        let answer = call(&carol, LIST, wrong);
        assert_eq!(
            (answer.code, answer.body["code"].as_str()),
            (400, Some("invalid_argument")),
            "{}",
            answer.text
        );
    }
    let made = call(&carol, CREATE, &json!({"parent": path, "name": "made"}).to_string());
    assert_eq!(made.body["workspace"]["path"], format!("{path}:made"), "{}", made.text);
    let wrong = call(&carol, CREATE, &json!({"parent": path, "name": "a b"}).to_string());
    assert_eq!(wrong.code, 400, "{}", wrong.text);
    // Larger than the method takes.
    let large = format!(r#"{{"parent": "{}"}}"#, "a".repeat(100_000));
    assert!(call(&carol, LIST, &large).code >= 400);
    // Other content types and methods are not calls.
    let other = send(
        &carol,
        "POST",
        LIST,
        &[("content-type", "text/plain")],
        Bytes::from("{}"),
    );
    assert_eq!(other.code, 404, "{}", other.text);
    assert_eq!(
        call(&carol, "/insula.admin.v1.WorkspaceService/Nothing", "{}").code,
        404
    );
}
