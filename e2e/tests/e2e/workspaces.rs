//! The life of workspaces, from outside. A deleted tree goes at once and leaves nothing, and
//! watches of a closed workspace end with an error.

use std::time::{Duration, Instant};

use insula_e2e::{Client, Server, Setup, Who, mirror, ready_workspace, shared, stored_keys, until, workspace};
use serde_json::{Value, json};

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLUSTER: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster";

/// Children of each workspace of the tree, level by level: 1 + 6 + 54 workspaces.
const CHILDREN: [usize; 2] = [6, 9];
const WORKSPACES_COUNT: usize = 1 + 6 + 54;

fn map(name: &str, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": finalizers},
        "data": {"a": "b"}})
}

/// Returns a definition, so that each workspace has routes and objects that its deletion must
/// remove.
fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "leaves.tree.example.com"},
        "spec": {"group": "tree.example.com", "scope": "Cluster", "names": {"plural": "leaves", "kind": "Leaf"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

fn grow(admin: &Client, path: &str, children: &[usize]) {
    let here = admin.in_workspace(path);
    here.post(MAPS, &map("one", &[])).expect(201);
    let Some((count, below)) = children.split_first() else {
        return;
    };
    for n in 0..*count {
        let child = json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
            "metadata": {"name": format!("child-{n}")}});
        here.post(WORKSPACES, &child).expect(201);
    }
    until("they are ready", || {
        let list = here.get(WORKSPACES).expect(200);
        let ready = |workspace: &Value| workspace["status"]["phase"] == "Ready";
        list["items"].as_array()?.iter().all(ready).then_some(())
    });
    for n in 0..*count {
        grow(admin, &format!("{path}:child-{n}"), below);
    }
}

/// Returns the seconds of CPU that a process used.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| {
        fields
            .get(n)
            .and_then(|ticks| ticks.parse::<f64>().ok())
            .unwrap_or_default()
    };
    (ticks(11) + ticks(12)) / 100.0
}

#[test]
fn deleting_a_workspace_tree_leaves_no_keys() {
    let mut server = Server::start();
    let data = server.data_dir();
    let admin = server.admin();
    ready_workspace(&admin, "root", "tree", json!({}));
    grow(&admin, "root:tree", &CHILDREN);
    let deepest = admin.in_workspace("root:tree:child-0:child-0");
    deepest
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition())
        .expect(201);
    let leaves = "/apis/tree.example.com/v1/leaves";
    until("leaves are served", || (deepest.get(leaves).code == 200).then_some(()));
    let leaf = json!({"apiVersion": "tree.example.com/v1", "kind": "Leaf",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    deepest.post(leaves, &leaf).expect(201);

    let (begun, cpu) = (Instant::now(), cpu_seconds(server.pid()));
    admin
        .in_workspace("root")
        .delete(&format!("{WORKSPACES}/tree"))
        .expect(200);
    until("all but what is held is gone", || {
        let tree = admin.in_workspace("root:tree");
        let rest = tree.get(WORKSPACES).expect(200);
        let condition = deepest.get(CLUSTER).body["status"]["conditions"].to_string();
        let only_one = rest["items"].as_array().is_some_and(|items| items.len() == 1);
        (only_one && condition.contains("example.com/hold in 1 resource instances")).then_some(())
    });
    let (time, cpu) = (begun.elapsed(), cpu_seconds(server.pid()) - cpu);
    eprintln!(
        "{WORKSPACES_COUNT} workspaces went in {time:?}: {:?} and {:.1} ms of CPU each",
        time / WORKSPACES_COUNT as u32,
        cpu * 1000.0 / WORKSPACES_COUNT as f64
    );
    let phase = |path: &str, name: &str| {
        admin.in_workspace(path).get(&format!("{WORKSPACES}/{name}")).body["status"]["phase"].clone()
    };
    assert_eq!(phase("root", "tree"), "Deleting");
    assert_eq!(
        deepest.post(MAPS, &map("late", &[])).code,
        403,
        "nothing new in what goes"
    );

    let release = json!({"metadata": {"finalizers": null}});
    deepest.merge(&format!("{leaves}/held"), &release).expect(200);
    until("the tree is gone", || {
        (admin.in_workspace("root").get(&format!("{WORKSPACES}/tree")).code == 404).then_some(())
    });
    server.kill9();
    let left = stored_keys(&data);
    let tree: Vec<&String> = left
        .iter()
        .filter(|key| !key.contains(" root ") && !key.contains(" system:"))
        .collect();
    assert!(tree.is_empty(), "{tree:#?}");
    assert!(!left.iter().any(|key| key.contains("tree")), "{left:#?}");
}

/// A Workspace stays while a finalizer holds its LogicalCluster, however the deletion began.
#[test]
fn a_held_logical_cluster_keeps_its_workspace() {
    let server = shared();
    let admin = server.admin();
    for through in ["Workspace", "LogicalCluster"] {
        let (org, _) = workspace(&admin, "held");
        ready_workspace(&admin, &org, "child", json!({}));
        let inner = format!("{org}:child");
        let (parent, child) = (admin.in_workspace(&org), admin.in_workspace(&inner));
        let mut logical = child.get(CLUSTER).expect(200);
        logical["metadata"]["finalizers"] = json!(["example.com/hold"]);
        child.put(CLUSTER, &logical).expect(200);
        let deletion = match through {
            "Workspace" => parent.delete(&format!("{WORKSPACES}/child")),
            _ => {
                let directly = json!({"spec": {"directlyDeletable": true}});
                server
                    .client(Who::ShardAdmin)
                    .in_workspace(&inner)
                    .merge(CLUSTER, &directly)
                    .expect(200);
                child.delete(CLUSTER)
            }
        };
        deletion.expect(200);
        until("only the finalizer is left", || {
            let metadata = &child.get(CLUSTER).expect(200)["metadata"];
            (metadata["finalizers"] == json!(["example.com/hold"])).then_some(())
        });
        let kept = parent.get(&format!("{WORKSPACES}/child")).expect(200);
        assert!(kept["metadata"]["deletionTimestamp"].is_string(), "{through}: {kept}");
        assert_eq!(kept["metadata"]["finalizers"], json!(["core.kcp.io/logicalcluster"]));
        child
            .merge(CLUSTER, &json!({"metadata": {"finalizers": null}}))
            .expect(200);
        until("both are gone", || {
            (parent.get(&format!("{WORKSPACES}/child")).code == 404).then_some(())
        });
    }
}

#[test]
fn an_inactive_workspace_ends_its_watches() {
    let server = shared();
    let admin = server.admin();
    let (path, _) = workspace(&admin, "off");
    let here = admin.in_workspace(&path);
    let off = |value: Value| json!({"metadata": {"annotations": {"core.kcp.io/inactive": value}}});
    let switcher = here.clone();
    let began = Instant::now();
    let mut seen = 0;
    let ended = here.watch_for(
        Duration::from_secs(20),
        &format!("{MAPS}?watch=true&timeoutSeconds=60"),
        &mut |_| {
            if seen == 0 {
                let switcher = switcher.clone();
                std::thread::spawn(move || switcher.merge(CLUSTER, &off(json!("true"))).expect(200));
            }
            seen += 1;
            None::<()>
        },
    );
    assert!(
        ended.is_none() && seen > 0 && began.elapsed() < Duration::from_secs(15),
        "the watch ends by itself"
    );
    assert_eq!(here.get(MAPS).code, 403);
    here.merge(CLUSTER, &off(Value::Null)).expect(200);
    until("it is on again", || (here.get(MAPS).code == 200).then_some(()));
    // An owner cannot undo changes of the platform's administrators.
    let (owned, _) = insula_e2e::workspace_owned_by(&server, "alice");
    admin
        .in_workspace(&owned)
        .merge(CLUSTER, &off(json!("true")))
        .expect(200);
    let alice = server.client(Who::Token("alice-token".to_owned())).in_workspace(&owned);
    alice.merge(CLUSTER, &off(Value::Null)).expect(200);
    assert_eq!(alice.merge(CLUSTER, &off(json!("false"))).code, 403);
    assert_eq!(alice.get(MAPS).code, 403);
}

pub(crate) const REMOTES: &str = "/apis/mounts.example.com/v1/remotes";

pub(crate) fn remotes() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "remotes.mounts.example.com"},
        "spec": {"group": "mounts.example.com", "scope": "Cluster", "names": {"plural": "remotes", "kind": "Remote"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

pub(crate) fn remote(name: &str, url: &str, phase: &str) -> Value {
    json!({"apiVersion": "mounts.example.com/v1", "kind": "Remote", "status": {"URL": url, "phase": phase},
        "metadata": {"name": name}})
}

pub(crate) fn mount(name: &str) -> Value {
    let reference = json!({"apiVersion": "mounts.example.com/v1", "kind": "Remote", "name": name});
    json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"mount": {"ref": reference}}})
}

/// Sends requests through a mount and checks their copies: the target learns the user, and neither
/// credentials nor other headers.
fn assert_forwarded(far: &Client) {
    let spoof = [
        ("x-remote-user", "somebody"),
        ("x-remote-group", "system:masters"),
        ("cookie", "a=b"),
        ("x-anything", "else"),
    ];
    let answer = far.get_with("/api/v1/pods?limit=1", &spoof);
    assert_eq!(answer.code, 207);
    assert!(!answer.headers.contains_key("set-cookie") && !answer.headers.contains_key("location"));
    assert_eq!(answer.headers["content-security-policy"], "sandbox");
    assert_eq!(answer.body["path"], "/base/api/v1/pods?limit=1");
    let headers = &answer.body["headers"];
    assert_eq!(headers["x-remote-user"], json!(["alice"]));
    assert!(headers["x-remote-group"].to_string().contains("system:authenticated"));
    assert!(!headers["x-remote-group"].to_string().contains("masters"));
    for gone in ["authorization", "cookie", "x-anything"] {
        assert!(headers.get(gone).is_none(), "{gone}: {headers}");
    }
    let sent = far.post("/api/v1/pods", &json!({"a": 1})).body;
    assert_eq!((&sent["method"], &sent["body"]), (&json!("POST"), &json!("{\"a\":1}")));
    // A name may be a path to another server.
    for name in ["..;a", "..%3Ba", "a%5C..%5Cb"] {
        let refused = far.get(&format!("/api/v1/pods/{name}"));
        assert_eq!(refused.code, 400, "{name}: {}", refused.text);
        assert!(refused.text.contains("is not passed on"), "{name}: {}", refused.text);
    }
}

#[test]
fn a_mount_forwards_the_user_and_no_credential() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_WORKSPACES_MOUNTS".to_owned(), "127.0.0.1/32".to_owned())],
        ..Setup::default()
    });
    let url = mirror(&server);
    let (path, _) = insula_e2e::workspace_owned_by(&server, "alice");
    let alice = server.client(Who::Token("alice-token".to_owned()));
    let here = alice.in_workspace(&path);
    here.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &remotes())
        .expect(201);
    until("remotes are served", || (here.get(REMOTES).code == 200).then_some(()));
    here.post(WORKSPACES, &mount("far")).expect(201);
    let condition = |name: &str| {
        let found = here.get(&format!("{WORKSPACES}/{name}")).expect(200);
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions
            .into_iter()
            .find(|condition| condition["type"] == "WorkspaceMountReady");
        (found["status"]["phase"].clone(), ready.unwrap_or_default())
    };
    let wait = |name: &str, phase: &str, reason: &str| {
        until(&format!("{name} is {phase} {reason}"), || {
            let (now, why) = condition(name);
            (now == phase && why["reason"].as_str().unwrap_or_default() == reason).then_some(why)
        })
    };
    let why = wait("far", "Unavailable", "MountObjectNotFound");
    assert_eq!(why["message"], "Remote \"/far\" not found");
    assert_eq!(alice.in_workspace(&format!("{path}:far")).get("/api").code, 503);

    here.post(REMOTES, &remote("far", &format!("{url}/base/"), "Connecting"))
        .expect(201);
    wait("far", "Unavailable", "MountObjectNotReady");
    here.merge(&format!("{REMOTES}/far"), &json!({"status": {"phase": "Ready"}}))
        .expect(200);
    wait("far", "Ready", "");

    let far = alice.in_workspace(&format!("{path}:far"));
    assert_forwarded(&far);
    // Neither an anonymous request nor an impersonated user gets through.
    let anonymous = server.client(Who::Anonymous).in_workspace(&format!("{path}:far"));
    assert_eq!(anonymous.get("/api").code, 403);
    let admin = server.admin().in_workspace(&format!("{path}:far"));
    assert_eq!(admin.get_with("/api", &[("impersonate-user", "alice")]).code, 403);
    assert_eq!(alice.in_workspace(&format!("{path}:far:below")).get("/api").code, 503);

    // Mounts lead only to servers that the operator allows.
    for (name, target) in [("inner", "https://169.254.169.254"), ("plain", "http://127.0.0.1")] {
        here.post(REMOTES, &remote(name, target, "Ready")).expect(201);
        here.post(WORKSPACES, &mount(name)).expect(201);
        until("it was looked at", || (condition(name).0 != "Scheduling").then_some(()));
        let refused = alice.in_workspace(&format!("{path}:{name}")).get("/latest/meta-data");
        assert_eq!(refused.code, 503, "{}", refused.text);
    }
    here.delete(&format!("{REMOTES}/far")).expect(200);
    wait("far", "Unavailable", "MountObjectNotFound");
    here.delete(&format!("{WORKSPACES}/far")).expect(200);
    until("it is gone", || {
        (here.get(&format!("{WORKSPACES}/far")).code == 404).then_some(())
    });
}

/// A workspace of this server, or of one with the same authority, can be mounted: the other server
/// knows the user by name. That user has no more rights there than by the direct way.
#[test]
fn a_workspace_of_the_same_authority_is_mounted() {
    let server = Server::with(Setup {
        environment: vec![("INSULA_WORKSPACES_MOUNTS".to_owned(), "127.0.0.1/32".to_owned())],
        ..Setup::default()
    });
    let (path, _) = insula_e2e::workspace_owned_by(&server, "alice");
    let (own, _) = insula_e2e::workspace_owned_by(&server, "alice");
    let (foreign, _) = insula_e2e::workspace_owned_by(&server, "bob");
    let alice = server.client(Who::Token("alice-token".to_owned()));
    let here = alice.in_workspace(&path);
    here.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &remotes())
        .expect(201);
    until("remotes are served", || (here.get(REMOTES).code == 200).then_some(()));
    for (name, target) in [
        ("own", own.clone()),
        ("foreign", foreign),
        ("circle", format!("{path}:circle")),
    ] {
        let url = format!("{}/clusters/{target}", server.url());
        here.post(REMOTES, &remote(name, &url, "Ready")).expect(201);
        here.post(WORKSPACES, &mount(name)).expect(201);
        until("the mount is ready", || {
            let found = here.get(&format!("{WORKSPACES}/{name}")).expect(200);
            (found["status"]["phase"] == "Ready").then_some(())
        });
    }
    let through = |name: &str| alice.in_workspace(&format!("{path}:{name}"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sent"}});
    through("own").post(MAPS, &map).expect(201);
    alice.in_workspace(&own).get(&format!("{MAPS}/sent")).expect(200);
    assert_eq!(through("foreign").get(MAPS).code, 403);
    assert_eq!(through("circle").get(MAPS).code, 403, "no way through a second mount");
    let masters = server.admin().in_workspace(&format!("{path}:own"));
    assert_eq!(
        masters.get_with(MAPS, &[("x-remote-user", "bob")]).code,
        200,
        "a client's headers are ignored"
    );
    let bob = server.client(Who::Token("bob-token".to_owned())).in_workspace(&own);
    assert_eq!(bob.get_with(MAPS, &[("x-remote-user", "alice")]).code, 403);
}
