//! `insula man`: manual pages of all commands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::print;

/// Prints the manual page of the program, or writes those of all commands into a folder.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A folder for the pages, such as /usr/local/share/man/man1.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    crate::ended(run(arguments).map(|()| ExitCode::SUCCESS))
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut root = crate::Cli::command();
    root.build();
    let Some(dir) = &arguments.dir else {
        return print::raw(&page(&root)?);
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    write(&root, dir)
}

/// Writes the page of a command and of those below it: `insula-ws-tree.1`.
fn write(command: &Command, dir: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = dir.join(format!("{name}.1"));
    fs::write(&path, page(command)?).with_context(|| format!("cannot write {}", path.display()))?;
    let below = command.get_subcommands();
    let mut shown = below.filter(|below| !below.is_hide_set() && below.get_name() != "help");
    shown.try_for_each(|below| write(below, dir))
}

fn page(command: &Command) -> anyhow::Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    String::from_utf8(page).context("a page that is no text")
}
