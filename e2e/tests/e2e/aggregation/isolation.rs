//! Extension servers and tenants: names of users, rights, limits, and other workspaces.

use std::{thread, time::Duration};

use bytes::Bytes;
use insula_e2e::{Client, Extension, Who, until, workspace, workspace_owned_by};
use serde_json::{Value, json};

use super::{BOATS, SERVICES, boat, register, server, wait_for};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Lets bob read boats.
fn let_bob_look(client: &Client) {
    let api_version = "rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": "look"},
        "rules": [{"apiGroups": ["fleet.example.com"], "resources": ["boats"], "verbs": ["get", "list", "watch"]},
            {"nonResourceURLs": ["/"], "verbs": ["access"]}]});
    client.post(&format!("{RBAC}/clusterroles"), &role).expect(201);
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": "look"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "look"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "bob"}]});
    client
        .post(&format!("{RBAC}/clusterrolebindings"), &binding)
        .expect(201);
}

#[test]
fn the_caller_is_named_by_this_server_alone() {
    let server = server();
    let (path, cluster) = workspace_owned_by(&server, "alice");
    let admin = server.client(Who::ShardAdmin).in_workspace(&path);
    let alice = server.client(Who::Token("alice-token".into())).in_workspace(&path);
    let extension = Extension::start(&server);
    register(&alice, &extension.api_service(None));
    let boat = format!("{BOATS}/none");
    let hostile = [
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-insula.io%2fcluster", "root"),
        ("x_remote_user", "root"),
        ("x-forwarded-for", "10.0.0.1"),
        ("cookie", "a=b"),
        ("connection", "x-mine"),
        ("x-mine", "1"),
    ];
    let seen = |name: &str| extension.header(&boat, name);
    for client in [alice.clone(), alice.over_http1()] {
        // HTTP/2 has no connection headers.
        let headers = match client.get_with(&boat, &hostile[..6]).code {
            404 => &hostile[..6],
            code => panic!("{code}"),
        };
        assert_eq!(seen("x-remote-user"), ["alice"], "{headers:?}");
        assert_eq!(seen("x-remote-group"), ["system:authenticated"]);
        assert_eq!(seen("x-remote-extra-insula.io%2fcluster"), [cluster.as_str()]);
        for gone in ["authorization", "cookie", "x_remote_user", "x-forwarded-for"] {
            assert_eq!(seen(gone), [""; 0], "{gone}");
        }
    }
    alice.over_http1().get_with(&boat, &hostile[6..]).expect(404);
    assert_eq!(seen("x-mine"), [""; 0]);
    // The server's answer sets nothing for this origin.
    let answer = alice.get(&format!("{BOATS}/cookie"));
    assert_eq!(answer.code, 200);
    assert!(!answer.headers.contains_key("set-cookie") && !answer.headers.contains_key("x-remote-user"));
    // Impersonation takes its right, and names the other user.
    let bob = server.client(Who::Token("bob-token".into())).in_workspace(&path);
    assert_eq!(bob.get(&boat).code, 403);
    admin.get_with(&boat, &[("impersonate-user", "alice")]).expect(404);
    assert_eq!(seen("x-remote-user"), ["alice"]);
    assert_eq!(seen("impersonate-user"), [""; 0]);
}

#[test]
fn rights_of_the_workspace_and_its_freeze_hold_for_proxied_requests() {
    let server = server();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "fleet");
    let client = admin.in_workspace(&path);
    let extension = Extension::start(&server);
    register(&client, &extension.api_service(None));
    let_bob_look(&client);
    let bob = server.client(Who::Token("bob-token".into())).in_workspace(&path);
    bob.get(BOATS).expect(200);
    let told = bob.post(BOATS, &boat("mine")).expect(403);
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("cannot create resource \"boats\""),
        "{told}"
    );
    client.post(BOATS, &boat("one")).expect(201);
    // A watch streams events, and ends when its right is gone.
    let watching = thread::spawn({
        let bob = bob.clone();
        move || {
            let mut names = Vec::new();
            let over = bob.watch(&format!("{BOATS}?watch=true"), |event| {
                names.push(
                    event["object"]["metadata"]["name"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned(),
                );
                None::<()>
            });
            (names, over)
        }
    });
    until("the watch has begun", || {
        (!extension.header(BOATS, "x-remote-user").is_empty()).then_some(())
    });
    thread::sleep(Duration::from_millis(300));
    client.post(BOATS, &boat("two")).expect(201);
    client.delete(&format!("{RBAC}/clusterrolebindings/look")).expect(200);
    let (names, _) = watching.join().unwrap();
    assert_eq!(names, ["one", "two"]);
    // Frozen workspaces read on.
    let own = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";
    let freeze = |reason: Value| {
        let annotations = json!({"metadata": {"annotations": {"insula.io/frozen": reason}}});
        client.merge(own, &annotations).expect(200);
    };
    freeze(json!("moving house"));
    let told = client.post(BOATS, &boat("three")).expect(403);
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("is frozen and read-only: moving house"),
        "{told}"
    );
    client.get(BOATS).expect(200);
    freeze(Value::Null);
    client.post(BOATS, &boat("three")).expect(201);
}

#[test]
fn a_hostile_extension_server_hurts_its_own_workspace_alone() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "fleet").0);
    let other = admin.in_workspace(&workspace(&admin, "fleet").0);
    let extension = Extension::start(&server);
    for client in [&client, &other] {
        register(client, &extension.api_service(None));
    }
    let redirected = client.get(&format!("{BOATS}/elsewhere"));
    assert_eq!(
        (redirected.code, &*redirected.text),
        (
            502,
            "the backend attempted to redirect this request, which is not permitted"
        )
    );
    assert!(!redirected.headers.contains_key("location"));
    // Three requests wait for ever; the fourth is refused, and others do not notice.
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || {
                client.watch_for(Duration::from_secs(8), &format!("{BOATS}/hangs"), &mut |_| Some(()))
            })
        })
        .collect();
    until("three requests wait", || (extension.hanging() == 3).then_some(()));
    let refused = client.get(BOATS);
    assert_eq!(refused.code, 429, "{}", refused.text);
    assert!(
        refused.text.contains("3 requests open at extension servers"),
        "{}",
        refused.text
    );
    assert!(
        refused.text.contains("webhooks.proxiedRequestsPerWorkspace"),
        "{}",
        refused.text
    );
    other.get(BOATS).expect(200);
    client.get("/api/v1/namespaces/default/configmaps").expect(200);
    for waits in waiting {
        assert_eq!(waits.join().unwrap(), None);
    }
    until("permits come back when their clients leave", || {
        (client.get(BOATS).code == 200).then_some(())
    });
}

#[test]
fn an_extension_server_gets_no_requests_from_other_workspaces() {
    let server = server();
    let admin = server.admin();
    let (path, cluster) = workspace(&admin, "fleet");
    let owner = admin.in_workspace(&path);
    let extension = Extension::start(&server);
    extension.allow_only(&format!("front-proxy-client:{cluster}"));
    register(&owner, &extension.api_service(None));
    let thief = admin.in_workspace(&workspace(&admin, "thief").0);
    thief.post(SERVICES, &extension.api_service(None)).expect(201);
    let failed = wait_for(&thief, "False", "FailedDiscoveryCheck");
    assert!(failed["message"].as_str().unwrap().ends_with(": 401"), "{failed}");
    assert_eq!(thief.get(BOATS).code, 503);
    owner.get(BOATS).expect(200);
}

#[test]
fn extension_servers_of_a_workspace_have_a_limit() {
    let server = server();
    let admin = server.admin();
    let client = admin.in_workspace(&workspace(&admin, "fleet").0);
    let service = |i: usize| {
        let group = format!("g{i}.example.com");
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.{group}"), "annotations": {"insula.io/url": "https://127.0.0.2:1"}},
            "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
                "service": {"namespace": "default", "name": "api"}}})
    };
    for i in 0..32 {
        client.post(SERVICES, &service(i)).expect(201);
    }
    let told = client.post(SERVICES, &service(32)).expect(403);
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("the workspace has 32 APIServices"),
        "{told}"
    );
    let body = Bytes::from(json!({"kind": "DeleteOptions", "apiVersion": "v1"}).to_string());
    client.try_send("DELETE", SERVICES, &[], body).unwrap().expect(200);
}
