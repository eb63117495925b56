use super::*;

fn resource_path(path: &str) -> ObjectPath {
    match parse(&format!("/clusters/root:a{path}")) {
        Ok(Route::Cluster {
            rest: Rest::Resource(resource),
            ..
        }) => resource,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn resources() {
    let rows = [
        ("/api/v1/namespaces", (None, "namespaces", None, None)),
        ("/api/v1/namespaces/a", (None, "namespaces", Some("a"), None)),
        (
            "/api/v1/namespaces/a/status",
            (None, "namespaces", Some("a"), Some("status")),
        ),
        ("/api/v1/namespaces/a/configmaps", (Some("a"), "configmaps", None, None)),
        (
            "/api/v1/namespaces/a/configmaps/b",
            (Some("a"), "configmaps", Some("b"), None),
        ),
        ("/apis/g.io/v1/widgets", (None, "widgets", None, None)),
        (
            "/apis/g.io/v1/namespaces/a/widgets/b/status",
            (Some("a"), "widgets", Some("b"), Some("status")),
        ),
    ];
    for (path, (namespace, resource, name, subresource)) in rows {
        let got = resource_path(path);
        assert_eq!(
            (
                got.namespace.as_deref(),
                &*got.resource,
                got.name.as_deref(),
                got.subresource.as_deref()
            ),
            (namespace, resource, name, subresource),
            "{path}"
        );
    }
    assert!(resource_path("/apis/g.io/v1/watch/widgets").watch_prefix);
}

#[test]
fn ambiguous_paths_are_refused() {
    for path in [
        "/clusters/root:a/../root:b/api/v1/configmaps",
        "/clusters/root:a/%2e%2e/root:b/api/v1/configmaps",
        "/clusters/root:a%2Fx/api/v1",
        "/clusters/root:a/%252e/api",
        "/clusters/root:a//api/v1",
        "/clusters/root:a;x/api/v1",
        "/clusters/root:a%00/api/v1",
        "/clusters/root:/api/v1",
        "/clusters/ROOT:B/api/v1",
        "/clusters/root:b%20/api/v1",
        "/clusters/%c0%ae/api/v1",
        "/clusters",
    ] {
        assert!(parse(path).is_err(), "{path}");
    }
}

/// Kubernetes takes names of roles that are path segments, and these are.
#[test]
fn names_of_objects_may_have_every_character_of_a_segment() {
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (encoded, name) in [
        ("a;b", "a;b"),
        ("a%3Bb", "a;b"),
        ("a%5cb", "a\\b"),
        ("%C3%A9%20;%5C", "é ;\\"),
        ("..;a", "..;a"),
    ] {
        let path = format!("{roles}/{encoded}");
        assert_eq!(resource_path(&path).name.as_deref(), Some(name), "{path}");
    }
    for path in [
        format!("{roles}/..%2Fa"),
        format!("{roles}/.."),
        format!("{roles}/%2e%2e"),
        format!("{roles}/a%25b"),
        format!("{roles}/a%00"),
        format!("{roles}/a;b/status;c"),
        format!("{roles}/status;c/status;c"),
        format!("{roles};a"),
        format!("{roles};a/b"),
        "/api/v1/namespaces/a;b/configmaps/c".to_owned(),
        "/apis/rbac;a/v1/clusterroles/b".to_owned(),
        "/openapi/v3/apis;a".to_owned(),
        "/version;a".to_owned(),
    ] {
        assert!(parse(&format!("/clusters/root:a{path}")).is_err(), "{path}");
    }
    assert!(parse("/services/apiexport/a/wid;gets/clusters/*/api/v1/configmaps").is_err());
}

#[test]
fn other_paths() {
    assert_eq!(parse("/readyz"), Ok(Route::Server("/readyz".into())));
    assert_eq!(parse("/api/v1"), Ok(Route::NoCluster));
    for path in ["/api/v1/namespaces", "/clusters/*/api/v1/namespaces"] {
        let rest = Rest::Resource(ObjectPath {
            version: "v1".into(),
            resource: "namespaces".into(),
            ..ObjectPath::default()
        });
        assert_eq!(parse(path), Ok(Route::Cluster { path: None, rest }), "{path}");
    }
    // One request has one cluster: a second `/clusters/` segment is not parsed.
    assert!(matches!(
        parse("/clusters/root:a/clusters/root:b/api/v1/configmaps"),
        Ok(Route::Cluster {
            rest: Rest::Other(_),
            ..
        })
    ));
    assert!(matches!(
        parse("/clusters/*/api/v1"),
        Ok(Route::Cluster { path: None, .. })
    ));
    assert!(matches!(parse("/services/x/a/b/clusters/*/api"), Ok(Route::Service(_))));
}

#[test]
fn virtual_workspaces() {
    let name = |name: &str| ClusterName::parse(name).expect("a name");
    let widgets = Virtual::ApiExport {
        cluster: name("a"),
        name: "widgets".into(),
    };
    let rows = [
        ("apiexport/a/widgets/clusters/*/api", widgets.clone(), None),
        ("apiexport/a/widgets/clusters/c/api", widgets, Some(name("c"))),
        (
            "initializingworkspaces/root:universal/clusters/*/api",
            Virtual::Initializing("root:universal".into()),
            None,
        ),
        (
            "initializingworkspaces/root:universal/api",
            Virtual::Initializing("root:universal".into()),
            None,
        ),
        (
            "terminatingworkspaces/root:t/clusters/c/api",
            Virtual::Terminating("root:t".into()),
            Some(name("c")),
        ),
        ("terminatingworkspaces/t/api", Virtual::Terminating("t".into()), None),
        (
            "apiresourceschema/c/clusters/root:x/api",
            Virtual::ApiResourceSchemas { cluster: name("c") },
            None,
        ),
        (
            "apiresourceschema/c/api",
            Virtual::ApiResourceSchemas { cluster: name("c") },
            None,
        ),
    ];
    for (path, workspace, cluster) in rows {
        let route = Route::Virtual {
            workspace,
            cluster,
            rest: Rest::CoreVersions,
        };
        assert_eq!(parse(&format!("/services/{path}")), Ok(route), "{path}");
    }
    for path in [
        "apiexport",
        "apiexport/a/b",
        "apiexport/a/b/clusters",
        "apiexport/a/b/api",
        "initializingworkspaces/root:t",
        "initializingworkspaces/root:t/clusters",
        "apiexport/a:b/x/clusters/*/api",
        "apiexport/a/x/clusters/root:b/api",
        "apiexport/a/x/clusters/B/api",
    ] {
        let route = parse(&format!("/services/{path}"));
        assert!(matches!(route, Ok(Route::Service(_))), "{path}: {route:?}");
    }
}
