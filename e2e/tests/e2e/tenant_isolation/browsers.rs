//! Row 72: requests that another site's page makes a browser send, and answers that a browser could
//! misinterpret. Outside of the console the server has no cookies and no pages: a client sends a
//! credential explicitly or not at all. The sessions of the console are in `console.rs`.

use bytes::Bytes;

use super::*;

const EVIL: &str = "https://evil.example.com";

#[test]
fn cross_site_requests_are_refused() {
    let scene = Scene::new();
    let (map, list) = (
        format!("POST /clusters/{{mine}}{MAPS}"),
        format!("GET /clusters/{{mine}}{MAPS}"),
    );
    let ambient = [
        ("origin", EVIL),
        ("referer", EVIL),
        (
            "cookie",
            "token=alice-token; Authorization=Bearer alice-token; session=alice-token",
        ),
    ];
    // Content types that a form or a script sends without a preflight.
    let rows: Vec<Row<'_>> = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json",
    ]
    .into_iter()
    .flat_map(|kind| {
        [&map, &list].map(|request| {
            with(
                row(72, "anon", request, &[403]),
                &[&ambient[..], &[("content-type", kind)]].concat(),
            )
        })
    })
    .collect();
    refuse(&scene, &rows);
    // A token in the URL is not a credential, and no answer allows a page of another origin to read
    // it.
    let [alice, _] = scene.clients_of("tA");
    let [anybody, _] = scene.clients_of("anon");
    let maps = format!("/clusters/{}{MAPS}", scene.mine.path);
    for query in ["access_token=alice-token", "token=alice-token", "bearer=alice-token"] {
        assert_eq!(anybody.get(&format!("{maps}?{query}")).code, 403);
    }
    let before = scene.settle();
    for client in [&alice, &anybody] {
        for (method, path) in [
            ("OPTIONS", maps.as_str()),
            ("GET", &maps),
            ("OPTIONS", "/"),
            ("GET", "/"),
            ("GET", "/nothing"),
            ("GET", "/readyz"),
        ] {
            let headers = [
                ("origin", EVIL),
                ("access-control-request-method", "POST"),
                ("access-control-request-headers", "authorization"),
            ];
            let answer = client.try_send(method, path, &headers, Bytes::new()).unwrap();
            is_no_page(&format!("{method} {path}"), &answer);
        }
    }
    assert_eq!(scene.settle(), before);
}

/// Checks that an answer contains nothing for a browser to render, follow or cache.
fn is_no_page(what: &str, answer: &Answer) {
    for name in answer.headers.keys() {
        let name = name.as_str();
        assert!(
            !name.starts_with("access-control-") && !matches!(name, "set-cookie" | "location" | "refresh"),
            "{what}: {name}"
        );
    }
    let kind = answer
        .headers
        .get("content-type")
        .map(|kind| kind.to_str().unwrap())
        .unwrap_or_default();
    let is_text = kind.starts_with("text/plain");
    assert!(
        answer.bytes.is_empty() || is_text || kind.starts_with("application/"),
        "{what}: {kind}"
    );
    if is_text && answer.code >= 400 {
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{what}");
    }
}

/// Markup in names, values and expressions comes back as data.
#[test]
fn markup_is_never_served_as_html() {
    const MARKUP: &str = "<script>alert(1)</script>";
    let scene = Scene::new();
    let [alice, _] = scene.clients_of("tA");
    let alice = alice.in_workspace(&scene.mine.path);
    let map = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {"a": MARKUP}}, "data": {"a": MARKUP}})
    };
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": format!("self == '{MARKUP}'")}]});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "as.markup.example.io"},
        "spec": {"group": "markup.example.io", "scope": "Namespaced", "names": {"plural": "as", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let asked = [
        (alice.post(MAPS, &map(MARKUP)), 422),
        (alice.post(MAPS, &map("markup")), 201),
        (alice.get(&format!("{MAPS}/markup")), 200),
        (alice.get(&format!("{MAPS}/%3Cscript%3E")), 404),
        (alice.get(&format!("{MAPS}?labelSelector=%3Cscript%3E")), 400),
        (alice.get("/apis/%3Cscript%3E/v1/as"), 404),
        (alice.get("/%3Cscript%3E"), 404),
        (
            alice.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition),
            422,
        ),
    ];
    for (at, (answer, code)) in asked.iter().enumerate() {
        assert_eq!(answer.code, *code, "{at}: {}", answer.text);
        is_no_page(&at.to_string(), answer);
    }
    // A path leads to no redirect either.
    for path in [
        "//evil.example.com/a",
        "/%2F%2Fevil.example.com",
        "/clusters/root//evil.example.com",
        "/readyz//evil.example.com",
        "/.%2e/evil",
    ] {
        let answer = scene.clients_of("anon")[1].get(path);
        assert!((400..500).contains(&answer.code), "{path}: {}", answer.code);
        is_no_page(path, &answer);
    }
}
