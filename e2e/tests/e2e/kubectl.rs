//! kubectl as users run it, on built-in kinds and on bound resources.

use std::{io::BufRead, process::Stdio};

use insula_e2e::{Kubectl, Who, run_script, shared, until, workspace};
use serde_json::{Value, json};

// One test for each script of `e2e/scripts/kubectl`.
include!(concat!(env!("OUT_DIR"), "/kubectl.rs"));

/// `kubectl edit` reads, lets an editor change, and patches.
#[test]
fn edit_patches_the_changed_fields() {
    let server = shared();
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let (path, _) = workspace(&admin, "edit");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "before"}});
    admin
        .in_workspace(&path)
        .post("/api/v1/namespaces/default/configmaps", &map)
        .expect(201);
    let mut edit = kubectl.command(&path, &["edit", "configmap", "a"]);
    edit.env("KUBE_EDITOR", "sed -i s/before/after/");
    let output = insula_e2e::run_bounded(&mut edit, "", std::time::Duration::from_secs(60));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("configmap/a edited"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let now = admin
        .in_workspace(&path)
        .get("/api/v1/namespaces/default/configmaps/a")
        .expect(200);
    assert_eq!(now["data"]["x"], "after");
}

/// `kubectl delete --cascade` deletes dependents after their owner, before it, or not at all.
#[test]
fn delete_cascades_by_the_chosen_policy() {
    let server = shared();
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let (path, _) = workspace(&admin, "cascade");
    let client = admin.in_workspace(&path);
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let make = |name: &str, owner: Option<&Value>| {
        let owners: Vec<Value> = owner
            .map(|owner| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
            })
            .into_iter()
            .collect();
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
        client.post(MAPS, &map).expect(201)
    };
    for cascade in ["background", "foreground", "orphan"] {
        let (owner, child) = (format!("{cascade}-owner"), format!("{cascade}-child"));
        let parent = make(&owner, None);
        let grown = make(&child, Some(&parent));
        make(&format!("{cascade}-grandchild"), Some(&grown));
        let how = format!("--cascade={cascade}");
        let ran = kubectl.run(&path, &["delete", "configmap", &owner, &how, "--timeout=60s"], "");
        assert!(ran.text.contains("deleted"), "{cascade}: {}", ran.text);
        client.get(&format!("{MAPS}/{owner}")).expect(404);
        for name in [&child, &format!("{cascade}-grandchild")] {
            let url = format!("{MAPS}/{name}");
            match cascade {
                // kubectl waited for the owner, and the owner for these.
                "foreground" => drop(client.get(&url).expect(404)),
                "background" => until("the dependents are gone", || {
                    (client.get(&url).code == 404).then_some(())
                }),
                _ => drop(client.get(&url).expect(200)),
            }
        }
    }
    let kept = client.get(&format!("{MAPS}/orphan-child")).expect(200);
    assert!(kept["metadata"].get("ownerReferences").is_none(), "{kept}");
}

/// `kubectl get -w` prints the current objects, then each change.
#[test]
fn get_watch_prints_changes() {
    let server = shared();
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let (path, _) = workspace(&admin, "follow");
    let client = admin.in_workspace(&path);
    let child =
        |name: &str| json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}});
    client
        .post("/apis/tenancy.kcp.io/v1alpha1/workspaces", &child("first"))
        .expect(201);
    let mut command = kubectl.command(&path, &["get", "workspaces", "-w", "--no-headers"]);
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
    let mut seen = String::new();
    let mut wait = |what: &[&str]| {
        until("kubectl prints it", || {
            seen.extend(receive.try_iter().map(|line| line + "\n"));
            seen.lines()
                .any(|line| what.iter().all(|part| line.contains(part)))
                .then_some(())
        });
    };
    wait(&["first"]);
    client
        .post("/apis/tenancy.kcp.io/v1alpha1/workspaces", &child("second"))
        .expect(201);
    wait(&["second", "Ready"]);
    process.kill().unwrap();
    process.wait().unwrap();
    drop(receive);
    let _ = reader.join();
}

/// The contexts of the kubeconfig work as they are, without a `--server`.
#[test]
fn the_kubeconfig_contexts_work() {
    let server = shared();
    if Kubectl::for_server(&server).is_none() {
        return;
    }
    for (context, arguments) in [
        ("root", vec!["get", "workspaces"]),
        ("base", vec!["get", "--raw", "/clusters/root/api/v1/namespaces/default"]),
        ("system:admin", vec!["get", "namespaces"]),
    ] {
        let mut command = std::process::Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .args(["--context", context])
            .args(&arguments);
        command.env("HOME", server.data_dir());
        let output = insula_e2e::run_bounded(&mut command, "", std::time::Duration::from_secs(60));
        assert!(
            output.status.success(),
            "{context}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Two users of kubectl on bound resources. `kinds` runs the same script by the cluster's name
/// instead of its path.
#[test]
fn two_users_of_kubectl_do_not_see_each_other() {
    let both = [(); 2].map(|()| std::thread::spawn(|| run_script("kubectl/bound")));
    both.into_iter().for_each(|one| one.join().unwrap());
}

/// The name of a kind in kubectl, a condition to wait for, and the manifest of an object.
type Sample = (&'static str, Option<&'static str>, Value);

/// Returns an object of each kind of workspaces and their APIs.
fn api_samples(provider: &str) -> Vec<Sample> {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    let names = |plural: &str, kind: &str| {
        json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
        "listKind": format!("{kind}List")})
    };
    let version = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let crd_version = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    let kcp = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": kind,
        "metadata": {"name": name}, "spec": spec})
    };
    vec![
        (
            "workspace",
            Some("jsonpath={.status.phase}=Ready"),
            json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "one"}}),
        ),
        (
            "apiresourceschema",
            None,
            kcp(
                "APIResourceSchema",
                "v1.ones.example.io",
                json!({"group": "example.io", "scope": "Cluster", "names": names("ones", "One"), "versions": version}),
            ),
        ),
        (
            "apiconversion",
            None,
            kcp("APIConversion", "v1.ones.example.io", json!({"conversions": []})),
        ),
        (
            "apiexport.v1alpha1.apis.kcp.io",
            Some("condition=IdentityValid"),
            kcp(
                "APIExport",
                "ones",
                json!({"latestResourceSchemas": ["v1.ones.example.io"]}),
            ),
        ),
        ("apibinding", Some("condition=Ready"), {
            let mut binding = kcp(
                "APIBinding",
                "widgets",
                json!({"reference": {"export": {"path": provider, "name": "widgets"}}}),
            );
            binding["apiVersion"] = "apis.kcp.io/v1alpha2".into();
            binding
        }),
        (
            "customresourcedefinition",
            Some("condition=Established"),
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "twos.two.example.io"},
                "spec": {"group": "two.example.io", "scope": "Cluster", "names": names("twos", "Two"),
                "versions": crd_version}}),
        ),
    ]
}

/// Returns an object of kinds with content of tenants: built-in ones and a bound one.
fn content_samples() -> Vec<Sample> {
    vec![
        (
            "namespace",
            Some("jsonpath={.status.phase}=Active"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}}),
        ),
        (
            "configmap",
            None,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}}),
        ),
        (
            "secret",
            None,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "type": "Opaque",
                "data": {"a": "Yg=="}}),
        ),
        (
            "widgets.v1.example.io",
            None,
            json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "one"},
                "spec": {"firstName": "a"}}),
        ),
        (
            "widgets.v2.example.io",
            None,
            json!({"apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": "two"},
                "spec": {"name": {"first": "a"}}}),
        ),
    ]
}

/// kubectl in one workspace, named by its path or by its logical cluster.
struct Users {
    kubectl: Kubectl,
    path: String,
    cluster: String,
}

impl Users {
    /// Runs kubectl and checks its output. Even numbers name the workspace by its path, odd ones by
    /// its logical cluster.
    fn run(&self, i: usize, arguments: &[&str], stdin: &str, wanted: &str) {
        let workspace = if i.is_multiple_of(2) { &self.path } else { &self.cluster };
        let ran = self.kubectl.run(workspace, arguments, stdin);
        assert!(
            ran.code == 0 && ran.text.contains(wanted),
            "kubectl {arguments:?} in {workspace}: {}\nwant {wanted}",
            ran.text
        );
    }
}

/// Runs `create`, `wait` and `get`.
fn create_and_get(users: &Users, (kind, condition, manifest): &Sample) {
    let (name, text) = (manifest["metadata"]["name"].as_str().unwrap(), manifest.to_string());
    users.run(0, &["create", "-f", "-"], &text, "created");
    if let Some(condition) = condition {
        users.run(
            1,
            &["wait", kind, name, &format!("--for={condition}"), "--timeout=30s"],
            "",
            "condition met",
        );
    }
    users.run(2, &["get", kind], "", name);
    users.run(3, &["get", kind, name, "-o", "yaml"], "", &format!("name: {name}"));
}

/// Runs `label`, `annotate` and `patch`.
fn label_and_patch(users: &Users, (kind, _, manifest): &Sample) {
    let name = manifest["metadata"]["name"].as_str().unwrap();
    users.run(4, &["label", kind, name, "a=b"], "", "labeled");
    users.run(5, &["annotate", kind, name, "a=b"], "", "annotated");
    users.run(
        6,
        &[
            "patch",
            kind,
            name,
            "--type=merge",
            "-p",
            r#"{"metadata":{"labels":{"m":"1"}}}"#,
        ],
        "",
        "patched",
    );
    users.run(
        7,
        &[
            "patch",
            kind,
            name,
            "--type=json",
            "-p",
            r#"[{"op":"add","path":"/metadata/labels/j","value":"2"}]"#,
        ],
        "",
        "patched",
    );
}

/// Runs `apply` twice, and `get` by the labels of all writes.
fn apply_and_select(users: &Users, (kind, _, manifest): &Sample) {
    let name = manifest["metadata"]["name"].as_str().unwrap();
    let mut labelled = manifest.clone();
    labelled["metadata"]["labels"] = json!({"applied": "yes"});
    users.run(8, &["apply", "-f", "-"], &labelled.to_string(), "configured");
    users.run(9, &["apply", "-f", "-"], &labelled.to_string(), "unchanged");
    users.run(0, &["get", kind, "-l", "a=b,m=1,j=2,applied=yes"], "", name);
}

/// Runs `replace` and `edit`.
fn replace_and_edit(users: &Users, (kind, _, manifest): &Sample) {
    let name = manifest["metadata"]["name"].as_str().unwrap();
    let ran = users.kubectl.run(&users.path, &["get", kind, name, "-o", "json"], "");
    let mut whole: Value = serde_json::from_str(&ran.text).unwrap_or_else(|_| panic!("{}", ran.text));
    whole["metadata"]["labels"] = json!({"replaced": "yes"});
    // Controllers may write the status meanwhile.
    whole["metadata"]["resourceVersion"].take();
    users.run(1, &["replace", "-f", "-"], &whole.to_string(), "replaced");
    let mut edit = users.kubectl.command(&users.path, &["edit", kind, name]);
    edit.env("KUBE_EDITOR", "sed -i 's/replaced: \"yes\"/replaced: edited/'");
    let output = insula_e2e::run_bounded(&mut edit, "", std::time::Duration::from_secs(60));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("edited"), "kubectl edit {kind}: {printed}");
    users.run(2, &["get", kind, "-l", "replaced=edited", "-o", "name"], "", name);
}

fn explain(users: &Users, (kind, _, manifest): &Sample) {
    let mut parts = kind.splitn(3, '.');
    let resource = parts.next().unwrap();
    let version = manifest["apiVersion"].as_str().unwrap();
    users.run(
        3,
        &["explain", resource, &format!("--api-version={version}")],
        "",
        "FIELDS:",
    );
}

/// Each verb of the list on each kind of the list, every other one by the name of the cluster
/// instead of its path.
#[test]
fn every_verb_works_on_every_kind() {
    let server = shared();
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let ((provider, _), (path, cluster)) = (workspace(&admin, "verbs-provider"), workspace(&admin, "verbs"));
    insula_e2e::publish_widgets(&admin.in_workspace(&provider));
    let users = Users { kubectl, path, cluster };
    let samples = [api_samples(&provider), content_samples()].concat();
    for sample in &samples {
        create_and_get(&users, sample);
        label_and_patch(&users, sample);
        apply_and_select(&users, sample);
        replace_and_edit(&users, sample);
        explain(&users, sample);
    }
    for (kind, _, manifest) in samples.iter().rev() {
        users.run(
            4,
            &[
                "delete",
                kind,
                manifest["metadata"]["name"].as_str().unwrap(),
                "--timeout=30s",
            ],
            "",
            "deleted",
        );
    }
}

/// A kubeconfig whose server has no workspace in its URL is the first mistake that users make.
#[test]
fn a_url_without_a_workspace_says_so() {
    const FIX: &str = "the URL names no workspace: end the server's URL with one, as in \
        https://HOST/clusters/root:org:team";
    let server = shared();
    for user in ["alice-token", "dave-token"] {
        let user = server.client(Who::Token(user.into()));
        let refused = user.get("/api/v1/namespaces").expect(403);
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("access denied; {FIX}")), "{message}");
        let refused = user.get("/clusters/*/api/v1/namespaces").expect(403);
        assert!(!refused["message"].as_str().unwrap().contains(FIX), "{refused}");
    }
    let absent = server.admin().get("/apis").expect(404);
    assert_eq!(
        (&absent["message"], &absent["reason"]),
        (&json!(FIX), &json!("NotFound"))
    );
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let ran = kubectl.run("root", &["--server", server.url(), "get", "namespaces"], "");
    assert!(ran.text.contains(FIX), "{}", ran.text);
}
