//! Tests of the demonstration: its lines, its exit code, and its commands run in a shell.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

const STEPS: [&str; 16] = [
    "start",
    "ready",
    "workspaces",
    "publish",
    "bind",
    "bind",
    "write",
    "read",
    "write",
    "read",
    "update",
    "read",
    "lists",
    "hidden",
    "owner",
    "refused",
];

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_insula"));
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("INSULA_"));
    for (name, _) in ours {
        command.env_remove(name);
    }
    command.arg("demo").args(arguments).stdin(Stdio::null());
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_demonstration_succeeds_from_the_first_step_to_the_last() {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo(&[]).env("TMPDIR", temporary.path()).output().unwrap();
    let (stdout, wrong) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{stdout}{wrong}");
    assert_eq!(
        stdout.lines().filter(|line| line.starts_with("✔ ")).count(),
        STEPS.len(),
        "{stdout}"
    );
    assert!(
        stdout.contains("grace in v2: color: navy, name: {first: Grace, last: Murray Hopper}"),
        "{stdout}"
    );
    assert_eq!(
        temporary.path().read_dir().unwrap().count(),
        0,
        "the temporary directory stays behind"
    );
}

#[test]
fn a_directory_that_was_given_stays_and_can_be_shown_again() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    for _ in 0..2 {
        let output = demo(&["--data-dir", text(&data), "--output", "json"]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let steps: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
        assert_eq!(names, STEPS, "{stdout}");
        for step in &steps {
            assert_eq!(step["ok"], true, "{step}");
            assert!(
                step["seconds"].as_f64().is_some() && step["command"].is_string(),
                "{step}"
            );
        }
    }
    assert!(data.join("admin.kubeconfig").exists());
}

#[test]
fn a_demonstration_that_cannot_start_prints_the_cause() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = demo(&["--data-dir", text(&file)]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(text(&file)));
}

#[test]
fn a_busy_port_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let output = demo(&["--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
}

/// `insula demo -o json | head` ends without a word.
#[test]
fn a_closed_output_is_no_error() {
    let mut process = demo(&["-o", "json"]);
    let mut process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    let output = process.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*stderr), (Some(0), ""));
}

/// A demonstration with `--keep`, which ends with the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // Already gone in tests that passed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn printed_commands_work_in_a_shell() {
    if !Command::new("kubectl")
        .args(["version", "--client"])
        .output()
        .is_ok_and(|found| found.status.success())
    {
        eprintln!("skipped: no kubectl");
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    let arguments = ["--keep", "--data-dir", text(&data), "--output", "json"];
    let mut kept = Kept(demo(&arguments).stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
    let steps = lines
        .take(STEPS.len())
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let steps: Vec<Value> = steps.collect();

    // All commands run in one shell: the second one exports the variables of the others. The first
    // one is the server itself.
    let mut script = format!("export HOME={}\n", text(temporary.path()));
    for step in &steps[1..] {
        let command = step["command"].as_str().unwrap();
        // These two steps expect a refusal.
        let is_refused = ["hidden", "refused"].contains(&step["step"].as_str().unwrap());
        let expected = if is_refused { "-ne" } else { "-eq" };
        script += &format!(
            "{command}\n[ $? {expected} 0 ] || {{ echo 'not as told: {}'; exit 1; }}\n",
            step["step"]
        );
    }
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        stdout.contains("last: Murray Hopper") && stdout.contains("color: navy"),
        "{stdout}"
    );

    let pid = kept.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(kept.0.wait().unwrap().code(), Some(0));
}
