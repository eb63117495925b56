//! Front proxies: users whom a proxy names in headers, and attempts of others to do the same.

use std::fs;

use insula_e2e::{Server, Setup, until, workspace_owned_by};
use serde_json::{Value, json};

use super::authority::{Authority, Pair, Peer};

const REVIEW: &str = "/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews";

struct Scene {
    server: Server,
    own: Authority,
    proxies: Authority,
    users: Authority,
}

fn scene() -> Scene {
    let (proxies, users) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, ca: &Authority| {
        let path = folder.path().join(name);
        fs::write(&path, ca.pem()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let flags = [
        "--store",
        "memory",
        "--front-proxy-ca-file",
        &file("proxies.crt", &proxies),
        "--front-proxy-allowed-names",
        "gate, second-gate",
        "--tls-client-ca-file",
        &file("users.crt", &users),
    ];
    let server = Server::with(Setup {
        flags: flags.map(str::to_owned).to_vec(),
        environment: vec![("INSULA_WATCHES_BOOKMARK_SECONDS".to_owned(), "1".to_owned())],
        ..Setup::default()
    });
    let own = Authority::read(&server.data_dir().join("pki/ca.crt"));
    Scene {
        server,
        own,
        proxies,
        users,
    }
}

impl Scene {
    fn peer(&self, pair: Option<&Pair>) -> Peer {
        let peer = Peer::new(self.server.url(), "localhost", &self.own);
        match pair {
            Some(pair) => peer.with(pair),
            None => peer,
        }
    }

    /// Returns the user whom the server sees, or the code of its refusal.
    fn user(&self, pair: Option<&Pair>, headers: &[(&str, &str)]) -> Result<Value, u16> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self.peer(pair).post(REVIEW, headers, &review.to_string());
        match answer.code {
            201 => Ok(serde_json::from_str::<Value>(&answer.body).unwrap()["status"]["userInfo"].clone()),
            code => Err(code),
        }
    }
}

const ALICE: (&str, &str) = ("X-Remote-User", "alice");
const ADMINS: (&str, &str) = ("X-Remote-Group", "system:kcp:admin");
const TOKEN: (&str, &str) = ("Authorization", "Bearer dave-token");

#[test]
fn only_an_allowed_proxy_names_users() {
    let scene = scene();
    let gate = scene.proxies.client("gate", &["system:masters"]);
    let other = scene.proxies.client("other", &["system:masters"]);
    let namesake = scene.users.client("gate", &["system:kcp:admin"]);
    let named = |user: Result<Value, u16>| user.map(|user| user["username"].as_str().unwrap().to_owned());

    let headers = [
        ALICE,
        ADMINS,
        ("X-Remote-Group", "staff"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Extra-Example.com%2fTeam", "blue"),
    ];
    let alice = scene.user(Some(&gate), &headers).unwrap();
    assert_eq!(
        alice,
        json!({
            "username": "alice", "uid": "7", "groups": ["system:kcp:admin", "staff", "system:authenticated"],
            "extra": {"example.com/team": ["blue"]},
        })
    );
    // The header comes before a token; without it the token counts, and without both nothing does.
    assert_eq!(
        named(scene.user(Some(&gate), &[ALICE, ADMINS, TOKEN])),
        Ok("alice".to_owned())
    );
    assert_eq!(named(scene.user(Some(&gate), &[TOKEN])), Ok("dave".to_owned()));
    assert_eq!(named(scene.user(Some(&gate), &[])), Err(401));
    assert_eq!(named(scene.user(Some(&gate), &[("X-Remote-User", "")])), Err(401));
    // A proxy that is not listed is nobody, whatever its certificate says.
    assert_eq!(named(scene.user(Some(&other), &[ALICE, ADMINS])), Err(401));
    // A user of that name is a user; nobody else's headers count.
    assert_eq!(named(scene.user(Some(&namesake), &[ALICE])), Ok("gate".to_owned()));
    assert_eq!(named(scene.user(None, &[ALICE, ADMINS, TOKEN])), Ok("dave".to_owned()));
    assert_eq!(named(scene.user(None, &[ALICE, ADMINS])), Err(403), "anonymous");
}

/// A name that is no text was read as none, so that the credential behind the proxy counted.
#[test]
fn headers_of_a_proxy_that_are_no_text_are_refused() {
    let scene = scene();
    let gate = scene.proxies.client("gate", &[]);
    let code = |pair: Option<&Pair>, path: &str, name: &str, value: &[u8]| {
        let mut headers: Vec<(&str, &[u8])> = vec![(TOKEN.0, TOKEN.1.as_bytes()), (name, value)];
        if !name.eq_ignore_ascii_case("X-Remote-User") {
            headers.push((ALICE.0, ALICE.1.as_bytes()));
        }
        let mut open = scene.peer(pair).connect().unwrap();
        open.send_bytes("GET", path, &headers, "").unwrap().code
    };
    let maps = "/clusters/root/api/v1/configmaps";
    for name in ["X-Remote-User", "X-Remote-Group", "X-Remote-Uid", "X-Remote-Extra-A"] {
        for path in [maps, "/metrics"] {
            assert_eq!(code(Some(&gate), path, name, b"pr\xfcfer"), 400, "{name} {path}");
        }
        // Headers of others do not count: dave may read everything.
        assert_eq!(code(None, maps, name, b"pr\xfcfer"), 200, "{name}");
    }
    assert_eq!(code(Some(&gate), maps, "X-Remote-Extra-%ff", b"x"), 400);
    let named = scene.user(Some(&gate), &[("X-Remote-User", "prüfer"), ("X-Remote-Group", "größe")]);
    let named = named.unwrap();
    assert_eq!(named["username"], "prüfer");
    assert_eq!(named["groups"], json!(["größe", "system:authenticated"]));
}

#[test]
fn a_user_behind_a_proxy_has_their_own_rights_and_watches() {
    let scene = scene();
    let gate = scene.proxies.client("second-gate", &[]);
    let (path, _) = workspace_owned_by(&scene.server, "alice");
    let maps = format!("/clusters/{path}/api/v1/configmaps");
    let peer = scene.peer(Some(&gate));
    assert_eq!(peer.get(&maps, &[ALICE]).code, 200);
    assert_eq!(peer.get(&maps, &[("X-Remote-User", "bob")]).code, 403);
    // The right is checked again at each bookmark, with the same headers.
    let watch = peer.get(
        &format!("{maps}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3"),
        &[ALICE],
    );
    let events: Vec<Value> = watch
        .body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events.iter().any(|event| event["type"] == "BOOKMARK"), "{}", watch.body);
    assert!(events.iter().all(|event| event["type"] != "ERROR"), "{}", watch.body);
}

/// Kubernetes' aggregator proxies to `/apis/<group>/<version>`: it knows no clusters.
#[test]
fn paths_without_a_cluster_are_those_of_root_for_the_users_of_proxies() {
    let scene = scene();
    let gate = scene.proxies.client("gate", &[]);
    let code = |path: &str, headers: &[(&str, &str)]| scene.peer(Some(&gate)).get(path, headers).code;
    for path in [
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/configmaps?watch=true&timeoutSeconds=1",
    ] {
        assert_eq!(code(path, &[ALICE, ADMINS]), 200, "{path}");
        assert_eq!(code(path, &[ALICE]), 403, "{path}: by the roles of root");
        // A token that comes through the proxy is that of a client of this server.
        assert_eq!(code(path, &[TOKEN]), 403, "{path}: all clusters");
    }
    for path in [
        "/apis",
        "/apis/rbac.authorization.k8s.io/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
    ] {
        assert_eq!(
            code(path, &[("X-Remote-User", "system:kube-aggregator")]),
            200,
            "{path}"
        );
    }
}

#[test]
fn the_audit_log_believes_a_proxy_alone() {
    let scene = scene();
    let gate = scene.proxies.client("gate", &[]);
    let from = ("X-Forwarded-For", "192.0.2.7");
    for (pair, sources) in [
        (Some(&gate), json!(["192.0.2.7", "127.0.0.1"])),
        (None, json!(["127.0.0.1"])),
    ] {
        let answer = scene.peer(pair).get("/clusters/root/api", &[ALICE, from]);
        let id = answer.head.lines().find_map(|line| line.strip_prefix("audit-id: "));
        let id = id.unwrap().to_owned();
        let line = until("the request is in the audit log", || {
            let text = fs::read_to_string(scene.server.data_dir().join("audit/audit.log")).unwrap_or_default();
            text.lines().find(|line| line.contains(&id)).map(str::to_owned)
        });
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["sourceIPs"], sources, "{line}");
    }
}
