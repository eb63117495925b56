use futures_util::FutureExt;

use super::*;

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000)
    }
}

fn console() -> Console {
    Console::new(b"secret", None, Arc::new(Fixed))
}

/// Returns a cookie of a session with a token.
fn cookie(console: &Console, token: &str) -> String {
    let now = console.clock.now();
    let cookie = console
        .key
        .begin(&SESSION, token, now, Timestamp(now.0 + LIFETIME_SECONDS));
    cookie.split(';').next().expect("a pair").to_owned()
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(uri).header("host", "a:1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).expect("a request")
}

/// Routes a request. Returns its head as the stages behind the console see it.
fn routed(request: &mut Request<Body>) -> String {
    let (console, mut arrival) = (console(), Arrival::default());
    let route = console.route(request, &mut arrival).now_or_never();
    match route.expect("nothing is called") {
        Route::Ordinary => {
            let headers = request.headers();
            let text = |name: &str| headers.get(name).map_or("-", |value| value.to_str().expect("text"));
            format!("{} {} {}", request.uri(), text("authorization"), text("cookie"))
        }
        Route::SignIn(sign_in) => format!("sign-in {} {}", request.uri(), sign_in.token),
        Route::Answered(response, _) => response.status().as_u16().to_string(),
    }
}

#[test]
fn the_api_of_a_session_is_the_ordinary_one() {
    let cookie = cookie(&console(), "t");
    let own = ("insula-console", "1");
    for (uri, want) in [
        ("/console/api/clusters/root/api", "/clusters/root/api Bearer t -"),
        (
            "/console/api/clusters/root/api?watch=1&a=%2F",
            "/clusters/root/api?watch=1&a=%2F Bearer t -",
        ),
        ("https://a:1/console/api/metrics", "https://a:1/metrics Bearer t -"),
        ("/console/api", "/ Bearer t -"),
        // What the path means is for the ordinary stages, which know no steps up.
        ("/console/api/../../clusters/root", "/../../clusters/root Bearer t -"),
        ("/console/api/%2e%2e/clusters", "/%2e%2e/clusters Bearer t -"),
        // Rewritten once: such a path is served by nobody.
        ("/console/api/console/api/version", "/console/api/version Bearer t -"),
        ("/console/api//clusters", "//clusters Bearer t -"),
    ] {
        let mut request = request("GET", uri, &[own, ("cookie", &format!("other=1; {cookie}"))]);
        assert_eq!(routed(&mut request), want, "{uri}");
        assert!(!request.headers().contains_key(OWN));
    }
    // A client certificate needs no session.
    assert_eq!(
        routed(&mut request("GET", "/console/api/version", &[own])),
        "/version - -"
    );
}

#[test]
fn other_paths_are_not_the_console_s() {
    for uri in [
        "/",
        "/consoles",
        "/console2/api/x",
        "/clusters/root/console",
        "/CONSOLE/api/x",
        "//console/api",
    ] {
        let headers = [("cookie", "a=b"), ("authorization", "Bearer mine")];
        let want = format!("{uri} Bearer mine a=b");
        assert_eq!(routed(&mut request("GET", uri, &headers)), want);
    }
}

#[test]
fn requests_that_a_page_of_another_origin_can_send_are_refused() {
    let cookie = cookie(&console(), "t");
    let base = [("cookie", cookie.as_str()), ("insula-console", "1")];
    let with = |more: &[(&'static str, &'static str)]| {
        let headers: Vec<(&str, &str)> = base.iter().copied().chain(more.iter().copied()).collect();
        routed(&mut request("POST", "/console/api/x", &headers))
    };
    assert_eq!(with(&[]), "/x Bearer t -");
    assert_eq!(
        with(&[("origin", "https://A:1"), ("sec-fetch-site", "same-origin")]),
        "/x Bearer t -"
    );
    for refused in [
        [("origin", "https://b:1")],
        [("origin", "http://a:1")],
        [("origin", "null")],
        [("origin", "https://a:1.evil")],
        [("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "same-site")],
        [("sec-fetch-site", "none")],
    ] {
        assert_eq!(with(&refused), "403", "{refused:?}");
    }
    let without = request("POST", "/console/api/x", &base[..1]);
    assert_eq!(routed(&mut { without }), "403");
    for path in ["/console/session", "/console/api"] {
        assert_eq!(routed(&mut request("DELETE", path, &[])), "403", "{path}");
    }
}

#[test]
fn nothing_beside_the_session_names_a_user() {
    let cookie = cookie(&console(), "t");
    for name in [
        "authorization",
        "impersonate-user",
        "impersonate-group",
        "impersonate-extra-scopes",
        "x-remote-user",
        "x-remote-extra-a",
    ] {
        let headers = [("insula-console", "1"), ("cookie", cookie.as_str()), (name, "Bearer x")];
        assert_eq!(routed(&mut request("GET", "/console/api/x", &headers)), "403", "{name}");
    }
    let headers = [
        ("insula-console", "1"),
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
    ];
    assert_eq!(routed(&mut request("GET", "/console/api/x", &headers)), "400");
}

#[test]
fn a_cookie_that_is_no_session_is_not_taken_for_none() {
    let session = cookie(&console(), "t");
    for (cookie, want) in [
        (session.as_str(), "/x Bearer t -"),
        ("__Host-insula-console=", "401"),
        ("__Host-insula-console=forged", "401"),
        (&session[..session.len() - 1], "401"),
        (&format!("{session}; {session}"), "401"),
        (&format!("__Host-insula-console={}", "A".repeat(60_000)), "401"),
    ] {
        let headers = [("insula-console", "1"), ("cookie", cookie)];
        assert_eq!(routed(&mut request("GET", "/console/api/x", &headers)), want);
    }
}

#[test]
fn a_sign_in_is_a_review_of_the_token() {
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let sign_in = |uri: &str, token: &str| {
        let headers = [("insula-console", "1"), ("authorization", token), ("cookie", "a=b")];
        routed(&mut request("POST", uri, &headers))
    };
    let bearer = "Bearer abc";
    assert_eq!(
        sign_in("/console/session", bearer),
        format!("sign-in /clusters/root{review} abc")
    );
    let at = |workspace: &str| sign_in(&format!("/console/session?workspace={workspace}"), bearer);
    assert_eq!(at("root:a:b"), format!("sign-in /clusters/root:a:b{review} abc"));
    for workspace in ["", "root:", "..%2f", "*", "a/b"] {
        assert_eq!(at(workspace), "400", "{workspace}");
    }
    for token in ["", "Bearer ", "Basic YTpi"] {
        assert_eq!(sign_in("/console/session", token), "401", "{token}");
    }
    assert_eq!(
        sign_in("/console/session", &format!("Bearer {}", "t".repeat(3_001))),
        "400"
    );
    for (method, path, want) in [
        ("GET", "/console/session", "200"),
        ("PUT", "/console/session", "405"),
        ("DELETE", "/console/session", "204"),
        ("GET", "/console/session/begin", "405"),
        ("POST", "/console/session/other", "404"),
        ("POST", "/console/session/begin", "404"),
    ] {
        let own = [("insula-console", "1")];
        assert_eq!(routed(&mut request(method, path, &own)), want, "{method} {path}");
        assert_eq!(routed(&mut request(method, path, &[])), "403", "{method} {path}");
    }
}

#[test]
fn only_an_accepted_token_begins_a_session() {
    let console = console();
    for code in [
        StatusCode::OK,
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::CREATED,
    ] {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = code;
        let sign_in = SignIn {
            token: "t".to_owned(),
            expires: Timestamp(i64::MAX),
            renewal: None,
        };
        console.signed_in(sign_in, &mut response);
        let begun = response.headers().contains_key("set-cookie");
        assert_eq!(begun, code == StatusCode::CREATED, "{code}");
    }
}

/// The answer of a provider is in the query of the page, which no log of the server has.
#[test]
fn queries_of_pages_and_sessions_go_no_further() {
    let own = [("insula-console", "1")];
    for (method, path) in [
        ("GET", "/console/login"),
        ("GET", "/console/workspaces/root:a"),
        ("POST", "/console/session/code"),
        ("PUT", "/console/session/code"),
    ] {
        let mut request = request(method, &format!("{path}?code=c&state=s"), &own);
        routed(&mut request);
        assert_eq!(request.uri().to_string(), path, "{method}");
    }
}
