//! `insula export …`: publication of APIs for other workspaces.

mod check;
mod publish;
mod removal;
mod rollback;
mod schemas;
mod target;
mod usage;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make APIResourceSchemas, APIConversions and an APIExport of CustomResourceDefinitions.
    Publish(publish::Arguments),
    /// Show which versions consumers use.
    Usage(usage::Arguments),
    /// Offer the release before the present one again.
    Rollback(rollback::Arguments),
    /// List schemas and rules with their users, and delete the unused ones.
    Schemas(schemas::Arguments),
}

pub(crate) fn main(command: Command) -> ExitCode {
    match command {
        Command::Publish(arguments) => crate::ended(publish::run(&arguments)),
        Command::Usage(arguments) => crate::ended(usage::run(&arguments)),
        Command::Rollback(arguments) => crate::ended(rollback::run(&arguments)),
        Command::Schemas(arguments) => crate::ended(schemas::run(&arguments)),
    }
}
