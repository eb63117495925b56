//! `insula export …`: publication of APIs for other workspaces.

mod check;
mod control;
mod publish;
mod read;
mod removal;
mod retire;
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
    /// List the exports of the workspace.
    List(read::List),
    /// Show an export, its rollout and the releases before.
    Show(read::Show),
    /// List the bindings of an export in all workspaces.
    Consumers(read::Consumers),
    /// Change the steps and other settings of an export.
    Update(control::Update),
    /// Stop the rollout of an export.
    Pause(control::Named),
    /// Continue a paused rollout.
    Resume(control::Resume),
    /// Take a release back that not all bindings have taken over.
    Abort(control::Abort),
    /// Deprecate a version, stop to serve it, or remove it; or the values of a removed field.
    Retire(retire::Retire),
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
        Command::List(arguments) => crate::ended(read::list(&arguments)),
        Command::Show(arguments) => crate::ended(read::show(&arguments)),
        Command::Consumers(arguments) => crate::ended(read::consumers(&arguments)),
        Command::Update(arguments) => crate::ended(control::update(&arguments)),
        Command::Pause(arguments) => crate::ended(control::pause(&arguments)),
        Command::Resume(arguments) => crate::ended(control::resume(&arguments)),
        Command::Abort(arguments) => crate::ended(control::abort(&arguments)),
        Command::Retire(arguments) => crate::ended(retire::run(&arguments)),
        Command::Usage(arguments) => crate::ended(usage::run(&arguments)),
        Command::Rollback(arguments) => crate::ended(rollback::run(&arguments)),
        Command::Schemas(arguments) => crate::ended(schemas::run(&arguments)),
    }
}
