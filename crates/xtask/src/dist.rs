//! Releases: static programs in archives, container images and Debian packages, with the chart, a
//! bill of materials and checksums, in `target/dist`.

mod deb;
mod image;
mod sbom;
mod tarball;
mod toolchain;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use self::{
    deb::Package,
    image::Image,
    tarball::{Tarball, gzip},
};
use crate::{
    report::{Report, say},
    workspace::cargo,
};

pub use sbom::bill_of_materials;

/// Targets of a release. The one that runs on most machines comes first.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

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
/// Fails when a build fails, a file is missing, or the target that is asked for cannot be built
/// here.
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
        archives.extend(dist.pack_program(report, &program, &target)?);
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
    /// Builds one target and returns its packages: none where the target cannot be built and is not
    /// `required`.
    fn release(&mut self, report: &mut Report, target: &str, required: bool) -> Result<Vec<PathBuf>> {
        let tools = match toolchain::find(self.root, target, &self.host) {
            Ok(tools) => tools,
            Err(missing) if required => bail!("{target}: {missing}"),
            Err(missing) => {
                report.step("skipped", || Ok(((), format!("{target}: {missing}"))))?;
                return Ok(Vec::new());
            }
        };
        let program = report.step("build", || {
            let program = build(self.root, target, &tools)?;
            let bytes = fs::metadata(&program)?.len();
            Ok((program, format!("{target}, {bytes} bytes")))
        })?;
        self.pack_program(report, &program, target)
    }

    /// Packs a program with the files that go along with it, and returns the archive, the image and
    /// the Debian package.
    fn pack_program(&mut self, report: &mut Report, program: &Path, target: &str) -> Result<Vec<PathBuf>> {
        let is_ours = target.split('-').next() == self.host.split('-').next() && target.contains("linux");
        if is_ours {
            self.runnable = Some(program.to_owned());
        }
        let (stage, seconds) = (self.out.join(arch(target)), commit_seconds(self.root));
        let made = |path: PathBuf, bytes: &[u8]| {
            write(&path, bytes)?;
            Ok((path.clone(), path.display().to_string()))
        };
        let archive = report.step("archive", || {
            self.fill(program, &stage)?;
            let name = format!("insula-{}-{target}", version());
            made(self.out.join(format!("{name}.tar.gz")), &pack(&stage, &name, seconds)?)
        })?;
        let image = report.step("image", || {
            let image = Image {
                version: version(),
                arch: arch(target),
                seconds,
            };
            let name = format!("insula-{}-image-{}.tar", version(), image.arch);
            made(self.out.join(name), &image.archive(&tarball::read(program)?)?)
        })?;
        let package = report.step("deb", || {
            let package = Package {
                version: version(),
                arch: arch(target),
                needs_libc: !target.ends_with("musl"),
                seconds,
            };
            let name = format!("insula_{}_{}.deb", version(), package.arch);
            made(self.out.join(name), &package.archive(&stage)?)
        })?;
        Ok(vec![archive, image, package])
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
        write(&archive, &pack(&chart, "insula", commit_seconds(self.root))?)?;
        Ok(archive)
    }
}

fn build(root: &Path, target: &str, tools: &[(String, String)]) -> Result<PathBuf> {
    let mut command = cargo(root);
    command.args([
        "build",
        "--profile",
        "dist",
        "--locked",
        "--package",
        "insula-insula",
        "--bin",
        "insula",
        "--target",
        target,
    ]);
    command.envs(tools.iter().cloned());
    let status = command.status().context("cannot run cargo build")?;
    ensure!(status.success(), "cargo build failed: the output above says why");
    Ok(root.join("target").join(target).join("dist/insula"))
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

/// Returns a compressed archive of a folder under another name.
fn pack(folder: &Path, name: &str, seconds: u64) -> Result<Vec<u8>> {
    let mut tar = Tarball::new(seconds);
    tar.tree(folder, name)?;
    gzip(&tar.finish()?)
}

/// Returns a time as CycloneDX and OCI spell it: `1970-01-01T00:00:00Z`.
fn timestamp(seconds: u64) -> Option<String> {
    let time = jiff::Timestamp::from_second(seconds.try_into().ok()?).ok()?;
    Some(time.to_string())
}

/// Returns the SHA-256 of bytes in hexadecimal.
fn hex_digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        lines.push(format!("{}  {name}\n", hex_digest(&tarball::read(file)?)));
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
            pack(&files, "insula-1-x", 7).expect("the files are there")
        };
        let one = packed("one", 1);
        assert_eq!(one, packed("other", 2));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&*one));
        let entries = archive.entries().expect("an archive");
        let path = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let entry = entry.expect("an entry");
            entry.path().expect("a path").to_string_lossy().into_owned()
        };
        let names: Vec<String> = entries.map(path).collect();
        let want = [
            "insula-1-x/",
            "insula-1-x/insula",
            "insula-1-x/man/",
            "insula-1-x/man/insula.1",
        ];
        assert_eq!(names, want);
        fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn files_of_the_archive_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let missing: Vec<_> = FILES.iter().filter(|(from, _)| !root.join(from).is_file()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
