//! Commands that change something: the state that they expect, and their repetition.

use insula_e2e::{Server, publish_widgets, shared, workspace};
use serde_json::{Value, json};

use super::Shell;

const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/boats";
const DEFINITION: &str = "boats.json";

/// A workspace of a provider with the export `boats`, which the workspace binds itself, and the
/// administrator's shell in it.
fn provider(server: &Server) -> (Shell, String) {
    let (provider, _) = workspace(&server.admin(), "provider");
    let shell = Shell::admin(server);
    shell.ok(&["ws", &format!(":{provider}")]);
    publish(&shell, "first", &[]);
    shell.ok(&["bind", "apiexport", &format!("{provider}:boats")]);
    (shell, provider)
}

/// Publishes boats in one version, whose schema has a description.
fn publish(shell: &Shell, description: &str, flags: &[&str]) -> super::Ran {
    publish_versions(shell, &["v1"], description, flags)
}

/// Publishes boats in these versions, of which the first is stored.
fn publish_versions(shell: &Shell, versions: &[&str], description: &str, flags: &[&str]) -> super::Ran {
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": *name == versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", "description": description}}})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.writes.example.io"},
        "spec": {"group": "writes.example.io", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": versions},
    });
    std::fs::write(shell.home.path().join(DEFINITION), definition.to_string()).unwrap();
    let publish = ["export", "publish", "-f", DEFINITION, "--name", "boats", "--apply"];
    shell.run(&[&publish[..], flags].concat())
}

fn shown(shell: &Shell) -> Value {
    serde_json::from_str(&shell.ok(&["export", "show", "boats", "-o", "json"])).unwrap()
}

/// A repeated return to the release before would go forth again; with an id, it is one.
#[test]
fn a_rollback_expects_a_state_and_is_done_once() {
    let server = shared();
    let (shell, _) = provider(&server);
    let first = shown(&shell)["rollout"]["release"].clone();
    assert_eq!(publish(&shell, "second", &["--wait"]).code, 0);
    let second = shown(&shell)["rollout"]["release"].clone();
    assert_ne!(first, second);
    let rollback = |flags: &[&str]| shell.run(&[&["export", "rollback", "boats"], flags].concat());
    for check in ["--check", "--dry-run"] {
        let planned = rollback(&[check]);
        assert!(planned.code == 0 && planned.out.contains("APIExport"), "{planned:?}");
    }
    let stale = rollback(&["--etag", "1"]);
    assert!(stale.code == 2 && stale.error.contains("etag"), "{stale:?}");
    assert_eq!(shown(&shell)["rollout"]["release"], second);
    let id = "6c1dbe4e-7f3e-4b44-9d5c-1d1b0d7a5f10";
    for _ in 0..2 {
        let done = rollback(&["--request-id", id, "--wait"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(shown(&shell)["rollout"]["release"], first);
    }
    assert_eq!(rollback(&["--wait"]).code, 0);
    assert_eq!(shown(&shell)["rollout"]["release"], second);
}

/// A check ends as the rollback would, also where a version goes that nobody uses.
#[test]
fn a_check_of_a_rollback_asks_for_what_the_rollback_asks_for() {
    let server = shared();
    let (shell, _) = provider(&server);
    assert_eq!(publish_versions(&shell, &["v1", "v2"], "first", &["--wait"]).code, 0);
    let rollback = |flags: &[&str]| shell.run(&[&["export", "rollback", "boats"], flags].concat());
    let version = "boats.writes.example.io/v2";
    for flags in [&["--check"][..], &["--dry-run"], &[]] {
        let refused = rollback(flags);
        assert!(refused.code == 1 && refused.error.contains(version), "{refused:?}");
    }
    for named in [version, "boats/v2"] {
        let checked = rollback(&["--check", "--remove", named]);
        assert_eq!(checked.code, 0, "{checked:?}");
    }
    let done = rollback(&["--remove", "boats/v2", "--wait"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_publication_expects_a_state() {
    let server = shared();
    let (shell, provider) = provider(&server);
    let at = server.admin().in_workspace(&provider);
    let stale = shown(&shell)["etag"].as_str().unwrap().to_owned();
    at.merge(
        EXPORT,
        &json!({"metadata": {"annotations": {"example.io/by": "another"}}}),
    )
    .expect(200);
    let offered = || at.get(EXPORT).expect(200)["spec"]["resources"].clone();
    let before = offered();
    let refused = publish(&shell, "second", &["--etag", &stale]);
    assert!(refused.code == 2 && refused.error.contains(&stale), "{refused:?}");
    assert_eq!(offered(), before);
    // The status may be written at any time, and is another etag.
    let done = (0..20).any(|_| {
        let etag = shown(&shell)["etag"].as_str().unwrap().to_owned();
        publish(&shell, "second", &["--etag", &etag]).code == 0
    });
    assert!(done);
    assert_ne!(offered(), before);
}

/// Writes over HTTP are checked as gRPC's are.
#[test]
fn a_dry_run_changes_nothing() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at = server.admin().in_workspace(&provider);
    publish_widgets(&at);
    let claims = json!([{"resource": "configmaps", "verbs": ["get"]}]);
    at.merge(
        "/apis/apis.kcp.io/v1alpha2/apiexports/widgets",
        &json!({"spec": {"permissionClaims": claims}}),
    )
    .expect(200);
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{provider}")]);
    let dry = |arguments: &[&str]| shell.ok(&[arguments, &["--dry-run"]].concat());
    let remark = "(server dry run)";

    assert!(dry(&["ws", "create", "acme"]).contains(remark));
    at.get("/apis/tenancy.kcp.io/v1alpha1/workspaces/acme").expect(404);
    let export = format!("{provider}:widgets");
    assert!(dry(&["bind", "apiexport", &export]).contains(remark));
    let binding = "/apis/apis.kcp.io/v1alpha2/apibindings/widgets";
    at.get(binding).expect(404);
    let missing = format!("{provider}:gears");
    shell.fails(&["bind", "apiexport", &missing, "--dry-run"]);

    shell.ok(&["bind", "apiexport", &export]);
    let accept = ["claims", "accept", "widgets", "--resource", "configmaps"];
    assert!(dry(&accept).contains(remark));
    let stale = shell.fails(&[&accept[..], &["--etag", "1"]].concat());
    assert!(stale.contains("its etag is "), "{stale}");
    assert_eq!(at.get(binding).expect(200)["spec"]["permissionClaims"], Value::Null);

    let roles = || {
        let list = at
            .get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
            .expect(200);
        list["items"].as_array().unwrap().len()
    };
    let before = roles();
    assert!(dry(&["access", "grant", "bob", "--role", "edit"]).contains(remark));
    assert!(dry(&["access", "grant", "bob", "--bind", "widgets"]).contains(remark));
    assert_eq!(roles(), before);
    shell.ok(&["access", "grant", "bob", "--role", "edit"]);
    let granted = roles();
    assert!(dry(&["access", "grant", "bob", "--role", "view"]).contains(remark));
    assert!(dry(&["access", "revoke", "bob"]).contains(remark));
    assert_eq!(roles(), granted);
}

#[test]
fn an_unbinding_expects_a_state() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    publish_widgets(&server.admin().in_workspace(&provider));
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{provider}")]);
    shell.ok(&["bind", "apiexport", &format!("{provider}:widgets")]);
    let stale = shell.fails(&["unbind", "widgets", "--yes", "--etag", "1"]);
    assert!(stale.contains("etag"), "{stale}");
    let id = "0a53d1ce-57d1-4d1f-9c0f-2f7c7c1f5c11";
    let unbind = ["unbind", "widgets", "--yes", "--request-id", id];
    let removed = shell.ok(&unbind);
    assert!(removed.contains("removed"), "{removed}");
    assert_eq!(shell.ok(&unbind), removed);
}
