//! The right to bind an API: granted by commands and by the YAML of a refusal.

use insula_e2e::{Kubectl, Server, Who, publish_widgets, run_bounded, shared, workspace, workspace_owned_by};
use serde_json::json;
use std::time::Duration;

use super::Shell;

const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";

/// A provider's workspace with the export `widgets`, and a workspace of alice.
struct Scene {
    provider: String,
    tenant: String,
    /// The administrator in the provider's workspace.
    owner: Shell,
    alice: Shell,
}

impl Scene {
    fn new(server: &Server) -> Self {
        let admin = server.admin();
        let (provider, _) = workspace(&admin, "provider");
        publish_widgets(&admin.in_workspace(&provider));
        let (tenant, _) = workspace_owned_by(server, "alice");
        let owner = Shell::admin(server);
        owner.ok(&["ws", &format!(":{provider}")]);
        let alice = Shell::user(server, "alice-token", &format!("/clusters/{tenant}"));
        Self {
            provider,
            tenant,
            owner,
            alice,
        }
    }

    fn export(&self) -> String {
        format!("{}:widgets", self.provider)
    }
}

#[test]
fn a_right_to_bind_is_granted_and_revoked_by_one_command() {
    let server = shared();
    let scene = Scene::new(&server);
    let (export, owner, alice) = (scene.export(), &scene.owner, &scene.alice);
    let refused = alice.fails(&["bind", "apiexport", &export]);
    assert!(refused.contains("--bind widgets alice"), "{refused}");
    let granted = owner.ok(&["access", "grant", "alice", "--bind", "widgets"]);
    assert_eq!(granted, format!("user alice may bind {export}\n"));
    // A second grant is none.
    owner.ok(&["access", "grant", "alice", "--bind", "widgets"]);
    alice.ok(&["bind", "apiexport", &export]);
    // The right is no access to the workspace, and none to other exports of it.
    let denied = alice.fails(&["ws", &format!(":{}", scene.provider)]);
    assert!(denied.contains("denied"), "{denied}");
    let other = alice.fails(&["bind", "apiexport", &format!("{}:gears", scene.provider)]);
    assert!(other.contains("no permission to bind"), "{other}");
    let revoked = owner.ok(&["access", "revoke", "alice", "--bind", "widgets"]);
    assert!(revoked.starts_with("user alice may not bind"), "{revoked}");
    let refused = alice.fails(&["bind", "apiexport", &export, "--name", "second"]);
    assert!(refused.contains("no permission to bind"), "{refused}");
    let missing = owner.fails(&["access", "grant", "alice", "--bind", "gears"]);
    assert!(missing.contains("has no APIExport \"gears\""), "{missing}");
    let both = owner.run(&["access", "grant", "alice", "--bind", "widgets", "--role", "edit"]);
    assert_eq!(both.code, 2, "{both:?}");
    // A tenant grants nothing in the workspace of another.
    let foreign = ["access", "grant", "alice", "--bind", "widgets", "-W", &scene.provider];
    assert!(alice.fails(&foreign).contains("forbidden"));
}

#[test]
fn the_yaml_of_a_refusal_grants_the_right() {
    let server = shared();
    let scene = Scene::new(&server);
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let refused = scene.alice.fails(&["bind", "apiexport", &scene.export()]);
    let (_, yaml) = refused.split_once("or by these objects in ").unwrap();
    let yaml: Vec<&str> = yaml.lines().skip(1).map(str::trim_start).collect();
    let mut apply = kubectl.command(&scene.provider, &["apply", "-f", "-"]);
    let applied = run_bounded(&mut apply, &yaml.join("\n"), Duration::from_secs(60));
    assert!(applied.status.success(), "{applied:?}");
    scene.alice.ok(&["bind", "apiexport", &scene.export()]);
    // kubectl shows the same way as the command line.
    let binding = json!({"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "b"},
        "spec": {"reference": {"export": {"path": scene.provider, "name": "gears"}}}});
    let alice = server
        .client(Who::Token("alice-token".to_owned()))
        .in_workspace(&scene.tenant);
    let refused = alice.post(BINDINGS, &binding).expect(403);
    assert!(
        refused["message"].as_str().unwrap().contains("--bind gears alice"),
        "{refused}"
    );
    // Names that no export has are not repeated as a command.
    let mut odd = binding.clone();
    odd["spec"]["reference"]["export"]["name"] = json!("x; reboot");
    let refused = alice.post(BINDINGS, &odd).expect(403);
    assert!(
        !refused["message"].as_str().unwrap().contains("insula access"),
        "{refused}"
    );
}

#[test]
fn an_export_is_published_with_those_who_may_bind_it() {
    let server = shared();
    let admin = server.admin();
    let (provider, _) = workspace(&admin, "provider");
    let (tenant, _) = workspace_owned_by(&server, "alice");
    let owner = Shell::admin(&server);
    owner.ok(&["ws", &format!(":{provider}")]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.bindable.example.io"},
        "spec": {"group": "bindable.example.io", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    std::fs::write(owner.home.path().join("boats.json"), definition.to_string()).unwrap();
    let publish = [
        "export",
        "publish",
        "-f",
        "boats.json",
        "--name",
        "boats",
        "-W",
        &provider,
    ];
    let by = ["--bindable-by", "system:authenticated", "--bindable-by-user", "bob"];
    let printed = owner.ok(&[&publish[..], &by].concat());
    assert_eq!(printed.matches("kind: ClusterRoleBinding").count(), 2, "{printed}");
    let diff = owner.run(&[&publish[..], &by, &["--diff"]].concat());
    assert!(diff.out.contains("insula:bind:boats:user:bob"), "{diff:?}");
    let applied = owner.ok(&[&publish[..], &by, &["--apply"]].concat());
    assert!(
        applied.contains("insula:bind:boats:group:system:authenticated"),
        "{applied}"
    );
    let again = owner.ok(&[&publish[..], &by, &["--apply"]].concat());
    assert!(!again.contains("created"), "{again}");
    let alice = Shell::user(&server, "alice-token", &format!("/clusters/{tenant}"));
    alice.ok(&["bind", "apiexport", &format!("{provider}:boats")]);
    // A role of the name that grants more is not taken for the right to bind.
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/insula:bind:boats";
    let wider = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    admin.in_workspace(&provider).merge(role, &wider).expect(200);
    let refused = owner.run(&[&publish[..], &by, &["--apply"]].concat());
    assert!(refused.error.contains("grants something else"), "{refused:?}");
}

#[test]
fn apis_to_bind_are_listed_with_what_their_owners_say() {
    let server = shared();
    let scene = Scene::new(&server);
    let (export, owner, alice) = (scene.export(), &scene.owner, &scene.alice);
    let at = server.admin().in_workspace(&scene.provider);
    let annotate =
        |annotations: serde_json::Value| at.merge(EXPORT, &json!({"metadata": {"annotations": annotations}}));
    annotate(
        json!({"apis.insula.io/title": "Widgets", "apis.insula.io/owner": "team-widgets",
        "apis.insula.io/docs": "https://docs.example.io/widgets"}),
    )
    .expect(200);
    // An export that is neither bindable nor listed does not exist for alice.
    let lists = |arguments: &[&str]| alice.run(&[&["apis"][..], arguments].concat()).out.contains(&export);
    assert!(!lists(&[]) && !lists(&["--all"]));
    let hidden = alice.fails(&["apis", "show", &export]);
    let missing = alice.fails(&["apis", "show", &format!("{}:gears", scene.provider)]);
    assert_eq!(hidden.replace("widgets", "gears"), missing);
    // Listed, it is shown to those who ask for all.
    annotate(json!({"apis.insula.io/listed": "true"})).expect(200);
    assert!(!lists(&[]) && lists(&["--all"]));
    let shown = alice.ok(&["apis", "show", &export]);
    assert!(
        shown.contains("ask its owner") && shown.contains("team-widgets"),
        "{shown}"
    );
    annotate(json!({"apis.insula.io/listed": "false"})).expect(200);
    assert!(!lists(&["--all"]));
    // The right to bind shows it in any case.
    owner.ok(&["access", "grant", "alice", "--bind", "widgets"]);
    let list = alice.ok(&["apis", "-o", "json"]);
    let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
    let api = list.iter().find(|api| api["workspace"] == *scene.provider).unwrap();
    assert_eq!(api["title"], "Widgets", "{api}");
    assert_eq!(api["resources"][0]["versions"][0]["name"], "v1", "{api}");
    assert_eq!((&api["bindable"], api.get("binding")), (&json!(true), None), "{api}");
    let shown = alice.ok(&["apis", "show", &export]);
    for line in [
        "https://docs.example.io/widgets",
        "may bind",
        &format!("insula bind apiexport {export}"),
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    alice.ok(&["bind", "apiexport", &export, "--name", "mine"]);
    let row = alice.ok(&["apis"]);
    assert!(row.contains("bound by mine"), "{row}");
    // What others print has limits.
    for (name, value) in [
        ("title", "x".repeat(101)),
        ("description", "a\u{1b}[2J".to_owned()),
        ("docs", "javascript:alert(1)".to_owned()),
        ("listed", "yes".to_owned()),
    ] {
        let key = format!("apis.insula.io/{name}");
        let refused = annotate(json!({&key: value})).expect(403);
        assert!(refused["message"].as_str().unwrap().contains(&key), "{refused}");
    }
    // A tenant asks for nobody else's workspace.
    let foreign = alice.fails(&["apis", "-W", &scene.provider]);
    assert!(foreign.contains("forbidden"), "{foreign}");
}
