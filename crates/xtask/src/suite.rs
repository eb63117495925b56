//! Runs of the test suite, of its snapshots and of the load generator, with the programs that they
//! need.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    report::{Report, say},
    tools,
    workspace::{Workspace, cargo},
};

/// Runs the suite, or the end-to-end tests whose name contains `only`. Prints the table of steps
/// also after a failure.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<()> {
    let mut report = Report::default();
    let result = steps(&mut report, &workspace.root, only);
    say(&format!("\n{}", report.table()))?;
    result
}

/// Builds the server and the load generator in release mode, and runs the load generator's quick
/// mode.
///
/// # Errors
/// Fails when the build or the measurement fails.
pub fn bench(root: &Path) -> Result<()> {
    let packages = ["--package", "insula-insula", "--package", "insula-bench"];
    let mut build = cargo(root);
    build.args(["build", "--locked", "--release"]).args(packages);
    ensure!(
        build.status().context("cannot run cargo build")?.success(),
        "cargo build failed: the output above says why"
    );
    let mut load = cargo(root);
    load.args(["run", "--locked", "--release"]).args(packages);
    load.args(["--bin", "insula-load", "--", "all", "--quick"]);
    ensure!(
        load.status().context("cannot run the load generator")?.success(),
        "the load generator failed: the output above says why"
    );
    Ok(())
}

/// Runs the unit tests, and the integration tests that hold snapshots, so that each `expect!` and
/// `expect_file!` takes the output of now. `only` selects tests by a part of their name.
///
/// # Errors
/// Fails when a test does not build or fails for another reason than its snapshot.
pub fn bless(root: &Path, only: Option<&str>) -> Result<()> {
    let mut integration = vec!["--tests".to_owned()];
    for package in snapshot_packages(root)? {
        integration.extend(["--package".to_owned(), package]);
    }
    let unit = ["--workspace", "--lib", "--bins"].map(str::to_owned).to_vec();
    for selection in [unit, integration] {
        let mut command = cargo(root);
        command.args(["test", "--locked", "--no-fail-fast", "--quiet"]);
        command.args(selection).arg("--").args(only);
        let status = command
            .env("UPDATE_EXPECT", "1")
            .status()
            .context("cannot run cargo test")?;
        ensure!(status.success(), "cargo test failed: the output above says which tests");
    }
    Ok(())
}

/// Writes the code and descriptors of `proto` and `docs/api/grpc.md`, and adds new elements to the
/// record of the API.
///
/// # Errors
/// Fails when an element of the record is gone or has changed, or a lint rule is broken.
pub fn proto(root: &Path) -> Result<()> {
    // The reference is written from the descriptors, so those come first. This package alone: the
    // others may need code that is not generated yet.
    for test in ["generated", "admin_api"] {
        let mut command = cargo(root);
        command.args([
            "test",
            "--package",
            "insula-proto",
            "--locked",
            "--quiet",
            "--test",
            test,
        ]);
        let status = command
            .env("UPDATE_EXPECT", "1")
            .status()
            .context("cannot run cargo test")?;
        ensure!(
            status.success(),
            "the tests of crates/proto failed: the output above says which rule"
        );
    }
    Ok(())
}

/// Returns the packages whose integration tests hold snapshots.
fn snapshot_packages(root: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for member in root.join("crates").read_dir()? {
        let member = member?;
        let Ok(tests) = member.path().join("tests").read_dir() else {
            continue;
        };
        for test in tests {
            let path = test?.path();
            let rust = path.extension().is_some_and(|extension| extension == "rs");
            if rust && fs::read_to_string(&path)?.contains("use expect_test::") {
                found.insert(format!("insula-{}", member.file_name().display()));
            }
        }
    }
    Ok(found)
}

fn steps(report: &mut Report, root: &Path, only: Option<&str>) -> Result<()> {
    let etcd = report.step("etcd", || with_path(tools::etcd(root)?))?;
    report.step("kubectl", || {
        // Tests look for kubectl themselves, and report the same in their own output.
        let found = tools::on_path("kubectl");
        Ok((
            (),
            found.map_or("skipped: no kubectl".to_owned(), |path| path.display().to_string()),
        ))
    })?;
    let binary = report.step("build", || with_path(build(root)?))?;
    let ready = |args: &[&str]| {
        let mut command = cargo(root);
        command.args(["test", "--locked", "--no-fail-fast"]).args(args);
        command.env("INSULA_BIN", &binary).env("INSULA_ETCD", &etcd);
        command
    };
    if only.is_some() {
        return report.step("tests", || Ok(((), end_to_end(&ready, only)?)));
    }
    report.step("programs", || {
        let built = ready(&["--workspace", "--no-run"])
            .status()
            .context("cannot run cargo test")?;
        ensure!(built.success(), "cargo test failed: the output above says why");
        Ok(((), "built".to_owned()))
    })?;
    // The end-to-end tests mostly wait, for servers and their clients: the others run beside them.
    // All failures are reported, also when both have some.
    report.step("tests", || {
        let (others, end_to_end) = thread::scope(|scope| {
            let others = scope.spawn(|| run_tests(ready(&["--workspace", "--exclude", "insula-e2e"]), say));
            let end_to_end = end_to_end(&ready, None);
            (others.join(), end_to_end)
        });
        let others = others.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let end_to_end = end_to_end?;
        ensure!(others.passed, "cargo test failed: the output above says which tests");
        Ok(((), end_to_end))
    })
}

/// Runs the end-to-end tests, or those whose name contains `only`; a few that fail once more, by
/// themselves. Returns what is to say of them.
fn end_to_end(ready: &(dyn Fn(&[&str]) -> Command + Sync), only: Option<&str>) -> Result<String> {
    let mut all = ready(&match only {
        Some(only) => vec!["--package", "insula-e2e", "--test", "e2e", "--", only],
        None => vec!["--package", "insula-e2e"],
    });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    all.env("RUST_TEST_THREADS", (2 * cores).to_string());
    let Outcome { passed, failures } = run_tests(all, say)?;
    if passed {
        return Ok(only.map_or("passed".to_owned(), |only| format!("passed (only \"{only}\")")));
    }
    let repeated = repeated(&failures);
    ensure!(
        !repeated.is_empty(),
        "cargo test failed: the output above says which tests"
    );
    say(&format!("\n==> again, by themselves: {}", repeated.join(", ")))?;
    let again = [
        &["--package", "insula-e2e", "--test", "e2e", "--", "--exact"],
        &*repeated,
    ]
    .concat();
    let again = run_tests(ready(&again), say)?;
    ensure!(
        again.passed,
        "cargo test failed, twice: the output above says which tests"
    );
    Ok(format!("passed; only when repeated: {}", repeated.join(", ")))
}

/// Failed end-to-end tests that are repeated at most. More are no accident.
const REPEATED_MAX: usize = 3;

/// The end of a run of tests.
struct Outcome {
    passed: bool,
    /// Lines about failures: `test NAME ... FAILED`, and of cargo, `    `-p PACKAGE --test NAME``.
    failures: Vec<String>,
}

/// Runs tests, whose output is shown line by line.
fn run_tests(mut tests: Command, show: impl Fn(&str) -> Result<()>) -> Result<Outcome> {
    // Both streams are one, so that the failed programs at the end are read, too.
    let (output, input) = std::io::pipe().context("no pipe")?;
    tests.stdout(input.try_clone()?).stderr(input);
    let mut running = tests.spawn().context("cannot run cargo test")?;
    // The command holds the other end of the pipe.
    drop(tests);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n');
        lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let (mut failures, mut ended) = (Vec::new(), None);
    loop {
        match lines.recv_timeout(LAST_LINES) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                show(&line)?;
                if line.ends_with(FAILED) || line.starts_with(PROGRAM) {
                    failures.push(line);
                }
            }
            // What a test has left running may hold the pipe open.
            Err(RecvTimeoutError::Timeout) if ended.is_none() => ended = running.try_wait()?,
            Err(_) => break,
        }
    }
    let passed = ended.map_or_else(|| running.wait(), Ok)?.success();
    Ok(Outcome { passed, failures })
}

/// Wait for lines after the end of a run.
const LAST_LINES: Duration = Duration::from_secs(1);
/// End of a line about a test that failed.
const FAILED: &str = " ... FAILED";
/// Beginning of a line about a program in which tests failed.
const PROGRAM: &str = "    `-p ";
const END_TO_END: &str = "    `-p insula-e2e --test e2e`";

/// Returns the names of the tests to repeat: a few end-to-end tests, which share the machine with
/// others and depend on its pace. Failures of other tests are final.
fn repeated(failures: &[String]) -> Vec<&str> {
    let (programs, tests): (Vec<&str>, Vec<&str>) = failures
        .iter()
        .map(String::as_str)
        .partition(|line| line.starts_with(PROGRAM));
    if programs != [END_TO_END] || tests.len() > REPEATED_MAX {
        return Vec::new();
    }
    let names = tests.iter().map(|line| line.trim_end_matches(FAILED));
    names.filter_map(|line| line.strip_prefix("test ")).collect()
}

/// Builds the binary under test and returns its path.
fn build(root: &Path) -> Result<PathBuf> {
    let out = cargo(root)
        .args([
            "build",
            "--locked",
            "--package",
            "insula-insula",
            "--message-format",
            "json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo build")?;
    ensure!(out.status.success(), "cargo build failed: the output above says why");
    let binary = String::from_utf8_lossy(&out.stdout).lines().rev().find_map(executable);
    binary.context("cargo built no executable called insula")
}

/// Returns the path in cargo's message about the finished binary.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let binary = message["target"]["name"] == "insula" && message["target"]["kind"][0] == "bin";
    binary.then(|| message["executable"].as_str().map(PathBuf::from))?
}

fn with_path(path: PathBuf) -> Result<(PathBuf, String)> {
    let shown = path.display().to_string();
    Ok((path, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_end_to_end_tests_are_repeated_and_no_others() {
        let failed = |names: &[&str], programs: &[&str]| {
            let tests = names.iter().map(|name| format!("test {name} ... FAILED"));
            tests
                .chain(programs.iter().map(|program| (*program).to_owned()))
                .collect::<Vec<_>>()
        };
        let few = failed(&["a::b", "c"], &[END_TO_END]);
        assert_eq!(repeated(&few), ["a::b", "c"]);
        let other = "    `-p insula-api --lib`";
        assert!(repeated(&failed(&["a"], &[other])).is_empty());
        assert!(repeated(&failed(&["a"], &[END_TO_END, other])).is_empty());
        assert!(repeated(&failed(&["a", "b", "c", "d"], &[END_TO_END])).is_empty());
        // The program did not end by itself.
        assert!(repeated(&failed(&[], &[END_TO_END])).is_empty());
    }

    #[test]
    fn failures_are_read_from_both_streams() {
        let print = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            // Shown, they would be failures of the run that this test is part of.
            run_tests(shell, |_| Ok(()))
        };
        let outcome = print("echo 'test a ... FAILED'; echo 'test b ... ok'; echo '    `-p x --lib`' >&2; exit 1");
        let outcome = outcome.expect("it runs");
        assert!(!outcome.passed);
        assert_eq!(outcome.failures, ["test a ... FAILED", "    `-p x --lib`"]);
        assert!(print("exit 0").expect("it runs").passed);
    }

    #[test]
    fn a_run_ends_with_its_program() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & echo $!; exit 0"]);
        let left = std::cell::OnceCell::new();
        let outcome = run_tests(shell, |line| {
            let _ = left.set(line.to_owned());
            Ok(())
        });
        let left = left.into_inner().expect("a number");
        assert!(outcome.expect("it runs").passed);
        let ended = Command::new("kill").arg(left).status().expect("there is kill");
        assert!(ended.success(), "it was left running");
    }
}
