//! A checkout of this repository with one more package, for projects that `insula boot` generates.
//!
//! Its members are links to those of this repository, at the same relative paths. So cargo takes
//! what is compiled in this repository's target directory for theirs, and a project that is a
//! member compiles nothing but itself.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// Folder of the additional package.
const PROJECT: &str = "project";

/// A checkout with an empty folder for a project, removed at the end.
pub struct Checkout {
    dir: TempDir,
}

impl Default for Checkout {
    fn default() -> Self {
        Self::new()
    }
}

impl Checkout {
    /// Creates the checkout.
    pub fn new() -> Self {
        let dir = TempDir::with_prefix("insula-checkout-").unwrap();
        let from = root();
        for name in ["crates", "e2e", "config", "proto", ".cargo", "clippy.toml"] {
            symlink(from.join(name), dir.path().join(name)).unwrap();
        }
        fs::copy(from.join("Cargo.lock"), dir.path().join("Cargo.lock")).unwrap();
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        let (members, more) = ("\"e2e\"]", format!("\"e2e\", \"{PROJECT}\"]"));
        assert!(
            manifest.contains(members),
            "the members of the workspace are listed in another way"
        );
        fs::write(dir.path().join("Cargo.toml"), manifest.replacen(members, &more, 1)).unwrap();
        fs::create_dir(dir.path().join(PROJECT)).unwrap();
        Self { dir }
    }

    /// Returns the folder of the checkout.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the folder of the project.
    pub fn project(&self) -> PathBuf {
        self.dir.path().join(PROJECT)
    }

    /// Sets the variables of a command that builds there: offline, with what this repository has
    /// built already. Programs go to a directory of the checkout, and replace none of those that
    /// are tested.
    pub fn environment(&self, command: &mut Command) {
        // …/target/debug/insula → …/target
        let target = crate::binary().parent().and_then(Path::parent).unwrap().to_owned();
        command
            .env("INSULA_SOURCE", self.dir.path())
            .env("CARGO_TARGET_DIR", self.dir.path().join("target"))
            .env("CARGO_BUILD_BUILD_DIR", target)
            .env("CARGO_NET_OFFLINE", "true");
        // They are found there also if the command gets another home folder.
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(folder));
            let found = std::env::var_os(name).map(PathBuf::from).or(home);
            command.envs(found.filter(|path| path.exists()).map(|path| (name, path)));
        }
        // As cargo sets it for the packages here, so that build scripts see no change.
        if std::env::var_os("PROTOC").is_none() {
            command.env("PROTOC", root().join(".cargo/protoc"));
        }
    }
}

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap()
}
