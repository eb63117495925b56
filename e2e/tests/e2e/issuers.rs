//! Tokens of other issuers. The operator configures issuers for the whole server, a workspace type
//! for its workspaces alone.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use insula_e2e::{Client, Hook, Issuer, Reply, Server, Setup, Signer, Who, runtime, shared, unique, until, workspace};
use insula_proto::admin::v1::{TreeWorkspacesRequest, workspace_service_client::WorkspaceServiceClient};
use serde_json::{Value, json};
use tonic::Code;

use crate::grpc;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const CONFIGURATIONS: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations";
const MAPS: &str = "/api/v1/configmaps";

pub(crate) fn mappings(prefix: &str) -> Value {
    let claim = |claim: &str| json!({"claim": claim, "prefix": prefix});
    json!({"username": claim("sub"), "groups": claim("groups")})
}

fn write(file: &Path, jwt: &[Value]) {
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt});
    std::fs::write(file, config.to_string()).unwrap();
}

/// Starts a server that trusts issuers.
pub(crate) fn server_with(jwt: &[Value]) -> Server {
    server_from(Setup::default(), jwt)
}

/// Starts a server that trusts issuers, and that writes nothing because somebody reads.
pub(crate) fn server_without_records(jwt: &[Value]) -> Server {
    let (name, value) = ("INSULA_WORKSPACES_VERSION_USES", "false");
    let environment = vec![(name.to_owned(), value.to_owned())];
    let setup = Setup {
        environment,
        ..Setup::default()
    };
    server_from(setup, jwt)
}

fn server_from(setup: Setup, jwt: &[Value]) -> Server {
    let file = tempfile::NamedTempFile::new().unwrap();
    write(file.path(), jwt);
    let flags = [
        "--store",
        "memory",
        "--authentication-config",
        file.path().to_str().unwrap(),
    ];
    Server::with(Setup {
        flags: flags.map(str::to_owned).to_vec(),
        ..setup
    })
}

fn grant(at: &Client, group: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "devs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    at.post(BINDINGS, &binding).expect(201);
}

fn maps(server: &Server, token: &str, at: &str) -> u16 {
    server
        .client(Who::Token(token.to_owned()))
        .in_workspace(at)
        .get(MAPS)
        .code
}

#[test]
fn tokens_of_the_operators_issuer_authenticate() {
    let other = shared();
    let issuer = Issuer::start(&other);
    let server = server_with(&[issuer.configuration(&other, &mappings("corp:"))]);
    let (path, _) = workspace(&server.admin(), "corp");
    grant(&server.admin().in_workspace(&path), "corp:devs");
    let devs = json!({"groups": ["devs"]});
    let token = issuer.token(&devs);

    assert_eq!(maps(&server, &token, &path), 200);
    assert_eq!(maps(&server, &token, "root"), 403);
    assert_eq!(maps(&server, &issuer.token(&json!({})), &path), 403);
    let ada = server.client(Who::Token(token.clone())).in_workspace(&path);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let seen = ada
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .expect(201);
    let user = &seen["status"]["userInfo"];
    assert_eq!(user["username"], "corp:ada");
    assert_eq!(user["groups"], json!(["corp:devs", "system:authenticated"]));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let seen = server
        .admin()
        .in_workspace(&path)
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .expect(201);
    assert_eq!(seen["status"]["user"]["username"], "corp:ada");

    for (what, claims) in [
        ("expired", json!({"exp": 1_000_000_000, "groups": ["devs"]})),
        ("endless", json!({"exp": null, "groups": ["devs"]})),
        ("early", json!({"nbf": 4_000_000_000_u64, "groups": ["devs"]})),
        ("for others", json!({"aud": "others", "groups": ["devs"]})),
        (
            "of another issuer",
            json!({"iss": "https://example.com", "groups": ["devs"]}),
        ),
        ("nameless", json!({"sub": null, "groups": ["devs"]})),
    ] {
        assert_eq!(maps(&server, &issuer.token(&claims), &path), 401, "{what}");
    }
    let forged = issuer.token_by(&Signer::new("first"), &devs);
    assert_eq!(maps(&server, &forged, &path), 401);
    assert_eq!(maps(&other, &token, "root"), 401, "another server knows nothing of it");
}

#[test]
fn issuer_keys_rotate_and_bad_tokens_do_not_cause_calls() {
    let other = shared();
    let issuer = Issuer::start(&other);
    let silent = json!({
        "issuer": {"url": format!("https://127.0.0.1:{}", insula_e2e::unused_port()), "audiences": ["insula"]},
        "claimMappings": mappings(""),
    });
    let server = server_with(&[issuer.configuration(&other, &mappings("")), silent.clone()]);
    let first = issuer.token(&json!({}));
    assert_eq!(maps(&server, &first, "root"), 403);
    assert_eq!(maps(&server, &first, "root"), 403);
    assert_eq!(issuer.fetches(), 1);
    // The server fetches an unknown key at once.
    let old = issuer.rotate("second");
    assert_eq!(maps(&server, &issuer.token(&json!({})), "root"), 403);
    assert_eq!(issuer.fetches(), 1);
    // The server rejects a key that the issuer no longer publishes.
    assert_eq!(maps(&server, &issuer.token_by(&old, &json!({})), "root"), 401);
    for n in 0..20 {
        let stranger = issuer.token_by(&Signer::new(&format!("stranger-{n}")), &json!({}));
        assert_eq!(maps(&server, &stranger, "root"), 401);
    }
    assert_eq!(issuer.fetches(), 0, "for a while, nobody has it called");
    assert_eq!(maps(&server, &issuer.token(&json!({})), "root"), 403);
    // An issuer that does not answer delays no other issuer's tokens.
    let unknown = issuer.token(&json!({"iss": silent["issuer"]["url"]}));
    assert_eq!(maps(&server, &unknown, "root"), 401);
    assert!(server.log().contains("the keys of an issuer cannot be fetched"));
}

#[test]
fn an_invalid_issuer_file_fails_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n\
         - issuer: {url: http://a, audiences: [b]}\n  claimMappings: {username: {claim: sub}}\n",
    )
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let output = insula_e2e::insula(&["start", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .arg("--authentication-config")
        .arg(file.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for want in [
        "jwt[0].issuer.url: Invalid value: \"http://a\"",
        "jwt[0].claimMappings.username.prefix: Required",
    ] {
        assert!(stderr.contains(want), "{stderr}");
    }
}

/// An issuer that accepts a connection and never answers delays one request for seconds, and later
/// requests not at all. The server reloads the operator's changes; an invalid configuration changes
/// nothing.
#[test]
fn an_unresponsive_issuer_times_out_and_is_replaced() {
    let other = shared();
    let (silent, issuer) = (Hook::start(&other, |_, _| Reply::Hang), Issuer::start(&other));
    let good = issuer.configuration(&other, &mappings("corp:"));
    let mut bad = good.clone();
    bad["issuer"]["url"] = silent.client_config("")["url"].clone();
    let file = tempfile::NamedTempFile::new().unwrap();
    write(file.path(), &[bad.clone()]);
    let server = Server::with_flags(&[
        "--store",
        "memory",
        "--authentication-config",
        file.path().to_str().unwrap(),
    ]);
    let held = issuer.token(&json!({"iss": bad["issuer"]["url"]}));
    let began = Instant::now();
    assert_eq!(maps(&server, &held, "root"), 401);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let again = Instant::now();
    assert_eq!(maps(&server, &held, "root"), 401);
    assert!(again.elapsed() < Duration::from_secs(4), "{:?}", again.elapsed());

    let token = issuer.token(&json!({}));
    assert_eq!(maps(&server, &token, "root"), 401);
    write(file.path(), &[good]);
    until("the new issuer is believed", || {
        (maps(&server, &token, "root") == 403).then_some(())
    });
    std::fs::write(file.path(), "jwt: [").unwrap();
    until("the mistake is told", || {
        server
            .log()
            .contains("the issuers of tokens stay as they were")
            .then_some(())
    });
    assert_eq!(maps(&server, &token, "root"), 403);
}

/// Applies the same rules over gRPC: paths of a workspace and those below it.
fn tree(server: &Server, token: &str, at: &str) -> Result<Vec<String>, Code> {
    let channel = grpc::channel(server, &Who::Anonymous);
    runtime().block_on(async {
        let mut client = WorkspaceServiceClient::with_origin(channel, grpc::origin(server));
        let root = TreeWorkspacesRequest {
            root: at.to_owned(),
            ..TreeWorkspacesRequest::default()
        };
        let mut request = grpc::as_user(token, root);
        // The server reads a message only after it has authenticated the caller.
        let metadata = request.metadata_mut();
        metadata.insert("insula-workspace", at.parse().unwrap());
        let answers = client.tree_workspaces(request).await;
        let mut answers = answers.map_err(|status| status.code())?.into_inner();
        let mut paths = Vec::new();
        while let Some(node) = answers.message().await.map_err(|status| status.code())? {
            paths.push(node.workspace.unwrap_or_default().path);
        }
        Ok(paths)
    })
}

/// Creates a workspace whose type trusts an issuer. Returns the type's workspace and the workspace.
fn with_own_issuer(server: &Server, configuration: &Value) -> (String, String) {
    let admin = server.admin();
    let (home, _) = workspace(&admin, "org");
    let at = admin.in_workspace(&home);
    let own = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceAuthenticationConfiguration",
        "metadata": {"name": "corp"}, "spec": {"jwt": [configuration]},
    });
    at.post(CONFIGURATIONS, &own).expect(201);
    let kind = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "with-auth"},
        "spec": {"extend": {"with": [{"name": "universal", "path": "root"}]},
            "authenticationConfigurations": [{"name": "corp"}]},
    });
    at.post("/apis/tenancy.kcp.io/v1alpha1/workspacetypes", &kind)
        .expect(201);
    let name = unique("own");
    let wanted = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"type": {"name": "with-auth", "path": home}},
    });
    let workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
    at.post(workspaces, &wanted).expect(201);
    until("the workspace is ready", || {
        let found = at.get(&format!("{workspaces}/{name}")).expect(200);
        (found["status"]["phase"] == "Ready").then_some(())
    });
    let path = format!("{home}:{name}");
    (home, path)
}

#[test]
fn tokens_of_a_workspaces_issuer_are_valid_there_only() {
    let server = Server::with(Setup {
        flags: vec![
            "--store".into(),
            "memory".into(),
            "--webhook-allow".into(),
            "127.0.0.1".into(),
        ],
        ..Setup::default()
    });
    let issuer = Issuer::start(&server);
    let mut own = mappings("");
    own["extra"] = json!([
        {"key": "authentication.kcp.io/scopes", "valueExpression": "'cluster:root'"},
        {"key": "authorization.kcp.io/warrant", "valueExpression": "'{\"groups\":[\"system:kcp:admin\"]}'"},
        {"key": "example.com/team", "valueExpression": "'blue'"},
    ]);
    let (home, path) = with_own_issuer(&server, &issuer.configuration(&server, &own));
    let (elsewhere, _) = workspace(&server.admin(), "elsewhere");
    grant(&server.admin().in_workspace(&path), "devs");
    for place in [&home, &elsewhere] {
        grant(&server.admin().in_workspace(place), "devs");
    }
    let token = issuer.token(&json!({"groups": ["devs", "system:masters", "system:kcp:admin"]}));
    assert_eq!(maps(&server, &token, &path), 200);
    assert_eq!(tree(&server, &token, &path), Ok(vec![path.clone()]));
    for place in [home.as_str(), &elsewhere, "root", "system:admin"] {
        assert_eq!(maps(&server, &token, place), 401, "{place}");
        assert_eq!(tree(&server, &token, place), Err(Code::Unauthenticated), "{place}");
    }
    let ada = server.client(Who::Token(token)).in_workspace(&path);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let seen = ada
        .post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
        .expect(201);
    let user = &seen["status"]["userInfo"];
    assert_eq!(user["groups"], json!(["devs", "system:authenticated"]));
    let cluster = server.admin().in_workspace(&home).get(&format!(
        "/apis/tenancy.kcp.io/v1alpha1/workspaces/{}",
        path.rsplit_once(':').unwrap().1
    ));
    let cluster = cluster.expect(200)["spec"]["cluster"].clone();
    // Mappings to keys of kcp.io have no effect: they say where an identity counts.
    assert_eq!(
        user["extra"],
        json!({
            "authentication.kcp.io/cluster-name": [cluster],
            "authentication.kcp.io/scopes": [format!("cluster:{}", cluster.as_str().unwrap())],
            "example.com/team": ["blue"],
        })
    );
    for sub in [
        "system:admin",
        "system:serviceaccount:default:default",
        "system:kcp:admin",
    ] {
        let token = issuer.token(&json!({"sub": sub, "groups": ["devs"]}));
        assert_eq!(maps(&server, &token, &path), 401, "{sub}");
    }
    // Effective with the write that changes it.
    let at = server.admin().in_workspace(&home);
    at.delete(&format!("{CONFIGURATIONS}/corp")).expect(200);
    let token = issuer.token(&json!({"groups": ["devs"]}));
    assert_eq!(maps(&server, &token, &path), 401);
}

#[test]
fn issuers_of_workspaces_are_called_at_allowed_targets_only() {
    let server = shared();
    let issuer = Issuer::start(&server);
    let configuration = issuer.configuration(&server, &mappings(""));
    let (home, path) = with_own_issuer(&server, &configuration);
    grant(&server.admin().in_workspace(&path), "devs");
    let token = issuer.token(&json!({"groups": ["devs"]}));
    assert_eq!(maps(&server, &token, &path), 401);
    assert_eq!(
        issuer.fetches(),
        0,
        "this machine is nobody whom tenants may have called"
    );
    // As in kcp, what the definition admits is stored; a warning tells why it is of no use.
    let warned = |change: &dyn Fn(&mut Value), want: &str| {
        let mut bad = configuration.clone();
        change(&mut bad);
        let bad = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceAuthenticationConfiguration",
            "metadata": {"name": "bad"}, "spec": {"jwt": [bad]},
        });
        let home = server.admin().in_workspace(&home);
        let answer = home.post(CONFIGURATIONS, &bad);
        let warnings = format!("{:?}", answer.headers.get_all("warning").iter().collect::<Vec<_>>());
        let plain = |text: &str| text.replace(['\\', '"'], "");
        assert!(
            answer.code == 201 && plain(&warnings).contains(&plain(want)),
            "{} {warnings}",
            answer.text
        );
        home.delete(&format!("{CONFIGURATIONS}/bad")).expect(200);
    };
    warned(
        &|jwt| jwt["issuer"]["url"] = json!("http://example.com"),
        "spec.jwt[0].issuer.url: Invalid value: \"http://example.com\": URL scheme must be https",
    );
    warned(
        &|jwt| jwt["claimMappings"]["username"] = json!({"claim": "sub"}),
        "spec.jwt[0].claimMappings.username.prefix: Required value",
    );
    warned(
        &|jwt| jwt["claimValidationRules"] = json!([{"expression": "claims.", "message": "no"}]),
        "spec.jwt[0].claimValidationRules[0].expression: Invalid value",
    );
}
