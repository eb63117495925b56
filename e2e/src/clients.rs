//! Kubernetes clients in other languages. The language runtimes are those of this machine; the
//! packages come from the registries of the languages.
//!
//! Fetched packages stay beside the build, in a folder named after their manifest files, so that
//! only the first run needs the network. A test without its runtime or packages prints the reason
//! and passes.

use std::{
    ffi::OsString,
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::{Server, binary, run_bounded, server::both};

/// Fetching packages and building against them.
const FETCH: Duration = Duration::from_secs(8 * 60);
/// One run of a client.
const RUN: Duration = Duration::from_secs(6 * 60);
/// A browser's test: that of the console has a thousand workspaces.
const BROWSER: Duration = Duration::from_secs(8 * 60);

/// A language with a client for Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// `kubernetes` from PyPI.
    Python,
    /// `@kubernetes/client-node` from npm.
    Node,
    /// client-go and controller-runtime.
    Go,
    /// fabric8's client and the official one, from Maven Central.
    Java,
}

/// Versions of a client's packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// The oldest version that the check of the client fits.
    Oldest,
    /// The newest version that can be had for the runtimes of this machine.
    Newest,
}

impl Edition {
    /// All editions.
    pub const ALL: [Self; 2] = [Self::Oldest, Self::Newest];

    fn name(self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::Newest => "newest",
        }
    }
}

impl Runtime {
    /// Returns the folder below `e2e/clients`, and the manifest files that determine the packages.
    fn sources(self, edition: Edition) -> (&'static str, &'static [&'static str]) {
        match (self, edition) {
            (Self::Python, Edition::Oldest) => ("python", &["oldest.txt"]),
            (Self::Python, Edition::Newest) => ("python", &["requirements.txt"]),
            (Self::Node, Edition::Oldest) => ("node", &["package.json", "package-lock.json", "check.mjs"]),
            (Self::Node, Edition::Newest) => (
                "node",
                &["newest/package.json", "newest/package-lock.json", "check.mjs"],
            ),
            (Self::Go, _) => ("go", &["go.mod", "go.sum"]),
            (Self::Java, _) => (
                "java",
                &[
                    "pom.xml",
                    "src/main/java/Check.java",
                    "src/main/java/Fabric8.java",
                    "src/main/java/Official.java",
                ],
            ),
        }
    }

    /// Runs the client in a workspace until it has checked everything; its output is the failure.
    pub fn check(self, server: &Server, workspace: &str, edition: Edition) {
        self.run(server, workspace, edition, None);
    }

    /// Runs another part of the client, by its name.
    pub fn check_part(self, server: &Server, workspace: &str, edition: Edition, part: &str) {
        self.run(server, workspace, edition, Some(part));
    }

    fn run(self, server: &Server, workspace: &str, edition: Edition, part: Option<&str>) {
        let installed = match self.install(edition) {
            Ok(installed) => installed,
            Err(missing) => return eprintln!("skipped: {missing}"),
        };
        let folder = tempfile::TempDir::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig_of(workspace).to_string()).unwrap();
        let mut command = self.command(&installed);
        command.arg(clients().join("lamps.json")).args(part);
        command.env("KUBECONFIG", &kubeconfig);
        command.current_dir(folder.path()).env("HOME", folder.path());
        for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env_remove(proxy);
        }
        let output = run_bounded(&mut command, "", RUN);
        assert!(
            output.status.success(),
            "{self:?}: {}\n{}",
            output.status,
            both(&output)
        );
        eprintln!("{}", both(&output).trim_end());
    }

    fn command(self, installed: &Path) -> Command {
        let mut command;
        match self {
            Self::Python => {
                command = Command::new("python3");
                command
                    .env("PYTHONPATH", installed)
                    .arg(clients().join("python/check.py"));
            }
            Self::Node => {
                command = Command::new("node");
                command.arg(installed.join("check.mjs"));
            }
            Self::Go => command = Command::new(installed.join("check")),
            Self::Java => {
                let (classes, packages) = (installed.join("classes"), installed.join("dependency"));
                command = Command::new("java");
                command
                    .arg("-cp")
                    .arg(format!("{}:{}/*", classes.display(), packages.display()))
                    .arg("Check");
            }
        }
        command
    }

    /// Returns the folder with the client's packages. An error is a sentence.
    fn install(self, edition: Edition) -> Result<PathBuf, String> {
        let (folder, files) = self.sources(edition);
        let source = clients().join(folder);
        let name = format!("{folder}-{}", edition.name());
        // Go decides itself whether anything changed.
        install(&name, &source, files, self == Self::Go, &|into| {
            self.fetch(&source, files, edition, into)
        })
    }

    fn fetch(self, source: &Path, files: &[&str], edition: Edition, into: &Path) -> Result<(), String> {
        match self {
            Self::Python => pip(&source.join(files[0]), into),
            Self::Node => {
                for file in files.iter().map(Path::new) {
                    let name = file.file_name().ok_or("a file has a name")?;
                    std::fs::copy(source.join(file), into.join(name)).map_err(|error| error.to_string())?;
                }
                // Packages of the newest client fail to load on Node 20.
                let needed = match edition {
                    Edition::Oldest => 20,
                    Edition::Newest => 22,
                };
                let version = format!("process.exit(parseInt(process.versions.node) < {needed} ? 1 : 0)");
                run("node", &["-e", &version], &[], into)?;
                run(
                    "npm",
                    &["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
                    &[],
                    into,
                )
            }
            // Go caches its builds, and decides itself whether anything changed.
            Self::Go => run(
                "go",
                &["build", "-o"],
                &[into.join("check").into_os_string(), ".".into()],
                source,
            ),
            Self::Java => {
                // A profile that is not in the pom changes nothing.
                let profile = format!("-P{}", edition.name());
                let folder = format!("-Dinto={}", into.display());
                let goals = ["--quiet", "--batch-mode", "compile", "dependency:copy-dependencies"];
                run("mvn", &goals, &[profile.into(), folder.into()], source)
            }
        }
    }
}

/// Returns the newest kubectl, built from the Go modules of Kubernetes.
///
/// # Errors
/// A sentence about what is missing: Go, or the modules.
pub fn newest_kubectl() -> Result<PathBuf, String> {
    let source = clients().join("kubectl");
    let installed = install("kubectl", &source, &["go.mod", "go.sum", "main.go"], false, &|into| {
        let version = "-ldflags=-X k8s.io/component-base/version.gitVersion=v1.36.0";
        let program = into.join("kubectl").into_os_string();
        run("go", &["build", version, "-o"], &[program, ".".into()], &source)
    })?;
    Ok(installed.join("kubectl"))
}

/// Returns the folder `name` and a hash of `files` beside the build, which `fetch` fills if it is
/// not there or `anew`, one caller at a time: several tests want the same folder at once. An error
/// is a sentence.
pub(crate) fn install(
    name: &str,
    source: &Path,
    files: &[&str],
    anew: bool,
    fetch: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let text = std::fs::read(source.join(file)).map_err(|error| format!("{name}/{file}: {error}"))?;
        text.hash(&mut hasher);
    }
    let target = binary()
        .ancestors()
        .nth(2)
        .map(|target| target.join("tools"))
        .ok_or("no folder for tools")?;
    let identity = format!("{name}-{:016x}", hasher.finish());
    let lock = target.join(format!("{identity}.lock"));
    let failed = |error: std::io::Error| format!("{}: {error}", lock.display());
    std::fs::create_dir_all(&target).map_err(failed)?;
    // The lock ends with the file, so also with a process that is killed.
    let held = File::create(&lock).map_err(failed)?;
    held.lock().map_err(failed)?;
    let installed = target.join(&identity);
    if anew || !installed.exists() {
        // Installed into a temporary folder and renamed, so that an interrupted run never looks
        // complete.
        let partial = target.join(format!("{identity}.partial"));
        let _ = std::fs::remove_dir_all(&partial);
        std::fs::create_dir_all(&partial).map_err(failed)?;
        fetch(&partial)?;
        let _ = std::fs::remove_dir_all(&installed);
        std::fs::rename(&partial, &installed).map_err(failed)?;
    }
    Ok(installed)
}

/// Installs the packages of a file of requirements.
pub(crate) fn pip(requirements: &Path, into: &Path) -> Result<(), String> {
    let arguments = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
    ];
    let rest = [into.into(), "--requirement".into(), requirements.into()];
    run("python3", &arguments, &rest, into)
}

pub(crate) fn run(program: &str, arguments: &[&str], more: &[OsString], folder: &Path) -> Result<(), String> {
    if let Err(error) = Command::new(program).arg("--version").output() {
        return Err(format!("no {program}: {error}"));
    }
    let mut command = Command::new(program);
    let output = run_bounded(command.args(arguments).args(more).current_dir(folder), "", FETCH);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program} {}: {}\n{}",
            arguments.join(" "),
            output.status,
            both(&output)
        )),
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs the browser's test of the console against a server, which it ends. Returns its output, or a
/// sentence about what is missing: Node, its packages or Chromium.
///
/// # Errors
/// The sentence.
pub fn check_console(server: &Server, shots: &Path) -> Result<String, String> {
    console("check.mjs", server, shots)
}

/// Runs the browser's test of the console with ten thousand workspaces, as [`check_console`].
///
/// # Errors
/// The sentence about what is missing.
pub fn check_large_console(server: &Server, shots: &Path) -> Result<String, String> {
    console("large.mjs", server, shots)
}

fn console(script: &str, server: &Server, shots: &Path) -> Result<String, String> {
    let mut command = in_browser(script, server.url(), shots)?;
    command.env("CA", server.data_dir().join("pki/ca.crt"));
    command.env("INSULA", crate::insula(&[]).get_program());
    command.envs([("TOKEN", "carol-token"), ("TENANT", "alice-token")]);
    command.env("SERVER_PID", server.pid().to_string());
    Ok(passed(&mut command))
}

/// Runs the browser's test of sign-in at a provider, which it starts at an address with the
/// certificate in a folder, and with the console as a client with its secret, as [`check_console`].
///
/// # Errors
/// The sentence about what is missing.
pub fn check_login(
    server: &Server,
    shots: &Path,
    (issuer, pki): (&str, &Path),
    (client, secret): (&str, &str),
) -> Result<String, String> {
    let mut command = in_browser("login.mjs", server.url(), shots)?;
    command
        .env("CERTIFICATE", pki.join("server.crt"))
        .env("KEY", pki.join("server.key"));
    command.envs([("ISSUER", issuer), ("CLIENT", client), ("SECRET", secret)]);
    Ok(passed(&mut command))
}

/// Runs the browser's test of the documents that are served at a URL, as [`check_console`].
///
/// # Errors
/// The sentence about what is missing.
pub fn check_docs(url: &str, shots: &Path) -> Result<String, String> {
    Ok(passed(&mut in_browser("docs.mjs", url, shots)?))
}

/// Returns the folder for screenshots, beside the build.
pub fn shots() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().join("console-shots")
}

/// Returns a script of `e2e/clients/console` as a command, with its packages and a browser.
fn in_browser(script: &str, url: &str, shots: &Path) -> Result<Command, String> {
    let chromium = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let given = std::env::var("INSULA_CHROMIUM").ok();
    let found = given.or_else(|| {
        chromium
            .iter()
            .find(|path| Path::new(path).exists())
            .map(ToString::to_string)
    });
    let program = found.ok_or("no Chromium: install it, or name it in INSULA_CHROMIUM")?;
    let source = clients().join("console");
    let files = [
        "package.json",
        "package-lock.json",
        "browser.mjs",
        "check.mjs",
        "docs.mjs",
        "fresh.mjs",
        "large.mjs",
        "login.mjs",
        "pages.mjs",
        "seed.mjs",
        "visitors.mjs",
        "widgets.json",
    ];
    let installed = install("console", &source, &files, false, &|into| {
        for file in files {
            std::fs::copy(source.join(file), into.join(file)).map_err(|error| error.to_string())?;
        }
        let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        run("npm", &arguments, &[], into)
    })?;
    std::fs::create_dir_all(shots).map_err(|error| error.to_string())?;
    let mut command = Command::new("node");
    command.arg(installed.join(script)).env("URL", url).env("SHOTS", shots);
    command.env("CHROMIUM", program);
    for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        command.env_remove(proxy);
    }
    Ok(command)
}

/// Runs a browser's test to its end, and returns its output.
fn passed(command: &mut Command) -> String {
    let output = run_bounded(command, "", BROWSER);
    assert!(output.status.success(), "{}", both(&output));
    both(&output)
}

impl Server {
    /// Returns a self-contained kubeconfig of the administrator for one workspace.
    fn kubeconfig_of(&self, workspace: &str) -> Value {
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        config["current-context"] = "base".into();
        for cluster in config["clusters"].as_array_mut().into_iter().flatten() {
            cluster["cluster"]["server"] = format!("{}/clusters/{workspace}", self.url()).into();
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    /// Tests in threads of one process want the same packages at once.
    #[test]
    fn packages_are_fetched_once_and_seen_whole() {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("manifest"), "").unwrap();
        let name = format!("whole-{}", std::process::id());
        let fetched = AtomicUsize::new(0);
        let fetch = |into: &Path| {
            fetched.fetch_add(1, Ordering::Relaxed);
            for part in ["first", "last"] {
                std::fs::write(into.join(part), "").map_err(|error| error.to_string())?;
                thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        };
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let folder = install(&name, source.path(), &["manifest"], false, &fetch).unwrap();
                    assert!(folder.join("last").exists());
                });
            }
        });
        assert_eq!(fetched.load(Ordering::Relaxed), 1);
        let folder = install(&name, source.path(), &["manifest"], false, &fetch).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::remove_file(folder.with_extension("lock")).unwrap();
    }
}
