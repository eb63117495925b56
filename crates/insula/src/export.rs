//! `insula export …`: publication of APIs for other workspaces.

mod check;
mod compatible;
mod plan;
mod publish;
mod target;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make APIResourceSchemas, APIConversions and an APIExport of CustomResourceDefinitions.
    Publish(publish::Arguments),
}

pub(crate) fn main(command: Command) -> ExitCode {
    match command {
        Command::Publish(arguments) => crate::ended(publish::run(&arguments)),
    }
}
