//! Debian packages (deb(5)): an `ar` archive of two tar archives.

use std::{fs, io, path::Path};

use anyhow::{Context, Result, ensure};

use super::tarball::{ROOT, Tarball, gzip, read};

/// Files of the package: place in the unpacked release, place in the file system.
const FILES: [(&str, &str); 9] = [
    ("insula", "usr/bin/insula"),
    ("insula.yaml", "etc/insula/insula.yaml"),
    ("insula.service", "usr/lib/systemd/system/insula.service"),
    ("LICENSE", "usr/share/doc/insula/copyright"),
    ("README.md", "usr/share/doc/insula/README.md"),
    ("CHANGELOG.md", "usr/share/doc/insula/CHANGELOG.md"),
    (
        "completions/insula.bash",
        "usr/share/bash-completion/completions/insula",
    ),
    ("completions/_insula", "usr/share/zsh/vendor-completions/_insula"),
    (
        "completions/insula.fish",
        "usr/share/fish/vendor_completions.d/insula.fish",
    ),
];
/// Place of manual pages.
const PAGES: &str = "usr/share/man/man1";

/// The unit is read at once; the server starts when somebody starts it, with settings that fit.
const AFTER_INSTALLATION: &str = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then\n    \
                                  systemctl daemon-reload\nfi\n";
const BEFORE_REMOVAL: &str = "#!/bin/sh\nset -e\nif [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then\n    \
                              systemctl disable --now insula.service || true\nfi\n";

/// Facts about a package.
pub(super) struct Package<'a> {
    /// Version of the program.
    pub(super) version: &'a str,
    /// Processor by Debian's name: `amd64`.
    pub(super) arch: &'a str,
    /// True for a program that needs the C library of the machine.
    pub(super) needs_libc: bool,
    /// Time of the commit, in seconds since 1970.
    pub(super) seconds: u64,
}

impl Package<'_> {
    /// Returns the package of an unpacked release.
    pub(super) fn archive(&self, release: &Path) -> Result<Vec<u8>> {
        let files = files(release)?;
        let mut ar = ar::Builder::new(Vec::new());
        let mut add = |name: &str, bytes: &[u8]| {
            let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
            header.set_mode(0o100_644);
            header.set_mtime(self.seconds);
            ar.append(&header, bytes).with_context(|| format!("cannot pack {name}"))
        };
        add("debian-binary", b"2.0\n")?;
        add("control.tar.gz", &self.control(&files)?)?;
        add("data.tar.gz", &self.data(&files)?)?;
        Ok(ar.into_inner()?)
    }

    fn control(&self, files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
        let Package { version, arch, .. } = self;
        let kib = files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() / 1024;
        let needs = if self.needs_libc { "Depends: libc6\n" } else { "" };
        let control = format!(
            "Package: insula\nVersion: {version}\nArchitecture: {arch}\nSection: admin\nPriority: optional\n\
             Installed-Size: {kib}\n{needs}Maintainer: The Insula maintainers\n\
             Description: Kubernetes-style API server for many tenants\n \
             Serves APIs to workspaces, each a Kubernetes API server of its own, and converts\n \
             objects between versions by rules.\n"
        );
        let mut tar = Tarball::new(self.seconds);
        tar.folder("./", 0o755, ROOT)?;
        tar.file("./conffiles", 0o644, b"/etc/insula/insula.yaml\n")?;
        tar.file("./control", 0o644, control.as_bytes())?;
        tar.file("./postinst", 0o755, AFTER_INSTALLATION.as_bytes())?;
        tar.file("./prerm", 0o755, BEFORE_REMOVAL.as_bytes())?;
        gzip(&tar.finish()?)
    }

    fn data(&self, files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
        let mut tar = Tarball::new(self.seconds);
        tar.folder("./", 0o755, ROOT)?;
        let mut made: Vec<&str> = Vec::new();
        for (path, bytes) in files {
            for (at, _) in path.match_indices('/') {
                let folder = &path[..at];
                if !made.contains(&folder) {
                    tar.folder(&format!("./{folder}/"), 0o755, ROOT)?;
                    made.push(folder);
                }
            }
            let mode = if path.starts_with("usr/bin/") { 0o755 } else { 0o644 };
            tar.file(&format!("./{path}"), mode, bytes)?;
        }
        gzip(&tar.finish()?)
    }
}

/// Returns the files of the package by their path.
fn files(release: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for (from, to) in FILES {
        let path = release.join(from);
        // Completions are printed by a program that runs on this machine.
        if path.exists() || !from.starts_with("completions/") {
            files.push((to.to_owned(), read(&path)?));
        }
    }
    let pages = release.join("man");
    if pages.exists() {
        let entries = fs::read_dir(pages)?.collect::<io::Result<Vec<_>>>()?;
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.push((format!("{PAGES}/{name}.gz"), gzip(&read(&entry.path())?)?));
        }
    }
    files.sort_unstable();
    ensure!(!files.is_empty(), "a package without files");
    Ok(files)
}
