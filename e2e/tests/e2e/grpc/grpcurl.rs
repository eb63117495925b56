//! The flow of `docs/guides/grpc-clients.md` with grpcurl, as a reader pastes it.

use std::{fs, path::PathBuf, process::Command};

use insula_e2e::{Server, run_bounded, shared, unique, until};

/// Programs of the flow.
const NEEDED: [&str; 2] = ["grpcurl", "jq"];
const GUIDE: &str = "docs/guides/grpc-clients.md";

fn is_there(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    found.is_ok_and(|found| found.status.success())
}

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Returns the first block of the section of the guide about a shell.
fn commands() -> String {
    let guide = fs::read_to_string(file(GUIDE)).unwrap();
    let section = guide.split("## A shell").nth(1).expect("the section");
    let block = section
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    block.expect("its commands").to_owned()
}

/// Runs the commands, with the server's address and files for those of the guide.
fn run(server: &Server, commands: &str, tenant: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(file("e2e/clients/lamps.json"), folder.path().join("lamps.json")).unwrap();
    let pki = server.data_dir().join("pki");
    let script = commands
        .replace(".insula/pki", pki.to_str().unwrap())
        .replace("127.0.0.1:6443", server.address())
        .replace("acme", tenant);
    let mut bash = Command::new("bash");
    bash.args(["-e", "-o", "pipefail", "-c", &script])
        .current_dir(folder.path());
    let ran = run_bounded(&mut bash, "", insula_e2e::PATIENCE);
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        ran.status.success(),
        "{script}\n{out}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    out
}

#[test]
fn the_commands_of_the_guide() {
    let missing: Vec<&str> = NEEDED.into_iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        eprintln!("skipped: {missing:?} not on PATH (go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3)");
        return;
    }
    let (server, tenant) = (shared(), unique("curl"));
    let commands = commands();
    let out = run(&server, &commands, &tenant);
    assert!(out.contains(&format!("root:{tenant}-provider")), "{out}");
    // The guide's last command shows the rollout, and is asked until it is complete.
    let (calls, last) = commands.trim_end().rsplit_once('\n').unwrap();
    let function = calls.split_inclusive("\n}\n").next().unwrap();
    let again = format!("{function}{last}");
    until("the rollout is complete", || {
        let out = run(&server, &again, &tenant);
        let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
        let rollout = &answer["export"]["rollout"];
        (rollout["bindings"] == "1" && rollout["current"] == "1").then_some(())
    });
}
