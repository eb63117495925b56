//! Refused requests, row by row of the table of negative tests, by every route: workspaces by path
//! and by the name of their cluster, over HTTP/1.1 and HTTP/2; as watches, WebSockets among them;
//! through the virtual workspaces of exports, initializers, terminators and schemas of any owner;
//! over gRPC. A refused request changes nothing in the store. Its answer names no workspace, owner
//! or value that the request did not name itself, and the audit log has it with the reason.
//!
//! This file has the attacks from outside. `tenants` has those by a tenant in its own workspace,
//! `framing` malformed requests, `impersonation` headers that name users, `admin` gRPC and other
//! ports, `browsers` browsers, and `mounts` mounts. Rows 9 and 10 (certificates) are in `access.rs`
//! and `crates/auth/tests`; rows that need a setup of their own (36, 46, 48–50, 52–63, 65, 66) are
//! in the scripts with that setup.
//! Anonymous requests get 403 where the table says 401, as in kcp.

mod admin;
mod browsers;
mod escalation;
mod forged;
mod framing;
mod impersonation;
mod mounts;
mod names;
mod revisions;
mod routes;
mod row;
mod scene;
mod tenants;
mod thirdparty;

use insula_e2e::{Answer, Server, Signer, Who, shared, until, workspace};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use row::{Row, refuse, row, with};
use scene::{MAPS, Scene, owned_by, token};
use serde_json::{Value, json};

const AUTHORIZATION: &str = "authorization";

#[test]
fn missing_or_malformed_credentials_are_refused() {
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
fn invalid_tokens_are_refused() {
    let scene = Scene::new();
    let issuer = &scene.issuer;
    let list = format!("GET /clusters/{{mine}}{MAPS}");
    // A publicly readable value is no secret: neither the issuer's key, nor its claims without a
    // signature.
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
    // A valid token is accepted: the rows are about the tokens alone.
    assert_eq!(
        scene
            .server
            .client(scene.who("ada"))
            .in_workspace(&scene.mine.path)
            .get(MAPS)
            .code,
        403
    );
}

/// Returns the issuer that a token names.
fn named_by(token: &str) -> String {
    let claims: Value = jsonwebtoken::dangerous::insecure_decode_claims(token).unwrap();
    claims["iss"].as_str().unwrap().to_owned()
}

/// Headers of proxies that name a user, a group, an address or a route.
const IDENTITIES: [&[(&str, &str)]; 6] = [
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

/// Headers that impersonate a user whose rights the caller does not have.
const IMPERSONATIONS: [&[(&str, &str)]; 9] = [
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

#[test]
fn headers_do_not_change_the_identity() {
    let scene = Scene::new();
    let (theirs, mine) = (
        format!("GET /clusters/{{theirs}}{MAPS}/map"),
        format!("GET /clusters/{{mine}}{MAPS}"),
    );
    let root = "GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces";
    let mut rows = Vec::new();
    for headers in IDENTITIES {
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
    for headers in IMPERSONATIONS {
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
    // Alice may impersonate others in her workspace; the impersonated identity is valid there.
    rows.push(with(
        row(14, "tA", &theirs, &[403]),
        &[("Impersonate-User", "the-owner")],
    ));
    rows.push(with(row(14, "tA", &theirs, &[403]), &[("Impersonate-User", "alice")]));
    refuse(&scene, &rows);
}

#[test]
fn paths_do_not_reach_another_tenant() {
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

/// Impersonation (row 14): an owner impersonates others in the owner's workspace, by its roles, and
/// never a system identity.
#[test]
fn an_owner_impersonates_in_its_workspace_only() {
    let server = shared();
    let place = owned_by(&server, "alice");
    let alice = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&place.path);
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
    let there = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&elsewhere);
    assert_eq!(there.get_with(MAPS, &[("Impersonate-User", "guest")]).code, 403);
}
