//! Two tenants of one server.

use std::{cell::RefCell, collections::HashMap};

use bytes::Bytes;
use insula_e2e::{Client, Issuer, Server, Who, ready_workspace, shared, unique, until};
use serde_json::{Value, json};

use crate::issuers;

/// A value in the other tenant's workspace that no answer may contain.
pub(super) const SECRET: &str = "the-other-tenants-value";
pub(super) const OWNER: &str = "bob";
pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A tenant's workspace under both of its names.
pub(super) struct TenantWorkspace {
    pub(super) path: String,
    pub(super) cluster: String,
}

/// The server with two tenants: alice, who sends the requests, and bob, whose objects nobody else
/// may access.
pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) issuer: Issuer,
    pub(super) mine: TenantWorkspace,
    pub(super) theirs: TenantWorkspace,
    /// A service account of alice's.
    pub(super) account: String,
    /// A deleted service account of alice's.
    pub(super) gone: String,
    /// `corp:ada`, a user of the operator's issuer without access to any workspace.
    pub(super) ada: String,
    clients: RefCell<HashMap<String, [Client; 2]>>,
    /// Cookies of sessions of the console; none for actors whose token begins none.
    sessions: RefCell<HashMap<String, Option<String>>>,
}

pub(super) fn owned_by(server: &Server, user: &str) -> TenantWorkspace {
    let owner = json!({"experimental.tenancy.kcp.io/owner": json!({"username": user}).to_string()});
    let name = unique("tenant");
    let (path, cluster) = ready_workspace(&server.client(Who::ShardAdmin), "root", &name, owner);
    TenantWorkspace { path, cluster }
}

pub(super) fn token(at: &Client, name: &str) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    at.post(accounts, &account).expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let answer = at.post(&format!("{accounts}/{name}/token"), &request).expect(201);
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Creates an export, and a workspace type with an initializer and a terminator, so that virtual
/// workspaces exist for them.
fn with_export_and_gate(at: &Client) {
    let export =
        json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "private"}, "spec": {}});
    at.post("/apis/apis.kcp.io/v1alpha2/apiexports", &export).expect(201);
    let gate = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "gate"},
        "spec": {"initializer": true, "terminator": true}});
    at.post("/apis/tenancy.kcp.io/v1alpha1/workspacetypes", &gate)
        .expect(201);
}

impl Scene {
    pub(super) fn new() -> Self {
        let other = shared();
        let issuer = Issuer::start(&other);
        let server = issuers::server_without_records(&[issuer.configuration(&other, &issuers::mappings("corp:"))]);
        let (mine, theirs) = (owned_by(&server, "alice"), owned_by(&server, OWNER));
        let admin = server.admin();
        let (here, there) = (admin.in_workspace(&mine.path), admin.in_workspace(&theirs.path));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": SECRET}});
        there.post(MAPS, &map).expect(201);
        with_export_and_gate(&here);
        with_export_and_gate(&there);
        let (account, gone) = (token(&here, "robot"), token(&here, "gone"));
        here.delete("/api/v1/namespaces/default/serviceaccounts/gone")
            .expect(200);
        let ada = issuer.token(&json!({}));
        let scene = Scene {
            server,
            issuer,
            mine,
            theirs,
            account,
            gone,
            ada,
            clients: RefCell::default(),
            sessions: RefCell::default(),
        };
        scene.settle();
        scene
    }

    /// Waits until writes have stopped, and returns the revision.
    pub(super) fn settle(&self) -> Value {
        let mut last = self.revision();
        until("the server is at rest", || {
            // The bindings of an export are counted a second after one of them has changed.
            std::thread::sleep(std::time::Duration::from_millis(1500));
            let now = self.revision();
            std::mem::replace(&mut last, now.clone()).eq(&now).then_some(now)
        })
    }

    fn revision(&self) -> Value {
        let [client, _] = self.clients_of("masters");
        let list = client.in_workspace("root").get("/api/v1/namespaces").expect(200);
        list["metadata"]["resourceVersion"].clone()
    }

    pub(super) fn who(&self, actor: &str) -> Who {
        match actor {
            "anon" => Who::Anonymous,
            "tA" => Who::Token("alice-token".to_owned()),
            "sA" => Who::Token(self.account.clone()),
            "ada" => Who::Token(self.ada.clone()),
            "pA" => Who::KcpAdmin,
            "masters" => Who::ShardAdmin,
            token => Who::Token(token.to_owned()),
        }
    }

    /// Returns the cookie of a session of the console that the token of an actor began.
    pub(super) fn session(&self, actor: &str) -> Option<String> {
        let mut sessions = self.sessions.borrow_mut();
        let begin = || {
            let Who::Token(token) = self.who(actor) else {
                return None;
            };
            let bearer = format!("Bearer {token}");
            let headers = [("insula-console", "1"), ("authorization", bearer.as_str())];
            let path = format!("/console/session?workspace={}", self.mine.path);
            let anybody = self.server.client(Who::Anonymous);
            let answer = anybody.try_send("POST", &path, &headers, Bytes::new()).ok()?;
            let cookie = answer.headers.get("set-cookie")?.to_str().ok()?;
            cookie.split(';').next().map(str::to_owned)
        };
        sessions.entry(actor.to_owned()).or_insert_with(begin).clone()
    }

    /// Returns clients of an actor over HTTP/2 and over HTTP/1.1.
    pub(super) fn clients_of(&self, actor: &str) -> [Client; 2] {
        let mut clients = self.clients.borrow_mut();
        let made = || {
            let client = self.server.client(self.who(actor));
            let first = client.over_http1();
            [client, first]
        };
        clients.entry(actor.to_owned()).or_insert_with(made).clone()
    }
}
