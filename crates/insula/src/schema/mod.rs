//! `insula schema …`: comparison and linting of schemas.

mod diff;
mod lint;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what changed between two schemas, and whether it breaks somebody.
    Diff(diff::Arguments),
    /// Find what is wrong with schemas, and what they could say.
    Lint(lint::Arguments),
}

pub(crate) fn main(command: &Command) -> ExitCode {
    let done = match command {
        Command::Diff(arguments) => diff::run(arguments),
        Command::Lint(arguments) => lint::run(arguments),
    };
    crate::ended(done)
}
