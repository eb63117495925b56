//! Commands that call the admin API: exports, workspaces, backups and operations.

use insula_e2e::{Etcd, Server};
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
    let stored = shell.ok(&on_exports(&["consumers", "buckets", "--stored"]));
    for count in ["buckets.samples.example.io/v1: 1", "buckets.samples.example.io/v1: 0"] {
        assert!(stored.contains(count), "{stored}");
    }
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
fn settings_of_a_rollout_are_changed() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    provided(&shell);
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
    let wrong = shell.run(&on_exports(&["update", "buckets", "--step", "ring=in valid"]));
    assert!(
        wrong.code == 2 && wrong.error.contains("--step ring=in valid: "),
        "{wrong:?}"
    );
    let held = json(&shell, &on_exports(&["update", "buckets", "--max-held", "10%"]));
    assert_eq!(held["rollout"]["maxHeld"], "10%", "{held:#}");
    let text = shell.ok(&on_exports(&["update", "buckets", "--max-held", "2"]));
    assert!(text.contains("max held") && text.contains("AllOrNothing"), "{text}");
    let wrong = shell.run(&on_exports(&["update", "buckets", "--max-held", "a few"]));
    assert!(
        wrong.code == 2 && wrong.error.contains("--max-held") && wrong.error.contains("'a few'"),
        "{wrong:?}"
    );
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
    // A server that is named is the place, where no file is.
    let by_url = |words: &[&str]| json(&shell, &[words, &["--server", server.url()]].concat());
    assert_eq!(by_url(&["backup", "verify", name])["done"], true);
    let again = by_url(&["backup", "create", "-W", "root:acme"]);
    by_url(&[
        "backup",
        "restore",
        again["name"].as_str().unwrap(),
        "--overwrite",
        "--dry-run",
    ]);
    shell.ok(&["backup", "delete", again["name"].as_str().unwrap()]);
    let local = shell.run(&["backup", "restore", name, "--to", "/none", "--overwrite"]);
    assert!(local.code == 2 && local.error.contains("add --on-server"), "{local:?}");
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
    shell.ok(&["backup", "upload", file, "--dry-run"]);
    assert_eq!(shell.ok(&["backup", "list", "-o", "name"]), "");
    let sent = json(&shell, &["backup", "upload", file]);
    assert_eq!(
        (&sent["sha256"], &sent["workspace"]),
        (&taken["sha256"], &"root:acme".into())
    );
    let name = sent["name"].as_str().unwrap();
    assert_eq!(shell.ok(&["backup", "list", "-o", "name"]), format!("{name}\n"));
    json(&shell, &["backup", "verify", name, "--on-server"]);
    shell.ok(&["backup", "delete", name]);
    let none = shell.run(&["backup", "upload", "/none"]);
    assert!(none.code == 2 && none.error.contains("/none"), "{none:?}");
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

/// A backup of several messages: each has 1 MiB at most.
#[test]
fn a_large_backup_is_sent_in_pieces() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    shell.ok(&["ws", "create", "acme"]);
    let client = server.admin().in_workspace("root:acme");
    // Text that does not compress.
    let mut state = 1_u64;
    let mut letters = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    for index in 0..4 {
        let text: String = (0..900_000).map(|_| letters()).collect();
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("large-{index}")}, "data": {"text": text}});
        client.post("/api/v1/namespaces/default/configmaps", &map).expect(201);
    }
    let file = shell.home.path().join("backup");
    let file = file.to_str().unwrap();
    shell.ok(&["backup", "create", file]);
    assert!(std::fs::metadata(file).unwrap().len() > 2 << 20);
    let sent = json(&shell, &["backup", "upload", file]);
    json(
        &shell,
        &["backup", "verify", sent["name"].as_str().unwrap(), "--on-server"],
    );
}

#[test]
fn the_workspaces_that_a_user_can_enter_are_listed() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    shell.ok(&["ws", "create", "acme"]);
    shell.ok(&["ws", "create", "below", "-W", "root:acme"]);
    shell.ok(&["access", "grant", "bob", "--role", "edit", "-W", "root:acme:below"]);
    shell.ok(&["access", "grant", "--group", "team", "-W", "root:acme"]);
    let visible = |flags: &[&str]| json(&shell, &[&["access", "visible"], flags].concat());
    let paths = |visible: &Value| -> Vec<String> {
        let items = visible.as_array().unwrap().iter();
        let paths = items.map(|item| item["path"].as_str().unwrap().to_owned());
        // Every user may enter the root workspace.
        paths.filter(|path| path != "root").collect()
    };
    let bob = visible(&["bob"]);
    assert_eq!(paths(&bob), ["root:acme:below"], "{bob:#}");
    let below = bob.as_array().unwrap().last().unwrap();
    let resources = below["resources"].as_array().unwrap();
    let maps = resources.iter().find(|resource| resource["resource"] == "configmaps");
    let verbs = maps.unwrap()["verbs"].as_array().unwrap();
    assert!(verbs.contains(&"create".into()), "{bob:#}");
    assert_eq!(paths(&visible(&["--group", "team"])), ["root:acme"]);
    let both = visible(&["bob", "--group", "team"]);
    assert_eq!(paths(&both), ["root:acme", "root:acme:below"]);
    let few = visible(&["bob", "--group", "team", "-W", "root:acme", "--depth", "1"]);
    assert_eq!(paths(&few), ["root:acme", "root:acme:below"]);
    let text = shell.ok(&["access", "visible", "bob"]);
    assert!(
        text.contains("root:acme:below") && text.contains("configmaps"),
        "{text}"
    );
    assert_eq!(
        shell.ok(&["access", "visible", "bob", "-o", "name", "-W", "root:acme"]),
        "root:acme:below\n"
    );
    let several = shell.run(&["access", "visible", "--group", "a", "--group", "b"]);
    assert!(
        several.code == 2 && several.error.contains("name a user who is in them"),
        "{several:?}"
    );
}

#[test]
fn a_workspace_that_is_not_ready_is_explained() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    shell.ok(&["ws", "create", "acme"]);
    let ready = json(&shell, &["ws", "explain", "root:acme"]);
    assert_eq!(ready["ready"], true, "{ready:#}");
    let root = server.admin().in_workspace("root");
    let kind = serde_json::json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType",
        "metadata": {"name": "slow"}, "spec": {"initializer": true}});
    root.post("/apis/tenancy.kcp.io/v1alpha1/workspacetypes", &kind)
        .expect(201);
    let slow = serde_json::json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
        "metadata": {"name": "slow"}, "spec": {"type": {"name": "slow", "path": "root"}}});
    root.post("/apis/tenancy.kcp.io/v1alpha1/workspaces", &slow).expect(201);
    let explained = insula_e2e::until("it waits for its initializer", || {
        let ran = shell.run(&["ws", "explain", "root:slow"]);
        (ran.code == 1 && ran.out.contains("root:slow") && ran.out.contains("Initializing")).then_some(ran)
    });
    for part in ["ready", "no", "initializer", "CAUSE", "FIX"] {
        assert!(explained.out.contains(part), "{part}: {explained:?}");
    }
    let none = shell.run(&["ws", "explain", "root:none"]);
    assert!(none.code == 2 && none.error.contains("none"), "{none:?}");
}

#[test]
fn the_members_of_an_installation_on_etcd_are_listed() {
    let Some(etcd) = Etcd::start() else { return };
    let store = etcd.store();
    let servers = [(); 2].map(|()| Server::with_flags(&["--store", &store]));
    for server in &servers {
        let shell = Shell::admin(server);
        let members = insula_e2e::until("each server knows the other", || {
            let members = json(&shell, &["server", "members"]);
            (members["servers"].as_array()?.len() == 2).then_some(members)
        });
        let listed = members["servers"].as_array().unwrap();
        let answering: Vec<&str> = listed
            .iter()
            .filter(|member| member["answers"] == true)
            .filter_map(|member| member["url"].as_str())
            .collect();
        assert_eq!(answering, [server.url()], "{members:#}");
        let etcd = &members["etcdMembers"];
        assert_eq!(etcd.as_array().map(Vec::len), Some(1), "{members:#}");
        let url = etcd[0]["clientUrls"][0].as_str().unwrap();
        let (_, address) = url.split_once("://").unwrap();
        assert!(store.contains(address), "{url} in {store}");
        let text = shell.ok(&["server", "members"]);
        let known = servers.iter().map(Server::url).chain([url]);
        known.for_each(|url| assert!(text.contains(url), "{url} in {text}"));
    }
}

#[test]
fn a_server_is_maintained() {
    let server = Server::start();
    let shell = Shell::admin(&server);
    let members = json(&shell, &["server", "members"]);
    assert_eq!(members["servers"][0]["url"], server.url(), "{members:#}");
    let text = shell.ok(&["server", "members"]);
    assert!(text.contains(server.url()) && text.contains("ANSWERS"), "{text}");
    let config = json(&shell, &["server", "config"]);
    assert_eq!(config["dataDir"], server.data_dir().to_str().unwrap(), "{config:#}");
    assert!(shell.ok(&["server", "config"]).contains("dataDir: "));
    let level = |arguments: &[&str]| json(&shell, &[&["server", "log-level"], arguments].concat());
    let before = level(&[])["level"].clone();
    assert_eq!(level(&["debug", "--dry-run"])["level"], "debug");
    assert_eq!(level(&[])["level"], before);
    assert_eq!(level(&["debug"])["formerLevel"], before);
    assert_eq!(level(&[])["level"], "debug");
    let wrong = shell.run(&["server", "log-level", "loud"]);
    assert!(
        wrong.code == 2 && wrong.error.contains("level: `loud` is not one of"),
        "{wrong:?}"
    );
    shell.ok(&["ws", "create", "acme"]);
    let oldest = json(&shell, &["server", "compact", "--revision", "2"]);
    assert!(
        oldest["revision"].as_u64().is_some_and(|oldest| oldest >= 2),
        "{oldest}"
    );
    // The server knows the history of its own run, which has just begun.
    let young = shell.run(&["server", "compact", "--older-than", "10m"]);
    assert!(
        young.code == 2 && young.error.contains("no history that is older than 600 s"),
        "{young:?}"
    );
    let future = shell.run(&["server", "compact", "--revision", "4000000000"]);
    assert!(future.code == 2 && future.error.contains("revision"), "{future:?}");
    let neither = shell.run(&["server", "compact"]);
    assert!(neither.code == 2 && neither.error.contains("--revision"), "{neither:?}");
    let file = shell.home.path().join("bundle.json");
    let file = file.to_str().unwrap();
    shell.ok(&["server", "support-bundle", "-o", file]);
    let bundle: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(
        bundle.as_object().is_some_and(|parts| parts.contains_key("config")),
        "{bundle}"
    );
    let twice = shell.run(&["server", "support-bundle", "-o", file]);
    assert!(twice.code == 2 && twice.error.contains(file), "{twice:?}");
    let bundle = shell.ok(&["server", "support-bundle"]);
    assert!(serde_json::from_str::<Value>(&bundle).is_ok(), "{bundle}");
}
