//! `insula boot build`: the program of a project, and its container.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{
    here, make,
    plan::{Plan, fill},
};
use crate::print;

#[derive(Args)]
pub(crate) struct Executables {
    /// Optimise the program.
    #[arg(long)]
    release: bool,
}

#[derive(Args)]
pub(crate) struct Container {
    /// Name of the image, such as registry.example.com/fleet:0.1.
    #[arg(long)]
    image: String,
    /// Architecture of the image.
    #[arg(long, value_enum, default_value_t = Arch::Amd64)]
    arch: Arch,
    /// Write the Dockerfile alone.
    #[arg(long)]
    no_build: bool,
}

/// Architectures by their names in images.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    fn target(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64-unknown-linux-musl",
            Arch::Arm64 => "aarch64-unknown-linux-musl",
        }
    }
}

pub(super) fn executables(arguments: &Executables) -> anyhow::Result<ExitCode> {
    let (root, project) = here()?;
    let program = program(&root, &project.name, arguments.release, None)?;
    print::line(&format!("built {}", program.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn container(arguments: &Container) -> anyhow::Result<ExitCode> {
    let (root, project) = here()?;
    let mut plan = Plan::default();
    if !root.join("Dockerfile").exists() {
        let text = include_str!("templates/Dockerfile.tmpl");
        plan.create(
            "Dockerfile",
            fill(text, &[("name", &project.name), ("image", &arguments.image)]),
        );
    }
    let code = make(plan, &root)?;
    // The context of the image is a folder with the program and nothing else.
    let context = root.join("target/container");
    if !arguments.no_build {
        let built = program(&root, &project.name, true, Some(arguments.arch.target()))?;
        fs::create_dir_all(&context).with_context(|| format!("cannot create {}", context.display()))?;
        let placed = context.join(&project.name);
        fs::copy(&built, &placed).with_context(|| format!("cannot write {}", placed.display()))?;
        print::line(&format!("built {}", placed.display()))?;
    }
    let image = &arguments.image;
    print::line("next, one of:")?;
    for builder in ["docker build", "podman build"] {
        print::line(&format!("  {builder} --file Dockerfile --tag {image} target/container"))?;
    }
    print::line(&format!(
        "  /kaniko/executor --dockerfile Dockerfile --context dir://target/container --destination {image}"
    ))?;
    Ok(code)
}

/// Builds the program of a project, and returns its path.
///
/// # Errors
/// Cargo is not there, or its build fails; its output says why.
pub(super) fn program(root: &Path, name: &str, release: bool, target: Option<&str>) -> anyhow::Result<PathBuf> {
    // With the features of the whole workspace, if the project is a part of one: its packages then
    // share dependencies.
    let mut build = cargo(root);
    build.args(["build", "--workspace", "--bin", name]);
    if release {
        build.arg("--release");
    }
    if let Some(target) = target {
        build.args(["--target", target]);
    }
    let status = build.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build failed: the output above says why");
    let mut folder = target_folder(root)?;
    folder.extend(target);
    folder.push(if release { "release" } else { "debug" });
    Ok(folder.join(name))
}

fn target_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let output = cargo(root)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let folder = metadata["target_directory"].as_str();
    folder
        .map(PathBuf::from)
        .context("cargo metadata names no target_directory")
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}
