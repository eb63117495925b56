//! The example with a delegate: another server, here Insula itself, knows the users of its tokens
//! and decides about their requests.

use crate::{SHIPS, ship, start_with};
use insula_e2e::{Answer, Client, Issuer, Server, Setup, Who, base64, shared, unique, until, unused_port};
use insula_sdk::testing::{TemporaryDirectory, temporary_directory};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A server to ask, and the kubeconfig of the account that asks it.
struct Delegate {
    server: Server,
    kubeconfig: PathBuf,
    files: TemporaryDirectory,
}

impl Delegate {
    /// Starts a server, with a service account that may ask it.
    fn start(setup: Setup) -> Self {
        let server = Server::with(setup);
        let root = server.admin().in_workspace("root");
        let subject = json!({"kind": "ServiceAccount", "name": "fleet", "namespace": "default"});
        root.post(ACCOUNTS, &json!({"metadata": {"name": "fleet"}})).expect(201);
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"});
        let binding = json!({"metadata": {"name": "fleet"}, "subjects": [subject], "roleRef": role});
        root.post(&format!("{RBAC}/clusterrolebindings"), &binding).expect(201);
        let files = temporary_directory();
        fs::create_dir_all(files.path()).unwrap();
        let kubeconfig = files.path().join("delegate.kubeconfig");
        let token = account_token(&root, "fleet");
        write_kubeconfig(&server, &kubeconfig, &token);
        Self {
            server,
            kubeconfig,
            files,
        }
    }

    fn root(&self) -> Client {
        self.server.admin().in_workspace("root")
    }

    /// Starts the example, which asks this server.
    fn fleet(&self) -> Server {
        start_with(&[], &[("INSULA_DELEGATE", self.kubeconfig.to_str().unwrap())])
    }

    /// Allows a user some verbs on ships and their subresources.
    fn grant(&self, name: &str, subject: &Value, verbs: &[&str]) {
        let root = self.root();
        let resources = ["ships", "ships/dock", "ships/status"];
        let rule = json!({"apiGroups": ["fleet.example.com"], "resources": resources, "verbs": verbs});
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        root.post(&format!("{RBAC}/namespaces/default/roles"), &role)
            .expect(201);
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        let binding = json!({"metadata": {"name": name}, "subjects": [subject], "roleRef": reference});
        root.post(&format!("{RBAC}/namespaces/default/rolebindings"), &binding)
            .expect(201);
    }
}

/// Makes a service account, and returns a token of it.
fn account(root: &Client, name: &str) -> String {
    root.post(ACCOUNTS, &json!({"metadata": {"name": name}})).expect(201);
    account_token(root, name)
}

fn account_token(root: &Client, name: &str) -> String {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = root.post(&format!("{ACCOUNTS}/{name}/token"), &request).expect(201);
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn subject_of(account: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": account, "namespace": "default"})
}

fn write_kubeconfig(server: &Server, file: &Path, token: &str) {
    let authority = server.data_dir().join("pki/ca.crt");
    let cluster = json!({"server": format!("{}/clusters/root", server.url()), "certificate-authority": authority});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "delegate",
        "clusters": [{"name": "delegate", "cluster": cluster}],
        "users": [{"name": "fleet", "user": {"token": token}}],
        "contexts": [{"name": "delegate", "context": {"cluster": "delegate", "user": "fleet"}}],
    });
    fs::write(file, config.to_string()).unwrap();
}

fn bearer(server: &Server, token: &str) -> Client {
    server.client(Who::Token(token.to_owned()))
}

fn refusal(answer: Answer, code: u16) -> String {
    answer.expect(code)["message"].as_str().unwrap().to_owned()
}

/// The user is known to the delegate alone. No path names a workspace, as behind kube-apiserver.
#[test]
fn a_delegate_knows_users_and_decides() {
    let delegate = Delegate::start(Setup::default());
    let robin = account(&delegate.root(), "robin");
    delegate.grant("sailors", &subject_of("robin"), &["get", "list", "patch"]);
    let fleet = delegate.fleet();
    let client = bearer(&fleet, &robin);
    assert_eq!(client.get(SHIPS).expect(200)["items"], json!([]));
    client.get("/apis/fleet.example.com/v1").expect(200);
    let forbidden = refusal(client.post(SHIPS, &ship("v1", "fram", json!({"flag": "NO"}))), 403);
    let want = "User \"system:serviceaccount:default:robin\" cannot create resource \"ships\"";
    assert!(forbidden.contains(want), "{forbidden}");

    // The right to patch is none to create by an apply.
    let apply = |name: &str| {
        let headers = [("content-type", "application/apply-patch+yaml")];
        let sent = ship("v1", name, json!({"flag": "NO"})).to_string();
        let path = format!("{SHIPS}/{name}?fieldManager=me");
        client.try_send("PATCH", &path, &headers, sent.into()).unwrap()
    };
    let forbidden = refusal(apply("fram"), 403);
    assert!(forbidden.contains("cannot create resource"), "{forbidden}");
    delegate.grant("builders", &subject_of("robin"), &["create"]);
    // The refusal counts for ten seconds.
    until("the new right counts", || (apply("fram").code == 201).then_some(()));
    client.get(&format!("{SHIPS}/fram")).expect(200);

    // Tokens that nobody knows, other workspaces, and paths of health.
    assert_eq!(bearer(&fleet, "nobody").get(SHIPS).code, 401);
    let elsewhere = insula_e2e::workspace(&fleet.admin(), "elsewhere").0;
    let there = format!("/clusters/{elsewhere}{SHIPS}");
    assert_eq!(client.get(&there).code, 403, "the delegate decides for root alone");
    assert_eq!(fleet.client(Who::Anonymous).get("/readyz").code, 200);
}

/// A service account of the example's own workspace has a namesake with rights at the delegate.
#[test]
fn a_delegate_is_not_asked_about_the_servers_own_accounts() {
    let delegate = Delegate::start(Setup::default());
    let theirs = account(&delegate.root(), "twin");
    delegate.grant("twins", &subject_of("twin"), &["list"]);
    let fleet = delegate.fleet();
    let own = account(&fleet.admin().in_workspace("root"), "twin");
    bearer(&fleet, &theirs).get(SHIPS).expect(200);
    assert_eq!(bearer(&fleet, &own).get(SHIPS).code, 403);
    // A static token is one of the operator's users, whom the delegate may know as well.
    let alice = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"});
    let client = bearer(&fleet, "alice-token");
    assert_eq!(client.get(SHIPS).code, 403);
    delegate.grant("alice", &alice, &["list"]);
    until("the new right counts", || (client.get(SHIPS).code == 200).then_some(()));
    // Whoever acts as somebody else has this server's roles alone.
    let acting = [("impersonate-user", "alice")];
    let admin = fleet.admin().in_workspace("root");
    assert_eq!(admin.get_with(SHIPS, &acting).code, 403);
    admin.get(SHIPS).expect(200);
}

#[test]
fn expired_tokens_and_masters_of_a_delegate() {
    let authority = shared();
    let issuer = Issuer::start(&authority);
    let files = temporary_directory();
    fs::create_dir_all(files.path()).unwrap();
    let file = files.path().join("issuers.json");
    let claim = |claim: &str| json!({"claim": claim, "prefix": ""});
    let jwt = issuer.configuration(
        &authority,
        &json!({"username": claim("sub"), "groups": claim("groups")}),
    );
    let config =
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]});
    fs::write(&file, config.to_string()).unwrap();
    let flags = ["--authentication-config", file.to_str().unwrap()];
    let delegate = Delegate::start(Setup {
        flags: flags.map(str::to_owned).to_vec(),
        ..Setup::default()
    });
    let ada = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"});
    delegate.grant("ada", &ada, &["list"]);
    let fleet = delegate.fleet();
    bearer(&fleet, &issuer.token(&json!({}))).get(SHIPS).expect(200);
    let expired = issuer.token(&json!({"exp": 1_000_000_000}));
    assert_eq!(bearer(&fleet, &expired).get(SHIPS).code, 401);
    // A token that ends counts for ten seconds at most.
    let robin = account(&delegate.root(), "robin");
    delegate.grant("robin", &subject_of("robin"), &["list"]);
    bearer(&fleet, &robin).get(SHIPS).expect(200);
    delegate.root().delete(&format!("{ACCOUNTS}/robin")).expect(200);
    until("the token of a deleted account ends", || {
        (bearer(&fleet, &robin).get(SHIPS).code == 401).then_some(())
    });

    // Carol is a static user of `system:masters` there and here; the delegate's are masters here.
    let carol = bearer(&fleet, "carol-token");
    carol.get("/clusters/root/api/v1/secrets").expect(200);
}

#[test]
fn without_an_answer_of_the_delegate_requests_are_refused() {
    let port = format!("127.0.0.1:{}", unused_port());
    let delegate = Delegate::start(Setup {
        flags: vec!["--listen".into(), port],
        ..Setup::default()
    });
    let robin = account(&delegate.root(), "robin");
    delegate.grant("sailors", &subject_of("robin"), &["list"]);
    let fleet = delegate.fleet();
    let client = bearer(&fleet, &robin);
    client.get(SHIPS).expect(200);
    let Delegate {
        mut server,
        kubeconfig,
        files,
    } = delegate;
    server.kill9();
    let wants = |client: &Client, path: &str, what: &str| {
        let message = refusal(client.get(path), 503);
        let want = format!("the Kubernetes server that decides about {what} gives no answer");
        assert!(message.contains(&want) && !message.contains("127.0.0.1"), "{message}");
    };
    wants(&bearer(&fleet, &unique("token")), SHIPS, "tokens");
    wants(&bearer(&fleet, "bob-token"), SHIPS, "requests");
    wants(&fleet.client(Who::Anonymous), SHIPS, "requests");
    // This server's own users go on.
    let admin = fleet.admin().in_workspace("root");
    admin
        .post(SHIPS, &ship("v1", "fram", json!({"flag": "NO"})))
        .expect(201);
    assert_eq!(fleet.client(Who::Anonymous).get("/readyz").code, 200);
    // A start without the delegate serves what needs no answer.
    let other = start_with(&[], &[("INSULA_DELEGATE", kubeconfig.to_str().unwrap())]);
    wants(&bearer(&other, &robin), SHIPS, "tokens");
    other.admin().in_workspace("root").get(SHIPS).expect(200);
    drop(other);
    // The delegate comes back.
    let server = server.restart();
    until("answers come again", || (client.get(SHIPS).code == 200).then_some(()));
    drop((server, files));
}

/// The delegate proxies to the example, which learns from its ConfigMap whom to trust.
#[test]
fn the_front_proxy_of_the_delegate_names_users() {
    let delegate = Delegate::start(Setup {
        flags: vec!["--webhook-allow".into(), "127.0.0.1".into()],
        ..Setup::default()
    });
    let root = delegate.root();
    // The first APIService makes the ConfigMap and the Role of its readers.
    let service = |name: &str, group: &str, url: &str, ca: Option<&str>| {
        let mut spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "default", "name": "fleet"}});
        if let Some(ca) = ca {
            spec["caBundle"] = json!(ca);
        }
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name, "annotations": {"insula.io/url": url}}, "spec": spec})
    };
    let other = service("v1.other.example.com", "other.example.com", "https://127.0.0.1:1", None);
    root.post(SERVICES, &other).expect(201);
    let reader = "extension-apiserver-authentication-reader";
    let roles = format!("{RBAC}/namespaces/kube-system/roles/{reader}");
    until("the role is there", || (root.get(&roles).code == 200).then_some(()));
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": reader});
    let binding = json!({"metadata": {"name": "fleet"}, "subjects": [subject_of("fleet")], "roleRef": reference});
    root.post(&format!("{RBAC}/namespaces/kube-system/rolebindings"), &binding)
        .expect(201);

    let fleet = delegate.fleet();
    let ca = fs::read(fleet.data_dir().join("pki/ca.crt")).unwrap();
    let url = fleet.url().to_owned();
    let ours = service("v1.fleet.example.com", "fleet.example.com", &url, Some(&base64(&ca)));
    root.post(SERVICES, &ours).expect(201);
    until("the example is available", || {
        let shown = root.get(&format!("{SERVICES}/v1.fleet.example.com")).expect(200);
        (shown["status"]["conditions"][0]["status"] == "True").then_some(())
    });
    let robin = account(&root, "robin");
    delegate.grant("sailors", &subject_of("robin"), &["list", "create"]);
    let through = bearer(&delegate.server, &robin);
    let made = through.post(SHIPS, &ship("v1", "fram", json!({"flag": "NO"})));
    assert_eq!(made.expect(201)["spec"]["flag"], "NO");
    // A master of the delegate, whom no role names, is one here.
    let carol = bearer(&delegate.server, "carol-token");
    let ship = format!("/clusters/root{SHIPS}/fram");
    carol.merge(&ship, &json!({"spec": {"cargo": "dogs"}})).expect(200);
    // Straight at the example, headers that name a user count for nothing.
    let headers = [("x-remote-user", "mallory"), ("x-remote-group", "system:masters")];
    assert_eq!(fleet.client(Who::Anonymous).get_with(SHIPS, &headers).code, 403);
}
