//! A new tenant, its APIs and its teammates, without YAML.

use std::{fs, os::unix::fs::PermissionsExt};

use insula_e2e::{Server, publish_widgets, shared, unique, until, workspace};
use serde_json::{Value, json};

use super::Shell;

/// Creates a workspace with the export `widgets`, and returns its path.
fn provider(server: &Server) -> String {
    let admin = server.admin();
    let (path, _) = workspace(&admin, "provider");
    publish_widgets(&admin.in_workspace(&path));
    path
}

/// Four commands take a new tenant to a teammate who writes objects of a bound API.
#[test]
fn a_tenant_with_an_api_and_a_teammate_takes_four_commands() {
    let server = shared();
    let provider = provider(&server);
    let admin = Shell::admin(&server);
    let tenant = unique("acme");
    let path = format!("root:{tenant}");
    let file = admin.home.path().join("bob.kubeconfig");

    admin.ok(&["ws", "create", &tenant, "--enter"]);
    admin.ok(&["bind", "apiexport", &format!("{provider}:widgets")]);
    let granted = admin.ok(&["access", "grant", "bob", "--role", "edit"]);
    admin.ok(&["kubeconfig", "--token", "bob-token", "--output", file.to_str().unwrap()]);

    assert_eq!(granted, format!("user bob may enter {path}, with the role edit\n"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        !text.contains("client-key"),
        "the administrator's key must not leave: {text}"
    );
    // The file names no other file.
    assert!(!text.contains(server.data_dir().to_str().unwrap()), "{text}");
    let bob = Shell::with(&text);
    assert_eq!(bob.ok(&["ws", ".", "--short"]), format!("{path}\n"));
    let Some(kubectl) = insula_e2e::Kubectl::for_server(&server) else {
        return;
    };
    let widget = json!({"apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"name": {"first": "Bob"}}})
    .to_string();
    let mut command = kubectl.command(&path, &["create", "-f", "-"]);
    command.env("KUBECONFIG", &file);
    let made = insula_e2e::run_bounded(&mut command, &widget, std::time::Duration::from_secs(60));
    assert!(made.status.success(), "{made:?}");
}

/// The objects that go with a binding are counted before anything is removed.
#[test]
fn a_binding_is_removed_after_a_count_of_its_objects() {
    let server = shared();
    let provider = provider(&server);
    let (path, _) = workspace(&server.admin(), "unbind");
    let tenant = server.admin().in_workspace(&path);
    let admin = Shell::admin(&server);
    admin.ok(&["ws", &path]);
    admin.ok(&["bind", "apiexport", &format!("{provider}:widgets")]);
    let widgets = "/apis/example.io/v2/namespaces/default/widgets";
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": name}});
        tenant.post(widgets, &widget).expect(201);
    }
    let counted = "2 widgets.example.io";
    let told = admin.ok(&["unbind", "widgets", "--dry-run"]);
    assert_eq!(told, format!("{counted} would go with apibinding widgets\n"));
    let refused = admin.run(&["unbind", "widgets"]);
    assert_eq!((refused.code, &*refused.out), (1, ""), "{}", refused.error);
    let question = &refused.error;
    assert!(question.contains(counted) && question.contains("--yes"), "{question}");
    assert_eq!(
        tenant.get(widgets).expect(200)["items"].as_array().map(Vec::len),
        Some(2)
    );
    let removed = admin.ok(&["unbind", "widgets", "--yes"]);
    assert_eq!(removed, "apibinding widgets removed, with 2 objects\n");
    until("the API is gone", || (tenant.get(widgets).code == 404).then_some(()));
    let missing = admin.fails(&["unbind", "widgets"]);
    assert!(missing.contains("widgets"), "{missing}");
}

#[test]
fn access_is_granted_listed_and_revoked() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "access");
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{path}")]);
    let bob = Shell::user(&server, "bob-token", &format!("/clusters/{path}"));
    let account = "system:serviceaccount:default:default";
    let denied = format!("error: access to workspace {path:?} denied\n");
    assert_eq!(bob.fails(&["ws", &format!(":{path}")]), denied);
    shell.ok(&["access", "grant", "bob", "ada/x", account]);
    shell.ok(&["access", "grant", "--group", "staff", "--role", "admin"]);
    shell.ok(&["access", "grant", "carol", "--role", "edit", "-n", "default"]);
    bob.ok(&["ws", &format!(":{path}")]);
    let can = |verb: &str| shell.run(&["access", "who-can", verb, "configmaps", "-n", "default", "-o", "name"]);
    let readers = can("list").out;
    for reader in ["ada/x", "bob", "carol", "staff", account, "kcp-admin"] {
        assert!(readers.lines().any(|line| line == reader), "{reader}: {readers}");
    }
    assert!(!can("create").out.lines().any(|line| line == "bob"));
    // A second grant replaces the first.
    shell.ok(&["access", "grant", "bob", "--role", "edit"]);
    assert!(can("create").out.lines().any(|line| line == "bob"));
    let list = shell.ok(&["access", "list"]);
    let row = |name: &str| {
        let found = list.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        found.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(row("bob "), ["bob", "User", "yes", "edit"], "{list}");
    assert_eq!(row("carol "), ["carol", "User", "yes", "edit", "(default)"], "{list}");
    assert_eq!(row("staff "), ["staff", "Group", "yes", "admin"], "{list}");
    assert_eq!(
        shell.ok(&["access", "revoke", "bob"]),
        format!("user bob may not enter {path} any more\n")
    );
    assert_eq!(
        shell.ok(&["access", "revoke", "bob"]),
        format!("user bob has no role in {path}\n")
    );
    assert_eq!(bob.fails(&["ws", &format!(":{path}")]), denied);
    assert!(can("list").out.lines().any(|line| line == "carol"));
    let error = shell.fails(&["access", "grant", "bob", "--role", "editor"]);
    assert!(
        error.contains(&format!("{path} has no ClusterRole \"editor\"")),
        "{error}"
    );
    // Resources are found by all their names; unknown ones and unknown verbs are warned of.
    shell.ok(&["bind", "apiexport", &format!("{}:widgets", provider(&server))]);
    for name in ["widgets", "widget", "widgets.example.io"] {
        let ran = shell.run(&["access", "who-can", "get", name, "-n", "default", "-o", "name"]);
        assert!(
            ran.out.lines().any(|line| line == "carol") && ran.error.is_empty(),
            "{name}: {ran:?}"
        );
    }
    for (verb, name, warning) in [
        ("get", "gears", "the server doesn't have a resource type 'gears'"),
        (
            "get",
            "gears.a.io",
            "the server doesn't have a resource type 'gears' in group 'a.io'",
        ),
        ("frobnicate", "widgets", "verb 'frobnicate' is not a known verb"),
        ("get", "namespaces", "resource 'namespaces' is not namespace scoped"),
    ] {
        let ran = shell.run(&["access", "who-can", verb, name, "-n", "default"]);
        assert_eq!(ran.error, format!("Warning: {warning}\n"), "{ran:?}");
    }
    let nobody = shell.run(&["access", "who-can", "create", "nonesuch.example.io", "--as", "nobody"]);
    assert_eq!(nobody.code, 2, "{nobody:?}");
}

#[test]
fn bindings_say_why_they_are_refused() {
    let server = shared();
    let provider = provider(&server);
    let (path, _) = workspace(&server.admin(), "consumer");
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{path}")]);
    let bind = |export: &str, more: &[&str]| shell.fails(&[&["bind", "apiexport", export][..], more].concat());
    let error = bind(&format!("{provider}:widgetz"), &[]);
    assert!(error.starts_with("error: failed to create APIBinding: "), "{error}");
    let wanted = format!("no such export {provider}:widgetz; the exports there are widgets\n");
    assert!(error.ends_with(&wanted), "{error}");
    let error = bind("root:no-such-workspace:widgets", &[]);
    assert!(
        error.ends_with("; there is no workspace root:no-such-workspace, or you may not read it\n"),
        "{error}"
    );
    assert!(bind("widgets", &[]).contains("fully qualified reference to workspace"));
    let export = format!("{provider}:widgets");
    assert!(bind(&export, &["--accept-permission-claim", "secrets"]).contains("invalid permission claim"));
    shell.ok(&["bind", "apiexport", &format!(":{export}")]);
    let error = bind(&export, &[]);
    assert!(error.contains("\"widgets\" already exists; it binds "), "{error}");
    // A second binding of the same API is said at once.
    let second = shell.run(&["bind", "apiexport", &export, "--name", "second"]);
    assert_eq!(second.code, 2, "{second:?}");
    assert!(
        second
            .error
            .contains("Warning: this workspace has bound widgets.example.io already"),
        "{second:?}"
    );
    assert!(second.error.contains("error: could not bind second: "), "{second:?}");
    assert!(
        second.error.contains("naming conflict with APIBinding \"widgets\""),
        "{second:?}"
    );
    // Somebody without rights learns nothing about exports elsewhere.
    let alice = Shell::user(&server, "alice-token", "/clusters/root");
    alice.ok(&["ws", "~"]);
    for export in [format!("{provider}:widgets"), format!("{provider}:other")] {
        let error = alice.fails(&["bind", "apiexport", &export]);
        let (workspace, name) = export.rsplit_once(':').unwrap();
        let way = format!(
            "no permission to bind to export {export}; who administers {workspace} can grant it by the command\n  \
             insula access grant --workspace {workspace} --bind {name} alice\nor by these objects"
        );
        assert!(error.contains(&way), "{error}");
    }
}

#[test]
fn claims_are_answered_while_binding() {
    let server = shared();
    let provider = provider(&server);
    let admin = server.admin();
    let claims = json!({"spec": {"permissionClaims": [
        {"resource": "configmaps", "verbs": ["get"]}, {"resource": "secrets", "verbs": ["list"]}]}});
    let export = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";
    admin.in_workspace(&provider).merge(export, &claims).expect(200);
    let (path, _) = workspace(&admin, "consumer");
    let shell = Shell::admin(&server);
    let export = format!("{provider}:widgets");
    let accept = [
        "--accept-permission-claim",
        "configmaps.core",
        "--reject-permission-claim",
        "secrets.core",
    ];
    shell.ok(&[&["bind", "apiexport", &export, "-W", &path][..], &accept].concat());
    let binding = "/apis/apis.kcp.io/v1alpha2/apibindings/widgets";
    let applied = until("the claims are applied", || {
        let found = admin.in_workspace(&path).get(binding).expect(200);
        found["status"]["appliedPermissionClaims"].is_array().then_some(found)
    });
    let states: Vec<&Value> = applied["spec"]["permissionClaims"].as_array().unwrap().iter().collect();
    assert_eq!(
        (states[0]["state"].as_str(), states[1]["state"].as_str()),
        (Some("Accepted"), Some("Rejected"))
    );
    assert_eq!(states[0]["verbs"], json!(["get"]));
}

/// Nothing is bound when a claim is answered that the export does not make.
#[test]
fn a_binding_with_wrong_claims_is_not_written() {
    let server = shared();
    let provider = provider(&server);
    let admin = server.admin();
    let claims = json!({"spec": {"permissionClaims": [{"resource": "configmaps", "verbs": ["get"]}]}});
    let export = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";
    admin.in_workspace(&provider).merge(export, &claims).expect(200);
    let (path, _) = workspace(&admin, "consumer");
    let shell = Shell::admin(&server);
    let export = format!("{provider}:widgets");
    let bind = ["bind", "apiexport", &export, "-W", &path, "--accept-permission-claim"];
    let error = shell.fails(&[&bind[..], &["nope.core"]].concat());
    assert!(
        error.ends_with("the export makes no such claim; it makes configmaps\n"),
        "{error}"
    );
    let bindings = admin.in_workspace(&path).get("/apis/apis.kcp.io/v1alpha2/apibindings");
    let names = bindings.expect(200)["items"].to_string();
    assert!(!names.contains("\"widgets\""), "{names}");
    shell.ok(&[&bind[..], &["configmaps.core"]].concat());
}

#[test]
fn kubeconfigs_are_not_written_into_files_named_like_formats() {
    let server = shared();
    let shell = Shell::admin(&server);
    for format in ["yaml", "json", "name"] {
        let error = shell.fails(&["kubeconfig", "-o", format]);
        assert!(error.contains(&format!("write -o ./{format} for that file")), "{error}");
        assert!(!shell.home.path().join(format).exists());
    }
    let error = shell.fails(&["kubeconfig", "--output", "no/such/folder/config"]);
    assert!(error.contains("there is no folder no/such/folder"), "{error}");
    assert!(!shell.home.path().join("no").exists());
    shell.ok(&["kubeconfig", "-o", "./yaml"]);
    assert!(shell.home.path().join("yaml").exists());
}

#[test]
fn a_publication_into_a_missing_workspace_says_so() {
    let server = shared();
    let shell = Shell::admin(&server);
    let file = shell.home.path().join("crd.yaml");
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.io"}, "spec": {"group": "example.io", "scope": "Namespaced",
        "names": {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"},
        "versions": [{"name": "v1", "served": true, "storage": true, 
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    fs::write(&file, definition.to_string()).unwrap();
    let error = shell.fails(&[
        "export",
        "publish",
        "--diff",
        "-f",
        file.to_str().unwrap(),
        "-W",
        "root:nonesuch",
    ]);
    let wanted = "error: there is no workspace root:nonesuch, or you may not enter it: `insula ws tree` lists those \
                  that you see\n";
    assert_eq!(error, wanted);
}

#[test]
fn kubeconfigs_of_service_accounts_work() {
    let server = shared();
    let (path, _) = workspace(&server.admin(), "robots");
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{path}")]);
    shell.ok(&["access", "grant", "system:serviceaccount:default:default"]);
    let text = shell.ok(&["kubeconfig", "--service-account", "default", "--name", "robot"]);
    let robot = Shell::with(&text);
    assert_eq!(robot.ok(&["ws", ".", "--short"]), format!("{path}\n"));
    assert_eq!(robot.ok(&["ws", &format!(":{path}"), "--short"]), format!("{path}\n"));
    let error = shell.fails(&["kubeconfig", "--service-account", "nobody"]);
    assert!(error.contains("no token for service account default/nobody"), "{error}");
    let file = shell.home.path().join("config");
    let error = shell.fails(&["kubeconfig", "--output", file.to_str().unwrap()]);
    assert!(error.ends_with("config is there already\n"), "{error}");
}
