//! `insula schema …`: comparison and linting of schemas.

mod diff;
mod lint;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the changes between two schemas, and which of them break clients.
    Diff(diff::Arguments),
    /// Check schemas for errors and for improvements.
    Lint(lint::Arguments),
}

pub(crate) fn main(command: &Command) -> ExitCode {
    let done = match command {
        Command::Diff(arguments) => diff::run(arguments),
        Command::Lint(arguments) => lint::run(arguments),
    };
    crate::ended(done)
}
