//! Authentication and authorization: by certificate, by token, by every path, of open watches.

use insula_e2e::{Server, Who, shared, workspace_owned_by};
use serde_json::json;

scripts!("access": accounts, everybody, groups, identities, policy, reviews, roles, tenants, types);

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
