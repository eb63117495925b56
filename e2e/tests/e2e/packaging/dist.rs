//! `cargo xtask dist`: the archive of a program has what the documents say, and its checksums fit.

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

use insula_e2e::{binary, run_bounded};
use serde_json::Value;

/// Packing, and reading what cargo knows of the packages.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a command that must succeed in a folder, and returns its output.
fn ok(command: &mut Command, folder: &Path) -> String {
    let output = run_bounded(command.current_dir(folder), "", PATIENCE);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Asserts that three files have a checksum, and that it fits.
fn check_sums(out: &Path) {
    match Command::new("sha256sum").arg("--version").output() {
        Err(_) => eprintln!("skipped: no sha256sum"),
        Ok(_) => {
            let checked = ok(Command::new("sha256sum").args(["--check", "SHA256SUMS"]), out);
            assert_eq!(
                checked.lines().filter(|line| line.ends_with(": OK")).count(),
                3,
                "{checked}"
            );
        }
    }
}

#[test]
fn an_archive_has_the_program_and_all_that_goes_along() {
    // …/debug/deps/e2e-0123 → …/debug/insula-xtask
    let this = std::env::current_exe().unwrap();
    let xtask = this.ancestors().nth(2).unwrap().join("insula-xtask");
    if !xtask.exists() {
        return eprintln!(
            "skipped: no {}; cargo build --workspace --bins makes it",
            xtask.display()
        );
    }
    let folder = tempfile::tempdir().unwrap();
    // A program of a release has no symbols; with them it takes long to pack.
    let program = folder.path().join("insula");
    fs::copy(binary(), &program).unwrap();
    if Command::new("strip").arg(&program).status().is_err() {
        eprintln!("no strip: the whole program is packed");
    }
    let out = folder.path().join("dist");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = "x86_64-unknown-linux-gnu";
    let mut dist = Command::new(xtask);
    dist.args(["dist", "--target", target]);
    let said = ok(dist.arg("--program").arg(&program).arg("--out").arg(&out), &root);
    assert!(said.contains("checksums"), "{said}");

    let version = env!("CARGO_PKG_VERSION");
    let name = format!("insula-{version}-{target}");
    let listed = ok(Command::new("tar").args(["-tzf", &format!("{name}.tar.gz")]), &out);
    let files: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_prefix(&name)).collect();
    for file in [
        "/insula",
        "/insula.yaml",
        "/insula.service",
        "/LICENSE",
        "/README.md",
        "/CHANGELOG.md",
        "/SECURITY.md",
        "/completions/insula.bash",
        "/completions/_insula",
        "/completions/insula.fish",
        "/completions/insula.ps1",
        "/man/insula.1",
        "/man/insula-start.1",
    ] {
        assert!(files.contains(file), "{file}: {listed}");
    }
    let chart = ok(
        Command::new("tar").args(["-tzf", &format!("insula-{version}.tgz")]),
        &out,
    );
    assert!(chart.lines().any(|line| line == "insula/Chart.yaml"), "{chart}");
    let bill = fs::read_to_string(out.join(format!("insula-{version}.cdx.json"))).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    assert_eq!(bill["metadata"]["component"]["version"], version);
    check_sums(&out);
    // The program in the archive runs.
    ok(Command::new("tar").args(["-xzf", &format!("{name}.tar.gz")]), &out);
    let told = ok(Command::new(out.join(&name).join("insula")).arg("--version"), &out);
    assert!(told.contains(version), "{told}");
}
