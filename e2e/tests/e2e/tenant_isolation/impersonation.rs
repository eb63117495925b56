//! Names outside of ASCII in the headers that name a user, and headers that are no text. A header
//! that could not be read was taken for an empty one: the request went on with the rights of the
//! credential.

use http::HeaderMap;
use insula_e2e::Kubectl;

use super::*;

const SECRET: &str = "/api/v1/namespaces/default/secrets/sealed";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const NAMES: [&str; 3] = ["prüfer", "名前", "\u{1f511}"];

/// Creates a workspace of bob's with a Secret, and a role to read it. Returns its path.
fn sealed(server: &Server) -> String {
    let path = owned_by(server, "bob").path;
    let there = server.admin().in_workspace(&path);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sealed"}});
    there.post("/api/v1/namespaces/default/secrets", &secret).expect(201);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reads"},
        "rules": [
            {"nonResourceURLs": ["/"], "verbs": ["access"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        ],
    });
    there.post(ROLES, &role).expect(201);
    path
}

fn binding(name: &str, kind: &str, subject: &str) -> Value {
    let api = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "reads"},
        "subjects": [{"apiGroup": api, "kind": kind, "name": subject}],
    })
}

/// Returns the line of the audit log about an answer.
fn audited(server: &Server, headers: &HeaderMap) -> Value {
    let id = headers["audit-id"].to_str().unwrap().to_owned();
    let file = server.data_dir().join("audit/audit.log");
    until("the request is in the audit log", || {
        let log = std::fs::read_to_string(&file).unwrap();
        let line = log.split_inclusive('\n').find(|line| line.contains(&id))?;
        serde_json::from_str(line).ok()
    })
}

#[test]
fn a_name_outside_of_ascii_has_its_own_rights() {
    let server = Server::start();
    let there = server.admin().in_workspace(&sealed(&server));
    there.get(SECRET).expect(200);
    for name in NAMES {
        let acts = [("impersonate-user", name)];
        for client in [there.clone(), there.over_http1()] {
            let refused = client.get_with(SECRET, &acts);
            assert_eq!(refused.code, 403, "{name}: {}", refused.text);
            let user = format!("User \"{name}\" cannot get");
            assert!(refused.text.replace("\\\"", "\"").contains(&user), "{}", refused.text);
            assert_eq!(audited(&server, &refused.headers)["impersonatedUser"]["username"], name);
            let deleted = client.try_send("DELETE", SECRET, &acts, Default::default()).unwrap();
            assert_eq!(deleted.code, 403, "{name}: {}", deleted.text);
        }
    }
    there.post(BINDINGS, &binding("user", "User", NAMES[0])).expect(201);
    there.post(BINDINGS, &binding("group", "Group", "größe")).expect(201);
    let code = |headers: &[(&str, &str)]| there.get_with(SECRET, headers).code;
    assert_eq!(code(&[("impersonate-user", NAMES[0])]), 200);
    assert_eq!(code(&[("impersonate-user", NAMES[1])]), 403);
    let member = [("impersonate-user", "x"), ("impersonate-group", "größe")];
    assert_eq!(code(&member), 200);
    assert_eq!(code(&[member[0], ("impersonate-group", "grösse")]), 403);
    // An empty name is none, as in Kubernetes: an empty group is not.
    assert_eq!(code(&[("impersonate-user", "")]), 200);
    assert_eq!(code(&[("impersonate-user", ""), member[1]]), 400);
    assert_eq!(code(&[("impersonate-group", "")]), 400);
    // A path outside of workspaces.
    let metrics = server.client(Who::ShardAdmin);
    metrics.get("/metrics").expect(200);
    assert_eq!(
        metrics.get_with("/metrics", &[("impersonate-user", NAMES[0])]).code,
        403
    );
}

#[test]
fn kubectl_as_a_name_outside_of_ascii_has_its_rights() {
    let server = shared();
    let path = sealed(&server);
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let get = |name: &str| kubectl.run(&path, &["--as", name, "get", "secret", "sealed", "-o", "name"], "");
    let refused = get("prüfer");
    assert!(refused.code != 0 && refused.text.contains("(Forbidden)"), "{refused:?}");
    server
        .admin()
        .in_workspace(&path)
        .post(BINDINGS, &binding("user", "User", "prüfer"))
        .expect(201);
    let ran = get("prüfer");
    assert!(ran.code == 0 && ran.text.contains("secret/sealed"), "{ran:?}");
}

type Fields<'a> = &'a [(&'a str, &'a [u8])];

/// Headers that are no text, with the header that the refusal names.
const UNREADABLE: [(Fields<'_>, &str); 6] = [
    (&[("impersonate-user", b"pr\xfcfer")], "Impersonate-User"),
    (&[("impersonate-user", b"\xff")], "Impersonate-User"),
    (
        &[("impersonate-user", b"x"), ("impersonate-group", b"\xe5")],
        "Impersonate-Group",
    ),
    (
        &[("impersonate-user", b"x"), ("impersonate-uid", b"\xc3")],
        "Impersonate-Uid",
    ),
    (
        &[("impersonate-user", b"x"), ("impersonate-extra-a", b"\x80")],
        "Impersonate-Extra-A",
    ),
    (
        &[("impersonate-user", b"x"), ("impersonate-extra-%fe", b"x")],
        "Impersonate-Extra-%fe",
    ),
];

#[test]
fn impersonation_headers_that_are_no_text_are_refused() {
    let server = shared();
    let there = server.admin().in_workspace(&sealed(&server));
    let masters = server.client(Who::ShardAdmin);
    for (headers, named) in UNREADABLE {
        for client in [there.clone(), there.over_http1()] {
            let refused = client.send_bytes("GET", SECRET, headers, Default::default());
            assert_eq!(refused.code, 400, "{headers:?}: {}", refused.text);
            assert_eq!(refused.body["reason"], "BadRequest");
            let message = refused.body["message"].as_str().unwrap();
            assert!(message.contains(&format!("header {named}: the ")), "{message}");
        }
        let metrics = masters.send_bytes("GET", "/metrics", headers, Default::default());
        assert_eq!(metrics.code, 400, "{headers:?}: {}", metrics.text);
        let call = [
            &[("content-type", &b"application/grpc"[..]), ("te", b"trailers")],
            headers,
        ]
        .concat();
        let path = "/insula.admin.v1.ClusterService/GetInfo";
        let refused = masters.send_bytes("POST", path, &call, vec![0; 5].into());
        // INVALID_ARGUMENT.
        assert_eq!(
            refused.headers.get("grpc-status").unwrap(),
            "3",
            "{headers:?}: {refused:?}"
        );
        let message = refused.headers["grpc-message"].to_str().unwrap();
        assert!(message.contains(&named.replace('%', "%25")), "{message}");
    }
}

/// A page's credential that could not be read was ignored, and the client certificate counted.
#[test]
fn a_credential_of_a_websocket_that_is_malformed_is_refused() {
    let server = shared();
    let there = server.admin().in_workspace(&sealed(&server));
    let watch = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let prefix = "base64url.bearer.authorization.k8s.io.";
    let alice = insula_e2e::base64(b"alice-token").replace('=', "");
    let code = |protocols: &str| {
        let opened = there.websocket(&watch, &[("sec-websocket-protocol", protocols)]);
        opened.err().unwrap_or(101)
    };
    assert_eq!(code("v4.channel.k8s.io"), 101);
    assert_eq!(code(&format!("v4.channel.k8s.io, {prefix}!!!")), 401);
    assert_eq!(code(&format!("{prefix}{alice}, {prefix}{alice}")), 401);
    // Alice's credential counts, whatever stands beside it.
    assert_eq!(code(&format!("v4.channel.k8s.io, {prefix}{alice}")), 403);
    assert_eq!(code(&format!("ü, {prefix}{alice}")), 403);
}
