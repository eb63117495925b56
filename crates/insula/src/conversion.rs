//! `insula conversion …`: tools for conversion rules. Only `recompute` and `retire` need a server.

mod check;
mod convert;
mod coverage;
mod differences;
mod recompute;
mod retire;
mod suggest;
mod test;
mod webhook;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "a program parses one command")]
pub(crate) enum Command {
    /// Check rules, search for objects that lose data, and convert samples.
    Test(test::Arguments),
    /// Compare rules with a converter that a project has already.
    Check(check::Arguments),
    /// Convert objects to another version.
    Convert(convert::Arguments),
    /// List the outcome of every field in every direction.
    Coverage(coverage::Arguments),
    /// Propose rules for fields that were renamed or moved.
    Suggest(suggest::Arguments),
    /// List the stored objects that wrong rules wrote, and recompute them by today's.
    Recompute(recompute::Arguments),
    /// Remove what objects hold in a field that their definition has no more.
    Retire(retire::Arguments),
    /// Serve rules to a Kubernetes cluster as a conversion webhook.
    Webhook(webhook::Arguments),
}

pub(crate) fn main(command: &Command) -> ExitCode {
    let done = match command {
        Command::Test(arguments) => test::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Convert(arguments) => convert::run(arguments),
        Command::Coverage(arguments) => coverage::run(arguments),
        Command::Suggest(arguments) => suggest::run(arguments),
        Command::Recompute(arguments) => recompute::run(arguments),
        Command::Retire(arguments) => retire::run(arguments),
        Command::Webhook(arguments) => webhook::run(arguments),
    };
    crate::ended(done)
}
