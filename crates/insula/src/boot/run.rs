//! `insula boot run`: the program of a project on this machine.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::anyhow;
use clap::Args;

use super::{build, here};

#[derive(Args)]
pub(crate) struct Local {
    /// Optimise the program.
    #[arg(long)]
    release: bool,
    /// Flags of the program, after `--`; they are those of `insula start`.
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<OsString>,
}

/// Builds the program and becomes it.
pub(super) fn local(arguments: &Local) -> anyhow::Result<ExitCode> {
    let (root, project) = here()?;
    let program = build::program(&root, &project.name, arguments.release, None)?;
    let error = command(&program, &root, &arguments.flags).exec();
    Err(anyhow!("cannot run {}: {error}", program.display()))
}

/// Returns the command that serves with the data directory of the project, unless flags name
/// another.
pub(super) fn command(program: &Path, root: &Path, flags: &[OsString]) -> Command {
    let mut command = Command::new(program);
    let named = |flag: &OsString| flag.to_string_lossy().starts_with("--data-dir");
    if !flags.iter().any(named) {
        command.arg("--data-dir").arg(root.join(".insula"));
    }
    command.args(flags);
    command
}
