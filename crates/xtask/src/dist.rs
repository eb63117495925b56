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

/// Targets of a release. The one that runs on most machines comes first.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// Size of a stripped program at most, in bytes.
const PROGRAM_BYTES_MAX: u64 = 25_000_000;

/// Files that go along with each program: source in the repository, place in the archive.
const FILES: [(&str, &str); 6] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("config/insula.yaml", "insula.yaml"),
    ("config/packaging/systemd/insula.service", "insula.service"),
];

/// Choice of targets and of a folder.
#[derive(Debug, Default)]
pub struct Options {
    /// The only target.
    pub target: Option<String>,
    /// A program to pack in place of one that is built.
    pub program: Option<PathBuf>,
    /// The folder, which must be empty or missing; by default `target/dist`, which is emptied.
    pub out: Option<PathBuf>,
    /// Says what can be built here, and builds nothing.
    pub plan: bool,
}

/// A release in the making.
struct Dist<'a> {
    root: &'a Path,
    out: PathBuf,
    /// Target of programs of this machine.
    host: String,
    /// A program that runs here, which prints completions and manual pages for all targets.
    runnable: Option<PathBuf>,
}

/// Builds a release for each target that can be built here, or for the only one that is asked for,
/// and says why another one is left out. Without any of them it builds for this machine, which
/// needs its C library.
///
/// # Errors
/// Fails when a build fails, a program is too large, or the target that is asked for cannot be
/// built here.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let mut report = Report::default();
    let result = match options.plan {
        true => plan(&mut report, root),
        false => steps(&mut report, root, options),
    };
    say(&format!("\n{}", report.table()))?;
    result
}

fn plan(report: &mut Report, root: &Path) -> Result<()> {
    let host = toolchain::host(root)?;
    for target in TARGETS {
        let (step, detail) = match toolchain::find(root, target, &host) {
            Ok(tools) => ("builds", format!("{target}: {}", shown(&tools))),
            Err(missing) => ("skipped", format!("{target}: {missing}")),
        };
        report.step(step, || Ok(((), detail)))?;
    }
    Ok(())
}

fn shown(tools: &[(String, String)]) -> String {
    let tools: Vec<String> = tools.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    tools.join(" ")
}

fn steps(report: &mut Report, root: &Path, options: &Options) -> Result<()> {
    let mut dist = Dist {
        root,
        out: folder(root, options.out.as_deref())?,
        host: toolchain::host(root)?,
        runnable: None,
    };
    let mut archives = Vec::new();
    if let Some(program) = &options.program {
        let target = options.target.as_ref().unwrap_or(&dist.host).clone();
        let program = program.clone();
        archives.push(dist.pack_program(report, &program, &target)?);
    } else {
        let known = TARGETS.map(str::to_owned);
        let chosen = options
            .target
            .as_ref()
            .map_or(known.to_vec(), |only| vec![only.clone()]);
        for target in &chosen {
            archives.extend(dist.release(report, target, options.target.is_some())?);
        }
        if archives.is_empty() {
            let host = dist.host.clone();
            archives.extend(dist.release(report, &host, true)?);
        }
    }
    archives.push(report.step("chart", || {
        let path = dist.chart()?;
        Ok((path.clone(), path.display().to_string()))
    })?);
    archives.push(report.step("sbom", || {
        let path = dist.out.join(format!("insula-{}.cdx.json", version()));
        write(&path, bill_of_materials(root)?.as_bytes())?;
        Ok((path.clone(), path.display().to_string()))
    })?);
    report.step("checksums", || {
        let path = dist.out.join("SHA256SUMS");
        write(&path, checksums(&archives)?.as_bytes())?;
        Ok(((), path.display().to_string()))
    })
}

/// Returns the folder of the release, which is empty.
fn folder(root: &Path, given: Option<&Path>) -> Result<PathBuf> {
    let folder = match given {
        None => root.join("target/dist"),
        Some(given) => given.to_owned(),
    };
    if given.is_none() && folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let is_empty = fs::read_dir(&folder)?.next().is_none();
    ensure!(is_empty, "{} is not empty: choose another folder", folder.display());
    Ok(folder.canonicalize()?)
}

impl Dist<'_> {
    /// Builds one target and returns its archive, or nothing where the target cannot be built and
    /// is not `required`.
    fn release(&mut self, report: &mut Report, target: &str, required: bool) -> Result<Option<PathBuf>> {
        let tools = match toolchain::find(self.root, target, &self.host) {
            Ok(tools) => tools,
            Err(missing) if required => bail!("{target}: {missing}"),
            Err(missing) => {
                report.step("skipped", || Ok(((), format!("{target}: {missing}"))))?;
                return Ok(None);
            }
        };
        let program = report.step("build", || {
            let program = build(self.root, target, &tools)?;
            let bytes = fs::metadata(&program)?.len();
            ensure!(
                bytes <= PROGRAM_BYTES_MAX,
                "{}: {bytes} bytes are more than {PROGRAM_BYTES_MAX}: find the new code with `nm --size-sort`",
                program.display()
            );
            Ok((program, format!("{target}, {bytes} bytes")))
        })?;
        self.pack_program(report, &program, target).map(Some)
    }

    /// Packs a program with the files that go along with it, and returns the archive.
    fn pack_program(&mut self, report: &mut Report, program: &Path, target: &str) -> Result<PathBuf> {
        let is_ours = target.split('-').next() == self.host.split('-').next() && target.contains("linux");
        if is_ours {
            self.runnable = Some(program.to_owned());
        }
        report.step("archive", || {
            let stage = self.out.join(arch(target));
            self.fill(program, &stage)?;
            let name = format!("insula-{}-{target}", version());
            let archive = self.out.join(format!("{name}.tar.gz"));
            pack(&stage, &name, &archive, commit_seconds(self.root))?;
            Ok((archive.clone(), archive.display().to_string()))
        })
    }

    /// Puts the program and the files that go along with it into a folder.
    fn fill(&self, program: &Path, stage: &Path) -> Result<()> {
        copy(program, &stage.join("insula"))?;
        for (from, to) in FILES {
            copy(&self.root.join(from), &stage.join(to))?;
        }
        let Some(runnable) = &self.runnable else {
            return say("no program of this release runs here: its archive has no completions and manual pages");
        };
        for (shell, file) in [
            ("bash", "insula.bash"),
            ("zsh", "_insula"),
            ("fish", "insula.fish"),
            ("powershell", "insula.ps1"),
        ] {
            write(
                &stage.join("completions").join(file),
                &output(runnable, &["completion", shell])?,
            )?;
        }
        let pages = stage.join("man");
        output(runnable, &["man", "--dir", &pages.to_string_lossy()]).map(drop)
    }

    /// Packs the chart, as `helm package` does.
    fn chart(&self) -> Result<PathBuf> {
        let archive = self.out.join(format!("insula-{}.tgz", version()));
        let chart = self.root.join("config/packaging/helm/insula");
        pack(&chart, "insula", &archive, commit_seconds(self.root))?;
        Ok(archive)
    }
}

fn build(root: &Path, target: &str, tools: &[(String, String)]) -> Result<PathBuf> {
    let mut command = cargo(root);
    command.args([
        "rustc",
        "--release",
        "--locked",
        "--package",
        "insula-insula",
        "--bin",
        "insula",
        "--target",
        target,
        "--",
        // Cargo forgets `strip` of a profile for packages that the profile has a section for.
        "-Cstrip=symbols",
    ]);
    command.envs(tools.iter().cloned());
    let status = command.status().context("cannot run cargo rustc")?;
    ensure!(status.success(), "cargo rustc failed: the output above says why");
    Ok(root.join("target").join(target).join("release/insula"))
}

/// Returns the output of a command of the program.
fn output(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let out = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        out.status.success(),
        "{}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(out.stdout)
}

/// Packs a folder under another name. Names, modes and times in the archive do not depend on the
/// machine.
fn pack(folder: &Path, name: &str, archive: &Path, seconds: u64) -> Result<()> {
    let base = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=u+rw,go-w,go+rX",
        "--use-compress-program=gzip -n",
    ]);
    tar.arg(format!("--mtime=@{seconds}"));
    tar.arg(format!("--transform=s,^{base},{name},"));
    tar.arg("-cf").arg(archive);
    tar.arg("-C").arg(folder.parent().unwrap_or(Path::new("."))).arg(&base);
    let status = tar.status().context("cannot run tar")?;
    ensure!(status.success(), "tar failed: the output above says why");
    Ok(())
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
    fn archives_of_the_same_files_are_the_same_bytes() {
        let folder = env::temp_dir().join(format!("insula-xtask-pack-{}", std::process::id()));
        let packed = |machine: &str, times: u32| {
            let files = folder.join(machine).join("amd64");
            for name in ["insula", "man/insula.1"] {
                write(&files.join(name), name.as_bytes()).expect("the file can be written");
            }
            // Modification times differ.
            let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(times.into());
            let file = fs::File::options()
                .write(true)
                .open(files.join("insula"))
                .expect("it is there");
            file.set_modified(old).expect("its time can be set");
            let archive = folder.join(format!("{machine}.tar.gz"));
            pack(&files, "insula-1-x", &archive, 7).expect("tar is there");
            archive
        };
        let (one, other) = (packed("one", 1), packed("other", 2));
        assert_eq!(
            fs::read(&one).expect("it is there"),
            fs::read(other).expect("it is there")
        );
        let listed = Command::new("tar").arg("-tzf").arg(one).output().expect("tar is there");
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert_eq!(
            names,
            "insula-1-x/\ninsula-1-x/insula\ninsula-1-x/man/\ninsula-1-x/man/insula.1\n"
        );
        fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn files_of_the_archive_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let missing: Vec<_> = FILES.iter().filter(|(from, _)| !root.join(from).is_file()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
