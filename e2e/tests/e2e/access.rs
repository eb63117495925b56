//! Authentication and authorization: by certificate, by token, by every path, of open watches.

use insula_e2e::{Kubectl, Server, Who, shared, until, workspace, workspace_owned_by};
use serde_json::json;

// One test for each script of `e2e/scripts/access`.
include!(concat!(env!("OUT_DIR"), "/access.rs"));

/// A prefix, a suffix or another case of a known token is invalid.
#[test]
fn truncated_or_extended_tokens_are_refused() {
    let server = shared();
    for token in [
        "alice-toke",
        "lice-token",
        "ALICE-TOKEN",
        "alice-token2",
        "alice-token,alice",
        "alice",
    ] {
        let answer = server
            .client(Who::Token(token.to_owned()))
            .in_workspace("root")
            .get("/api/v1/namespaces");
        assert_eq!(
            (answer.code, answer.body["reason"].as_str()),
            (401, Some("Unauthorized")),
            "{token}"
        );
    }
}

/// The token in a Secret acts as its account until the Secret goes.
#[test]
fn tokens_of_secrets_count() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "legacy");
    let client = admin.in_workspace(&path);
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "legacy", "annotations": {"kubernetes.io/service-account.name": "default"}}});
    client.post(secrets, &secret).expect(201);
    let legacy = format!("{secrets}/legacy");
    until("the Secret is filled", || {
        client.get(&legacy).body["data"]["token"].as_str().map(drop)
    });
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let template = "go-template={{.data.token | base64decode}}";
    let token = kubectl
        .run(&path, &["get", "secret", "legacy", "-o", template], "")
        .text;
    let account = server.client(Who::Token(token)).in_workspace(&path);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let user = account.post(reviews, &review).expect(201)["status"]["userInfo"]["username"].clone();
    assert_eq!(user, "system:serviceaccount:default:default");
    client.delete(&legacy).expect(200);
    assert_eq!(account.post(reviews, &review).code, 401);
}

/// The text of a refusal does not depend on whether the object exists.
#[test]
fn refusals_do_not_reveal_existing_objects() {
    let server = shared();
    let admin = server.admin();
    let (theirs, _) = workspace_owned_by(&server, "somebody");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {"secret": "x"}});
    admin
        .in_workspace(&theirs)
        .post("/api/v1/namespaces/default/configmaps", &map)
        .expect(201);
    let alice = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&theirs);
    let refusal = |name: &str| {
        let answer = alice.get(&format!("/api/v1/namespaces/default/configmaps/{name}"));
        assert_eq!(answer.code, 403);
        answer.text.replace(name, "NAME")
    };
    assert_eq!(refusal("there"), refusal("absent"));
}

/// A certificate of another server's CA is invalid here.
#[test]
fn certificates_of_another_authority_are_refused() {
    let (server, stranger) = (shared(), Server::with_flags(&["--store", "memory"]));
    std::fs::copy(
        server.data_dir().join("pki/ca.crt"),
        stranger.data_dir().join("pki/ca.crt"),
    )
    .unwrap();
    let mut tls = insula_e2e::tls(&stranger.data_dir(), &Who::KcpAdmin);
    tls.alpn_protocols.clear();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .build();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
    let request = http::Request::get(format!("{}/readyz", server.url()))
        .body(String::new())
        .unwrap();
    assert!(insula_e2e::runtime().block_on(client.request(request)).is_err());
}

/// Credentials of a workspace end with it, in every workspace.
#[test]
fn service_account_tokens_end_with_their_workspace() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = insula_e2e::workspace(&admin, "short-lived");
    let (other, _) = insula_e2e::workspace(&admin, "elsewhere");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    insula_e2e::until("the default account", || {
        (admin.in_workspace(&path).get(&format!("{accounts}/default")).code == 200).then_some(())
    });
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let answer = admin
        .in_workspace(&path)
        .post(&format!("{accounts}/default/token"), &request);
    let token = answer.expect(201)["status"]["token"].as_str().unwrap().to_owned();
    let program = server.client(Who::Token(token));
    let discovery = |workspace: &str| program.in_workspace(workspace).get("/api/v1").code;
    assert_eq!((discovery(&path), discovery(&other)), (200, 403));
    let (parent, name) = path.rsplit_once(':').unwrap();
    let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    admin
        .in_workspace(parent)
        .delete(&format!("{workspaces}/{name}"))
        .expect(200);
    insula_e2e::until("the end of the token", || (discovery(&other) == 401).then_some(()));
    assert_eq!(discovery(&path), 401);
}

/// Kubernetes takes every path segment as the name of a role: what is taken can be read, changed
/// and deleted by a path that names it, and no other path becomes one by it.
#[test]
fn every_role_is_reached_by_its_name() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "named");
    let here = admin.in_workspace(&path);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let version = "rbac.authorization.k8s.io/v1";
    for (name, encoded) in [
        ("a;b", "a;b"),
        ("c;d", "c%3Bd"),
        ("a\\b", "a%5Cb"),
        ("..;e\\..", "..;e%5C.."),
        ("\u{e9} \"'<b>?#&", "%C3%A9%20%22%27%3Cb%3E%3F%23&"),
    ] {
        let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": []});
        here.post(roles, &role).expect(201);
        let by_name = format!("{roles}/{encoded}");
        assert_eq!(here.get(&by_name).expect(200)["metadata"]["name"], name);
        here.merge(&by_name, &json!({"metadata": {"labels": {"a": "b"}}}))
            .expect(200);
        here.delete(&by_name).expect(200);
        assert_eq!(here.get(&by_name).code, 404, "{name}");
    }
    for name in ["a/b", "a%b", "..", ".", "a\0"] {
        let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": []});
        assert_eq!(here.post(roles, &role).code, 422, "{name:?}");
    }
    for encoded in ["a%2Fb", "..%2Fa", "a%25b", "..", "%2e%2e", "a%00", "a;b/c;d"] {
        assert_eq!(here.get(&format!("{roles}/{encoded}")).code, 400, "{encoded}");
    }
    for other in [
        "/api;a/v1/namespaces",
        "/apis/rbac.authorization.k8s.io;a/v1/clusterroles",
    ] {
        assert_eq!(here.get(other).code, 400, "{other}");
    }
    let elsewhere = format!("/clusters/{path};a/api/v1/namespaces");
    assert_eq!(admin.get(&elsewhere).code, 400);
}
