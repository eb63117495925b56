//! kubectl as users run it, on our kinds and on bound resources.

use std::{io::BufRead, process::Stdio};

use insula_e2e::{Kubectl, shared, story, until, workspace};
use serde_json::json;

stories!("kubectl": bound, kinds);

/// `kubectl edit` reads, lets an editor change, and patches.
#[test]
fn edit_changes_what_the_editor_changed() {
    let server = shared();
    let Some(kubectl) = Kubectl::of(&server) else { return };
    let admin = server.admin();
    let (path, _) = workspace(&admin, "edit");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "before"}});
    admin
        .at(&path)
        .post("/api/v1/namespaces/default/configmaps", &map)
        .expect(201);
    let mut edit = kubectl.command(&path, &["edit", "configmap", "a"]);
    edit.env("KUBE_EDITOR", "sed -i s/before/after/");
    let output = insula_e2e::run_bounded(&mut edit, "", std::time::Duration::from_secs(60));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("configmap/a edited"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let now = admin
        .at(&path)
        .get("/api/v1/namespaces/default/configmaps/a")
        .expect(200);
    assert_eq!(now["data"]["x"], "after");
}

/// `kubectl get -w` prints what is there, then what comes.
#[test]
fn get_w_prints_changes_as_they_come() {
    let server = shared();
    let Some(kubectl) = Kubectl::of(&server) else { return };
    let admin = server.admin();
    let (path, _) = workspace(&admin, "follow");
    let client = admin.at(&path);
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
fn the_contexts_work_as_they_are() {
    let server = shared();
    if Kubectl::of(&server).is_none() {
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

/// The same story by the cluster's name instead of its path is part of `kinds`; here bound resources.
#[test]
fn two_users_of_kubectl_do_not_see_each_other() {
    let both = [(); 2].map(|()| std::thread::spawn(|| story("kubectl/bound")));
    both.into_iter().for_each(|one| one.join().unwrap());
}
