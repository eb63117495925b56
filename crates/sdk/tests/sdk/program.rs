//! A program that serves a kind: flags, kubectl, and an end by SIGTERM. The test binary is the
//! program as well, so that it is linked once.

use crate::kinds::Robot;
use insula_sdk::{Server, testing::temporary_directory};
use std::{
    env, fs,
    path::Path,
    process::{Child, Command, ExitCode, Output, Stdio},
    thread::sleep,
    time::Duration,
};

const DIRECTORY: &str = "ROBOTS_DIRECTORY";
/// Tries of 100 ms: a busy machine takes seconds to start a program.
const TRIES_MAX: usize = 600;

/// The whole program.
fn robots(arguments: &[&str]) -> ExitCode {
    Server::builder()
        .resource::<Robot>()
        .program("robots", "1.2.3")
        .run_from(arguments)
}

#[test]
#[ignore = "the program that the other test starts"]
fn serves() {
    let Some(directory) = env::var_os(DIRECTORY) else {
        return;
    };
    let directory = directory.to_string_lossy();
    let code = robots(&["robots", "--data-dir", &directory, "--listen", "127.0.0.1:0"]);
    assert_eq!(code, ExitCode::SUCCESS);
}

struct Program(Child);

impl Program {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["program::serves", "--exact", "--ignored", "--nocapture"]);
        command
            .env(DIRECTORY, directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Ends the program as an operator does.
    fn stop(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success(), "the program ends in order");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        drop(self.0.kill());
    }
}

fn kubectl(directory: &Path, arguments: &[&str]) -> Output {
    let kubeconfig = directory.join("admin.kubeconfig");
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(arguments);
    command.env("HOME", directory).output().unwrap()
}

/// Repeats a command of kubectl until it succeeds: the server may still be starting.
fn eventually(directory: &Path, arguments: &[&str]) -> String {
    let mut last = String::new();
    for _ in 0..TRIES_MAX {
        let output = kubectl(directory, arguments);
        if output.status.success() {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
        last = String::from_utf8_lossy(&output.stderr).into_owned();
        sleep(Duration::from_millis(100));
    }
    panic!("kubectl {arguments:?}: {last}");
}

#[test]
fn a_program_serves_its_kind_to_kubectl_and_keeps_its_objects() {
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        eprintln!("skipped: no kubectl");
        return;
    }
    let directory = temporary_directory();
    let directory = directory.path();
    fs::create_dir_all(directory).unwrap();
    let manifest = directory.join("robot.yaml");
    let text = "apiVersion: fleet.example.com/v1\nkind: Robot\nmetadata:\n  name: r2\n  namespace: default\n\
                spec:\n  places: [south, north]\n";
    fs::write(&manifest, text).unwrap();
    let manifest = manifest.to_string_lossy();

    let program = Program::start(directory);
    eventually(directory, &["get", "robots"]);
    let explained = eventually(directory, &["explain", "robot.spec.places"]);
    assert!(explained.contains("Places to visit, in any order."), "{explained}");
    let applied = eventually(directory, &["apply", "-f", &manifest]);
    assert_eq!(applied, "robot.fleet.example.com/r2 created\n");
    let again = eventually(
        directory,
        &["apply", "--server-side", "--force-conflicts", "-f", &manifest],
    );
    assert_eq!(again, "robot.fleet.example.com/r2 serverside-applied\n");
    let mode = eventually(
        directory,
        &["get", "rb", "r2", "-o", "jsonpath={.spec.mode} {.spec.places}"],
    );
    assert_eq!(mode, r#"Idle ["north","south"]"#);
    let bad = kubectl(
        directory,
        &[
            "patch",
            "robot",
            "r2",
            "--type=merge",
            "-p",
            r#"{"spec":{"mode":"Patrol","places":[]}}"#,
        ],
    );
    let refusal = String::from_utf8_lossy(&bad.stderr).into_owned();
    let want = "The Robot \"r2\" is invalid: spec.places: Required value: a patrol visits at least one place\n";
    assert_eq!(refusal, want);
    program.stop();

    let program = Program::start(directory);
    let kept = eventually(
        directory,
        &[
            "get",
            "robots.v1alpha1.fleet.example.com",
            "r2",
            "-o",
            "jsonpath={.spec.route}",
        ],
    );
    assert_eq!(kept, "north,south");
    program.stop();
}
