//! `-o` of commands that change something, and of checks: objects as they are stored, and names.

use insula_e2e::{publish_widgets, shared, until, workspace};
use serde_json::{Value, json};

use super::Shell;

const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";
const BINDINGS: &str = "/apis/apis.kcp.io/v1alpha2/apibindings";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn json_of(shell: &Shell, arguments: &[&str]) -> Value {
    let text = shell.ok(&[arguments, &["-o", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {text}"))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn what_a_command_makes_is_printed_as_it_is_stored() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at = server.admin().in_workspace(&provider);
    publish_widgets(&at);
    let claims = json!([{"resource": "configmaps", "verbs": ["get"]}]);
    at.merge(EXPORT, &json!({"spec": {"permissionClaims": claims}}))
        .expect(200);
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{provider}")]);

    let made = json_of(&shell, &["ws", "create", "acme"]);
    let stored = at.get("/apis/tenancy.kcp.io/v1alpha1/workspaces/acme").expect(200);
    assert_eq!(
        (&made["kind"], &made["status"]["phase"]),
        (&json!("Workspace"), &json!("Ready"))
    );
    assert_eq!(
        (&made["metadata"]["uid"], &made["spec"]),
        (&stored["metadata"]["uid"], &stored["spec"])
    );
    let yaml = shell.ok(&["create-workspace", "acme", "--ignore-existing", "-o", "yaml"]);
    assert!(
        yaml.contains("phase: Ready") && !yaml.contains("is ready to use"),
        "{yaml}"
    );
    assert_eq!(shell.ok(&["ws", "create", "below", "--enter", "-o", "name"]), "below\n");
    assert_eq!(shell.ok(&["ws", ".", "--short"]), format!("{provider}:below\n"));

    let export = format!("{provider}:widgets");
    let tenant = server.admin().in_workspace(&format!("{provider}:below"));
    let bound = json_of(&shell, &["bind", "apiexport", &export]);
    assert_eq!(bound["status"]["phase"], "Bound", "{bound:#}");
    let accept = ["claims", "accept", "widgets", "--resource", "configmaps"];
    let accepted = json_of(&shell, &accept);
    let stored = tenant.get(&format!("{BINDINGS}/widgets")).expect(200);
    assert_eq!(accepted["spec"], stored["spec"]);
    assert_eq!(accepted["spec"]["permissionClaims"][0]["state"], "Accepted");
    assert_eq!(shell.ok(&[&accept[..], &["-o", "name"]].concat()), "widgets\n");
    let unbound = json_of(&shell, &["unbind", "widgets", "--yes"]);
    assert_eq!(
        (&unbound["name"], &unbound["binding"]["export"]),
        (&json!("widgets"), &json!("widgets"))
    );
    assert_eq!(shell.ok(&["bind", "apiexport", &export, "-o", "name"]), "widgets\n");
    assert_eq!(shell.ok(&["unbind", "widgets", "--dry-run", "-o", "name"]), "widgets\n");

    assert!(shell.ok(&["apis", "-o", "name"]).lines().any(|line| line == export));
    assert_eq!(
        shell.ok(&["apis", "show", &export, "-o", "name"]),
        format!("{export}\n")
    );
}

#[test]
fn what_a_grant_makes_is_printed_as_it_is_stored() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let at = server.admin().in_workspace(&provider);
    publish_widgets(&at);
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{provider}")]);
    let grant = ["access", "grant", "bob", "--role", "edit"];
    let granted = json_of(&shell, &grant);
    let levels = ["insula:access:access:user:bob", "insula:access:edit:user:bob"];
    assert_eq!(names(&granted), levels);
    let stored = at.get(&format!("{ROLE_BINDINGS}/{}", levels[1])).expect(200);
    assert_eq!(
        (&granted[1]["roleRef"], &granted[1]["metadata"]),
        (&stored["roleRef"], &stored["metadata"])
    );
    // A repetition finds them.
    assert_eq!(json_of(&shell, &grant), granted);
    assert_eq!(names(&json_of(&shell, &["access", "revoke", "bob"])), levels);
    assert_eq!(shell.ok(&["access", "revoke", "bob", "-o", "name"]), "");
    let on_export = ["access", "grant", "bob", "--bind", "widgets", "-o", "name"];
    assert_eq!(
        shell.ok(&on_export),
        "insula:bind:widgets\ninsula:bind:widgets:user:bob\n"
    );
}

/// A backup in a file is printed as one that a server keeps.
#[test]
fn a_backup_in_a_file_and_the_findings_of_a_check_have_names() {
    let server = shared();
    let shell = Shell::admin(&server);
    assert_eq!(shell.ok(&["backup", "create", "taken", "-o", "name"]), "taken\n");
    let verified = json_of(&shell, &["backup", "verify", "taken"]);
    let text = shell.ok(&["backup", "verify", "taken"]);
    let hash = format!("sha256 {}\n", verified["sha256"].as_str().unwrap());
    assert!(
        text.ends_with(&hash) && verified["revision"].is_u64(),
        "{text}{verified:#}"
    );
    let restored = shell.ok(&["backup", "restore", "taken", "--to", "new", "-o", "name"]);
    assert_eq!(restored, "taken\n");
    let found = shell.run(&["doctor", "-o", "name"]);
    assert!(found.code < 2 && found.out.lines().count() > 3, "{found:?}");
}

/// The names of a check are those that `--accept` takes, and the names of a write its objects.
#[test]
fn a_check_names_its_effects() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{provider}")]);
    let publish = |properties: Value, flags: &[&str]| {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "kites.outputs.example.io"},
            "spec": {"group": "outputs.example.io", "scope": "Namespaced",
                "names": {"plural": "kites", "singular": "kite", "kind": "Kite", "listKind": "KiteList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}]},
        });
        std::fs::write(shell.home.path().join("kites.json"), definition.to_string()).unwrap();
        let publish = ["export", "publish", "-f", "kites.json", "--name", "kites", "-o", "name"];
        shell.ok(&[&publish[..], flags].concat())
    };
    let tail = json!({"tail": {"type": "string"}});
    publish(json!({}), &["--apply"]);
    shell.ok(&["bind", "apiexport", &format!("{provider}:kites")]);
    let applied = publish(tail, &["--apply", "--wait"]);
    assert!(applied.lines().any(|line| line == "kites"), "{applied}");
    let removed = "field-removed:kites.outputs.example.io/v1:.tail\n";
    assert_eq!(publish(json!({}), &["--check"]), removed);
    let rollback = ["export", "rollback", "kites", "-o", "name"];
    assert_eq!(shell.ok(&[&rollback[..], &["--check"]].concat()), removed);
    let written = shell.ok(&rollback);
    assert!(written.lines().any(|line| line == "kites"), "{written}");
}

/// Programs read one document, whatever flags look at stored objects before a write.
#[test]
fn a_publication_prints_one_document() {
    let server = shared();
    let (provider, _) = workspace(&server.admin(), "provider");
    let shell = Shell::admin(&server);
    shell.ok(&["ws", &format!(":{provider}")]);
    let run = |fields: Value, flags: &[&str]| {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "drums.documents.example.io"},
            "spec": {"group": "documents.example.io", "scope": "Namespaced",
                "names": {"plural": "drums", "singular": "drum", "kind": "Drum", "listKind": "DrumList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}}]},
        });
        std::fs::write(shell.home.path().join("drums.json"), definition.to_string()).unwrap();
        let publish = ["export", "publish", "-f", "drums.json", "--name", "drums", "-o", "json"];
        let ran = shell.run(&[&publish[..], flags].concat());
        let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        (ran.code, document, ran.error)
    };
    let skin = || json!({"skin": {"type": "string"}});
    let (code, steps, error) = run(skin(), &["--apply"]);
    assert!(code == 0 && steps[0]["action"] == "created", "{steps} {error}");
    shell.ok(&["bind", "apiexport", &format!("{provider}:drums")]);
    let drum = json!({"apiVersion": "documents.example.io/v1", "kind": "Drum", "metadata": {"name": "a"},
        "skin": "calf"});
    let drums = "/apis/documents.example.io/v1/namespaces/default/drums";
    until("drums are served", || {
        let created = server.admin().in_workspace(&provider).post(drums, &drum);
        (created.code == 201).then_some(())
    });
    let (code, steps, error) = run(skin(), &["--check", "--apply", "--wait"]);
    assert!(code == 0 && steps[0]["action"] == "unchanged", "{steps} {error}");
    assert!(error.contains("all 1 stored objects can be read"), "{error}");
    for flags in [&["--check"][..], &["--apply"], &["--check", "--apply"]] {
        let (code, trials, error) = run(json!({}), flags);
        assert!(
            code == 1 && trials[0]["effects"][0]["id"] == "field-removed:drums.documents.example.io/v1:.skin",
            "{flags:?} {trials} {error}"
        );
    }
    let (code, steps, error) = run(json!({}), &["--apply", "--wait", "--accept", "field-removed=1"]);
    assert!(code == 0 && steps[0]["action"] == "created", "{steps} {error}");
    let rolled_back = shell.ok(&["export", "rollback", "drums", "-o", "json", "--wait"]);
    let document: Value = serde_json::from_str(&rolled_back).unwrap();
    assert!(document["steps"].is_array(), "{document}");
}
