//! This workspace as cargo sees it: its packages, their dependencies, and the target directory.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The packages of this workspace, and its root.
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the root Cargo.toml.
    pub root: PathBuf,
    /// In the order of cargo, which is by path.
    pub packages: Vec<Package>,
}

/// A package and the names of its dependencies, dev and build dependencies included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// As in Cargo.toml: `insula-store`.
    pub name: String,
    /// Real names, also where a dependency is renamed.
    pub dependencies: Vec<Dependency>,
}

/// One dependency of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The name of the package depended on.
    pub name: String,
    /// Use of the dependency.
    pub kind: Kind,
}

/// Use of a dependency: shipped, or development only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Part of the shipped product.
    Normal,
    /// Only tests, benchmarks or build scripts use it.
    Development,
}

impl Workspace {
    /// Runs `cargo metadata` without network access.
    pub fn load() -> Result<Self> {
        let out = cargo(Path::new(env!("CARGO_MANIFEST_DIR")))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .output()
            .context("cannot run cargo metadata")?;
        ensure!(
            out.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata printed no JSON")?;
        let root = metadata["workspace_root"]
            .as_str()
            .context("cargo metadata names no workspace_root")?;
        let packages = metadata["packages"]
            .as_array()
            .context("cargo metadata names no packages")?;
        Ok(Self {
            root: root.into(),
            packages: packages.iter().map(package).collect::<Result<_>>()?,
        })
    }
}

/// Returns a command for the cargo that runs this program, in `dir`.
pub fn cargo(dir: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir);
    command
}

fn package(json: &Value) -> Result<Package> {
    let name = json["name"].as_str().context("a package without a name")?.to_owned();
    let dependency = |json: &Value| {
        let name = json["name"].as_str().context("a dependency without a name")?.to_owned();
        // Cargo writes null for a normal dependency, "dev" or "build" for the others.
        let kind = if json["kind"].is_null() {
            Kind::Normal
        } else {
            Kind::Development
        };
        Ok(Dependency { name, kind })
    };
    let dependencies = json["dependencies"]
        .as_array()
        .context("a package without dependencies")?;
    Ok(Package {
        name,
        dependencies: dependencies.iter().map(dependency).collect::<Result<_>>()?,
    })
}
