//! Releases: static programs with checksums, a bill of materials, completions, manual pages and the
//! files of `config/packaging`, in `target/dist`.

mod sbom;
mod toolchain;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::{
    report::{Report, say},
    workspace::cargo,
};

pub use sbom::bill_of_materials;

/// Targets of a release, and their names in images.
const TARGETS: [(&str, &str); 2] = [
    ("x86_64-unknown-linux-musl", "amd64"),
    ("aarch64-unknown-linux-musl", "arm64"),
];

/// Size of a stripped program at most, in bytes: 25 MiB.
const PROGRAM_BYTES_MAX: u64 = 25 << 20;

/// Files that go along with each program: source in the repository, place in the archive.
const FILES: [(&str, &str); 6] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("config/insula.yaml", "insula.yaml"),
    ("config/packaging/systemd/insula.service", "insula.service"),
];

/// Builds a release for each target that can be built here, or for `only`, and says why another one
/// is skipped. Without any of them it builds for this machine, which needs its C library.
///
/// # Errors
/// Fails when a build fails, a program is too large, or `only` cannot be built here.
pub fn run(root: &Path, only: Option<&str>) -> Result<()> {
    let mut report = Report::default();
    let result = steps(&mut report, root, only);
    say(&format!("\n{}", report.table()))?;
    result
}

fn steps(report: &mut Report, root: &Path, only: Option<&str>) -> Result<()> {
    let dist = root.join("target/dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot remove {}", dist.display()))?;
    }
    let host = toolchain::host(root)?;
    let known = TARGETS.into_iter().find(|(target, _)| Some(*target) == only);
    let chosen: Vec<(&str, &str)> = match only {
        Some(only) => vec![known.unwrap_or((only, arch(only)))],
        None => TARGETS.to_vec(),
    };
    let mut archives = Vec::new();
    for (target, image) in &chosen {
        archives.extend(release(report, root, target, image, &host, only.is_some())?);
    }
    if archives.is_empty() {
        let image = arch(&host);
        archives.extend(release(report, root, &host, image, &host, true)?);
    }
    let bill = report.step("sbom", || {
        let path = dist.join(format!("insula-{}.cdx.json", version()));
        write(&path, bill_of_materials(root)?.as_bytes())?;
        Ok((path.clone(), path.display().to_string()))
    })?;
    archives.push(bill);
    report.step("checksums", || {
        let path = dist.join("SHA256SUMS");
        write(&path, checksums(&archives)?.as_bytes())?;
        Ok(((), path.display().to_string()))
    })
}

/// Builds one target and returns its archive, or nothing where the target cannot be built and is
/// not `required`.
fn release(
    report: &mut Report,
    root: &Path,
    target: &str,
    image: &str,
    host: &str,
    required: bool,
) -> Result<Option<PathBuf>> {
    let tools = match toolchain::find(root, target, host) {
        Ok(tools) => tools,
        Err(missing) if required => bail!("{target}: {missing}"),
        Err(missing) => {
            report.step("skipped", || Ok(((), format!("{target}: {missing}"))))?;
            return Ok(None);
        }
    };
    let program = report.step("build", || {
        let program = build(root, target, &tools)?;
        let bytes = fs::metadata(&program)?.len();
        ensure!(
            bytes <= PROGRAM_BYTES_MAX,
            "{}: {bytes} bytes are more than {PROGRAM_BYTES_MAX}: find the new code with `nm --size-sort`",
            program.display()
        );
        Ok((program, format!("{target}, {bytes} bytes")))
    })?;
    report.step("archive", || {
        let stage = root.join("target/dist").join(image);
        fill(root, &program, &stage, target, host)?;
        let archive = pack(root, &stage, target)?;
        Ok((Some(archive.clone()), archive.display().to_string()))
    })
}

fn build(root: &Path, target: &str, tools: &[(String, String)]) -> Result<PathBuf> {
    let mut command = cargo(root);
    command.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "insula-insula",
        "--target",
        target,
    ]);
    command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    command.envs(tools.iter().cloned());
    let status = command.status().context("cannot run cargo build")?;
    ensure!(status.success(), "cargo build failed: the output above says why");
    Ok(root.join("target").join(target).join("release/insula"))
}

/// Puts the program and the files that go along with it into a folder.
fn fill(root: &Path, program: &Path, stage: &Path, target: &str, host: &str) -> Result<()> {
    copy(program, &stage.join("insula"))?;
    for (from, to) in FILES {
        copy(&root.join(from), &stage.join(to))?;
    }
    let runs_here = target.split('-').next() == host.split('-').next() && target.contains("linux");
    if !runs_here {
        return say(&format!(
            "{target} does not run here: the archive has no completions and manual pages"
        ));
    }
    for (shell, file) in [("bash", "insula.bash"), ("zsh", "_insula"), ("fish", "insula.fish")] {
        if let Some(text) = output(program, &["completion", shell])? {
            write(&stage.join("completions").join(file), &text)?;
        }
    }
    let pages = stage.join("man");
    output(program, &["man", "--dir", &pages.to_string_lossy()]).map(drop)
}

/// Returns the output of a command of the program, or nothing if the program has no such command.
fn output(program: &Path, arguments: &[&str]) -> Result<Option<Vec<u8>>> {
    let out = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    match out.status.code() {
        Some(0) => Ok(Some(out.stdout)),
        Some(2) => {
            say(&format!("this program has no `{}`", arguments.join(" ")))?;
            Ok(None)
        }
        _ => bail!("{}: {}", arguments.join(" "), String::from_utf8_lossy(&out.stderr)),
    }
}

/// Packs a folder, with names and times that depend on the commit alone.
fn pack(root: &Path, stage: &Path, target: &str) -> Result<PathBuf> {
    let name = format!("insula-{}-{target}", version());
    let archive = root.join("target/dist").join(format!("{name}.tar.gz"));
    let folder = stage.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut tar = Command::new("tar");
    tar.env("GZIP", "-n");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=go-w",
    ]);
    tar.arg(format!("--mtime=@{}", commit_seconds(root)));
    tar.arg(format!("--transform=s,^{folder},{name},"));
    tar.arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(root.join("target/dist"))
        .arg(&folder);
    let status = tar.status().context("cannot run tar")?;
    ensure!(status.success(), "tar failed: the output above says why");
    Ok(archive)
}

/// Returns the time of the commit in seconds since 1970, or 0 outside of a repository.
pub(crate) fn commit_seconds(root: &Path) -> u64 {
    let set = env::var("SOURCE_DATE_EPOCH").ok();
    let shown = || {
        let out = Command::new("git")
            .current_dir(root)
            .args(["log", "-1", "--format=%ct"])
            .output()
            .ok()?;
        String::from_utf8(out.stdout).ok()
    };
    set.or_else(shown)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Returns a line for each file as `sha256sum` prints it.
fn checksums(files: &[PathBuf]) -> Result<String> {
    let mut lines = Vec::new();
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let digest: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        lines.push(format!("{digest}  {name}\n"));
    }
    lines.sort_by(|a, b| a[66..].cmp(&b[66..]));
    Ok(lines.concat())
}

/// Returns the version of the workspace.
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns the name of a target's processor in images.
fn arch(target: &str) -> &str {
    match target.split('-').next().unwrap_or_default() {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    folder_of(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    folder_of(path)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_as_sha256sum_prints_them() {
        let folder = env::temp_dir().join(format!("insula-xtask-{}", std::process::id()));
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            write(&path, text.as_bytes()).expect("the file can be written");
            path
        };
        let files = [file("b", "abc"), file("a", "")];
        let want = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n\
                    ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n";
        assert_eq!(checksums(&files).expect("the files are there"), want);
        fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn files_of_the_archive_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let missing: Vec<_> = FILES.iter().filter(|(from, _)| !root.join(from).is_file()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
