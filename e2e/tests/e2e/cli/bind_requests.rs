//! Requests for the right to bind an API: made, approved and denied by commands and by kubectl.

use insula_e2e::{Kubectl, Server, publish_widgets, run_bounded, shared, until, workspace, workspace_owned_by};
use serde_json::{Value, json};
use std::time::Duration;

use super::Shell;

const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";

/// A provider's workspace with the listed export `widgets`, and a workspace of alice.
struct Scene {
    provider: String,
    owner: Shell,
    alice: Shell,
}

impl Scene {
    fn new(server: &Server) -> Self {
        let admin = server.admin();
        let (provider, _) = workspace(&admin, "provider");
        let at = admin.in_workspace(&provider);
        publish_widgets(&at);
        let annotations = json!({"apis.insula.io/listed": "true", "apis.insula.io/requests": "allowed"});
        at.merge(EXPORT, &json!({"metadata": {"annotations": annotations}}))
            .expect(200);
        let (tenant, _) = workspace_owned_by(server, "alice");
        let owner = Shell::admin(server);
        owner.ok(&["ws", &format!(":{provider}")]);
        let alice = Shell::user(server, "alice-token", &format!("/clusters/{tenant}"));
        Self { provider, owner, alice }
    }

    fn export(&self) -> String {
        format!("{}:widgets", self.provider)
    }

    /// Asks as alice, and returns the name of the request.
    fn request(&self) -> String {
        let made = self.alice.ok(&[
            "apis",
            "request",
            &self.export(),
            "--reason",
            "for the shop",
            "-o",
            "json",
        ]);
        let made: Value = serde_json::from_str(&made).unwrap();
        made["name"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_request_is_approved_by_one_command() {
    let server = shared();
    let scene = Scene::new(&server);
    let (export, owner, alice) = (scene.export(), &scene.owner, &scene.alice);
    let shown = alice.ok(&["apis", "show", &export]);
    assert!(
        shown.contains("may ask") && shown.contains(&format!("insula apis request {export}")),
        "{shown}"
    );
    let plan = alice.ok(&["apis", "request", &export, "--dry-run"]);
    assert_eq!(plan, format!("you may ask for {export}\n"));
    let none = alice.run(&["apis", "requests", "--mine"]);
    assert!(!none.out.contains(&export), "{none:?}");
    let made = alice.ok(&["apis", "request", &export, "--reason", "for the shop"]);
    assert!(
        made.contains(&format!("asks for {export}; it waits for a decision until")),
        "{made}"
    );
    let again = alice.ok(&["apis", "request", &export]);
    assert!(again.contains("since you asked before: pending"), "{again}");
    let name = scene.request();
    let listed = owner.ok(&["apis", "requests"]);
    for part in [&*name, &*export, "alice", "pending", "for the shop"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(alice.ok(&["apis", "show", &export]).contains("request pending"));
    let foreign = alice.fails(&["apis", "approve", &name, "-W", &scene.provider]);
    assert!(foreign.contains("forbidden"), "{foreign}");
    let approved = owner.ok(&["apis", "approve", &name, "--message", "welcome"]);
    assert_eq!(approved, format!("user alice may bind {export}\n"));
    let mine = alice.ok(&["apis", "requests", "--mine"]);
    assert!(mine.contains("granted") && mine.contains("welcome"), "{mine}");
    alice.ok(&["bind", "apiexport", &export]);
    let missing = owner.fails(&["apis", "approve", "nothing"]);
    assert!(missing.contains("not found"), "{missing}");
}

#[test]
fn a_request_is_denied_by_one_command() {
    let server = shared();
    let scene = Scene::new(&server);
    let (export, owner, alice) = (scene.export(), &scene.owner, &scene.alice);
    let name = scene.request();
    let denied = owner.ok(&["apis", "deny", &name, "--message", "use gears"]);
    assert_eq!(denied, format!("request {name} of user alice for {export} is denied\n"));
    let shown = alice.ok(&["apis", "show", &export]);
    assert!(
        shown.contains("request denied") && shown.contains("use gears"),
        "{shown}"
    );
    let refused = alice.fails(&["bind", "apiexport", &export]);
    assert!(refused.contains("no permission to bind"), "{refused}");
}

#[test]
fn a_request_is_approved_by_kubectl() {
    let server = shared();
    let scene = Scene::new(&server);
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let name = scene.request();
    let run = |arguments: &[&str]| {
        let ran = run_bounded(
            &mut kubectl.command(&scene.provider, arguments),
            "",
            Duration::from_secs(60),
        );
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let table = run(&["get", "apibindrequests"]);
    assert!(table.contains("REQUESTER") && table.contains("alice"), "{table}");
    let patch = r#"{"spec": {"decision": "Approved"}}"#;
    run(&["patch", "apibindrequest", &name, "--type", "merge", "-p", patch]);
    run(&[
        "wait",
        "apibindrequest",
        &name,
        "--for=condition=Granted",
        "--timeout=20s",
    ]);
    until("alice may bind", || {
        (scene.alice.run(&["bind", "apiexport", &scene.export()]).code == 0).then_some(())
    });
}
