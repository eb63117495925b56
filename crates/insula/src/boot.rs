//! `insula boot`: projects of API servers of one's own, on the library `insula-sdk`.

mod build;
mod config;
mod create;
mod init;
mod names;
mod plan;
mod project;
mod reference;
mod run;
mod workspace;

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::print;
use plan::Plan;
use project::Project;

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a program parses one command")]
pub(crate) enum Command {
    /// Begin a project in the current folder.
    #[command(subcommand)]
    Init(Init),
    /// Add a kind, a version, a subresource or a controller.
    #[command(subcommand)]
    Create(Create),
    /// Build the program, its container, its manifests or its reference.
    #[command(subcommand)]
    Build(Build),
    /// Build and run the program.
    #[command(subcommand)]
    Run(Run),
}

#[derive(Subcommand)]
pub(crate) enum Init {
    /// Write the files of a new project.
    Repo(init::Arguments),
}

#[derive(Subcommand)]
pub(crate) enum Create {
    /// Add to a group.
    #[command(subcommand)]
    Group(Group),
    /// Add a subresource to a kind.
    Subresource(create::Subresource),
    /// Add a controller to a kind that has none.
    Controller(KindFlags),
}

#[derive(Subcommand)]
pub(crate) enum Group {
    /// Add to a version of the group.
    #[command(subcommand)]
    Version(Version),
}

#[derive(Subcommand)]
pub(crate) enum Version {
    /// Add a kind, or this version of a kind that is there.
    #[command(disable_version_flag = true)]
    Resource(create::Resource),
}

#[derive(Subcommand)]
pub(crate) enum Build {
    /// Build the program of the server and its controllers.
    Executables(build::Executables),
    /// Build the static program of an image, and write its Dockerfile.
    Container(build::Container),
    /// Write the manifests that run the server in a cluster.
    Config(config::Arguments),
    /// Write a reference of the kinds and their fields.
    Docs(reference::Arguments),
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a program parses one command")]
pub(crate) enum Run {
    /// Run the server on this machine.
    Local(run::Local),
    /// Run the server on this machine, and serve its APIs in a workspace of another server.
    InWorkspace(workspace::InWorkspace),
}

/// Flags that name a kind.
#[derive(Args)]
pub(crate) struct KindFlags {
    /// Group without the project's domain, such as fleet.
    #[arg(long)]
    group: String,
    /// Kind in UpperCamel case, such as Foo.
    #[arg(long)]
    kind: String,
}

pub(crate) fn main(command: Command) -> ExitCode {
    let done = match command {
        Command::Init(Init::Repo(arguments)) => init::run(&arguments),
        Command::Create(command) => create(command),
        Command::Build(Build::Executables(arguments)) => build::executables(&arguments),
        Command::Build(Build::Container(arguments)) => build::container(&arguments),
        Command::Build(Build::Config(arguments)) => config::run(&arguments),
        Command::Build(Build::Docs(arguments)) => reference::run(&arguments),
        Command::Run(Run::Local(arguments)) => run::local(&arguments),
        Command::Run(Run::InWorkspace(arguments)) => workspace::in_workspace(&arguments),
    };
    crate::ended(done)
}

fn create(command: Create) -> anyhow::Result<ExitCode> {
    let (root, mut project) = here()?;
    let mut plan = match command {
        Create::Group(Group::Version(Version::Resource(arguments))) => {
            create::resource(&mut project, &arguments, |file| create::read(&root, file))?
        }
        Create::Subresource(arguments) => create::subresource(&mut project, &arguments)?,
        Create::Controller(flags) => create::controller(&mut project, &flags.group, &flags.kind)?,
    };
    plan.own(project::RECORD, project.record()?);
    make(plan, &root)
}

/// Returns the project of the current folder.
fn here() -> anyhow::Result<(PathBuf, Project)> {
    Project::find(&env::current_dir().context("the current folder cannot be read")?)
}

/// Makes the changes of a plan, and prints a line for each file.
fn make(mut plan: Plan, root: &Path) -> anyhow::Result<ExitCode> {
    plan.format(formatted);
    for line in plan.make(root)? {
        print::line(&line)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a text as rustfmt formats it; None where there is no rustfmt.
fn formatted(text: &str) -> Option<String> {
    let mut rustfmt = std::process::Command::new("rustfmt");
    rustfmt.args(["--edition", "2024"]);
    let pipes = rustfmt
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut process = pipes.spawn().ok()?;
    // Dropped when everything is written: rustfmt reads to the end before it writes.
    process.stdin.take()?.write_all(text.as_bytes()).ok()?;
    let output = process.wait_with_output().ok()?;
    let formatted = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !formatted.is_empty()).then_some(formatted)
}
