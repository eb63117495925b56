//! Commands that call the admin API: exports, workspaces, backups and operations.

use insula_e2e::Server;
use serde_json::Value;

use super::{Ran, Shell};

fn json(shell: &Shell, arguments: &[&str]) -> Value {
    let text = shell.ok(&[arguments, &["-o", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {text}"))
}

/// Creates a provider with an export, and a tenant that binds it.
fn provided(shell: &Shell) {
    shell.ok(&["ws", "create", "provider"]);
    shell.ok(&["samples", "apply", "renames", "-W", "root:provider"]);
    shell.ok(&["ws", "create", "acme"]);
    shell.ok(&["bind", "apiexport", "root:provider:buckets", "-W", "root:acme"]);
}

/// Returns the arguments of a command on the exports of the provider.
fn on_exports<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["export"], arguments, &["-W", "root:provider"]].concat()
}

#[test]
fn exports_are_read_and_steered() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    provided(&shell);
    assert_eq!(shell.ok(&on_exports(&["list", "-o", "name"])), "buckets\n");
    let consumers = json(&shell, &on_exports(&["consumers", "buckets"]));
    let mut paths: Vec<&str> = consumers
        .as_array()
        .unwrap()
        .iter()
        .map(|consumer| consumer["workspace"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["root:acme", "root:provider"]);
    let steps = [
        "update",
        "buckets",
        "--step",
        "5%:10m",
        "--step",
        "ring=canary",
        "--strategy",
        "AllOrNothing",
    ];
    let updated = json(&shell, &on_exports(&steps));
    assert_eq!(updated["rollout"]["strategy"], "AllOrNothing", "{updated:#}");
    let wrong = shell.run(&on_exports(&["update", "buckets", "--step", "500%"]));
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.error.contains("steps[0].percentage: is 500: choose 1 to 100"),
        "{wrong:?}"
    );
    let stale = shell.run(&on_exports(&["pause", "buckets", "--etag", "1"]));
    assert_eq!(stale.code, 2, "{stale:?}");
    let dry = json(&shell, &on_exports(&["pause", "buckets", "--dry-run"]));
    assert_eq!(dry["rollout"]["paused"], true, "{dry:#}");
    assert_eq!(
        json(&shell, &on_exports(&["show", "buckets"]))["rollout"]["paused"],
        false
    );
    assert_eq!(
        json(&shell, &on_exports(&["pause", "buckets"]))["rollout"]["paused"],
        true
    );
    assert_eq!(
        json(&shell, &on_exports(&["resume", "buckets"]))["rollout"]["paused"],
        false
    );
    let none = shell.run(&on_exports(&["abort", "buckets"]));
    assert!(none.code == 2 && none.error.contains("no binding is bound"), "{none:?}");
    let retire = [
        "retire",
        "buckets",
        "buckets.samples.example.io/v1beta1",
        "--step",
        "deprecate",
    ];
    let retired = json(&shell, &on_exports(&retire));
    assert_eq!(retired["steps"][0]["kind"], "APIResourceSchema", "{retired:#}");
    let usage = shell.ok(&on_exports(&["usage", "-o", "wide"]));
    assert!(usage.contains("WORKSPACES"), "{usage}");
    for id in consumers
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["cluster"].as_str().unwrap())
    {
        assert!(!usage.contains(id), "{usage}");
    }
}

#[test]
fn workspaces_are_frozen_limited_and_measured() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    shell.ok(&["ws", "create", "acme"]);
    let frozen = json(&shell, &["workspace", "freeze", "root:acme", "--reason", "an audit"]);
    assert_eq!(frozen["freeze"]["reason"], "an audit");
    let refused = shell.run(&["ws", "create", "below", "-W", "root:acme"]);
    assert!(refused.code == 2 && refused.error.contains("an audit"), "{refused:?}");
    let text = shell.ok(&["workspace", "thaw", "-W", "root:acme"]);
    assert!(text.contains("frozen") && text.contains("no"), "{text}");
    shell.ok(&["ws", "create", "below", "-W", "root:acme"]);
    let limits = json(&shell, &["workspace", "limits", "root:acme", "--objects", "100"]);
    assert_eq!(
        (&limits["own"]["objects"], &limits["effective"]["objects"]),
        (&100.into(), &100.into())
    );
    let usages = json(&shell, &["workspace", "usage", "root", "--children"]);
    assert_eq!(usages[0]["path"], "root:acme", "{usages:#}");
    let text = shell.ok(&["workspace", "usage", "root:acme"]);
    assert!(text.contains("namespaces"), "{text}");
    let Ran { code, error, .. } = shell.run(&["workspace", "undelete", "root:acme"]);
    assert!(code == 2 && error.contains("root:acme is not deleted"), "{error}");
}

#[test]
fn a_server_keeps_backups_and_restores_them() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    shell.ok(&["ws", "create", "acme"]);
    let taken = json(&shell, &["backup", "create", "--on-server", "-W", "root:acme"]);
    let name = taken["name"].as_str().unwrap();
    assert_eq!(shell.ok(&["backup", "list", "-o", "name"]), format!("{name}\n"));
    let verified = json(&shell, &["backup", "verify", name, "--on-server"]);
    assert_eq!(verified["result"]["sha256"], taken["sha256"], "{verified:#}");
    let restore = ["backup", "restore", name, "--on-server", "--overwrite"];
    let changes = json(&shell, &[&restore[..], &["--dry-run"]].concat());
    assert_eq!(changes["workspaces"][0], "root:acme", "{changes:#}");
    assert_eq!(json(&shell, &restore)["done"], true);
    let file = shell.home.path().join("backup");
    let file = file.to_str().unwrap();
    shell.ok(&["backup", "download", name, file]);
    let text = shell.ok(&["backup", "verify", file]);
    assert!(text.contains(taken["sha256"].as_str().unwrap()), "{text}");
    shell.ok(&["backup", "delete", name]);
    assert_eq!(shell.ok(&["backup", "list", "-o", "name"]), "");
    let operations = json(&shell, &["operation", "list", "--kind", "CreateBackup"]);
    let operation = operations[0]["name"].as_str().unwrap();
    assert_eq!(
        shell.ok(&["operation", "wait", operation, "-o", "name"]),
        format!("{operation}\n")
    );
    shell.ok(&["operation", "cancel", operation]);
    shell.ok(&["operation", "delete", operation]);
    let gone = shell.run(&["operation", "show", operation]);
    assert!(gone.code == 2 && gone.error.contains(operation), "{gone:?}");
}
