//! Programs that the tests start: found on this machine, or fetched into `target/tools`.
//!
//! Debian's package of etcd starts a daemon when it is installed, and installing takes root. So the
//! package is only downloaded and unpacked: nothing on the machine changes but our own target
//! directory.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail, ensure};

/// Returns the etcds to run, separated by colons: those that `INSULA_ETCD` names, the one on
/// `PATH`, the one fetched before, or one fetched now.
pub fn etcd(root: &Path) -> Result<PathBuf> {
    if let Some(named) = env::var_os("INSULA_ETCD") {
        for program in env::split_paths(&named) {
            ensure!(
                program.is_file(),
                "INSULA_ETCD names {}, which is not a file",
                program.display()
            );
        }
        return Ok(named.into());
    }
    if let Some(found) = on_path("etcd") {
        return Ok(found);
    }
    let tools = root.join("target/tools");
    let fetched = tools.join("etcd-server/usr/bin/etcd");
    if !fetched.is_file() {
        let remedy = "the tests of the etcd store need an etcd 3.4 or newer: install one, or name one in INSULA_ETCD";
        unpack("etcd-server", &tools).context(remedy)?;
    }
    // Fails here rather than in each test if the program cannot run on this machine (another
    // architecture, a missing library).
    let version = Command::new(&fetched).arg("--version").output();
    ensure!(
        version.is_ok_and(|out| out.status.success()),
        "{} does not run here: name one in INSULA_ETCD",
        fetched.display()
    );
    Ok(fetched)
}

/// Returns the path of a program on `PATH`.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let candidates = env::split_paths(&env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .collect::<Vec<_>>();
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// Downloads a Debian package and unpacks it to `tools/<package>`, without root and without running
/// its scripts.
fn unpack(package: &str, tools: &Path) -> Result<()> {
    if on_path("apt-get").is_none() || on_path("dpkg").is_none() {
        bail!("no apt-get and dpkg here to fetch Debian's {package} with");
    }
    let dir = tools.join("download");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let deb = download(package, &dir)?;
    // Unpacked into a temporary folder and renamed, so that an interrupted run never looks
    // complete.
    let (partial, complete) = (tools.join(format!("{package}.partial")), tools.join(package));
    for stale in [&partial, &complete] {
        if stale.exists() {
            fs::remove_dir_all(stale).with_context(|| format!("cannot remove {}", stale.display()))?;
        }
    }
    run(Command::new("dpkg").arg("-x").arg(&deb).arg(&partial))?;
    fs::rename(&partial, &complete).with_context(|| format!("cannot make {}", complete.display()))?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// Downloads the package to `dir` and returns the file. Uses the machine's package lists if it has
/// them, else lists of our own: a fresh container has none, and refreshing the machine's takes
/// root.
fn download(package: &str, dir: &Path) -> Result<PathBuf> {
    let apt = |options: &[String], verb: &[&str]| {
        run(Command::new("apt-get")
            .current_dir(dir)
            .arg("--quiet")
            .args(options)
            .args(verb))
    };
    if apt(&[], &["download", package]).is_err() {
        let (state, cache) = (dir.join("state"), dir.join("cache"));
        for folder in [state.join("lists/partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let own = [
            format!("-oDir::State={}", state.display()),
            format!("-oDir::Cache={}", cache.display()),
        ];
        apt(&own, &["update"])?;
        apt(&own, &["download", package])?;
    }
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let package_file = files.find(|file| file.extension().is_some_and(|end| end == "deb"));
    package_file.with_context(|| format!("apt-get left no {package} package"))
}

/// Runs a command to its end. Its stderr becomes the error.
fn run(command: &mut Command) -> Result<()> {
    let Output { status, stderr, .. } = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let stderr = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{command:?} failed: {}", stderr.trim());
    Ok(())
}
