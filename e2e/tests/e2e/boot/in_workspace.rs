//! `insula boot run in-workspace`: a workspace offers the APIs of a project as long as the command
//! runs.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use insula_e2e::{Kubectl, Server, Setup, insula, until, unused_port, workspace};
use serde_json::json;

use super::Project;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// A running command, killed if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the command, and waits until it serves.
fn start(project: &Project, server: &Server, workspace: &str, listen: &str) -> Running {
    let mut command = insula(&[
        "boot",
        "run",
        "in-workspace",
        "--workspace",
        workspace,
        "--listen",
        listen,
    ]);
    project.0.environment(&mut command);
    command.env("KUBECONFIG", server.kubeconfig());
    command.current_dir(project.0.project()).stderr(Stdio::inherit());
    let mut running = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let served = lines.any(|line| line.starts_with("serving"));
    assert!(served, "the command ended with {:?}", running.0.wait());
    // Later lines have to go somewhere.
    std::thread::spawn(move || lines.count());
    running
}

pub(super) fn offers_and_withdraws(project: &Project) {
    let server = Server::with(Setup {
        flags: ["--webhook-allow", "127.0.0.1"].map(str::to_owned).into(),
        ..Setup::default()
    });
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let admin = server.admin();
    let (path, _) = workspace(&admin, "acme");
    let client = admin.in_workspace(&path);
    // As a command that was killed leaves it.
    let left = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.ships.example.com", "annotations": {"insula.io/url": "https://127.0.0.1:1"}},
        "spec": {"group": "ships.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": {"namespace": "default", "name": "harbour"}}});
    client.post(SERVICES, &left).expect(201);
    let listen = format!("127.0.0.1:{}", unused_port());
    let mut running = start(project, &server, &path, &listen);
    let run = |arguments: &[&str], stdin: &str| {
        let ran = kubectl.run(&path, arguments, stdin);
        assert_eq!(ran.code, 0, "kubectl {}: {}", arguments.join(" "), ran.text);
        ran.text
    };
    let sample = project.read("samples/ships_v1_boat.yaml");
    run(&["apply", "--server-side", "-f", "-"], &sample);
    assert!(run(&["get", "boats"], "").contains("example"));
    assert!(run(&["explain", "boat.spec.message"], "").contains("A text for people"));
    let dock = format!("/clusters/{path}/apis/ships.example.com/v1/namespaces/default/boats/example/dock");
    // kubectl 1.35 appends the path to that of the server's URL.
    let raw = ["create", "--raw", &dock, "-f", "-", "--server", server.url()];
    let answer = run(&raw, "{\"reason\": \"repairs\"}");
    assert!(answer.contains("dock was asked for: repairs"), "{answer}");
    until("the controller has seen the boat", || {
        let seen = "jsonpath={.status.observedGeneration}";
        (run(&["get", "boat", "example", "-o", seen], "") == "1").then_some(())
    });
    account_has_its_rights(project, &run);
    let boats = "/apis/ships.example.com/v1/boats";
    assert_eq!(admin.in_workspace("root").get(boats).code, 404, "another workspace");
    // It takes back what it offered.
    let id = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(running.0.wait().unwrap().success());
    assert_eq!(client.get(SERVICES).expect(200)["items"], json!([]));
    assert_eq!(client.get(boats).code, 404);
    std::net::TcpListener::bind(&listen).expect("the server of the project has ended");
}

/// Checks that the account of the generated manifests may do what an extension server has to.
fn account_has_its_rights(project: &Project, run: &dyn Fn(&[&str], &str) -> String) {
    run(&["apply", "-f", "-"], &project.read("config/rbac.yaml"));
    let account = "--as=system:serviceaccount:default:harbour";
    for (verb, what) in [
        ("create", "tokenreviews.authentication.k8s.io"),
        ("create", "subjectaccessreviews.authorization.k8s.io"),
        ("get", "configmaps/extension-apiserver-authentication"),
    ] {
        let may = ["auth", "can-i", verb, what, "--namespace=kube-system", account];
        assert!(run(&may, "").starts_with("yes"), "{verb} {what}");
    }
}
