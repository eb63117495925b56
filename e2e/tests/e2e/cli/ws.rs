//! The grammar of `insula ws`, from root, from a home workspace, and from a kubeconfig of another
//! origin. The words are those of kcp's plugin 0.32.

use std::fs;

use insula_e2e::{Who, publish_widgets, shared, unique, workspace, workspace_owned_by};
use serde_json::{Value, json};

use super::Shell;

/// Creates `root:X`, `root:X:a` and `root:X:a:b`, and returns `root:X`.
fn world(shell: &Shell) -> String {
    let name = unique("ws");
    shell.ok(&["ws", "create", &name]);
    let top = format!("root:{name}");
    shell.ok(&["create-workspace", "a", "-W", &top, "--type", "root:universal"]);
    shell.ok(&[
        "create-workspace",
        "b",
        "-W",
        &format!(":{top}:a"),
        "--type",
        "root:universal",
    ]);
    top
}

fn current(path: &str, kind: &str) -> String {
    let kind = if kind.is_empty() {
        String::new()
    } else {
        format!(" (type root:{kind})")
    };
    format!("Current workspace is '{path}'{kind}.\n")
}

#[test]
fn the_grammar_from_root() {
    let server = shared();
    let shell = Shell::admin(&server);
    let top = world(&shell);
    let name = top.strip_prefix("root:").unwrap();
    let (a, b) = (format!("{top}:a"), format!("{top}:a:b"));
    assert_eq!(shell.ok(&["ws", "."]), current("root", ""));
    assert_eq!(shell.ok(&["ws", ".", "--short"]), "root\n");
    for (argument, path, kind) in [
        (name, &top, "organization"),
        ("a", &a, "universal"),
        ("-", &top, ""),
        ("-", &a, ""),
        ("b", &b, "universal"),
        ("../..", &top, "organization"),
        ("a:b", &b, "universal"),
        ("..:..:a", &a, "universal"),
        (".:b", &b, "universal"),
        (&format!(":{a}"), &a, "universal"),
        (&b, &b, "universal"),
        (&format!("/root/{name}/a"), &a, "universal"),
    ] {
        let Ok(argument) = str::parse::<String>(argument);
        assert_eq!(shell.ok(&["ws", &argument]), current(path, kind), "{argument}");
        assert_eq!(shell.ok(&["ws", "current", "--short"]), format!("{path}\n"));
    }
    assert_eq!(shell.ok(&["ws", ":"]), current("root", ""));
    assert_eq!(
        shell.ok(&["ws", "use", ":root"]),
        "Current workspace is 'root' (type root).\n"
    );
    assert_eq!(shell.ok(&["workspace", "cd", name, "--short"]), format!("{top}\n"));
}

#[test]
fn what_is_no_workspace_changes_nothing() {
    let server = shared();
    let shell = Shell::admin(&server);
    let before = fs::read_to_string(shell.kubeconfig()).unwrap();
    let missing = unique("nope");
    for (argument, why) in [
        (missing.as_str(), format!("workspace \"root:{missing}\" not found")),
        ("..", "cannot go up from root".to_owned()),
        ("A", "invalid workspace path: A".to_owned()),
        ("a::b", "invalid workspace path: a::b".to_owned()),
        ("-", "no previous workspace found in kubeconfig".to_owned()),
    ] {
        assert_eq!(shell.fails(&["ws", argument]), format!("error: {why}\n"), "{argument}");
    }
    let error = shell.fails(&["ws", "-i"]);
    assert!(error.contains("interactive mode needs a terminal"), "{error}");
    let error = shell.fails(&["ws", "--context", "nope", "."]);
    assert!(error.contains("current \"nope\" context not found"), "{error}");
    assert_eq!(fs::read_to_string(shell.kubeconfig()).unwrap(), before);
    // alice may not enter a workspace of somebody else, and does not learn whether there is one.
    let (path, _) = workspace(&server.admin(), "foreign");
    let alice = Shell::user(&server, "alice-token", "/clusters/root");
    assert_eq!(
        alice.fails(&["ws", &format!(":{path}")]),
        format!("error: access to workspace {path:?} denied\n")
    );
}

#[test]
fn home_is_where_nothing_leads() {
    let server = shared();
    let alice = Shell::user(&server, "alice-token", "/clusters/root");
    let home = alice.run(&["ws"]);
    assert_eq!(home.code, 0, "{home:?}");
    assert!(
        home.error.starts_with("Note: 'insula ws' now matches 'cd' semantics"),
        "{home:?}"
    );
    let path = alice.ok(&["ws", ".", "--short"]);
    for argument in ["~", "home", alice.home.path().to_str().unwrap()] {
        assert_eq!(alice.ok(&["ws", argument, "--short"]), path, "{argument}");
    }
    alice.ok(&["ws", "create", "inner", "--type", "root:universal"]);
    assert_eq!(
        alice.ok(&["ws", "inner"]),
        current(&format!("{}:inner", path.trim()), "universal")
    );
    assert_eq!(alice.ok(&["ws", "..", "--short"]), path);
    assert_eq!(
        alice.ok(&["ws", "~/inner", "--short"]),
        format!("{}:inner\n", path.trim())
    );
    // A child of this name comes first.
    alice.ok(&["ws", ".."]);
    alice.ok(&["ws", "create", "home", "--type", "root:universal"]);
    assert_eq!(alice.ok(&["ws", "home", "--short"]), format!("{}:home\n", path.trim()));
}

#[test]
fn a_kubeconfig_of_another_origin_keeps_what_it_has() {
    let server = shared();
    let (path, _) = workspace_owned_by(&server, "alice");
    let shell = Shell::user(&server, "alice-token", "");
    let url = server.url();
    assert_eq!(
        shell.ok(&["ws", "."]),
        format!("Current workspace is the URL \"{url}\".\n")
    );
    assert_eq!(shell.ok(&["ws", ".", "--short"]), "");
    assert_eq!(
        shell.ok(&["ws", "tree"]),
        format!("current context URL \"{url}\" does not point directly to a kcp workspace\n")
    );
    let error = shell.fails(&["ws", "a"]);
    assert!(
        error.starts_with(&format!("error: current URL \"{url}\" does not point to a workspace; ")),
        "{error}"
    );
    assert_eq!(shell.ok(&["ws", &format!(":{path}")]), current(&path, ""));
    let config: Value = serde_saphyr::from_str(&fs::read_to_string(shell.kubeconfig()).unwrap()).unwrap();
    assert_eq!(config["other"]["kept"], true);
    assert_eq!(config["current-context"], "workspace.kcp.io/current");
    let cluster = &config["clusters"][1];
    assert_eq!(cluster["name"], "workspace.kcp.io/current");
    assert_eq!(cluster["cluster"]["server"], format!("{url}/clusters/{path}"));
    assert_eq!(cluster["cluster"]["odd"], 1);
    let contexts = config["contexts"].as_array().unwrap();
    let context = |name: &str| contexts.iter().find(|it| it["name"] == name).unwrap()["context"].clone();
    assert_eq!(
        context("workspace.kcp.io/previous"),
        json!({"cluster": "far", "user": "me", "namespace": "team"})
    );
    assert_eq!(context("workspace.kcp.io/current")["namespace"], "team");
    assert_eq!(
        shell.ok(&["ws", "-"]),
        format!("Current workspace is the URL \"{url}\".\n")
    );
    // Flags and variables in place of the context.
    let mine = [
        "--server",
        &format!("{url}/clusters/{path}"),
        "--token",
        "alice-token",
        "--insecure-skip-tls-verify",
    ];
    assert_eq!(
        shell.ok(&[&["ws", ".", "--short"][..], &mine].concat()),
        format!("{path}\n")
    );
    let mut command = shell.prepared(insula_e2e::insula(&["ws", ".", "--short"]));
    command.env("INSULA_CONTEXT", "mine").env("INSULA_WORKSPACE", &path);
    assert_eq!(super::ran(&mut command).out, format!("{path}\n"));
}

#[test]
fn workspaces_are_created_once() {
    let server = shared();
    let shell = Shell::admin(&server);
    let name = unique("made");
    let what = format!("Workspace {name:?} (type root:organization)");
    let made = shell.ok(&["ws", "create", &name, "--enter"]);
    let entered = current(&format!("root:{name}"), "organization");
    let ready = format!("{what} is ready to use.\n{entered}");
    assert_eq!(made, format!("{what} created. Waiting for it to be ready...\n{ready}"));
    shell.ok(&["ws", ".."]);
    let error = shell.fails(&["ws", "create", &name]);
    let wanted = format!("error: workspaces.tenancy.kcp.io {name:?} already exists; in workspace root");
    assert!(error.starts_with(&wanted), "{error}");
    let again = shell.ok(&["create-workspace", &name, "--ignore-existing", "--enter"]);
    assert_eq!(again, format!("{what} already exists.\n{ready}"));
    let other = [
        "create-workspace",
        &name,
        "-W",
        "..",
        "--ignore-existing",
        "--type",
        "root:universal",
    ];
    let error = shell.fails(&other);
    let wanted = "with type root:universal, it already exists with different type root:organization\n";
    assert!(error.ends_with(wanted), "{error}");
    let error = shell.fails(&["ws", "create", "sub", "--type", "nonesuch"]);
    assert!(
        error.contains("workspace type \"nonesuch\" cannot be resolved")
            && error.contains("as --type root:org:special"),
        "{error}"
    );
}

#[test]
fn contexts_are_created_and_kept() {
    let server = shared();
    let shell = Shell::admin(&server);
    let name = unique("context");
    shell.ok(&["ws", "create", &name, "--create-context", "made"]);
    assert_eq!(shell.ok(&["ws", ".", "--short"]), "root\n");
    assert_eq!(
        shell.ok(&["ws", ".", "--short", "--context", "made"]),
        format!("root:{name}\n")
    );
    shell.ok(&["ws", &name]);
    let path = format!("root:{name}");
    assert_eq!(
        shell.ok(&["ws", "create-context"]),
        format!("Created context {path:?} and switched to it.\n")
    );
    assert_eq!(
        shell.fails(&["ws", "create-context"]),
        format!("error: context {path:?} already exists in kubeconfig, use --overwrite to update it\n")
    );
    assert_eq!(
        shell.ok(&["ws", "create-context", "--overwrite"]),
        format!("Updated context {path:?}.\n")
    );
    assert_eq!(
        shell.ok(&["ws", "create-context", "x", "--keep-current"]),
        "Created context \"x\".\n"
    );
    // The first line says that the server wrote the file; edits keep it.
    assert!(
        fs::read_to_string(shell.kubeconfig())
            .unwrap()
            .starts_with("# Written by insula")
    );
}

#[test]
fn trees_are_printed_as_kcp_prints_them() {
    let server = shared();
    let shell = Shell::admin(&server);
    let top = world(&shell);
    let name = top.strip_prefix("root:").unwrap();
    shell.ok(&["ws", &format!(":{top}")]);
    assert_eq!(
        shell.ok(&["ws", "tree"]),
        format!(".\n└── {name}\n    └── a\n        └── b\n\n")
    );
    assert_eq!(
        shell.ok(&["ws", "tree", "--full"]),
        format!(".\n└── {top}\n    └── {top}:a\n        └── {top}:a:b\n\n")
    );
    let wide = shell.ok(&["ws", "tree", "--wide"]);
    assert!(
        wide.contains("└── a") && wide.contains("ws=Ready  lc=Ready\n"),
        "{wide}"
    );
    assert_eq!(
        shell.ok(&["ws", "tree", "-o", "name"]),
        format!("{top}\n{top}:a\n{top}:a:b\n")
    );
    let tree: Value = serde_json::from_str(&shell.ok(&["ws", "tree", "-o", "json"])).unwrap();
    assert_eq!(tree["children"][0]["children"][0]["path"], format!("{top}:a:b"));
    assert_eq!(
        shell.ok(&["ws", "tree", "-W", ".:a", "-o", "name"]),
        format!("{top}:a\n{top}:a:b\n")
    );
    // A workspace without others below it is a tree; one that is not there is none.
    assert_eq!(
        shell.ok(&["ws", "tree", "-W", &format!(":{top}:a:b"), "-o", "name"]),
        format!("{top}:a:b\n")
    );
    for more in [&[][..], &["-o", "json"], &["--wide"]] {
        let error = shell.fails(&[&["ws", "tree", "-W", "root:nope"], more].concat());
        assert_eq!(error, "error: workspace \"root:nope\" not found\n");
    }
    // A URL without a workspace: kcp's words for people, an error for programs.
    let base = ["ws", "tree", "--context", "base"];
    assert!(shell.ok(&base).contains("does not point directly to a kcp workspace"));
    for format in ["json", "yaml", "name"] {
        let error = shell.fails(&[&base[..], &["-o", format]].concat());
        assert!(error.contains("does not point to a workspace"), "{error}");
    }
}

/// A workspace is looked up before it is written into a kubeconfig.
#[test]
fn contexts_of_missing_workspaces_are_not_written() {
    let server = shared();
    let shell = Shell::admin(&server);
    let before = fs::read_to_string(shell.kubeconfig()).unwrap();
    let error = shell.fails(&["ws", "create-context", "cc", "-W", "root:nope"]);
    assert_eq!(error, "error: workspace \"root:nope\" not found\n");
    let error = shell.fails(&["kubeconfig", "-W", "root:nope"]);
    assert_eq!(error, "error: workspace \"root:nope\" not found\n");
    let error = shell.fails(&["kubeconfig", "--token", "bad"]);
    assert!(error.contains("does not accept the credentials: "), "{error}");
    assert_eq!(fs::read_to_string(shell.kubeconfig()).unwrap(), before);
    // Alice may not enter root: somebody may grant it later.
    let alice = shell.run(&["kubeconfig", "-W", ":root", "--token", "alice-token"]);
    assert_eq!(alice.code, 0, "{alice:?}");
    assert!(alice.out.contains("alice-token"), "{alice:?}");
    // A server that cannot be asked is a warning.
    let away = format!("https://127.0.0.1:{}/clusters/root:a", insula_e2e::unused_port());
    let away = shell.run(&["ws", "create-context", "away", "-s", &away, "--keep-current"]);
    assert_eq!(
        (away.code, away.out.as_str()),
        (0, "Created context \"away\".\n"),
        "{away:?}"
    );
    assert!(away.error.starts_with("warning: nobody knows if workspace"), "{away:?}");
}

#[test]
fn a_workspace_with_unanswered_claims_warns() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "provider");
    let client = admin.in_workspace(&provider);
    publish_widgets(&client);
    let claims = json!({"spec": {"permissionClaims": [{"resource": "configmaps", "verbs": ["get", "list"]}]}});
    client
        .merge("/apis/apis.kcp.io/v1alpha2/apiexports/widgets", &claims)
        .expect(200);
    let shell = Shell::admin(&server);
    let (path, _) = workspace(&admin, "consumer");
    let export = format!("{provider}:widgets");
    let bind = ["bind", "apiexport", &export, "-W", &path];
    assert_eq!(
        shell.ok(&bind),
        "apibinding widgets created. Waiting to successfully bind ...\nwidgets created and bound.\n"
    );
    let warned = shell.run(&["ws", &format!(":{path}")]);
    assert_eq!(warned.out, current(&path, "organization"));
    assert_eq!(
        warned.error,
        "Warning: claim for configmaps exported but not specified on APIBinding widgets\nAdd this claim to the \
         APIBinding's Spec.\n"
    );
    assert_eq!(
        shell.ok(&["claims", "get", "apibinding"]),
        "APIBINDING   GROUP-RESOURCE   VERBS      STATUS\nwidgets      configmaps       get,list   Pending\n"
    );
    assert_eq!(
        shell.ok(&["claims", "accept", "widgets", "--resource", "configmaps"]),
        "claim \"configmaps\" on APIBinding \"widgets\" is accepted\n"
    );
    let error = shell.fails(&["claims", "reject", "widgets", "--resource", "secrets"]);
    assert!(
        error.ends_with("the export makes no such claim; it makes configmaps\n"),
        "{error}"
    );
    assert_eq!(shell.run(&["ws", "."]).error, "");
    let accepted = shell.ok(&["claims", "get", "apibinding", "widgets", "-o", "json"]);
    let accepted: Value = serde_json::from_str(&accepted).unwrap();
    assert_eq!(accepted[0]["state"], "Accepted");
    // The provider has what the consumer accepted.
    let admin = server.client(Who::KcpAdmin).in_workspace(&path);
    let binding = admin.get("/apis/apis.kcp.io/v1alpha2/apibindings/widgets").expect(200);
    assert_eq!(binding["spec"]["permissionClaims"][0]["verbs"], json!(["get", "list"]));
}
