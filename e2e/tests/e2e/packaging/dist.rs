//! `cargo xtask dist`: the archive, the image and the Debian package of a program have what the
//! documents say, their checksums fit, and the programs in them run.

mod image;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use insula_e2e::{binary, run_bounded};
use serde_json::Value;
use tempfile::TempDir;

/// Packing, and reading what cargo knows of the packages.
const PATIENCE: Duration = Duration::from_secs(180);
/// Target of the programs that the tests build.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const VERSION: &str = env!("CARGO_PKG_VERSION");

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

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Returns the folder of a release with the program under test, which all tests share; `None`
/// without xtask.
fn release() -> Option<PathBuf> {
    static RELEASE: OnceLock<Option<TempDir>> = OnceLock::new();
    let made = RELEASE.get_or_init(|| {
        // …/debug/deps/e2e-0123 → …/debug/insula-xtask
        let this = std::env::current_exe().unwrap();
        let xtask = this.ancestors().nth(2).unwrap().join("insula-xtask");
        if !xtask.exists() {
            return None;
        }
        let folder = TempDir::new().unwrap();
        // A program of a release has no symbols; with them it takes long to pack.
        let program = folder.path().join("insula");
        fs::copy(binary(), &program).unwrap();
        if Command::new("strip").arg(&program).status().is_err() {
            eprintln!("no strip: the whole program is packed");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut dist = Command::new(xtask);
        dist.args(["dist", "--target", TARGET, "--program"]);
        dist.arg(program).arg("--out").arg(folder.path().join("dist"));
        let report = ok(&mut dist, &root);
        assert!(report.contains("checksums"), "{report}");
        Some(folder)
    });
    if made.is_none() {
        eprintln!("skipped: no insula-xtask; cargo build --workspace --bins makes it");
    }
    made.as_ref().map(|folder| folder.path().join("dist"))
}

#[test]
fn an_archive_has_the_program_and_all_that_goes_along() {
    let Some(out) = release() else { return };
    let name = format!("insula-{VERSION}-{TARGET}");
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
        Command::new("tar").args(["-tzf", &format!("insula-{VERSION}.tgz")]),
        &out,
    );
    assert!(chart.lines().any(|line| line == "insula/Chart.yaml"), "{chart}");
    let bill = fs::read_to_string(out.join(format!("insula-{VERSION}.cdx.json"))).unwrap();
    let bill: Value = serde_json::from_str(&bill).unwrap();
    assert_eq!(bill["metadata"]["component"]["version"], VERSION);
    // The program in the archive runs.
    let unpacked = TempDir::new().unwrap();
    let archive = out.join(format!("{name}.tar.gz"));
    ok(Command::new("tar").arg("-xzf").arg(archive), unpacked.path());
    let program = unpacked.path().join(&name).join("insula");
    let version = ok(Command::new(program).arg("--version"), unpacked.path());
    assert!(version.contains(VERSION), "{version}");
}

/// The archive, the chart, the bill of materials, the image and the Debian package.
#[test]
fn every_file_has_a_checksum_that_fits() {
    let Some(out) = release() else { return };
    if !is_there("sha256sum") {
        return eprintln!("skipped: no sha256sum");
    }
    let checked = ok(Command::new("sha256sum").args(["--check", "SHA256SUMS"]), &out);
    let fitting = checked.lines().filter(|line| line.ends_with(": OK")).count();
    let files = out.read_dir().unwrap().filter(|entry| {
        let entry = entry.as_ref().unwrap();
        entry.path().is_file() && entry.file_name() != "SHA256SUMS"
    });
    assert_eq!((fitting, files.count()), (5, 5), "{checked}");
}

#[test]
fn the_debian_package_installs_what_the_unit_needs() {
    let Some(out) = release() else { return };
    if !is_there("dpkg-deb") {
        return eprintln!("skipped: no dpkg-deb");
    }
    let package = format!("insula_{VERSION}_amd64.deb");
    let field = |name: &str| ok(Command::new("dpkg-deb").args(["--field", &package, name]), &out);
    assert_eq!(field("Version").trim(), VERSION);
    // A static program needs no package.
    assert_eq!(field("Depends").trim(), "libc6");
    let folder = TempDir::new().unwrap();
    let mut install = Command::new("dpkg");
    install.args([
        "--force-not-root",
        "--force-depends",
        "--force-script-chrootless",
        "--no-triggers",
    ]);
    let root = folder.path();
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    install.arg(format!("--root={}", root.display())).arg("--install");
    ok(install.arg(&package), &out);
    for file in [
        "etc/insula/insula.yaml",
        "usr/lib/systemd/system/insula.service",
        "usr/share/bash-completion/completions/insula",
        "usr/share/man/man1/insula-start.1.gz",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/insula.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/insula start --config /etc/insula/insula.yaml"));
    let version = ok(Command::new(root.join("usr/bin/insula")).arg("--version"), root);
    assert!(version.contains(VERSION), "{version}");
}
