//! Who is not let in, row by row of the table of negative tests, through every door: workspaces by path and by the name of their
//! cluster, over HTTP/1.1 and HTTP/2, and gRPC. Whatever is refused changes nothing in the store, its answer names nobody's
//! workspace, owner or value that the request did not name itself, and the audit log has it with the reason.
//!
//! Rows 9 and 10 (certificates) are in `access.rs` and `crates/auth/tests`; what a tenant tries in its own workspace is in
//! `tenants.rs`; rows that need a scene of their own (36, 40, 41, 46, 48–50, 52–62, 65, 66) are in the stories that set it.
//! Anonymous requests get 403 where the table says 401, as in kcp.

mod framing;
mod tenants;

use std::collections::HashMap;

use bytes::Bytes;
use insula_e2e::{
    Answer, Client, Issuer, Server, Signer, Who, ready_workspace, runtime, shared, unique, until, workspace,
};
use insula_proto::admin::v1::{GetRequest, ListRequest, workspace_service_client::WorkspaceServiceClient};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::{grpc, issuers};

/// What stands in the other tenant's workspace, and must stand in no answer.
const SECRET: &str = "the-other-tenants-value";
const OWNER: &str = "bob";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A tenant's workspace under both of its names.
struct Place {
    path: String,
    cluster: String,
}

/// The server with two tenants: alice, who asks, and bob, whose things are nobody else's.
struct Scene {
    server: Server,
    issuer: Issuer,
    mine: Place,
    theirs: Place,
    /// A service account of alice's.
    account: String,
    /// One of alice's that was deleted.
    gone: String,
    /// `corp:ada`, whom the operator's issuer vouches for and nobody lets in.
    ada: String,
}

fn owned_by(server: &Server, user: &str) -> Place {
    let owner = json!({"experimental.tenancy.kcp.io/owner": json!({"username": user}).to_string()});
    let name = unique("tenant");
    let (path, cluster) = ready_workspace(&server.client(Who::ShardAdmin), "root", &name, owner);
    Place { path, cluster }
}

impl Scene {
    fn new() -> Self {
        let other = shared();
        let issuer = Issuer::start(&other);
        let server = issuers::server_with(&[issuer.configuration(&other, &issuers::mappings("corp:"))]);
        let (mine, theirs) = (owned_by(&server, "alice"), owned_by(&server, OWNER));
        let admin = server.admin();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": SECRET}});
        admin.at(&theirs.path).post(MAPS, &map).expect(201);
        let (account, gone) = (
            token(&admin.at(&mine.path), "robot"),
            token(&admin.at(&mine.path), "gone"),
        );
        admin
            .at(&mine.path)
            .delete("/api/v1/namespaces/default/serviceaccounts/gone")
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
        };
        scene.settle();
        scene
    }

    /// Waits until nothing is written any more, and says at which revision that is.
    fn settle(&self) -> Value {
        let mut last = self.revision();
        until("the server is at rest", || {
            std::thread::sleep(std::time::Duration::from_millis(150));
            let now = self.revision();
            std::mem::replace(&mut last, now.clone()).eq(&now).then_some(now)
        })
    }

    fn revision(&self) -> Value {
        let list = self
            .server
            .client(Who::ShardAdmin)
            .at("root")
            .get("/api/v1/namespaces")
            .expect(200);
        list["metadata"]["resourceVersion"].clone()
    }

    fn who(&self, actor: &str) -> Who {
        match actor {
            "anon" => Who::Anonymous,
            "tA" => Who::Token("alice-token".to_owned()),
            "sA" => Who::Token(self.account.clone()),
            "ada" => Who::Token(self.ada.clone()),
            "pA" => Who::KcpAdmin,
            token => Who::Token(token.to_owned()),
        }
    }
}

fn token(at: &Client, name: &str) -> String {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    at.post(accounts, &account).expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let answer = at.post(&format!("{accounts}/{name}/token"), &request).expect(201);
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// A request that is refused.
struct Row<'a> {
    number: u8,
    actor: &'a str,
    /// `METHOD path`; `{mine}` and `{theirs}` are the workspaces.
    request: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    /// In place of a ConfigMap; names of workspaces as in the path.
    body: Option<Value>,
    expect: &'a [u16],
}

fn row<'a>(number: u8, actor: &'a str, request: &'a str, expect: &'a [u16]) -> Row<'a> {
    Row {
        number,
        actor,
        request,
        headers: Vec::new(),
        body: None,
        expect,
    }
}

fn with<'a>(row: Row<'a>, headers: &[(&'a str, &'a str)]) -> Row<'a> {
    Row {
        headers: headers.to_vec(),
        ..row
    }
}

/// Sends all rows through all doors.
fn refuse(scene: &Scene, rows: &[Row<'_>]) {
    let before = scene.settle();
    let mut refused = Vec::new();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forced", "labels": {"a": "b"}}});
    for row in rows {
        for by_path in [true, false] {
            let name = |place: &Place| {
                if by_path {
                    place.path.clone()
                } else {
                    place.cluster.clone()
                }
            };
            let (method, path) = row.request.split_once(' ').unwrap();
            let named = |text: &str| {
                let text = text.replace("{mine}", &name(&scene.mine));
                text.replace("{theirs}", &name(&scene.theirs))
            };
            let path = named(path);
            let mut headers = row.headers.clone();
            let is_patch = method == "PATCH";
            if is_patch && headers.iter().all(|(name, _)| *name != "content-type") {
                headers.push(("content-type", "application/merge-patch+json"));
            }
            let body = match is_patch || matches!(method, "POST" | "PUT") {
                true => Bytes::from(named(&row.body.as_ref().unwrap_or(&body).to_string())),
                false => Bytes::new(),
            };
            let client = scene.server.client(scene.who(row.actor));
            for (version, client) in [("HTTP/2", client.clone()), ("HTTP/1.1", client.over_http1())] {
                let what = format!(
                    "row {}: {version} {} {method} {path} {headers:?}",
                    row.number, row.actor
                );
                let answer = client
                    .try_send(method, &path, &headers, body.clone())
                    .unwrap_or_else(|error| {
                        panic!("{what}: {error}");
                    });
                assert!(
                    row.expect.contains(&answer.code),
                    "{what}: {}\n{}",
                    answer.code,
                    answer.text
                );
                let id = answer.headers.get("audit-id").map(|id| id.to_str().unwrap().to_owned());
                refused.push((what.clone(), id, answer.code));
                let shown = format!("{}{:?}", answer.text, answer.headers);
                let unnamed = if by_path {
                    &scene.theirs.cluster
                } else {
                    &scene.theirs.path
                };
                for foreign in [SECRET, OWNER, unnamed.as_str()] {
                    assert!(!shown.contains(foreign), "{what}: {foreign} in {shown}");
                }
            }
        }
    }
    assert_eq!(scene.settle(), before, "what is refused changes nothing");
    recorded(scene, &refused);
}

/// Each refusal is in the audit log, with its code and why.
fn recorded(scene: &Scene, refused: &[(String, Option<String>, u16)]) {
    let file = scene.server.data_dir().join("audit/audit.log");
    until("the refusals are in the audit log", || {
        let text = std::fs::read_to_string(&file).ok()?;
        let events: HashMap<String, Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|event| Some((event["auditID"].as_str()?.to_owned(), event)))
            .collect();
        for (what, id, code) in refused {
            let id = id.as_ref().unwrap_or_else(|| panic!("{what}: no audit-id"));
            let event = events.get(id)?;
            assert_eq!(event["responseStatus"]["code"], *code, "{what}: {event}");
            let notes = &event["annotations"];
            let why =
                ["insula.io/reason", "authorization.k8s.io/reason"].map(|key| notes[key].as_str().unwrap_or_default());
            // What makes no sense says so to its sender; what may not be tells the reason to the operator alone.
            let is_told = !matches!(code, 401 | 403);
            assert!(is_told || why.iter().any(|why| !why.is_empty()), "{what}: {event}");
        }
        Some(())
    });
}

const AUTHORIZATION: &str = "authorization";

#[test]
fn who_shows_nothing_or_something_broken_is_not_let_in() {
    let scene = Scene::new();
    let map = format!("/clusters/{{mine}}{MAPS}");
    let (list, make) = (format!("GET {map}"), format!("POST {map}"));
    let mut rows = vec![
        row(2, "anon", &make, &[403]),
        row(3, "anon", "GET /metrics", &[403]),
        row(3, "anon", "GET /debug/pprof", &[403, 404]),
        row(8, &scene.gone, &list, &[401]),
        row(8, &scene.gone, "GET /apis", &[401]),
    ];
    for path in [
        "/api",
        "/apis",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
        "/api/v1",
        "/apis/apis.kcp.io/v1alpha2",
    ] {
        let request: &str = Box::leak(format!("GET /clusters/{{mine}}{path}").into_boxed_str());
        rows.push(row(1, "anon", request, &[403]));
    }
    for header in [
        "",
        "Bearer",
        "Bearer nothing",
        "bearer x y",
        "Basic YWxpY2U6eA==",
        "Bearer \u{1}",
        "alice-token",
    ] {
        if header.chars().all(|c| !c.is_control()) {
            rows.push(with(row(4, "anon", &list, &[401]), &[(AUTHORIZATION, header)]));
        }
    }
    let twice = [
        (AUTHORIZATION, "Bearer alice-token"),
        (AUTHORIZATION, "Bearer alice-token"),
    ];
    rows.push(with(row(4, "anon", &list, &[401]), &twice));
    refuse(&scene, &rows);
}

#[test]
fn tokens_that_do_not_count_let_nobody_in() {
    let scene = Scene::new();
    let issuer = &scene.issuer;
    let list = format!("GET /clusters/{{mine}}{MAPS}");
    // What everybody can read is no secret: not the key of the issuer, nor its claims without a signature.
    let public = EncodingKey::from_secret(scene.ada.as_bytes());
    let confused = |kid: &str| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some(kid.to_owned());
        let mut claims =
            json!({"aud": "insula", "exp": 4_000_000_000_u64, "sub": "alice", "groups": ["system:masters"]});
        claims["iss"] = json!(named_by(&scene.ada));
        encode(&header, &claims, &public).unwrap()
    };
    let (head, body) = ("eyJhbGciOiJub25lIn0", scene.ada.split('.').nth(1).unwrap());
    let account: Vec<&str> = scene.account.split('.').collect();
    let tokens = [
        (5, issuer.token(&json!({"exp": 1_000_000_000}))),
        (5, issuer.token(&json!({"nbf": 4_000_000_000_u64}))),
        (6, format!("{head}.{body}.")),
        (6, format!("{head}.{}.", account[1])),
        (6, confused("first")),
        (7, issuer.token(&json!({"aud": "others"}))),
        (7, issuer.token(&json!({"iss": "https://issuer.example.com"}))),
        (7, issuer.token(&json!({"iss": "https://kcp.default.svc"}))),
        (7, issuer.token_by(&Signer::new("unknown"), &json!({}))),
        (7, issuer.token_by(&Signer::new(&"k".repeat(4000)), &json!({}))),
        (7, issuer.token_by(&Signer::new("first"), &json!({}))),
        (7, format!("{}.{}.{}", account[0], body, account[2])),
    ];
    let rows: Vec<Row<'_>> = tokens
        .iter()
        .map(|(number, token)| row(*number, token, &list, &[401]))
        .collect();
    refuse(&scene, &rows);
    // What counts, counts: the table is about the tokens.
    assert_eq!(
        scene
            .server
            .client(scene.who("ada"))
            .at(&scene.mine.path)
            .get(MAPS)
            .code,
        403
    );
}

/// The issuer that a token names.
fn named_by(token: &str) -> String {
    let claims: Value = jsonwebtoken::dangerous::insecure_decode_claims(token).unwrap();
    claims["iss"].as_str().unwrap().to_owned()
}

#[test]
fn headers_make_nobody_another() {
    let scene = Scene::new();
    let (theirs, mine) = (
        format!("GET /clusters/{{theirs}}{MAPS}/map"),
        format!("GET /clusters/{{mine}}{MAPS}"),
    );
    let root = "GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";
    let mut rows = Vec::new();
    let identities: [&[(&str, &str)]; 6] = [
        &[("X-Remote-User", "kcp-admin"), ("X-Remote-Group", "system:masters")],
        &[
            ("x-remote-user", "bob-the-other"),
            ("x-remote-group", "system:kcp:admin"),
            ("x-remote-group", "system:masters"),
        ],
        &[("X_Remote_User", "kcp-admin"), ("X_Remote_Group", "system:masters")],
        &[
            (
                "X-Remote-Extra-Authorization.kcp.io%2fWarrant",
                r#"{"groups":["system:masters"]}"#,
            ),
            ("X-Remote-Uid", "0"),
        ],
        &[
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Forwarded-User", "kcp-admin"),
            ("X-Forwarded-Client-Cert", "Subject=\"O=system:masters\""),
        ],
        &[
            ("X-Kcp-Internal-Deep-SubjectAccessReview", "true"),
            ("X-Original-URL", "/readyz"),
            ("X-Rewrite-Url", "/readyz"),
        ],
    ];
    for headers in identities {
        let number = if headers[0].0.to_lowercase().starts_with("x-remote") || headers[0].0.starts_with("X_") {
            11
        } else {
            12
        };
        for actor in ["tA", "sA", "ada"] {
            rows.push(with(row(number, actor, &theirs, &[403]), headers));
        }
        rows.push(with(row(number, "anon", &mine, &[403]), headers));
    }
    let lent: [&[(&str, &str)]; 9] = [
        &[("Impersonate-User", "kcp-admin")],
        &[("Impersonate-User", "system:admin")],
        &[("Impersonate-User", "system:kcp:serviceaccount:a:b:c")],
        &[("Impersonate-User", "x"), ("Impersonate-Group", "system:masters")],
        &[("Impersonate-User", "x"), ("Impersonate-Group", "system:kcp:admin")],
        &[("Impersonate-User", "x"), ("Impersonate-Uid", "7")],
        &[
            ("Impersonate-User", "alice"),
            (
                "Impersonate-Extra-Authorization.kcp.io%2Fwarrant",
                r#"{"groups":["system:kcp:admin"]}"#,
            ),
        ],
        &[
            ("Impersonate-User", "alice"),
            ("Impersonate-Extra-Authentication.kcp.io%2Fscopes", "cluster:root"),
        ],
        &[
            ("Impersonate-User", "alice"),
            ("Impersonate-Extra-Authentication.kcp.io%2Fcluster-name", "root"),
        ],
    ];
    for headers in lent {
        let number = if headers.len() == 1 || headers[1].0 == "Impersonate-Group" {
            13
        } else {
            15
        };
        for request in [&mine, &theirs, root] {
            rows.push(with(row(number, "tA", request, &[403]), headers));
        }
    }
    let alone = [("Impersonate-Group", "system:masters")];
    rows.push(with(row(13, "tA", &mine, &[400]), &alone));
    // Alice may act as others in her workspace; what she borrows there counts there.
    rows.push(with(
        row(14, "tA", &theirs, &[403]),
        &[("Impersonate-User", "the-owner")],
    ));
    rows.push(with(row(14, "tA", &theirs, &[403]), &[("Impersonate-User", "alice")]));
    refuse(&scene, &rows);
}

#[test]
fn nobody_gets_to_another_tenant_by_its_names_or_by_tricks() {
    let scene = Scene::new();
    let mut requests = Vec::new();
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        requests.push((16, format!("{method} /clusters/{{theirs}}{MAPS}/map"), [403].as_slice()));
    }
    for method in ["GET", "POST", "DELETE"] {
        requests.push((17, format!("{method} /clusters/{{theirs}}{MAPS}"), &[403]));
    }
    for query in [
        "",
        "?watch=true",
        "?limit=1",
        "?labelSelector=a",
        "?fieldSelector=metadata.name%3Dmap",
        "?dryRun=All",
    ] {
        requests.push((16, format!("GET /clusters/{{theirs}}/api/v1/configmaps{query}"), &[403]));
        requests.push((18, format!("GET /clusters/*/api/v1/configmaps{query}"), &[403]));
    }
    for path in [
        "/clusters/{mine}/../{theirs}/api/v1/configmaps",
        "/clusters/{mine}/%2e%2e/{theirs}/api/v1/configmaps",
        "/clusters/{mine}%2F..%2F{theirs}/api/v1/configmaps",
        "/clusters/{mine}/%252e%252e/{theirs}/api/v1/configmaps",
        "//clusters/{theirs}/api/v1/configmaps",
        "/clusters//{theirs}/api/v1/configmaps",
        "/clusters/{theirs};a=b/api/v1/configmaps",
        "/clusters/{theirs}%00/api/v1/configmaps",
        "/clusters/{theirs}:/api/v1/configmaps",
        "/clusters/{mine}/clusters/{theirs}/api/v1/configmaps",
        "/clusters/{mine}/services/apiexport/{theirs}/a/clusters/*/api/v1/configmaps",
        "/clusters/{theirs}%20/api/v1/configmaps",
        "/clusters/%c0%ae%c0%ae/api/v1/configmaps",
    ] {
        requests.push((19, format!("GET {path}"), &[400, 403, 404]));
    }
    let rows: Vec<Row<'_>> = requests
        .iter()
        .flat_map(|(number, request, expect)| {
            ["tA", "sA", "ada", "anon"].map(|actor| row(*number, actor, request, expect))
        })
        .collect();
    refuse(&scene, &rows);
}

#[test]
fn system_clusters_are_closed() {
    let scene = Scene::new();
    let mut requests = Vec::new();
    for cluster in [
        "system:bound-crds",
        "system:admin",
        "system:shard",
        "system:system-crds",
        "system:cached-crds",
    ] {
        for request in [
            "GET /api/v1/configmaps",
            "GET /apis",
            "GET /api/v1/configmaps?watch=true",
        ] {
            requests.push(request.replace(" /", &format!(" /clusters/{cluster}/")));
        }
        for method in ["POST", "DELETE"] {
            requests.push(format!("{method} /clusters/{cluster}{MAPS}"));
        }
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            requests.push(format!("{method} /clusters/{cluster}{MAPS}/map"));
        }
    }
    let closed = [403];
    let rows: Vec<Row<'_>> = requests
        .iter()
        .flat_map(|request| {
            [
                row(29, "tA", request, &closed),
                row(29, "sA", request, &closed),
                row(30, "pA", request, &closed),
            ]
        })
        .collect();
    refuse(&scene, &rows);
}

/// gRPC asks the same chain: what it refuses says as little.
#[test]
fn grpc_is_no_side_door() {
    let scene = Scene::new();
    let server = &scene.server;
    let before = scene.settle();
    let refused = |token: &str, code: tonic::Code| {
        for workspace in [&scene.theirs.path, &scene.theirs.cluster] {
            let asked = runtime().block_on(async {
                let mut client =
                    WorkspaceServiceClient::with_origin(grpc::channel(server, &Who::Anonymous), grpc::origin(server));
                let get = GetRequest {
                    workspace: workspace.clone(),
                };
                let got = client.get(grpc::as_user(token, get)).await.map(drop);
                let list = ListRequest {
                    parent: workspace.clone(),
                    ..ListRequest::default()
                };
                [got, client.list(grpc::as_user(token, list)).await.map(drop)]
            });
            for status in asked.map(|answer| answer.unwrap_err()) {
                assert_eq!(status.code(), code, "{status:?}");
                let unnamed = if *workspace == scene.theirs.path {
                    &scene.theirs.cluster
                } else {
                    &scene.theirs.path
                };
                for foreign in [SECRET, OWNER, unnamed.as_str()] {
                    assert!(!format!("{status:?}").contains(foreign), "{status:?}");
                }
            }
        }
    };
    for token in ["alice-token", &scene.account, &scene.ada] {
        refused(token, tonic::Code::PermissionDenied);
    }
    let expired = scene.issuer.token(&json!({"exp": 1_000_000_000}));
    for token in ["nothing", &scene.gone, &expired] {
        refused(token, tonic::Code::Unauthenticated);
    }
    assert_eq!(scene.settle(), before);
}

/// What row 14 limits: an owner acts as others in the owner's workspace, by roles there, and as nobody of the system.
#[test]
fn an_owner_borrows_identities_of_the_workspace() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let alice = server.client(Who::Token("alice-token".to_owned())).at(&place.path);
    let seen = |headers: &[(&str, &str)]| -> Answer {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
        alice
            .try_send(
                "POST",
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                headers,
                review.into(),
            )
            .unwrap()
    };
    let robot = seen(&[("Impersonate-User", "system:serviceaccount:default:robot")]).expect(201);
    let user = &robot["status"]["userInfo"];
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ];
    assert_eq!(user["groups"], json!(groups));
    assert_eq!(
        user["extra"]["authentication.kcp.io/scopes"],
        json!([format!("cluster:{}", place.cluster)])
    );
    assert_eq!(
        seen(&[("Impersonate-User", "guest")]).code,
        403,
        "a guest may not enter"
    );
    let (elsewhere, _) = workspace(&server.admin(), "elsewhere");
    let there = server.client(Who::Token("alice-token".to_owned())).at(&elsewhere);
    assert_eq!(there.get_with(MAPS, &[("Impersonate-User", "guest")]).code, 403);
}
